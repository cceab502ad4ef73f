//! Random scenarios of `generic` and `smithy`.

use serde_json::{Value, json};

use super::dice::Dice;

impl Dice {
    fn backoff(&mut self) -> Value {
        let (first, step) = (self.span(), self.span());
        match self.below(4) {
            0 => json!({ "constant": first }),
            1 => json!({ "arithmetic": { "first": first, "step": step, "cap": "60ms" } }),
            2 => {
                json!({ "exponential": { "first": first, "factor": self.pick(&[0.5, 1.0, 2.0]) } })
            }
            _ => json!({ "table": [first, step] }),
        }
    }

    fn jitter(&mut self) -> Value {
        let named = ["none", "none", "full", "half", "equal", "decorrelated"];
        if self.chance(15) { json!({ "proportional": 0.25 }) } else { json!(self.pick(&named)) }
    }

    fn throttle(&mut self) -> Value {
        match self.below(5) {
            0 => json!({ "tokens": { "max": 4, "ratio": 0.5 } }),
            1 => json!({ "budget": { "reserve": 2, "ratio": 0.5 } }),
            2 => json!({ "cost": { "capacity": 15, "refill_per_second": self.pick(&[0, 100]) } }),
            _ => json!("none"),
        }
    }

    fn generic(&mut self) -> Value {
        let mut policy = json!({
            "attempts": 1 + self.below(5),
            "backoff": self.backoff(),
            "jitter": self.jitter(),
            "throttle": self.throttle(),
        });
        if self.chance(25) {
            policy["deadline"] = json!(format!("{}ms", self.pick(&[30, 50, 100, 130])));
            policy["late"] = json!(self.pick(&["early", "wait"]));
        }
        if self.chance(20) {
            policy["attempt_timeout"] = json!(format!("{}ms", self.pick(&[1, 10, 20])));
        }
        if self.chance(30) {
            policy["hedge"] = json!({ "delay": self.span() });
        } else if self.chance(25) {
            policy["limits"] = json!({
                "soft": format!("{}ms", self.pick(&[10, 40])),
                "hard": format!("{}ms", self.pick(&[40, 90])),
                "over": self.pick(&["drop", "truncate"]),
                "under": self.pick(&["leave", "fill"]),
                "measure": self.pick(&["delays", "elapsed"]),
            });
        }
        json!({ "generic": policy })
    }

    fn smithy(&mut self) -> Value {
        let mut policy = json!({
            "preset": self.pick(&["standard", "aws-2026", "aws-2026-dynamodb"]),
            "order": self.pick(&["backoff-first", "token-first"]),
            "hint": self.pick(&["exact", "within-5s"]),
            "jitter": self.jitter(),
        });
        if self.chance(50) {
            let (refill, empty) =
                self.pick(&[(0, "fail"), (100, "fail"), (100, "wait"), (1000, "wait")]);
            policy["bucket"] = json!({
                "capacity": 15,
                "costs": { "server": 5, "client": 5, "throttling": 10, "timeout": 10 },
                "refill_per_second": refill,
                "empty": empty,
            });
        }
        if self.chance(30) {
            policy["time_max"] = json!(format!("{}ms", self.pick(&[20, 60, 100])));
        }
        json!({ "smithy": policy })
    }

    fn attempt(&mut self) -> Value {
        let outcomes =
            ["ok", "fatal", "server", "server", "client", "throttling", "timeout", "hang"];
        let outcome = self.pick(&outcomes);
        if outcome == "hang" {
            return json!({ "outcome": outcome });
        }
        let mut attempt = json!({ "outcome": outcome, "after": self.ms() });
        if self.chance(20) {
            attempt["hint"] = if self.chance(25) { json!("stop") } else { json!(self.ms()) };
        }
        if self.chance(20) {
            attempt["stage"] = json!(self.pick(&["unsent", "in-flight", "answered"]));
        }
        attempt
    }

    fn call(&mut self, hedged: bool) -> Value {
        let attempts: Vec<_> = (0..6).map(|_| self.attempt()).collect();
        let mut call = json!({ "at": 7 * self.below(30), "attempts": attempts });
        if self.chance(25) {
            call["deadline"] = json!(self.pick(&[0, 10, 50, 100, 150]));
        }
        // The application cancels hanging attempts, so that every call ends.
        call["cancel"] = json!(self.pick(&[10, 50, 100, 400, 1000]));
        if !hedged && self.chance(20) {
            call["idempotent"] = json!(false);
        }
        call
    }

    pub(crate) fn generic_scenario(&mut self, name: usize) -> Value {
        let policy = if self.chance(65) { self.generic() } else { self.smithy() };
        let hedged = !policy["generic"]["hedge"].is_null();
        let calls: Vec<_> = (0..1 + self.below(3)).map(|_| self.call(hedged)).collect();
        let draws: Vec<_> = (0..1 + self.below(3)).map(|_| self.pick(&[0.0, 0.25, 0.5])).collect();
        json!({ "name": name.to_string(), "policy": policy, "draws": draws, "calls": calls })
    }
}
