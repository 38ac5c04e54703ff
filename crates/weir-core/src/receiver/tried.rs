//! What went wrong with each holder that was asked, for the error that may come of it.

use std::collections::BTreeMap;

/// Holders of which a get remembers what went wrong.
const MAX_TRIED: usize = 8;

/// By holder (or relay), what went wrong last. The name is empty where the obstacle itself says which.
#[derive(Debug, Default)]
pub(super) struct Tried(BTreeMap<String, String>);

impl Tried {
    pub(super) fn note(&mut self, with: String, obstacle: String) {
        if self.0.len() >= MAX_TRIED && !self.0.contains_key(&with) {
            self.0.pop_first();
        }
        self.0.insert(with, obstacle);
    }

    pub(super) fn forget(&mut self, with: &str) {
        self.0.remove(with);
    }

    pub(super) fn texts(&self) -> Vec<String> {
        let text = |(with, obstacle): (&String, &String)| {
            if with.is_empty() { obstacle.clone() } else { format!("{with}: {obstacle}") }
        };
        self.0.iter().map(text).collect()
    }
}
