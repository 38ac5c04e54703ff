//! How large flows are: a cumulative distribution over bytes, straight between the points of a table.
//!
//! Two points of the same size are a step: a whole share of the flows has exactly that size. So is a first point
//! above zero. Everything else is uniform between two points, which makes all moments sums over a few segments.
//!
//! Tables: web search is of the DCTCP paper (Alizadeh et al., SIGCOMM 2010), data mining of VL2 (Greenberg et al.,
//! SIGCOMM 2009), as later simulations use them. The `-packets` variants are those of ns-2 simulations, in packets
//! of [`PACKET_PAYLOAD`]; their points differ a little, and their smallest flows are a step.

use crate::ReadError;
use crate::text::{Lines, quote};
use rand::Rng;
use std::io::BufRead;
use weir_model::Bytes;

/// Payload of a full packet: what the tables in packets count, and what [`FlowSizes::mean_packets`] cuts flows into.
pub const PACKET_PAYLOAD: Bytes = Bytes(1460);
/// Most points a table may have.
const MAX_POINTS: usize = 1 << 16;
/// Largest flow of a table, in bytes.
const MAX_FLOW_BYTES: u64 = 1 << 50;

/// Why there is no such distribution.
#[derive(Debug, thiserror::Error)]
pub enum FlowSizesError {
    /// No built-in distribution has the name.
    #[error("there are no flow sizes {given}; known: {}", FlowSizes::names().collect::<Vec<_>>().join(", "))]
    Name {
        /// The name asked for, in quotes.
        given: String,
    },
    /// It is neither a name nor a file that can be read.
    #[error("{path}: neither a file that can be read ({source}) nor one of {}",
        FlowSizes::names().collect::<Vec<_>>().join(", "))]
    Open {
        /// As it was given.
        path: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file is malformed.
    #[error("{path}: {source}")]
    Read {
        /// As it was given.
        path: String,
        /// Where in the file, and why.
        source: ReadError,
    },
}

/// A built-in table: points in units of so many bytes.
struct Table {
    name: &'static str,
    unit_bytes: u64,
    points: &'static [(u64, f64)],
}

const TABLES: [Table; 4] = [
    Table {
        name: "web-search",
        unit_bytes: 1,
        points: &[
            (0, 0.0),
            (10_000, 0.15),
            (20_000, 0.2),
            (30_000, 0.3),
            (50_000, 0.4),
            (80_000, 0.53),
            (200_000, 0.6),
            (1_000_000, 0.7),
            (2_000_000, 0.8),
            (5_000_000, 0.9),
            (10_000_000, 0.97),
            (30_000_000, 1.0),
        ],
    },
    Table {
        name: "data-mining",
        unit_bytes: 1,
        points: &[
            (0, 0.0),
            (180, 0.1),
            (216, 0.2),
            (560, 0.3),
            (900, 0.4),
            (1100, 0.5),
            (1870, 0.6),
            (3160, 0.7),
            (10_000, 0.8),
            (400_000, 0.9),
            (3_160_000, 0.95),
            (100_000_000, 0.98),
            (1_000_000_000, 1.0),
        ],
    },
    Table {
        name: "web-search-packets",
        unit_bytes: PACKET_PAYLOAD.0,
        points: &[
            (6, 0.0),
            (6, 0.15),
            (13, 0.2),
            (19, 0.3),
            (33, 0.4),
            (53, 0.53),
            (133, 0.6),
            (667, 0.7),
            (1333, 0.8),
            (3333, 0.9),
            (6667, 0.97),
            (20_000, 1.0),
        ],
    },
    Table {
        name: "data-mining-packets",
        unit_bytes: PACKET_PAYLOAD.0,
        points: &[
            (1, 0.0),
            (1, 0.5),
            (2, 0.6),
            (3, 0.7),
            (7, 0.8),
            (267, 0.9),
            (2107, 0.95),
            (66_667, 0.99),
            (666_667, 1.0),
        ],
    },
];

