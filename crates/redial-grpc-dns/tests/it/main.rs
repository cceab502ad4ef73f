//! Goal: names become addresses and service configs as DNS has them, no question is asked that nobody
//! wants an answer to, and what DNS does not tell changes nothing. Method: a name server on loopback
//! that answers as it is told and remembers what it was asked, by real packets.

mod name_server;

mod channel;
mod lookup;
mod txt_records;
