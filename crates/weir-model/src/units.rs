//! Units. Instants and spans are whole nanoseconds, sizes whole bytes, rates bytes per second.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

/// An instant: whole nanoseconds since the origin of its clock. That is the start of a simulated run, or what the driver of a live
/// state machine takes (`weir_net::Clock`: the Unix epoch). Instants of different clocks are not compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in whole nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A rate or capacity in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(f64);

const NANOS_PER_SEC: f64 = 1e9;
/// What rounding may add to a time, in nanoseconds.
const NOISE_NANOS: f64 = 0.01;

impl Time {
    /// The instant that others count from.
    pub const ZERO: Time = Time(0);
    /// Later than every event.
    pub const MAX: Time = Time(u64::MAX);

    /// An instant from whole nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }
    /// An instant from whole milliseconds, the unit of the Facebook trace; the last one where they are too many.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(1_000_000))
    }
    /// Nanoseconds since the beginning.
    pub const fn nanos(self) -> u64 {
        self.0
    }
    /// Seconds since the beginning.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }
    /// The span since `earlier`, zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than every run.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of whole nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }
    /// A span of whole milliseconds; the longest one where they are too many.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis.saturating_mul(1_000_000))
    }
    /// The shortest whole number of nanoseconds that is not less than `secs` seconds: work that takes
    /// `secs` is complete at the first nanosecond by which all of it is done. Negative and NaN give
    /// zero; too long gives [`Span::MAX`].
    pub fn from_secs_ceil(secs: f64) -> Span {
        Span((secs * NANOS_PER_SEC).ceil() as u64)
    }
    /// As [`Span::from_secs_ceil`], for sums that floating point may have left a little too large: less than a
    /// hundredth of a nanosecond after a whole one is on it.
    #[inline]
    pub fn until_done(secs: f64) -> Span {
        let nanos = secs * NANOS_PER_SEC;
        // A float too large for the integer becomes its largest value.
        let whole = nanos as u64;
        Span(whole.saturating_add(u64::from(whole as f64 + NOISE_NANOS < nanos)))
    }
    /// The length in whole nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }
    /// The length in seconds.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}
impl Sub<Time> for Time {
    type Output = Span;
    fn sub(self, earlier: Time) -> Span {
        self.since(earlier)
    }
}
impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}
impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.0 += other.0;
    }
}
impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0 - other.0)
    }
}
impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        self.0 -= other.0;
    }
}
impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(sizes: I) -> Bytes {
        Bytes(sizes.map(|size| size.0).sum())
    }
}
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1000.0 && unit + 1 < UNITS.len() {
            value /= 1000.0;
            unit += 1;
        }
        if unit == 0 { write!(f, "{} B", self.0) } else { write!(f, "{value:.1} {}", UNITS[unit]) }
    }
}

impl Rate {
    /// No bytes per second: nothing moves.
    pub const ZERO: Rate = Rate(0.0);

    /// Share of a link's rate that TCP has for payload: 1448 bytes of every frame of 1514.
    pub const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;

    /// Payload that TCP can have of a link of this rate.
    pub fn payload(self) -> Rate {
        self.scaled(Rate::PAYLOAD_SHARE)
    }

    /// A rate from bytes per second.
    pub const fn from_bytes_per_sec(rate: f64) -> Rate {
        Rate(rate)
    }
    /// A rate from bits per second.
    pub const fn from_bits_per_sec(rate: f64) -> Rate {
        Rate(rate / 8.0)
    }
    /// The rate in bytes per second.
    pub const fn bytes_per_sec(self) -> f64 {
        self.0
    }
    /// The rate in bits per second.
    pub const fn bits_per_sec(self) -> f64 {
        self.0 * 8.0
    }
    /// A rate of which only the given share may be used.
    pub fn scaled(self, share: f64) -> Rate {
        Rate(self.0 * share)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_sec();
        for (scale, unit) in [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")] {
            if bits >= scale {
                return write!(f, "{} {unit}", (bits / scale * 1000.0).round() / 1000.0);
            }
        }
        write!(f, "{bits} bit/s")
    }
}

