//! What daemons tell of themselves to those who watch: metrics in the OpenMetrics text format, and whether they work.
//!
//! # Approach
//! A daemon has a table of its [`Metric`]s, and fills a [`Sheet`] whenever it is asked: nothing is kept here between two looks,
//! and what is not looked at costs nothing. Looks come one after the other, and are shared by those who ask at the same
//! time ([`serve`]), so that a flood of them costs the daemon no more than a few each second.
//!
//! # Properties
//! * A sheet has only metrics of its table, each with the labels that the table says.
//! * Labels have few values: names of policies, bins, states and events that are in the code. No peer can add one.

mod process;
mod server;

pub use process::{PROCESS, cpu_seconds, resident_bytes};
pub use server::{Look, Looked, serve};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// How a metric changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, while the process lives. Its samples are called `NAME_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many values were at most so large, their number and their sum: `NAME_bucket`, `NAME_count`, `NAME_sum`.
    Histogram,
}

/// A metric of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, without what [`Kind`] adds.
    pub name: &'static str,
    /// What it says, in one line.
    pub help: &'static str,
    /// Whether it only grows, goes up and down, or is a distribution.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

impl Metric {
    /// A metric that only grows.
    pub const fn counter(name: &'static str, help: &'static str) -> Metric {
        Metric { name, help, kind: Kind::Counter, labels: &[] }
    }

    /// A metric that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Metric {
        Metric { name, help, kind: Kind::Gauge, labels: &[] }
    }

    /// A metric of how many values were how large.
    pub const fn histogram(name: &'static str, help: &'static str) -> Metric {
        Metric { name, help, kind: Kind::Histogram, labels: &[] }
    }

    /// The same by these labels.
    pub const fn by(self, labels: &'static [&'static str]) -> Metric {
        Metric { labels, ..self }
    }
}

/// How many values were how large.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    bounds: &'static [f64],
    /// Of values up to each bound and above the one before, and those above the last.
    counts: Vec<u64>,
    sum: f64,
}

impl Distribution {
    /// Without values; bounds rise.
    pub fn new(bounds: &'static [f64]) -> Distribution {
        Distribution { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// One with counts that were made elsewhere; as many as bounds, and one.
    pub fn of(bounds: &'static [f64], counts: &[u64], sum: f64) -> Distribution {
        let mut all = counts.to_vec();
        all.resize(bounds.len() + 1, 0);
        Distribution { bounds, counts: all, sum }
    }

    /// Counts one more value, by the first bound that it does not exceed.
    pub fn note(&mut self, value: f64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }
}

#[derive(Debug)]
enum Value {
    Number(f64),
    Distribution(Distribution),
}

#[derive(Debug)]
struct Sample {
    name: &'static str,
    labels: Vec<(&'static str, String)>,
    value: Value,
}

/// Values of a daemon's metrics at one moment.
#[derive(Debug, Default)]
pub struct Sheet(Vec<Sample>);

impl Sheet {
    /// A metric without labels.
    pub fn set(&mut self, metric: &'static Metric, value: f64) {
        self.set_of(metric, &[], value);
    }

    /// The same of some values of its labels, in the order of its table.
    pub fn set_of(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.add(metric, labels, Value::Number(value));
    }

    /// Sets a distribution, for these values of its labels in the order of its table.
    pub fn distribute(&mut self, metric: &'static Metric, labels: &[&str], value: Distribution) {
        self.add(metric, labels, Value::Distribution(value));
    }

    fn add(&mut self, metric: &'static Metric, labels: &[&str], value: Value) {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        let labels = metric.labels.iter().copied().zip(labels.iter().map(|label| (*label).to_owned()));
        self.0.push(Sample { name: metric.name, labels: labels.collect(), value });
    }

    /// The text that Prometheus reads.
    ///
    /// # Errors
    /// None that can be met: text is written to memory.
    pub fn text(self, metrics: &'static [&'static [Metric]]) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Filled { metrics, sheet: self }));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

#[derive(Debug)]
struct Filled {
    metrics: &'static [&'static [Metric]],
    sheet: Sheet,
}

impl Collector for Filled {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for metric in self.metrics.iter().copied().flatten() {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut samples = self.sheet.0.iter().filter(|sample| sample.name == metric.name).peekable();
            if samples.peek().is_none() {
                continue;
            }
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            for sample in samples {
                let mut one = family.encode_family(&sample.labels)?;
                match &sample.value {
                    Value::Distribution(Distribution { bounds, counts, sum }) => {
                        let last = counts.last().copied().unwrap_or(0);
                        let buckets: Vec<(f64, u64)> =
                            bounds.iter().copied().zip(counts.iter().copied()).collect();
                        let buckets = [buckets, vec![(f64::INFINITY, last)]].concat();
                        one.encode_histogram::<NoLabelSet>(*sum, counts.iter().sum(), &buckets, None)?;
                    }
                    Value::Number(value) if metric.kind == Kind::Counter => {
                        one.encode_counter::<NoLabelSet, f64, f64>(value, None)?;
                    }
                    Value::Number(value) => one.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Metric] = &[
        Metric::gauge("a_things", "Things that there are"),
        Metric::counter("a_events", "What happened").by(&["event"]),
        Metric::histogram("a_seconds", "How long it took"),
        Metric::gauge("a_absent", "Nobody says"),
    ];

    /// As the format has it: <https://prometheus.io/docs/specs/om/open_metrics_spec/>.
    #[test]
    fn a_sheet_is_what_prometheus_reads() {
        let mut sheet = Sheet::default();
        sheet.set_of(&TABLE[1], &["say \"no\"\n"], 3.0);
        sheet.set(&TABLE[0], 1.5);
        let mut times = Distribution::new(&[0.1, 1.0]);
        [0.05, 0.1, 0.5, 7.0].into_iter().for_each(|time| times.note(time));
        sheet.distribute(&TABLE[2], &[], times);
        let expected = "# HELP a_things Things that there are\n# TYPE a_things gauge\na_things 1.5\n\
                        # HELP a_events What happened\n# TYPE a_events counter\na_events_total{event=\"say \\\"no\\\"\\n\"} 3.0\n\
                        # HELP a_seconds How long it took\n# TYPE a_seconds histogram\na_seconds_sum 7.65\na_seconds_count 4\n\
                        a_seconds_bucket{le=\"0.1\"} 2\na_seconds_bucket{le=\"1.0\"} 3\na_seconds_bucket{le=\"+Inf\"} 4\n# EOF\n";
        assert_eq!(sheet.text(&[TABLE]).unwrap_or_default(), expected);
    }
}
