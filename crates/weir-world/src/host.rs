//! A host: the real agent, its disk, and what drives it.

use crate::data::{Lost, SEGMENT_BYTES};
use crate::disk::Disk;
use crate::events::Event;
use crate::receiver::address_of;
use crate::world::World;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use weir_core::agent::{
    Agent, AgentConfig, Answers, Batches, Crowd, JournalEntry, JournalLines, Output, WaitingPut,
    journal_lines,
};
use weir_core::coordinator::SessionId;
use weir_core::ids::{FlowNumber, HostNumber};
use weir_core::serving::{Conversation, Relays};
use weir_model::{Rate, Span, Time};

/// How long a batch of the journal takes at most.
const WRITE: Span = Span::from_millis(2);

pub(crate) struct Host {
    pub(crate) agent: Option<Agent>,
    /// Which process of the agent it is.
    pub(crate) life: u64,
    pub(crate) session: Option<SessionId>,
    /// When it acts next.
    wakes: Time,
    ahead: Span,
    spool_identity: u64,
    /// Connections by the agent's flows.
    pub(crate) flows: BTreeMap<FlowNumber, u64>,
    pub(crate) disk: Disk,
    /// Of the journal: what is being written, and what waits for room, or is to be written yet; with puts by job and block.
    writing: Vec<JournalEntry>,
    no_room: Vec<JournalEntry>,
    batches: Batches<(usize, usize)>,
    /// The machine is down: nothing answers for it.
    pub(crate) is_down: bool,
    /// Until when its agent stands (SIGSTOP).
    pub(crate) stopped_until: Time,
    /// Relays that it may send by.
    pub(crate) relays: Relays,
    /// When its agent was started last.
    pub(crate) began: Time,
    /// What its links carry, where that has changed.
    pub(crate) link_rate: Option<Rate>,
    /// Until when a call that asks to drain it may be under way or in force.
    pub(crate) drained_until: Time,
}

impl Host {
    pub(crate) fn drawn(rng: &mut ChaCha8Rng) -> Host {
        Host {
            agent: None,
            life: 0,
            session: None,
            wakes: Time::MAX,
            ahead: Span::from_nanos(rng.random_range(0..10_000_000_000)),
            spool_identity: rng.random_range(1..u64::MAX),
            flows: BTreeMap::new(),
            disk: Disk::new(),
            writing: Vec::new(),
            no_room: Vec::new(),
            batches: Batches::default(),
            is_down: false,
            stopped_until: Time::ZERO,
            relays: Relays::new(0, Vec::new()),
            began: Time::ZERO,
            link_rate: None,
            drained_until: Time::ZERO,
        }
    }

    /// What its clock shows.
    pub(crate) fn now(&self, now: Time) -> Time {
        now + self.ahead
    }

    /// A put that the agent took waits for the journal.
    pub(crate) fn await_put(&mut self, put: WaitingPut<(usize, usize)>) {
        self.batches.add_put(put);
    }
}

impl World {
    /// A process of an agent starts, with what the journal has.
    pub(crate) fn start_agent(&mut self, host: u32) {
        let life = self.number();
        if !self.is_calm() && self.rng.random_range(0..5) == 0 {
            // The clock of the machine was set, by days.
            self.hosts[host as usize].ahead = self.millis(0, 3 * 24 * 3_600_000);
        }
        let site = self.site_of_host(host);
        let relays = Relays::new(site, self.relays_of_site(site));
        let (is_open, link) = (self.settings.is_open, self.settings.link);
        let side = &mut self.hosts[host as usize];
        (side.is_down, side.relays, side.began) = (false, relays, self.now);
        let now = side.now(self.now);
        let rate = side.link_rate.unwrap_or(link);
        let mut agent = Agent::new(AgentConfig {
            host: HostNumber(host),
            name: if is_open { format!("host-{host}") } else { String::new() },
            links: [is_open.then_some(rate); 2],
            data_address: address_of(host).to_string(),
            incarnation: now.nanos(),
            spool_identity: side.spool_identity,
            first_plan_wait: Span::from_millis(100),
            report_interval: Span::from_millis(20),
            batch: Span::from_millis(1),
            ..AgentConfig::default()
        });
        agent.gather_ends();
        let found = JournalLines::read(side.disk.journal.as_slice(), |entry| agent.restore(entry))
            .unwrap_or_default();
        // Half a line at the end is taken back: no put was answered for it.
        side.disk.journal.truncate(found.whole as usize);
        agent.handle_boot(&side.disk.boot.to_string(), !found.damaged.is_empty());
        // Files of tasks that died before their put was written down.
        side.disk.files.retain(|path, _| agent.owns(path));
        let has_hole = side.disk.has_hole;
        side.agent = Some(agent);
        (side.life, side.wakes) = (life, Time::MAX);
        if !found.damaged.is_empty() && !has_hole {
            self.violate(format!("host {host}: lines {:?} of the journal are damaged", found.damaged));
        }
        self.check_puts(host);
        self.write_first(host);
        self.settle_agent(host);
        self.connect_later(host);
        self.look_later(host);
    }