/// A quantity with a unit that could not be read, as in `--link-rate 1gbit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUnitError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.text, self.expected)
    }
}
impl std::error::Error for ParseUnitError {}

/// Splits `12.5mbit` into a non-negative finite number and its unit.
fn split_exact(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    value.is_finite().then(|| (value, text[end..].trim()))
}

/// As [`split_exact`], with the unit in lower case.
fn split_unit(text: &str) -> Option<(f64, String)> {
    split_exact(text).map(|(value, unit)| (value, unit.to_ascii_lowercase()))
}

/// Bits in what a rate counts, `bit/s`, `bps`, `b/s`, `B/s` or `Bps`, each with or without a decimal prefix. A small b
/// stands for bits and a large one for bytes; all in capitals (`GBPS`) it could be either.
fn bits_of_rate(unit: &str) -> Option<f64> {
    let scale = match unit.chars().next()?.to_ascii_lowercase() {
        'k' => 1e3,
        'm' => 1e6,
        'g' => 1e9,
        't' => 1e12,
        _ => 1.0,
    };
    // A prefix is an ASCII letter, so one byte.
    let counted = if scale > 1.0 { &unit[1..] } else { unit };
    let bits = match counted {
        "B/s" | "Bps" => 8.0,
        "b/s" | "bps" => 1.0,
        other => match other.to_ascii_lowercase().as_str() {
            "bit" | "bit/s" => 1.0,
            _ => return None,
        },
    };
    Some(bits * scale)
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    /// Reads `100mbit`, `1gbit`, `2.5 Gbit/s`, `64kbit`, `8000bit`, `1Gbps`: bits per second; and `125MB/s`, `125MBps`: bytes
    /// per second. Prefixes are decimal. Zero is refused: a link that moves nothing is not a link.
    fn from_str(text: &str) -> Result<Rate, ParseUnitError> {
        let error = || ParseUnitError {
            text: text.to_owned(),
            expected: "a rate such as 100mbit or 1gbit (bits), or 125MB/s (bytes)",
        };
        let (value, unit) = split_exact(text).ok_or_else(error)?;
        let rate = Rate::from_bits_per_sec(value * bits_of_rate(unit).ok_or_else(error)?);
        if rate.0 > 0.0 { Ok(rate) } else { Err(error()) }
    }
}

impl FromStr for Span {
    type Err = ParseUnitError;

