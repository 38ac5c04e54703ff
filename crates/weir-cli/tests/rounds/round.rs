//! One round: a small workload on real processes, of which some are killed while its bytes move.

use super::plan::{Event, Plan, Stopped, Victim, What};
use super::processes::{Heard, Processes};
use super::receiver::{self, Orders, Said};
use crate::support::chance::fill;
use crate::support::verdict::{Failure, Tally};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use weir_client::{Client, ClientConfig, Error, GetError, GetOptions, StatusReply};

/// A round that takes so much longer than a get may hangs: a receiver gives a get up before that, and says why.
const BEYOND_GETS: Duration = Duration::from_secs(3);
/// A call that was not answered in its time is made again after this.
const CALL_AGAIN: Duration = Duration::from_millis(100);
/// How long the coordinator may take to have the state that follows from what happened.
const STATE_LIMIT: Duration = Duration::from_secs(20);

struct Round {
    plan: Plan,
    processes: Processes,
    heard: mpsc::UnboundedReceiver<Heard>,
    /// The driver and the producers of each host.
    clients: Vec<Client>,
    coflows: Vec<u64>,
    /// Gets that returned, and whether with all their bytes.
    returned: BTreeMap<usize, bool>,
    ended: BTreeSet<usize>,
    arrived: u64,
    events: Vec<Event>,
    restarts: Vec<(Instant, Victim)>,
    /// Those that are stopped, and when they go on.
    stopped: Vec<(Instant, Stopped)>,
    parked: BTreeSet<u32>,
    /// A put that was told that its coflow has ended says which one that is.
    work: JoinSet<Result<Option<usize>, String>>,
    end: Instant,
    tally: Tally,
}

/// Plays the round of a seed.
pub(crate) async fn play(seed: u64, dir: &Path) -> Result<Tally, Failure> {
    let plan = Plan::draw(seed);
    let (processes, heard) = Processes::new(dir, &plan);
    let clients = (0..plan.hosts)
        .map(|host| {
            Client::new(ClientConfig {
                coordinator: Some(processes.coordinator_address.into()),
                agent: Some(processes.spool(host).join("agent.sock")),
                host,
            })
        })
        .collect();
    let mut round = Round {
        events: plan.events.iter().rev().copied().collect(),
        end: Instant::now() + plan.get_limit() + BEYOND_GETS,
        plan,
        processes,
        heard,
        clients,
        coflows: Vec::new(),
        returned: BTreeMap::new(),
        ended: BTreeSet::new(),
        arrived: 0,
        restarts: Vec::new(),
        stopped: Vec::new(),
        parked: BTreeSet::new(),
        work: JoinSet::new(),
        tally: Tally::default(),
    };
    let result = round.play(seed, dir).await;
    if result.is_err() {
        let log = std::fs::read_to_string(round.processes.log()).unwrap_or_default();
        let status = timeout(Duration::from_secs(1), round.clients[0].status()).await;
        eprintln!(
            "seed {seed}: {:#?}\nat {} bytes {}; events left {:?}; status {status:?}\nthe daemons said:\n{log}",
            round.plan,
            round.arrived,
            round.missing(),
            round.events
        );
    }
    result.map(|()| round.tally)
}

impl Round {
    async fn play(&mut self, seed: u64, dir: &Path) -> Result<(), Failure> {
        self.start(seed, dir).await?;
        while !self.over() {
            let restarts = self.restarts.iter().map(|&(at, _)| at);
            let wake = restarts.chain(self.stopped.iter().map(|&(at, _)| at)).min();
            let wake = wake.unwrap_or(self.end).min(self.end);
            match timeout_at(wake, self.heard.recv()).await {
                Ok(Some(heard)) => self.hear(heard)?,
                Ok(None) => unreachable!("the sender lives in this round"),
                Err(_) if Instant::now() >= self.end => return Err(Failure::Hang(self.missing())),
                Err(_) => {}
            }
            while let Some(done) = self.work.try_join_next() {
                self.check_done(done.unwrap())?;
            }
            self.start_again();
            self.go_on();
            self.let_events_happen();
            self.bring_back_parked().await?;
        }
        self.check_work().await?;
        self.check_state().await?;
        self.finish().await
    }

