//! The form of a scenario: TOML. docs/packet-scenario.md has every key, and a test holds it to them.
//!
//! ```toml
//! name = "two-flows"
//! about = "What it shows"
//! until = "100ms"                 # optional: when the run ends
//!
//! [network]
//! topology = "single-switch"      # or "leaf-spine", with racks, hosts_per_rack, spines, spine_rate, balance
//! hosts = 3
//! rate = "1gbit"                  # of every host's link
//! link_delay = "1us"
//! host_delay = "24us"
//!
//! [[flow]]
//! source = 0
//! destination = 2
//! size = "1800kB"                 # or endless = true
//! at = "0"
//! deadline = "20ms"               # or unknown = true: its size is not known; neither: known
//!
//! [traffic]                       # optional: flows that arrive as a Poisson process
//! sizes = "web-search"
//! load = 0.8
//! flows = 1000
//! known = 0.5                     # share of flows without deadlines whose size is known; 0 if left out
//! deadline_bytes = 0.2            # share of bytes that flows with deadlines have; 0 if left out
//! within = ["5ms", "25ms"]        # their deadlines are uniform between these
//! deadline_size = "80kB"          # optional: how large each of them is, where others have the sizes above
//! ```
//!
//! What is left out of `[network]` is [`DEFAULTS`].

use super::{ENDLESS, Scenario, ScenarioError, Shape};
use crate::setup::Buffer;
use crate::time::Picos;
use crate::topology::{Balance, LeafSpine, SingleSwitch};
use serde::{Deserialize, Deserializer, de::Error as _};
use std::str::FromStr;
use weir_model::{Bytes, HostId, ParseUnitError, Rate, Span, Time};
use weir_trace::{Ends, FlowArrival, FlowKind, FlowSizes, Mix, Poisson, PoissonSpec, line_of, toml_fault};

