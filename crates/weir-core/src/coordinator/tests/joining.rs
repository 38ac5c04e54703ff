//! Hosts that join an open network, and those that say what is not true of them.

use super::*;
use crate::coordinator::{ForgetError, HelloError, Joining};
use weir_proto::limits;

/// An open network of which half of every link's rate is planned with.
fn open_config(link_rate: Option<f64>) -> CoordinatorConfig {
    let joining =
        Joining { link_rate: link_rate.map(Rate::from_bytes_per_sec), share: 0.5, ..Joining::default() };
    CoordinatorConfig { fabric: Fabric::without_hosts(), joining: Some(joining), ..config(1, 1) }
}

pub(super) fn named(number: u32, name: &str, links: [f64; 2]) -> Agent {
    Agent::new(named_config(number, name, links))
}

pub(super) fn named_config(number: u32, name: &str, links: [f64; 2]) -> AgentConfig {
    AgentConfig {
        host: HostNumber(number),
        name: name.to_owned(),
        links: links.map(|rate| (rate > 0.0).then(|| Rate::from_bytes_per_sec(rate))),
        data_address: format!("10.0.0.1:{}", number % 65_536),
        incarnation: 1,
        spool_identity: u64::from(number) + 1,
        first_plan_wait: Span::from_millis(100),
        report_interval: Span::from_millis(20),
        ..AgentConfig::default()
    }
}

impl Pair {
    /// One more host comes; says where it is among the agents.
    pub(super) fn join(&mut self, agent: Agent) -> usize {
        self.agents.push(agent);
        self.sessions.push(None);
        let at = self.agents.len() - 1;
        self.agents[at].handle_terms(self.now, self.coordinator.terms());
        self.start_session(at);
        self.settle();
        at
    }

    fn status_of(&mut self, name: &str) -> v1::AgentStatus {
        let status = self.coordinator.status(self.now);
        status.agents.into_iter().find(|agent| agent.name == name).expect("a host of that name")
    }
}

fn hello(number: u32, name: &str) -> v1::Hello {
    v1::Hello {
        version: 1,
        host: number,
        name: name.to_owned(),
        data_address: "10.0.0.9:1".to_owned(),
        incarnation: 1,
        spool_identity: u64::from(number) + 1,
        session: 1,
        up_bytes_per_s: 2e6,
        down_bytes_per_s: 2e6,
        ..v1::Hello::default()
    }
}

/// Worked out by hand. a sends at 1 MB/s of payload (half of 2), b receives at 3, c at 0.5 (half of 1): MADD ends both
/// flows of a together at its uplink, and where c is slower than its part b gets the rest.
#[test]
fn hosts_are_planned_with_the_links_they_say() {
    let mut pair = Pair::with(open_config(None));
    let a = pair.join(named(9_000_001, "a", [2e6, 2e6]));
    pair.join(named(77, "b", [6e6, 6e6]));
    pair.join(named(limits::MAX_HOST_NUMBER - 1, "c", [8e6, 1e6]));
    let coflow = pair.register(2);
    let to_b = pair.ask_block(coflow, "one", 4_000_000, a, 77);
    let to_c = pair.open(coflow, "two", 4_000_000, a, limits::MAX_HOST_NUMBER - 1);
    assert_eq!([to_b, to_c].map(|flow| pair.rate(a, flow)), [500_000.0, 500_000.0]);
    let status = pair.status_of("c");
    assert_eq!((status.host, status.up_bytes_per_s, status.down_bytes_per_s), (16_777_215, 4e6, 5e5));
}

