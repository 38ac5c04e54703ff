//! Relays and links that fail at random while blocks are on their way. Every byte arrives, and every get ends.
//!
//! `WEIR_CHAOS_ROUNDS` sets how many seeds are tried (3 unless set), `WEIR_CHAOS_SEED` the first of them.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use crate::support::controller::{Controller, rule};
use crate::support::sites::{Sites, pattern};
use std::time::Duration;
use tokio::task::JoinSet;
use weir_client::GetOptions;

/// Relays of three sites.
const RELAYS: [&str; 4] = ["0-0", "1-0", "1-1", "2-0"];
/// From which site to which.
const FLOWS: [(usize, u32); 6] = [(0, 2), (0, 1), (1, 2), (2, 0), (0, 2), (1, 0)];
const BLOCK_BYTES: usize = 12_000_000;
const FAILURES: u64 = 12;
/// Of one get. Nothing here takes a tenth of it unless it hangs.
const GET_LIMIT: Duration = Duration::from_secs(120);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Numbers that a seed stands for.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// One thing goes wrong, or one rule changes.
async fn fail(sites: &mut Sites, controller: &Controller, chance: &mut Chance) {
    let name = RELAYS[chance.below(4) as usize];
    match chance.below(4) {
        0 => {
            sites.relay(name).kill().await;
            tokio::time::sleep(Duration::from_millis(chance.below(60))).await;
            sites.relay(name).restart();
        }
        1 => sites.relay(name).link.cut(),
        kind => {
            let other = RELAYS[chance.below(4) as usize];
            let ways: [&[(&str, f64)]; 2] = [&[(name, 1.0)], &[(name, 2.0), (other, 1.0)]];
            let coflow = chance.below(FLOWS.len() as u64);
            // It may lead in a circle with those of other relays.
            let at = RELAYS[chance.below(4) as usize];
            controller.set_rule(at, rule(coflow, ways[kind as usize - 2], chance.below(3)));
        }
    }
}

async fn round(seed: u64) {
    let (controller, address) = Controller::start().await;
    let mut sites = Sites::start(&[1, 2, 1], &[address]).await;
    controller.all_up(4).await;
    let mut chance = Chance(seed);
    let mut gets = JoinSet::new();
    for (coflow, (from, to)) in (0u64..).zip(FLOWS) {
        let bytes = pattern(BLOCK_BYTES, seed ^ coflow);
        sites.client(from as u32).put_bytes(coflow, "b", &bytes).await.unwrap();
        let receiver = sites.client(to);
        let holders = vec![sites.agent(from)];
        gets.spawn(async move {
            let options = GetOptions { holders, time_limit: GET_LIMIT, ..GetOptions::default() };
            let got = receiver.get_bytes(coflow, "b", options).await.unwrap();
            assert!(got == bytes, "coflow {coflow}: wrong bytes");
        });
    }
    for _ in 0..FAILURES {
        tokio::time::sleep(Duration::from_millis(chance.below(40))).await;
        fail(&mut sites, &controller, &mut chance).await;
    }
    while let Some(got) = gets.join_next().await {
        got.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    // Afterwards relays carry flows again.
    for relay in RELAYS {
        let way: &[(&str, f64)] = if relay == "0-0" { &[("1-1", 1.0)] } else { &[] };
        controller.set_rule(relay, rule(100, way, 0));
    }
    let bytes = pattern(1_000_000, seed);
    sites.client(0).put_bytes(100, "b", &bytes).await.unwrap();
    for attempt in 0..100 {
        let holders = vec![sites.agent(0)];
        let options = GetOptions { holders, time_limit: GET_LIMIT, ..GetOptions::default() };
        assert!(sites.client(2).get_bytes(100, "b", options).await.unwrap() == bytes);
        if controller.has_carried(100) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50 + attempt)).await;
    }
    panic!("seed {seed}: no flow went by relays afterwards");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_and_links_that_fail_at_random_cost_no_byte_and_no_get_hangs() {
    let first = setting("WEIR_CHAOS_SEED", 1);
    for seed in first..first + setting("WEIR_CHAOS_ROUNDS", 3) {
        round(seed).await;
    }
}