    async fn start(&mut self, seed: u64, dir: &Path) -> Result<(), Failure> {
        self.processes.start_coordinator();
        for host in 0..self.plan.hosts {
            self.processes.start_agent(host);
        }
        let hosts = self.plan.hosts as usize;
        self.wait_for("all agents at the coordinator", |status| status.agents.len() == hosts).await?;
        let mut apart = self.processes.start_driver(seed).into_iter();
        for (index, coflow) in self.plan.coflows.iter().enumerate() {
            let id = if coflow.apart {
                apart.next().ok_or_else(|| Failure::Hang("the driver registered nothing".to_owned()))?
            } else {
                let id = self.clients[0].register(self.plan.options(index)).await;
                id.map_err(|error| Failure::Hang(format!("register: {error}")))?
            };
            self.coflows.push(id);
        }
        for host in 0..self.plan.hosts {
            self.start_receiver(host);
        }
        for host in 0..self.plan.hosts {
            self.put_all(host, dir);
        }
        Ok(())
    }

    fn start_receiver(&mut self, host: u32) {
        let gets = self.plan.gets.iter().enumerate().filter(|(_, get)| get.host == host);
        let gets: Vec<receiver::Get> = gets
            .map(|(index, get)| {
                let block = &self.plan.blocks[get.block];
                receiver::Get {
                    index,
                    coflow: self.coflows[block.coflow],
                    block: block.name.clone(),
                    holder: get.direct.then(|| self.processes.agent_addresses[block.host as usize]),
                    content: block.content,
                    size: block.size,
                    start_ms: get.start_ms,
                }
            })
            .collect();
        if !gets.is_empty() {
            let coordinator = Some(self.processes.coordinator_address);
            let limit_ms = self.plan.get_limit().as_millis() as u64;
            self.processes.start_receiver(&Orders { host, coordinator, gets, limit_ms });
        }
    }

    /// A producer per block; ranges of one file per host, or memory.
    fn put_all(&mut self, host: u32, dir: &Path) {
        let (mut file, path) = (Vec::new(), dir.join(format!("data-{host}")));
        let mut puts = Vec::new();
        for block in self.plan.blocks.iter().filter(|block| block.host == host) {
            let mut bytes = vec![0; block.size as usize];
            fill(block.content, 0, &mut bytes);
            let offset = file.len() as u64;
            if !block.memory {
                file.extend_from_slice(&bytes);
            }
            puts.push((block.clone(), offset, bytes));
        }
        std::fs::write(&path, file).unwrap();
        for (block, offset, bytes) in puts {
            let (client, coflow, path) =
                (self.clients[host as usize].clone(), self.coflows[block.coflow], path.clone());
            self.work.spawn(async move {
                tokio::time::sleep(Duration::from_millis(block.put_ms)).await;
                let put = if block.memory {
                    client.put_bytes(coflow, &block.name, &bytes).await
                } else {
                    client.put_file(coflow, &block.name, &path, offset, block.size).await
                };
                match put {
                    Ok(()) => Ok(None),
                    Err(error) if error.to_string().contains("has ended") => Ok(Some(block.coflow)),
                    Err(error) => Err(format!("put {}: {error}", block.name)),
                }
            });
        }
    }

