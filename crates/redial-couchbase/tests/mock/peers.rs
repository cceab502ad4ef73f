//! Goal: what the vendor's clients (gocb, the Java SDK and the Rust SDK) do beside ours, on the same mock, with the same
//! faults. Method: programs around the libraries (`interop/couchbase`) and our client make the same
//! request; the strategy of each notes what it was asked and what it answered, and the mock says when
//! attempts arrived. `interop/couchbase/differences.json` has the cases, what our client does, and each
//! difference with its decision. A difference without a row fails, and so does a row without one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redial::strategy::{Decision, Request, Strategy};
use redial::{ms, s};
use redial_couchbase::client::{Client, ClientOptions, Collection, RequestError};
use redial_couchbase::{BestEffort, Error, TimeoutKind, reason};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::READY_MAX;
use crate::server::{ACCOUNT, HTTP_MAX, Mock};

impl Mock {
    /// Makes the first node of a bucket silent: it keeps its connections, and answers nothing until it is
    /// respawned. With one node this is what is left of a failover, which ends with an error.
    fn silence(&self, bucket: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.rest_port)).expect("it listens");
        stream.set_read_timeout(Some(HTTP_MAX)).expect("it is a socket");
        let path = format!("/mock/failover?bucket={bucket}&idx=0");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: mock\r\nConnection: close\r\n{ACCOUNT}\r\n")
            .expect("it reads");
        // The answer is an error, or none at all.
        let _ = stream.read(&mut [0; 1024]);
    }
}

/// The bucket with a password: the Java SDK accepts no empty one.
const BUCKET: &str = "secure";
const OPCODES: [(&str, u64); 2] = [("get", 0x00), ("upsert", 0x01)];
/// A gap between attempts is as expected if it is at least that (the mock's clock has whole milliseconds)
/// and at most this much longer: the timers of the Java SDK have ticks of 10 ms.
const GAP_TOLERANCE_MS: u64 = 15;
/// How many times a case is played until its times are as expected: the machine may be busy, or a poll of
/// the client may take one of the injected failures. Of each gap the shortest counts. Another difference
/// counts at once.
const PLAYS: usize = 20;
/// How long a node is silent.
const SILENCE: Duration = Duration::from_millis(300);

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
    differences: Vec<Row>,
}

/// A request that meets a fault.
#[derive(Deserialize)]
struct Case {
    name: String,
    operation: String,
    fault: Fault,
    timeout_ms: u64,
    /// What our client does.
    expect: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fault {
    /// The next requests get a status.
    Status { code: u16, count: i32 },
    /// The document is locked for longer than the timeout.
    Lock,
    /// The node is silent for a while, then respawned.
    Silence,
    /// The mock is killed while the request is in flight.
    Kill,
}

/// A difference between clients.
#[derive(Deserialize)]
struct Row {
    what: String,
    /// By case, client and field: what the client does instead.
    cases: BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>>,
}

/// The answer of a client to a request.
#[derive(Deserialize)]
struct Answer {
    outcome: String,
    asked: Vec<Asked>,
}

/// What a strategy was asked, and its answer; `None` is no retry.
#[derive(Clone, Debug, Deserialize)]
struct Asked {
    reason: String,
    delay_ms: Option<f64>,
}

/// A client that is ready.
enum Tested {
    Ours { runtime: tokio::runtime::Runtime, documents: Collection, asked: Arc<Mutex<Vec<Asked>>> },
    Program { child: Child, input: ChildStdin, output: BufReader<ChildStdout> },
}

impl Tested {
    fn start(name: &str, mock: &Mock) -> Self {
        if name == "redial" {
            return Tested::ours(mock.options(BUCKET));
        }
        let variable = format!("REDIAL_COUCHBASE_{}", name.to_uppercase());
        let command = std::env::var(&variable).unwrap_or_else(|_| {
            panic!("{variable} is the program; run `cargo xtask test couchbase-peers`")
        });
        let mut words = command.split(' ');
        let mut child = Command::new(words.next().expect("a program"))
            .args(words)
            .args(["client", &format!("127.0.0.1:{}", mock.kv_ports(BUCKET)[0])])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        let input = child.stdin.take().expect("it is piped");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let ready = line(&mut output);
        assert_eq!(ready["ready"], true, "{name}: {ready}");
        Tested::Program { child, input, output }
    }

