//! Servers, a store and decision makers on virtual time, without processes in between.

use super::*;
use crate::decider::DeciderCore;
use crate::maker::{Maker, MakerSettings};
use crate::records::State;
use crate::store::{Ledger, Notice};
use weir_model::{Span, Time};
use weir_proto::v1::from_relay::Kind as From;
use weir_proto::v1::to_relay::Kind as To;

/// A store that may be away, and two servers with relays.
struct World {
    now: Time,
    ledger: Ledger,
    away: bool,
    /// A server that the store does not answer.
    cut_off: Option<usize>,
    /// Whether the decision maker is gone.
    is_undecided: bool,
    servers: Vec<ServerCore>,
    /// By server and session, what the relay heard.
    heard: BTreeMap<(usize, u64), Vec<v1::ToRelay>>,
    /// By server, what its operator was told.
    warnings: Vec<(usize, String)>,
    decider: DeciderCore,
}

fn key(coflow: u64, reducer: u32, mapper: u32) -> v1::FlowKey {
    v1::FlowKey { coflow, reducer, mapper }
}

fn opened(key: v1::FlowKey, source_site: u32, destination_site: u32, bytes: u64) -> v1::RelayFlowOpened {
    v1::RelayFlowOpened { key: Some(key), source_site, destination_site, bytes, bytes_moved: 0 }
}

fn hello(relay: &str, site: u32, flows: &[v1::RelayFlowOpened]) -> v1::RelayHello {
    let data_address = format!("10.0.0.{site}:1");
    v1::RelayHello {
        version: 1,
        relay: relay.to_owned(),
        site,
        data_address,
        flows: flows.to_vec(),
        session: 0,
    }
}

impl World {
    fn new() -> World {
        let now = Time::from_millis(1_000);
        let server = |name: &str| ServerCore::new(now, ServerSettings::new(name.to_owned()));
        World {
            now,
            ledger: Ledger::default(),
            away: false,
            cut_off: None,
            is_undecided: false,
            servers: vec![server("one"), server("other")],
            heard: BTreeMap::new(),
            warnings: Vec::new(),
            decider: DeciderCore::new(now, Maker::new("maker".to_owned(), 1, MakerSettings::default())),
        }
    }

    fn attach(&mut self, server: usize, session: u64, hello: &v1::RelayHello) {
        self.servers[server].handle_hello(self.now, SessionId(session), hello).expect("a good hello");
        self.heard.insert((server, session), Vec::new());
    }

    fn say(&mut self, server: usize, session: u64, kind: From) {
        self.servers[server].handle_message(
            self.now,
            SessionId(session),
            &v1::FromRelay { kind: Some(kind) },
        );
    }

    /// Time goes on, and all do what is due.
    fn run(&mut self, millis: u64) {
        let end = self.now + Span::from_millis(millis);
        while self.now < end {
            self.now = self.now + Span::from_millis(1);
            for at in 0..self.servers.len() {
                self.servers[at].handle_timeout(self.now);
                self.serve(at);
            }
            self.decide();
        }
    }

    /// What the operator of a server was told since this was asked last.
    fn warnings_of(&mut self, at: usize) -> Vec<String> {
        self.warnings.extract_if(.., |(server, _)| *server == at).map(|(_, warning)| warning).collect()
    }

    fn serve(&mut self, at: usize) {
        while let Some(output) = self.servers[at].poll_output(self.now) {
            let request = match output {
                Output::Message(SessionId(session), message) => {
                    self.heard.entry((at, session)).or_default().push(message);
                    continue;
                }
                Output::Warning(warning) => {
                    self.warnings.push((at, warning));
                    continue;
                }
                Output::Request(request) => request,
            };
            let reply = match request {
                _ if self.away || self.cut_off == Some(at) => Reply::Failed,
                request => request.answer(self.now, &mut self.ledger, self.servers[at].name()),
            };
            self.servers[at].handle_reply(self.now, reply);
        }
    }

