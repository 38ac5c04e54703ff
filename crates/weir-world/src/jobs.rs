//! Jobs: a driver with a coflow, tasks that put blocks, tasks that get them.

use crate::content::Content;
use crate::coordinator::WORDS_UNDER_WAY;
use crate::deadlines::Deadline;
use crate::events::{Call, Caller, Event, Reply};
use crate::receiver::Get;
use crate::world::World;
use rand::RngExt;
use std::collections::BTreeSet;
use weir_core::agent::{BlockEntry, JournalEntry, PutError, WaitingPut};
use weir_model::{CoflowId, Rate, Span, Time};
use weir_proto::data::Identity;
use weir_proto::v1;

/// The lease that drivers ask for.
const LEASE_MS: u64 = 10_000;

/// So long after a registration agents know of it.
const NOTED: Span = Span::from_millis(50);

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Registering,
    Moving,
    Unregistering,
    Over,
}

/// A block of a job at a host; one that two tasks put is there twice.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) name: String,
    pub(crate) host: u32,
    pub(crate) size: u64,
    pub(crate) identity: Identity,
    /// The agent said that it holds it, last at this time.
    pub(crate) is_put: bool,
    pub(crate) put_at: Time,
    /// Its producer has checksums.
    has_checksums: bool,
}

/// A driver's coflow, with its blocks and its gets.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) stage: Stage,
    pub(crate) coflow: Option<u64>,
    key: u64,
    pub(crate) blocks: Vec<Block>,
    pub(crate) gets: BTreeSet<usize>,
    left: usize,
    /// How long after the others its receivers come: longer than its lease.
    pause: Span,
    pub(crate) deadline: Option<Deadline>,
    /// It was refused, and given up.
    pub(crate) was_refused: bool,
    /// When its driver dies, counted from when it is registered.
    dies: Option<Span>,
    /// An agent has heard how it was registered.
    is_noted: bool,
    has_died: bool,
    /// The coordinator's process that answered for its end, and whether it was killed since: agents that were not there may not
    /// have heard of it.
    ended_by: Option<u64>,
    is_end_forgotten: bool,
}

impl Job {
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// A process of the coordinator was killed, and knows of no end any more.
    pub(crate) fn forget_end(&mut self, life: u64) {
        self.is_end_forgotten |= self.ended_by == Some(life);
    }

    /// What agents heard of how it was registered is not on any disk for sure.
    pub(crate) fn forget_note(&mut self) {
        self.is_noted = false;
    }

    /// No process is left that knows that its lease is short: the coordinator that registered it was killed before an agent had
    /// heard so, and its driver died, or was told by another one that it has ended, which was killed too. It is kept as long as
    /// coflows usually are.
    pub(crate) fn is_forgotten(&self) -> bool {
        (self.has_died || self.is_end_forgotten) && !self.is_noted
    }
}

impl World {
    /// Draws what jobs there are.
    pub(crate) fn draw_jobs(&mut self) {
        for number in 0..self.settings.coflows as usize {
            let mut job = Job {
                stage: Stage::Registering,
                coflow: None,
                key: self.rng.random_range(1..u64::MAX),
                blocks: Vec::new(),
                gets: BTreeSet::new(),
                left: 0,
                // Longer than the lease, so that renewals alone keep the coflow.
                pause: if self.rng.random_range(0..50) == 0 {
                    self.millis(11_000, 14_000)
                } else {
                    Span::ZERO
                },
                deadline: self.some_deadline(),
                was_refused: false,
                is_noted: false,
                has_died: false,
                ended_by: None,
                is_end_forgotten: false,
                dies: (self.rng.random_range(0..25) == 0).then(|| self.millis(1, 800)),
            };
            for _ in 0..self.rng.random_range(1..=self.settings.flows as usize) {
                let size = match self.rng.random_range(0..10) {
                    0 => 0,
                    1..4 => self.rng.random_range(1..10_000),
                    _ => self.rng.random_range(1..=self.settings.block_bytes),
                };
                let (host, to) = (self.some_host(), self.some_host());
                let identity = Identity::drawn(self.rng.random());
                let has_checksums = identity.0[1].is_multiple_of(2);
                let block = job.blocks.len();
                let copy = |host| Block {
                    name: format!("b{block}"),
                    host,
                    size,
                    identity,
                    is_put: false,
                    put_at: Time::ZERO,
                    has_checksums,
                };
                job.blocks.push(copy(host));
                // A task that was thought dead runs twice.
                let other = self.some_host();
                if self.rng.random_range(0..8) == 0 && other != host {
                    job.blocks.push(copy(other));
                }
                job.gets.insert(self.gets.len());
                let runs_again = self.rng.random_range(0..10) == 0;
                let is_slow = self.rng.random_range(0..20) == 0;
                let reads = is_slow.then(|| Rate::from_bits_per_sec(self.rng.random_range(1e6..1e8)));
                self.gets.push(Get::new(number, block, to, runs_again, reads));
                job.left += 1;
            }
            self.jobs.push(job);
            let after = self.span(self.settings.arrivals);
            self.later(after, Event::Drive { job: number });
        }
    }

