//! What fails, and when.

use crate::content::Part;
use crate::coordinator::tuning;
use crate::events::Event;
use crate::world::World;
use rand::RngExt;
use weir_core::agent::Agent;
use weir_core::coordinator::{Change, SessionId, Tuning};
use weir_proto::v1;

impl World {
    /// The next fault, while there are to be any.
    pub(crate) fn next_fault(&mut self) {
        if !self.is_calm() {
            let after = self.millis(20, 400);
            self.later(after, Event::Fault);
        }
    }

    fn some_session(&mut self) -> Option<SessionId> {
        let open = self.sessions.iter().filter(|(_, session)| !session.is_cut);
        let open: Vec<SessionId> = open.map(|(&id, _)| id).collect();
        (!open.is_empty()).then(|| open[self.rng.random_range(0..open.len())])
    }

    pub(crate) fn some_relay(&mut self) -> Option<u32> {
        let relays = self.relays.len() as u32;
        (relays > 0).then(|| self.rng.random_range(0..relays))
    }

    fn some_connection(&mut self) -> Option<u64> {
        let used = self.connections.iter().filter(|(_, connection)| connection.is_open);
        let open: Vec<u64> = used.map(|(&number, _)| number).collect();
        (!open.is_empty()).then(|| open[self.rng.random_range(0..open.len())])
    }

    /// Nothing comes from one machine to another for a while, or, at times, from all machines of one site to the other site.
    fn cut_paths(&mut self) {
        let machines = self.ports.len() as u32;
        let (from, to) = (self.rng.random_range(0..machines), self.rng.random_range(0..machines));
        let until = self.now + self.millis(50, 4_000);
        let (here, there) = (self.site_of(from), self.site_of(to));
        let all = here != there && self.rng.random();
        for one in 0..machines {
            for other in 0..machines {
                let is_cut = if all {
                    self.site_of(one) == here && self.site_of(other) == there
                } else {
                    (one, other) == (from, to)
                };
                if is_cut && one != other {
                    // The time of a path that is cut already stays: what waits for its end keeps its order.
                    let cut = self.cut_until.entry((one, other)).or_insert(until);
                    *cut = if *cut > self.now { *cut } else { until };
                }
            }
        }
    }

    /// Counts a fault. False if it is one that is left out.
    fn is_fault_wanted(&mut self) -> bool {
        let number = self.report.faults_drawn;
        // A fault that is skipped is counted too: those behind it keep their numbers, by which a
        // run is shrunk.
        self.report.faults_drawn += 1;
        let is_wanted = !self.settings.skip_faults.contains(&number);
        self.report.faults += u64::from(is_wanted);
        is_wanted
    }

    /// The coordinator is killed, and started again after a while.
    pub(crate) fn coordinator_dies(&mut self) {
        if self.coordinator.core.is_some() {
            self.kill_coordinator();
            let after = self.millis(5, 2_000);
            self.later(after, Event::CoordinatorStarts);
        }
    }

    /// Where coordinators are killed, one in so many dies soon after it has registered a coflow: few have heard of it then.
    pub(crate) fn may_die_of_a_registration(&mut self) {
        const ONE_IN: u32 = 10;
        let dies =
            self.settings.kills_coordinators && !self.is_calm() && self.rng.random_range(0..ONE_IN) == 0;
        if dies && self.is_fault_wanted() {
            let after = self.millis(0, 20);
            self.later(after, Event::CoordinatorDies);
        }
    }

    /// Of what goes over links, now and then a byte is another one when it arrives, and no checksum of the network's shows it.
    pub(crate) fn may_damage(&mut self, parts: &mut [Part]) {
        const ONE_IN: u32 = 1_000;
        let Some(Part::Payload { is_damaged, .. }) = parts.last_mut() else { return };
        if !self.is_calm() && self.rng.random_range(0..ONE_IN) == 0 && self.is_fault_wanted() {
            *is_damaged = true;
            self.has_damaged = true;
        }
    }

    /// A host is asked to take no more blocks, for a while.
    fn drain_some_host(&mut self) {
        let host = self.some_host();
        if self.ask_to_drain(host, false) {
            self.hosts[host as usize].drained_until = self.now + self.millis(50, 3_000);
            let after = self.millis(50, 500);
            self.later(after, Event::Undrain { host });
        }
    }

    /// Asks the coordinator to; false if it does not hear it.
    fn ask_to_drain(&mut self, host: u32, undo: bool) -> bool {
        let (now, token) = (self.coordinator.now(self.now), self.number());
        let is_standing = self.coordinator.stopped_until > self.now;
        let Some(core) = self.coordinator.core.as_mut().filter(|_| !is_standing) else { return false };
        // Half of the hosts are called by their names.
        let host_name = if host.is_multiple_of(2) { format!("host-{host}") } else { String::new() };
        core.handle_drain(now, token, &v1::DrainRequest { host, host_name, undo });
        self.settle_coordinator();
        true
    }

