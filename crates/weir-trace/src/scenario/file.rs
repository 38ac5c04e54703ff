//! From TOML to a [`Scenario`]; every error knows its line.

use super::number::{Number, NumberOrRefused};
use super::{ChangeUnits, CoflowUnits, Expected, FabricUnits, FlowUnits, Scenario};
use crate::text::{MAX_HOSTS, line_of, quote, toml_fault};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use weir_model::{Bytes, CoflowId, Fabric, HostId, LinkId, Rate};

const DEFAULT_UNIT_BYTES: u64 = 1_000_000;

/// Coflow id -> what becomes of it, under one policy.
type Times = BTreeMap<Spanned<String>, Spanned<NumberOrRefused>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    #[serde(default)]
    about: String,
    #[serde(default)]
    source: String,
    unit_bytes: Option<Spanned<u64>>,
    #[serde(default)]
    first_host: u32,
    fabric: Spanned<FabricFile>,
    coflow: Vec<CoflowFile>,
    #[serde(default)]
    change: Vec<Spanned<ChangeFile>>,
    #[serde(default)]
    expect: BTreeMap<String, Spanned<Times>>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum FabricFile {
    BigSwitch { hosts: u32, rate: Option<Number> },
    Racks { racks: u32, hosts_per_rack: u32, rate: Option<Number>, oversubscription: Option<Number> },
    Sites { hosts_per_site: Vec<u32>, rate: Option<Number>, rates: Vec<Vec<Number>> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoflowFile {
    id: Spanned<u64>,
    arrival: Option<Number>,
    flows: Vec<Spanned<String>>,
    weight: Option<Spanned<Number>>,
    deadline: Option<Number>,
    #[serde(default)]
    after: Vec<Spanned<u64>>,
    compute: Option<Number>,
    #[serde(default)]
    parents: Vec<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeFile {
    at: Number,
    /// Sending and receiving site.
    link: Option<[u32; 2]>,
    out: Option<u32>,
    r#in: Option<u32>,
    capacity: Number,
}

/// Line at fault, counted from 1, and the reason.
type Wrong = (usize, String);

/// Where bytes of the text are.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn wrong<T>(&self, place: &Spanned<T>, reason: impl Into<String>) -> Wrong {
        (self.of(place.span().start), reason.into())
    }

    fn of(&self, byte: usize) -> usize {
        line_of(self.0, byte)
    }
}

pub(super) fn parse(text: &str) -> Result<Scenario, Wrong> {
    let lines = Lines(text);
    let file: File = toml::from_str(text).map_err(|error| toml_fault(text, &error))?;
    if file.name.get_ref().trim().is_empty() {
        return Err(lines.wrong(&file.name, "the name is empty"));
    }
    let unit_bytes = match &file.unit_bytes {
        Some(bytes) if !(1..=1 << 40).contains(bytes.get_ref()) => {
            return Err(lines.wrong(bytes, "unit_bytes is not from 1 to 2^40"));
        }
        Some(bytes) => *bytes.get_ref(),
        None => DEFAULT_UNIT_BYTES,
    };
    let fabric = fabric(&lines, &file.fabric)?;
    let mut scenario = Scenario {
        name: file.name.get_ref().clone(),
        about: file.about,
        source: file.source,
        unit_bytes: Bytes(unit_bytes),
        fabric,
        coflows: Vec::new(),
        changes: Vec::new(),
        expect: BTreeMap::new(),
    };
    // Any rate will do: what counts is whether there is such a network, and which links it has.
    let fabric = scenario
        .fabric_at(Rate::from_bytes_per_sec(1.0))
        .map_err(|error| lines.wrong(&file.fabric, error.to_string()))?;
    let hosts = file.first_host..file.first_host.saturating_add(scenario.hosts());
    for coflow in &file.coflow {
        let parents = earlier(&lines, &coflow.parents, &scenario)?;
        let mut coflow = read_coflow(&lines, coflow, &hosts, &scenario)?;
        relate(&mut coflow, &parents, &mut scenario.coflows);
        scenario.coflows.push(coflow);
    }
    for change in &file.change {
        let read = read_change(change.get_ref(), &hosts, &fabric);
        scenario.changes.push(read.map_err(|reason| lines.wrong(change, reason))?);
    }
    for (policy, times) in &file.expect {
        let times = expected(&lines, times, &scenario)?;
        scenario.expect.insert(policy.clone(), times);
    }
    Ok(scenario)
}

fn fabric(lines: &Lines<'_>, file: &Spanned<FabricFile>) -> Result<FabricUnits, Wrong> {
    let one = |number: &Option<Number>| number.map_or(1.0, |number| number.0);
    let (fabric, hosts) = match file.get_ref() {
        FabricFile::BigSwitch { hosts, rate } => {
            (FabricUnits::BigSwitch { hosts: *hosts, rate: one(rate) }, u64::from(*hosts))
        }
        FabricFile::Racks { racks, hosts_per_rack, rate, oversubscription } => {
            let fabric = FabricUnits::Racks {
                racks: *racks,
                hosts_per_rack: *hosts_per_rack,
                rate: one(rate),
                oversubscription: one(oversubscription),
            };
            (fabric, u64::from(*racks) * u64::from(*hosts_per_rack))
        }
        FabricFile::Sites { hosts_per_site, rate, rates } => {
            let fabric = FabricUnits::Sites {
                hosts_per_site: hosts_per_site.clone(),
                rate: rate.map(|number| number.0),
                rates: rates.iter().map(|row| row.iter().map(|number| number.0).collect()).collect(),
            };
            (fabric, hosts_per_site.iter().map(|&hosts| u64::from(hosts)).sum())
        }
    };
    // Scenarios are worked out by hand; the bound keeps a typing error from taking all memory.
    if hosts > u64::from(MAX_HOSTS) {
        return Err(lines.wrong(file, format!("more than {MAX_HOSTS} hosts")));
    }
    Ok(fabric)
}

fn read_coflow(
    lines: &Lines<'_>,
    file: &CoflowFile,
    hosts: &std::ops::Range<u32>,
    scenario: &Scenario,
) -> Result<CoflowUnits, Wrong> {
    let id = CoflowId(*file.id.get_ref());
    if scenario.coflows.iter().any(|other| other.id == id) {
        return Err(lines.wrong(&file.id, format!("coflow {id} appears twice")));
    }
    let flow = |text: &Spanned<String>| {
        read_flow(text.get_ref(), hosts)
            .map_err(|reason| lines.wrong(text, format!("flow {} {reason}", quote(text.get_ref()))))
    };
    let weight = match &file.weight {
        Some(weight) if weight.get_ref().0 == 0.0 => return Err(lines.wrong(weight, "the weight is 0")),
        Some(weight) => weight.get_ref().0,
        None => 1.0,
    };
    Ok(CoflowUnits {
        id,
        arrival: file.arrival.map_or(0.0, |arrival| arrival.0),
        flows: file.flows.iter().map(flow).collect::<Result<_, _>>()?,
        weight,
        deadline: file.deadline.map(|deadline| deadline.0),
        after: earlier(lines, &file.after, scenario)?,
        compute: file.compute.map_or(0.0, |compute| compute.0),
        ancestors: Vec::new(),
        root: None,
    })
}

/// Coflows that must stand before this one in the file, so that no coflow waits for itself.
fn earlier(lines: &Lines<'_>, ids: &[Spanned<u64>], scenario: &Scenario) -> Result<Vec<CoflowId>, Wrong> {
    let known = |id: &Spanned<u64>| {
        let found = scenario.coflows.iter().any(|coflow| coflow.id.0 == *id.get_ref());
        let reason = || lines.wrong(id, format!("{} is no earlier coflow of this file", id.get_ref()));
        if found { Ok(CoflowId(*id.get_ref())) } else { Err(reason()) }
    };
    ids.iter().map(known).collect()
}

/// Adds what follows from the coflows that it names: all ancestors it may be live with, and one job for all.
fn relate(coflow: &mut CoflowUnits, parents: &[CoflowId], others: &mut [CoflowUnits]) {
    let mut roots = BTreeSet::new();
    for other in others.iter_mut() {
        let piped = parents.contains(&other.id);
        if piped {
            coflow.ancestors.push(other.id);
            coflow.ancestors.extend(&other.ancestors);
        }
        if piped || coflow.after.contains(&other.id) {
            roots.insert(*other.root.get_or_insert(other.id));
        }
    }
    coflow.ancestors.sort_unstable();
    coflow.ancestors.dedup();
    // It may join coflows of several jobs. All of them become one job, under the least id.
    coflow.root = roots.first().copied().or_else(|| (coflow.compute > 0.0).then_some(coflow.id));
    for other in others.iter_mut().filter(|other| other.root.is_some_and(|root| roots.contains(&root))) {
        other.root = coflow.root;
    }
}

/// Reads a flow that is written `SOURCE->DESTINATION:SIZE`.
fn read_flow(text: &str, hosts: &std::ops::Range<u32>) -> Result<FlowUnits, String> {
    let parts = text.split_once("->").and_then(|(source, rest)| {
        let (destination, size) = rest.split_once(':')?;
        Some((source.trim().parse::<u32>().ok()?, destination.trim().parse::<u32>().ok()?, size))
    });
    let Some((source, destination, size)) = parts else {
        return Err("is not source->destination:size".to_owned());
    };
    for host in [source, destination] {
        if !hosts.contains(&host) {
            return Err(format!("names host {host}; hosts are {} to {}", hosts.start, hosts.end - 1));
        }
    }
    match Number::parse(size) {
        Some(Number(size)) if size > 0.0 => {
            let (source, destination) = (HostId(source - hosts.start), HostId(destination - hosts.start));
            Ok(FlowUnits { source, destination, size })
        }
        _ => Err(format!("has size {}, not a number above 0 or a fraction", quote(size))),
    }
}

/// A change of a link that the network has.
fn read_change(
    file: &ChangeFile,
    hosts: &std::ops::Range<u32>,
    fabric: &Fabric,
) -> Result<ChangeUnits, String> {
    let of_host = |host: u32, link: fn(&Fabric, HostId) -> Option<LinkId>| {
        let known = hosts.contains(&host).then(|| HostId(host - hosts.start));
        known
            .and_then(|host| link(fabric, host))
            .ok_or_else(|| format!("host {host} has no link of its own here"))
    };
    let link = match (file.link, file.out, file.r#in) {
        (Some([from, to]), None, None) => {
            fabric.between(from, to).ok_or_else(|| format!("there is no link from site {from} to site {to}"))
        }
        (None, Some(host), None) => of_host(host, Fabric::uplink),
        (None, None, Some(host)) => of_host(host, Fabric::downlink),
        _ => {
            Err("a change is of one link: link = [from, to] between sites, or out or in of a host".to_owned())
        }
    }?;
    if file.capacity.0 == 0.0 {
        return Err("the capacity is 0".to_owned());
    }
    Ok(ChangeUnits { at: file.at.0, link, capacity: file.capacity.0 })
}

fn expected(
    lines: &Lines<'_>,
    times: &Spanned<Times>,
    scenario: &Scenario,
) -> Result<Vec<(CoflowId, Expected)>, Wrong> {
    let mut found = Vec::new();
    for (key, time) in times.get_ref() {
        let id = key.get_ref().parse().ok().map(CoflowId);
        match id.filter(|id| scenario.coflows.iter().any(|coflow| coflow.id == *id)) {
            Some(id) => found.push((id, of_file(time.get_ref()))),
            None => {
                return Err(lines.wrong(key, format!("{} is no coflow of this file", quote(key.get_ref()))));
            }
        }
    }
    for coflow in &scenario.coflows {
        if !found.iter().any(|(id, _)| *id == coflow.id) {
            return Err(lines.wrong(times, format!("no time is expected of coflow {}", coflow.id)));
        }
    }
    found.sort_by_key(|&(id, _)| id);
    Ok(found)
}

fn of_file(time: &NumberOrRefused) -> Expected {
    match time {
        NumberOrRefused::Number(Number(units)) => Expected::CompletesAfter(*units),
        NumberOrRefused::Refused => Expected::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Span, Time};

    const GOOD: &str = r#"name = "x"
first_host = 1
[fabric]
kind = "big-switch"
hosts = 2

[[coflow]]
id = 4
arrival = 0.5
deadline = 3
flows = ["1->2:1/2", "2->2:3"]

[expect.fair]
4 = "7/2"
"#;

    #[test]
    fn units_become_bytes_and_seconds() {
        let scenario = parse(GOOD).unwrap();
        assert_eq!(scenario.expect["fair"], [(CoflowId(4), Expected::CompletesAfter(3.5))]);
        let refused = parse(&GOOD.replace("\"7/2\"", "\"refused\"")).unwrap();
        assert_eq!(refused.expect["fair"], [(CoflowId(4), Expected::Refused)]);
        let scaled = scenario.at(Rate::from_bytes_per_sec(500.0), Bytes(1000)).unwrap();
        // A unit of 1000 bytes takes 2 s at 500 B/s.
        assert_eq!(scaled.unit_secs, 2.0);
        let coflow = &scaled.coflows[0];
        assert_eq!(
            (coflow.arrival, coflow.deadline),
            (Time::from_millis(1000), Some(Span::from_millis(6000)))
        );
        let flows: Vec<_> = coflow.flows.iter().map(|f| (f.source.0, f.destination.0, f.size.0)).collect();
        assert_eq!(flows, [(0, 1, 500), (1, 1, 3000)]);
    }

    #[test]
    fn coflows_of_a_job_know_what_they_descend_from() {
        let more = |id: u32, named: &str| format!("[[coflow]]\nid = {id}\n{named}\nflows = []\n");
        let text = [
            GOOD.split("[expect").next().unwrap(),
            &more(5, "parents = [4]"),
            &more(6, "parents = [5]\ncompute = 2"),
            &more(7, "after = [6]"),
            &more(8, ""),
            &more(9, ""),
            &more(10, "after = [8, 9]"),
            &more(11, ""),
        ];
        let scaled = parse(&text.concat()).unwrap().at(Rate::from_bytes_per_sec(500.0), Bytes(1000)).unwrap();
        let of = |at: usize| &scaled.coflows[at].dependencies;
        let ids = |ids: &[CoflowId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!((ids(&of(2).ancestors), of(2).compute), (vec![4, 5], Span::from_millis(4000)));
        assert_eq!((ids(&of(3).after), ids(&of(3).ancestors)), (vec![6], vec![]));
        let jobs: Vec<u64> = scaled.coflows.iter().map(|coflow| coflow.job().0).collect();
        assert_eq!((jobs, of(7).job), (vec![4, 4, 4, 4, 8, 8, 8, 11], None));
    }

    #[test]
    fn racks_and_sites_read_too() {
        let racks = GOOD.replace(
            "kind = \"big-switch\"\nhosts = 2",
            "kind = \"racks\"\nracks = 2\nhosts_per_rack = 1\noversubscription = 2",
        );
        let fabric = parse(&racks).unwrap().at(Rate::from_bytes_per_sec(8.0), Bytes(1)).unwrap().fabric;
        assert_eq!((fabric.links().len(), fabric.links()[5].capacity.bytes_per_sec()), (8, 4.0));
        let sites = GOOD.replace(
            "kind = \"big-switch\"\nhosts = 2",
            "kind = \"sites\"\nhosts_per_site = [1, 1]\nrates = [[0, 2], [3, 0]]",
        );
        let fabric = parse(&sites).unwrap().at(Rate::from_bytes_per_sec(8.0), Bytes(1)).unwrap().fabric;
        assert_eq!((fabric.links().len(), fabric.links()[1].capacity.bytes_per_sec()), (2, 24.0));
    }

    #[test]
    fn changes_are_of_the_links_that_they_name() {
        let with = |text: &str, changes: &str| parse(&text.replace("[expect.fair]", changes));
        let changes = "[[change]]\nat = 2\nout = 2\ncapacity = \"1/2\"\n\n\
                       [[change]]\nat = 3\nin = 1\ncapacity = 2\n[expect.fair]";
        let scenario = with(GOOD, changes).unwrap();
        let (rate, unit) = (Rate::from_bytes_per_sec(500.0), Bytes(1000));
        // Hosts 1 and 2: links out are 0 and 2, in 1 and 3. A unit of time is 2 s.
        let found = scenario.changing_at(rate, unit).unwrap().changes;
        let of = |at: usize| (found[at].at, found[at].link.0, found[at].capacity.bytes_per_sec());
        assert_eq!(
            [of(0), of(1)],
            [(Time::from_millis(4000), 2, 250.0), (Time::from_millis(6000), 1, 1000.0)]
        );
        let said = scenario.at(rate, unit).unwrap_err().to_string();
        assert!(said.starts_with("x: capacities of its links change"), "{said}");
        let sites = GOOD.replace(
            "kind = \"big-switch\"\nhosts = 2",
            "kind = \"sites\"\nhosts_per_site = [1, 1]\nrates = [[0, 2], [3, 0]]",
        );
        let change = |link: &str, capacity: &str| {
            with(&sites, &format!("[[change]]\nat = 0\n{link}\ncapacity = {capacity}\n[expect.fair]"))
        };
        assert_eq!(change("link = [1, 0]", "1").unwrap().changes[0].link, LinkId(1));
        for (link, capacity, reason) in [
            ("link = [0, 0]", "1", "there is no link from site 0 to site 0"),
            ("link = [0, 2]", "1", "there is no link from site 0 to site 2"),
            ("out = 1", "1", "host 1 has no link of its own here"),
            ("in = 7", "1", "host 7 has no link of its own here"),
            ("link = [0, 1]\nin = 1", "1", "a change is of one link"),
            ("", "1", "a change is of one link"),
            ("link = [0, 1]", "0", "the capacity is 0"),
            ("link = [0, 1]", "-1", "invalid value"),
        ] {
            let (line, found) = change(link, capacity).unwrap_err();
            assert!((13..=18).contains(&line) && found.contains(reason), "{link}: line {line}: {found}");
        }
    }

    #[test]
    fn malformed_files_say_where_and_why() {
        for (from, to, line, reason) in [
            ("hosts = 2", "hosts = 0", 3, "a fabric needs at least one host"),
            ("id = 4", "id = \"x\"", 8, "invalid type"),
            ("first_host = 1", "fist_host = 1", 2, "unknown field `fist_host`"),
            ("1->2:1/2", "1>2:1", 11, "flow `1>2:1` is not source->destination:size"),
            ("1->2:1/2", "1->3:1", 11, "flow `1->3:1` names host 3; hosts are 1 to 2"),
            ("2->2:3", "2->2:0", 11, "flow `2->2:0` has size `0`, not a number above 0 or a fraction"),
            ("2->2:3", "2->2:1/0", 11, "flow `2->2:1/0` has size `1/0`"),
            ("4 = \"7/2\"", "5 = 1", 14, "`5` is no coflow of this file"),
            ("4 = \"7/2\"", "", 13, "no time is expected of coflow 4"),
            ("4 = \"7/2\"", "4 = \"soon\"", 14, "invalid value: string \"soon\""),
            ("deadline = 3", "after = [5]", 10, "5 is no earlier coflow of this file"),
            ("deadline = 3", "parents = [4]", 10, "4 is no earlier coflow of this file"),
            ("big-switch", "small-switch", 3, "unknown variant `small-switch`"),
            ("[expect.fair]", "[[coflow]]\nid = 4\nflows = []\n[expect.fair]", 14, "coflow 4 appears twice"),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD, "{from}");
            let (at, found) = parse(&text).unwrap_err();
            assert!(at.abs_diff(line) <= 1 && found.contains(reason), "{to}: line {at}: {found}");
            assert_eq!(found.lines().count(), 1);
        }
    }
}
