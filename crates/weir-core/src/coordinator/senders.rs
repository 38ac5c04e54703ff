//! Loose coordination: what the coordinator does where every sender decides alone (D-CLAS).
//!
//! # Problem
//! Under D-CLAS sizes are not known, and a plan of rates per event is not wanted: a sender divides its uplink by
//! itself. But it cannot know what other senders sent of a coflow, nor who else sends to its receivers.
//!
//! # Approach
//! Every sync interval in which something changed, the coordinator sums what agents say they sent of each
//! coflow, lets the policy that the simulator runs put coflows into queues, and tells each agent the queues that
//! changed. The policy also says how the downlinks would be shared; agents hear of it as limits.
//!
//! # Terminology
//! * attained: bytes sent of a coflow, summed over agents.
//! * place: what orders coflows of a queue; see `ancestry`.
//! * limit: what a receiver's link has for each flow of a coflow, after the coflows before it.
//!
//! # Pseudo-code
//! ```text
//! every sync interval, if a flow began or ended or bytes were reported:
//!     attained of each coflow in the table = sum over agents
//!     plan; queue of each coflow = as the policy has it now
//!     for each agent, unless levels, queues, flows, coflows and links are as at the last sync:
//!         tell it every (coflow, queue, place) that is not what it was told last,
//!         with the limits of the receivers of its own flows of the coflow
//! ```
//!
//! # Properties
//! * No size is used: the table counts on flows of [`UNKNOWN_SIZE`] bytes, and stands still between two syncs.
//! * What is reported twice counts once: reports are sums since ever, and the largest counts.
//! * A limit holds for one sync interval at the longest after what it followed from has changed.
//!
//! # Departures
//! Aalo, section 5: its daemons share ports alone, and what meets at a receiver is left to TCP, which gives
//! every flow the same. Limits are ours: they keep flows of later coflows from taking a receiver's link from
//! earlier ones that other senders serve.

use super::changes::Tuning;
use super::state::{Coordinator, SessionId, flow_key};
use crate::ids::{FlowNumber, HostNumber};
use std::collections::BTreeMap;
use weir_model::{CoflowId, LinkId, Span, Time};
use weir_policy::order::attained::QueueSettings;
use weir_policy::{Chosen, Plan, Slot};
use weir_proto::v1;
use weir_proto::v1::coordinator_message::Kind;

/// Size of a flow in the policy's table while it is not known: more than any has. Sums of as many as may live
/// still fit into 64 bits.
pub(super) const UNKNOWN_SIZE: u64 = 1 << 40;
/// A limit that differs by less than this share from the one told is not told again.
const LIMIT_TOLERANCE: f64 = 0.02;

/// What a coordinator keeps where senders decide.
#[derive(Debug)]
pub(super) struct Senders {
    /// Name of the policy whose rule senders follow.
    policy: &'static str,
    interval: Span,
    settings: QueueSettings,
    last_sync: Option<Time>,
    /// Per coflow of the table and share, the rate that the policy has for each flow at a link; infinite where
    /// the link limits none.
    levels: Levels,
    /// What all agents were told of, as of the last sync,
    queues: Vec<v1::CoflowQueue>,
    /// unless a flow, a coflow or a link changed since: then every agent is looked at.
    disturbed: bool,
}

/// By coflow and share, rates of flows by link.
type Levels = BTreeMap<CoflowId, Vec<BTreeMap<LinkId, f64>>>;

/// What one agent was told last.
#[derive(Debug, Default)]
pub(super) struct Heard {
    coflows: BTreeMap<CoflowId, v1::CoflowQueue>,
    uplink: f64,
}

impl Senders {
    /// `None` where the coordinator decides. An interval among the settings of the policy goes before the coordinator's own.
    pub(super) fn new(tuning: &Tuning, policy: &Chosen) -> Option<Senders> {
        let settings = policy.sender_queues()?;
        let own = Some(settings.sync_interval).filter(|interval| *interval > Span::ZERO);
        let (policy, interval) = (policy.info.name, own.unwrap_or(tuning.sync_interval));
        Some(Senders {
            policy,
            interval,
            settings,
            last_sync: None,
            levels: BTreeMap::new(),
            queues: Vec::new(),
            disturbed: true,
        })
    }

    /// When to sync for something that wants it `at`.
    pub(super) fn sync_due(&self, at: Time) -> Time {
        self.last_sync.map_or(at, |last| at.max(last + self.interval))
    }

    /// Takes over the shares of a plan; it names those that changed.
    fn note_levels(&mut self, plan: &Plan, coflow_of: impl Fn(Slot) -> CoflowId) {
        if !plan.continues {
            self.levels.clear();
        }
        for together in plan.shares.chunk_by(|a, b| a.coflow == b.coflow) {
            let levels = together.iter().map(|share| share.levels.iter().copied().collect());
            self.levels.insert(coflow_of(together[0].coflow), levels.collect());
        }
    }