/// A point of the table, and what lies at or below it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    bytes: f64,
    cumulative: f64,
    /// E[X; X <= bytes] and E[X^2; X <= bytes], in bytes and bytes^2.
    first: f64,
    second: f64,
}

/// What a distribution has at or below some size. `X` is the size of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Below {
    /// P(X <= size), 0 to 1.
    pub share: f64,
    /// `E[X; X <= size]` in bytes: the mean of X where larger flows count as 0.
    pub first: f64,
    /// `E[X^2; X <= size]` in bytes squared.
    pub second: f64,
}

/// A distribution of flow sizes: see the head of this file. Never without a point; the last has all flows.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSizes {
    name: String,
    points: Vec<Point>,
}

impl FlowSizes {
    /// Names of the built-in distributions.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLES.iter().map(|table| table.name)
    }

    /// The built-in distribution of a name.
    ///
    /// # Errors
    /// No built-in distribution has this name.
    pub fn named(name: &str) -> Result<FlowSizes, FlowSizesError> {
        let table = TABLES.iter().find(|table| table.name == name);
        let table = table.ok_or_else(|| FlowSizesError::Name { given: quote(name) })?;
        let scaled = table.points.iter().map(|&(units, cumulative)| (units * table.unit_bytes, cumulative));
        Ok(FlowSizes::from_points(table.name, scaled))
    }

    /// What a name or the path of a file gives; a name comes first.
    ///
    /// # Errors
    /// No file at this path can be read, or it is not a table as [`FlowSizes::read`] takes it.
    pub fn load(spec: &str) -> Result<FlowSizes, FlowSizesError> {
        if FlowSizes::names().any(|name| name == spec) {
            return FlowSizes::named(spec);
        }
        let opened = std::fs::File::open(spec).and_then(|file| {
            // Opening a directory succeeds; reading it does not.
            let mut input = std::io::BufReader::new(file);
            input.fill_buf()?;
            Ok(input)
        });
        let input = opened.map_err(|source| FlowSizesError::Open { path: spec.to_owned(), source })?;
        let path = std::path::Path::new(spec);
        let name = path.file_name().map_or_else(|| spec.into(), |name| name.to_string_lossy());
        FlowSizes::read(&name, input).map_err(|source| FlowSizesError::Read { path: spec.to_owned(), source })
    }

    /// Reads a table: see [`FlowSizes::read`].
    ///
    /// # Errors
    /// As of [`FlowSizes::read`], with line and column.
    pub fn from_text(name: &str, text: &str) -> Result<FlowSizes, ReadError> {
        FlowSizes::read(name, text.as_bytes())
    }

    /// Reads a table of lines `bytes cumulative-probability`. Neither may fall from line to line, and the last
    /// probability is 1. Lines that begin with `#`, and blank ones, say nothing. An error names line and column.
    ///
    /// # Errors
    /// The input cannot be read, a line is not a size and a probability that rise or stay, there are too many lines,
    /// or the last line does not give probability 1 to a size above 0.
    pub fn read(name: &str, input: impl BufRead) -> Result<FlowSizes, ReadError> {
        let mut lines = Lines::new(input);
        let mut points: Vec<(u64, f64)> = Vec::new();
        while let Some(mut words) = lines.next(Some('#'))? {
            let (before_bytes, before) = points.last().copied().unwrap_or_default();
            let column = words.column();
            let bytes = words.whole("a size in bytes", MAX_FLOW_BYTES)?;
            if bytes < before_bytes {
                let reason = format!("{bytes} bytes come after {before_bytes}: sort the sizes");
                return Err(words.malformed(column, reason));
            }
            let (column, word) = words.word("the cumulative probability")?;
            let cumulative = word.parse().ok().filter(|value| (0.0..=1.0).contains(value));
            let Some(cumulative) = cumulative else {
                let reason = format!("{} is not a probability from 0 to 1", quote(word));
                return Err(words.malformed(column, reason));
            };
            if cumulative < before {
                let reason =
                    format!("the probability falls from {before} to {cumulative}: it must be cumulative");
                return Err(words.malformed(column, reason));
            }
            words.end()?;
            if points.len() == MAX_POINTS {
                return Err(words.malformed(1, format!("more than {MAX_POINTS} points")));
            }
            points.push((bytes, cumulative));
        }
        // The end is one line after the last.
        let line = lines.line().saturating_sub(1).max(1);
        match points.last() {
            Some(&(1.., 1.0)) => Ok(FlowSizes::from_points(name, points)),
            Some(&(0, _)) => {
                let reason = "no flow has a byte: give a size above 0".to_owned();
                Err(ReadError::Malformed { line, column: 1, reason })
            }
            Some(&(_, cumulative)) => {
                let reason = format!("the table ends at probability {cumulative}: the last line must have 1");
                Err(ReadError::Malformed { line, column: 1, reason })
            }
            None => {
                let reason = "no line has a size and a cumulative probability".to_owned();
                Err(ReadError::Malformed { line, column: 1, reason })
            }
        }
    }

    /// From points that rise in both and end at probability 1 with a size above 0.
    fn from_points(name: &str, points: impl IntoIterator<Item = (u64, f64)>) -> FlowSizes {
        let mut sums: Vec<Point> = Vec::new();
        for (bytes, cumulative) in points {
            let bytes = bytes as f64;
            let point = match sums.last() {
                Some(before) if before.bytes < bytes => {
                    Point { cumulative, ..before.towards(bytes, cumulative, bytes) }
                }
                before => {
                    let before =
                        before.copied().unwrap_or(Point { bytes, cumulative: 0.0, first: 0.0, second: 0.0 });
                    // A step: all flows of this share have exactly this size, the first point's too.
                    let step = cumulative - before.cumulative;
                    let (first, second) = (before.first + step * bytes, before.second + step * bytes * bytes);
                    Point { bytes, cumulative, first, second }
                }
            };
            sums.push(point);
        }
        FlowSizes { name: name.to_owned(), points: sums }
    }

    /// What it is called: its name, or that of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sizes at which the table has points, rising, in whole bytes; of a step, twice.
    pub fn points(&self) -> impl Iterator<Item = Bytes> {
        self.points.iter().map(|point| Bytes(point.bytes as u64))
    }

    /// Size of the largest flow, in whole bytes.
    pub fn largest(&self) -> Bytes {
        Bytes(self.last().bytes as u64)
    }

    fn last(&self) -> Point {
        // There is a point: every way to make one refuses an empty table.
        self.points.last().copied().unwrap_or(Point { bytes: 1.0, cumulative: 1.0, first: 1.0, second: 1.0 })
    }

    /// Mean size in bytes.
    pub fn mean(&self) -> f64 {
        self.last().first
    }

    /// Mean square of sizes in bytes squared.
    pub fn mean_square(&self) -> f64 {
        self.last().second
    }

    /// Share of the flows (0 to 1) that are not larger than `size`.
    pub fn cdf(&self, size: Bytes) -> f64 {
        self.below(size).share
    }

    /// Share and partial moments of the flows that are not larger than `size`.
    pub fn below(&self, size: Bytes) -> Below {
        let bytes = size.0 as f64;
        // Behind the last point of this size, so that a step at `size` counts as not larger.
        let after = self.points.partition_point(|point| point.bytes <= bytes);
        let at = match (after.checked_sub(1).map(|last| self.points[last]), self.points.get(after)) {
            (None, _) => return Below { share: 0.0, first: 0.0, second: 0.0 },
            (Some(before), None) => before,
            (Some(before), Some(next)) => before.towards(next.bytes, next.cumulative, bytes),
        };
        Below { share: at.cumulative, first: at.first, second: at.second }
    }

    /// `E[min(X, cap)]` in bytes: the mean of what flows have among their first `cap` bytes.
    pub fn mean_capped(&self, cap: Bytes) -> f64 {
        let below = self.below(cap);
        below.first + cap.0 as f64 * (1.0 - below.share)
    }

    /// `E[min(X, cap)^2]` in bytes squared.
    pub fn mean_square_capped(&self, cap: Bytes) -> f64 {
        let (below, cap) = (self.below(cap), cap.0 as f64);
        below.second + cap * cap * (1.0 - below.share)
    }

    /// Mean number of packets that flows are cut into, of [`PACKET_PAYLOAD`] bytes each but the last; a flow has at least one.
    pub fn mean_packets(&self) -> f64 {
        let packet = PACKET_PAYLOAD.0 as f64;
        // The integral of ceil(x / packet) from 0 to x: n whole packets, then a part of the next one.
        let area = |x: f64| {
            let whole = (x / packet).floor();
            packet * whole * (whole + 1.0) / 2.0 + (x - whole * packet) * (whole + 1.0)
        };
        let mut before: Option<&Point> = None;
        let mut mean = 0.0;
        for point in &self.points {
            let share = point.cumulative - before.map_or(0.0, |before| before.cumulative);
            mean += share
                * match before {
                    Some(before) if before.bytes < point.bytes => {
                        (area(point.bytes) - area(before.bytes)) / (point.bytes - before.bytes)
                    }
                    // A step: its flows have one size. A flow of no bytes is sent as one packet.
                    _ => (point.bytes / packet).ceil().max(1.0),
                };
            before = Some(point);
        }
        mean
    }

    /// The smallest whole number of bytes, at least 1, that a `share` of the flows is not larger than. A share below
    /// 0 counts as 0, one above 1 as 1.
    pub fn quantile(&self, share: f64) -> Bytes {
        let after = self.points.partition_point(|point| point.cumulative < share);
        let next = self.points.get(after).copied().unwrap_or(self.last());
        let bytes = match after.checked_sub(1).map(|last| self.points[last]) {
            // `next` has at least the share, `before` has less: they differ, and a step lies at its own size.
            Some(before) if before.bytes < next.bytes && share < next.cumulative => {
                let part = (share - before.cumulative) / (next.cumulative - before.cumulative);
                before.bytes + part * (next.bytes - before.bytes)
            }
            _ => next.bytes,
        };
        Bytes((bytes.ceil() as u64).max(1))
    }

    /// A size of the distribution, in whole bytes and at least 1: at whole bytes, the share of draws that are not
    /// larger tends to [`FlowSizes::cdf`]. One draw takes one 64-bit word.
    pub fn draw(&self, random: &mut impl Rng) -> Bytes {
        self.quantile(unit(random))
    }
}

