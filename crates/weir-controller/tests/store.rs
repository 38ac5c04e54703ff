//! What a store does, the same for the embedded one and for a real Redis.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "support/redis.rs"]
mod redis;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::RedisServer;
use std::io::Write;
use std::time::Duration;
use weir_controller::decision::{Finality, Proposal};
use weir_controller::store::{EmbeddedStore, Notice, RedisStore, Report, Store};
use weir_policy::order::tally::Tally;

/// Runs a case with the embedded store, and with a Redis where there is one.
fn with_both(case: impl AsyncFn(&dyn Store)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        case(&EmbeddedStore::new()).await;
        if let Some(server) = RedisServer::start() {
            case(&RedisStore::new(&server.url(), "test:").unwrap()).await;
        }
    });
}

fn report(server: &str, documents: &[(&str, Option<&str>)]) -> Report {
    let change = |&(name, text): &(&str, Option<&str>)| (name.to_owned(), text.map(str::to_owned));
    Report {
        server: server.to_owned(),
        complete: false,
        floor: 0,
        changes: documents.iter().map(change).collect(),
    }
}

/// Tells as a server does: all if what changed is not enough. The epoch since.
async fn tell(store: &dyn Store, report: &Report) -> u64 {
    match store.report(report).await.unwrap() {
        Some(epoch) => epoch,
        None => store.report(&Report { complete: true, ..report.clone() }).await.unwrap().unwrap(),
    }
}

fn proposal(epoch: u64, finality: Finality, maker: &str) -> Proposal {
    let (order, splits) = (vec![epoch, u64::MAX], Vec::new());
    Proposal { epoch, finality, maker: maker.to_owned(), rounds: 7, order, splits, largest_group_first: true }
}

/// A tally of one round of two branches.
fn tally(first: f64) -> Tally {
    let mut tally = Tally::new(2);
    tally.note(&[first, 2.0], &[false; 2]);
    tally
}

#[test]
fn a_state_gets_a_new_epoch_with_every_change_and_only_then() {
    with_both(async |store| {
        let first = tell(store, &report("a", &[("x", Some("1")), ("y", Some("2"))])).await;
        let second = tell(store, &report("b", &[("x", Some("3"))])).await;
        let third = tell(store, &report("a", &[("x", None)])).await;
        assert!(0 < first && first < second && second < third);
        assert_eq!(tell(store, &report("a", &[])).await, third);
        let snapshot = store.read().await.unwrap();
        let documents = |server: &str| {
            snapshot.servers[server].iter().map(|(name, text)| format!("{name}{text}")).collect::<Vec<_>>()
        };
        assert_eq!((documents("a"), documents("b")), (vec!["y2".to_owned()], vec!["x3".to_owned()]));
        assert_eq!((snapshot.epoch, snapshot.decision), (third, None));
        let none = Report { complete: true, ..report("a", &[]) };
        assert!(tell(store, &none).await > third);
        assert_eq!(store.read().await.unwrap().servers["a"].len(), 0);
    });
}

#[test]
fn a_decision_is_made_once_per_stage_and_never_on_a_state_that_is_over() {
    with_both(async |store| {
        let epoch = tell(store, &report("a", &[("x", Some("1"))])).await;
        let propose = async |finality, maker| store.propose(&proposal(epoch, finality, maker)).await.unwrap();
        let first = propose(Finality::Provisional, "one").await.unwrap();
        assert!(first > epoch);
        assert_eq!(propose(Finality::Provisional, "other").await, None);
        let last = propose(Finality::Final, "other").await.unwrap();
        assert!(last > first);
        // The answer to the first may come late: nothing goes back.
        assert_eq!(
            [propose(Finality::Provisional, "one").await, propose(Finality::Final, "one").await],
            [None; 2]
        );
        let decision = store.read().await.unwrap().decision.unwrap();
        assert_eq!((decision.number, decision.proposal), (last, proposal(epoch, Finality::Final, "other")));
        // A new state, and a decision maker that has not heard of it.
        let next = tell(store, &report("a", &[("x", Some("2"))])).await;
        assert!(next > last);
        assert_eq!(propose(Finality::Final, "one").await, None);
        assert!(store.propose(&proposal(next, Finality::Final, "one")).await.unwrap() > Some(next));
        // A state that is over before anybody decided on it.
        let skipped = tell(store, &report("a", &[("x", Some("3"))])).await;
        tell(store, &report("a", &[("x", Some("4"))])).await;
        for finality in [Finality::Provisional, Finality::Final] {
            assert_eq!(store.propose(&proposal(skipped, finality, "one")).await.unwrap(), None);
        }
    });
}