    fn ours(options: ClientOptions) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        let strategy = move |request: &Request<'_>| {
            let answer = BestEffort::new().retry_after(request);
            let delay_ms = match &answer {
                Decision::Retry(delay) => Some(delay.as_secs_f64() * 1e3),
                _ => None,
            };
            let reason = request.reason().unwrap_or(reason::UNKNOWN).name().to_owned();
            noted.lock().expect("no panic").push(Asked { reason, delay_ms });
            answer
        };
        let documents = runtime.block_on(async {
            let client = Client::open(options.credentials(BUCKET, "secret").strategy(strategy));
            client.wait_until_ready(READY_MAX).await.expect("the mock is there");
            client.default_collection()
        });
        asked.lock().expect("no panic").clear();
        Tested::Ours { runtime, documents, asked }
    }

    fn request(&mut self, case: &Case) -> Answer {
        match self {
            Tested::Program { input, output, .. } => {
                let request =
                    json!({"operation": case.operation, "key": "a", "timeout_ms": case.timeout_ms});
                writeln!(input, "{request}").expect("it reads");
                serde_json::from_value(line(output)).expect("an answer")
            }
            Tested::Ours { runtime, documents, asked } => {
                let timeout = ms(case.timeout_ms);
                let ended = runtime.block_on(async {
                    match &*case.operation {
                        "get" => documents.get("a").timeout(timeout).await.map(drop),
                        _ => documents.upsert("a", "1").timeout(timeout).await.map(drop),
                    }
                });
                let asked = std::mem::take(&mut *asked.lock().expect("no panic"));
                Answer {
                    outcome: ended.err().map_or("ok".to_owned(), |error| outcome(&error)),
                    asked,
                }
            }
        }
    }
}