/// Uniform in [0, 1), by nothing but exactly defined arithmetic.
pub(crate) fn unit(random: &mut impl Rng) -> f64 {
    // The upper 53 bits: as many as an f64 holds exactly.
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

impl Point {
    /// The point at `bytes` on the straight line from here to (`next_bytes`, `next`), which is larger.
    fn towards(self, next_bytes: f64, next: f64, bytes: f64) -> Point {
        let density = (next - self.cumulative) / (next_bytes - self.bytes);
        let power = |n: i32| bytes.powi(n) - self.bytes.powi(n);
        Point {
            bytes,
            cumulative: self.cumulative + density * (bytes - self.bytes),
            first: self.first + density * power(2) / 2.0,
            second: self.second + density * power(3) / 3.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// Half of the flows have 100 bytes exactly, half between 100 and 300.
    fn half_a_step() -> FlowSizes {
        FlowSizes::from_text("test", "# a comment\n100 0\n100 0.5\n\n300 1\n").unwrap()
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() <= 1e-9 * left.abs().max(right.abs()).max(1.0)
    }

    #[test]
    fn a_byte_order_mark_before_a_table_is_skipped() {
        let text = "100 0\n300 1\n";
        let marked = FlowSizes::from_text("test", &format!("\u{feff}{text}")).expect("a table");
        assert_eq!(marked, FlowSizes::from_text("test", text).expect("a table"));
        // One stands before the text; a second is part of it.
        assert!(FlowSizes::from_text("test", &format!("\u{feff}\u{feff}{text}")).is_err());
    }

    #[test]
    fn moments_are_those_of_a_step_and_a_straight_piece() {
        let sizes = half_a_step();
        // 0.5 * 100 + 0.5 * 200; squares: 0.5 * 1e4 + 0.5 * (300^3 - 100^3) / (3 * 200).
        assert!(near(sizes.mean(), 150.0));
        assert!(near(sizes.mean_square(), 5000.0 + 0.5 * 26e6 / 600.0));
        assert_eq!([99, 100, 200, 300, 999].map(|size| sizes.cdf(Bytes(size))), [0.0, 0.5, 0.75, 1.0, 1.0]);
        // Up to 200: the step, and a quarter of the flows with a mean of 150.
        assert!(near(sizes.below(Bytes(200)).first, 50.0 + 0.25 * 150.0));
        assert!(near(sizes.below(Bytes(200)).second, 5000.0 + 0.25 * 7e6 / 300.0));
        // The last quarter counts 200 each.
        assert!(near(sizes.mean_capped(Bytes(200)), 87.5 + 0.25 * 200.0));
        assert!(near(sizes.mean_square_capped(Bytes(200)), 5000.0 + 0.25 * 7e6 / 300.0 + 1e4));
        assert!(near(sizes.mean_capped(Bytes(40)), 40.0));
    }

    #[test]
    fn quantiles_undo_the_distribution() {
        let sizes = half_a_step();
        let quantile = |share| sizes.quantile(share).0;
        assert_eq!([0.0, 0.3, 0.5, 0.75, 1.0, 2.0].map(quantile), [100, 100, 100, 200, 300, 300]);
        // 100 + 200 * 0.0005 / 0.5 is 100.2 bytes; 101 whole ones reach the share.
        assert_eq!(quantile(0.5005), 101);
        let from_zero = FlowSizes::from_text("t", "0 0.5\n10 1").unwrap();
        assert_eq!([0.0, 0.2, 0.5, 0.75].map(|share| from_zero.quantile(share).0), [1, 1, 1, 5]);
    }

    #[test]
    fn packets_of_a_flow_are_counted_whole() {
        let of = |text| FlowSizes::from_text("t", text).unwrap().mean_packets();
        assert!(near(of("1460 1"), 1.0) && near(of("1461 1"), 2.0) && near(of("0 0.5\n1 1"), 1.0));
        // Uniform to 2 packets: half 1, half 2. To 1.5: 1 for two thirds, 2 for one third.
        assert!(near(of("0 0\n2920 1"), 1.5) && near(of("0 0\n2190 1"), 4.0 / 3.0));
    }

    #[test]
    fn built_in_tables_have_the_means_they_are_known_for() {
        let mean = |name| FlowSizes::named(name).unwrap().mean();
        // Sums of (width of a row's probability) * (middle of its sizes), by hand: in kB
        // .75 + .75 + 2.5 + 4 + 8.45 + 9.8 + 60 + 150 + 350 + 525 + 600.
        assert!(near(mean("web-search"), 1_711_250.0), "{}", mean("web-search"));
        // In packets: .9 + .475 + 1.6 + 2.6 + 5.59 + 6.51 + 40 + 100 + 233.3 + 350 + 400.005.
        assert!(near(mean("web-search-packets") / 1460.0, 1140.98), "{}", mean("web-search-packets"));
        // In bytes, the last three rows alone: .05 * 1.78 MB, .03 * 51.58 MB, .02 * 550 MB, 12.64 MB together.
        assert!((mean("data-mining") / 1e6 - 12.66).abs() < 0.01, "{}", mean("data-mining"));
        // .5 + .15 + .25 + .5 + 13.7 + 59.35 + 1375.48 + 3666.67.
        assert!(
            (mean("data-mining-packets") / 1460.0 - 5116.6).abs() < 0.1,
            "{}",
            mean("data-mining-packets")
        );
        assert_eq!(FlowSizes::names().count(), 4);
    }

    #[test]
    fn draws_follow_the_table_and_the_seed() {
        let sizes = FlowSizes::named("data-mining").unwrap();
        let draw = |seed| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            (0..20_000).map(|_| sizes.draw(&mut random)).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        assert!(drawn.iter().all(|size| (1..=1_000_000_000).contains(&size.0)));
        for point in sizes.points() {
            let share = drawn.iter().filter(|size| **size <= point).count() as f64 / 20_000.0;
            // Five standard deviations of at most sqrt(1/4 / 20000) = 0.0035.
            assert!((share - sizes.cdf(point)).abs() < 0.018, "{point}: {share}");
        }
    }

    #[test]
    fn a_bad_table_is_refused_where_it_goes_wrong() {
        for (text, wanted) in [
            ("0 0\n10 0.5\n5 1", "line 3, column 1: 5 bytes come after 10: sort the sizes"),
            (
                "0 0.5\n10 0.4",
                "line 2, column 4: the probability falls from 0.5 to 0.4: it must be cumulative",
            ),
            ("0 0\n10 1.5", "line 2, column 4: `1.5` is not a probability from 0 to 1"),
            ("10 NaN", "line 1, column 4: `NaN` is not a probability from 0 to 1"),
            ("ten 1", "line 1, column 1: a size in bytes is `ten`, not a whole number"),
            ("10", "line 1, column 3: the line ends where the cumulative probability should be"),
            ("10 1 1", "line 1, column 6: unexpected `1` after the end"),
            ("10 0.5", "ends at probability 0.5: the last line must have 1"),
            ("0 1", "no flow has a byte: give a size above 0"),
            ("# nothing\n", "no line has a size and a cumulative probability"),
        ] {
            let error = FlowSizes::from_text("t", text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
        let error = FlowSizes::load("no/such").unwrap_err().to_string();
        assert!(error.contains("no/such: neither a file") && error.contains("web-search,"), "{error}");
        assert!(FlowSizes::named("mining").unwrap_err().to_string().contains("`mining`; known: web-search,"));
    }

    #[test]
    fn a_file_is_read_and_called_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0 0\n10 1\n").unwrap();
        let sizes = FlowSizes::load(file.path().to_str().unwrap()).unwrap();
        assert!(near(sizes.mean(), 5.0));
        assert_eq!(sizes.name(), file.path().file_name().unwrap().to_str().unwrap());
    }

    proptest! {
        #[test]
        fn moments_agree_with_sums_over_quantiles(
            steps in prop::collection::vec((0u64..50_000, 1u32..100), 1..8),
            cap in 1u64..200_000,
        ) {
            let all: u32 = steps.iter().map(|step| step.1).sum();
            let (mut bytes, mut sum, mut text) = (0, 0, String::from("1 0\n"));
            for (width, weight) in steps {
                bytes += width;
                sum += weight;
                text.push_str(&format!("{} {}\n", bytes + 1, f64::from(sum) / f64::from(all)));
            }
            let sizes = FlowSizes::from_text("t", &text).unwrap();
            let samples = 20_000;
            let shares = (0..samples).map(|sample| (f64::from(sample) + 0.5) / f64::from(samples));
            let drawn: Vec<f64> = shares.map(|share| sizes.quantile(share).0 as f64).collect();
            let cap_bytes = cap as f64;
            let mean = |value: &dyn Fn(f64) -> f64| drawn.iter().map(|&x| value(x)).sum::<f64>() / f64::from(samples);
            let largest = sizes.largest().0 as f64;
            // Rounding up adds at most a byte; the sum is off by the largest value over the samples.
            let slack = 1.0 + largest / 1000.0;
            prop_assert!((sizes.mean() - mean(&|x| x)).abs() < slack);
            prop_assert!((sizes.mean_capped(Bytes(cap)) - mean(&|x| x.min(cap_bytes))).abs() < slack);
            let below = mean(&|x| if x <= cap_bytes { x } else { 0.0 });
            prop_assert!((sizes.below(Bytes(cap)).first - below).abs() < slack);
            let square = (largest + 2.0) * slack * 2.0;
            prop_assert!((sizes.mean_square() - mean(&|x| x * x)).abs() < square);
            let capped = mean(&|x| x.min(cap_bytes).powi(2));
            prop_assert!((sizes.mean_square_capped(Bytes(cap)) - capped).abs() < square);
        }
    }
}