    pub(crate) fn some_host(&mut self) -> u32 {
        self.rng.random_range(0..self.settings.hosts)
    }

    /// A driver makes its call, or makes it again.
    pub(crate) fn drive(&mut self, number: usize) {
        let job = &self.jobs[number];
        let call = match (job.stage, job.coflow) {
            (Stage::Registering, _) => {
                let options = v1::CoflowOptions {
                    flows: job.gets.len() as u64,
                    lease_ms: LEASE_MS,
                    deadline_ms: job.deadline.map_or(0, |deadline| deadline.ms),
                    stop_if_refused: job.deadline.is_some_and(|deadline| deadline.stops),
                    ..v1::CoflowOptions::default()
                };
                Call::Register(v1::RegisterRequest { options: Some(options), request_key: job.key })
            }
            (Stage::Unregistering, Some(coflow)) => Call::Unregister(coflow),
            _ => return,
        };
        self.call(Caller::Driver(number), call);
    }

    pub(crate) fn driver_hears(&mut self, number: usize, answer: Option<Reply>) {
        match answer {
            Some(Reply::Registered(Some(coflow))) => self.registered(number, coflow),
            Some(Reply::Unregistered(record)) => self.unregistered(number, record),
            _ => {
                let after = self.millis(20, 200);
                self.later(after, Event::Drive { job: number });
            }
        }
    }

    fn registered(&mut self, number: usize, coflow: u64) {
        if let Some(other) = self.jobs.iter().position(|job| job.coflow == Some(coflow)) {
            return self.violate(format!("jobs {other} and {number} were given the same coflow {coflow}"));
        }
        let job = &mut self.jobs[number];
        (job.coflow, job.stage) = (Some(coflow), Stage::Moving);
        // Agents may have heard of it before its driver did.
        job.is_noted = self.noted.contains(&coflow);
        let (blocks, gets, pause, dies) = (job.blocks.len(), job.gets.clone(), job.pause, job.dies);
        for block in 0..blocks {
            let after = self.millis(0, 300);
            self.later(after, Event::Put { job: number, block });
        }
        for get in gets {
            let after = self.millis(0, 400) + pause;
            self.later(after, Event::Get { get });
        }
        if let Some(after) = dies {
            self.later(after, Event::Dies { job: number });
        }
        let after = self.millis(0, 300);
        self.later(after, Event::AsksAdmission { job: number });
        self.renew_later(number);
        if self.hosts.iter().all(|host| host.session.is_some()) {
            self.later(NOTED, Event::IsNoted { job: number });
        }
    }

    /// Where nothing failed, an agent knows of a registration before tasks of the coflow take part.
    pub(crate) fn check_note(&mut self, number: usize) {
        if self.report.faults == 0 && !self.jobs[number].is_noted {
            self.violate(format!("no agent knows how the coflow of job {number} was registered"));
        }
    }

