//! What a process says of the flow that a socket sends next, and how it says so in the mark of the socket (`SO_MARK`).

use crate::units::{Bytes, Span};

/// The upper three bits of every mark that is a hint.
const KIND: u32 = 0b101;
/// Where in a mark the parts begin: kind, turn, type, size, time.
const KIND_AT: u32 = 29;
const TURN_AT: u32 = 28;
const TYPE_AT: u32 = 26;
const SIZE_AT: u32 = 13;
/// A number in a mark has a power of two in its upper bits, and so many bits after that.
const DIGITS: u32 = 8;
const NUMBER: u32 = (1 << SIZE_AT) - 1;
/// What a time in a mark counts.
const TIME_STEP_NS: u64 = 10_000;

/// What a process knows of the flow that a socket sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It has a deadline: class 0 until then, and by its size after.
    Deadline {
        /// Bytes that the flow has in all.
        size: Bytes,
        /// Time until the deadline, from the hint on.
        within: Span,
    },
    /// Its size is known: one class, by the splitting thresholds.
    Known(Bytes),
    /// Its size is unknown: by bytes sent, from its next packet on.
    Unknown,
}

impl Hint {
    /// The mark that says this on a socket whose mark was `before`, 0 if it had none. A flow begins where the mark of its socket
    /// changes, so two flows that follow each other have different marks, though they be alike.
    ///
    /// Numbers are rounded down, by less than 1/256: sizes to 548 GB, times in steps of 10 us to 63 days.
    pub fn mark_after(self, before: u32) -> u32 {
        // A bit that changes from hint to hint: otherwise a second flow with the same hint would
        // have the same mark, and the tagger would not see that it begins.
        let turn = u32::from(Hint::of_mark(before).is_some()) & !(before >> TURN_AT);
        let (kind, size, time) = match self {
            Hint::Deadline { size, within } => (1, size.0, within.nanos() / TIME_STEP_NS),
            Hint::Known(size) => (2, size.0, 0),
            Hint::Unknown => (3, 0, 0),
        };
        (KIND << KIND_AT) | (turn << TURN_AT) | (kind << TYPE_AT) | (packed(size) << SIZE_AT) | packed(time)
    }

    /// What a mark says, if it is one of ours.
    pub fn of_mark(mark: u32) -> Option<Hint> {
        let size = Bytes(number(mark >> SIZE_AT & NUMBER));
        match (mark >> KIND_AT, mark >> TYPE_AT & 3) {
            (KIND, 1) => {
                let within = Span::from_nanos(number(mark & NUMBER) * TIME_STEP_NS);
                Some(Hint::Deadline { size, within })
            }
            (KIND, 2) => Some(Hint::Known(size)),
            (KIND, 3) => Some(Hint::Unknown),
            _ => None,
        }
    }
}

/// The largest number that has a code and is not above this one.
fn packed(number: u64) -> u32 {
    let length = u64::BITS - number.leading_zeros();
    let Some(power) = length.checked_sub(DIGITS).filter(|&power| power > 0) else { return number as u32 };
    // The ninth digit is always 1 here, and is not written.
    let digits = (number >> (power - 1)) as u32 & ((1 << DIGITS) - 1);
    ((power << DIGITS) | digits).min(NUMBER)
}

fn number(code: u32) -> u64 {
    let (power, digits) = (code >> DIGITS, u64::from(code & ((1 << DIGITS) - 1)));
    if power == 0 { digits } else { ((1 << DIGITS) + digits) << (power - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_down_to_those_that_have_a_code() {
        for (given, kept) in
            [(0, 0), (1, 1), (255, 255), (256, 256), (511, 511), (512, 512), (513, 512), (515, 514)]
        {
            assert_eq!(number(packed(given)), kept, "{given}");
        }
        assert_eq!(number(packed(u64::MAX)), 511 << 30);
    }

    #[test]
    fn marks_are_as_the_program_reads_them() {
        // Three bits of kind, the turn, two of type, 13 of size and of time.
        assert_eq!(Hint::Unknown.mark_after(0), 0xac00_0000);
        assert_eq!(Hint::Known(Bytes(3)).mark_after(0xac00_0000), 0xb800_6000);
        assert_eq!(Hint::Known(Bytes(3)).mark_after(0xb800_6000), 0xa800_6000);
        // What others mean by a mark is no turn.
        assert_eq!(Hint::Unknown.mark_after(0x4000), 0xac00_0000);
        let hint = Hint::Deadline { size: Bytes(1), within: Span::from_nanos(20_000) };
        assert_eq!(hint.mark_after(0), 0xa400_2002);
        assert_eq!(Hint::of_mark(0xa400_2002), Some(hint));
        for other in [0, 1, 0x4000, 0x8000_0000, 0xa000_0000, 0xc400_2002] {
            assert_eq!(Hint::of_mark(other), None, "{other:x}");
        }
    }

    #[test]
    fn what_a_mark_says_is_less_than_a_256th_below_what_was_meant() {
        let mut number = 1_u64;
        while number < 500_000_000_000 {
            // Time in the steps of marks and some more.
            let (size, nanos) = (number, number.saturating_mul(TIME_STEP_NS) + 7);
            let hint = Hint::Deadline { size: Bytes(size), within: Span::from_nanos(nanos) };
            let Some(Hint::Deadline { size: said, within }) = Hint::of_mark(hint.mark_after(0)) else {
                panic!("{hint:?} has no mark");
            };
            assert!(said.0 <= size && (size - said.0) * 256 < size, "{said} of {size}");
            let lost = nanos - within.nanos();
            assert!(lost < nanos / 256 + TIME_STEP_NS, "{within:?} of {nanos} ns");
            number += 1 + number / 7;
        }
    }
}