    /// Its time is over, and the host is to take blocks again. What was asked before may be on its way still: so the call to have it
    /// undone is made once at least after it, and again until the agent does it.
    pub(crate) fn undrain(&mut self, host: u32) {
        let is_over = self.now > self.hosts[host as usize].drained_until;
        let is_asked = is_over && self.ask_to_drain(host, true);
        // An agent that is down may have the drain in its journal: it is looked at again once it is
        // back.
        let is_draining = self.hosts[host as usize].agent.as_ref().is_none_or(Agent::is_draining);
        if !is_asked || is_draining {
            let after = self.millis(50, 500);
            self.later(after, Event::Undrain { host });
        }
    }

    /// The links of a host are faster or slower from now on, as its agent finds out.
    fn change_some_link(&mut self) {
        let host = self.some_host();
        let rate = self.settings.link.scaled([0.5, 1.0, 2.0][self.rng.random_range(0..3)]);
        let side = &mut self.hosts[host as usize];
        side.link_rate = Some(rate);
        if let Some(agent) = &mut side.agent {
            agent.handle_link_rates([Some(rate); 2]);
            self.settle_agent(host);
        }
    }

    /// Another policy takes the place of the one in force, or coflows of another size are left to TCP. A coordinator that starts
    /// anew has those of its start.
    fn change_policy(&mut self) {
        let policies: Vec<&str> =
            weir_policy::registry().iter().filter(|info| !info.between_sites).map(|info| info.name).collect();
        let policy = weir_policy::find(policies[self.rng.random_range(0..policies.len())]);
        let bypass = self.settings.time_for([0, 4_000_000][self.rng.random_range(0..2)]);
        let now = self.coordinator.now(self.now);
        let is_standing = self.coordinator.stopped_until > self.now;
        let core = self.coordinator.core.as_mut().filter(|_| !is_standing);
        let (Some(core), Ok(policy)) = (core, policy) else { return };
        let tuning = Tuning { bypass, ..tuning() };
        core.handle_change(now, Change { policy, tuning, joining: None });
        self.settle_coordinator();
    }

    pub(crate) fn fail(&mut self) {
        if self.is_calm() {
            return;
        }
        if !self.is_fault_wanted() {
            return self.next_fault();
        }
        let kills = self.settings.kills_coordinators && self.rng.random();
        let own = if self.settings.is_open { 32 } else { 26 };
        let kinds = if self.settings.is_controlled() { own + World::KINDS } else { own };
        match if kills { 0 } else { self.rng.random_range(0..kinds) } {
            // First: 26 to 31 are faults of an open network, and in a closed one numbers of
            // controllers' faults begin there.
            kind if kind >= own => self.fail_controllers(kind - own),
            26..28 => self.drain_some_host(),
            28..30 => self.change_some_link(),
            30.. => self.change_policy(),
            0 => self.coordinator_dies(),
            1..4 => {
                let host = self.some_host();
                if self.hosts[host as usize].agent.is_some() {
                    if self.settings.loses_machines && self.rng.random_range(0..2) == 0 {
                        self.lose_machine(host);
                    } else {
                        self.kill_agent(host);
                    }
                    let after = self.millis(5, 2_500);
                    self.later(after, Event::AgentStarts { host });
                }
            }
            4..7 => {
                if let Some(id) = self.some_session() {
                    self.cut(id, None, true);
                }
            }
            10 => {
                let until = self.now + self.millis(50, 4_000);
                // A process that stands already stands until the later of both ends.
                self.coordinator.stopped_until = until.max(self.coordinator.stopped_until);
            }
            11..13 => {
                let (host, until) = (self.some_host(), self.now + self.millis(50, 4_000));
                let side = &mut self.hosts[host as usize];
                side.stopped_until = until.max(side.stopped_until);
            }
            13 => {
                let (host, until) = (self.some_host(), self.now + self.millis(5, 1_000));
                self.hosts[host as usize].disk.full_until = until;
            }
            14..16 => {
                let (span, upward) = (self.millis(50, 4_000), self.rng.random());
                if let Some(id) = self.some_session() {
                    self.stall(id, span, upward);
                }
            }
            16..18 => {
                let until = self.now + self.millis(50, 4_000);
                let get = self.some_connection().and_then(|number| self.connections.get(&number)?.get);
                if let Some((get, _)) = get {
                    let get = &mut self.gets[get];
                    get.stands_until = until.max(get.stands_until);
                }
            }
            22 => self.lie(),
            23 => self.lie_to_coordinator(),
            24..26 => self.cut_paths(),
            18..20 => {
                if let Some(relay) =
                    self.some_relay().filter(|&relay| self.relays[relay as usize].core.is_some())
                {
                    let is_silent = self.rng.random_range(0..4) == 0;
                    self.kill_relay(relay, is_silent);
                    let after = self.millis(5, 2_500);
                    self.later(after, Event::RelayStarts { relay });
                }
            }
            20 => {
                let until = self.now + self.millis(50, 4_000);
                if let Some(relay) = self.some_relay() {
                    let side = &mut self.relays[relay as usize];
                    side.stopped_until = until.max(side.stopped_until);
                }
            }
            _ => {
                if let Some(number) = self.some_connection() {
                    self.break_connection(number);
                }
            }
        }
        self.next_fault();
    }
}
