//! Distributions in a file.

use std::time::Duration;

use super::reader::Reader;
use super::tree::{Node, Value};
use crate::distribution::{Distribution, HistogramBucket, MIXTURE_DEPTH_MAX, Part};

const KINDS: [&str; 8] =
    ["fixed", "uniform", "exponential", "normal", "lognormal", "samples", "histogram", "mixture"];

const EXPECTED: &str = "a duration like \"5ms\", or a distribution like { lognormal = { median = \"5ms\", sigma = 0.4 } }";

impl Reader<'_> {
    pub(super) fn distribution(&self, node: &Node, path: &str) -> Option<Distribution> {
        self.nested_distribution(node, path, 0)
    }

    fn nested_distribution(&self, node: &Node, path: &str, depth: usize) -> Option<Distribution> {
        if depth > MIXTURE_DEPTH_MAX {
            self.problem(node, path, "mixtures are nested too deep; write a single list of parts");
            return None;
        }
        match &node.value {
            Value::Text(_) => self.duration(node, path).map(Distribution::Fixed),
            Value::List(_) => self.samples(node, path),
            Value::Table(_) => self.distribution_table(node, path, depth),
            _ => self.wrong(node, path, EXPECTED),
        }
    }

    fn distribution_table(&self, node: &Node, path: &str, depth: usize) -> Option<Distribution> {
        let table = self.table(node, path, &KINDS, EXPECTED)?;
        let Value::Table(entries) = &node.value else { return None };
        let [(key, value)] = entries.as_slice() else {
            self.problem(node, path, format!("write one kind of distribution: {EXPECTED}"));
            return None;
        };
        let path = &table.at(&key.name);
        match key.name.as_str() {
            "fixed" => self.duration(value, path).map(Distribution::Fixed),
            "exponential" => {
                self.duration(value, path).map(|mean| Distribution::Exponential { mean })
            }
            "uniform" => {
                let (min, max) = self.two(value, path, ["min", "max"])?;
                Some(Distribution::Uniform { min, max })
            }
            "normal" => {
                let (mean, deviation) = self.two(value, path, ["mean", "deviation"])?;
                Some(Distribution::Normal { mean, deviation })
            }
            "lognormal" => {
                let example = "{ median = \"5ms\", sigma = 0.4 }";
                let table = self.table(value, path, &["median", "sigma"], example)?;
                let median = table.needs("median", "median = \"5ms\"", Reader::duration);
                let sigma = table.needs("sigma", "sigma = 0.4", Reader::number);
                Some(Distribution::Lognormal { median: median?, sigma: sigma? })
            }
            "samples" => self.samples(value, path),
            "histogram" => self.histogram(value, path),
            "mixture" => self.mixture(value, path, depth),
            // Reported as an unknown key.
            _ => None,
        }
    }

    /// Two durations.
    fn two(&self, node: &Node, path: &str, keys: [&str; 2]) -> Option<(Duration, Duration)> {
        let example = format!("{{ {} = \"1ms\", {} = \"9ms\" }}", keys[0], keys[1]);
        let table = self.table(node, path, &keys, &example)?;
        let read = |key: &str| table.needs(key, &format!("{key} = \"5ms\""), Reader::duration);
        let (first, second) = (read(keys[0]), read(keys[1]));
        Some((first?, second?))
    }

    fn samples(&self, node: &Node, path: &str) -> Option<Distribution> {
        let list = self.list(node, path, "a list of durations like [\"5ms\", \"7ms\"]")?;
        let sample =
            |(index, node): (usize, &Node)| self.duration(node, &format!("{path}[{index}]"));
        let samples: Vec<_> = list.iter().enumerate().map(sample).collect();
        samples.into_iter().collect::<Option<_>>().map(Distribution::Samples)
    }

    fn histogram(&self, node: &Node, path: &str) -> Option<Distribution> {
        let example = "{ up_to = \"5ms\", count = 10 }";
        let list = self.list(node, path, &format!("a list like [{example}]"))?;
        let bucket = |(index, node): (usize, &Node)| {
            let table =
                self.table(node, &format!("{path}[{index}]"), &["up_to", "count"], example)?;
            let up_to = table.needs("up_to", "up_to = \"5ms\"", Reader::duration);
            let count = table.needs("count", "count = 10", Reader::number);
            Some(HistogramBucket { up_to: up_to?, count: count? })
        };
        let buckets: Vec<_> = list.iter().enumerate().map(bucket).collect();
        buckets.into_iter().collect::<Option<_>>().map(Distribution::Histogram)
    }

    fn mixture(&self, node: &Node, path: &str, depth: usize) -> Option<Distribution> {
        let example = "{ weight = 99, time = \"5ms\" }";
        let list = self.list(node, path, &format!("a list like [{example}]"))?;
        let part = |(index, node): (usize, &Node)| {
            let table =
                self.table(node, &format!("{path}[{index}]"), &["weight", "time"], example)?;
            let weight = table.needs("weight", "weight = 99", Reader::number);
            let distribution = table.needs("time", "time = \"5ms\"", |reader, node, path| {
                reader.nested_distribution(node, path, depth + 1)
            });
            Some(Part { weight: weight?, distribution: distribution? })
        };
        let parts: Vec<_> = list.iter().enumerate().map(part).collect();
        parts.into_iter().collect::<Option<_>>().map(Distribution::Mixture)
    }
}
