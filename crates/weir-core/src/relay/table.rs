//! The forwarding table: which way a flow goes, by longest prefix (Siphon, ATC'18, section 4.2).
//!
//! # Problem
//! A controller must be able to say one thing of all flows of a coflow, another of all flows to one of its
//! receivers, and a third of a single flow, without naming each flow.
//!
//! # Approach
//! Flow ids are hierarchical (coflow, reducer, mapper). A rule is of a prefix of ids, and the longest one that a
//! flow matches holds: the exact rule before any wildcard.
//!
//! # Pseudo-code
//! ```text
//! for prefix in (coflow, reducer, mapper), (coflow, reducer), (coflow), ():
//!     if a rule of that prefix exists: return it
//! ask the controller
//! ```
//!
//! # Properties
//! * A look-up is four searches, whatever the number of rules.
//! * A set of rules whose epoch is not above the last one applied changes nothing.
//!
//! # Departures
//! The paper does not say what a flow does until the controller has answered a miss; here it goes straight to the
//! relay of its receiver, so that nothing waits for a controller.

use crate::planted::{Defect, is_planted};
use std::collections::BTreeMap;
use weir_model::CoflowId;
use weir_proto::relay::FlowKey;
use weir_proto::{limits, v1};

/// The first components of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prefix {
    /// Every flow, whatever its key.
    All,
    /// All flows of a coflow.
    Coflow(CoflowId),
    /// All flows to one receiver of a coflow.
    Reducer(CoflowId, u32),
    /// One flow, by its whole key.
    Flow(FlowKey),
}

impl Prefix {
    /// `None` if a component is there without the one before it.
    pub fn from_wire(prefix: &v1::FlowPrefix) -> Option<Prefix> {
        match (prefix.coflow, prefix.reducer, prefix.mapper) {
            (None, None, None) => Some(Prefix::All),
            (Some(coflow), None, None) => Some(Prefix::Coflow(CoflowId(coflow))),
            (Some(coflow), Some(reducer), None) => Some(Prefix::Reducer(CoflowId(coflow), reducer)),
            (Some(coflow), Some(reducer), Some(mapper)) => {
                Some(Prefix::Flow(FlowKey { coflow, reducer, mapper }))
            }
            _ => None,
        }
    }

    /// The prefixes of a key, longest first.
    fn of(key: FlowKey) -> [Prefix; 4] {
        let (coflow, reducer) = (CoflowId(key.coflow), key.reducer);
        [Prefix::Flow(key), Prefix::Reducer(coflow, reducer), Prefix::Coflow(coflow), Prefix::All]
    }
}

/// Where a rule sends messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// To the relay of that name.
    Relay(String),
    /// Straight to the relay that the receiver listens at.
    Deliver,
}

/// What holds of the flows of a prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Where messages go, and in which proportion; weights are above 0.
    pub next_hops: Vec<(To, f64)>,
    /// Strict priority between flows at a next hop; less goes first.
    pub rank: u64,
    /// Share within a rank, above 0.
    pub weight: f64,
    /// Next hops are for flows that enter here; others go straight to the relay that the receiver listens at.
    pub entering: bool,
}

impl Rule {
    fn from_wire(rule: &v1::Rule) -> Rule {
        let next_hop = |hop: &v1::NextHop| {
            let to = match hop.to.as_ref()? {
                v1::next_hop::To::Relay(name) => To::Relay(name.clone()),
                v1::next_hop::To::Deliver(_) => To::Deliver,
            };
            Some((to, sane(hop.weight)))
        };
        Rule {
            next_hops: rule.next_hops.iter().filter_map(next_hop).collect(),
            rank: rule.rank,
            weight: sane(rule.weight),
            entering: rule.entering,
        }
    }
}

/// A weight from the wire: what is not a number above 0 counts as 1.
fn sane(weight: f64) -> f64 {
    if weight.is_finite() && weight > 0.0 { weight } else { 1.0 }
}

/// The rules of one relay.
#[derive(Clone, Debug, Default)]
pub struct ForwardingTable {
    rules: BTreeMap<Prefix, Rule>,
    epoch: u64,
    stale: u64,
    bad: u64,
}

impl ForwardingTable {
    /// The rule that holds for a flow.
    pub fn lookup(&self, key: FlowKey) -> Option<&Rule> {
        Prefix::of(key).iter().find_map(|prefix| self.rules.get(prefix))
    }

    /// A session with a controller begins: its epochs are its own.
    pub fn begin_session(&mut self) {
        self.epoch = 0;
    }