    /// All of a coflow was moved, once, and is counted so.
    fn unregistered(&mut self, number: usize, record: Option<v1::CoflowRecord>) {
        let (life, died_lately) = (self.coordinator.life, self.coordinator.died_lately(self.now));
        let job = &mut self.jobs[number];
        (job.stage, job.ended_by) = (Stage::Over, Some(life));
        job.is_end_forgotten = died_lately;
        let sizes = job.gets.iter().map(|&get| job.blocks[self.gets[get].block].size);
        let moved = (job.gets.len() as u64, sizes.sum());
        let counted = record.map_or((0, 0), |record| (record.flows, record.bytes));
        // What is not acknowledged when an agent or the coordinator is killed is not counted.
        let exact = self.report.faults == 0 && !job.was_refused;
        // Agents know of what they served themselves: a block that is got once more, from another holder, counts once more.
        let copies = job.blocks.len() as u64 - moved.0;
        let most = (moved.0 + copies, job.blocks.iter().map(|block| block.size).sum::<u64>());
        let too_many = (counted.0 > most.0 || counted.1 > most.1) && !self.forgot_done;
        let too_few = counted.0 < moved.0 || counted.1 < moved.1;
        if too_many || (exact && (too_few || (copies == 0 && counted != moved))) {
            self.violate(format!(
                "job {number} moved {moved:?} flows and bytes, and {counted:?} are counted"
            ));
        }
    }

    /// An agent heard how coflows were registered.
    pub(crate) fn noted(&mut self, notes: &[v1::CoflowNote]) {
        self.noted.extend(notes.iter().map(|note| note.coflow));
        for job in &mut self.jobs {
            job.is_noted |= notes.iter().any(|note| Some(note.coflow) == job.coflow);
        }
    }

    /// Whether a coflow is one that no process knows to be short-lived or ended ([`Job::is_forgotten`]).
    pub(crate) fn is_forgotten(&self, coflow: u64) -> bool {
        self.jobs.iter().any(|job| job.coflow == Some(coflow) && job.is_forgotten())
    }

    /// A driver dies, and its tasks with it. Its coflow is collected when its lease has ended.
    pub(crate) fn die(&mut self, number: usize) {
        let job = &mut self.jobs[number];
        if job.stage != Stage::Moving {
            return;
        }
        (job.stage, job.has_died) = (Stage::Over, true);
        for get in job.gets.clone() {
            self.drop_receiver(get);
        }
    }

    fn renew_later(&mut self, number: usize) {
        self.later(Span::from_millis(LEASE_MS / 3), Event::Renew { job: number });
    }

    pub(crate) fn renew(&mut self, number: usize) {
        let Some(coflow) = self.jobs[number].coflow.filter(|_| self.jobs[number].stage == Stage::Moving)
        else {
            return;
        };
        self.call(Caller::Renewal(number), Call::Renew(v1::RenewRequest { coflows: vec![coflow] }));
        self.renew_later(number);
    }

    pub(crate) fn renewal_hears(&mut self, number: usize, answer: Option<Reply>) {
        if let Some(Reply::Renewed(renewed)) = answer
            && !renewed.ended.is_empty()
            && self.jobs[number].stage == Stage::Moving
        {
            self.violate(format!("the coflow of job {number}, which is live, has ended, says a renewal"));
        }
    }

    /// The coordinator ended a coflow because its lease was not renewed.
    pub(crate) fn expired(&mut self, coflow: u64) {
        let live = |job: &crate::jobs::Job| job.coflow == Some(coflow) && job.stage == Stage::Moving;
        if let Some(number) = self.jobs.iter().position(live) {
            self.violate(format!("the coflow of job {number} expired, and its driver lives"));
        }
    }

    /// A task puts its block, or does so again.
    pub(crate) fn put(&mut self, number: usize, block: usize) {
        let job = &self.jobs[number];
        let coflow = job.coflow.filter(|_| !job.blocks[block].is_put && !job.is_over());
        let Some(coflow) = coflow.map(CoflowId) else { return };
        let Block { name, host, size, identity, has_checksums, .. } = &job.blocks[block];
        let checksums = has_checksums.then(|| Content::new(*identity, *size).checksums());
        let (host, path) = (*host, format!("/spool/{number}-{block}"));
        let entry = BlockEntry {
            coflow,
            block: name.clone(),
            path: path.clone(),
            offset: 0,
            size: *size,
            spooled: true,
            frame_checksums: checksums.unwrap_or_default(),
            stamp: None,
            identity: *identity,
            durable: self.settings.durable,
        };
        let waiting = WaitingPut { key: entry.key(), place: entry.place(), caller: (number, block) };
        let side = &mut self.hosts[host as usize];
        let Some(agent) = &mut side.agent else {
            return self.put_later(number, block);
        };
        match agent.handle_put(entry) {
            Ok(()) => {
                side.disk.hollow.remove(&path);
                side.disk.files.insert(path, number);
                side.await_put(waiting);
                // If the agent is killed before it answers, the task puts again.
                self.put_later(number, block);
                self.settle_agent(host);
            }
            // The task waits for its host to take blocks again.
            Err(PutError::Draining) if side.drained_until > Time::ZERO => self.put_later(number, block),
            Err(PutError::Ended(_)) if self.jobs[number].stage != Stage::Moving => {}
            Err(error) => self.violate(format!("block {block} of job {number} is not taken: {error}")),
        }
    }

