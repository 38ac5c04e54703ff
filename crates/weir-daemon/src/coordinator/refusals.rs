//! Agents that were refused, so that each of them is told of once, and that it goes on ever more seldom.

use std::collections::BTreeMap;
use weir_core::ids::HostNumber;

/// Agents remembered; beyond that all are told of anew.
const MAX_REMEMBERED: usize = 1_024;

/// How often agents were refused, by host and address.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<(HostNumber, String), u64>);

impl Refusals {
    /// An agent was refused; how often so far, if that is to be told.
    pub(super) fn note(&mut self, host: HostNumber, address: &str) -> Option<u64> {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.clear();
        }
        let count = self.0.entry((host, address.to_owned())).or_default();
        *count += 1;
        // An agent that is refused tries again for ever: each doubling is told.
        count.is_power_of_two().then_some(*count)
    }

    /// An agent was taken.
    pub(super) fn forget(&mut self, host: HostNumber, address: &str) {
        self.0.remove(&(host, address.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_refused_again_and_again_is_told_of_ever_more_seldom() {
        let mut refusals = Refusals::default();
        let one = HostNumber(1);
        let told: Vec<u64> = (0..100).filter_map(|_| refusals.note(one, "a")).collect();
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(refusals.note(one, "b"), Some(1), "another one is news");
        refusals.forget(one, "a");
        assert_eq!(refusals.note(one, "a"), Some(1));
        (0..5_000).for_each(|host| _ = refusals.note(HostNumber(host), "a"));
        assert!(refusals.0.len() <= MAX_REMEMBERED);
    }
}