    /// What the links after an uplink have for a flow on a path: its receiver's, and those of racks. Infinite where the last
    /// share leaves some of each. With several shares, each counts as far as the flow uses it: what it leaves of one is in the
    /// next.
    fn limit(&self, coflow: CoflowId, path: &[LinkId]) -> f64 {
        let shares = self.levels.get(&coflow).map_or(&[][..], Vec::as_slice);
        let least = |levels: &BTreeMap<LinkId, f64>, links: &[LinkId]| {
            let level = |link| levels.get(link).copied().unwrap_or(0.0);
            links.iter().map(level).fold(f64::INFINITY, f64::min)
        };
        let after = path.get(1..).unwrap_or(&[]);
        match shares {
            [] => f64::INFINITY,
            [only] => least(only, after),
            [.., last] if least(last, after).is_infinite() => f64::INFINITY,
            _ => shares.iter().map(|levels| least(levels, path)).sum(),
        }
    }
}

impl Coordinator {
    /// What an agent must know before its session begins.
    pub fn terms(&self) -> v1::TermsReply {
        let sender_rule = self.senders.as_ref().map(|senders| v1::SenderRule {
            policy: senders.policy.to_owned(),
            sync_interval_ns: senders.interval.nanos(),
            queues: senders.settings.queues,
            first_threshold: senders.settings.first_bytes,
            exponent: senders.settings.exponent,
        });
        v1::TermsReply { sender_rule }
    }

    /// What an agent sent of coflows.
    pub(super) fn handle_attained(&mut self, now: Time, session: SessionId, report: &v1::Attained) {
        let Some(host) = self.agents.get(&session).map(|agent| agent.host) else { return };
        for attained in &report.coflows {
            self.note_attained(host, CoflowId(attained.coflow), attained.bytes);
        }
        if self.senders.is_some() {
            self.want_plan(now);
        }
    }

    /// Counts what a host sent of a coflow; it is never less than what was said before.
    pub(super) fn note_attained(&mut self, host: HostNumber, id: CoflowId, bytes: u64) {
        if let Some(coflow) = self.coflows.get_mut(&id) {
            let known = coflow.attained.entry(host).or_default();
            // Reports are sums since ever: what is said twice, as after a new session, counts once.
            *known = bytes.max(*known);
        }
    }

    /// Puts coflows into queues and tells agents what changed.
    pub(super) fn sync(&mut self, now: Time) {
        for slot in self.table.slots().to_vec() {
            let id = self.table.coflow(slot).id();
            let attained = self.coflows.get(&id).map_or(0, super::state::CoflowEntry::attained_bytes) as f64;
            let news = attained - self.table.attained(slot);
            // The table's own sum never shrinks: a coflow does not move up.
            if news > 0.0 {
                self.table.add_attained(slot, news);
            }
        }
        self.plan.clear();
        self.policy.plan(now, self.network.left(), &self.table, &mut self.plan);
        self.table.adopt(&self.plan);
        let gifts = self.gifts.clone();
        self.give_away();
        let queues = self.queues();
        let mut is_same = gifts == self.gifts;
        if let Some(senders) = &mut self.senders {
            senders.last_sync = Some(now);
            // A plan that does not go on from the last one names all levels.
            let before = match self.plan.continues {
                true => senders.levels.clone(),
                false => std::mem::take(&mut senders.levels),
            };
            let live = |id: &CoflowId| self.table.find_coflow(*id).is_some();
            senders.levels.retain(|id, _| live(id));
            senders.note_levels(&self.plan, |slot| self.table.coflow(slot).id());
            is_same &= !std::mem::take(&mut senders.disturbed);
            is_same &= before == senders.levels && queues == senders.queues;
            senders.queues.clone_from(&queues);
        }
        self.count("syncs");
        self.tell_queues(now, &queues, is_same);
    }

    /// Tells agents what changed. Where all is as at the last sync, only those are looked at that are to be told everything:
    /// most syncs are of large coflows that go on, and looking at every flow of every agent takes longer than planning.
    fn tell_queues(&mut self, now: Time, queues: &[v1::CoflowQueue], is_same: bool) {
        let sessions: Vec<(SessionId, bool)> =
            self.agents.iter().map(|(&session, agent)| (session, agent.planned.is_none())).collect();
        for (session, is_due) in sessions {
            if is_same && !is_due {
                debug_assert!(self.news_for(now, session, queues).is_none(), "{session:?} has news");
            } else if let Some(message) = self.news_for(now, session, queues) {
                self.send(now, session, Kind::Queues(message));
            }
        }
    }