#[test]
fn tallies_of_all_decision_makers_are_those_of_the_epoch_and_count_once() {
    with_both(async |store| {
        let epoch = tell(store, &report("a", &[("x", Some("1"))])).await;
        let share = async |epoch, maker, first| store.share(epoch, maker, &tally(first)).await.unwrap();
        assert_eq!(share(epoch, "one", 1.0).await, Some(vec![tally(1.0)]));
        // What one says replaces what it said before.
        share(epoch, "one", 4.0).await.unwrap();
        let mut both = share(epoch, "other", 3.0).await.unwrap();
        both.sort_by(|a, b| a.scores()[0].sum.total_cmp(&b.scores()[0].sum));
        assert_eq!(both, [tally(3.0), tally(4.0)]);
        // Once all is decided nobody needs rounds.
        store.propose(&proposal(epoch, Finality::Provisional, "one")).await.unwrap().unwrap();
        assert!(share(epoch, "one", 1.0).await.is_some());
        store.propose(&proposal(epoch, Finality::Final, "one")).await.unwrap().unwrap();
        assert_eq!(share(epoch, "one", 1.0).await, None);
        // Tallies of an epoch that is over are refused, and do not come into the next one.
        let next = tell(store, &report("a", &[("x", Some("2"))])).await;
        assert_eq!(share(epoch, "other", 1.0).await, None);
        assert_eq!(share(next, "one", 5.0).await, Some(vec![tally(5.0)]));
    });
}

#[test]
fn numbers_are_above_what_servers_have_seen_whatever_the_store_forgot() {
    with_both(async |store| {
        let (number, _) = store.issue(1_000).await.unwrap();
        assert_eq!(number, 1_001);
        let seen = Report { floor: 5_000, ..report("a", &[("x", Some("1"))]) };
        assert_eq!(tell(store, &seen).await, 5_001);
        let (number, snapshot) = store.issue(17).await.unwrap();
        assert_eq!((number, snapshot.epoch), (5_002, 5_001));
    });
}

#[test]
fn a_server_that_is_not_known_hears_it_and_reports_all() {
    with_both(async |store| {
        assert!(!store.renew("a").await.unwrap().known);
        tell(store, &report("a", &[("x", Some("1")), ("y", Some("2"))])).await;
        let renewal = store.renew("a").await.unwrap();
        assert_eq!((renewal.known, renewal.decision), (true, 0));
        let epoch = tell(store, &Report { complete: true, ..report("a", &[("z", Some("3"))]) }).await;
        let number = store.propose(&proposal(epoch, Finality::Provisional, "one")).await.unwrap();
        assert_eq!(number, Some(store.renew("a").await.unwrap().decision));
        let snapshot = store.read().await.unwrap();
        assert_eq!(snapshot.servers["a"].keys().collect::<Vec<_>>(), ["z"]);
    });
}

#[test]
fn what_changed_alone_registers_no_server_with_a_store_that_forgot_it() {
    with_both(async |store| {
        let changes = report("a", &[("x", Some("1"))]);
        assert_eq!(store.report(&changes).await.unwrap(), None);
        assert!(!store.renew("a").await.unwrap().known);
        assert!(
            store.read().await.unwrap().servers.is_empty(),
            "a part of what it told is not taken for all"
        );
        assert!(store.report(&Report { complete: true, ..changes.clone() }).await.unwrap().is_some());
        assert!(store.report(&changes).await.unwrap().is_some());
    });
}

#[test]
fn a_redis_that_was_stopped_for_longer_than_servers_live_forgets_none_of_them() {
    let Some(server) = RedisServer::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedisStore::new(&server.url(), "test:").unwrap();
        tell(&store, &report("a", &[("x", Some("1"))])).await;
        tell(&store, &report("b", &[("x", Some("1"))])).await;
        // It answers nobody for four seconds.
        let url = server.url();
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        std::net::TcpStream::connect(address).unwrap().write_all(b"CLIENT PAUSE 4000 ALL\r\n").unwrap();
        tokio::time::sleep(Duration::from_millis(4_100)).await;
        // The first one that is heard again ends no other.
        assert!(store.renew("a").await.unwrap().known);
        assert!(store.renew("b").await.unwrap().known);
    });
}

#[test]
fn listeners_hear_of_states_and_decisions() {
    with_both(async |store| {
        let mut notices = store.listen();
        let mut next = async || tokio::time::timeout(Duration::from_secs(20), notices.recv()).await.unwrap();
        assert_eq!(next().await, Some(Notice::Connected));
        let epoch = tell(store, &report("a", &[("x", Some("1"))])).await;
        assert_eq!(next().await, Some(Notice::State));
        store.propose(&proposal(epoch, Finality::Provisional, "one")).await.unwrap();
        assert_eq!(next().await, Some(Notice::Decision));
    });
}

