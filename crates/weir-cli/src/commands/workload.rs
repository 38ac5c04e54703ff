//! Options that say which workload to run, shared by `weir sim` and `weir live`.

use clap::Args;
use weir_console::Files;
use weir_console::{Failure, progress};
use weir_model::{CoflowSpec, Fabric, Rate, Span};
use weir_results::Cut;
use weir_trace::{SYNTHETIC, Slice, Workload};

/// Cuts a piece out of a workload, small enough to be moved live.
#[derive(Args, Clone, Debug)]
pub(crate) struct SliceArgs {
    /// Index of the first coflow to take, by arrival (0 unless said)
    #[arg(long, value_name = "INDEX")]
    pub(crate) first: Option<usize>,
    /// Number of coflows to take (all unless said)
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) count: Option<usize>,
    /// Divide sizes by this (at least 1 byte stays)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) bytes_divisor: Option<u64>,
    /// Divide arrival times by this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) time_divisor: Option<u64>,
    /// Scale down coflows so that none takes longer than this alone; longer ones stay longer
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) isolation_cap: Option<f64>,
}

impl SliceArgs {
    /// The piece on so many hosts.
    pub(crate) fn slice(&self, hosts: u32) -> Result<Slice, Failure> {
        if let Some(cap) = self.isolation_cap.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
            return Err(Failure::Input(format!("--isolation-cap {cap} is not a number of seconds above 0")));
        }
        Ok(Slice {
            first: self.first.unwrap_or(0),
            count: self.count.unwrap_or(usize::MAX),
            hosts,
            bytes_divisor: self.bytes_divisor.unwrap_or(1),
            time_divisor: self.time_divisor.unwrap_or(1),
            isolation_cap: self.isolation_cap.map(Span::from_secs_ceil),
        })
    }

    /// What is written of the piece with its results.
    pub(crate) fn recorded(&self, hosts: u32) -> Cut {
        Cut {
            hosts,
            first: self.first.unwrap_or(0),
            count: self.count,
            bytes_divisor: self.bytes_divisor.unwrap_or(1),
            time_divisor: self.time_divisor.unwrap_or(1),
            isolation_cap_s: self.isolation_cap,
        }
    }

    /// A piece of `synthetic:fb2010` that 16 hosts at 100 Mbit/s move in under a minute, with contention.
    pub(crate) fn live() -> SliceArgs {
        SliceArgs {
            first: None,
            count: Some(150),
            bytes_divisor: Some(40),
            time_divisor: Some(30),
            isolation_cap: Some(4.0),
        }
    }

    /// Says how a workload is made small where no option asked for that.
    pub(crate) fn announcement(&self, trace: &str) -> String {
        let SliceArgs { count, bytes_divisor, time_divisor, isolation_cap, .. } = self;
        format!(
            "{trace} is made small: its first {} coflows, sizes divided by {}, times by {}, none above {} s alone. \
             --count, --bytes-divisor, --time-divisor or --isolation-cap take it otherwise; --bytes-divisor 1 as it is",
            count.unwrap_or(usize::MAX),
            bytes_divisor.unwrap_or(1),
            time_divisor.unwrap_or(1),
            isolation_cap.unwrap_or(f64::INFINITY),
        )
    }

    /// Whether any of its options was given.
    pub(crate) fn is_given(&self) -> bool {
        let SliceArgs { first, count, bytes_divisor, time_divisor, isolation_cap } = self;
        let divided = bytes_divisor.or(*time_divisor).is_some();
        first.or(*count).is_some() || divided || isolation_cap.is_some()
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "not in 1..".to_owned())
}

/// Reads what `--trace` names, with a counter while it lasts.
pub(crate) fn load(spec: &str, seed: u64) -> Result<Workload, Failure> {
    let input = |error: weir_trace::LoadError| Failure::Input(format!("--trace {error}"));
    let source = weir_trace::open(spec, seed).map_err(input)?;
    let (name, hosts) = (source.name().to_owned(), source.hosts());
    let counter = progress::counter("reading", "jobs");
    let jobs = source.inspect(|_| counter.inc(1)).collect::<Result<Vec<_>, _>>();
    counter.finish_and_clear();
    let jobs = jobs.map_err(input)?;
    if jobs.is_empty() {
        return Err(Failure::Input(format!("--trace {spec}: it has no coflows")));
    }
    Ok(Workload { name, hosts, jobs })
}

/// What a command reads: the file that an option names, unless it names a synthetic workload.
pub(crate) fn inputs(option: &str, spec: &str) -> Files {
    let mut files = Files::default();
    if !spec.starts_with(SYNTHETIC) {
        files.reads(option, spec.as_ref());
    }
    files
}

/// Whether anything of a run is drawn by its seed.
pub(crate) fn draws(trace: &str, deadlines: Option<f64>) -> bool {
    trace.starts_with(SYNTHETIC) || deadlines.is_some_and(|spread| spread > 0.0)
}

/// The seed to run with. One that was asked for and draws nothing is refused: who compares runs by seeds would take
/// repetitions of one run for several.
pub(crate) fn seed(given: Option<u64>, trace: &str, deadlines: Option<f64>) -> Result<u64, Failure> {
    match given {
        Some(seed) if !draws(trace, deadlines) => Err(Failure::Input(format!(
            "--seed {seed} changes nothing: {trace} is a file, and no deadlines are drawn; leave it out"
        ))),
        given => Ok(given.unwrap_or(1)),
    }
}

/// The piece of a workload on `hosts` hosts.
pub(crate) fn cut(
    coflows: &[CoflowSpec],
    args: &SliceArgs,
    hosts: u32,
    link_rate: Rate,
) -> Result<Vec<CoflowSpec>, Failure> {
    let piece = args.slice(hosts)?.cut(coflows, link_rate);
    if piece.is_empty() {
        let first = args.first.unwrap_or(0);
        let reason = match (first < coflows.len(), hosts) {
            (false, _) => format!("--first {first} of {} coflows leaves none", coflows.len()),
            (true, 1) => "--hosts 1: every flow would stay within the one host; take 2 or more".to_owned(),
            (true, _) => {
                format!("--hosts {hosts}: no flow of the piece is between different hosts; take more")
            }
        };
        return Err(Failure::Input(reason));
    }
    Ok(piece)
}

/// Longest time that a simulation may take, in seconds, as arrivals have it: 31 years, beyond which nanoseconds are not told
/// apart.
const MOST_SECS: f64 = 1e9;

/// Refuses a rate at which the busiest link alone would take longer than can be simulated.
pub(crate) fn check_times(fabric: &Fabric, coflows: &[CoflowSpec], link_rate: Rate) -> Result<(), Failure> {
    let alone =
        coflows.iter().map(|coflow| weir_sim::isolation(fabric, coflow).as_secs()).fold(0.0, f64::max);
    if alone <= MOST_SECS {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "--link-rate {link_rate}: the largest coflow alone would take {alone:.0} s, more than the 10^9 s (31 years) that can be \
         simulated; take a higher rate, or smaller sizes (--bytes-divisor)"
    )))
}
