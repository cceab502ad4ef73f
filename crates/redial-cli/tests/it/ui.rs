//! Goal: `redial ui` answers its own page alone, with what the commands print, within its limits, and
//! ends cleanly. Method: a server in this process and HTTP/1 requests by hand; the binary for its exit codes.
//! The page itself is tested in a browser (checks/ui).

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use redial_cli::ui::{Activity, BODY_BYTES_MAX, INTERVALS_MAX, Limits, POLICIES_MAX, Server};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const CONFIG: &str = r#"{ "methodConfig": [{ "name": [{ "service": "shop.Orders" }], "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"] } }] }"#;
const POLICY: &str = "attempts = 3\nattempt_timeout = \"1s\"\n";
const SIMULATION: &str = r#"{ "duration": "10s", "clients": { "calls_per_second": 50 },
    "services": [{ "name": "backend", "time": "5ms", "failure_rate": 0.3 }],
    "policies": [{ "name": "default", "policy": {} }] }"#;
/// A simulation that takes minutes.
const LONG: &str = r#"{ "duration": "30d", "interval": "1h", "clients": { "calls_per_second": 1000 },
    "services": [{ "name": "backend", "time": "5ms" }],
    "policies": [{ "name": "default", "policy": {} }] }"#;
/// A policy whose plan takes minutes.
const ENDLESS: &str = r#"{ "attempts": "forever", "backoff": { "constant": "100us" }, "jitter": "none", "throttle": "none" }"#;

/// A generous time for something that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

struct Page {
    port: u16,
    /// The path of the page.
    base: String,
    activity: Activity,
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

impl Page {
    fn start() -> Page {
        Page::with(Limits::default())
    }

    fn with(limits: Limits) -> Page {
        let server = Server::bind(0, limits).expect("a free port");
        let (url, activity) = (server.url(), server.activity());
        let port = server.address().expect("an address").port();
        let base =
            url.strip_prefix(&format!("http://127.0.0.1:{port}")).expect("loopback").to_owned();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        Page { port, base, activity, stop, served }
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A request as the page makes it; without a body it is a GET.
    fn request(&self, path: &str, body: Option<Vec<u8>>) -> Request<Full<Bytes>> {
        let request = Request::builder()
            .method(if body.is_some() { "POST" } else { "GET" })
            .uri(format!("{}{path}", self.base))
            .header(header::HOST, self.host());
        let request = match &body {
            Some(_) => request
                .header(header::ORIGIN, format!("http://{}", self.host()))
                .header(header::CONTENT_TYPE, "application/json"),
            None => request,
        };
        request.body(Full::from(body.unwrap_or_default())).expect("a request")
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.host()).await.expect("it listens");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1");
        tokio::spawn(connection);
        sender.send_request(request).await.expect("a response")
    }