    fn hear(&mut self, heard: Heard) -> Result<(), Failure> {
        if self.processes.life(heard.host) != Some(heard.life) {
            return Ok(());
        }
        let (index, whole) = match heard.said {
            Said::Arrived(bytes) => {
                self.arrived += bytes;
                return Ok(());
            }
            Said::Got(index) => (index, true),
            Said::Ended(index) if self.may_be_over(self.coflow_of(index)) => (index, false),
            Said::Ended(index) => {
                return Err(Failure::Lost(format!("get {index}: its coflow has not ended")));
            }
            Said::Wrong(index, how) => return Err(Failure::Wrong(format!("get {index}: {how}"))),
            Said::Lost(index, why) => return Err(Failure::Lost(format!("get {index}: {why}"))),
        };
        self.returned.insert(index, whole);
        self.tally.gets += 1;
        if whole {
            self.tally.bytes += self.plan.blocks[self.plan.gets[index].block].size;
        }
        Ok(())
    }

    fn coflow_of(&self, get: usize) -> usize {
        self.plan.blocks[self.plan.gets[get].block].coflow
    }

    /// Whether a coflow may have ended: its driver ended it, or was taken to have died.
    fn may_be_over(&self, coflow: usize) -> bool {
        self.ended.contains(&coflow) || self.plan.may_end_unasked(coflow)
    }

    fn check_done(&self, done: Result<Option<usize>, String>) -> Result<(), Failure> {
        match done.map_err(Failure::Lost)? {
            Some(coflow) if !self.may_be_over(coflow) => {
                Err(Failure::Lost(format!("a put was told that coflow-{coflow} has ended, which has not")))
            }
            _ => Ok(()),
        }
    }

    /// Events whose byte count is reached; once nothing moves any more, all that are left.
    fn let_events_happen(&mut self) {
        while let Some(event) = self.events.last().copied() {
            if self.arrived < event.at_bytes && !self.others_returned() {
                return;
            }
            self.events.pop();
            match event.what {
                What::Kill(victim, pause) => {
                    self.kill(victim);
                    self.restarts.push((Instant::now() + Duration::from_millis(pause), victim));
                }
                What::KillUntilOthersEnd(host) => {
                    self.kill(Victim::Receiver(host));
                    self.parked.insert(host);
                }
                What::Unregister(coflow) => self.unregister(coflow),
                What::Stop(whom, millis) => self.stop(whom, millis),
            }
        }
    }

    fn stop(&mut self, whom: Stopped, millis: u64) {
        if self.processes.signal(whom, Signal::STOP) {
            self.stopped.push((Instant::now() + Duration::from_millis(millis), whom));
            *self.tally.events.entry(whom.name()).or_default() += 1;
        }
    }

    /// Who was stopped for long enough goes on.
    fn go_on(&mut self) {
        let now = Instant::now();
        let (due, later) = self.stopped.drain(..).partition(|&(at, _)| at <= now);
        self.stopped = later;
        let due: Vec<(Instant, Stopped)> = due;
        for (_, whom) in due {
            self.processes.signal(whom, Signal::CONT);
        }
    }

    fn kill(&mut self, victim: Victim) {
        let kind = match victim {
            Victim::Coordinator => {
                self.processes.kill_coordinator();
                "coordinator"
            }
            Victim::Agent(host) => {
                self.processes.kill_agent(host);
                "agent"
            }
            Victim::Receiver(host) => {
                self.processes.kill_receiver(host);
                let gets = &self.plan.gets;
                self.returned.retain(|&get, _| gets[get].host != host);
                "receiver"
            }
        };
        *self.tally.events.entry(kind).or_default() += 1;
    }

    fn unregister(&mut self, coflow: usize) {
        self.ended.insert(coflow);
        *self.tally.events.entry("coflow ended while it moved").or_default() += 1;
        let (client, id, end) = (self.clients[0].clone(), self.coflows[coflow], self.end);
        self.work.spawn(async move {
            loop {
                match client.unregister(id).await {
                    Ok(_) => return Ok(None),
                    // The coordinator may be stopped for longer than a call waits.
                    Err(Error::TimeLimit | Error::Unreachable(_)) if Instant::now() < end => {
                        tokio::time::sleep(CALL_AGAIN).await;
                    }
                    Err(error) => return Err(format!("unregister: {error}")),
                }
            }
        });
    }