    /// Takes rules over. False if they are not newer than what is there, which then stays.
    pub fn apply(&mut self, rules: &v1::Rules) -> bool {
        if rules.epoch <= self.epoch {
            self.stale = self.stale.saturating_add(1);
            return false;
        }
        self.epoch = rules.epoch;
        if rules.complete {
            self.rules.clear();
        }
        let is_deaf = is_planted(Defect::WithdrawnKept);
        // Before new rules, so that a prefix that is in both lists ends with its new rule.
        for prefix in rules.withdrawn.iter().filter(|_| !is_deaf).filter_map(Prefix::from_wire) {
            self.rules.remove(&prefix);
        }
        for rule in &rules.set {
            let prefix = rule.prefix.as_ref().and_then(Prefix::from_wire);
            let full = self.rules.len() >= limits::MAX_RULES_PER_RELAY;
            // A full table still takes changes of the rules it has.
            match prefix.filter(|prefix| !full || self.rules.contains_key(prefix)) {
                Some(prefix) => drop(self.rules.insert(prefix, Rule::from_wire(rule))),
                None => self.bad = self.bad.saturating_add(1),
            }
        }
        true
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Sets of rules that were dropped as stale, and rules that were dropped as bad.
    pub fn dropped(&self) -> (u64, u64) {
        (self.stale, self.bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(parts: &[u64]) -> v1::FlowPrefix {
        v1::FlowPrefix {
            coflow: parts.first().copied(),
            reducer: parts.get(1).map(|&part| part as u32),
            mapper: parts.get(2).map(|&part| part as u32),
        }
    }

    fn rule(parts: &[u64], rank: u64) -> v1::Rule {
        v1::Rule { prefix: Some(prefix(parts)), next_hops: Vec::new(), rank, weight: 1.0, entering: false }
    }

    proptest! {
        /// Few values, so that rules and keys meet. The model: of all rules whose components are the key's first
        /// ones, the one with most components.
        #[test]
        fn the_longest_prefix_holds(
            rules in proptest::collection::vec(proptest::collection::vec(0u64..3, 0..=3), 0..20),
            key in (0u64..3, 0u32..3, 0u32..3),
        ) {
            let mut table = ForwardingTable::default();
            let set = rules.iter().zip(0..).map(|(parts, rank)| rule(parts, rank)).collect();
            table.apply(&v1::Rules { epoch: 1, complete: true, set, withdrawn: Vec::new() });
            let parts = [key.0, key.1.into(), key.2.into()];
            let matching = rules.iter().zip(0u64..).filter(|(rule, _)| parts.starts_with(rule));
            let expected = matching.max_by_key(|(rule, rank)| (rule.len(), *rank)).map(|(_, rank)| rank);
            let key = FlowKey { coflow: key.0, reducer: key.1, mapper: key.2 };
            prop_assert_eq!(table.lookup(key).map(|rule| rule.rank), expected);
        }
    }

    #[test]
    fn stale_rules_change_nothing_and_a_new_session_starts_over() {
        let mut table = ForwardingTable::default();
        let rules = |epoch, rank| v1::Rules { epoch, set: vec![rule(&[1], rank)], ..Default::default() };
        let key = FlowKey { coflow: 1, reducer: 0, mapper: 0 };
        let rank = |table: &ForwardingTable| table.lookup(key).map(|rule| rule.rank);
        assert!(table.apply(&rules(5, 10)));
        assert!(!table.apply(&rules(5, 20)) && !table.apply(&rules(4, 30)));
        assert_eq!((rank(&table), table.dropped()), (Some(10), (2, 0)));
        table.begin_session();
        assert!(table.apply(&rules(1, 40)));
        assert_eq!(rank(&table), Some(40));
        assert!(table.apply(&v1::Rules { epoch: 2, withdrawn: vec![prefix(&[1])], ..Default::default() }));
        assert_eq!(rank(&table), None);
    }

    #[test]
    fn a_prefix_with_a_hole_is_refused_and_odd_weights_count_as_one() {
        let hole = v1::FlowPrefix { coflow: Some(1), reducer: None, mapper: Some(2) };
        let bad = v1::Rule { prefix: Some(hole), ..rule(&[1], 0) };
        let deliver = Some(v1::next_hop::To::Deliver(true));
        let next_hops = vec![v1::NextHop { to: deliver, weight: f64::NAN }];
        let odd = v1::Rule { next_hops, weight: -3.0, ..rule(&[2], 0) };
        let mut table = ForwardingTable::default();
        assert!(table.apply(&v1::Rules { epoch: 1, set: vec![bad, odd], ..Default::default() }));
        assert_eq!(table.dropped(), (0, 1));
        let held = table.lookup(FlowKey { coflow: 2, reducer: 0, mapper: 0 }).unwrap();
        assert_eq!((held.weight, &held.next_hops[..]), (1.0, &[(To::Deliver, 1.0)][..]));
    }
}