    async fn status(&self, request: Request<Full<Bytes>>) -> StatusCode {
        self.send(request).await.status()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.request(path, Some(body.to_string().into_bytes()));
        let response = self.send(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        json_of(response).await
    }

    /// The last line of a run.
    async fn run(&self, body: &Value) -> Value {
        let path = "api/simulation/run";
        let request = self.request(path, Some(body.to_string().into_bytes()));
        let text = text_of(self.send(request).await).await;
        let last = text.lines().last().expect("a line");
        serde_json::from_str(last).expect("JSON")
    }

    async fn end(self) {
        self.stop.send(()).expect("it runs");
        self.served.await.expect("no panic").expect("it ends");
    }

    async fn wait_for_runs(&self, count: usize) {
        let end = Instant::now() + PATIENCE;
        while self.activity.runs() != count {
            assert!(Instant::now() < end, "{} runs instead of {count}", self.activity.runs());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn text_of(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

async fn json_of(response: Response<Incoming>) -> Value {
    serde_json::from_str(&text_of(response).await).expect("JSON")
}

fn file(name: &str, text: &str) -> Value {
    json!({ "name": name, "text": text })
}

fn plan(policies: &[Value]) -> Value {
    json!({ "policies": policies, "method": null, "failure_rate": 0.1, "latency": null, "seed": 1 })
}

fn simulation(file: &Value) -> Value {
    json!({ "simulation": file, "policies": null, "method": null, "seed": null })
}

/// Runs a command line of the page in a folder with these files, and returns its JSON.
fn command(line: &Value, files: &[Value]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    for file in files {
        let text = |key: &str| file[key].as_str().expect("a text");
        std::fs::write(folder.path().join(text("name")), text("text")).expect("a file");
    }
    let line = line.as_str().expect("a command").strip_prefix("redial ").expect("our command");
    let script = format!("\"$REDIAL\" {line} --json");
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("REDIAL", env!("CARGO_BIN_EXE_redial"))
        .current_dir(folder.path())
        .output()
        .expect("a shell");
    let err = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {err}"))
}

#[tokio::test]
async fn ui_page_and_its_files_have_strict_headers() {
    let page = Page::start();
    let files = ["", "style.css", "chart.css", "main.js", "editor.js", "server.js", "figures.js"];
    for path in files {
        let response = page.send(page.request(path, None)).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let text = text_of(response).await;
        let foreign = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!foreign.contains("http://") && !foreign.contains("https://"), "{path}");
        assert!(!text.contains(" style=\"") && !text.contains("onclick="), "{path}");
        if path.is_empty() {
            let scripts = text.matches("<script").count();
            assert_eq!(
                text.matches("<script type=\"module\" src=\"main.js\"></script>").count(),
                scripts
            );
        }
    }
    page.end().await;
}

#[tokio::test]
async fn ui_missing_or_wrong_token_is_forbidden() {
    let page = Page::start();
    let other = if page.base.starts_with("/0") { '1' } else { '0' };
    let wrong = format!("/{other}{}", &page.base[2..]);
    for path in ["/", "//", "/api/catalog", &wrong, &page.base[..20], "/open/x"] {
        let request = Request::builder().uri(path).header(header::HOST, page.host());
        let request = request.body(Full::default()).expect("a request");
        assert_eq!(page.status(request).await, StatusCode::FORBIDDEN, "{path}");
    }
    page.end().await;
}

#[tokio::test]
async fn ui_foreign_host_is_forbidden() {
    let page = Page::start();
    let status = async |hosts: &[&str], uri: &str| {
        let request = Request::builder().uri(uri);
        let request =
            hosts.iter().fold(request, |request, host| request.header(header::HOST, *host));
        page.status(request.body(Full::default()).expect("a request")).await
    };
    let (own, name) = (page.host(), format!("localhost:{}", page.port));
    assert_eq!(status(&[&own], &page.base).await, StatusCode::OK);
    assert_eq!(status(&[&name], &page.base).await, StatusCode::OK);
    let rebound = format!("evil.example:{}", page.port);
    for hosts in [&[][..], &["127.0.0.1"], &[&rebound], &["127.0.0.1:1"], &[&own, &rebound]] {
        assert_eq!(status(hosts, &page.base).await, StatusCode::FORBIDDEN, "{hosts:?}");
    }
    let absolute = format!("http://{rebound}{}", page.base);
    assert_eq!(status(&[&own], &absolute).await, StatusCode::FORBIDDEN);
    page.end().await;
}

#[tokio::test]
async fn ui_foreign_origin_is_forbidden() {
    let page = Page::start();
    let body = json!({ "policies": [file("a.toml", POLICY)] }).to_string();
    let status = async |origin: &str| {
        let mut request = page.request("api/check", Some(body.clone().into_bytes()));
        request.headers_mut().insert(header::ORIGIN, origin.parse().expect("a header"));
        page.status(request).await
    };
    assert_eq!(status(&format!("http://localhost:{}", page.port)).await, StatusCode::OK);
    for origin in ["null", "http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1"] {
        assert_eq!(status(origin).await, StatusCode::FORBIDDEN, "{origin}");
    }
    page.end().await;
}

#[tokio::test]
async fn ui_other_methods_types_and_paths_are_refused() {
    let page = Page::start();
    let get = page.request("api/check", None);
    assert_eq!(page.status(get).await, StatusCode::METHOD_NOT_ALLOWED);
    let mut put = page.request("", Some(b"{}".to_vec()));
    *put.method_mut() = http::Method::PUT;
    assert_eq!(page.status(put).await, StatusCode::METHOD_NOT_ALLOWED);
    let mut text = page.request("api/check", Some(b"{}".to_vec()));
    text.headers_mut().insert(header::CONTENT_TYPE, "text/plain".parse().expect("a header"));
    assert_eq!(page.status(text).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(page.status(page.request("x", None)).await, StatusCode::NOT_FOUND);
    for body in ["", "{", "[]", r#"{"policies": [], "x": 1}"#] {
        let request = page.request("api/check", Some(body.as_bytes().to_vec()));
        assert_eq!(page.status(request).await, StatusCode::BAD_REQUEST, "{body}");
    }
    page.end().await;
}

#[tokio::test]
async fn ui_body_over_the_limit_is_refused() {
    let page = Page::start();
    for (more, expected) in [(0, StatusCode::OK), (1, StatusCode::PAYLOAD_TOO_LARGE)] {
        let mut body = json!({ "policies": [file("a.toml", POLICY)] }).to_string().into_bytes();
        body.resize(BODY_BYTES_MAX + more, b' ');
        assert_eq!(page.status(page.request("api/check", Some(body))).await, expected);
    }
    page.end().await;
}

#[tokio::test]
async fn ui_check_equals_the_command() {
    let page = Page::start();
    let lost = r#"{ "retryPolicy": { "maxAttempts": 4 } }"#;
    let files = [file("lost.json", lost), file("my config.json", CONFIG), file("a.toml", "x = 1")];
    let answer = page.post("api/check", &json!({ "policies": files, "for": ["go", "java"] })).await;
    assert_eq!(answer["command"], "redial check lost.json 'my config.json' a.toml --for go,java");
    assert_eq!(answer["methods"], json!(["/shop.Orders/"]));
    // First the method that both configs have an entry for.
    let one = CONFIG.replace(r#""shop.Orders""#, r#""shop.Orders", "method": "Get""#);
    let both = json!({ "policies": [file("a.json", CONFIG), file("b.json", &one)] });
    let methods = &page.post("api/check", &both).await["methods"];
    assert_eq!(*methods, json!(["/shop.Orders/Get", "/shop.Orders/"]));
    assert_eq!(answer["result"]["files"][0]["findings"][0]["rule"], "lost-wrapper");
    assert_eq!(answer["result"], command(&answer["command"], &files));
    page.end().await;
}

#[tokio::test]
async fn ui_plan_equals_the_command() {
    let page = Page::start();
    let files = [file("config.json", CONFIG), file("policy.toml", POLICY)];
    let mut asked = plan(&files);
    asked["method"] = "/shop.Orders/Get".into();
    let answer = page.post("api/plan", &asked).await;
    let line = "redial plan config.json policy.toml --method /shop.Orders/Get";
    assert_eq!(answer["command"], line);
    assert_eq!(answer["result"], command(&answer["command"], &files));
    assert_eq!(answer["result"]["plans"][0]["worst_case"]["attempts"], 4);
    for svg in ["svg", "narrow_svg"] {
        assert!(answer[svg].as_str().is_some_and(|svg| svg.starts_with("<svg")), "{svg}");
    }
    // Options that are not the defaults, and a method that is not used.
    let own = &files[1..];
    let mut asked = plan(own);
    (asked["failure_rate"], asked["seed"]) = (0.25.into(), 7.into());
    (asked["latency"], asked["method"]) = ("{ exponential = \"5ms\" }".into(), "/x".into());
    let answer = page.post("api/plan", &asked).await;
    let options = "--failure-rate 0.25 --latency '{ exponential = \"5ms\" }' --seed 7";
    assert_eq!(answer["command"], format!("redial plan policy.toml {options}"));
    assert_eq!(answer["result"], command(&answer["command"], own));
    page.end().await;
}

#[tokio::test]
async fn ui_plan_problems_name_their_file_or_field() {
    let page = Page::start();
    let mut asked = plan(&[file("a.json", "{"), file("b.json", CONFIG), file("c.toml", POLICY)]);
    (asked["failure_rate"], asked["latency"]) = (2.into(), "soon".into());
    let answer = page.post("api/plan", &asked).await;
    let problems = answer["problems"].as_array().expect("problems").clone();
    let fields: Vec<_> = problems.iter().map(|it| it["field"].as_str()).collect();
    assert_eq!(fields, [Some("failure_rate"), Some("latency"), None, Some("method")]);
    assert_eq!((&problems[2]["file"], &problems[3]["file"]), (&json!("a.json"), &json!("b.json")));
    // A file of the machine is no latency here.
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("samples.json");
    std::fs::write(&path, "[\"1ms\"]").expect("a file");
    let mut asked = plan(&[file("c.toml", POLICY)]);
    asked["latency"] = path.to_str().expect("text").into();
    assert_eq!(page.post("api/plan", &asked).await["problems"][0]["field"], "latency");
    page.end().await;
}

#[tokio::test]
async fn ui_policies_over_the_limit_are_refused() {
    let page = Page::start();
    let files: Vec<_> =
        (0..=POLICIES_MAX).map(|index| file(&format!("{index}.toml"), POLICY)).collect();
    for path in ["api/check", "api/plan", "api/simulation/run"] {
        let asked = |policies: &[Value]| match path {
            "api/check" => json!({ "policies": policies }),
            "api/plan" => plan(policies),
            _ => {
                let mut asked = simulation(&file("a.json", SIMULATION));
                asked["policies"] = policies.into();
                asked
            }
        };
        let refused = page.post(path, &asked(&files)).await;
        assert_eq!(refused["problems"][0]["text"], "write 1 to 4 policies", "{path}");
        let accepted = asked(&files[..POLICIES_MAX]);
        let answer = match path {
            "api/simulation/run" => page.run(&accepted).await,
            _ => page.post(path, &accepted).await,
        };
        assert!(answer["result"].is_object(), "{path}: {answer}");
    }
    page.end().await;
}

#[tokio::test]
async fn ui_scenario_run_equals_the_command() {
    let page = Page::start();
    let catalog = json_of(page.send(page.request("api/catalog", None)).await).await;
    let scenario = &catalog["scenarios"][2];
    assert_eq!(scenario["name"], "layers");
    let own = file("layers.toml", scenario["text"].as_str().expect("text"));
    let answer = page.run(&simulation(&own)).await;
    assert_eq!(
        (&answer["command"], &answer["file"]),
        (&json!("redial simulate layers"), &Value::Null)
    );
    assert_eq!(answer["result"], command(&answer["command"], &[]));
    let mut asked = simulation(&own);
    asked["seed"] = 9.into();
    let answer = page.run(&asked).await;
    assert_eq!(answer["command"], "redial simulate layers --seed 9");
    assert_eq!(answer["result"], command(&answer["command"], &[]));
    page.end().await;
}

#[tokio::test]
async fn ui_comparison_of_policies_equals_the_command_on_its_file() {
    let page = Page::start();
    let mut asked = simulation(&file("outage.json", SIMULATION));
    asked["policies"] = json!([file("config.json", CONFIG), file("policy.toml", POLICY)]);
    let refused = page.post("api/simulation/run", &asked).await;
    assert_eq!(refused["problems"][0]["field"], "method", "{refused}");
    asked["method"] = "/shop.Orders/Get".into();
    let answer = page.run(&asked).await;
    assert_eq!(answer["command"], "redial simulate outage-compared.json");
    let names: Vec<_> =
        (0..2).map(|index| answer["result"]["policies"][index]["name"].clone()).collect();
    assert_eq!(names, ["config", "policy"]);
    assert_eq!(answer["result"], command(&answer["command"], &[answer["file"].clone()]));
    page.end().await;
}

#[tokio::test]
async fn ui_simulation_problems_have_their_position() {
    let page = Page::start();
    let own = file("a.json", &SIMULATION.replace("5ms", "5 parsecs"));
    let answer = page.post("api/simulation/check", &json!({ "simulation": own })).await;
    let finding = &answer["findings"][0];
    assert_eq!((&finding["line"], &finding["column"]), (&json!(2), &json!(47)));
    assert_eq!((&finding["end_line"], &finding["end_column"]), (&json!(2), &json!(58)));
    let refused = page.post("api/simulation/run", &simulation(&own)).await;
    assert_eq!(refused["problems"][0]["finding"], *finding);
    let good = json!({ "simulation": file("a.json", SIMULATION) });
    assert_eq!(page.post("api/simulation/check", &good).await["findings"], json!([]));
    // Files of this machine cannot be named.
    let names = SIMULATION.replace("\"policy\": {}", "\"policy_file\": \"Cargo.toml\"");
    let answer =
        page.post("api/simulation/check", &json!({ "simulation": file("a", &names) })).await;
    let text = answer["findings"][0]["text"].as_str().expect("a text");
    assert!(text.contains("other files are not available here"), "{text}");
    page.end().await;
}

#[tokio::test]
async fn ui_intervals_over_the_limit_are_refused() {
    let page = Page::start();
    let asked = |seconds: u128| {
        let text = SIMULATION.replace("\"10s\"", &format!("\"{seconds}s\", \"interval\": \"1s\""));
        simulation(&file(
            "a.json",
            &text.replace("calls_per_second\": 50", "calls_per_second\": 1"),
        ))
    };
    assert!(page.run(&asked(INTERVALS_MAX)).await["result"].is_object());
    let refused = page.post("api/simulation/run", &asked(INTERVALS_MAX + 1)).await;
    let text = refused["problems"][0]["text"].as_str().expect("a text");
    assert!(text.starts_with("10001 intervals are too many"), "{text}");
    page.end().await;
}

#[tokio::test]
async fn ui_closed_page_stops_its_run() {
    let page = Page::start();
    let body = simulation(&file("long.json", LONG)).to_string().into_bytes();
    let mut run = page.send(page.request("api/simulation/run", Some(body))).await;
    let first = run.body_mut().frame().await.expect("a line").expect("no error");
    assert!(first.data_ref().is_some_and(|line| line.starts_with(b"{\"progress\":")));
    assert_eq!(page.activity.runs(), 1);
    drop(run);
    page.wait_for_runs(0).await;
    // A plan has one answer alone.
    let body = plan(&[file("endless.json", ENDLESS)]).to_string().into_bytes();
    let request = page.request("api/plan", Some(body));
    let mut asking = Box::pin(page.send(request));
    while page.activity.runs() == 0 {
        let waited = tokio::time::timeout(Duration::from_millis(10), &mut asking).await;
        assert!(waited.is_err(), "it has not ended");
    }
    drop(asking);
    page.wait_for_runs(0).await;
    page.end().await;
}

#[tokio::test]
async fn ui_runs_over_the_limit_wait_and_are_refused() {
    let page = Page::with(Limits { simulations: 1, waiting: 1, ..Limits::default() });
    let request = || {
        let body = simulation(&file("long.json", LONG)).to_string().into_bytes();
        page.request("api/simulation/run", Some(body))
    };
    let first = page.send(request()).await;
    page.wait_for_runs(1).await;
    let mut second = page.send(request()).await;
    let line = second.body_mut().frame().await.expect("a line").expect("no error");
    assert_eq!(line.into_data().expect("data"), "{\"progress\":null}\n");
    assert_eq!(page.status(request()).await, StatusCode::SERVICE_UNAVAILABLE);
    // A plan does not wait for simulations.
    let planned = page.post("api/plan", &plan(&[file("a.toml", POLICY)])).await;
    assert!(planned["result"].is_object());
    drop(first);
    // The second has its turn now.
    let end = Instant::now() + PATIENCE;
    loop {
        let line = second.body_mut().frame().await.expect("a line").expect("no error");
        if line.into_data().expect("data") != "{\"progress\":null}\n" {
            break;
        }
        assert!(Instant::now() < end);
    }
    page.end().await;
}

#[tokio::test]
async fn ui_run_ends_when_its_time_is_over() {
    let time = Duration::from_millis(50);
    let page = Page::with(Limits { plan_time: time, simulation_time: time, ..Limits::default() });
    let answer = page.post("api/plan", &plan(&[file("endless.json", ENDLESS)])).await;
    let expected = "stopped after 0.05 s; the command has no such limit";
    assert_eq!(answer["problems"][0], json!({ "file": "endless.json", "text": expected }));
    let answer = page.run(&simulation(&file("long.json", LONG))).await;
    assert_eq!(answer["error"], expected);
    page.end().await;
}

#[tokio::test]
async fn ui_end_stops_runs_and_closes_connections() {
    let page = Page::start();
    let body = simulation(&file("long.json", LONG)).to_string().into_bytes();
    let run = page.send(page.request("api/simulation/run", Some(body))).await;
    let idle = TcpStream::connect(page.host()).await.expect("it listens");
    page.wait_for_runs(1).await;
    let host = page.host();
    tokio::time::timeout(PATIENCE, page.end()).await.expect("it ends");
    let text = text_of(run).await;
    assert_eq!(text.lines().last(), Some("{\"error\":\"`redial ui` has ended\"}"));
    assert!(TcpStream::connect(host).await.is_err(), "the port is free again");
    drop(idle);
}

#[tokio::test]
async fn ui_opening_address_works_once() {
    let server = Server::bind(0, Limits::default()).expect("a free port");
    let (opening, url) = (server.opening_url(), server.url());
    assert!(!opening.contains(url.rsplit('/').nth(1).expect("a token")), "it has no token");
    let host = server.address().expect("an address").to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(async {
        let _ = stopped.await;
    }));
    let get = async || {
        let stream = TcpStream::connect(&host).await.expect("it listens");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1");
        tokio::spawn(connection);
        let path = opening.strip_prefix(&format!("http://{host}")).expect("loopback");
        let request = Request::builder().uri(path).header(header::HOST, &host);
        sender.send_request(request.body(Full::<Bytes>::default()).expect("a request")).await
    };
    let location = |headers: &HeaderMap| headers.get(header::LOCATION).cloned();
    let first = get().await.expect("a response");
    assert_eq!(first.status(), StatusCode::SEE_OTHER);
    let location = location(first.headers()).expect("a location");
    assert_eq!(format!("http://{host}{}", location.to_str().expect("text")), url);
    assert_eq!(get().await.expect("a response").status(), StatusCode::FORBIDDEN);
    stop.send(()).expect("it runs");
    served.await.expect("no panic").expect("it ends");
}

#[cfg(unix)]
#[test]
fn ui_command_prints_its_address_and_ends_on_a_signal() {
    for (signal, browser) in [("-INT", "/no/such/browser"), ("-TERM", "false")] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_redial"))
            .args(["ui", "--open"])
            .env("BROWSER", browser)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let mut err = BufReader::new(process.stderr.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let port = line.strip_prefix("http://127.0.0.1:").expect("an address");
        let port = port.split('/').next().expect("a port").to_owned();
        // It goes on without a browser.
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            err.read_line(line).expect("a line");
        }
        assert_eq!(lines[0], "Ctrl-C ends the command.\n");
        assert!(lines[1].starts_with("redial: no browser was opened: "), "{}", lines[1]);
        assert!(lines[1].ends_with("; open the address yourself\n"), "{}", lines[1]);
        // Its port is taken.
        let second =
            Command::new(env!("CARGO_BIN_EXE_redial")).args(["ui", "--port", &port]).output();
        let second = second.expect("it runs");
        assert_eq!((second.status.code(), second.stdout.len()), (Some(2), 0));
        let text = String::from_utf8(second.stderr).expect("text");
        assert!(
            text.starts_with(&format!("redial: cannot listen on 127.0.0.1:{port}: ")),
            "{text}"
        );
        let id = process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("it runs").success());
        let (mut rest, mut errors) = (String::new(), String::new());
        out.read_to_string(&mut rest).expect("text");
        err.read_to_string(&mut errors).expect("text");
        assert_eq!(process.wait().expect("it ends").code(), Some(0));
        assert_eq!((rest.as_str(), errors.as_str()), ("", ""));
    }
}