    /// What a start finds is on the disk before the agent serves.
    fn write_first(&mut self, host: u32) {
        let side = &mut self.hosts[host as usize];
        let now = side.now(self.now);
        let Some(agent) = &mut side.agent else { return };
        let mut entries = Vec::new();
        while let Some(output) = agent.poll_output(now) {
            match output {
                Output::Journal(entry) => entries.push(entry),
                Output::Discard(path) => _ = side.disk.files.remove(&path),
                _ => {}
            }
        }
        side.disk.journal.extend(journal_lines(&entries).unwrap_or_default());
        side.disk.sync();
    }

    /// It is killed: what is written stays, and some of what is being written.
    pub(crate) fn kill_agent(&mut self, host: u32) {
        let side = &mut self.hosts[host as usize];
        let lines = journal_lines(&side.writing).unwrap_or_default();
        // A write may end anywhere, within a line too.
        let kept = self.rng.random_range(0..=lines.len());
        side.disk.journal.extend_from_slice(&lines[..kept]);
        let is_done = |entry: &JournalEntry| matches!(entry, JournalEntry::Done { .. });
        let whole = kept == lines.len();
        let lost: Vec<JournalEntry> = if whole { Vec::new() } else { std::mem::take(&mut side.writing) };
        let lost: Vec<JournalEntry> = lost.into_iter().chain(side.no_room.drain(..)).collect();
        let lost = [lost, side.batches.waiting().to_vec()].concat();
        side.writing.clear();
        side.batches = Batches::default();
        self.forgot_done |= lost.iter().any(is_done);
        self.forget_notes(&lost);
        let side = &mut self.hosts[host as usize];
        (side.agent, side.stopped_until) = (None, Time::ZERO);
        if let Some(session) = side.session.take() {
            self.cut(session, None, true);
        }
        self.hosts[host as usize].flows.clear();
        let of_host = self.connections.iter_mut().filter(|(_, connection)| connection.from == host);
        let ended = of_host.filter_map(|(&number, connection)| {
            (connection.served, connection.upload) = (None, None);
            let was_open = connection.has_sender();
            (connection.talk, connection.sends) = (None, false);
            was_open.then_some(number)
        });
        let ended: Vec<u64> = ended.collect();
        let is_down = self.hosts[host as usize].is_down;
        for number in ended {
            if is_down { self.fall_silent(number, Lost::Sender) } else { self.lose_receiver(number) }
        }
    }

    pub(crate) fn wake_agent(&mut self, host: u32) {
        let side = &mut self.hosts[host as usize];
        // An event that an earlier one has made needless finds a later time here.
        if side.wakes <= self.now {
            side.wakes = Time::MAX;
            self.settle_agent(host);
        }
    }

    /// Lets an agent act, and does what it wants done.
    pub(crate) fn settle_agent(&mut self, host: u32) {
        let at = self.now;
        let side = &mut self.hosts[host as usize];
        let now = side.now(at);
        let Some(agent) = &mut side.agent else { return };
        agent.handle_timeout(now);
        self.transmit(host, now);
        while let Some(output) =
            self.hosts[host as usize].agent.as_mut().and_then(|agent| agent.poll_output(now))
        {
            match output {
                Output::Journal(entry) => _ = self.hosts[host as usize].batches.add(now, [entry]),
                Output::Cut { key, place } => self.cut_off(host, &key, place.as_ref()),
                Output::Ended(..) | Output::Notice(_) | Output::Offer(_) | Output::Class(..) => {}
                Output::Abort(flow) => {
                    let number = self.hosts[host as usize].flows.get(&flow).copied();
                    number.into_iter().for_each(|number| self.hang_up(number));
                }
                Output::Discard(path) => _ = self.hosts[host as usize].disk.files.remove(&path),
                Output::Suspect(flow) => {
                    let waited = self.hosts[host as usize]
                        .flows
                        .get(&flow)
                        .map(|&number| self.waited(self.carrier(number)));
                    if let (Some(waited), Some(agent)) = (waited, &mut self.hosts[host as usize].agent) {
                        agent.handle_waited(now, flow, waited);
                    }
                }
                Output::Message(message) => self.say_upward(host, message),
            }
        }
        self.write(host);
        self.wake_agent_in_time(host);
    }

