//! What the page can start from: the scenarios, and policies as examples.

use axum::response::Response;
use redial_sim::scenarios;
use serde_json::{Value, json};

use super::limits::{BODY_BYTES_MAX, POLICIES_MAX};
use super::request::answer;

/// Policies to start from: a title, the name of a file, and its text.
pub(super) const EXAMPLES: [(&str, &str, &str); 5] = [
    (
        "gRPC service config with retries",
        "service-config.json",
        include_str!("page/examples/service-config.json"),
    ),
    (
        "gRPC service config with hedging",
        "hedging-config.json",
        include_str!("page/examples/hedging-config.json"),
    ),
    (
        "Retries with the default budget (JSON)",
        "retries.json",
        include_str!("page/examples/retries.json"),
    ),
    (
        "Retries without a budget (TOML)",
        "no-budget.toml",
        include_str!("page/examples/no-budget.toml"),
    ),
    ("Hedging after 40 ms (JSON)", "hedged.json", include_str!("page/examples/hedged.json")),
];

/// Scenarios, examples, and the limits that the page shows.
pub(super) async fn catalog() -> Response {
    let scenario =
        |it: &scenarios::Scenario| json!({ "name": it.name, "shows": it.shows, "text": it.text });
    let example = |(title, name, text)| json!({ "title": title, "name": name, "text": text });
    answer(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "policies_max": POLICIES_MAX,
        "body_bytes_max": BODY_BYTES_MAX,
        "scenarios": scenarios::ALL.iter().map(scenario).collect::<Vec<Value>>(),
        "examples": EXAMPLES.map(example),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::policy;

    #[test]
    fn ui_examples_are_policies() {
        for (title, name, text) in EXAMPLES {
            let read = policy(name, text, Some("/shop.Orders/Get"));
            assert!(read.is_ok(), "{title}: {read:?}");
        }
    }
}
