//! The DNS resolver with real packets: a name server on loopback with scripted answers, which
//! records the queries. Names resolve to their addresses and service configs, no unnecessary query
//! is sent, and failed queries change nothing.

mod name_server;

mod channel;
mod lookup;
mod txt_records;
