//! What a decision means for one relay.

use crate::decision::{Proposal, Split};
use crate::records::State;
use std::collections::{BTreeMap, BTreeSet};
use weir_proto::v1;

/// Rules by coflow, and by flow group where it has one of its own.
pub(super) type RuleTable = BTreeMap<(u64, Option<u32>), v1::Rule>;

/// Who a relay is, and whom it cannot reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    /// Its site.
    pub(super) site: u32,
    /// Relays that it cannot reach.
    pub(super) down: &'a BTreeSet<String>,
}

/// The rules of a relay: every coflow at its place in the order, and directly; flow groups to sites that part of the bytes
/// should reach by a detour, with a next hop for each path.
pub(super) fn rules_for(at: At<'_>, state: &State, proposal: &Proposal) -> RuleTable {
    let mut rules = RuleTable::new();
    let splits: BTreeMap<u32, &Split> =
        proposal.splits.iter().filter(|split| split.from == at.site).map(|split| (split.to, split)).collect();
    for (rank, &coflow) in (0u64..).zip(&proposal.order) {
        rules.insert((coflow, None), rule(coflow, None, vec![directly(1.0)], rank));
        let Some(known) = state.coflows.get(&coflow) else { continue };
        for (&group, to) in &known.groups {
            let enters_here = known.left.contains_key(&(at.site, *to));
            let Some(split) = splits.get(to).filter(|_| enters_here) else { continue };
            let hops = next_hops(at, state, split);
            if hops.len() > 1 {
                rules.insert((coflow, Some(group)), rule(coflow, Some(group), hops, rank));
            }
        }
    }
    rules
}

fn rule(coflow: u64, reducer: Option<u32>, next_hops: Vec<v1::NextHop>, rank: u64) -> v1::Rule {
    let prefix = v1::FlowPrefix { coflow: Some(coflow), reducer, mapper: None };
    v1::Rule { prefix: Some(prefix), next_hops, rank, weight: 1.0 }
}

fn directly(weight: f64) -> v1::NextHop {
    v1::NextHop { to: Some(v1::next_hop::To::Deliver(true)), weight }
}

/// The direct path, and a relay at each site of a split that has one within reach. What is left out goes directly.
fn next_hops(at: At<'_>, state: &State, split: &Split) -> Vec<v1::NextHop> {
    let mut direct = 1.0;
    let mut hops = Vec::new();
    for &(site, share) in &split.via {
        let reachable = |(name, relay): &(&String, &crate::records::RelayRecord)| {
            relay.site == site && !at.down.contains(*name)
        };
        if let Some((name, _)) = state.relays.iter().find(reachable) {
            direct -= share;
            hops.push(v1::NextHop { to: Some(v1::next_hop::To::Relay(name.clone())), weight: share });
        }
    }
    // A weight of 0 would count as 1.
    if direct > 1e-6 || hops.is_empty() {
        hops.push(directly(direct));
    }
    hops
}

/// The message that makes one table of rules the other; none if they are the same.
pub(super) fn differences(had: &RuleTable, now: &RuleTable, epoch: u64) -> Option<v1::Rules> {
    let set: Vec<v1::Rule> = now
        .iter()
        .filter(|(prefix, rule)| had.get(prefix) != Some(rule))
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
    use crate::records::{CoflowState, RelayRecord};

    fn state() -> State {
        let relay = |site: u32| RelayRecord { site, data_address: String::new(), since_ns: 0 };
        let names = [("a", 0), ("b", 1), ("c", 2), ("d", 2)];
        let relays = names.into_iter().map(|(name, site)| (name.to_owned(), relay(site))).collect();
        let coflow = |left: &[((u32, u32), f64)], groups: &[(u32, u32)]| CoflowState {
            arrival_ns: 0,
            left: left.iter().copied().collect(),
            groups: groups.iter().copied().collect(),
        };
        let coflows = [
            (7, coflow(&[((0, 1), 10.0), ((0, 2), 5.0)], &[(0, 1), (1, 2)])),
            (9, coflow(&[((2, 1), 1.0)], &[(4, 1)])),
        ];
        State { relays, coflows: coflows.into_iter().collect(), ..State::default() }
    }

    fn proposal() -> Proposal {
        let splits = vec![Split { from: 0, to: 1, via: vec![(2, 0.25)] }];
        Proposal {
            epoch: 1,
            finality: Finality::Final,
            maker: String::new(),
            rounds: 0,
            order: vec![9, 7],
            splits,
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
        assert_eq!((hops(&at_source[&(7, None)]), at_source[&(7, None)].rank), (direct.clone(), 1));
        let split = vec![("c".to_owned(), 0.25), ("directly".to_owned(), 0.75)];
        assert_eq!((hops(&at_source[&(7, Some(0))]), at_source[&(7, Some(0))].rank), (split, 1));
        // The relay on the way passes on directly.
        let on_the_way = rules_for(At { site: 2, down: &down }, &state(), &proposal());
        assert_eq!((on_the_way.len(), hops(&on_the_way[&(7, None)])), (2, direct));
    }

    #[test]
    fn a_relay_that_cannot_be_reached_is_replaced_by_another_of_its_site_or_by_the_direct_way() {
        let via = |down: &[&str]| {
            let down = down.iter().map(|&name| name.to_owned()).collect();
            let rules = rules_for(At { site: 0, down: &down }, &state(), &proposal());
            rules.get(&(7, Some(0))).map(|rule| hops(rule)[0].0.clone())
        };
        assert_eq!([via(&[]), via(&["c"]), via(&["c", "d"])], [Some("c".into()), Some("d".into()), None]);
    }

    #[test]
    fn differences_make_the_old_rules_the_new_ones() {
        let down = BTreeSet::new();
        let at = At { site: 0, down: &down };
        let before = rules_for(at, &state(), &proposal());
        let after = rules_for(at, &state(), &Proposal { order: vec![7], splits: Vec::new(), ..proposal() });
        assert_eq!(differences(&before, &before, 5), None);
        let message = differences(&before, &after, 5).expect("a difference");
        let prefix = |coflow, reducer| v1::FlowPrefix { coflow: Some(coflow), reducer, mapper: None };
        assert_eq!(message.withdrawn, [prefix(7, Some(0)), prefix(9, None)]);
        let set: Vec<(Option<v1::FlowPrefix>, u64)> =
            message.set.iter().map(|rule| (rule.prefix, rule.rank)).collect();
        assert_eq!((set, message.epoch), (vec![(Some(prefix(7, None)), 0)], 5));
    }
}
