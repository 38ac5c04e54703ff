//! The controller as real processes around a real Redis: two servers and two decision makers, and relays that move no
//! bytes. Processes are killed with SIGKILL and Redis forgets everything; relays' orders tell whether decisions go on.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod relays;
mod support;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use relays::Relay;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::http::{get, names_of_page, names_of_text};
use support::process::{Process, refused, weir};
use support::redis::RedisServer;
use support::setting;
use weir_controller::decision::Finality;
use weir_controller::store::{RedisStore, Store};
use weir_testbed::free_address;

/// A process of the controller.
fn start(arguments: &[&str]) -> Process {
    let mut command = weir(&["controller"]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    // Redis is away often enough here; nobody needs to read that.
    Process::spawn(command.env("WEIR_LOG", "error").stderr(Stdio::null()))
}

/// Two servers and two decision makers; a relay at each server, which knows the other one too.
struct Controller {
    redis: RedisServer,
    addresses: [SocketAddr; 2],
    servers: [Option<Process>; 2],
    deciders: [Option<Process>; 2],
    /// Where decision makers show their metrics.
    watched: [SocketAddr; 2],
    relays: [Relay; 2],
}

impl Controller {
    /// None where Redis is not installed.
    async fn start() -> Option<Controller> {
        let redis = RedisServer::start()?;
        let addresses = [free_address().unwrap(), free_address().unwrap()];
        let relay =
            |at: usize| Relay::start(["a", "b"][at], at as u32, vec![addresses[at], addresses[1 - at]]);
        let (servers, deciders) = ([None, None], [None, None]);
        let relays = [relay(0), relay(1)];
        let watched = [free_address().unwrap(), free_address().unwrap()];
        let mut controller = Controller { redis, addresses, servers, deciders, watched, relays };
        for at in 0..2 {
            controller.start_server(at);
            controller.start_decider(at);
        }
        for relay in &controller.relays {
            relay.expect_relays(&["a", "b"]).await;
        }
        Some(controller)
    }

    /// What `weir status` says of it.
    fn status(&self) -> String {
        let asked = weir(&["status", "--controller", &self.addresses[0].to_string()]).output().unwrap();
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8_lossy(&asked.stdout).into_owned()
    }

    fn start_server(&mut self, at: usize) {
        let listen = self.addresses[at].to_string();
        let arguments = ["serve", "--store", &self.redis.url(), "--listen", &listen, "--lease-ms", "200"];
        self.servers[at] = Some(start(&arguments));
    }

    fn start_decider(&mut self, at: usize) {
        let seed = (at + 1).to_string();
        let (store, watched) = (self.redis.url(), self.watched[at].to_string());
        let arguments = ["decide", "--store", &store, "--seed", &seed, "--metrics", &watched];
        self.deciders[at] = Some(start(&arguments));
    }

    /// Waits until a decision maker answers a look with this.
    #[track_caller]
    fn expect_seen(&self, at: usize, path: &str, status: u16, text: &str) {
        let (end, address) = (Instant::now() + Duration::from_secs(20), self.watched[at].to_string());
        loop {
            let seen = get(&address, path);
            if seen.as_ref().is_ok_and(|(code, said)| *code == status && said.contains(text)) {
                return;
            }
            assert!(Instant::now() < end, "{path} of {at}: {seen:?} and not {status} with {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens a coflow from site 0 to site 1, so many million bytes.
    fn open(&self, coflow: u64, megabytes: u64) {
        self.relays[0].open(coflow, 1, megabytes * 1_000_000);
    }

    async fn expect_order(&self, expected: &[u64]) {
        for relay in &self.relays {
            relay.expect_order(expected).await;
        }
    }

    /// Whatever else is gone, relays hear from their servers and keep their rules.
    async fn expect_nothing_new(&self) {
        let orders = self.relays.each_ref().map(Relay::order);
        for relay in &self.relays {
            relay.expect_keepalives(8).await;
        }
        assert_eq!(self.relays.each_ref().map(Relay::order), orders);
    }
}

/// Watches decisions until told to stop: numbers grow, and no state is decided twice as finally. Answers with how many
/// decisions it saw; it looks often, and may miss some.
async fn watch(url: String, stop: Arc<AtomicBool>) -> usize {
    let store = RedisStore::new(&url, "weir:").unwrap();
    let mut notices = store.listen();
    let mut seen: BTreeSet<(u64, Finality)> = BTreeSet::new();
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let _ = tokio::time::timeout(std::time::Duration::from_millis(5), notices.recv()).await;
        let Some(decision) = store.read().await.ok().and_then(|snapshot| snapshot.decision) else { continue };
        assert!(last.is_none_or(|last| decision.number >= last), "{} after {last:?}", decision.number);
        assert!(decision.number > decision.proposal.epoch);
        if last != Some(decision.number) {
            let new = seen.insert((decision.proposal.epoch, decision.proposal.finality));
            assert!(new, "decided twice: {decision:?}");
        }
        last = Some(decision.number);
    }
    seen.len()
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

#[test]
fn coflows_come_and_go_and_each_decision_is_made_once() {
    block_on(async {
        let Some(controller) = Controller::start().await else { return };
        let stop = Arc::new(AtomicBool::new(false));
        let watching = tokio::spawn(watch(controller.redis.url(), stop.clone()));
        for coflow in 1..=8 {
            controller.open(coflow, 90 - 10 * coflow);
        }
        controller.expect_order(&[8, 7, 6, 5, 4, 3, 2, 1]).await;
        for coflow in [8, 6, 2] {
            controller.relays[0].end(coflow);
        }
        controller.expect_order(&[7, 5, 4, 3, 1]).await;
        let status = controller.status();
        assert!(status.contains("2 relays at 2 sites; decision "), "{status}");
        let places: Vec<Option<usize>> =
            [7, 5, 4, 3, 1].map(|coflow| status.find(&format!("coflow {coflow}: "))).to_vec();
        assert!(places.is_sorted() && places[0].is_some() && !status.contains("coflow 8"), "{status}");
        for coflow in [7, 5, 4, 3, 1] {
            controller.relays[0].end(coflow);
        }
        controller.expect_order(&[]).await;
        stop.store(true, Ordering::Relaxed);
        assert!(watching.await.unwrap() > 0);
    });
}

#[test]
fn redis_restarts_and_forgets_everything() {
    block_on(async {
        let Some(mut controller) = Controller::start().await else { return };
        controller.open(1, 50);
        controller.open(2, 20);
        controller.expect_order(&[2, 1]).await;
        for (coflow, megabytes, order) in [(3, 10, &[3, 2, 1][..]), (4, 30, &[3, 2, 4, 1])] {
            controller.redis.kill();
            controller.open(coflow, megabytes);
            controller.expect_nothing_new().await;
            controller.expect_seen(0, "/readyz", 503, "the store does not answer");
            controller.redis.resume();
            controller.expect_order(order).await;
            controller.expect_seen(0, "/readyz", 200, "");
        }
        // Relays stayed attached, and `Relay` saw epochs grow all the time.
        assert_eq!(controller.relays.each_ref().map(|relay| relay.epochs().len()), [1, 1]);
    });
}

#[test]
fn decision_makers_are_killed_one_by_one() {
    block_on(async {
        let Some(mut controller) = Controller::start().await else { return };
        controller.open(1, 50);
        controller.expect_order(&[1]).await;
        let metric = "weir_decider_proposals_total{result=";
        for at in 0..2 {
            controller.expect_seen(at, "/metrics", 200, metric);
            let (_, text) = get(&controller.watched[at].to_string(), "/metrics").unwrap();
            assert_eq!(names_of_text(&text), names_of_page("`weir controller decide`"));
        }
        let count = |result: &str| -> f64 {
            let of = |address: &SocketAddr| {
                let (_, text) = get(&address.to_string(), "/metrics").unwrap();
                let line =
                    text.lines().find(|line| line.starts_with(&format!("{metric}\"{result}\"}}"))).unwrap();
                line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
            };
            controller.watched.iter().map(of).sum()
        };
        assert!(count("provisional") + count("final") >= 1.0, "somebody decided the order that relays have");
        controller.deciders[0] = None;
        controller.open(2, 20);
        controller.expect_order(&[2, 1]).await;
        // None is left.
        controller.deciders[1] = None;
        controller.open(3, 30);
        controller.expect_nothing_new().await;
        controller.start_decider(0);
        controller.expect_order(&[2, 3, 1]).await;
    });
}

#[test]
fn a_server_is_killed_and_its_relay_goes_on_at_the_other() {
    block_on(async {
        let Some(mut controller) = Controller::start().await else { return };
        controller.open(1, 50);
        controller.open(2, 20);
        controller.expect_order(&[2, 1]).await;
        controller.servers[0] = None;
        controller.open(3, 30);
        controller.expect_order(&[2, 3, 1]).await;
        controller.relays[0].end(2);
        controller.expect_order(&[3, 1]).await;
        // From session to session, too.
        let epochs: Vec<u64> = controller.relays[0].epochs().concat();
        assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "{epochs:?}");
    });
}

#[test]
fn two_are_killed_at_once() {
    block_on(async {
        let Some(mut controller) = Controller::start().await else { return };
        controller.open(1, 50);
        controller.open(2, 20);
        controller.expect_order(&[2, 1]).await;
        // Redis and a decision maker.
        controller.redis.kill();
        controller.deciders[1] = None;
        controller.open(3, 30);
        controller.expect_nothing_new().await;
        controller.redis.resume();
        controller.expect_order(&[2, 3, 1]).await;
        controller.start_decider(1);
        // A server and a decision maker.
        controller.servers[1] = None;
        controller.deciders[0] = None;
        controller.relays[0].end(2);
        controller.expect_order(&[3, 1]).await;
        // Redis and a server, and both are back.
        controller.start_server(1);
        controller.redis.kill();
        controller.servers[0] = None;
        controller.open(5, 5);
        controller.redis.resume();
        controller.start_server(0);
        controller.expect_order(&[5, 3, 1]).await;
        // Both decision makers.
        controller.start_decider(0);
        controller.deciders = [None, None];
        controller.open(6, 1);
        controller.expect_nothing_new().await;
        controller.start_decider(1);
        controller.expect_order(&[6, 5, 3, 1]).await;
    });
}

/// Who may be killed.
const VICTIMS: usize = 5;

impl Controller {
    fn kill(&mut self, victim: usize) {
        match victim {
            0 => self.redis.kill(),
            1 | 2 => self.servers[victim - 1] = None,
            _ => self.deciders[victim - 3] = None,
        }
    }

    fn start_again(&mut self, victim: usize) {
        match victim {
            0 => self.redis.resume(),
            1 | 2 => self.start_server(victim - 1),
            _ => self.start_decider(victim - 3),
        }
    }
}

/// Forty times; as often as `WEIR_CHAOS_CONTROLLER_KILLS` says, if it does.
#[test]
fn any_two_are_killed_while_coflows_come_and_go() {
    let kills = setting("WEIR_CHAOS_CONTROLLER_KILLS", 40);
    block_on(async {
        let Some(mut controller) = Controller::start().await else { return };
        let mut random = ChaCha8Rng::seed_from_u64(1);
        // By size, which is told apart by the coflow's number.
        let mut open: BTreeMap<u64, u64> = BTreeMap::new();
        for coflow in 1..=kills {
            let first = random.random_range(0..VICTIMS);
            let second = (first + random.random_range(1..VICTIMS)) % VICTIMS;
            controller.kill(first);
            controller.kill(second);
            let megabytes = random.random_range(1..50) * 1_000 + coflow;
            controller.open(coflow, megabytes);
            open.insert(megabytes, coflow);
            if open.len() > 4 {
                let (_, ended) = open.pop_first().unwrap();
                controller.relays[0].end(ended);
            }
            controller.start_again(first);
            controller.start_again(second);
            let order: Vec<u64> = open.values().copied().collect();
            controller.expect_order(&order).await;
        }
    });
}

#[test]
fn one_process_decides_without_redis() {
    block_on(async {
        let address = free_address().unwrap();
        let _controller = start(&["--listen", &address.to_string(), "--seed", "3"]);
        let relay = Relay::start("a", 0, vec![address]);
        relay.open(1, 1, 5_000_000);
        relay.open(2, 1, 1_000_000);
        relay.expect_order(&[2, 1]).await;
        relay.end(2);
        relay.expect_order(&[1]).await;
    });
}

#[test]
fn a_store_that_cannot_be_is_refused_by_name() {
    for part in ["serve", "decide"] {
        let said = refused(&["controller", part, "--store", "nonsense"]);
        assert!(said.contains("--store nonsense"), "{said}");
    }
}
