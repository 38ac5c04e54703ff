//! Racks, sites, and a network that is told to be another one while coflows move.

use super::joining::{named, named_config};
use super::*;
use crate::coordinator::{HelloError, Joining, KnownHost, KnownRack};

fn rates(up: f64, down: f64) -> [Rate; 2] {
    [up, down].map(Rate::from_bytes_per_sec)
}

fn rack(up: f64, down: f64) -> KnownRack {
    KnownRack { rates: rates(up, down), site: None, label: None }
}

/// Hosts a and b below a rack whose link to the core carries as much as one of them; others where they say.
fn known() -> Joining {
    let below = |rack: &str| KnownHost { rack: Some(rack.to_owned()), ..KnownHost::default() };
    Joining {
        link_rate: Some(Rate::from_bytes_per_sec(1e6)),
        share: 1.0,
        racks: [("r1".to_owned(), rack(1e6, 1e6)), ("r2".to_owned(), rack(3e6, 3e6))].into(),
        hosts: ["a", "b"].map(|name| (name.to_owned(), below("r1"))).into(),
        ..Joining::default()
    }
}

struct Racks {
    pair: Pair,
    coflow: CoflowId,
    flows: Vec<(usize, FlowNumber)>,
}

/// One coflow with a flow of 4 MB from a to c and one from b to d.
fn racks(joining: Joining, policy: &str) -> Racks {
    let config =
        CoordinatorConfig { fabric: Fabric::without_hosts(), joining: Some(joining), ..config(1, 1) };
    let mut pair = Pair::under(config, policy);
    let at: Vec<usize> = (1..)
        .zip(["a", "b", "c", "d"])
        .map(|(number, name)| pair.join(named(number, name, [0.0; 2])))
        .collect();
    let coflow = pair.register(2);
    let first = pair.ask_block(coflow, "x", 4_000_000, at[0], 3);
    let second = pair.open(coflow, "y", 4_000_000, at[1], 4);
    Racks { pair, coflow, flows: vec![(at[0], first), (at[1], second)] }
}

impl Racks {
    fn rates(&self) -> Vec<f64> {
        self.flows.iter().map(|&(at, flow)| (self.pair.rate(at, flow) / 1e3).round() * 1e3).collect()
    }

    fn become_known(&mut self, joining: Joining) {
        assert!(self.pair.coordinator.handle_network(self.pair.now, joining));
        self.pair.wait(2);
    }
}

#[test]
fn what_leaves_a_rack_shares_its_link_under_every_policy_and_follows_when_that_changes() {
    for info in policies_of_rates() {
        let mut racks = racks(known(), info.name);
        racks.pair.wait(20);
        let sum: f64 = racks.rates().iter().sum();
        assert!((sum - 1e6).abs() < 1e4, "{}: {:?}", info.name, racks.rates());
        let faster = Joining { racks: [("r1".to_owned(), rack(2e6, 1e6))].into(), ..known() };
        racks.become_known(faster);
        racks.pair.wait(20);
        assert_eq!(racks.rates(), [1e6, 1e6], "{}", info.name);
    }
}

#[test]
fn a_host_that_is_put_below_another_rack_takes_its_flows_with_it() {
    let mut racks = racks(known(), "varys");
    assert_eq!(racks.rates(), [5e5, 5e5]);
    let mut elsewhere = known();
    elsewhere.hosts.get_mut("b").unwrap().rack = Some("r2".to_owned());
    racks.become_known(elsewhere);
    assert_eq!(racks.rates(), [1e6, 1e6]);
    // Nothing is known of any host: at the core each has its own link alone. A slower one is slower at once.
    let mut slow = Joining { racks: [].into(), hosts: [].into(), ..known() };
    racks.become_known(slow.clone());
    assert_eq!(racks.rates(), [1e6, 1e6]);
    slow.hosts
        .insert("a".to_owned(), KnownHost { rates: rates(25e4, 1e6).map(Some), ..KnownHost::default() });
    racks.become_known(slow);
    // MADD: both end with the first.
    assert_eq!(racks.rates()[0], 25e4);
    racks.become_known(known());
    assert_eq!(racks.rates(), [5e5, 5e5]);
    let (at, flow) = racks.flows[0];
    racks.pair.finish(at, flow, 4_000_000);
    let record = racks.pair.unregister(racks.coflow).unwrap();
    assert_eq!((record.flows, record.bytes), (1, 4_000_000));
}

