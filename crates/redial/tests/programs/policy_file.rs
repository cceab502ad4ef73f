//! Policies in the configuration file of a service.

use redial::config::PolicyConfig;
use redial::{AnyPolicy, Hedged, Policy, ms};

#[derive(Debug, serde::Deserialize)]
struct Settings {
    fetch: Policy,
    read: Hedged,
    /// Whether it retries or hedges is up to the file.
    search: PolicyConfig,
}

const FILE: &str = r#"
[fetch]
name = "fetch"
attempts = 5
backoff.exponential = { first = "100ms", factor = 2, cap = "5s" }
deadline = "10s"

[read]
hedge.delay = "20ms"
attempts = 2

[search]
attempts = 2
hedge.delay = "50ms"
"#;

#[tokio::test(start_paused = true)]
async fn program_reads_its_policies_from_toml() {
    let settings: Settings = toml::from_str(FILE).unwrap();
    assert_eq!(settings.fetch.rules().attempts, Some(5));
    assert_eq!(settings.read.rules().hedge, Some(ms(20)));
    let search: AnyPolicy = settings.search.load().unwrap();
    let value = search.retry(|| async { Ok::<_, std::io::Error>(7) }).when(|_| true).await;
    assert_eq!(value.ok(), Some(7));
    let error = settings.fetch.retry(|| Err::<(), _>("busy")).when(|_| false).call().unwrap_err();
    assert_eq!(error.report().policy.to_string(), "fetch");
}

#[test]
fn program_reports_mistakes_of_its_file_with_their_place() {
    let file = FILE.replace("attempts = 5", "attempts = 0");
    let error = toml::from_str::<Settings>(&file).unwrap_err().to_string();
    assert!(error.contains("attempts: 0 would never try; write 1 for a single attempt"), "{error}");
    let file = FILE.replace("deadline", "deadlin");
    let error = toml::from_str::<Settings>(&file).unwrap_err().to_string();
    assert!(error.contains("deadlin") && error.contains("line"), "{error}");
}