    fn start_again(&mut self) {
        let now = Instant::now();
        let (due, later) = self.restarts.drain(..).partition(|&(at, _)| at <= now);
        self.restarts = later;
        let due: Vec<(Instant, Victim)> = due;
        for (_, victim) in due {
            match victim {
                // Killed twice, it is back already.
                _ if self.processes.runs(victim) => {}
                Victim::Coordinator => self.processes.start_coordinator(),
                Victim::Agent(host) => self.processes.start_agent(host),
                Victim::Receiver(host) if self.parked.contains(&host) => {}
                Victim::Receiver(host) => self.start_receiver(host),
            }
        }
    }

    /// Whether every get of a receiver that is not parked has returned.
    fn others_returned(&self) -> bool {
        let waits = |(index, get): (usize, &super::plan::Get)| {
            !self.parked.contains(&get.host) && !self.returned.contains_key(&index)
        };
        !self.plan.gets.iter().enumerate().any(waits)
    }

    /// A dead receiver's flows must end without it: only then does it come back.
    async fn bring_back_parked(&mut self) -> Result<(), Failure> {
        let all_run = self.restarts.is_empty() && self.stopped.is_empty();
        if self.parked.is_empty() || !all_run || !self.others_returned() {
            return Ok(());
        }
        self.wait_for("the capacity of a dead receiver's flows is free again", idle).await?;
        for host in std::mem::take(&mut self.parked) {
            self.start_receiver(host);
        }
        Ok(())
    }

    fn over(&self) -> bool {
        self.events.is_empty()
            && self.restarts.is_empty()
            && self.stopped.is_empty()
            && self.parked.is_empty()
            && self.returned.len() == self.plan.gets.len()
    }

    fn missing(&self) -> String {
        let missing: Vec<String> = (0..self.plan.gets.len())
            .filter(|index| !self.returned.contains_key(index))
            .map(|index| {
                let get = &self.plan.gets[index];
                let block = &self.plan.blocks[get.block];
                format!("{} ({} B) from {} to {}", block.name, block.size, block.host, get.host)
            })
            .collect();
        format!("did not return: {}", missing.join(", "))
    }

    /// Puts and the driver's calls came through as well.
    async fn check_work(&mut self) -> Result<(), Failure> {
        while let Some(done) = timeout_at(self.end, self.work.join_next())
            .await
            .map_err(|_| Failure::Hang("a put or unregister".to_owned()))?
        {
            self.check_done(done.unwrap())?;
        }
        for (index, coflow) in self.plan.coflows.iter().enumerate() {
            if !coflow.counted && !self.may_be_over(index) {
                let sealed = self.clients[0].seal(self.coflows[index]).await;
                sealed.map_err(|error| Failure::Left(format!("seal: {error}")))?;
            }
        }
        Ok(())
    }

    /// The coordinator, killed or not, knows all coflows and blocks there are, and no others.
    async fn check_state(&mut self) -> Result<(), Failure> {
        let ids = |counts: &dyn Fn(usize) -> bool| -> BTreeSet<u64> {
            let counted = (0..self.coflows.len()).filter(|&index| counts(index));
            counted.map(|index| self.coflows[index]).collect()
        };
        let blocks = |counts: &dyn Fn(usize) -> bool| -> Vec<u64> {
            let held = |host| {
                let blocks = self.plan.blocks.iter().filter(|block| block.host == host);
                blocks.filter(|block| counts(block.coflow)).count() as u64
            };
            (0..self.plan.hosts).map(held).collect()
        };
        let (live, surely) =
            (|index: usize| !self.ended.contains(&index), |index: usize| !self.may_be_over(index));
        let (most, least) = (ids(&live), ids(&surely));
        let (most_held, least_held) = (blocks(&live), blocks(&surely));
        let what = format!("coflows {least:?} to {most:?}, blocks {least_held:?} to {most_held:?}, all idle");
        self.wait_for(&what, |status| {
            let shown: BTreeSet<u64> = status.coflows.iter().map(|coflow| coflow.coflow).collect();
            let known: BTreeSet<u64> =
                status.completed.iter().map(|record| record.coflow).chain(shown.iter().copied()).collect();
            let bounds = least_held.iter().zip(&most_held);
            let held = status.agents.len() == self.plan.hosts as usize
                && status
                    .agents
                    .iter()
                    .zip(bounds)
                    .all(|(agent, (least, most))| (least..=most).contains(&&agent.blocks));
            idle(status) && shown.is_subset(&most) && least.is_subset(&known) && held
        })
        .await
    }