#[test]
fn what_is_known_of_a_host_counts_and_else_what_its_agent_says() {
    let config = |joining| CoordinatorConfig {
        fabric: Fabric::without_hosts(),
        joining: Some(joining),
        ..config(1, 1)
    };
    let mut joining = known();
    joining.hosts.get_mut("a").unwrap().rates = rates(7e6, 8e6).map(Some);
    let mut pair = Pair::with(config(joining.clone()));
    let in_rack = |number: u32, name: &str, rack: &str| {
        Agent::new(AgentConfig { rack: rack.to_owned(), ..named_config(number, name, [5e6, 6e6]) })
    };
    for agent in
        [in_rack(1, "a", "r2"), in_rack(2, "x", "r2"), in_rack(3, "y", "nowhere"), in_rack(4, "z", "")]
    {
        pair.join(agent);
    }
    let network = &pair.coordinator.network;
    let rack = |number| network.place(HostNumber(number)).and_then(|place| network.whole().rack_of(place));
    assert_eq!([1, 2, 3, 4].map(rack), [Some(0), Some(1), None, None]);
    let of = |name: &str, pair: &mut Pair| {
        let status = pair.coordinator.status(pair.now);
        let agent = status.agents.into_iter().find(|agent| agent.name == name).unwrap();
        (agent.up_bytes_per_s, agent.down_bytes_per_s)
    };
    assert_eq!((of("a", &mut pair), of("x", &mut pair)), ((7e6, 8e6), (5e6, 6e6)));

    let mut coordinator = Coordinator::new(
        config(Joining { is_closed: true, ..joining }),
        &weir_policy::find("varys").unwrap(),
    );
    let hello = |name: &str| v1::Hello { version: 1, host: 9, name: name.to_owned(), ..v1::Hello::default() };
    let refused = coordinator.handle_hello(pair.now, SessionId(1), hello("x"));
    assert_eq!(refused, Err(HelloError::Unknown("x".to_owned())));
    assert_eq!(coordinator.handle_hello(pair.now, SessionId(2), hello("a")), Ok(()));
    assert!(
        !Coordinator::new(super::config(2, 1), &weir_policy::find("varys").unwrap())
            .handle_network(pair.now, known())
    );
}

/// Sites east and west, west with a rack; hosts find their places by what they say.
fn sites() -> Joining {
    let label = |text: &str| Some(text.to_owned());
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let rate = Rate::from_bytes_per_sec;
    Joining {
        racks: [(
            "r1".to_owned(),
            KnownRack { site: label("west"), label: label("rack=1"), ..rack(2e6, 3e6) },
        )]
        .into(),
        sites: [("east".to_owned(), label("region=east")), ("west".to_owned(), label("region=west"))].into(),
        between: [(pair("east", "west"), rate(5e5)), (pair("west", "east"), rate(25e4))].into(),
        hosts: [("a".to_owned(), KnownHost { site: label("east"), ..KnownHost::default() })].into(),
        ..known()
    }
}

#[test]
fn hosts_are_where_the_topology_says_and_else_where_their_labels_say() {
    let config =
        CoordinatorConfig { fabric: Fabric::without_hosts(), joining: Some(sites()), ..config(1, 1) };
    let mut pair = Pair::with(config);
    let labelled = |number: u32, name: &str, rack: &str, labels: &[&str]| {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        Agent::new(AgentConfig { rack: rack.to_owned(), labels, ..named_config(number, name, [0.0; 2]) })
    };
    for agent in [
        labelled(1, "a", "r1", &["region=west"]),
        labelled(2, "b", "", &["os=linux", "region=east"]),
        labelled(3, "c", "", &["rack=1", "region=east"]),
        labelled(4, "d", "r1", &[]),
        labelled(5, "e", "nowhere", &["region=west"]),
        labelled(6, "f", "", &["region=north"]),
    ] {
        pair.join(agent);
    }
    let status = pair.coordinator.status(pair.now);
    let of = |name: &str| {
        let agent = status.agents.iter().find(|agent| agent.name == name).unwrap();
        (agent.rack.clone(), agent.site.clone())
    };
    let place = |rack: &str, site: &str| (rack.to_owned(), site.to_owned());
    let places = ["a", "b", "c", "d", "e", "f"].map(of);
    assert_eq!(
        places,
        [
            place("", "east"),
            place("", "east"),
            place("r1", "west"),
            place("r1", "west"),
            place("", "west"),
            place("", "")
        ]
    );
    let labels = |name: &str| status.agents.iter().find(|agent| agent.name == name).unwrap().labels.clone();
    assert_eq!(labels("b"), ["os=linux", "region=east"]);
}

