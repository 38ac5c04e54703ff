//! What the relays attached to one server have told it, and the documents it comes to.

use crate::records::{
    CoflowRecord, GroupRecord, LinksRecord, RelayRecord, coflow_document, links_document, relay_document,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_policy::route::MAX_SITES;
use weir_proto::v1;

/// One stream of one relay, numbered by the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Longest name of a relay.
pub const MAX_RELAY_NAME_BYTES: usize = 255;
/// Relays at one server; more are refused.
pub const MAX_RELAYS: usize = 1_024;
/// Open flows that a server counts; more go as flows without a rule do.
pub const MAX_OPEN_FLOWS: usize = 1_000_000;
/// Measurements kept of each link between two sites; the oldest goes first.
pub const MAX_LINK_SAMPLES: usize = 200;
/// New measurements of a relay are reported this often: draws of decision makers hold in between.
const SAMPLES_INTERVAL: Span = Span::from_millis(1_000);
/// What a relay whose session was lost told stays for so long; it is likely to come back, here or at another server.
pub const LOST_RELAY_GRACE: Span = Span::from_millis(5_000);
/// A flow of unknown size is taken to have as much left as it has moved, and at least this much.
const LEAST_UNKNOWN_BYTES: u64 = 1 << 20;

/// Why a relay's session is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Another version of the protocol.
    #[error("version {0} of the relays' protocol is not spoken here; 1 is")]
    Version(u32),
    /// No name, or one that is too long.
    #[error("a relay's name has between 1 and {MAX_RELAY_NAME_BYTES} bytes")]
    Name,
    /// An address that is none, or too long.
    #[error("`{}` is no address of a relay (IP:PORT)", .0.chars().take(64).collect::<String>().escape_debug())]
    Address(String),
    /// Another relay has the name.
    #[error(
        "relay {name:?} is attached already, from {address}; give each relay a name of its own, or stop that one first"
    )]
    Taken {
        /// Name that both relays have.
        name: String,
        /// Where the one that is attached is reached.
        address: String,
    },
    /// The bound of relays.
    #[error("{MAX_RELAYS} relays are attached here already")]
    TooMany,
}

#[derive(Debug)]
struct KnownFlow {
    destination: u32,
    /// Size in bytes; 0 while it is not known.
    bytes: u64,
    moved: u64,
}

impl KnownFlow {
    fn left(&self) -> u64 {
        match self.bytes {
            0 => self.moved.max(LEAST_UNKNOWN_BYTES),
            bytes => bytes.saturating_sub(self.moved),
        }
    }
}

#[derive(Debug)]
struct KnownCoflow {
    arrival: Time,
    /// By reducer and mapper.
    flows: BTreeMap<(u32, u32), KnownFlow>,
    /// By reducer; flows that ended are counted too.
    groups: BTreeMap<u32, GroupRecord>,
}

#[derive(Debug)]
struct KnownRelay {
    record: RelayRecord,
    session: SessionId,
    /// Since when it is not attached.
    lost: Option<Time>,
    coflows: BTreeMap<u64, KnownCoflow>,
    samples: BTreeMap<u32, VecDeque<f64>>,
    samples_told: Time,
    /// Relays that it cannot reach.
    down: BTreeSet<String>,
}

/// A document, by the relay, coflow or links that it tells of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Document {
    Relay(String),
    Coflow(u64, String),
    Links(String),
}

/// What relays have told.
#[derive(Debug, Default)]
pub(super) struct Known {
    relays: BTreeMap<String, KnownRelay>,
    /// Documents that are not what was taken last.
    changed: BTreeSet<Document>,
    flows: usize,
    /// Flows beyond the bound.
    uncounted: u64,
}

impl Known {
    /// A relay's session begins: what it names is all that is open at it.
    pub(super) fn hello(
        &mut self,
        now: Time,
        session: SessionId,
        hello: &v1::RelayHello,
    ) -> Result<(), HelloError> {
        if hello.version != 1 {
            return Err(HelloError::Version(hello.version));
        }
        let name = &hello.relay;
        if !(1..=MAX_RELAY_NAME_BYTES).contains(&name.len()) {
            return Err(HelloError::Name);
        }
        if hello.data_address.parse::<SocketAddr>().is_err() {
            return Err(HelloError::Address(hello.data_address.clone()));
        }
        // One that comes back comes from where it was.
        let attached = self.relays.get(name).filter(|relay| relay.lost.is_none());
        if let Some(other) = attached.filter(|other| other.record.data_address != hello.data_address) {
            let address = other.record.data_address.clone();
            return Err(HelloError::Taken { name: name.clone(), address });
        }
        if !self.relays.contains_key(name) && self.relays.len() >= MAX_RELAYS {
            return Err(HelloError::TooMany);
        }
        let (arrivals, samples) = self.forget(name).map_or_else(Default::default, |had| {
            // A relay's new session tells no arrivals: coflows that go on keep theirs, or their place in the order would change.
            let arrivals: BTreeMap<u64, Time> =
                had.coflows.iter().map(|(&id, coflow)| (id, coflow.arrival)).collect();
            (arrivals, had.samples)
        });
        // Relays of versions that number no sessions: the time at this server stands for it.
        let number = if hello.session == 0 { now.nanos() } else { hello.session };
        let record =
            RelayRecord { site: hello.site, data_address: hello.data_address.clone(), session: number };
        let relay = KnownRelay {
            record,
            session,
            lost: None,
            coflows: BTreeMap::new(),
            samples,
            samples_told: Time::ZERO,
            down: BTreeSet::new(),
        };
        self.relays.insert(name.clone(), relay);
        self.changed.extend([Document::Relay(name.clone()), Document::Links(name.clone())]);
        for flow in &hello.flows {
            let coflow = flow.key.unwrap_or_default().coflow;
            self.opened(arrivals.get(&coflow).copied().unwrap_or(now), name, flow);
        }
        Ok(())
    }

