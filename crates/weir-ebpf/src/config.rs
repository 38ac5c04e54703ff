//! What a tagger is told: thresholds, DSCPs, and what a flow is. Written for the program as bytes.

use crate::error::ConfigError;
use rustix::time::{ClockId, clock_gettime};
use weir_endhost::tagging::{CLASSES, DEFAULT_DSCP};
use weir_endhost::thresholds::Thresholds;
use weir_model::{Hint, Span};

/// Number of thresholds: one fewer than [`CLASSES`].
const THRESHOLDS: usize = CLASSES - 1;
/// `from` of a flow of which no packet was seen.
const NOT_BEGUN: u64 = u64::MAX;

/// What becomes of sockets without a [`Hint`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unhinted {
    /// Their packets are left as they are.
    #[default]
    Untouched,
    /// They are flows of unknown size, by the bytes that they sent since they were connected.
    Unknown,
}

/// By what a tagger goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Thresholds of bytes sent (unknown size) and of size (known size).
    pub thresholds: Thresholds,
    /// The first class of flows without a deadline: 1 where there are deadlines, which have class 0 to themselves.
    pub best: u8,
    /// DSCP of each class, 0 to 63.
    pub dscp: [u8; CLASSES],
    /// Whether the mark of a socket is a hint, as [`Hint::mark_after`] makes it.
    pub marks: bool,
    /// What becomes of other sockets.
    pub unhinted: Unhinted,
    /// A flow of unknown size that sent nothing for longer begins anew, as connections do that carry one message after the
    /// other. To be well above a retransmission timeout.
    pub idle: Option<Span>,
    /// After so many timeouts in a row a flow of unknown size begins anew, and another one rises by a class.
    pub ages_after: Option<u32>,
}

impl Config {
    /// With these thresholds, class 0 for deadlines, hinted sockets alone, no marks, and no ageing.
    pub fn new(thresholds: Thresholds) -> Config {
        let (unhinted, idle, ages_after) = (Unhinted::Untouched, None, None);
        Config { thresholds, best: 1, dscp: DEFAULT_DSCP, marks: false, unhinted, idle, ages_after }
    }

    /// Whether all levels have a class, and all classes a DSCP.
    ///
    /// # Errors
    /// [`ConfigError`] says what has not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (levels, best) = (self.thresholds.levels(), self.best);
        if levels + usize::from(best) > CLASSES {
            return Err(ConfigError::Levels { levels, best });
        }
        match (0..).zip(self.dscp).find(|(_, dscp)| *dscp > 63) {
            Some((class, dscp)) => Err(ConfigError::Dscp { class, dscp }),
            None => Ok(()),
        }
    }

    /// As `struct settings` of the program has it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut numbers = Vec::with_capacity(2 * THRESHOLDS + 1);
        for kind in [self.thresholds.demotion(), self.thresholds.splitting()] {
            // No flow has so many bytes: a threshold that is not used is never reached.
            let unused = std::iter::repeat(u64::MAX);
            numbers.extend(kind.iter().map(|bytes| bytes.0).chain(unused).take(THRESHOLDS));
        }
        numbers.push(self.idle.map_or(0, Span::nanos));
        let tags_all = u32::from(self.unhinted == Unhinted::Unknown);
        let small = [u32::from(self.best), tags_all, self.ages_after.unwrap_or(0), u32::from(self.marks)];
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_ne_bytes).collect();
        bytes.extend(small.into_iter().flat_map(u32::to_ne_bytes));
        bytes.extend(self.dscp);
        bytes
    }
}

/// A hint as `struct flow` of the programs has it.
pub(crate) fn flow_bytes(hint: Hint) -> Vec<u8> {
    match hint {
        Hint::Deadline { size, within } => bytes_of(1, size.0, monotonic_ns().saturating_add(within.nanos())),
        Hint::Known(size) => bytes_of(2, size.0, 0),
        Hint::Unknown => bytes_of(3, 0, 0),
    }
}

/// A flow that is to be in a class, whatever it sends, likewise.
pub(crate) fn placed_bytes(class: u8) -> Vec<u8> {
    bytes_of(4, class.into(), 0)
}

fn bytes_of(kind: u32, size: u64, deadline_ns: u64) -> Vec<u8> {
    let last_ns = 0;
    let numbers = [size, deadline_ns, NOT_BEGUN, last_ns];
    let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_ne_bytes).collect();
    // Behind the kind: when it aged, by how many classes it rose, and its mark, all of which the
    // program keeps itself.
    bytes.extend([kind, 0, 0, 0].into_iter().flat_map(u32::to_ne_bytes));
    bytes
}

/// The clock that the program reads.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Bytes;

    fn levels(count: u64) -> Thresholds {
        Thresholds::same((1..count).map(|level| Bytes(level * 1000)).collect())
    }

    #[test]
    fn eight_levels_fit_where_deadlines_have_no_class_and_seven_where_they_have() {
        let config = |count, best| Config { best, ..Config::new(levels(count)) };
        assert_eq!(config(8, 0).check(), Ok(()));
        assert_eq!(config(7, 1).check(), Ok(()));
        assert_eq!(config(8, 1).check(), Err(ConfigError::Levels { levels: 8, best: 1 }));
        let said = config(9, 1).check().unwrap_err().to_string();
        assert!(said.ends_with("give at most 6 thresholds"), "{said}");
    }

    #[test]
    fn a_dscp_of_more_than_six_bits_is_refused() {
        let mut config = Config::new(levels(2));
        config.dscp[3] = 64;
        assert_eq!(config.check(), Err(ConfigError::Dscp { class: 3, dscp: 64 }));
    }

    #[test]
    fn settings_and_flows_have_the_sizes_of_the_program() {
        // 7 + 7 thresholds and a time of 8 bytes, 4 numbers of 4, 8 of 1.
        assert_eq!(Config::new(levels(3)).to_bytes().len(), 15 * 8 + 4 * 4 + 8);
        assert_eq!(flow_bytes(Hint::Unknown).len(), 4 * 8 + 4 * 4);
    }
}
