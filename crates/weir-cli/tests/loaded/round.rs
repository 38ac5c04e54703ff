//! One round: a few coflows among thousands, while daemons, disks, clocks, files and strangers do what they should not.

use super::bed::{Bed, Daemon, HOSTS, register};
use super::member;
use super::plan::{Plan, What};
use super::receiver::{Got, Receiver};
use super::strangers::Victims;
use crate::support::chance::{Chance, fill};
use crate::support::process::Process;
use crate::support::verdict::{Failure, Tally};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use weir_client::{Client, Error};

/// A round that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(90);
/// How often it is looked what is due.
const LOOK: Duration = Duration::from_millis(5);
/// A put that was refused for want of room is tried again after this.
const PUT_AGAIN: Duration = Duration::from_millis(100);
/// How long a second agent on a spool may take to see that it is one.
const REFUSAL_LIMIT: Duration = Duration::from_secs(10);

/// What is put right again at a time.
enum Remedy {
    Start(Daemon, bool),
    Continue(Daemon),
    FreeDisk,
    End(Process),
}

/// What work came to.
enum Done {
    Put(usize),
    Got(usize, Got),
    /// What a member of a host's group did.
    Misbehaved(u32, member::Report),
}

struct Round<'a> {
    bed: &'a mut Bed,
    plan: Plan,
    coflows: Vec<u64>,
    /// Blocks that are put,
    put: BTreeSet<usize>,
    /// and those whose files were replaced then.
    replaced: BTreeSet<usize>,
    suffered: Vec<(u64, What)>,
    remedies: Vec<(Instant, Remedy)>,
    work: JoinSet<Result<Done, Failure>>,
    gets_left: usize,
    /// Blocks that members put, by host: some of them are gone.
    of_members: BTreeMap<u32, u64>,
    strangers: JoinSet<()>,
    arrived: Arc<AtomicU64>,
    end: Instant,
    tally: Tally,
}

/// Plays the round of a seed.
pub(crate) async fn play(bed: &mut Bed, seed: u64) -> Result<Tally, Failure> {
    let plan = Plan::draw(seed);
    let mut round = Round {
        bed,
        gets_left: plan.gets.len(),
        plan,
        coflows: Vec::new(),
        put: BTreeSet::new(),
        replaced: BTreeSet::new(),
        suffered: Vec::new(),
        remedies: Vec::new(),
        work: JoinSet::new(),
        of_members: BTreeMap::new(),
        strangers: JoinSet::new(),
        arrived: Arc::default(),
        end: Instant::now() + LIMIT,
        tally: Tally::default(),
    };
    let result = round.play(seed).await;
    if result.is_err() {
        let (plan, suffered, said) = (&round.plan, &round.suffered, round.bed.said());
        eprintln!("seed {seed}: {plan:?}\nsuffered, at bytes: {suffered:?}\nthe daemons said:\n{said}");
    }
    result.map(|()| round.tally)
}

