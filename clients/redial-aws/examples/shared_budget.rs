//! One retry budget for the gRPC, HTTP and S3 calls of a process, in an outage of all three services.
//!
//! `cargo run --example shared_budget` prints what each service receives without a budget, with a budget for
//! each client, and with one that the clients share. `-- --picture FILE` also writes the picture of
//! `docs/aws.md`; the test of this example checks that it is current.
//!
//! The servers are real ones on loopback: tonic, hyper and s3s-fs, each behind the fault proxy. Calls are made
//! one after the other and the budgets do not refill over time, so that the numbers are the same in each run.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use aws_sdk_s3::config::{BehaviorVersion, Config, Credentials, Region};
use aws_smithy_http_client::Builder as HttpBuilder;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder as ConnBuilder;
use hyper_util::service::TowerToHyperService;
use redial::throttle::RetryBudget;
use redial::{Policy, Throttle, ms};
use redial_aws::{RetryInterceptor, with_retries};
use redial_echo::echo_client::EchoClient;
use redial_echo::echo_server::EchoServer;
use redial_echo::{EchoRequest, Responder};
use redial_faults::grpc::StatusNumber;
use redial_faults::proxy::{Fault, Handle, Proxy, Rule};
use redial_http::{RetryLayer, RetryService};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server as GrpcServer};
use tower::{Layer as _, Service as _, ServiceExt as _};

type AnyError = Box<dyn Error + Send + Sync>;

/// Each round makes one call to each service. The services are down from round 40 to round 99.
const ROUNDS: usize = 140;
const DOWN: std::ops::Range<usize> = 40..100;
/// Rounds of one point in the picture.
const WINDOW: usize = 5;
const SERVICES: [&str; 3] = ["gRPC", "HTTP", "S3"];

/// How the clients limit their retries.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Budgets {
    None,
    /// One for each client.
    Own,
    /// One for all clients.
    Shared,
}

const BUDGETS: [(Budgets, &str); 3] = [
    (Budgets::None, "no budget"),
    (Budgets::Own, "a budget for each client"),
    (Budgets::Shared, "one shared budget"),
];

/// Two retries after at most a millisecond. The config has no `retryThrottling`, so that only the budget limits retries.
const GRPC_CONFIG: &str = r#"{ "methodConfig": [{ "name": [{}],
    "retryPolicy": { "maxAttempts": 3, "initialBackoff": "0.001s", "maxBackoff": "0.001s",
                     "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"] } }] }"#;

/// Two retries after a millisecond, limited by this budget.
fn policy(budget: Option<&Arc<RetryBudget>>) -> Policy {
    let policy = Policy::constant(ms(1)).attempts(3);
    match budget {
        Some(budget) => policy.build().with_budget(budget.clone()),
        None => policy.throttle(Throttle::none()).build(),
    }
}

/// Serves each connection of a new listener on loopback with a clone of this service of hyper.
macro_rules! serve {
    ($service:expr) => {{
        let (service, listener) = ($service, TcpListener::bind("127.0.0.1:0").await?);
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let server = ConnBuilder::new(TokioExecutor::new());
                    // A client that goes away is not a problem of the server.
                    let _ = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        address
    }};
}

/// The three services, each behind its fault proxy.
struct Services {
    proxies: [Handle; 3],
    _folder: TempDir,
}

impl Services {
    async fn start() -> Result<Services, AnyError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let grpc = listener.local_addr()?;
        let router = GrpcServer::builder().add_service(EchoServer::new(Responder));
        tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));

        let hello = |_request| async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
        };
        let http = serve!(TowerToHyperService::new(tower::service_fn(hello)));

        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("shop"))?;
        let files = FileSystem::new(folder.path()).map_err(|error| format!("{error:?}"))?;
        let mut s3 = S3ServiceBuilder::new(files);
        s3.set_auth(SimpleAuth::from_single("key", "secret"));
        let s3 = serve!(s3.build());

        let proxy = async |address| Proxy::http(address).listen("127.0.0.1:0").await;
        let proxies = [proxy(grpc).await?, proxy(http).await?, proxy(s3).await?];
        Ok(Services { proxies, _folder: folder })
    }

    /// Every request to these services fails from now on.
    fn fail(&self, services: &[usize]) {
        for service in services {
            let fault = match service {
                0 => Fault::grpc_status(StatusNumber::UNAVAILABLE),
                _ => Fault::status(503),
            };
            self.proxies[*service].rule(Rule::new(fault));
        }
    }

    fn recover(&self) {
        self.proxies.iter().for_each(Handle::clear);
    }

    /// The requests that each service has received.
    fn requests(&self) -> [u64; 3] {
        [0, 1, 2].map(|service: usize| self.proxies[service].counts().exchanges)
    }
}

