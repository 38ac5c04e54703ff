//! Instants and spans of a packet's life: whole picoseconds.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use weir_model::{Rate, Span, Time};

const PICOS_PER_NANO: u64 = 1_000;
const PICOS_PER_SEC: f64 = 1e12;
/// A serialization time per byte keeps this many binary places below the picosecond.
const FRACTION_BITS: u32 = 16;

/// An instant since the run began, or a length of time: whole picoseconds. A byte takes 80 of them at 100 Gbit/s,
/// so that no rate in use is rounded. Sums and conversions
/// beyond 213 days give [`Picos::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Picos {
    /// The beginning, or no time at all.
    pub const ZERO: Picos = Picos(0);
    /// Later than every event.
    pub const MAX: Picos = Picos(u64::MAX);

    /// So many nanoseconds, at most [`Picos::MAX`].
    pub const fn from_nanos(nanos: u64) -> Picos {
        Picos(nanos.saturating_mul(PICOS_PER_NANO))
    }
    /// So many microseconds, at most [`Picos::MAX`].
    pub const fn from_micros(micros: u64) -> Picos {
        Picos::from_nanos(micros.saturating_mul(1_000))
    }
    /// So many milliseconds, at most [`Picos::MAX`].
    pub const fn from_millis(millis: u64) -> Picos {
        Picos::from_micros(millis.saturating_mul(1_000))
    }
    /// The nearest picosecond to so many seconds; what is negative or not a number is zero.
    pub fn from_secs(secs: f64) -> Picos {
        // `as` saturates: negative values and NaN give 0, what is too large gives `Picos::MAX`.
        Picos((secs * PICOS_PER_SEC).round() as u64)
    }
    /// The time as a number of seconds.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / PICOS_PER_SEC
    }
    /// The time from `earlier` until now, zero if that is later.
    pub fn since(self, earlier: Picos) -> Picos {
        Picos(self.0.saturating_sub(earlier.0))
    }
    /// So many times this span, rounded down.
    pub fn times(self, factor: f64) -> Picos {
        Picos((self.0 as f64 * factor) as u64)
    }
}

impl From<Span> for Picos {
    fn from(span: Span) -> Picos {
        Picos::from_nanos(span.nanos())
    }
}
impl From<Time> for Picos {
    fn from(time: Time) -> Picos {
        Picos::from_nanos(time.nanos())
    }
}
impl From<Picos> for Time {
    /// The first whole nanosecond that is not earlier.
    fn from(picos: Picos) -> Time {
        Time::from_nanos(picos.0.div_ceil(PICOS_PER_NANO))
    }
}
impl Add for Picos {
    type Output = Picos;
    fn add(self, other: Picos) -> Picos {
        Picos(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Picos {
    fn add_assign(&mut self, other: Picos) {
        self.0 = self.0.saturating_add(other.0);
    }
}
impl Sub for Picos {
    type Output = Picos;
    fn sub(self, other: Picos) -> Picos {
        Picos(self.0 - other.0)
    }
}
impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} us", self.0 as f64 / 1e6)
    }
}

/// How long a link needs per byte: picoseconds with a binary fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PerByte(u64);

impl PerByte {
    /// Of a link of this rate.
    pub(crate) fn at(rate: Rate) -> PerByte {
        let picos = PICOS_PER_SEC / rate.bytes_per_sec();
        PerByte((picos * f64::from(1_u32 << FRACTION_BITS)).round() as u64)
    }
    /// The time that `bytes` take.
    #[inline]
    pub(crate) fn of(self, bytes: u32) -> Picos {
        // No overflow: on the slowest link that a topology may have, 1 kbit/s, a byte is below 2^49
        // here, and packets have at most 1500 bytes.
        Picos((u64::from(bytes) * self.0) >> FRACTION_BITS)
    }
    /// The same of more than a packet has; the longest time there is where they take longer.
    pub(crate) fn of_many(self, bytes: u64) -> Picos {
        let picos = (u128::from(bytes) * u128::from(self.0)) >> FRACTION_BITS;
        u64::try_from(picos).map_or(Picos::MAX, Picos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_exact_time() {
        let cases = [(1e9, 12_000_000), (10e9, 1_200_000), (40e9, 300_000), (100e9, 120_000)];
        for (bits, picos) in cases {
            assert_eq!(PerByte::at(Rate::from_bits_per_sec(bits)).of(1500), Picos(picos));
        }
        // 30 Gbit/s: 266 2/3 ps a byte.
        assert_eq!(PerByte::at(Rate::from_bits_per_sec(30e9)).of(1500), Picos(400_000));
        // 1 kbit/s: 8 ms a byte.
        let slow = PerByte::at(Rate::from_bits_per_sec(1e3));
        assert_eq!(slow.of_many(1500), slow.of(1500));
        assert_eq!(slow.of_many(360_000), Picos::from_secs(2880.0));
        assert_eq!(slow.of_many(u64::MAX), Picos::MAX);
    }

    #[test]
    fn times_convert_without_loss_and_round_up_to_nanoseconds() {
        assert_eq!(Picos::from(Span::from_millis(2)), Picos::from_millis(2));
        assert_eq!(Time::from(Picos(1_001)).nanos(), 2);
        assert_eq!(Picos::from_secs(-1.0), Picos::ZERO);
    }
}