/// From a, in the east, to c and d in the west: what leaves shares the link between.
#[test]
fn flows_between_sites_share_the_link_under_every_policy_and_follow_when_it_changes() {
    for info in policies_of_rates() {
        let known = |joining: &mut Joining| {
            joining
                .hosts
                .insert("b".to_owned(), KnownHost { site: Some("east".to_owned()), ..KnownHost::default() });
            for name in ["c", "d"] {
                let west = KnownHost { site: Some("west".to_owned()), ..KnownHost::default() };
                joining.hosts.insert(name.to_owned(), west);
            }
        };
        let mut joining = sites();
        known(&mut joining);
        let mut moving = racks(joining.clone(), info.name);
        moving.pair.wait(20);
        let sum: f64 = moving.rates().iter().sum();
        assert!((sum - 5e5).abs() < 1e4, "{}: {:?}", info.name, moving.rates());
        joining.between.insert(("east".to_owned(), "west".to_owned()), Rate::from_bytes_per_sec(4e6));
        moving.become_known(joining.clone());
        moving.pair.wait(20);
        assert_eq!(moving.rates(), [1e6, 1e6], "{}", info.name);
        // Without sites, too.
        moving.become_known(super::topology::known());
        moving.pair.wait(20);
        let sum: f64 = moving.rates().iter().sum();
        assert!((sum - 1e6).abs() < 1e4, "{}: {:?}", info.name, moving.rates());
    }
}

#[test]
fn labels_that_are_none_are_refused_with_the_reason() {
    let policy = weir_policy::find("varys").unwrap();
    let config =
        CoordinatorConfig { fabric: Fabric::without_hosts(), joining: Some(sites()), ..config(1, 1) };
    let mut coordinator = Coordinator::new(config, &policy);
    let many: Vec<String> = (0..33).map(|number| format!("a{number}=b")).collect();
    for (labels, reason) in [
        (many, "at most 32 labels, not 33"),
        (vec!["alone".to_owned()], "KEY=VALUE"),
        (vec![format!("a={}", "b".repeat(1 << 20))], "255 bytes at most"),
        (vec!["a=\u{1b}[2J".to_owned()], "KEY=VALUE"),
    ] {
        let hello = v1::Hello { version: 1, host: 9, name: "x".to_owned(), labels, ..v1::Hello::default() };
        let refused = coordinator.handle_hello(Time::ZERO, SessionId(1), hello).unwrap_err().to_string();
        assert!(refused.contains(reason) && refused.len() < 300, "{refused}");
    }
}

/// The rates that agents have been told their uplinks carry bound what they do.
#[test]
fn flows_go_faster_with_the_next_plan_when_links_do() {
    let plain = |rate: f64| Joining {
        link_rate: Some(Rate::from_bytes_per_sec(rate)),
        racks: [].into(),
        hosts: [].into(),
        ..known()
    };
    for policy in ["varys", "fair"] {
        let mut moving = racks(plain(1e6), policy);
        moving.pair.wait(20);
        assert_eq!(moving.rates(), [1e6, 1e6], "{policy}");
        moving.become_known(plain(4e6));
        assert_eq!(moving.rates(), [4e6, 4e6], "{policy}");
        moving.become_known(plain(2e6));
        assert_eq!(moving.rates(), [2e6, 2e6], "{policy}");
    }
}

#[test]
fn a_host_of_which_nobody_says_a_rate_any_more_keeps_it_and_is_placed_as_the_network_is() {
    let mut moving = racks(known(), "varys");
    assert_eq!(moving.rates(), [5e5, 5e5]);
    let nothing = Joining { share: 1.0, ..Joining::default() };
    moving.become_known(nothing.clone());
    assert_eq!(moving.rates(), [1e6, 1e6], "there is no rack any more");
    let below = |rack: &str| KnownHost { rack: Some(rack.to_owned()), ..KnownHost::default() };
    let hosts = ["a", "b"].map(|name| (name.to_owned(), below("r9"))).into();
    let racked = Joining { racks: [("r9".to_owned(), rack(6e5, 6e5))].into(), hosts, ..nothing };
    moving.become_known(racked);
    assert_eq!(moving.rates(), [3e5, 3e5]);
    let status = moving.pair.coordinator.status(moving.pair.now);
    let racks: Vec<&str> = status.agents.iter().map(|agent| agent.rack.as_str()).collect();
    assert_eq!(racks, ["r9", "r9", "", ""]);
}