    fn decide(&mut self) {
        if !self.away && !self.is_undecided {
            for _ in 0..2 {
                let Some(request) = self.decider.poll_request(self.now) else { break };
                let reply = request.answer(&mut self.ledger, self.decider.name());
                self.decider.handle_reply(self.now, reply);
            }
        }
        for notice in self.ledger.take_notices() {
            self.servers.iter_mut().for_each(|server| server.handle_notice(self.now, notice));
            self.decider.handle_notice(self.now);
        }
    }

    /// As by FLUSHALL: no listener hears of it.
    fn forget_silently(&mut self) {
        self.ledger = Ledger::default();
    }

    fn forget_all(&mut self) {
        self.ledger = Ledger::default();
        self.servers.iter_mut().for_each(|server| server.handle_notice(self.now, Notice::Connected));
    }

    fn rules(&self, server: usize, session: u64) -> Vec<&v1::Rules> {
        let rules = |message: &'_ v1::ToRelay| matches!(message.kind, Some(To::Rules(_)));
        let heard = self.heard[&(server, session)].iter().filter(|message| rules(message));
        heard
            .filter_map(|message| match &message.kind {
                Some(To::Rules(rules)) => Some(rules),
                _ => None,
            })
            .collect()
    }

    /// The coflows in the order that a relay was told, applying what it heard as a relay does.
    fn order(&self, server: usize, session: u64) -> Vec<u64> {
        let mut ranks: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last = 0;
        for rules in self.rules(server, session) {
            assert!(rules.epoch > last, "epoch {} after {last}", rules.epoch);
            last = rules.epoch;
            if rules.complete {
                ranks.clear();
            }
            let coflow = |prefix: &v1::FlowPrefix| prefix.coflow.filter(|_| prefix.reducer.is_none());
            for rule in &rules.set {
                let coflow = rule.prefix.as_ref().and_then(coflow);
                coflow.map(|coflow| ranks.insert(coflow, rule.rank));
            }
            ranks.retain(|of, _| !rules.withdrawn.iter().filter_map(coflow).any(|gone| gone == *of));
        }
        let mut order: Vec<(u64, u64)> = ranks.into_iter().map(|(coflow, rank)| (rank, coflow)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, coflow)| coflow).collect()
    }
}

/// Relays `a` in site 0 at the first server, and `b` in site 1 at the second; coflow 5 is small and coflow 3 large.
fn two_relays() -> World {
    let mut world = World::new();
    world.attach(0, 1, &hello("a", 0, &[]));
    world.attach(1, 1, &hello("b", 1, &[]));
    world.say(0, 1, From::FlowOpened(opened(key(3, 0, 0), 0, 1, 1_000_000)));
    world.say(1, 1, From::FlowOpened(opened(key(5, 0, 0), 1, 0, 1_000)));
    world.say(0, 1, From::FlowOpened(opened(key(5, 1, 0), 0, 1, 1_000)));
    world.run(50);
    world
}