#[test]
fn a_coflow_goes_on_while_the_network_grows_under_every_policy() {
    for info in policies_of_rates() {
        let mut pair = Pair::under(open_config(Some(2e6)), info.name);
        let a = pair.join(named(1_000, "a", [0.0; 2]));
        pair.join(named(1_001, "b", [0.0; 2]));
        let coflow = pair.register(1);
        let flow = pair.open(coflow, "x", 4_000_000, a, 1_001);
        pair.wait(500);
        pair.agents[a].handle_sent(pair.now, flow, 1_000_000);
        pair.wait(20);
        // Where senders decide, a flow that did not take what it had is offered more, to see whether it can.
        let rate = |pair: &Pair| if pair.coordinator.senders.is_some() { 1e6 } else { pair.rate(a, flow) };
        let before = rate(&pair);
        assert_eq!(before, 1e6, "{}", info.name);
        for number in 0..60 {
            pair.join(named(number, &format!("h{number}"), [4e6, 4e6]));
            pair.wait(5);
        }
        assert!(pair.coordinator.counters["networks_refitted"] >= 3, "{}", info.name);
        assert!((rate(&pair) - before).abs() < 1.0 && pair.rate(a, flow).is_finite(), "{}", info.name);
        // Two flows of another coflow share no link with it, and one waits for it or shares.
        let other = pair.register(1);
        let at = pair.agents.iter().position(|agent| agent.host() == HostNumber(59)).unwrap();
        let flow_of_new = pair.open(other, "y", 4_000_000, at, 58);
        pair.wait(20);
        let rate = pair.rate(at, flow_of_new);
        assert!(rate > 1.9e6 || rate.is_infinite(), "{}: {rate}", info.name);
    }
}

/// Its links, and whether the file names it: what was taken once holds for as long as the coordinator runs.
#[test]
fn a_host_of_the_network_stays_in_it_whatever_is_said_of_the_network_later() {
    let mut pair = Pair::with(open_config(Some(2e6)));
    let a = pair.join(named(1, "a", [0.0; 2]));
    for is_closed in [false, true] {
        let joining = Joining { link_rate: None, share: 0.5, is_closed, ..Joining::default() };
        assert!(pair.coordinator.handle_network(pair.now, joining));
        pair.coordinator.handle_session_lost(pair.now, pair.sessions[a].unwrap());
        pair.agents[a].handle_session_lost();
        pair.start_session(a);
        pair.settle();
        assert_eq!(pair.status_of("a").up_bytes_per_s, 1e6, "{is_closed}");
    }
    let refused = pair.coordinator.handle_hello(
        pair.now,
        SessionId(900),
        v1::Hello { name: "b".to_owned(), ..hello(2, "b") },
    );
    assert_eq!(refused, Err(HelloError::Unknown("b".to_owned())));
}

/// A coordinator that began anew hears of flows before it hears of the hosts that they go to.
#[test]
fn flows_to_a_host_that_is_not_back_yet_are_planned_and_keep_their_rate_when_it_comes() {
    for default in [Some(2e6), None] {
        let mut pair = Pair::with(open_config(default));
        let a = pair.join(named(1, "", [2e6, 2e6]));
        let coflow = pair.register(1);
        let flow = pair.open(coflow, "x", 4_000_000, a, 2);
        assert_eq!(pair.rate(a, flow), 1e6, "{default:?}");
        pair.join(named(2, "b", [2e6, 1e6]));
        pair.wait(5);
        assert_eq!(pair.rate(a, flow), 5e5, "{default:?}");
    }
}

/// Its flows go on as planned; it comes back as a host that was never there, under its name or another.
#[test]
fn a_host_that_is_away_can_be_forgotten_and_one_that_is_there_cannot() {
    let by_name = |name: &str| v1::ForgetRequest { host: 0, host_name: name.to_owned() };
    let mut pair = Pair::with(open_config(None));
    let a = pair.join(named(1, "a", [2e6, 2e6]));
    let b = pair.join(named(2, "b", [2e6, 1e6]));
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "x", 40_000_000, a, 2);
    let present = pair.coordinator.handle_forget(&by_name("b"));
    assert_eq!(present, Err(ForgetError::Present("b".to_owned())));
    pair.coordinator.handle_session_lost(pair.now, pair.sessions[b].unwrap());
    pair.agents[b].handle_session_lost();
    pair.wait(5);
    assert_eq!(pair.coordinator.status(pair.now).away.len(), 1);
    assert_eq!(pair.coordinator.handle_forget(&by_name("b")), Ok("b".to_owned()));
    assert!(pair.coordinator.status(pair.now).away.is_empty());
    for request in [by_name("b"), by_name("nobody"), v1::ForgetRequest { host: 2, ..by_name("") }] {
        assert!(
            matches!(pair.coordinator.handle_forget(&request), Err(ForgetError::Unknown(_))),
            "{request:?}"
        );
    }
    pair.wait(5);
    assert_eq!(pair.rate(a, flow), 5e5);
    pair.join(named(2, "c", [2e6, 2e6]));
    pair.wait(5);
    assert_eq!(pair.rate(a, flow), 1e6, "the links that it says now");
    assert!(pair.coordinator.status(pair.now).away.is_empty());
}