impl Drop for Tested {
    fn drop(&mut self) {
        if let Tested::Program { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The outcome of our client by the names of `interop/README.md`.
fn outcome(error: &Error<RequestError>) -> String {
    let status = error.last().and_then(RequestError::status);
    match error.timeout() {
        Some(TimeoutKind::Ambiguous) => "ambiguous timeout".to_owned(),
        Some(TimeoutKind::Unambiguous) => "unambiguous timeout".to_owned(),
        None if error.reason() == Some(reason::SOCKET_CLOSED_WHILE_IN_FLIGHT) => {
            "connection lost".to_owned()
        }
        None if status == Some(0x82) => "out of memory".to_owned(),
        None => error.to_string(),
    }
}

fn line(output: &mut impl BufRead) -> Value {
    let mut text = String::new();
    output.read_line(&mut text).expect("it writes");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// The arrivals at the mock: opcode and time.
fn arrivals(mock: &Mock) -> Vec<(u64, u64)> {
    let answer = mock.command(&format!("get_cmdlog?idx=0&bucket={BUCKET}"));
    let list = answer["payload"].as_array().expect("a list").clone();
    // An opcode is a signed byte here.
    let opcode = |entry: &Value| entry["opcode"].as_i64().map(|it| (it & 0xff) as u64);
    let entry = |entry: &Value| Some((opcode(entry)?, entry["ms_timestamp"].as_u64()?));
    list.iter().map(|it| entry(it).expect("opcode and time")).collect()
}

/// Plays a case once; `None` if a request of the client's own fell into it.
fn play(case: &Case, client: &mut Tested, mock: &Mock) -> Option<BTreeMap<String, Value>> {
    mock.command(&format!("start_cmdlog?idx=0&bucket={BUCKET}"));
    let before = arrivals(mock).len();
    let fail = |code: u16, count: i32| {
        mock.command(&format!("opfail?bucket={BUCKET}&code={code}&count={count}&servers=[]"));
    };
    let answer = match case.fault {
        Fault::Status { code, count } => {
            fail(code, count);
            let answer = client.request(case);
            fail(0, 0);
            answer
        }
        Fault::Lock | Fault::Kill => client.request(case),
        Fault::Silence => std::thread::scope(|scope| {
            // The mock has one node, so the rest of a failover fails; the node is silent.
            mock.silence(BUCKET);
            scope.spawn(|| {
                std::thread::sleep(SILENCE);
                mock.command(&format!("respawn?bucket={BUCKET}&idx=0"));
            });
            client.request(case)
        }),
    };
    let mut observed = observed_by(&answer);
    if matches!(case.fault, Fault::Kill) {
        return Some(observed);
    }
    let arrived = arrivals(mock).split_off(before);
    let opcode = OPCODES.iter().find(|(name, _)| *name == case.operation).expect("an operation").1;
    if arrived.iter().any(|(it, _)| *it != opcode) {
        return None;
    }
    let gaps: Vec<u64> = arrived.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    for (asked, gap) in answer.asked.iter().zip(&gaps) {
        let delay = asked.delay_ms.unwrap_or(0.0);
        assert!(*gap as f64 + 1.0 >= delay, "{}: {gap} ms after {asked:?}", case.name);
    }
    observed.insert("attempts".to_owned(), json!(arrived.len()));
    // What the strategies do not decide is measured.
    observed
        .insert("gaps_ms".to_owned(), json!(if answer.asked.is_empty() { gaps } else { vec![] }));
    Some(observed)
}

/// What the answer of the client tells: outcome, reasons in order, delays.
fn observed_by(answer: &Answer) -> BTreeMap<String, Value> {
    let mut reasons: Vec<_> = answer.asked.iter().map(|it| &it.reason).collect();
    reasons.dedup();
    let delays: Vec<_> = answer.asked.iter().map(|it| it.delay_ms).collect();
    [
        ("outcome".to_owned(), json!(answer.outcome)),
        ("reasons".to_owned(), json!(reasons)),
        ("delays_ms".to_owned(), json!(delays)),
    ]
    .into()
}

/// Whether an observed field is as expected: gaps within their tolerance, all else exactly.
fn is_as(field: &str, observed: &Value, expected: &Value) -> bool {
    let numbers = |value: &Value| -> Option<Vec<f64>> {
        value.as_array()?.iter().map(Value::as_f64).collect()
    };
    match (numbers(observed), numbers(expected)) {
        (Some(observed), Some(expected)) if field == "gaps_ms" => {
            let near = |(gap, expected): (&f64, &f64)| {
                gap + 1.0 >= *expected && *gap <= expected + GAP_TOLERANCE_MS as f64
            };
            observed.len() == expected.len() && observed.iter().zip(&expected).all(near)
        }
        (Some(observed), Some(expected)) => observed == expected,
        _ => observed == expected,
    }
}

/// Whether a busy machine can change a field: the gaps, and how many attempts come before a timeout.
fn depends_on_time(field: &str, expected: &BTreeMap<String, Value>) -> bool {
    let outcome = expected.get("outcome").and_then(Value::as_str).unwrap_or_default();
    field == "gaps_ms"
        || (outcome.ends_with("timeout") && matches!(field, "attempts" | "delays_ms"))
}

/// Plays a case until its times are as expected; the last play counts if they never are.
fn observe(
    case: &Case,
    expected: &BTreeMap<String, Value>,
    name: &str,
    mocks: &mut Mocks,
) -> BTreeMap<String, Value> {
    let mut last = None;
    for _ in 0..PLAYS {
        let (mock, client) = mocks.ready(name);
        prepare(case, mock);
        let observed = if matches!(case.fault, Fault::Kill) {
            // The answer stays on its way: four bytes, then the rest much later.
            mock.command(&format!("hiccup?bucket={BUCKET}&msecs=5000&offset=4&servers=[]"));
            let (mock, mut client) = mocks.take(name);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(SILENCE);
                    drop(mock);
                });
                Some(observed_by(&client.request(case)))
            })
        } else {
            let observed = play(case, client, mock);
            if matches!(case.fault, Fault::Lock) {
                // The mock's clock ends the lock.
                mock.command("time_travel?Offset=20");
            }
            observed
        };
        let Some(mut observed) = observed else { continue };
        shorten_gaps(&mut observed, last.as_ref());
        let wrong = wrong_fields(expected, &observed);
        let is_settled =
            wrong.is_empty() || wrong.iter().any(|field| !depends_on_time(field, expected));
        last = Some(observed);
        if is_settled {
            break;
        }
    }
    last.unwrap_or_else(|| panic!("{name}, {}: its own requests fell into every play", case.name))
}