/// What a network has if its file does not say: name of the setting, and its value. Buffers, thresholds and timeouts are
/// those of the simulations of Karuna and PIAS.
pub const DEFAULTS: [(&str, &str); 6] = [
    ("link_delay", "200ns"),
    ("host_delay", "20us"),
    ("buffer", "360kB"),
    ("marking", "97500"),
    ("rto", "2ms"),
    ("balance", "spray"),
];
const DEFAULT_WINDOW: f64 = 10.0;
const DEFAULT_SEED: u64 = 1;
const DEFAULT_SHARE: f64 = 1.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    about: String,
    until: Option<Quantity<Span>>,
    network: NetworkFile,
    #[serde(default)]
    flow: Vec<toml::Spanned<FlowFile>>,
    traffic: Option<TrafficFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkFile {
    topology: TopologyFile,
    hosts: Option<u32>,
    racks: Option<u32>,
    hosts_per_rack: Option<u32>,
    spines: Option<u32>,
    rate: Quantity<Rate>,
    spine_rate: Option<Quantity<Rate>>,
    balance: Option<BalanceFile>,
    link_delay: Option<Quantity<Span>>,
    host_delay: Option<Quantity<Span>>,
    buffer: Option<Quantity<Bytes>>,
    shared_buffer: Option<Quantity<Bytes>>,
    share: Option<f64>,
    marking: Option<Quantity<Bytes>>,
    rto: Option<Quantity<Span>>,
    initial_window: Option<f64>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum TopologyFile {
    SingleSwitch,
    LeafSpine,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BalanceFile {
    Ecmp,
    Spray,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowFile {
    source: u32,
    destination: u32,
    size: Option<Quantity<Bytes>>,
    #[serde(default)]
    endless: bool,
    at: Option<Quantity<Span>>,
    deadline: Option<Quantity<Span>>,
    #[serde(default)]
    unknown: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrafficFile {
    sizes: String,
    load: f64,
    flows: u64,
    #[serde(default)]
    deadline_bytes: f64,
    deadline_size: Option<Quantity<Bytes>>,
    within: Option<(Quantity<Span>, Quantity<Span>)>,
    #[serde(default)]
    known: f64,
    into: Option<u32>,
    from: Option<u32>,
    seed: Option<u64>,
}

/// A quantity with its unit.
#[derive(Clone, Copy)]
struct Quantity<T>(T);

impl<'de, T: FromStr<Err = ParseUnitError>> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity<T>, D::Error> {
        String::deserialize(deserializer)?.parse().map(Quantity).map_err(D::Error::custom)
    }
}

/// The default of a setting.
fn default<T: FromStr>(name: &str) -> Option<T> {
    DEFAULTS.iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
}

fn problem(problem: impl Into<String>) -> ScenarioError {
    ScenarioError::Text { line: None, problem: problem.into() }
}

pub(super) fn read(text: &str) -> Result<Scenario, ScenarioError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let (line, problem) = toml_fault(text, &error);
        ScenarioError::Text { line: Some(line), problem }
    })?;
    let shape = shape(&file.network)?;
    let mut scenario = Scenario {
        name: file.name,
        about: file.about,
        shape,
        buffer: buffer(&file.network)?,
        marking: file.network.marking.map(|size| size.0).or_else(|| default("marking")).unwrap_or_default(),
        least_timeout: span(file.network.rto, "rto"),
        initial_window: file.network.initial_window.unwrap_or(DEFAULT_WINDOW),
        until: file.until.map(|span| span.0.into()),
        flows: Vec::new(),
        traffic: None,
    };
    if scenario.initial_window.is_nan() || scenario.initial_window < 1.0 {
        return Err(problem("[network]: initial_window has to be at least 1 segment"));
    }
    if scenario.least_timeout == Picos::ZERO {
        return Err(problem(
            "[network]: rto has to be above 0: timeouts without time between them never end",
        ));
    }
    let hosts = scenario.topology()?.hosts();
    for flow in &file.flow {
        let line = Some(line_of(text, flow.span().start));
        let arrival = arrival(flow.get_ref(), hosts);
        scenario.flows.push(arrival.map_err(|problem| ScenarioError::Text { line, problem })?);
    }
    if let Some(traffic) = file.traffic {
        let spec = poisson(&traffic, &scenario)?;
        // What cannot be is said now, not when the flows are asked for.
        Poisson::new(spec.clone())?;
        scenario.traffic = Some(spec);
    }
    if scenario.flows.is_empty() && scenario.traffic.is_none() {
        return Err(problem("there are neither flows ([[flow]]) nor [traffic]"));
    }
    if scenario.until.is_none() && scenario.flows.iter().any(|flow| flow.size == ENDLESS) {
        return Err(problem("with an endless flow the run has to end by itself: say until = \"100ms\""));
    }
    Ok(scenario)
}

fn span(given: Option<Quantity<Span>>, name: &str) -> Picos {
    given.map(|span| span.0).or_else(|| default(name)).unwrap_or_default().into()
}

fn shape(file: &NetworkFile) -> Result<Shape, ScenarioError> {
    let need = |given: Option<u32>, key: &str| {
        given.ok_or_else(|| problem(format!("[network]: {key} is missing for this topology")))
    };
    let (link_delay, host_delay) = (span(file.link_delay, "link_delay"), span(file.host_delay, "host_delay"));
    if file.topology == TopologyFile::SingleSwitch {
        if file.racks.is_some() || file.spines.is_some() || file.hosts_per_rack.is_some() {
            return Err(problem("[network]: a single switch has hosts, and no racks or spines"));
        }
        let hosts = need(file.hosts, "hosts")?;
        return Ok(Shape::SingleSwitch(SingleSwitch { hosts, rate: file.rate.0, link_delay, host_delay }));
    }
    if file.hosts.is_some() {
        return Err(problem("[network]: leaf-spine has racks times hosts_per_rack hosts; leave hosts out"));
    }
    let spine_rate =
        file.spine_rate.ok_or_else(|| problem("[network]: spine_rate is missing for this topology"))?;
    Ok(Shape::LeafSpine(LeafSpine {
        racks: need(file.racks, "racks")?,
        hosts_per_rack: need(file.hosts_per_rack, "hosts_per_rack")?,
        spines: need(file.spines, "spines")?,
        host_rate: file.rate.0,
        spine_rate: spine_rate.0,
        link_delay,
        host_delay,
        balance: match file.balance {
            Some(BalanceFile::Ecmp) => Balance::Ecmp,
            Some(BalanceFile::Spray) | None => Balance::Spray,
        },
    }))
}

