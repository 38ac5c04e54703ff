//! Calls that wait: found by what they wait for, by when their time is over, and by who they are, so that an event costs
//! what it touches however many wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_model::Time;

/// Calls that wait for things of kind `K`, with what their answers need.
#[derive(Debug)]
pub(super) struct Callers<K, V> {
    by_thing: BTreeMap<Arc<K>, BTreeMap<u64, V>>,
    by_time: BTreeSet<(Time, u64)>,
    by_token: BTreeMap<u64, (Arc<K>, Time)>,
}

impl<K, V> Default for Callers<K, V> {
    fn default() -> Callers<K, V> {
        Callers { by_thing: BTreeMap::new(), by_time: BTreeSet::new(), by_token: BTreeMap::new() }
    }
}

impl<K: Ord, V> Callers<K, V> {
    /// A call waits, until then at the longest.
    pub(super) fn add(&mut self, thing: K, token: u64, until: Time, value: V) {
        self.remove(token);
        let thing =
            // One copy of the name for all that wait for one thing: the receivers of a broadcast are many.
            self.by_thing.get_key_value(&thing).map_or_else(|| Arc::new(thing), |(had, _)| Arc::clone(had));
        self.by_thing.entry(Arc::clone(&thing)).or_default().insert(token, value);
        self.by_time.insert((until, token));
        self.by_token.insert(token, (thing, until));
    }

    /// A call waits no longer.
    pub(super) fn remove(&mut self, token: u64) {
        let Some((thing, until)) = self.by_token.remove(&token) else { return };
        self.by_time.remove(&(until, token));
        if let Some(calls) = self.by_thing.get_mut(&thing) {
            calls.remove(&token);
            if calls.is_empty() {
                self.by_thing.remove(&thing);
            }
        }
    }

    /// All that wait for a thing, in the order of their tokens: they wait no longer.
    pub(super) fn take(&mut self, thing: &K) -> BTreeMap<u64, V> {
        let calls = self.by_thing.remove(thing).unwrap_or_default();
        for token in calls.keys() {
            if let Some((_, until)) = self.by_token.remove(token) {
                self.by_time.remove(&(until, *token));
            }
        }
        calls
    }

    /// Those of them that match, in the order of their tokens: they wait no longer.
    pub(super) fn take_matching(&mut self, thing: &K, matches: impl Fn(&V) -> bool) -> Vec<u64> {
        let calls = self.by_thing.get(thing).into_iter().flatten();
        let taken: Vec<u64> = calls.filter(|(_, value)| matches(value)).map(|(&token, _)| token).collect();
        taken.iter().for_each(|&token| self.remove(token));
        taken
    }

    /// A call whose time is over: it waits no longer.
    pub(super) fn take_due(&mut self, now: Time) -> Option<(u64, Arc<K>)> {
        let &(_, token) = self.by_time.first().filter(|&&(until, _)| until <= now)?;
        let thing = self.by_token.get(&token).map(|(thing, _)| Arc::clone(thing));
        self.remove(token);
        Some((token, thing?))
    }

    /// When the time of the first one is over.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.by_time.first().map(|&(until, _)| until)
    }

    /// How many wait for a thing.
    pub(super) fn count_of(&self, thing: &K) -> usize {
        self.by_thing.get(thing).map_or(0, BTreeMap::len)
    }

    /// Whether this call waits for this thing.
    pub(super) fn waits_for(&self, token: u64, thing: &K) -> bool {
        self.by_token.get(&token).is_some_and(|(waits_for, _)| **waits_for == *thing)
    }

    /// Number of calls that wait.
    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    /// Things that are waited for, from this one on.
    pub(super) fn things_from<'a>(&'a self, first: &K) -> impl Iterator<Item = &'a Arc<K>> {
        self.by_thing.range::<K, _>(first..).map(|(thing, _)| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_call_is_found_by_its_thing_its_time_and_its_token_and_is_gone_from_all_of_them_at_once() {
        let mut callers = Callers::default();
        for (token, thing, until) in [(1, "a", 30), (2, "a", 10), (3, "b", 20), (4, "b", 20)] {
            callers.add(thing, token, at(until), token * 10);
        }
        assert_eq!((callers.len(), callers.next_due()), (4, Some(at(10))));
        assert_eq!(
            (callers.count_of(&"a"), callers.waits_for(2, &"a"), callers.waits_for(2, &"b")),
            (2, true, false)
        );
        callers.remove(2);
        callers.remove(2);
        assert_eq!((callers.count_of(&"a"), callers.waits_for(2, &"a")), (1, false));
        assert_eq!((callers.len(), callers.next_due()), (3, Some(at(20))));
        assert_eq!(callers.take_due(at(19)), None);
        assert_eq!(callers.take_due(at(20)), Some((3, Arc::new("b"))));
        assert_eq!(callers.take(&"b"), BTreeMap::from([(4, 40)]));
        assert_eq!(callers.things_from(&"a").map(|thing| **thing).collect::<Vec<_>>(), ["a"]);
        assert_eq!(callers.take(&"a"), BTreeMap::from([(1, 10)]));
        assert!(callers.by_thing.is_empty() && callers.by_time.is_empty() && callers.by_token.is_empty());
    }
}