/// Replaces each gap by that of an earlier play, if it was shorter: no client sends before its delay is
/// over, so all that a busy machine does is to make a gap longer.
fn shorten_gaps(observed: &mut BTreeMap<String, Value>, earlier: Option<&BTreeMap<String, Value>>) {
    let gaps = |it: &BTreeMap<String, Value>| -> Option<Vec<u64>> {
        it.get("gaps_ms")?.as_array()?.iter().map(Value::as_u64).collect()
    };
    if let (Some(present), Some(earlier)) = (gaps(observed), earlier.and_then(gaps))
        && present.len() == earlier.len()
    {
        let shortest = present.iter().zip(&earlier).map(|(a, b)| a.min(b));
        observed.insert("gaps_ms".to_owned(), json!(shortest.collect::<Vec<_>>()));
    }
}

/// The fields that are not as expected.
fn problems_of(
    expected: &BTreeMap<String, Value>,
    observed: &BTreeMap<String, Value>,
) -> Vec<String> {
    let found = |field: &str| observed.get(field).unwrap_or(&Value::Null);
    let wrong = wrong_fields(expected, observed).into_iter();
    wrong
        .map(|field| format!("{field} is {}, expected {}", found(field), expected[field]))
        .collect()
}

fn wrong_fields<'e>(
    expected: &'e BTreeMap<String, Value>,
    observed: &BTreeMap<String, Value>,
) -> Vec<&'e str> {
    let found = |field: &String| observed.get(field).unwrap_or(&Value::Null);
    let wrong = expected.iter().filter(|(field, value)| !is_as(field, found(field), value));
    wrong.map(|(field, _)| field.as_str()).collect()
}

/// A mock with each client.
#[derive(Default)]
struct Mocks(BTreeMap<String, (Mock, Tested)>);

impl Mocks {
    fn ready(&mut self, name: &str) -> (&Mock, &mut Tested) {
        let start = || {
            let mock = Mock::start(1, 0);
            let client = Tested::start(name, &mock);
            (mock, client)
        };
        let (mock, client) = self.0.entry(name.to_owned()).or_insert_with(start);
        (mock, client)
    }

    fn take(&mut self, name: &str) -> (Mock, Tested) {
        self.0.remove(name).expect("it is ready")
    }
}

#[test]
#[ignore = "needs Java, Maven, Go and CouchbaseMock: cargo xtask test couchbase-peers"]
fn peers_differ_from_redial_as_listed() {
    let text = include_str!("../../../../interop/couchbase/differences.json");
    let file: File = serde_json::from_str(text).expect("the list has its format");
    let mut mocks = Mocks::default();
    let mut problems = String::new();
    let mut seen = 0;
    for name in ["redial", "go", "java", "rust"] {
        for case in &file.cases {
            let mut expected = case.expect.clone();
            let rows = file.differences.iter();
            let listed = rows.filter_map(|row| Some((row, row.cases.get(&case.name)?.get(name)?)));
            for (row, fields) in listed {
                for (field, value) in fields {
                    if is_as(field, value, &expected[field]) {
                        let _ = writeln!(
                            problems,
                            "{}: {name}, {}: no difference in {field}",
                            row.what, case.name
                        );
                    }
                    seen += 1;
                    expected.insert(field.clone(), value.clone());
                }
            }
            let observed = observe(case, &expected, name, &mut mocks);
            for problem in problems_of(&expected, &observed) {
                let _ = writeln!(problems, "{name}, {}: {problem}", case.name);
            }
        }
    }
    let fields =
        file.differences.iter().flat_map(|row| row.cases.values()).flat_map(BTreeMap::values);
    let listed: usize = fields.map(BTreeMap::len).sum();
    if seen != listed {
        let _ = writeln!(
            problems,
            "{listed} differences are listed, {seen} belong to a case and a client"
        );
    }
    assert!(problems.is_empty(), "\n{problems}");
}

/// Writes the document of the case, and locks it if the case says so.
fn prepare(case: &Case, mock: &Mock) {
    let mut client = Tested::ours(mock.options(BUCKET));
    let Tested::Ours { runtime, documents, .. } = &mut client else { return };
    runtime.block_on(async {
        documents.upsert("a", "1").await.expect("the mock serves it");
        if matches!(case.fault, Fault::Lock) {
            documents.get_and_lock("a", s(15)).await.expect("it is there");
        }
    });
}
