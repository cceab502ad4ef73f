//! Checks a service config and prints its problems, or the plan of a method.
//!
//! `cargo run -p redial-service-config --example check_config -- config.json /echo.Echo/Get`
//!
//! Without arguments it checks a sample config with two mistakes, and then a correct one.

use redial_service_config::{ClientOptions, ServiceConfig};

const MISTAKEN: &str = r#"{
  "methodConfig": [{
    "name": [{ "service": "echo.Echo" }],
    "retryPolicy": {
      "maxAttempts": 4,
      "initialBackoff": "100ms",
      "maxBackoff": "1s",
      "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABEL"]
    }
  }]
}"#;

/// The problems of a config, or its warnings and the plan of a method, as text.
fn check(text: &str, method: &str) -> String {
    let client = ClientOptions::default();
    let config = match ServiceConfig::parse_for(text, &client) {
        Ok(config) => config,
        Err(problems) => return problems.to_string(),
    };
    let mut report = String::new();
    for warning in config.warnings() {
        report += &format!("{warning}\n");
    }
    let plan = client.plan(config.method(method));
    let rules = plan.policy().rules();
    report += &format!(
        "{method}: max attempts {}, backoff {:?}, retryable codes: {}",
        rules.attempts.unwrap_or(1),
        rules.backoff,
        plan.codes(),
    );
    report
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(file), Some(method)) = (arguments.next(), arguments.next()) {
        println!("{}", check(&std::fs::read_to_string(file)?, &method));
        return Ok(());
    }
    println!("{}\n", check(MISTAKEN, "/echo.Echo/Get"));
    println!("{}", check(&corrected(), "/echo.Echo/Get"));
    Ok(())
}

fn corrected() -> String {
    MISTAKEN.replace("100ms", "0.1s").replace("UNAVAILABEL", "UNAVAILABLE")
}

#[test]
fn check_config_example_reports_mistakes_and_plan() {
    assert_eq!(
        check(MISTAKEN, "/echo.Echo/Get").lines().collect::<Vec<_>>(),
        [
            "6:25: error[backoff]: methodConfig[0].retryPolicy.initialBackoff: expected a duration above 0 like \"0.1s\", found \"100ms\"; write \"0.1s\"",
            "9:32: error[code]: methodConfig[0].retryPolicy.retryableStatusCodes[0]: expected the name of a status code, or a number from 0 to 16, found \"UNAVAILABEL\"; did you mean \"UNAVAILABLE\"?",
        ]
    );
    let report = check(&corrected(), "/echo.Echo/Get");
    assert!(report.contains("warning[no-throttling]"), "{report}");
    assert!(report.contains("max attempts 4"), "{report}");
    assert!(report.ends_with("retryable codes: UNAVAILABLE"), "{report}");
    assert!(check(&corrected(), "/other.Service/Get").contains("max attempts 1"));
}