/// The three clients of the process.
struct Clients {
    grpc: EchoClient<redial_grpc::RetryService<Channel>>,
    http: RetryService<HyperClient<HttpConnector, Empty<Bytes>>>,
    http_url: String,
    s3: aws_sdk_s3::Client,
}

impl Clients {
    async fn new(services: &Services, budgets: Budgets) -> Result<Clients, AnyError> {
        let new_budget = || Arc::new(RetryBudget::new(10.0, 0.1));
        let shared = new_budget();
        let [grpc, http, s3] = [(); 3].map(|()| match budgets {
            Budgets::None => None,
            Budgets::Own => Some(new_budget()),
            Budgets::Shared => Some(shared.clone()),
        });
        let [grpc_url, http_url, s3_url] = [0, 1, 2].map(|it: usize| services.proxies[it].url());

        let channel = Channel::from_shared(grpc_url)?.connect().await?;
        let layer = redial_grpc::RetryLayer::builder().config_json(GRPC_CONFIG)?;
        let layer = match grpc {
            Some(budget) => layer.retry_budget(budget),
            None => layer,
        };
        let grpc = EchoClient::new(layer.build().layer(channel));

        let layer = RetryLayer::new(&policy(None));
        let layer = match http {
            Some(budget) => layer.shared_budget(budget),
            None => layer.policy_throttle(),
        };
        let client = HyperClient::builder(TokioExecutor::new()).build_http();

        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "example"))
            .http_client(HttpBuilder::new().build_http())
            .force_path_style(true)
            .endpoint_url(s3_url);
        let config = with_retries!(config, RetryInterceptor::new(policy(s3.as_ref()))?);
        Ok(Clients {
            grpc,
            http: layer.layer(client),
            http_url,
            s3: aws_sdk_s3::Client::from_conf(config.build()),
        })
    }

    /// One call to each service; whether it succeeded.
    async fn call_each(&mut self) -> [bool; 3] {
        let grpc = self.grpc.unary(EchoRequest::default()).await.is_ok();

        let request = Request::get(&self.http_url).body(Empty::new()).expect("a URL");
        let http = match self.http.ready().await {
            Ok(client) => client.call(request).await.is_ok_and(|it| it.status().is_success()),
            Err(_) => false,
        };
        [grpc, http, self.s3.head_bucket().bucket("shop").send().await.is_ok()]
    }
}

/// The requests per call of each service, for each window of an outage of all services.
async fn outage_of_all(budgets: Budgets) -> Result<[Vec<f64>; 3], AnyError> {
    let services = Services::start().await?;
    let mut clients = Clients::new(&services, budgets).await?;
    let mut load = [const { Vec::new() }; 3];
    let mut before = services.requests();
    for round in 0..ROUNDS {
        match round {
            round if round == DOWN.start => services.fail(&[0, 1, 2]),
            round if round == DOWN.end => services.recover(),
            _ => {}
        }
        let succeeded = clients.call_each().await;
        assert_eq!(succeeded, [!DOWN.contains(&round); 3], "round {round}");
        if (round + 1) % WINDOW == 0 {
            let now = services.requests();
            for service in 0..3 {
                load[service].push((now[service] - before[service]) as f64 / WINDOW as f64);
            }
            before = now;
        }
    }
    Ok(load)
}

/// The other side of sharing: gRPC is down, and every tenth request of the others fails once. Returns how
/// many calls of the others fail, of how many.
async fn outage_of_one(budgets: Budgets) -> Result<(usize, usize), AnyError> {
    let services = Services::start().await?;
    let mut clients = Clients::new(&services, budgets).await?;
    services.fail(&[0]);
    let (mut failed, rounds) = (0, 100);
    for round in 0..rounds {
        if round % 10 == 9 {
            services.proxies[1].requests([Fault::status(503)]);
            services.proxies[2].requests([Fault::status(503)]);
        }
        let [_, http, s3] = clients.call_each().await;
        failed += usize::from(!http) + usize::from(!s3);
    }
    Ok((failed, 2 * rounds))
}

/// The retries of a service in the outage: what it received more than one request per call.
fn retries(load: &[f64]) -> f64 {
    load.iter().map(|requests| (requests - 1.0) * WINDOW as f64).sum()
}