    fn wake_agent_in_time(&mut self, host: u32) {
        let side = &self.hosts[host as usize];
        // One batch is written at a time: the next begins when this one is done.
        let writes = side.batches.next_due().filter(|_| !side.batches.is_under_way());
        let next = side.agent.as_ref().and_then(Agent::next_timeout);
        let Some(next) = [next, writes].into_iter().flatten().min() else { return };
        let next = self.not_at_once(Time::from_nanos(next.nanos().saturating_sub(side.ahead.nanos())));
        let side = &mut self.hosts[host as usize];
        if next < side.wakes {
            side.wakes = next;
            self.queue.push(next, Event::AgentWakes { host });
        }
    }

    /// Writes what flows may send to their sockets.
    fn transmit(&mut self, host: u32, now: Time) {
        loop {
            let side = &mut self.hosts[host as usize];
            let Some(agent) = &mut side.agent else { return };
            let Some(transmit) = agent.poll_transmit(now) else { return };
            let flow = transmit.flow;
            let number = side.flows.get(&flow).copied();
            let Some((number, connection)) =
                number.and_then(|number| Some((number, self.connections.get(&number)?)))
            else {
                return self.violate(format!("host {host} sends flow {flow}, which is closed"));
            };
            let carrier =
                connection.upload.and_then(|upload| self.connections.get(&upload)).unwrap_or(connection);
            // As the data plane does: too much is under way, so nothing is written, and the agent decides anew.
            if carrier.in_flight > transmit.in_flight_limit {
                let round_trip = Span::from_nanos(self.settings.delay.nanos());
                let crowd = Crowd { in_flight: carrier.in_flight, round_trip, segment_bytes: SEGMENT_BYTES };
                agent.handle_crowded(now, flow, crowd);
                continue;
            }
            let is_opening = connection.talk.as_ref().is_some_and(Conversation::is_opening);
            let (bytes, is_blocked) =
                if is_opening { (0, true) } else { self.write_flow(number, transmit.bytes) };
            if let Some(agent) = &mut self.hosts[host as usize].agent {
                if is_blocked {
                    agent.handle_blocked(now, flow);
                }
                agent.handle_sent(now, flow, bytes);
            }
        }
    }

    /// Begins to write what waits, if nothing is being written.
    fn write(&mut self, host: u32) {
        let at = self.now;
        let side = &mut self.hosts[host as usize];
        let is_due = side.batches.next_due().is_some_and(|due| due <= side.now(at));
        // What found no room is tried again at once, without new entries too.
        let waits = is_due || !side.no_room.is_empty();
        if !waits || side.batches.is_under_way() || side.agent.is_none() {
            return;
        }
        side.writing = side.batches.begin().entries;
        let life = side.life;
        let after = self.span(WRITE);
        self.later(after, Event::Written { host, life });
    }

    /// The disk has no room: puts of the batch are refused and taken back, all else waits for room.
    fn not_written(&mut self, host: u32) {
        let side = &mut self.hosts[host as usize];
        let Answers { kept, refused } = side.batches.handle_over(false);
        let is_put = |entry: &JournalEntry| matches!(entry, JournalEntry::Put(_));
        side.no_room.extend(side.writing.drain(..).filter(|entry| !is_put(entry)));
        for WaitingPut { key, place, .. } in refused {
            if let Some(agent) = &mut side.agent {
                agent.handle_unwritten(&key, &place);
            }
        }
        kept.into_iter().for_each(|(job, block)| self.is_put(job, block));
        self.settle_agent(host);
    }

    pub(crate) fn written(&mut self, host: u32, life: u64) {
        let side = &mut self.hosts[host as usize];
        // The batch was being written by a process that was killed: its fate was drawn then.
        if side.life != life || side.agent.is_none() {
            return;
        }
        if side.disk.full_until > self.now {
            return self.not_written(host);
        }
        let writing: Vec<JournalEntry> = side.no_room.drain(..).chain(side.writing.drain(..)).collect();
        side.disk.journal.extend(journal_lines(&writing).unwrap_or_default());
        let puts = side.batches.handle_over(true).kept;
        if !puts.is_empty() {
            self.sync_for_puts(host);
        }
        self.sync_later(host);
        for (job, block) in puts {
            self.is_put(job, block);
        }
        self.settle_agent(host);
    }
}