#[test]
fn links_that_become_slower_or_faster_are_planned_with_at_once() {
    let mut pair = Pair::with(open_config(None));
    let a = pair.join(named(1, "a", [2e6, 2e6]));
    pair.join(named(2, "b", [2e6, 2e6]));
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "x", 40_000_000, a, 2);
    for (up, expected) in [(1e6, 5e5), (8e6, 1e6), (2e6, 1e6)] {
        let links = [up, 2e6].map(|rate| Some(Rate::from_bytes_per_sec(rate)));
        pair.agents[a].handle_link_rates(links);
        pair.wait(5);
        let rate = pair.rate(a, flow);
        assert!((rate - expected).abs() < 1e-3 * expected, "{up}: {rate}");
    }
}

#[test]
fn a_host_that_says_what_cannot_be_is_refused_with_a_reason_and_changes_nothing() {
    let mut coordinator = Coordinator::new(open_config(None), &weir_policy::find("varys").unwrap());
    let now = Time::from_millis(1_000_000);
    let long = "x".repeat(256);
    let mut next = 0;
    let mut come = |coordinator: &mut Coordinator, hello: v1::Hello| {
        next += 1;
        coordinator.handle_hello(now, SessionId(next), hello).map_err(|error| error.to_string())
    };
    for (hello, reason) in [
        (hello(1 << 24, "a"), "less than 16777216"),
        (hello(u32::MAX, ""), "less than 16777216"),
        (hello(1, &long), "at most 255 bytes"),
        (
            v1::Hello { rack: "r".repeat(1 << 20), ..hello(1, "a") },
            "a rack has at most 255 bytes, not 1048576",
        ),
        (hello(1, "a\u{1b}[2J"), "no control characters"),
        (v1::Hello { up_bytes_per_s: 0.0, ..hello(1, "a") }, "the rate of the links of host a is not known"),
        (
            v1::Hello { down_bytes_per_s: f64::NAN, ..hello(1, "a") },
            "the rate of the links of host a is not known",
        ),
        (
            v1::Hello { down_bytes_per_s: -1.0, ..hello(1, "") },
            "the rate of the links of host 1 is not known",
        ),
        (
            v1::Hello { up_bytes_per_s: f64::INFINITY, ..hello(1, "a") },
            "the rate of the links of host a is not known",
        ),
    ] {
        let said = come(&mut coordinator, hello).unwrap_err();
        assert!(said.contains(reason) && !said.contains('\u{1b}') && said.len() < 300, "{said}");
    }
    assert!(coordinator.status(now).agents.is_empty());
    assert_eq!(coordinator.network.place(HostNumber(1)), None);

    come(&mut coordinator, hello(5, "a")).unwrap();
    // Two names that make the same number: the second one is to draw another.
    let said = coordinator.handle_hello(now, SessionId(90), hello(5, "b"));
    assert!(matches!(said, Err(HelloError::NumberTaken { number: HostNumber(5), .. })), "{said:?}");
    // The same name at another machine, under another number.
    let said = coordinator.handle_hello(now, SessionId(91), hello(6, "a")).unwrap_err();
    assert!(matches!(said, HelloError::Taken { .. }), "{said}");
    // An imposter does not change what is planned with.
    let faster = v1::Hello { up_bytes_per_s: 9e9, spool_identity: 77, ..hello(5, "a") };
    assert!(matches!(coordinator.handle_hello(now, SessionId(92), faster), Err(HelloError::Taken { .. })));
    assert_eq!(coordinator.status(now).agents[0].up_bytes_per_s, 1e6);
    assert_eq!(coordinator.network.place(HostNumber(6)), None);
    // Once it has gone its number may be another's, and its name may come with another number.
    coordinator.handle_session_lost(now, SessionId(10));
    coordinator.handle_hello(now, SessionId(93), hello(5, "b")).unwrap();
    coordinator.handle_hello(now, SessionId(94), hello(6, "a")).unwrap();
    let names: Vec<_> =
        coordinator.status(now).agents.into_iter().map(|agent| (agent.host, agent.name)).collect();
    assert_eq!(names, [(5, "b".to_owned()), (6, "a".to_owned())]);
}