    fn put_later(&mut self, number: usize, block: usize) {
        let after = self.millis(20, 200);
        self.later(after, Event::Put { job: number, block });
    }

    /// An agent answered for a put.
    pub(crate) fn is_put(&mut self, number: usize, block: usize) {
        let block = &mut self.jobs[number].blocks[block];
        (block.is_put, block.put_at) = (true, self.now);
    }

    /// A host says that a block changed, or does not hold it any more. That may only be where its machine was lost after the put:
    /// then the task runs again. False if it may not be.
    pub(crate) fn put_again(&mut self, number: usize, block: usize) -> bool {
        let of = &self.jobs[number].blocks[block];
        let lost = self.hosts[of.host as usize].disk.lost;
        if of.is_put {
            if self.settings.durable || of.put_at > lost {
                return false;
            }
            self.jobs[number].blocks[block].is_put = false;
            self.put_later(number, block);
        }
        true
    }

    /// Every holder of a block says that it changed.
    pub(crate) fn all_put_again(&mut self, number: usize, block: usize) -> bool {
        let blocks = &self.jobs[number].blocks;
        let name = &blocks[block].name;
        let is_copy = |&at: &usize| blocks[at].name == *name && blocks[at].is_put;
        let copies: Vec<usize> = (0..blocks.len()).filter(is_copy).collect();
        // A receiver that asked before the block was put again may hear so after it was; and a holder that the coordinator does not
        // know at the moment is named to no receiver.
        let is_news = |&at: &usize| {
            self.now.since(blocks[at].put_at) < WORDS_UNDER_WAY || !self.has_told(blocks[at].host)
        };
        let are_news = copies.iter().all(is_news);
        copies.is_empty()
            || copies.into_iter().filter(|&copy| self.put_again(number, copy)).count() > 0
            || are_news
    }

    /// Entries of a journal were lost with a process before they were written: what they say of registrations is on no disk for sure.
    pub(crate) fn forget_notes(&mut self, lost: &[JournalEntry]) {
        for entry in lost {
            if let JournalEntry::Coflow { coflow, .. } = entry {
                self.noted.remove(&coflow.0);
                self.jobs.iter_mut().filter(|job| job.coflow == Some(coflow.0)).for_each(Job::forget_note);
            }
        }
    }

    /// A receiver of a job has its block.
    pub(crate) fn got(&mut self, number: usize) {
        let job = &mut self.jobs[number];
        job.left -= 1;
        if job.left == 0 {
            job.stage = Stage::Unregistering;
            let after = self.millis(0, 50);
            self.later(after, Event::Drive { job: number });
        }
    }

    /// What an agent answered for, and its coflow needs, it holds.
    pub(crate) fn check_puts(&mut self, host: u32) {
        let Some(agent) = &self.hosts[host as usize].agent else { return };
        let mut lost = Vec::new();
        for (number, job) in self.jobs.iter().enumerate().filter(|(_, job)| job.stage == Stage::Moving) {
            let Some(coflow) = job.coflow else { continue };
            let is_lost = |block: &Block| {
                block.is_put
                    && block.host == host
                    && agent.places(CoflowId(coflow), &block.name).next().is_none()
            };
            lost.extend((0..job.blocks.len()).filter(|&at| is_lost(&job.blocks[at])).map(|at| (number, at)));
        }
        for (number, block) in lost {
            if !self.put_again(number, block) {
                let name = &self.jobs[number].blocks[block].name;
                let what = format!("host {host} does not hold {name} of job {number}, which it answered for");
                return self.violate(what);
            }
        }
    }
}