#[test]
fn a_redis_that_comes_back_is_used_again_and_listeners_hear_of_it() {
    let Some(mut server) = RedisServer::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedisStore::new(&server.url(), "test:").unwrap();
        let mut notices = store.listen();
        let mut next = async || tokio::time::timeout(Duration::from_secs(20), notices.recv()).await.unwrap();
        assert_eq!(next().await, Some(Notice::Connected));
        let epoch = tell(&store, &report("a", &[("x", Some("1"))])).await;
        assert_eq!(next().await, Some(Notice::State));
        server.kill();
        assert!(store.renew("a").await.is_err());
        server.resume();
        assert_eq!(next().await, Some(Notice::Connected));
        assert!(!store.renew("a").await.unwrap().known, "it has forgotten all");
        let told = Report { floor: epoch, ..report("a", &[("x", Some("1"))]) };
        assert!(tell(&store, &told).await > epoch);
        assert_eq!(next().await, Some(Notice::State));
    });
}

/// One call of any kind, small numbers of everything, so that calls meet.
#[derive(Clone, Debug)]
enum Call {
    Report {
        server: u8,
        complete: bool,
        floor: u64,
        document: u8,
        text: Option<u8>,
    },
    Renew(u8),
    Issue(u64),
    /// Epochs are counted back from the current one.
    Share(u64, u8),
    Propose(u64, bool),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let report = (0u8..3, any::<bool>(), 0u64..40, 0u8..3, prop::option::of(0u8..3)).prop_map(
        |(server, complete, floor, document, text)| Call::Report { server, complete, floor, document, text },
    );
    let call = prop_oneof![
        3 => report,
        1 => (0u8..3).prop_map(Call::Renew),
        1 => (0u64..60).prop_map(Call::Issue),
        2 => (0u64..2, 0u8..2).prop_map(|(back, maker)| Call::Share(back, maker)),
        3 => (0u64..2, any::<bool>()).prop_map(|(back, last)| Call::Propose(back, last)),
    ];
    prop::collection::vec(call, 1..40)
}

/// What a store answers to a call, as text, and what there is then.
async fn answer(store: &dyn Store, call: &Call) -> String {
    let epoch = store.read().await.unwrap().epoch;
    let said = match *call {
        Call::Report { server, complete, floor, document, text } => {
            let text = text.map(|text| text.to_string());
            let changes = report("", &[(&format!("d{document}"), text.as_deref())]).changes;
            let report = Report { server: format!("s{server}"), complete, floor, changes };
            format!("{:?}", store.report(&report).await.unwrap())
        }
        Call::Renew(server) => format!("{:?}", store.renew(&format!("s{server}")).await.unwrap()),
        Call::Issue(floor) => format!("{:?}", store.issue(floor).await.unwrap()),
        Call::Share(back, maker) => {
            let (name, own) = (maker.to_string(), tally(maker.into()));
            let mut tallies = store.share(epoch.saturating_sub(back), &name, &own).await.unwrap();
            tallies.iter_mut().for_each(|all| all.sort_by_key(|tally| tally.scores()[0].sum as u64));
            format!("{tallies:?}")
        }
        Call::Propose(back, last) => {
            let finality = if last { Finality::Final } else { Finality::Provisional };
            let proposal = proposal(epoch.saturating_sub(back), finality, "maker");
            format!("{:?}", store.propose(&proposal).await.unwrap())
        }
    };
    format!("{said}, then {:?}", store.read().await.unwrap())
}

#[test]
fn redis_does_what_the_ledger_does() {
    let Some(server) = RedisServer::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { failure_persistence: None, cases: 64, ..Config::default() });
    let mut case = 0;
    let mut prefixes = std::iter::from_fn(|| {
        case += 1;
        Some(format!("case {case}:"))
    });
    let prefixes = std::cell::RefCell::new(&mut prefixes);
    let same = |calls: Vec<Call>| {
        let prefix = prefixes.borrow_mut().next().unwrap();
        let stores = (EmbeddedStore::new(), RedisStore::new(&server.url(), &prefix).unwrap());
        runtime.block_on(async {
            for call in &calls {
                let (embedded, redis) = (answer(&stores.0, call).await, answer(&stores.1, call).await);
                prop_assert_eq!(embedded, redis, "after {:?} of {:?}", call, &calls);
            }
            Ok(())
        })
    };
    runner.run(&calls(), same).unwrap();
}

#[test]
fn a_store_that_is_away_says_so_and_names_no_password() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Port 1 of this machine: nobody listens there.
    let store = RedisStore::new("redis://user:secret@127.0.0.1:1/", "test:").unwrap();
    let error = runtime.block_on(store.read()).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && !error.contains("secret"), "{error}");
    assert!(RedisStore::new("nonsense", "test:").is_err());
}