    /// A flow entered at a relay, which is known.
    pub(super) fn opened(&mut self, now: Time, relay: &str, opened: &v1::RelayFlowOpened) {
        let (Some(key), Some(known)) = (opened.key, self.relays.get_mut(relay)) else { return };
        if self.flows >= MAX_OPEN_FLOWS {
            self.uncounted += 1;
            return;
        }
        let new = || KnownCoflow { arrival: now, flows: BTreeMap::new(), groups: BTreeMap::new() };
        let coflow = known.coflows.entry(key.coflow).or_insert_with(new);
        let flow = KnownFlow {
            destination: opened.destination_site,
            bytes: opened.bytes,
            moved: opened.bytes_moved,
        };
        let group = GroupRecord { site: flow.destination, bytes: 0 };
        if coflow.flows.insert((key.reducer, key.mapper), flow).is_none() {
            self.flows += 1;
            let group = coflow.groups.entry(key.reducer).or_insert(group);
            let unknown = opened.bytes_moved.max(LEAST_UNKNOWN_BYTES);
            let bytes = if opened.bytes == 0 { unknown } else { opened.bytes };
            group.bytes = group.bytes.saturating_add(bytes);
        }
        self.changed.insert(Document::Coflow(key.coflow, relay.to_owned()));
    }

    /// How far flows came.
    pub(super) fn progressed(&mut self, relay: &str, progress: &v1::RelayProgress) {
        let Some(known) = self.relays.get_mut(relay) else { return };
        for progress in &progress.flows {
            let Some(key) = progress.key else { continue };
            let coflow = known.coflows.get_mut(&key.coflow);
            if let Some(flow) = coflow.and_then(|coflow| coflow.flows.get_mut(&(key.reducer, key.mapper))) {
                flow.moved = flow.moved.max(progress.bytes_moved);
                self.changed.insert(Document::Coflow(key.coflow, relay.to_owned()));
            }
        }
    }

    /// A flow is over, whether all of it was sent on or not.
    pub(super) fn ended(&mut self, relay: &str, ended: &v1::RelayFlowEnded) {
        let (Some(key), Some(known)) = (ended.key, self.relays.get_mut(relay)) else { return };
        let Some(coflow) = known.coflows.get_mut(&key.coflow) else { return };
        if coflow.flows.remove(&(key.reducer, key.mapper)).is_some() {
            self.flows -= 1;
        }
        if coflow.flows.is_empty() {
            known.coflows.remove(&key.coflow);
        }
        self.changed.insert(Document::Coflow(key.coflow, relay.to_owned()));
    }

    /// Links of a relay were measured.
    pub(super) fn measured(&mut self, relay: &str, samples: &v1::LinkSamples) {
        let Some(known) = self.relays.get_mut(relay) else { return };
        let usable = |sample: &&v1::LinkSample| sample.bytes_per_s.is_finite() && sample.bytes_per_s > 0.0;
        for sample in samples.links.iter().filter(usable) {
            if known.samples.len() >= MAX_SITES && !known.samples.contains_key(&sample.destination_site) {
                continue;
            }
            let ring = known.samples.entry(sample.destination_site).or_default();
            if ring.len() >= MAX_LINK_SAMPLES {
                ring.pop_front();
            }
            ring.push_back(sample.bytes_per_s);
            self.changed.insert(Document::Links(relay.to_owned()));
        }
    }

    /// A relay reaches another one, or does not any more.
    pub(super) fn next_hop(&mut self, relay: &str, state: &v1::NextHopState) {
        let Some(known) = self.relays.get_mut(relay) else { return };
        if state.up {
            known.down.remove(&state.relay);
        } else if known.down.len() < MAX_RELAYS && state.relay.len() <= MAX_RELAY_NAME_BYTES {
            known.down.insert(state.relay.clone());
        }
    }

