//! Random scenarios of `grpc`.

use serde_json::{Value, json};

use super::dice::Dice;

impl Dice {
    /// A duration in service config notation.
    fn seconds(&mut self) -> Value {
        json!(format!("{}s", self.pick(&[0.001, 0.01, 0.02, 0.025, 0.1])))
    }

    fn codes(&mut self) -> Value {
        self.pick(&[json!(["UNAVAILABLE"]), json!(["UNAVAILABLE", "INTERNAL"])])
    }

    fn method_policy(&mut self) -> Value {
        let mut entry = json!({ "name": [{ "service": "a.B" }] });
        if self.chance(50) {
            entry["retryPolicy"] = json!({
                "maxAttempts": 2 + self.below(4),
                "initialBackoff": self.seconds(),
                "maxBackoff": self.seconds(),
                "backoffMultiplier": self.pick(&[0.5, 1.0, 2.0]),
                "retryableStatusCodes": self.codes(),
            });
        } else {
            entry["hedgingPolicy"] = json!({
                "maxAttempts": 2 + self.below(4),
                "hedgingDelay": if self.chance(25) { json!("0s") } else { self.seconds() },
                "nonFatalStatusCodes": self.codes(),
            });
        }
        if self.chance(15) {
            entry["timeout"] = self.seconds();
        }
        if self.chance(10) {
            entry["waitForReady"] = json!(true);
        }
        if self.chance(15) {
            entry["maxRequestMessageBytes"] = self.pick(&[json!(0), json!(25), json!("55")]);
        }
        entry
    }

    fn grpc_policy(&mut self) -> Value {
        let mut config = json!({ "methodConfig": [self.method_policy()] });
        if self.chance(40) {
            config["retryThrottling"] = json!({ "maxTokens": self.pick(&[2, 4, 10]), "tokenRatio": self.pick(&[0.1, 0.5]) });
        }
        let mut client = json!({});
        if self.chance(15) {
            client["late"] = json!("early");
        }
        if self.chance(15) {
            client["jitter"] = json!({ "proportional": 0.2 });
        }
        if self.chance(25) {
            client["per_rpc_buffer_limit_in_bytes"] = json!(self.pick(&[0, 60, 100]));
        }
        if self.chance(15) {
            client["retry_buffer_size_in_bytes"] = json!(self.pick(&[100, 150]));
        }
        if self.chance(10) {
            client["retries"] = self.pick(&[json!(false), json!("transparent")]);
        }
        if self.chance(10) {
            client["pushback_max"] = json!(20);
        }
        json!({ "grpc": { "config": config, "client": client } })
    }

    fn grpc_attempt(&mut self) -> Value {
        let after = self.ms();
        if self.chance(20) {
            let seen = self.pick(&["unsent", "unprocessed", "unconnected"]);
            let mut attempt = json!({ "seen": seen, "after": after });
            if seen == "unprocessed" && self.chance(20) {
                attempt["headers"] = json!(after / 2);
            }
            return attempt;
        }
        let outcomes = [
            "OK",
            "UNAVAILABLE",
            "UNAVAILABLE",
            "UNAVAILABLE",
            "INTERNAL",
            "INVALID_ARGUMENT",
            "hang",
        ];
        let outcome = self.pick(&outcomes);
        let mut attempt = json!({ "outcome": outcome });
        if outcome != "hang" {
            attempt["after"] = json!(after);
            if self.chance(25) {
                attempt["pushback"] = json!(self.pick(&["0", "5", "10", "30", "-1", "x"]));
            }
        }
        if self.chance(15) {
            attempt["headers"] = json!(if outcome == "hang" { 5 } else { after / 2 });
        }
        if self.chance(15) {
            attempt["accepts"] = json!(self.below(3));
        }
        attempt
    }

    fn grpc_call(&mut self) -> Value {
        let attempts: Vec<_> = (0..12).map(|_| self.grpc_attempt()).collect();
        let method = self.pick(&["/a.B/C", "/a.B/C", "/a.B/D", "/x.Y/Z"]);
        let mut call = json!({ "at": 7 * self.below(30), "method": method, "attempts": attempts });
        if self.chance(25) {
            call["deadline"] = json!(self.pick(&[0, 10, 50, 100, 150]));
        }
        if self.chance(30) {
            // Not at the time of another event, since a network does not order them.
            let times = [0, 0, 3, 13, 33, 63];
            let mut messages: Vec<_> = (0..self.below(4))
                .map(|_| (self.pick(&times), self.pick(&[0_u64, 1, 6, 30, 60, 61])))
                .collect();
            messages.sort_unstable();
            let messages =
                messages.into_iter().map(|(at, bytes)| json!({ "at": at, "bytes": bytes }));
            call["messages"] = messages.collect();
        }
        // The application cancels hanging attempts, so that every call ends.
        call["cancel"] = json!(self.pick(&[10, 50, 100, 400, 1000]));
        call
    }

    pub(crate) fn grpc_scenario(&mut self, name: usize) -> Value {
        let policy = self.grpc_policy();
        let calls: Vec<_> = (0..1 + self.below(3)).map(|_| self.grpc_call()).collect();
        let draws: Vec<_> = (0..1 + self.below(3)).map(|_| self.pick(&[0.0, 0.25, 0.5])).collect();
        json!({ "name": name.to_string(), "policy": policy, "draws": draws, "calls": calls })
    }
}