    /// A flow, a coflow or a link is not as it was at the last sync.
    pub(super) fn disturb_senders(&mut self) {
        if let Some(senders) = &mut self.senders {
            senders.disturbed = true;
        }
    }

    /// Every coflow of the table, its queue and its place.
    fn queues(&self) -> Vec<v1::CoflowQueue> {
        let queues: BTreeMap<Slot, u32> = self.plan.queues.iter().copied().collect();
        let of = |(slot, coflow): (Slot, &weir_policy::Coflow)| v1::CoflowQueue {
            coflow: coflow.id().0,
            queue: queues.get(&slot).copied().unwrap_or(0),
            place_ns: coflow.place().nanos(),
            limits: Vec::new(),
        };
        self.table.coflows().map(of).collect()
    }

    /// What an agent is to be told; it is told now.
    fn news_for(&mut self, now: Time, session: SessionId, queues: &[v1::CoflowQueue]) -> Option<v1::Queues> {
        let host = self.agents.get(&session)?.host;
        let limits = self.limits(session);
        let uplink = self.uplink_of(host);
        let agent = self.agents.get_mut(&session).filter(|agent| agent.arrival.is_none())?;
        let complete = agent.planned.is_none();
        if complete {
            self.dues.plan(Some(now), session, agent);
            agent.heard = Heard::default();
        }
        let told = &mut agent.heard;
        let mut changed = Vec::new();
        for queue in queues {
            let coflow = CoflowId(queue.coflow);
            let limits = limits.get(&coflow).cloned().unwrap_or_default();
            let queue = v1::CoflowQueue { limits, ..queue.clone() };
            if !told.coflows.get(&coflow).is_some_and(|told| is_close(told, &queue)) {
                told.coflows.insert(coflow, queue.clone());
                changed.push(queue);
            }
        }
        told.coflows.retain(|coflow, _| self.coflows.contains_key(coflow));
        let uplink_changed = uplink != told.uplink;
        told.uplink = uplink;
        let news = complete || !changed.is_empty() || uplink_changed;
        news.then_some(v1::Queues { complete, coflows: changed, uplink })
    }

    /// Bytes per second that a host's uplink has for Weir; 0 outside the fabric.
    pub(super) fn uplink_of(&self, host: HostNumber) -> f64 {
        let uplink = self.network.uplink(host);
        uplink.map_or(0.0, |link| self.network.left().capacity(link).bytes_per_sec())
    }

    /// By coflow, what receivers' links have for the flows that an agent serves.
    pub(super) fn limits(&self, session: SessionId) -> BTreeMap<CoflowId, Vec<v1::ReceiverLimit>> {
        let (Some(senders), Some(agent)) = (&self.senders, self.agents.get(&session)) else {
            return BTreeMap::new();
        };
        let flows = agent.flows.iter().filter_map(|key| self.flows.get(key));
        // With what they have besides, of what other flows do not take.
        let mut pairs: BTreeMap<(CoflowId, HostNumber), f64> = BTreeMap::new();
        for flow in flows {
            let Some(at) = flow.at else { continue };
            let gift = pairs.entry((flow.coflow, flow.destination)).or_default();
            *gift = gift.max(self.gift(at));
        }
        let mut limits: BTreeMap<CoflowId, Vec<v1::ReceiverLimit>> = BTreeMap::new();
        for ((coflow, host), gift) in pairs {
            let Some(path) = self.network.path(agent.host, host) else { continue };
            let bytes_per_s = senders.limit(coflow, &path) + gift;
            if bytes_per_s.is_finite() {
                limits.entry(coflow).or_default().push(v1::ReceiverLimit { host: host.0, bytes_per_s });
            }
        }
        limits
    }

    /// Ends a flow of unknown size: what was sent of it is its size.
    pub(super) fn note_size(&mut self, host: HostNumber, closed: &v1::FlowClosed) {
        if self.senders.is_some()
            && let Some(flow) = self.flows.get_mut(&flow_key(host, FlowNumber(closed.flow)))
        {
            flow.size = closed.sent;
        }
    }
}

/// Whether an agent that was told one need not be told the other.
fn is_close(told: &v1::CoflowQueue, new: &v1::CoflowQueue) -> bool {
    let close = |(a, b): (&v1::ReceiverLimit, &v1::ReceiverLimit)| {
        let (low, high) = (a.bytes_per_s.min(b.bytes_per_s), a.bytes_per_s.max(b.bytes_per_s));
        a.host == b.host && high - low <= LIMIT_TOLERANCE * high
    };
    (told.queue, told.place_ns, told.limits.len()) == (new.queue, new.place_ns, new.limits.len())
        && told.limits.iter().zip(&new.limits).all(close)
}