fn buffer(file: &NetworkFile) -> Result<Buffer, ScenarioError> {
    match (file.buffer, file.shared_buffer) {
        (Some(_), Some(_)) => {
            Err(problem("[network]: buffer is per port, shared_buffer per switch: say one"))
        }
        (_, None) if file.share.is_some() => {
            Err(problem("[network]: share is that of a port in shared_buffer: say shared_buffer too"))
        }
        (None, Some(all)) => {
            let share = file.share.unwrap_or(DEFAULT_SHARE);
            if share.is_nan() || share <= 0.0 {
                return Err(problem("[network]: share has to be above 0"));
            }
            Ok(Buffer::Shared { all: all.0, share })
        }
        (own, None) => {
            Ok(Buffer::PerPort(own.map(|size| size.0).or_else(|| default("buffer")).unwrap_or_default()))
        }
    }
}

fn arrival(file: &FlowFile, hosts: u32) -> Result<FlowArrival, String> {
    for host in [file.source, file.destination] {
        if host >= hosts {
            return Err(format!("host {host} is not there: hosts are 0 to {}", hosts - 1));
        }
    }
    if file.source == file.destination {
        return Err(format!("the flow goes from host {} to itself", file.source));
    }
    let size = match (file.size, file.endless) {
        (Some(size), false) if size.0 > ENDLESS => {
            return Err(format!("a flow of {} is longer than an endless one", size.0));
        }
        (Some(size), false) if size.0.0 > 0 => size.0,
        (None, true) => ENDLESS,
        _ => return Err("a flow has a size above 0, or is endless = true".to_owned()),
    };
    let kind = match (file.deadline, file.unknown) {
        (Some(within), false) => FlowKind::Deadline { within: within.0 },
        (None, true) => FlowKind::Unknown,
        (None, false) => FlowKind::Known,
        (Some(_), true) => return Err("a flow with a deadline has a known size".to_owned()),
    };
    let at = file.at.map_or(Span::ZERO, |at| at.0);
    Ok(FlowArrival {
        arrival: Time::ZERO + at,
        source: HostId(file.source),
        destination: HostId(file.destination),
        size,
        kind,
    })
}

