//! Ready-made simulations, by name. They are simulation files, to be copied and changed.

use crate::file::{self, Format};
use crate::model::Simulation;

/// A ready-made simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The name.
    pub name: &'static str,
    /// What it shows, in a line.
    pub shows: &'static str,
    /// The simulation file, as TOML.
    pub text: &'static str,
}

/// All of them.
pub const ALL: [Scenario; 7] = [
    Scenario {
        name: "metastability",
        shows: "retries keep a server down after an outage, a budget brings it back",
        text: include_str!("../scenarios/metastability.toml"),
    },
    Scenario {
        name: "retry-storm",
        shows: "errors turn into overload, with and without throttles",
        text: include_str!("../scenarios/retry-storm.toml"),
    },
    Scenario {
        name: "layers",
        shows: "three attempts in three layers: 27 requests per call, and how to avoid it",
        text: include_str!("../scenarios/layers.toml"),
    },
    Scenario {
        name: "overload",
        shows: "one percent too much grows without end if every call is retried",
        text: include_str!("../scenarios/overload.toml"),
    },
    Scenario {
        name: "slow-replica",
        shows: "hedging cuts the tail latency of a slow replica",
        text: include_str!("../scenarios/slow-replica.toml"),
    },
    Scenario {
        name: "thundering-herd",
        shows: "ten thousand clients at once, with each kind of jitter",
        text: include_str!("../scenarios/thundering-herd.toml"),
    },
    Scenario {
        name: "small-buckets",
        shows: "thousands of full buckets allow a storm that one shared bucket prevents",
        text: include_str!("../scenarios/small-buckets.toml"),
    },
];

/// The scenario with this name.
#[must_use]
pub fn by_name(name: &str) -> Option<Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}

impl Scenario {
    /// The simulation.
    ///
    /// # Panics
    /// Never: the texts are part of this crate, and a test reads all of them.
    #[must_use]
    pub fn simulation(&self) -> Simulation {
        file::parse(self.text, Format::Toml, &file::no_files)
            .unwrap_or_else(|problems| panic!("{}: {problems}", self.name))
    }
}