/// The requests per call of each service over time, as SVG for light and dark pages.
fn picture(loads: &[(&str, [Vec<f64>; 3])]) -> String {
    const STYLE: &str = "text{font:12px system-ui,Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#24292f}\
        .name{font-weight:600}.page{fill:#ffffff}.grid{stroke:#d8dee4}.shade{fill:#f3e5c8}\
        .l0,.l1,.l2{fill:none;stroke-width:1.8}.l0{stroke:#8c959f}.l1{stroke:#cf4a1f}.l2{stroke:#2f6fd0}\
        @media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.grid{stroke:#2a313c}\
        .shade{fill:#3a3016}.l0{stroke:#6e7681}.l1{stroke:#ff8a5c}.l2{stroke:#6ea8ff}}";
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 250\" role=\"img\" \
         aria-label=\"requests per call of three services in an outage\">\n",
    );
    let mut write = |line: String| svg.push_str(&(line + "\n"));
    write(format!("<style>{STYLE}</style>"));
    write("<rect class=\"page\" width=\"760\" height=\"250\"/>".to_owned());
    let x = |service: usize, round: usize| 50 + service * 240 + round * 200 / ROUNDS;
    let y = |requests: f64| 190.0 - requests * 50.0;
    for (service, name) in SERVICES.iter().enumerate() {
        let (left, right) = (x(service, 0), x(service, ROUNDS));
        let (from, to) = (x(service, DOWN.start), x(service, DOWN.end));
        write(format!(
            "<rect class=\"shade\" x=\"{from}\" y=\"30\" width=\"{}\" height=\"160\"/>",
            to - from
        ));
        write(format!("<text class=\"name\" x=\"{left}\" y=\"20\">{name}</text>"));
        for requests in 0..=3_u8 {
            let y = y(f64::from(requests));
            write(format!(
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\"/>"
            ));
            write(format!("<text x=\"{}\" y=\"{}\">{requests}</text>", left - 14, y + 4.0));
        }
        for (line, (_, load)) in loads.iter().enumerate() {
            let mut points = String::new();
            for (window, requests) in load[service].iter().enumerate() {
                let (from, to) = (x(service, window * WINDOW), x(service, (window + 1) * WINDOW));
                let y = y(*requests);
                let _ = write!(points, "{from},{y:.1} {to},{y:.1} ");
            }
            write(format!("<polyline class=\"l{line}\" points=\"{}\"/>", points.trim_end()));
        }
    }
    write("<text x=\"50\" y=\"210\">requests per call, over time; all services are down in the shade</text>".into());
    for (line, (name, _)) in loads.iter().enumerate() {
        let x = 50 + line * 200;
        write(format!(
            "<line class=\"l{line}\" x1=\"{x}\" x2=\"{}\" y1=\"232\" y2=\"232\"/>",
            x + 20
        ));
        write(format!("<text x=\"{}\" y=\"236\">{name}</text>", x + 26));
    }
    svg + "</svg>\n"
}

/// Runs both outages; returns the tables and the picture.
async fn run() -> Result<(String, String), AnyError> {
    let mut text = format!(
        "All three services are down for {} calls each: retries that they receive.\n\n\
         | clients | gRPC | HTTP | S3 | together |\n| --- | --- | --- | --- | --- |\n",
        DOWN.len()
    );
    let mut loads = Vec::new();
    for (budgets, name) in BUDGETS {
        let load = outage_of_all(budgets).await?;
        let [grpc, http, s3] = [0, 1, 2].map(|service: usize| retries(&load[service]));
        let sum = grpc + http + s3;
        let _ = writeln!(text, "| {name} | {grpc:.0} | {http:.0} | {s3:.0} | {sum:.0} |");
        loads.push((name, load));
    }
    text += "\nOnly gRPC is down, and every tenth request of the others fails once: their failed calls.\n\n\
             | clients | failed calls of HTTP and S3 |\n| --- | --- |\n";
    for (budgets, name) in BUDGETS {
        let (failed, calls) = outage_of_one(budgets).await?;
        let _ = writeln!(text, "| {name} | {failed} of {calls} |");
    }
    Ok((text, picture(&loads)))
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let (text, picture) = run().await?;
    println!("{text}");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => Ok(()),
        [option, file] if option == "--picture" => Ok(std::fs::write(file, picture)?),
        _ => Err("usage: shared_budget [--picture FILE]".into()),
    }
}

#[tokio::test]
async fn shared_budget_picture_and_tables_of_the_documents_are_current() {
    let (text, picture) = run().await.unwrap();
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let hint =
        "cargo run --example shared_budget -- --picture ../../docs/pictures/shared-budget.svg";
    let current = std::fs::read_to_string(format!("{docs}/pictures/shared-budget.svg")).unwrap();
    assert_eq!(current, picture, "{hint}");
    let page = std::fs::read_to_string(format!("{docs}/aws.md")).unwrap();
    for row in text.lines().filter(|line| line.starts_with('|')) {
        assert!(page.contains(row), "docs/aws.md does not have {row}");
    }
}
