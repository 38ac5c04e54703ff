//! Sites, what is between them, and the controller's word: which flows of which coflow go by which relays.

use crate::events::Event;
use crate::relays::{name_of, relay_address};
use crate::world::World;
use rand::RngExt;
use std::net::{IpAddr, SocketAddr};
use weir_core::receiver::RelaysOfHost;
use weir_model::{Span, Time};
use weir_proto::v1;

/// What a link between sites has of a host's.
const CAPACITY: f64 = 2.0;
/// How long bytes are on it.
const DELAY: Span = Span::from_millis(5);

impl World {
    pub(crate) fn site_of_host(&self, host: u32) -> u32 {
        host / self.settings.hosts.div_ceil(self.settings.sites())
    }

    pub(crate) fn site_of_relay(&self, relay: u32) -> u32 {
        relay % self.settings.sites()
    }

    pub(crate) fn site_of(&self, machine: u32) -> u32 {
        self.relay_of(machine).map_or_else(|| self.site_of_host(machine), |relay| self.site_of_relay(relay))
    }

    /// The machine that listens at an address.
    pub(crate) fn machine_of(&self, address: SocketAddr) -> u32 {
        let IpAddr::V4(ip) = address.ip() else { return u32::MAX };
        let of_relay = u32::from(ip).checked_sub(0x0a01_0000);
        of_relay.map_or(u32::from(ip) & 0xffff, |relay| self.settings.hosts + relay)
    }

    /// Addresses of a site's relays.
    pub(crate) fn relays_of_site(&self, site: u32) -> Vec<SocketAddr> {
        let of_site = |relay: &u32| self.site_of_relay(*relay) == site;
        (0..self.relays.len() as u32).filter(of_site).map(relay_address).collect()
    }

    /// What an agent says of its site to the receivers of its host.
    pub(crate) fn described(&self, host: u32) -> Option<RelaysOfHost> {
        let site = self.site_of_host(host);
        let is_there = self.hosts[host as usize].agent.is_some() && self.settings.relays > 0;
        is_there.then(|| RelaysOfHost { site, addresses: self.relays_of_site(site) })
    }

    /// When bytes that leave a machine now are at the other one's site.
    pub(crate) fn crossed(&mut self, from: u32, to: u32, bytes: u64) -> Time {
        let (from, to) = (self.site_of(from), self.site_of(to));
        if from == to {
            return self.now;
        }
        let takes = Span::from_nanos((self.settings.time_for(bytes).nanos() as f64 / CAPACITY) as u64);
        let free = self.wide_free.entry((from, to)).or_insert(Time::ZERO);
        *free = (*free).max(self.now) + takes;
        *free + DELAY
    }

    /// A relay that starts hears all there is.
    pub(crate) fn tell_rules(&mut self, relay: u32) {
        let entry = |relay: u32| v1::RelayEntry {
            relay: name_of(relay),
            site: self.site_of_relay(relay),
            data_address: relay_address(relay).to_string(),
        };
        let relays = (0..self.relays.len() as u32).map(entry).collect();
        let list = v1::to_relay::Kind::Relays(v1::RelayList { relays });
        let rules = v1::to_relay::Kind::Rules(self.rules.clone());
        if let Some(core) = &mut self.relays[relay as usize].core {
            core.handle_session_up();
        }
        for kind in [list, rules] {
            self.tell_relay(relay, &v1::ToRelay { kind: Some(kind) });
        }
    }

    /// The controller decides anew, and every relay hears so after a while.
    pub(crate) fn change_rules(&mut self) {
        let live = self.jobs.iter().filter(|job| !job.is_over()).filter_map(|job| job.coflow);
        let live: Vec<u64> = live.collect();
        let mut set = Vec::new();
        for coflow in live {
            if self.rng.random() {
                set.push(self.some_rule(coflow));
            }
        }
        let epoch = self.rules.epoch + 1;
        self.rules = v1::Rules { epoch, complete: true, set, withdrawn: Vec::new() };
        for relay in 0..self.relays.len() as u32 {
            let (after, rules) = (self.delay(), Box::new(self.rules.clone()));
            self.later(after, Event::RulesCome { relay, rules });
        }
        let after = self.millis(20, 500);
        self.later(after, Event::RulesChange);
    }

    fn some_rule(&mut self, coflow: u64) -> v1::Rule {
        let relays = self.relays.len() as u32;
        let next_hops = (0..self.rng.random_range(1..=2)).map(|_| {
            let to = match self.rng.random_range(0..=relays) {
                0 => v1::next_hop::To::Deliver(true),
                relay => v1::next_hop::To::Relay(name_of(relay - 1)),
            };
            v1::NextHop { to: Some(to), weight: self.rng.random_range(1..4).into() }
        });
        let next_hops = next_hops.collect();
        let prefix = Some(v1::FlowPrefix { coflow: Some(coflow), reducer: None, mapper: None });
        // A rule for all flows that pass, and not only for those that enter here, may lead flows in circles.
        let entering = !self.has_circles || self.rng.random_range(0..8) > 0;
        v1::Rule { prefix, next_hops, rank: self.rng.random_range(0..3), weight: 1.0, entering }
    }

    pub(crate) fn rules_come(&mut self, relay: u32, rules: v1::Rules) {
        self.tell_relay(relay, &v1::ToRelay { kind: Some(v1::to_relay::Kind::Rules(rules)) });
        self.settle_relay(relay);
    }
}