#[test]
fn an_agent_with_flows_to_hosts_that_there_are_not_takes_a_bounded_number_of_places() {
    let mut pair = Pair::with(open_config(Some(2e6)));
    let a = pair.join(named(1, "a", [0.0; 2]));
    let coflow = pair.register(0);
    pair.agents[a].handle_put(block(coflow, "x", 1_000_000)).unwrap();
    for destination in 0..3_000 {
        pair.ask(coflow, "x", a, 100 + destination);
    }
    pair.settle();
    assert!(pair.coordinator.network.whole().hosts() < 1_400, "{}", pair.coordinator.network.whole().hosts());
    assert!(pair.coordinator.counters["flows_not_scheduled"] >= 1_900);
    // Once its flows are gone others are expected again.
    let session = pair.sessions[a].take().unwrap();
    pair.agents[a].handle_session_lost();
    pair.coordinator.handle_session_lost(pair.now, session);
    pair.wait(1_100);
    let before = pair.coordinator.network.whole().hosts();
    let other = pair.join(named(2, "honest", [0.0; 2]));
    let flow = pair.open(coflow, "y", 1_000_000, other, 7_000_000);
    assert_eq!((pair.rate(other, flow), pair.coordinator.network.whole().hosts()), (1e6, before));
    // A real host still finds its place.
    pair.join(named(5_000_000, "b", [0.0; 2]));
    assert_eq!(pair.status_of("b").host, 5_000_000);
}

#[test]
fn at_the_bound_places_that_nobody_uses_go_to_others() {
    let mut coordinator = Coordinator::new(open_config(None), &weir_policy::find("varys").unwrap());
    let mut now = Time::from_millis(1_000_000);
    for number in 0..limits::MAX_HOSTS {
        coordinator.handle_hello(now, SessionId(u64::from(number)), hello(number, "")).unwrap();
    }
    let one_more = |coordinator: &mut Coordinator, now, session| {
        coordinator.handle_hello(now, SessionId(session), hello(limits::MAX_HOSTS + 7, "late"))
    };
    assert_eq!(one_more(&mut coordinator, now, 1_000_000), Err(HelloError::TooManyHosts));
    coordinator.handle_session_lost(now, SessionId(4_321));
    now = now + Span::from_millis(1_001);
    one_more(&mut coordinator, now, 1_000_001).unwrap();
    assert_eq!(
        (coordinator.network.place(HostNumber(4_321)), coordinator.status(now).agents.len()),
        (None, 10_000)
    );
    // The one that is back has no place, and is told so.
    let back = coordinator.handle_hello(now, SessionId(1_000_002), hello(4_321, "")).unwrap_err();
    assert_eq!(back.to_string(), "there are 10000 hosts, which is the bound");
}

#[test]
fn numbers_make_no_difference_to_a_plan() {
    let flows = [(0, 1, 3_000_000), (0, 2, 1_000_000), (1, 2, 2_000_000), (2, 0, 500_000)];
    let rates = |pair: &mut Pair, numbers: [u32; 3]| {
        let coflow = pair.register(4);
        for (at, (from, to, size)) in flows.iter().enumerate() {
            pair.ask_block(coflow, &format!("b{at}"), *size, *from, numbers[*to]);
        }
        pair.settle();
        let of = |from: usize, flow| pair.rate(from, flow);
        [of(0, FlowNumber(1)), of(0, FlowNumber(2)), of(1, FlowNumber(1)), of(2, FlowNumber(1))]
    };
    let mut closed = Pair::new(3);
    let mut open = Pair::with(open_config(Some(2.0 * CAPACITY)));
    for number in [12_000_000, 4, 800_000] {
        open.join(named(number, "", [0.0; 2]));
    }
    assert_eq!(rates(&mut open, [12_000_000, 4, 800_000]), rates(&mut closed, [0, 1, 2]));
}
