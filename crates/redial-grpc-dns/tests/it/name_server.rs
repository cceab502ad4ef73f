//! A name server on loopback: UDP and TCP on one port, answers that can be changed, and a list of
//! the queries.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// The answer to a name and a type. Names without an answer do not exist.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// These records, with their TTL in seconds.
    Records(u32, Vec<RData>),
    /// No such record, with this negative TTL in seconds.
    NoRecord(u32),
    /// SERVFAIL.
    ServFail,
    /// No answer.
    Silent,
}

/// One query, and its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) name: String,
    pub(crate) kind: RecordType,
    pub(crate) by_tcp: bool,
}

#[derive(Default)]
struct State {
    answers: HashMap<(String, RecordType), Answer>,
    queries: Vec<Query>,
}

/// The server; it ends with its runtime.
#[derive(Clone)]
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl NameServer {
    pub(crate) async fn start() -> io::Result<Self> {
        let (udp, tcp) = sockets().await?;
        let server = NameServer { address: udp.local_addr()?, state: Arc::default() };
        let (by_udp, by_tcp) = (server.clone(), server.clone());
        tokio::spawn(async move { by_udp.serve_udp(udp).await });
        tokio::spawn(async move {
            while let Ok((stream, _)) = tcp.accept().await {
                let server = by_tcp.clone();
                tokio::spawn(async move { server.serve_tcp(stream).await });
            }
        });
        Ok(server)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn set_answer(&self, name: &str, kind: RecordType, answer: Answer) {
        self.state().answers.insert((format!("{name}."), kind), answer);
    }

    /// Sets the addresses of a name.
    pub(crate) fn set_addresses(&self, name: &str, ttl: u32, ips: &[IpAddr]) {
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = ips.iter().partition(|ip| ip.is_ipv4());
        for (kind, ips) in [(RecordType::A, v4), (RecordType::AAAA, v6)] {
            let answer = match ips.is_empty() {
                true => Answer::NoRecord(ttl),
                false => Answer::Records(ttl, ips.into_iter().map(RData::from).collect()),
            };
            self.set_answer(name, kind, answer);
        }
    }

    /// Sets the one TXT record of a name, in character-strings of the maximum length.
    pub(crate) fn set_txt(&self, name: &str, ttl: u32, text: &str) {
        let strings = text.as_bytes().chunks(255).collect();
        let record = RData::TXT(TXT::from_bytes(strings));
        self.set_answer(name, RecordType::TXT, Answer::Records(ttl, vec![record]));
    }

    /// Returns the queries since the last call.
    pub(crate) fn queries(&self) -> Vec<Query> {
        std::mem::take(&mut self.state().queries)
    }

    /// Returns how many queries of this type arrived since the last call.
    pub(crate) fn query_count(&self, kind: RecordType) -> usize {
        self.queries().iter().filter(|queries| queries.kind == kind).count()
    }

    async fn serve_udp(&self, socket: UdpSocket) {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let Some((answer, most)) = self.answer(&buffer[..length], false) else { continue };
            let bytes = answer.to_vec().unwrap();
            let bytes = match bytes.len() > usize::from(most) {
                true => answer.truncate().to_vec().unwrap(),
                false => bytes,
            };
            let _ = socket.send_to(&bytes, from).await;
        }
    }

    async fn serve_tcp(&self, mut stream: TcpStream) {
        while let Ok(length) = stream.read_u16().await {
            let mut buffer = vec![0; length.into()];
            if stream.read_exact(&mut buffer).await.is_err() {
                return;
            }
            let Some((answer, _)) = self.answer(&buffer, true) else { continue };
            let bytes = answer.to_vec().unwrap();
            let length = u16::try_from(bytes.len()).unwrap();
            if stream.write_u16(length).await.is_err() || stream.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }

    /// The answer to a query, and its size limit over UDP.
    fn answer(&self, question: &[u8], by_tcp: bool) -> Option<(Message, u16)> {
        let question = Message::from_vec(question).expect("hickory asks in DNS");
        let query = question.queries.first().expect("and asks for something").clone();
        let (name, kind) = (query.name().to_lowercase().to_string(), query.query_type());
        let answer = {
            let mut state = self.state();
            let shown = name.trim_end_matches('.').to_owned();
            state.queries.push(Query { name: shown, kind, by_tcp });
            state.answers.get(&(name, kind)).cloned()
        };
        let mut message =
            Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
        message.metadata.recursion_available = true;
        message.add_query(query.clone());
        if let Some(edns) = question.edns.clone() {
            message.set_edns(edns);
        }
        match answer {
            Some(Answer::Silent) => return None,
            Some(Answer::ServFail) => message.metadata.response_code = ResponseCode::ServFail,
            Some(Answer::Records(ttl, records)) => {
                let name = query.name();
                message.add_answers(
                    records.into_iter().map(|data| Record::from_rdata(name.clone(), ttl, data)),
                );
            }
            Some(Answer::NoRecord(ttl)) => drop(message.add_authority(start_of_authority(ttl))),
            None => message.metadata.response_code = ResponseCode::NXDomain,
        }
        Some((message, question.max_payload()))
    }
}

fn start_of_authority(ttl: u32) -> Record {
    let name = |name| Name::from_ascii(name).unwrap();
    let soa = SOA::new(name("ns.test."), name("root.test."), 1, 60, 60, 60, ttl);
    Record::from_rdata(name("test."), ttl, RData::SOA(soa))
}

/// Both sockets on the same port: a free one for UDP may be taken for TCP.
async fn sockets() -> io::Result<(UdpSocket, TcpListener)> {
    let mut last = io::Error::other("not tried");
    for _ in 0..20 {
        let udp = UdpSocket::bind("127.0.0.1:0").await?;
        match TcpListener::bind(udp.local_addr()?).await {
            Ok(tcp) => return Ok((udp, tcp)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
