//! The simulator against ns-3, case by case: what validation/README.md describes. A case is a file of validation/cases; what
//! ns-3 gave is beside it in validation/recorded.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use weir_model::{Bytes, HostId, Rate, Span, Time};
use weir_packet::topology::{Balance, LeafSpine, SingleSwitch};
use weir_packet::transport::{self, Network};
use weir_packet::{Buffer, HEADER_BYTES, Observer, Picos, PortCounts, SEGMENT_BYTES, Simulation, Topology};
use weir_trace::{FlowArrival, FlowKind};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    about: String,
    transport: String,
    sack: Option<bool>,
    #[serde(default)]
    delayed_acks: bool,
    hosts: u32,
    racks: Option<u32>,
    spines: Option<u32>,
    rate: String,
    spine_rate: Option<String>,
    link_delay: String,
    host_delay: String,
    buffer: String,
    marking: String,
    rto: String,
    until: String,
    sample_from: Option<String>,
    list: Option<String>,
    #[serde(default)]
    flows: Vec<(u64, u32, u32, u64)>,
    tolerance: Tolerance,
    /// What is outside of the usual tolerance, and why.
    because: Option<String>,
}

/// How far a figure may be from ns-3's, as a share of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tolerance {
    mean: Option<f64>,
    class: Option<f64>,
    marked: Option<f64>,
    queue: Option<f64>,
    goodput: Option<f64>,
    fairness: Option<f64>,
}

#[derive(Deserialize)]
struct Recorded {
    /// Data packets that were marked; none where the driver that made the file counted acknowledgements too.
    marked: Option<f64>,
    dropped: f64,
    queue_bytes: Option<f64>,
    received: Option<Vec<f64>>,
    finished: Option<f64>,
    mean_ms: Option<f64>,
    #[serde(default)]
    classes: BTreeMap<String, Class>,
}

#[derive(Deserialize)]
struct Class {
    flows: u64,
    mean_ms: f64,
}

const CLASSES: [(&str, u64); 4] =
    [("up to 100 kB", 100_000), ("to 1 MB", 1_000_000), ("to 10 MB", 10_000_000), ("above", u64::MAX)];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../validation")
}

fn span(text: &str) -> Picos {
    text.parse::<Span>().expect("a time").into()
}
fn bytes(text: &str) -> Bytes {
    text.parse().expect("a size")
}
fn rate(text: &str) -> Rate {
    text.parse().expect("a rate")
}

/// The queue of each port on average.
struct Queues {
    every: Picos,
    from: Picos,
    sums: BTreeMap<u32, (f64, f64)>,
}

impl Observer for Queues {
    fn sample_every(&self) -> Option<Picos> {
        Some(self.every)
    }
    fn sampled_port(&mut self, port: u32, queued: Bytes, _: &PortCounts, now: Picos) {
        if now >= self.from {
            let (sum, count) = self.sums.entry(port).or_default();
            *sum += queued.0 as f64;
            *count += 1.0;
        }
    }
}

/// Jain's index: 1 if all get the same, 1/n if one of n gets all.
fn fairness(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum::<f64>());
    sum * sum / (shares.len() as f64 * squares)
}

impl Case {
    fn topology(&self) -> Topology {
        let (link_delay, host_delay) = (span(&self.link_delay), span(&self.host_delay));
        let Some(spines) = self.spines else {
            let spec = SingleSwitch { hosts: self.hosts, rate: rate(&self.rate), link_delay, host_delay };
            return Topology::single_switch(&spec).expect("a switch");
        };
        let racks = self.racks.expect("racks");
        let spec = LeafSpine {
            racks,
            hosts_per_rack: self.hosts / racks,
            spines,
            host_rate: rate(&self.rate),
            spine_rate: rate(self.spine_rate.as_ref().expect("a rate of spines")),
            link_delay,
            host_delay,
            balance: Balance::Ecmp,
        };
        Topology::leaf_spine(&spec).expect("racks and spines")
    }

    fn network(&self, topology: &Topology) -> Network {
        let last = topology.hosts() - 1;
        let there = topology.empty_delay(0, last, SEGMENT_BYTES + HEADER_BYTES);
        Network {
            host_rate: topology.host_rate(),
            round_trip: there + topology.empty_delay(last, 0, HEADER_BYTES),
            reorders: false,
            buffer: Buffer::PerPort(bytes(&self.buffer)),
            marking: bytes(&self.marking),
            least_timeout: span(&self.rto),
            initial_window: 10.0,
            traffic: None,
        }
    }

