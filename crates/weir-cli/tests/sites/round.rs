//! One round: flows of several coflows between sites, of whose relays, links and controller some fail meanwhile.

use super::plan::{Fault, Flow, Plan, RELAYS, Victim};
use super::world::World;
use crate::support::chance::fill;
use crate::support::verdict::{Failure, Tally};
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use weir_client::{BlockReader, Client, GetOptions};
use weir_controller::records::State;
use weir_controller::store::{RedisStore, Store};

/// Flows that take longer hang.
const FLOWS_LIMIT: Duration = Duration::from_secs(60);
/// A get is given up a little before that, and says why.
const GET_LIMIT: Duration = Duration::from_secs(55);
/// How long it may take until what failed is forgotten.
const STATE_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Of the coflow that shows whether decisions go on. At its first frame most of it has yet to enter a relay.
const AFTERWARDS_BYTES: u64 = 30_000_000;
/// How long its reader waits for a decision before it asks anew: its flow may have gone past the relays.
const PLACE_PATIENCE: Duration = Duration::from_secs(3);
/// How often it asks.
const ATTEMPTS: u64 = 10;

/// What a receiver says.
enum Said {
    Arrived(u64),
    Done,
    Failed(Failure),
}

struct Round {
    plan: Plan,
    world: World,
    store: RedisStore,
    arrived: u64,
    /// What is to be there again, and when.
    restorations: Vec<(Instant, Victim)>,
    tally: Tally,
}

/// Plays the round of a seed; does nothing where Redis is not installed.
pub(crate) async fn play(seed: u64, dir: &Path) -> Result<Tally, Failure> {
    let plan = Plan::draw(seed);
    let Some(world) = World::start(dir, plan.bytes_per_sec).await else { return Ok(Tally::default()) };
    let (store, tally) = (world.store(), Tally::default());
    let mut round = Round { plan, world, store, arrived: 0, restorations: Vec::new(), tally };
    let result = round.play().await;
    if result.is_err() {
        let snapshot = timeout(Duration::from_secs(1), round.store.read()).await;
        eprintln!(
            "seed {seed}: {:#?}\nat {} bytes; the store has {snapshot:?}\nprocesses said:\n{}",
            Plan::draw(seed),
            round.arrived,
            round.world.log()
        );
    }
    result.map(|()| round.tally)
}

impl Round {
    async fn play(&mut self) -> Result<(), Failure> {
        self.wait("all relays are known", |state, _| state.relays.len() == RELAYS.len()).await?;
        self.flows_move_and_things_fail().await?;
        self.decisions_go_on().await?;
        let as_before = |state: &State, order: &[u64]| {
            let nothing_left = state.coflows.is_empty() && order.is_empty();
            nothing_left && state.relays.len() == RELAYS.len() && state.unreadable == 0
        };
        self.wait("no coflow is left, and all relays are known", as_before).await?;
        let mut bad = self.world.end();
        bad.extend(self.world.log().lines().filter(|line| line.contains("panicked")).map(str::to_owned));
        if bad.is_empty() { Ok(()) } else { Err(Failure::Left(bad.join("; "))) }
    }

    async fn flows_move_and_things_fail(&mut self) -> Result<(), Failure> {
        let (say, mut said) = mpsc::unbounded_channel();
        let flows = self.plan.flows.clone();
        for (number, flow) in flows.iter().enumerate() {
            let name = format!("block-{number}");
            self.put(flow, &name).await?;
            tokio::spawn(receive(self.world.client(flow.to), *flow, name, self.options(flow), say.clone()));
        }
        let (end, mut left) = (Instant::now() + FLOWS_LIMIT, flows.len());
        while left > 0 || !self.plan.faults.is_empty() || !self.restorations.is_empty() {
            let wake = self.restorations.iter().map(|&(at, _)| at).min().unwrap_or(end).min(end);
            match timeout_at(wake, said.recv()).await {
                Ok(Some(Said::Arrived(bytes))) => self.arrived += bytes,
                Ok(Some(Said::Done)) => left -= 1,
                Ok(Some(Said::Failed(failure))) => return Err(failure),
                Ok(None) => unreachable!("this round can say something, too"),
                Err(_) if Instant::now() >= end => {
                    return Err(Failure::Hang(format!("{left} flows did not end")));
                }
                Err(_) => {}
            }
            self.restore();
            self.fail();
        }
        self.tally.gets += flows.len() as u64;
        self.tally.bytes += self.arrived;
        Ok(())
    }

