//! What a decision means for one relay.

use crate::decision::{Proposal, Split};
use crate::records::{GroupRecord, State};
use std::collections::{BTreeMap, BTreeSet};
use weir_proto::v1;

/// Rules by coflow, and by flow group where it has one of its own.
pub(super) type RuleTable = BTreeMap<Key, v1::Rule>;

/// The coflow that a rule is of, and its flow group if the rule is of one alone.
pub(super) type Key = (u64, Option<u32>);

/// Where a relay is, and which relays it cannot reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    /// Number of the relay's site.
    pub(super) site: u32,
    /// Relays that it cannot reach.
    pub(super) down: &'a BTreeSet<String>,
}

/// Ranks between a coflow and the next one: its flow groups have one each.
const RANKS_PER_COFLOW: u64 = 1 << 32;

/// The rules of a relay: every coflow at its place in the order, and directly. A flow group has one of its own where it has
/// a place of its own within the coflow, or where part of it enters that should take a detour.
pub(super) fn rules_for(at: At<'_>, state: &State, proposal: &Proposal) -> RuleTable {
    let mut rules = RuleTable::new();
    let from_here = proposal.splits.iter().filter(|split| split.from == at.site);
    let splits: BTreeMap<(u64, u32), &Split> =
        from_here.map(|split| ((split.coflow, split.to), split)).collect();
    for (place, &coflow) in (0u64..).zip(&proposal.order) {
        let first = place * RANKS_PER_COFLOW;
        rules.insert((coflow, None), rule(coflow, None, vec![directly(1.0)], first));
        let Some(known) = state.coflows.get(&coflow) else { continue };
        let ranked = proposal.largest_group_first && known.groups.len() > 1;
        for (place, (group, GroupRecord { site: to, .. })) in (0u64..).zip(known.largest_groups_first()) {
            let split = splits.get(&(coflow, to)).filter(|_| known.left.contains_key(&(at.site, to)));
            let hops = split.map_or_else(|| vec![directly(1.0)], |split| next_hops(at, state, split));
            // At the last relay every receiver has a connection of its own.
            if hops != [directly(1.0)] || (ranked && to != at.site) {
                let rank = if ranked { first + place } else { first };
                rules.insert((coflow, Some(group)), rule(coflow, Some(group), hops, rank));
            }
        }
    }
    rules
}

/// Next hops are for what enters at the relay; what other relays divided goes on directly.
fn rule(coflow: u64, reducer: Option<u32>, next_hops: Vec<v1::NextHop>, rank: u64) -> v1::Rule {
    let prefix = v1::FlowPrefix { coflow: Some(coflow), reducer, mapper: None };
    v1::Rule { prefix: Some(prefix), next_hops, rank, weight: 1.0, entering: true }
}

fn directly(weight: f64) -> v1::NextHop {
    v1::NextHop { to: Some(v1::next_hop::To::Deliver(true)), weight }
}

/// The direct path, and the relays within reach at each site of a split, which divide its share equally. The share of a
/// site that has none goes directly.
fn next_hops(at: At<'_>, state: &State, split: &Split) -> Vec<v1::NextHop> {
    let mut direct = 1.0;
    let mut hops = Vec::new();
    for &(site, share) in &split.via {
        let there = state.relays.iter().filter(|(_, relay)| relay.site == site);
        let reachable: Vec<&String> =
            there.map(|(name, _)| name).filter(|name| !at.down.contains(*name)).collect();
        if !reachable.is_empty() {
            direct -= share;
        }
        // Infinite without relays at the site; then no hop is made of it.
        let weight = share / reachable.len() as f64;
        let relay = |name: &String| Some(v1::next_hop::To::Relay(name.clone()));
        hops.extend(reachable.into_iter().map(|name| v1::NextHop { to: relay(name), weight }));
    }
    // A weight of 0 would count as 1.
    if direct > 1e-6 || hops.is_empty() {
        hops.push(directly(direct));
    }
    hops
}

/// The message that makes one table of rules the other, in which `missed` may be missing; none if they are the same.
pub(super) fn differences(
    had: &RuleTable,
    now: &RuleTable,
    missed: &BTreeSet<Key>,
    epoch: u64,
) -> Option<v1::Rules> {
    let set: Vec<v1::Rule> = now
        .iter()
        .filter(|(prefix, rule)| had.get(prefix) != Some(rule) || missed.contains(prefix))
        .map(|(_, rule)| rule.clone())
        .collect();
    let gone = had.keys().filter(|prefix| !now.contains_key(prefix));
    let withdrawn: Vec<v1::FlowPrefix> = gone
        .map(|&(coflow, reducer)| v1::FlowPrefix { coflow: Some(coflow), reducer, mapper: None })
        .collect();
    let any = !set.is_empty() || !withdrawn.is_empty();
    any.then_some(v1::Rules { epoch, complete: false, set, withdrawn })
}