fn poisson(file: &TrafficFile, scenario: &Scenario) -> Result<PoissonSpec, ScenarioError> {
    let sizes =
        FlowSizes::load(&file.sizes).map_err(|error| problem(format!("[traffic]: sizes: {error}")))?;
    if sizes.largest() > ENDLESS {
        return Err(problem(format!("[traffic]: sizes: flows of up to {} are too long", sizes.largest())));
    }
    let ends = match (file.into, file.from) {
        (None, None) => Ends::Uniform,
        (Some(host), None) => Ends::Into(HostId(host)),
        (None, Some(host)) => Ends::From(HostId(host)),
        (Some(_), Some(_)) => return Err(problem("[traffic]: say into or from, not both")),
    };
    if file.deadline_bytes > 0.0 && file.within.is_none() {
        return Err(problem("[traffic]: deadlines need a range, as in within = [\"5ms\", \"25ms\"]"));
    }
    let deadline_size = file.deadline_size.map(|size| size.0);
    if let Some(size) = deadline_size.filter(|size| *size > ENDLESS) {
        return Err(problem(format!("[traffic]: deadline_size: flows of {size} are too long")));
    }
    let within = file.within.map_or((Span::ZERO, Span::ZERO), |(least, most)| (least.0, most.0));
    Ok(PoissonSpec {
        hosts: scenario.hosts(),
        access_rate: scenario.host_rate(),
        load: file.load,
        sizes,
        mix: Mix { deadline_bytes: file.deadline_bytes, deadline_size, known: file.known, within },
        ends,
        seed: file.seed.unwrap_or(DEFAULT_SEED),
        flows: file.flows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
name = "two"
until = "100ms"
[network]
topology = "single-switch"
hosts = 3
rate = "1gbit"
[[flow]]
source = 0
destination = 2
endless = true
unknown = true
[[flow]]
source = 1
destination = 2
size = "1800kB"
deadline = "20ms"
at = "1ms"
[traffic]
sizes = "web-search"
load = 0.5
flows = 3
"#;

    #[test]
    fn a_scenario_says_network_and_flows() {
        let scenario = Scenario::from_text(TWO).unwrap();
        assert_eq!(scenario.buffer, Buffer::PerPort(Bytes(360_000)));
        assert_eq!(scenario.marking, Bytes(97_500));
        assert_eq!(scenario.least_timeout, Picos::from_millis(2));
        let flows: Vec<_> = scenario.arrivals().unwrap().collect();
        assert_eq!(flows.len(), 5);
        assert!(flows.is_sorted_by_key(|flow| flow.arrival));
        assert_eq!((flows[0].size, flows[0].kind), (ENDLESS, FlowKind::Unknown));
        let within = Span::from_millis(20);
        assert!(flows.iter().any(|flow| flow.kind == FlowKind::Deadline { within }));
    }

    #[test]
    fn flows_have_the_numbers_of_their_places_whenever_they_begin() {
        let later = TWO.replace("endless = true", "endless = true\nat = \"2ms\"");
        let scenario = Scenario::from_text(&later).unwrap();
        let flows: Vec<_> = scenario.numbered().unwrap().collect();
        assert!(flows.is_sorted_by_key(|(_, flow)| flow.arrival));
        let size = |number| flows.iter().find(|(own, _)| *own == number).map(|(_, flow)| flow.size);
        assert_eq!((size(0), size(1)), (Some(ENDLESS), Some(Bytes(1_800_000))));
        let mut numbers: Vec<_> = flows.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        let at = |number| flows.iter().position(|(own, _)| *own == number);
        assert!(at(1) < at(0), "{flows:?}");
    }

    #[test]
    fn flows_with_deadlines_may_have_a_size_of_their_own() {
        let own = "load = 0.5\ndeadline_bytes = 1.0\ndeadline_size = \"80kB\"\nwithin = [\"5ms\", \"25ms\"]";
        let scenario = Scenario::from_text(&TWO.replace("load = 0.5", own)).unwrap();
        let sizes = scenario.arrivals().unwrap().filter(|flow| flow.size == Bytes(80_000));
        assert_eq!(sizes.count(), 3);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let cases = [
            ("hosts = 3", "hosts = 1", "[network]: the number of hosts is 1, and has to be at least 2"),
            ("source = 1", "source = 3", "line 13: host 3 is not there: hosts are 0 to 2"),
            ("source = 1", "source = 2", "line 13: the flow goes from host 2 to itself"),
            ("rate = \"1gbit\"", "rate = \"fast\"", "line 7: `fast` is not a rate such as 100mbit or 1gbit"),
            ("hosts = 3", "hosts = 3\nrto = \"0\"", "[network]: rto has to be above 0"),
            (
                "hosts = 3",
                "hosts = 3\nshared_buffer = \"1MB\"\nshare = 0.0",
                "[network]: share has to be above 0",
            ),
            ("hosts = 3", "hosts = 3\nshare = 2.0", "[network]: share is that of a port in shared_buffer"),
            (
                "until = \"100ms\"",
                "",
                "with an endless flow the run has to end by itself: say until = \"100ms\"",
            ),
            ("1800kB", "7TB", "line 13: a flow of 7.0 TB is longer than an endless one"),
            ("rate = \"1gbit\"", "rate = \"1bit\"", "[network]: a link of 1 bit/s is too slow"),
            ("load = 0.5", "load = 0", "[traffic]: the load is 0: it must be above 0"),
            ("load = 0.5", "load = 0.5\ndeadline_bytes = 0.2", "[traffic]: deadlines need a range"),
            (
                "load = 0.5",
                "load = 0.5\ndeadline_size = \"0\"",
                "[traffic]: flows with a deadline have 0 bytes: their size must be above 0",
            ),
            (
                "load = 0.5",
                "load = 0.5\ndeadline_size = \"7TB\"",
                "[traffic]: deadline_size: flows of 7.0 TB are too long",
            ),
            (
                "load = 0.5",
                "load = 0.5\ndeadline_size = \"big\"",
                "line 22: `big` is not a size in bytes such as 4096, 10MB or 10MiB",
            ),
        ];
        for (from, to, expected) in cases {
            let error = Scenario::from_text(&TWO.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