    fn arrivals(&self) -> Vec<FlowArrival> {
        let flow = |at: u64, source, destination, size| FlowArrival {
            arrival: Time::from_nanos(at),
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size),
            kind: FlowKind::Unknown,
        };
        let Some(list) = &self.list else {
            return self.flows.iter().map(|&(at, from, to, size)| flow(at * 1000, from, to, size)).collect();
        };
        let text = std::fs::read_to_string(folder().join("lists").join(list)).expect("a list of flows");
        let read = |line: &str| {
            let fields: Vec<u64> = line.split(',').map(|field| field.parse().expect("a number")).collect();
            flow(fields[0], fields[1] as u32, fields[2] as u32, fields[3])
        };
        text.lines().skip(1).map(read).collect()
    }

    /// What of it is outside of its tolerance. All figures are written down.
    fn compare(&self, name: &str, recorded: &Recorded, said: &mut String) -> Vec<String> {
        let topology = self.topology();
        let mut settings = match self.transport.as_str() {
            "newreno" => "tcp".to_owned(),
            other => other.to_owned(),
        };
        settings += if self.delayed_acks { ":acks=delayed" } else { "" };
        settings += if self.sack == Some(false) { ":recovery=newreno" } else { "" };
        let flows = self.arrivals();
        let transport = transport::named(&settings).expect("a transport");
        let mut queues = Queues {
            every: Picos::from_micros(10),
            from: self.sample_from.as_deref().map_or(Picos::MAX, span),
            sums: BTreeMap::new(),
        };
        let mut simulation =
            Simulation::new(&topology, transport, self.network(&topology), flows.iter().copied());
        if self.sample_from.is_some() {
            simulation.observe(&mut queues);
        }
        let (mut times, mut timeouts) = (Vec::new(), 0);
        let counts = simulation.run(span(&self.until), &mut |record| {
            times.push((record.flow.size.0, record.completion().as_secs() * 1e3));
            timeouts += u64::from(record.timeouts);
        });
        let received: Vec<f64> = simulation.unfinished().map(|open| open.received.0 as f64).collect();
        drop(simulation);

        let mut outside = Vec::new();
        let _ = write!(said, "{name}: ");
        let mut check = |what: &str, is: f64, theirs: f64, tolerance: Option<f64>| {
            let ratio = is / theirs;
            let _ = write!(said, "{what} {ratio:.3} ");
            let off = (ratio - 1.0).abs();
            if tolerance.is_some_and(|tolerance| off.is_nan() || off > tolerance) {
                outside.push(format!("{name}: {what} {is:.4}, in ns-3 {theirs:.4}: {ratio:.3}"));
            }
        };
        if let Some(theirs) = recorded.mean_ms {
            let mean =
                |times: &[(u64, f64)]| times.iter().map(|(_, ms)| ms).sum::<f64>() / times.len() as f64;
            check("finished", times.len() as f64, recorded.finished.unwrap_or(0.0), Some(0.01));
            check("mean", mean(&times), theirs, self.tolerance.mean);
            let mut least = 0;
            for (class, most) in CLASSES {
                let inside: Vec<_> =
                    times.iter().copied().filter(|(size, _)| (least + 1..=most).contains(size)).collect();
                least = most;
                // A few flows are an accident.
                if let Some(theirs) = recorded.classes.get(class).filter(|class| class.flows >= 30) {
                    check(class, mean(&inside), theirs.mean_ms, self.tolerance.class);
                }
            }
        }
        if let Some(theirs) = recorded.marked.filter(|marked| *marked > 0.0) {
            check("marked", counts.marked as f64, theirs, self.tolerance.marked);
        }
        if let Some(theirs) = recorded.queue_bytes {
            let most = queues.sums.values().map(|(sum, count)| sum / count).fold(0.0, f64::max);
            check("queue", most, theirs, self.tolerance.queue);
        }
        if let Some(theirs) = &recorded.received {
            check("goodput", received.iter().sum(), theirs.iter().sum(), self.tolerance.goodput);
            check("fairness", fairness(&received), fairness(theirs), self.tolerance.fairness);
        }
        let _ = writeln!(said, "dropped {} and {}, timeouts {timeouts}", counts.dropped, recorded.dropped);
        outside
    }
}

#[test]
fn figures_are_those_of_ns_3() {
    let mut names: Vec<String> = std::fs::read_dir(folder().join("cases"))
        .expect("the cases")
        .map(|entry| {
            entry.expect("a case").path().file_stem().unwrap_or_default().to_string_lossy().into_owned()
        })
        .filter(|name| std::env::var("WEIR_VALIDATION_CASES").map_or(true, |only| name.starts_with(&only)))
        .collect();
    names.sort();
    assert!(!names.is_empty());
    let one = |name: &String| {
        let read = |folder_name: &str, ending: &str| {
            let path = folder().join(folder_name).join(format!("{name}.{ending}"));
            std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let case: Case =
            toml::from_str(&read("cases", "toml")?).map_err(|error| format!("{name}: {error}"))?;
        let recorded: Recorded =
            serde_json::from_str(&read("recorded", "json")?).map_err(|error| format!("{name}: {error}"))?;
        let mut said = String::new();
        let outside = case.compare(name, &recorded, &mut said);
        println!("{said}  {}{}", case.about, case.because.map_or(String::new(), |why| format!(". {why}")));
        if outside.is_empty() { Ok(()) } else { Err(outside.join("\n")) }
    };
    let outside: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(move || one(name).err())).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("a case that ends")).collect()
    });
    assert!(outside.is_empty(), "{}", outside.join("\n"));
}