/// The message that says all rules.
pub(super) fn complete(now: &RuleTable, epoch: u64) -> v1::Rules {
    v1::Rules { epoch, complete: true, set: now.values().cloned().collect(), withdrawn: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Finality;
    use crate::records::{CoflowState, GroupRecord, RelayRecord};

    fn state() -> State {
        let relay = |site: u32| RelayRecord { site, data_address: String::new(), session: 0 };
        let names = [("a", 0), ("b", 1), ("c", 2), ("d", 2)];
        let relays = names.into_iter().map(|(name, site)| (name.to_owned(), relay(site))).collect();
        let coflow = |left: &[((u32, u32), f64)], groups: &[(u32, u32, u64)]| CoflowState {
            arrival_ns: 0,
            left: left.iter().copied().collect(),
            groups: groups.iter().map(|&(group, site, bytes)| (group, GroupRecord { site, bytes })).collect(),
        };
        let coflows = [
            (7, coflow(&[((0, 1), 10.0), ((0, 2), 15.0)], &[(0, 1, 10), (1, 2, 15)])),
            (9, coflow(&[((2, 1), 1.0)], &[(4, 1, 1)])),
        ];
        State { relays, coflows: coflows.into_iter().collect(), ..State::default() }
    }

    fn proposal() -> Proposal {
        let splits = vec![Split { coflow: 7, from: 0, to: 1, via: vec![(2, 0.25)] }];
        Proposal {
            epoch: 1,
            finality: Finality::Final,
            maker: String::new(),
            rounds: 0,
            order: vec![9, 7],
            splits,
            largest_group_first: false,
        }
    }

    fn hops(rule: &v1::Rule) -> Vec<(String, f64)> {
        let name = |to: &v1::next_hop::To| match to {
            v1::next_hop::To::Relay(name) => name.clone(),
            v1::next_hop::To::Deliver(_) => "directly".to_owned(),
        };
        rule.next_hops.iter().map(|hop| (hop.to.as_ref().map(name).unwrap_or_default(), hop.weight)).collect()
    }

    #[test]
    fn a_flow_group_has_a_rule_of_its_own_where_part_of_it_enters_for_a_detour() {
        let down = BTreeSet::new();
        let at_source = rules_for(At { site: 0, down: &down }, &state(), &proposal());
        let direct = vec![("directly".to_owned(), 1.0)];
        assert_eq!(at_source.len(), 3);
        assert_eq!((hops(&at_source[&(9, None)]), at_source[&(9, None)].rank), (direct.clone(), 0));
        assert_eq!(
            (hops(&at_source[&(7, None)]), at_source[&(7, None)].rank),
            (direct.clone(), RANKS_PER_COFLOW)
        );
        // A quarter by site 2, where two relays divide it.
        let split = vec![("c".to_owned(), 0.125), ("d".to_owned(), 0.125), ("directly".to_owned(), 0.75)];
        assert_eq!(
            (hops(&at_source[&(7, Some(0))]), at_source[&(7, Some(0))].rank),
            (split.clone(), RANKS_PER_COFLOW)
        );
        // The relay on the way passes on directly.
        let on_the_way = rules_for(At { site: 2, down: &down }, &state(), &proposal());
        assert_eq!((on_the_way.len(), hops(&on_the_way[&(7, None)])), (2, direct.clone()));
        assert!(at_source.values().chain(on_the_way.values()).all(|rule| rule.entering));

        // Group 1 is the larger one of coflow 7. Where it ends it needs no place.
        let largest_first = Proposal { largest_group_first: true, ..proposal() };
        let ranks = |site| {
            let rules = rules_for(At { site, down: &down }, &state(), &largest_first);
            let of_group = |group| rules.get(&(7, Some(group))).map(|rule| (hops(rule), rule.rank));
            (of_group(0), of_group(1))
        };
        let place = |hops: &[(String, f64)], place| Some((hops.to_vec(), RANKS_PER_COFLOW + place));
        assert_eq!(ranks(0), (place(&split, 1), place(&direct, 0)));
        assert_eq!(ranks(2), (place(&direct, 1), None));
    }

    #[test]
    fn a_relay_that_cannot_be_reached_leaves_its_share_to_others_of_its_site_or_to_the_direct_way() {
        let via = |down: &[&str]| {
            let down = down.iter().map(|&name| name.to_owned()).collect();
            let rules = rules_for(At { site: 0, down: &down }, &state(), &proposal());
            rules.get(&(7, Some(0))).map(hops)
        };
        let one = |name: &str| Some(vec![(name.to_owned(), 0.25), ("directly".to_owned(), 0.75)]);
        assert_eq!([via(&["c"]), via(&["d"]), via(&["c", "d"])], [one("d"), one("c"), None]);
    }

    #[test]
    fn differences_make_the_old_rules_the_new_ones() {
        let down = BTreeSet::new();
        let at = At { site: 0, down: &down };
        let before = rules_for(at, &state(), &proposal());
        let after = rules_for(at, &state(), &Proposal { order: vec![7], splits: Vec::new(), ..proposal() });
        assert_eq!(differences(&before, &before, &BTreeSet::new(), 5), None);
        let message = differences(&before, &after, &BTreeSet::new(), 5).expect("a difference");
        let prefix = |coflow, reducer| v1::FlowPrefix { coflow: Some(coflow), reducer, mapper: None };
        assert_eq!(message.withdrawn, [prefix(7, Some(0)), prefix(9, None)]);
        let set: Vec<(Option<v1::FlowPrefix>, u64)> =
            message.set.iter().map(|rule| (rule.prefix, rule.rank)).collect();
        assert_eq!((set, message.epoch), (vec![(Some(prefix(7, None)), 0)], 5));
    }
}