    /// Reads `2s`, `200ms`, `50us`, `10ns` and `0`.
    fn from_str(text: &str) -> Result<Span, ParseUnitError> {
        let error = || ParseUnitError { text: text.to_owned(), expected: "a time such as 200ms or 2s" };
        let (value, unit) = split_unit(text).ok_or_else(error)?;
        let secs = match unit.as_str() {
            "s" => value,
            "ms" => value / 1e3,
            "us" => value / 1e6,
            "ns" => value / 1e9,
            // Nothing is the same in every unit.
            "" if value == 0.0 => 0.0,
            _ => return Err(error()),
        };
        Ok(Span::until_done(secs))
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;

    /// Reads `4096`, `64kB`, `10MB`, `2GB` (decimal) and `64KiB`, `10MiB`, `2GiB` (binary). A small `b` is refused: it
    /// stands for bits, and `10Mb` taken for 10 MB would be eight times too much.
    fn from_str(text: &str) -> Result<Bytes, ParseUnitError> {
        let error = || ParseUnitError {
            text: text.to_owned(),
            expected: "a size in bytes such as 4096, 10MB or 10MiB",
        };
        let (value, unit) = split_unit(text).ok_or_else(error)?;
        // `unit` has small letters only, so the text itself is asked: 10Mb, which are bits,
        // would be read as 10 MB.
        if text.trim_end().ends_with('b') {
            let expected = "a size in bytes: a small b stands for bits, write B as in 10MB";
            return Err(ParseUnitError { text: text.to_owned(), expected });
        }
        let scale = match unit.as_str() {
            "" | "b" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            "kib" => 1024.0,
            "mib" => 1024.0 * 1024.0,
            "gib" => 1024.0 * 1024.0 * 1024.0,
            "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(error()),
        };
        let size = value * scale;
        if size <= u64::MAX as f64 { Ok(Bytes(size.round() as u64)) } else { Err(error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_with_bit_units_and_show_the_same() {
        assert_eq!("1gbit".parse::<Rate>().unwrap().bytes_per_sec(), 125e6);
        assert_eq!("100 Mbit/s".parse::<Rate>().unwrap().bytes_per_sec(), 12.5e6);
        assert_eq!("2.5Gbps".parse::<Rate>().unwrap().to_string(), "2.5 Gbit/s");
        for bad in ["", "fast", "-1gbit", "0mbit", "1gbyte", "1e9bit", "gbit"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_large_b_in_a_rate_stands_for_bytes_and_a_small_one_for_bits() {
        for bytes in ["1GB/s", "1GBps", "1 gB/s", "1000MBps", "8Gbps", "8Gb/s", "8gbit", "8GBIT/S"] {
            assert_eq!(bytes.parse::<Rate>().unwrap().bytes_per_sec(), 1e9, "{bytes}");
        }
        assert_eq!("8B/s".parse::<Rate>().unwrap().bits_per_sec(), 64.0);
        for either in ["1GBPS", "1GB", "1Gb", "1GiB/s", "1mm/s", "1é", "1gbit/s/s", "1bpsbps"] {
            assert!(either.parse::<Rate>().is_err(), "{either}");
        }
    }

    #[test]
    fn sizes_read_decimal_and_binary_units() {
        assert_eq!("10MB".parse::<Bytes>().unwrap(), Bytes(10_000_000));
        assert_eq!("10MiB".parse::<Bytes>().unwrap(), Bytes(10 << 20));
        assert!("10 furlongs".parse::<Bytes>().is_err());
        assert_eq!("10B".parse::<Bytes>().unwrap(), Bytes(10));
    }

    #[test]
    fn megabits_are_no_size() {
        for bits in ["10Mb", "10mb", "64kb", "8b", "1Gib"] {
            let said = bits.parse::<Bytes>().unwrap_err().to_string();
            assert!(said.contains("a small b stands for bits"), "{said}");
        }
    }

    #[test]
    fn times_read_with_their_units() {
        assert_eq!("200ms".parse::<Span>().unwrap(), Span::from_millis(200));
        assert_eq!(
            ["1.5s", "50us", "0"].map(|text| text.parse::<Span>().unwrap().nanos()),
            [1_500_000_000, 50_000, 0]
        );
        for bad in ["", "5", "fast", "-1s", "1h"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn completion_rounds_up_to_the_next_nanosecond() {
        assert_eq!(Span::from_secs_ceil(1.5e-9), Span::from_nanos(2));
        assert_eq!(Span::until_done(1.5e-9), Span::from_nanos(2));
        // 981103 bytes at 125e6 B/s take 7848824 ns; in floating point a little more.
        assert_eq!(Span::from_secs_ceil(981_103.0 / 125e6), Span::from_nanos(7_848_825));
        assert_eq!(Span::until_done(981_103.0 / 125e6), Span::from_nanos(7_848_824));
        assert_eq!(Span::until_done(f64::INFINITY), Span::MAX);
        assert_eq!(Span::from_secs_ceil(f64::INFINITY), Span::MAX);
        assert_eq!(Span::from_secs_ceil(-1.0), Span::ZERO);
        assert_eq!(Time::MAX + Span::from_nanos(1), Time::MAX);
    }
}