    async fn wait_for(&self, what: &str, reached: impl Fn(&StatusReply) -> bool) -> Result<(), Failure> {
        let end = Instant::now() + STATE_LIMIT;
        let mut last = "no status".to_owned();
        while Instant::now() < end {
            match timeout_at(end, self.clients[0].status()).await {
                Ok(Ok(status)) if reached(&status) => return Ok(()),
                Ok(Ok(status)) => last = format!("{status:?}"),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(Failure::Left(format!("not reached: {what}; at the end: {last}")))
    }

    /// After the driver ends its coflows nothing of them is left, and all processes end when asked.
    async fn finish(&mut self) -> Result<(), Failure> {
        for (index, &coflow) in self.coflows.iter().enumerate() {
            let record = self.clients[0].unregister(coflow).await;
            let record = record.map_err(|error| Failure::Hang(format!("unregister: {error}")))?;
            if record.is_none() && !self.may_be_over(index) {
                return Err(Failure::Left(format!("coflow {coflow} was not known any more")));
            }
        }
        let none = |status: &StatusReply| {
            idle(status) && status.coflows.is_empty() && status.agents.iter().all(|agent| agent.blocks == 0)
        };
        self.wait_for("nothing left of coflows that have ended", none).await?;
        self.check_late_gets().await?;
        self.check_files().await?;
        let bad = self.processes.end();
        if bad.is_empty() { Ok(()) } else { Err(Failure::Left(bad.join("; "))) }
    }

    /// Nothing is left of what was handed over in memory. Agents hear of an end after the driver does.
    async fn check_files(&self) -> Result<(), Failure> {
        let end = Instant::now() + STATE_LIMIT;
        loop {
            let spools = (0..self.plan.hosts)
                .map(|host| std::fs::read_dir(self.processes.spool(host).join("blocks")).unwrap());
            let mut left: Vec<String> =
                spools.flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                left.sort();
                return Err(Failure::Left(format!("files of ended coflows: {left:?}")));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whoever asks for a block of an ended coflow is told so, by the coordinator and, as soon as that has told it, by
    /// the agent.
    async fn check_late_gets(&self) -> Result<(), Failure> {
        let block = &self.plan.blocks[0];
        let coflow = self.coflows[block.coflow];
        let end = Instant::now() + STATE_LIMIT;
        for holders in [vec![self.processes.agent_addresses[block.host as usize]], Vec::new()] {
            loop {
                let options =
                    GetOptions { holders: holders.clone(), time_limit: STATE_LIMIT, ..GetOptions::default() };
                let get = self.clients[0].get_bytes(coflow, &block.name, options);
                match timeout(STATE_LIMIT * 2, get).await {
                    Ok(Err(GetError::CoflowEnded(_))) => break,
                    Ok(Ok(_)) if !holders.is_empty() && Instant::now() < end => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    other => {
                        let got = other.map(|got| got.map(|bytes| bytes.len()));
                        return Err(Failure::Hang(format!("a get of an ended coflow: {got:?} bytes")));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Nothing moves, and no capacity is held for anything.
fn idle(status: &StatusReply) -> bool {
    status.agents.iter().all(|agent| agent.flows == 0)
        && status.coflows.iter().all(|coflow| coflow.live_flows == 0)
}