impl Round<'_> {
    async fn play(&mut self, seed: u64) -> Result<(), Failure> {
        for _ in 0..self.plan.coflows {
            self.coflows.push(register(&self.bed.clients[0]).await?);
        }
        (0..self.plan.blocks.len()).for_each(|block| self.put(block));
        (0..self.plan.gets.len()).for_each(|get| self.get(get));
        let mut misfortunes = std::mem::take(&mut self.plan.misfortunes).into_iter().peekable();
        while misfortunes.peek().is_some() || !self.remedies.is_empty() || !self.work.is_empty() {
            if Instant::now() >= self.end {
                return Err(Failure::Hang(format!("{} gets and puts did not return", self.work.len())));
            }
            while let Some(done) = self.work.try_join_next() {
                self.note(done.unwrap()?)?;
            }
            let arrived = self.arrived.load(Ordering::Relaxed);
            while let Some(due) = misfortunes.next_if(|due| arrived >= due.at_bytes || self.gets_left == 0) {
                self.suffer(due.what).await?;
            }
            self.remedy()?;
            self.bed.check_running()?;
            sleep(LOOK).await;
        }
        while timeout_at(self.end, self.strangers.join_next()).await.is_ok_and(|ended| ended.is_some()) {}
        self.bed.check_whole(&self.coflows, &self.blocks()).await?;
        self.bed.check_sample(&mut Chance::new(seed)).await?;
        for &coflow in &self.coflows {
            let ended = self.bed.clients[0].unregister(coflow).await;
            ended.map_err(|error| Failure::Hang(format!("unregister: {error}")))?;
        }
        self.bed.check_whole(&[], &[]).await?;
        self.bed.check_precious()?;
        self.bed.check_running()
    }

    fn name(block: usize) -> String {
        format!("block-{block}")
    }

    fn file(&self, block: usize) -> PathBuf {
        self.bed.data().join(format!("{}-{}", self.coflows[0], Round::name(block)))
    }

    fn write(&self, block: usize, content: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.plan.blocks[block].size as usize];
        fill(content, 0, &mut bytes);
        if !self.plan.blocks[block].memory {
            std::fs::write(self.file(block), &bytes).unwrap();
        }
        bytes
    }

    fn put(&mut self, index: usize) {
        let block = self.plan.blocks[index].clone();
        let bytes = self.write(index, block.content);
        let (client, coflow) = (self.bed.clients[block.host as usize].clone(), self.coflows[block.coflow]);
        let (file, end) = (self.file(index), self.end);
        self.work.spawn(async move {
            sleep(Duration::from_millis(block.put_ms)).await;
            loop {
                match put(&client, coflow, &Round::name(index), block.memory, &file, &bytes).await {
                    Ok(()) => return Ok(Done::Put(index)),
                    Err(error) if will_pass(&error) && Instant::now() < end => sleep(PUT_AGAIN).await,
                    Err(error) => return Err(Failure::Lost(format!("put of block-{index}: {error}"))),
                }
            }
        });
    }

    fn get(&mut self, index: usize) {
        let get = &self.plan.gets[index];
        let block = &self.plan.blocks[get.block];
        let receiver = Receiver {
            client: self.bed.clients[get.host as usize].clone(),
            coflow: self.coflows[block.coflow],
            block: Round::name(get.block),
            holder: get.direct.then(|| self.bed.agents[block.host as usize]),
            content: block.content,
            size: block.size,
            pace: get.pace,
            arrived: Arc::clone(&self.arrived),
        };
        self.work.spawn(async move { receiver.run().await.map(|got| Done::Got(index, got)) });
    }

    fn note(&mut self, done: Done) -> Result<(), Failure> {
        let (get, got) = match done {
            Done::Put(block) => {
                self.put.insert(block);
                return Ok(());
            }
            Done::Got(get, got) => (get, got),
            Done::Misbehaved(host, report) => {
                *self.of_members.entry(host).or_default() += report.put;
                self.tally.gets += report.gets;
                self.tally.bytes += report.bytes;
                return report.wrong.into_iter().next().map_or(Ok(()), |how| Err(Failure::Wrong(how)));
            }
        };
        self.gets_left -= 1;
        let block = self.plan.gets[get].block;
        if got == Got::Changed && !self.replaced.contains(&block) {
            return Err(Failure::Lost(format!("get {get}: told that block-{block} changed, which did not")));
        }
        self.tally.gets += 1;
        if got == Got::Whole {
            self.tally.bytes += self.plan.blocks[block].size;
        }
        Ok(())
    }

    async fn suffer(&mut self, what: What) -> Result<(), Failure> {
        let after = |millis| Instant::now() + Duration::from_millis(millis);
        match what {
            What::Kill(daemon, pause, few) => {
                self.bed.kill(daemon);
                self.remedies.push((after(pause), Remedy::Start(daemon, few)));
            }
            What::Stop(daemon, millis) => {
                self.bed.signal(daemon, Signal::STOP);
                self.remedies.push((after(millis), Remedy::Continue(daemon)));
            }
            What::Clock(daemon, seconds) => self.bed.set_clock(daemon, seconds),
            What::FullDisk(millis) => {
                let Some(disk) = &self.bed.disk else { return Ok(()) };
                disk.fill();
                self.remedies.push((after(millis), Remedy::FreeDisk));
            }
            What::Replace(block) => {
                if self.plan.blocks[block].memory
                    || !self.put.contains(&block)
                    || !self.replaced.insert(block)
                {
                    return Ok(());
                }
                self.write(block, !self.plan.blocks[block].content);
            }
            What::SpoolTwice(host) => self.second_on_spool(host).await?,
            What::HostTwice(host, millis) => {
                let second = self.bed.second_agent(host, false);
                self.remedies.push((after(millis), Remedy::End(second)));
            }
            What::Stranger(who, seed) => {
                let blocks = self.plan.blocks.iter().enumerate();
                let coflows =
                    blocks.map(|(index, block)| (self.coflows[block.coflow], Round::name(index))).collect();
                let victims = Victims::new(self.bed, coflows, seed as u32 % HOSTS);
                self.strangers.spawn(async move { victims.trouble(who, seed).await });
            }
            What::Member(..) if !self.bed.has_members => return Ok(()),
            What::Member(host, seed) => {
                let orders = self.bed.orders_of_member(host, self.coflows[0], seed);
                let program = self.bed.member_program();
                let sent = tokio::task::spawn_blocking(move || member::send(&program, &orders));
                self.work.spawn(async move {
                    let report = sent.await.unwrap().map_err(Failure::Ended)?;
                    Ok(Done::Misbehaved(host, report))
                });
            }
        }
        self.suffered.push((self.arrived.load(Ordering::Relaxed), what));
        *self.tally.events.entry(what.name()).or_default() += 1;
        Ok(())
    }

    /// A second agent on a spool ends at once and says why, and the first goes on.
    async fn second_on_spool(&mut self, host: u32) -> Result<(), Failure> {
        if !self.bed.runs(Daemon::Agent(host)) {
            return Ok(());
        }
        let mut second = self.bed.second_agent(host, true);
        let limit = Instant::now() + REFUSAL_LIMIT;
        loop {
            match second.0.try_wait().unwrap() {
                Some(status) if status.success() => {
                    return Err(Failure::Left("a second agent on a spool ended well".to_owned()));
                }
                Some(_) => return Ok(()),
                None if Instant::now() > limit => {
                    return Err(Failure::Hang("a second agent on a spool did not end".to_owned()));
                }
                None => sleep(LOOK).await,
            }
        }
    }

    fn remedy(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let (due, later): (Vec<_>, Vec<_>) = self.remedies.drain(..).partition(|&(at, _)| at <= now);
        self.remedies = later;
        for (_, remedy) in due {
            match remedy {
                Remedy::Start(daemon, few) => self.bed.launch(daemon, few),
                Remedy::Continue(daemon) => self.bed.signal(daemon, Signal::CONT),
                Remedy::FreeDisk => {
                    // As long as another one wants it full, it is.
                    let full = |(_, remedy): &(Instant, Remedy)| matches!(remedy, Remedy::FreeDisk);
                    if let Some(disk) = self.bed.disk.as_ref().filter(|_| !self.remedies.iter().any(full)) {
                        disk.free();
                    }
                }
                Remedy::End(process) => {
                    let end = process.end(Some(Signal::TERM));
                    end.map_err(|how| Failure::Ended(format!("a second agent of a host: {how}")))?;
                }
            }
        }
        Ok(())
    }

    /// At least and at most so many blocks at each host: one whose file was replaced may be gone, and those of members.
    fn blocks(&self) -> Vec<(u64, u64)> {
        let count = |host, counts: &dyn Fn(usize) -> bool| {
            let blocks = self.plan.blocks.iter().enumerate();
            blocks.filter(|&(index, block)| block.host == host && counts(index)).count() as u64
        };
        (0..HOSTS)
            .map(|host| {
                let of_members = self.of_members.get(&host).copied().unwrap_or(0);
                (count(host, &|index| !self.replaced.contains(&index)), count(host, &|_| true) + of_members)
            })
            .collect()
    }
}

async fn put(
    client: &Client,
    coflow: u64,
    name: &str,
    memory: bool,
    file: &std::path::Path,
    bytes: &[u8],
) -> Result<(), Error> {
    if memory {
        client.put_bytes(coflow, name, bytes).await
    } else {
        client.put_file(coflow, name, file, 0, bytes.len() as u64).await
    }
}

/// Whether a put may succeed later: the disk is full, or the agent is away.
fn will_pass(error: &Error) -> bool {
    match error {
        Error::Refused(why) => why.contains("no room"),
        Error::Unreachable(_) | Error::TimeLimit => true,
        Error::File(error) | Error::Memory(error) => error.raw_os_error() == Some(NO_SPACE),
        _ => false,
    }
}

/// ENOSPC.
const NO_SPACE: i32 = 28;