    /// A put needs nothing but the host's agent, which may be about to start.
    async fn put(&self, flow: &Flow, name: &str) -> Result<(), Failure> {
        let mut bytes = vec![0; flow.size as usize];
        fill(flow.content, 0, &mut bytes);
        let (client, end) = (self.world.client(flow.from), Instant::now() + STATE_LIMIT);
        loop {
            match client.put_bytes(flow.coflow, name, &bytes).await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= end => return Err(Failure::Lost(format!("a put: {error}"))),
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    fn options(&self, flow: &Flow) -> GetOptions {
        GetOptions {
            holders: vec![self.world.agent(flow.from)],
            group: flow.group,
            time_limit: GET_LIMIT,
            ..GetOptions::default()
        }
    }

    fn fail(&mut self) {
        while let Some(fault) = self.plan.faults.pop_if(|fault| fault.at_bytes <= self.arrived) {
            let Fault { victim, pause_ms, .. } = fault;
            self.world.fail(victim);
            self.restorations.push((Instant::now() + Duration::from_millis(pause_ms), victim));
            *self.tally.events.entry(victim.kind()).or_default() += 1;
        }
    }

    fn restore(&mut self) {
        let now = Instant::now();
        for (_, victim) in self.restorations.extract_if(.., |&mut (at, _)| at <= now) {
            self.world.restore(victim);
        }
    }

    /// A new coflow gets a place from the decision makers while it moves by relays.
    async fn decisions_go_on(&mut self) -> Result<(), Failure> {
        let (from, to) = self.plan.afterwards;
        for attempt in 0..ATTEMPTS {
            let coflow = 100 + attempt;
            let flow =
                Flow { coflow, from, to, size: AFTERWARDS_BYTES, content: coflow, group: to, start_ms: 0 };
            self.put(&flow, "afterwards").await?;
            let reader = self.world.client(to).get(coflow, "afterwards", self.options(&flow));
            let mut reader = Reader::new(reader, flow);
            reader.next().await?;
            let placed = |_: &State, order: &[u64]| order.contains(&coflow);
            let placed = timeout(PLACE_PATIENCE, self.wait("it has a place", placed)).await;
            while reader.next().await? > 0 {}
            self.tally.gets += 1;
            self.tally.bytes += flow.size;
            if let Ok(placed) = placed {
                return placed;
            }
        }
        Err(Failure::Left(format!("no coflow gets a place, after {ATTEMPTS} attempts")))
    }

    /// Waits until the state and the last order are so.
    async fn wait(&self, what: &str, reached: impl Fn(&State, &[u64]) -> bool) -> Result<(), Failure> {
        let end = Instant::now() + STATE_LIMIT;
        while Instant::now() < end {
            if let Ok(snapshot) = self.store.read().await {
                let order = snapshot.decision.as_ref().map_or(&[][..], |decision| &decision.proposal.order);
                if reached(&State::of(&snapshot.servers), order) {
                    return Ok(());
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(Failure::Left(format!("not so: {what}")))
    }
}

/// Gets the block of a flow, and compares every byte.
async fn receive(
    client: Client,
    flow: Flow,
    name: String,
    options: GetOptions,
    say: mpsc::UnboundedSender<Said>,
) {
    tokio::time::sleep(Duration::from_millis(flow.start_ms)).await;
    let mut reader = Reader::new(client.get(flow.coflow, &name, options), flow);
    loop {
        let (said, over) = match reader.next().await {
            Ok(0) => (Said::Done, true),
            Ok(bytes) => (Said::Arrived(bytes), false),
            Err(failure) => (Said::Failed(failure), true),
        };
        // Nobody listens once the round has failed.
        if say.send(said).is_err() || over {
            return;
        }
    }
}

/// Reads a block and compares it with what was put.
struct Reader {
    reader: BlockReader,
    flow: Flow,
    at: u64,
}

impl Reader {
    fn new(reader: BlockReader, flow: Flow) -> Reader {
        Reader { reader, flow, at: 0 }
    }

    /// How many bytes came; 0 at the end.
    async fn next(&mut self) -> Result<u64, Failure> {
        let Flow { content, size, .. } = self.flow;
        match self.reader.next().await {
            Ok(Some(bytes)) => {
                let mut expected = vec![0; bytes.len()];
                fill(content, self.at, &mut expected);
                if expected != bytes {
                    return Err(Failure::Wrong(format!(
                        "other bytes of {:?} from {} on",
                        self.flow, self.at
                    )));
                }
                self.at += bytes.len() as u64;
                Ok(bytes.len() as u64)
            }
            Ok(None) if self.at == size => Ok(0),
            Ok(None) => Err(Failure::Wrong(format!("{} bytes of {:?}", self.at, self.flow))),
            Err(error) => Err(Failure::Lost(format!("{:?}: {error}", self.flow))),
        }
    }
}