#[test]
fn relays_of_two_servers_are_told_one_order_and_of_each_other() {
    let world = two_relays();
    for at in 0..2 {
        assert_eq!(world.order(at, 1), [5, 3]);
        let list = world.heard[&(at, 1)].iter().rev().find_map(|message| match &message.kind {
            Some(To::Relays(list)) => Some(list),
            _ => None,
        });
        let names: Vec<&str> =
            list.expect("a list").relays.iter().map(|entry| entry.relay.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(world.rules(at, 1)[0].complete, "the first rules of a session are all of them");
    }
}

#[test]
fn an_end_and_progress_change_the_order() {
    let mut world = two_relays();
    let progress = |coflow, reducer, bytes_moved| {
        let flow = v1::RelayFlowProgress { key: Some(key(coflow, reducer, 0)), bytes_moved };
        From::Progress(v1::RelayProgress { flows: vec![flow] })
    };
    // 500 bytes are left of the large one.
    world.say(0, 1, progress(3, 0, 999_500));
    world.run(600);
    assert_eq!(world.order(1, 1), [3, 5]);
    let ended = v1::RelayFlowEnded { key: Some(key(3, 0, 0)), bytes_moved: 1_000_000, complete: true };
    world.say(0, 1, From::FlowEnded(ended));
    world.run(50);
    assert_eq!((world.order(0, 1), world.order(1, 1)), (vec![5], vec![5]));
}

#[test]
fn while_the_store_is_away_rules_stay_and_all_is_told_again_when_it_has_forgotten_it() {
    let mut world = two_relays();
    let before = world.rules(0, 1).len();
    world.away = true;
    world.say(0, 1, From::FlowOpened(opened(key(9, 0, 0), 0, 1, 10)));
    world.run(2_500);
    assert_eq!(world.rules(0, 1).len(), before, "nothing new, and nothing withdrawn");
    let keepalives =
        world.heard[&(0, 1)].iter().filter(|message| matches!(message.kind, Some(To::Keepalive(_))));
    assert!(keepalives.count() >= 9, "four a second");
    assert!(world.servers[0].counts().failed > 0);
    world.away = false;
    world.forget_all();
    world.run(600);
    // `order` checks that epochs go on to grow, although the store began anew.
    assert_eq!((world.order(0, 1), world.order(1, 1)), (vec![9, 5, 3], vec![9, 5, 3]));
    assert_eq!(world.servers[0].counts().late + world.servers[1].counts().late, 0);
}

#[test]
fn a_store_that_was_emptied_is_told_all_again_though_nobody_says_so() {
    let mut world = two_relays();
    world.forget_silently();
    // Progress is reported before the server asks whether it is known.
    for moved in 1..=20 {
        let progress = v1::RelayFlowProgress { key: Some(key(3, 0, 0)), bytes_moved: moved };
        world.say(0, 1, From::Progress(v1::RelayProgress { flows: vec![progress] }));
        world.run(100);
    }
    let state = State::of(&world.ledger.read().servers);
    assert_eq!(state.relays.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(state.coflows.keys().collect::<Vec<_>>(), [&3, &5]);
    world.say(0, 1, From::FlowOpened(opened(key(9, 0, 0), 0, 1, 10)));
    world.run(100);
    assert_eq!((world.order(0, 1), world.order(1, 1)), (vec![9, 5, 3], vec![9, 5, 3]));
}

#[test]
fn a_store_that_was_stopped_forgets_no_server() {
    let mut ledger = Ledger::default();
    let report = |server: &str| crate::store::Report {
        server: server.to_owned(),
        complete: true,
        ..crate::store::Report::default()
    };
    let mut now = Time::from_millis(1_000);
    for server in ["one", "other", "dead"] {
        ledger.report(now, &report(server)).unwrap();
    }
    // Stopped for 20 s; the first that is heard ends no other. The dead one has three seconds from then on.
    now = now + Span::from_millis(20_000);
    for _ in 0..3 {
        assert!(ledger.renew(now, "one").known && ledger.renew(now, "other").known);
        assert_eq!(ledger.read().servers.len(), 3);
        now = now + Span::from_millis(999);
    }
    now = now + Span::from_millis(3);
    ledger.renew(now, "one");
    assert_eq!(ledger.read().servers.keys().collect::<Vec<_>>(), ["one", "other"]);
}

#[test]
fn a_server_that_was_stopped_gives_its_lost_relays_the_time_that_they_had() {
    let mut world = two_relays();
    world.servers[0].handle_lost(world.now, SessionId(1));
    world.run(1_000);
    world.now = world.now + Span::from_millis(60_000);
    world.run(LOST_RELAY_GRACE.nanos() / 1_000_000 - 2_000);
    assert_eq!(world.order(1, 1), [5, 3], "it may come back");
    world.run(2_000);
    assert_eq!(world.order(1, 1), [5]);
}

#[test]
fn that_nobody_decides_is_said_once_and_so_is_that_somebody_does_again() {
    let mut world = two_relays();
    world.run(15_000);
    assert_eq!(world.warnings_of(0), [""; 0]);
    world.is_undecided = true;
    world.say(0, 1, From::FlowOpened(opened(key(9, 0, 0), 0, 1, 10)));
    world.run(9_000);
    assert_eq!(world.warnings_of(0), [""; 0]);
    world.run(2_000);
    let warnings = world.warnings_of(0);
    assert!(matches!(&warnings[..], [one] if one.contains("weir controller decide")), "{warnings:?}");
    world.run(60_000);
    assert_eq!(world.warnings_of(0), [""; 0], "once");
    world.is_undecided = false;
    world.run(1_000);
    assert_eq!(world.warnings_of(0), ["decisions come again"]);
}

#[test]
fn rules_stay_until_all_servers_have_told_a_store_that_forgot_or_had_time_to() {
    let mut world = two_relays();
    // A third coflow, which one server knows of alone.
    world.say(1, 1, From::FlowOpened(opened(key(7, 0, 0), 1, 0, 10)));
    world.run(50);
    assert_eq!(world.order(0, 1), [7, 5, 3]);
    let before = world.rules(0, 1).len();
    world.cut_off = Some(1);
    world.forget_all();
    let grace = FORGETFUL_GRACE.nanos() / 1_000_000;
    world.run(grace / 2);
    assert_eq!(world.rules(0, 1).len(), before, "nothing is withdrawn");
    world.cut_off = None;
    world.run(grace / 2 + 100);
    assert_eq!((world.order(0, 1), world.order(1, 1)), (vec![7, 5, 3], vec![7, 5, 3]));
    // Now it does not come back.
    world.cut_off = Some(1);
    world.forget_all();
    world.run(grace + 100);
    assert_eq!(world.order(0, 1), [5, 3]);
}

#[test]
fn a_relay_that_changes_its_server_keeps_its_flows_and_what_its_old_server_told_does_not_count() {
    let mut world = two_relays();
    world.servers[0].handle_lost(world.now, SessionId(1));
    world.run(10);
    let flows = [opened(key(3, 0, 0), 0, 1, 1_000_000), opened(key(8, 0, 0), 0, 1, 10)];
    world.attach(1, 2, &hello("a", 0, &flows));
    world.run(50);
    assert_eq!(world.order(1, 2), [8, 5, 3]);
    // Coflow 5 is left with what enters at the other relay.
    let state = State::of(&world.ledger.read().servers);
    assert_eq!(state.coflows[&5].left.keys().collect::<Vec<_>>(), [&(1, 0)]);
    assert_eq!(state.coflows[&3].left[&(0, 1)], 1e6);
    // Its first server forgets it in time; nothing changes by that.
    world.run(6_000);
    assert_eq!(world.order(1, 2), [8, 5, 3]);
    assert!(!world.ledger.read().servers["one"].keys().any(|name| name.ends_with("/a")));
}

#[test]
fn a_relay_that_is_lost_for_good_is_forgotten() {
    let mut world = two_relays();
    world.servers[0].handle_lost(world.now, SessionId(1));
    world.run(LOST_RELAY_GRACE.nanos() / 1_000_000 - 1_000);
    assert_eq!(world.order(1, 1), [5, 3], "it may come back");
    world.run(2_000);
    assert_eq!(world.order(1, 1), [5]);
}

#[test]
fn a_server_that_died_is_forgotten_by_the_others() {
    let mut world = two_relays();
    world.servers.truncate(1);
    world.run(5_000);
    let state = State::of(&world.ledger.read().servers);
    assert_eq!(state.relays.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(world.order(0, 1), [5, 3]);
}

#[test]
fn a_miss_for_a_coflow_that_has_its_place_is_answered_with_its_rule() {
    let mut world = two_relays();
    let before = world.rules(0, 1).len();
    world.say(0, 1, From::Miss(v1::RuleMiss { key: Some(key(3, 0, 7)), destination_site: 1 }));
    world.run(50);
    let rules = world.rules(0, 1);
    assert_eq!(rules.len(), before + 1);
    let prefix = rules[before].set[0].prefix.and_then(|prefix| prefix.coflow);
    assert_eq!((prefix, rules[before].complete, world.servers[0].counts().misses), (Some(3), false, 1));
}

// It crosses with the rule that it asks for.
#[test]
fn a_rule_that_was_missed_and_is_no_more_is_withdrawn() {
    for millis in 0..40 {
        let mut world = two_relays();
        let ended = v1::RelayFlowEnded { key: Some(key(3, 0, 0)), bytes_moved: 1, complete: true };
        world.say(0, 1, From::FlowEnded(ended));
        world.run(millis);
        world.say(0, 1, From::Miss(v1::RuleMiss { key: Some(key(3, 0, 7)), destination_site: 1 }));
        world.run(100);
        let rules = world.rules(0, 1);
        let withdrawn = rules.iter().flat_map(|rules| &rules.withdrawn).filter_map(|prefix| prefix.coflow);
        assert!(withdrawn.collect::<Vec<u64>>().contains(&3), "missed after {millis} ms: {rules:?}");
    }
}

#[test]
fn bottlenecks_are_relieved_by_detours_over_relays_within_reach() {
    let mut world = World::new();
    world.attach(0, 1, &hello("a", 0, &[]));
    world.attach(0, 2, &hello("b", 1, &[]));
    world.attach(0, 3, &hello("c", 2, &[]));
    world.say(0, 1, From::FlowOpened(opened(key(1, 0, 0), 0, 1, 4_000_000)));
    // 1 MB/s directly, 3 MB/s by way of c. Of what was measured less than three times nothing is known: c to a.
    for (session, to, bytes_per_s) in [(1, 1, 1e6), (1, 2, 3e6), (3, 1, 3e6)].repeat(3) {
        let links = vec![v1::LinkSample { destination_site: to, bytes_per_s }];
        world.say(0, session, From::Samples(v1::LinkSamples { links }));
    }
    let links = vec![v1::LinkSample { destination_site: 0, bytes_per_s: 1.0 }];
    world.say(0, 3, From::Samples(v1::LinkSamples { links }));
    world.run(1_500);
    let hops = |world: &World| {
        let all = world.rules(0, 1);
        let of_group = |rule: &&v1::Rule| rule.prefix.is_some_and(|prefix| prefix.reducer == Some(0));
        let rule = all.iter().rev().find_map(|rules| rules.set.iter().find(of_group)).cloned();
        rule.map(|rule| rule.next_hops)
    };
    let next = hops(&world).expect("a rule of its own");
    // Both ways take 1 s: 3 MB over c, 1 MB directly.
    assert_eq!(next[0].to, Some(v1::next_hop::To::Relay("c".to_owned())));
    assert!((next[0].weight - 0.75).abs() < 0.01 && (next[1].weight - 0.25).abs() < 0.01, "{next:?}");
    let down = v1::NextHopState { relay: "c".to_owned(), up: false };
    world.say(0, 1, From::NextHop(down));
    world.run(50);
    let last = *world.rules(0, 1).last().expect("rules");
    let withdrawn = v1::FlowPrefix { coflow: Some(1), reducer: Some(0), mapper: None };
    assert_eq!(last.withdrawn, [withdrawn]);
}

#[test]
fn hellos_that_cannot_be_are_refused_with_the_reason() {
    let mut world = World::new();
    let mut refused = |hello: v1::RelayHello| {
        let refused = world.servers[0].handle_hello(world.now, SessionId(9), &hello);
        refused.expect_err("refused").to_string()
    };
    assert!(refused(v1::RelayHello { version: 2, ..hello("a", 0, &[]) }).contains("version 2"));
    assert!(refused(hello("", 0, &[])).contains("name"));
    assert!(refused(hello(&"x".repeat(256), 0, &[])).contains("255"));
    // Messages without what they need, or of sessions that are not there, change nothing.
    world.attach(0, 1, &hello("a", 0, &[]));
    for session in [1, 7] {
        world.say(0, session, From::FlowOpened(v1::RelayFlowOpened::default()));
        world.say(0, session, From::FlowEnded(v1::RelayFlowEnded::default()));
        world.say(0, session, From::Miss(v1::RuleMiss::default()));
        let links = vec![v1::LinkSample { destination_site: 1, bytes_per_s: f64::NAN }];
        world.say(0, session, From::Samples(v1::LinkSamples { links }));
    }
    world.run(50);
    assert_eq!(world.order(0, 1), Vec::<u64>::new());
}

#[test]
fn a_new_session_of_a_relay_replaces_the_older_one() {
    let mut world = two_relays();
    let older = world.servers[0].handle_hello(world.now, SessionId(4), &hello("a", 0, &[]));
    assert_eq!(older, Ok(Some(SessionId(1))));
    world.heard.insert((0, 4), Vec::new());
    world.servers[0].handle_lost(world.now, SessionId(1));
    world.run(50);
    // What the older one had open is gone: the new one names all there is.
    assert_eq!(world.order(0, 4), [5]);
    assert!(world.rules(0, 4)[0].complete);
}

#[test]
fn a_second_relay_of_a_name_is_refused_while_the_first_is_attached() {
    let mut world = World::new();
    world.attach(0, 1, &hello("r", 1, &[]));
    let other = hello("r", 2, &[]);
    let refused = world.servers[0].handle_hello(world.now, SessionId(2), &other).unwrap_err();
    assert_eq!(refused, HelloError::Taken { name: "r".to_owned(), address: "10.0.0.1:1".to_owned() });
    assert!(refused.to_string().contains("name of its own"));
    // The first one's session goes on, and it may come back before its older session is known to be gone.
    world.run(50);
    assert!(!world.heard[&(0, 1)].is_empty());
    assert_eq!(
        world.servers[0].handle_hello(world.now, SessionId(3), &hello("r", 1, &[])),
        Ok(Some(SessionId(1)))
    );
    // Once it is gone the other one has the name.
    world.servers[0].handle_lost(world.now, SessionId(3));
    assert_eq!(world.servers[0].handle_hello(world.now, SessionId(4), &other), Ok(None));
}

// What decides is the relay's own count of its sessions.
#[test]
fn of_a_relays_records_at_two_servers_the_newer_sessions_counts_whatever_their_clocks_say() {
    let mut world = World::new();
    let at = |session, address: &str| v1::RelayHello {
        session,
        data_address: address.to_owned(),
        ..hello("r", 1, &[])
    };
    world.now = Time::from_millis(5_000);
    world.attach(0, 1, &at(7, "10.0.0.1:7"));
    world.run(50);
    // The other server's clock is an hour behind, as it were: it hears of the relay at an earlier time.
    world.servers[1].handle_hello(Time::from_millis(1_500), SessionId(2), &at(8, "10.0.0.1:8")).unwrap();
    world.run(100);
    let state = State::of(&world.ledger.read().servers);
    assert_eq!((state.relays["r"].session, state.relays["r"].data_address.as_str()), (8, "10.0.0.1:8"));
}

#[test]
fn addresses_that_are_none_and_names_beyond_the_bound_are_refused_or_dropped() {
    let mut world = World::new();
    for address in [String::new(), "nowhere".to_owned(), "9".repeat(40_000_000)] {
        let bad = v1::RelayHello { data_address: address, ..hello("r", 1, &[]) };
        let refused = world.servers[0].handle_hello(world.now, SessionId(1), &bad).unwrap_err();
        assert!(matches!(refused, HelloError::Address(_)) && refused.to_string().len() < 200, "{refused}");
    }
    world.attach(0, 1, &hello("r", 1, &[]));
    for name in ["a".repeat(MAX_RELAY_NAME_BYTES), "b".repeat(MAX_RELAY_NAME_BYTES + 1)] {
        world.say(0, 1, From::NextHop(v1::NextHopState { relay: name, up: false }));
    }
    assert_eq!(world.servers[0].down_of("r"), 1);
}

/// Found by fuzzing: a number near 2^64 made the next one overflow.
#[test]
fn a_server_that_saw_the_largest_number_stops_no_store() {
    let mut ledger = Ledger::default();
    let mut report = crate::store::Report {
        server: "one".to_owned(),
        complete: true,
        floor: u64::MAX,
        changes: Vec::new(),
    };
    let first = ledger.report(Time::from_millis(1), &report).unwrap();
    report.changes.push(("relay/r".to_owned(), Some("{}".to_owned())));
    assert!(ledger.report(Time::from_millis(2), &report).unwrap() > first);
    assert!(ledger.issue(u64::MAX).0 > first);
}