    /// A session ended. What its relay told stays for a while.
    pub(super) fn lost(&mut self, now: Time, session: SessionId) {
        let lost = self.relays.values_mut().find(|relay| relay.session == session);
        if let Some(relay) = lost {
            relay.lost = Some(now);
        }
    }

    /// No relay could come back for so long.
    pub(super) fn put_off(&mut self, gap: Span) {
        for relay in self.relays.values_mut() {
            relay.lost = relay.lost.map(|lost| lost + gap);
        }
    }

    /// Forgets relays that were not attached for [`LOST_RELAY_GRACE`].
    pub(super) fn forget_lost(&mut self, now: Time) {
        let over = |relay: &KnownRelay| relay.lost.is_some_and(|lost| lost + LOST_RELAY_GRACE <= now);
        let gone: Vec<String> =
            self.relays.iter().filter(|(_, relay)| over(relay)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.forget(&name);
        }
    }

    /// When [`Known::forget_lost`] has something to do next.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.relays.values().filter_map(|relay| relay.lost).map(|lost| lost + LOST_RELAY_GRACE).min()
    }

    fn forget(&mut self, name: &str) -> Option<KnownRelay> {
        let relay = self.relays.remove(name)?;
        self.flows -= relay.coflows.values().map(|coflow| coflow.flows.len()).sum::<usize>();
        let coflows = relay.coflows.keys().map(|&coflow| Document::Coflow(coflow, name.to_owned()));
        self.changed.extend(coflows);
        self.changed.extend([Document::Relay(name.to_owned()), Document::Links(name.to_owned())]);
        Some(relay)
    }

    /// All relays that are known, with what they are.
    pub(super) fn relays(&self) -> impl Iterator<Item = (&String, &RelayRecord)> {
        self.relays.iter().map(|(name, relay)| (name, &relay.record))
    }

    /// Relays that a relay cannot reach.
    pub(super) fn down(&self, relay: &str) -> Option<&BTreeSet<String>> {
        self.relays.get(relay).map(|relay| &relay.down)
    }

    /// Flows that were not counted, being too many.
    pub(super) fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// Whether some document is not what was taken last.
    pub(super) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Documents that changed since they were taken last; measurements not more often than they are reported.
    pub(super) fn take_changes(&mut self, now: Time) -> Vec<(String, Option<String>)> {
        let mut later = BTreeSet::new();
        let mut taken = Vec::new();
        for document in std::mem::take(&mut self.changed) {
            if let Document::Links(name) = &document
                && let Some(relay) = self.relays.get_mut(name)
            {
                if now.since(relay.samples_told) < SAMPLES_INTERVAL {
                    later.insert(document);
                    continue;
                }
                relay.samples_told = now;
            }
            taken.push((document.name(), self.text(&document)));
        }
        self.changed = later;
        taken
    }

    /// All documents there are.
    pub(super) fn take_all(&mut self, now: Time) -> Vec<(String, Option<String>)> {
        for (name, relay) in &mut self.relays {
            // As if none had been told, so that measurements are part of it whenever the last ones were.
            relay.samples_told = Time::ZERO;
            let coflows = relay.coflows.keys().map(|&coflow| Document::Coflow(coflow, name.clone()));
            self.changed.extend(coflows);
            self.changed.extend([Document::Relay(name.clone()), Document::Links(name.clone())]);
        }
        let mut all = self.take_changes(now);
        // A complete report replaces all documents: there is nothing to take out.
        all.retain(|(_, text)| text.is_some());
        all
    }

    /// What a document says; none: there is none any more.
    fn text(&self, document: &Document) -> Option<String> {
        match document {
            Document::Relay(name) => serde_json::to_string(&self.relays.get(name)?.record).ok(),
            Document::Links(name) => {
                let samples = &self.relays.get(name)?.samples;
                let record: LinksRecord =
                    samples.iter().map(|(&to, ring)| (to, ring.iter().copied().collect())).collect();
                (!record.is_empty()).then(|| serde_json::to_string(&record).ok())?
            }
            Document::Coflow(id, name) => {
                let relay = self.relays.get(name)?;
                serde_json::to_string(&coflow_record(relay.record.site, relay.coflows.get(id)?)).ok()
            }
        }
    }
}

impl Document {
    fn name(&self) -> String {
        match self {
            Document::Relay(relay) => relay_document(relay),
            Document::Links(relay) => links_document(relay),
            Document::Coflow(coflow, relay) => coflow_document(*coflow, relay),
        }
    }
}

/// What is left of a coflow at a relay of a site.
fn coflow_record(site: u32, coflow: &KnownCoflow) -> CoflowRecord {
    let mut left = BTreeMap::new();
    for flow in coflow.flows.values() {
        // What stays within the site takes no link between sites.
        if flow.destination != site {
            *left.entry(flow.destination).or_insert(0.0) += flow.left() as f64;
        }
    }
    CoflowRecord { arrival_ns: coflow.arrival.nanos(), left, groups: coflow.groups.clone() }
}
