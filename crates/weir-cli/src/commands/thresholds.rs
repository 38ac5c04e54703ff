//! `weir thresholds`: which flows share a priority level of a switch, and what completion times theory forecasts then.

use clap::{Args, ValueEnum};
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use weir_console::Failure;
use weir_console::Files;
use weir_endhost::thresholds::{
    Forecast, MAX_LEVELS, Optimum, PIAS_LOADS, Robustness, Service, Thresholds, Traffic, Urgent, even_split,
    optimise, pias,
};
use weir_model::{Bytes, Rate};
use weir_results::{Provenance, number, ratio, table, text, thread_cpu_secs};
use weir_trace::{FlowSizes, Mix};

#[derive(Args)]
pub(crate) struct ThresholdsArgs {
    /// Sizes of flows: web-search, data-mining, either with -packets (as ns-2 simulations have it), or a file of lines
    /// `bytes cumulative-probability`; several are each optimised and judged on all
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',', required = true)]
    cdf: Vec<String>,
    /// Loads of the link, above 0 and below 1; several are each optimised and judged on all
    #[arg(long, value_name = "L", value_delimiter = ',', required = true, allow_negative_numbers = true)]
    load: Vec<f64>,
    /// Priority queues of the switch; flows with a deadline take the highest for themselves
    #[arg(long, value_name = "K", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=MAX_LEVELS as i64))]
    queues: u8,
    /// Share of all bytes that is of flows with a deadline, and share of the other flows whose size is known
    #[arg(long, value_name = "known=X,deadline=Y", default_value = "known=0,deadline=0")]
    mix: Shares,
    /// Flows with a deadline send as fast as the link allows, not just in time
    #[arg(long)]
    bursts: bool,
    /// How large each flow with a deadline is, if not as others
    #[arg(long, value_name = "SIZE", requires = "bursts")]
    deadline_size: Option<Bytes>,
    /// How the flows of a level are served in theory: fifo, the first that came first, as in the model of PIAS and Karuna;
    /// shared, all at the same rate, for switches whose queues carry DCTCP or TCP
    #[arg(long = "levels", value_enum, value_name = "SERVICE", default_value_t = Levels::Fifo, hide_possible_values = true)]
    service: Levels,
    /// Rate of the link, for times in seconds
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    link_rate: Rate,
    /// Seed of the search; the same one finds the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compare with published thresholds
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// Write all results
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    /// PIAS: all flows as if of unknown size and none urgent; 8 queues, web-search or data-mining at load 0.5 or 0.8
    Pias,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Levels {
    Fifo,
    Shared,
}

impl Levels {
    fn service(self) -> Service {
        match self {
            Levels::Fifo => Service::Fifo,
            Levels::Shared => Service::Shared,
        }
    }
}

/// `known=0.5,deadline=0.2`; what is not said is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shares {
    known: f64,
    deadline: f64,
}

impl FromStr for Shares {
    type Err = String;

    fn from_str(text: &str) -> Result<Shares, String> {
        let mut shares = Shares { known: 0.0, deadline: 0.0 };
        for (name, value) in weir_model::settings(text.split(',')).map_err(|error| error.to_string())? {
            let share = match name.trim() {
                "known" => &mut shares.known,
                "deadline" => &mut shares.deadline,
                _ => return Err(format!("`{name}={value}` is neither known=X nor deadline=Y")),
            };
            let parsed = value.trim().parse().ok().filter(|value| (0.0..=1.0).contains(value));
            *share = parsed.ok_or_else(|| format!("`{name}={value}` has no share from 0 to 1"))?;
        }
        Ok(shares)
    }
}

/// What is written with `--json`.
#[derive(Serialize)]
struct Results {
    schema: u32,
    made_by: Provenance,
    link_rate_bps: u64,
    queues: u8,
    /// Queues of the flows without a deadline.
    levels: usize,
    /// How a level's flows are served in theory.
    service: Levels,
    known: f64,
    deadline: f64,
    /// Whether flows with a deadline send just in time.
    paced: bool,
    /// How large they are; null if as others.
    deadline_size_bytes: Option<u64>,
    seed: u64,
    traffics: Vec<TrafficRow>,
    /// Row: traffic; column: traffic the thresholds were made for; mean completion time over that under its own.
    robustness: Vec<Vec<f64>>,
}

#[derive(Serialize)]
struct TrafficRow {
    cdf: String,
    load: f64,
    choices: Vec<Choice>,
}

/// Thresholds for a traffic, and their forecast.
#[derive(Serialize)]
struct Choice {
    thresholds: &'static str,
    demotion_bytes: Vec<u64>,
    splitting_bytes: Vec<u64>,
    mean_fct_packets: f64,
    mean_fct_s: f64,
    /// Of flows of known and of unknown size; null if there are none.
    known_fct_s: Option<f64>,
    unknown_fct_s: Option<f64>,
    levels: Vec<LevelRow>,
    /// Thresholds that the search judged, and its processor time; null if there was none.
    judged: Option<u64>,
    cpu_s: Option<f64>,
}

#[derive(Serialize)]
struct LevelRow {
    /// Load of this level, those above it and flows with a deadline.
    load: f64,
    /// Share of the flows without a deadline that end here.
    flows: f64,
    mean_fct_s: Option<f64>,
}

const ONE_LEVEL: &str = "one level";
const OPTIMISED: &str = "optimised";

struct Task {
    /// What was said for the sizes, and the traffic.
    traffics: Vec<(String, Traffic)>,
    /// The same as PIAS sees it, and its thresholds.
    theirs: Vec<Option<(Traffic, Thresholds)>>,
    levels: NonZeroUsize,
}

pub(crate) fn thresholds(args: ThresholdsArgs) -> Result<(), Failure> {
    let mut files = Files::default();
    args.cdf.iter().for_each(|cdf| files.reads("--cdf", cdf.as_ref()));
    let output = files.may_write("--json", args.json.as_ref())?;
    let task = prepare(&args)?;
    let mut rows = Vec::new();
    let mut found = Vec::new();
    for ((cdf, traffic), theirs) in task.traffics.iter().zip(&task.theirs) {
        let (choices, best) = choices(&args, traffic, theirs.as_ref(), task.levels);
        rows.push(TrafficRow { cdf: cdf.clone(), load: traffic.load(), choices });
        found.push(best);
    }
    let traffics: Vec<Traffic> = task.traffics.iter().map(|(_, traffic)| traffic.clone()).collect();
    let results = Results {
        schema: 1,
        made_by: Provenance::of_this_run(Some(args.seed)),
        link_rate_bps: args.link_rate.bits_per_sec().round() as u64,
        queues: args.queues,
        levels: task.levels.get(),
        service: args.service,
        known: args.mix.known,
        deadline: args.mix.deadline,
        paced: !args.bursts,
        deadline_size_bytes: args.deadline_size.map(|size| size.0),
        seed: args.seed,
        traffics: rows,
        robustness: Robustness::of(&traffics, found).ratios,
    };
    if let Some(file) = &output {
        file.write(|output| Ok(serde_json::to_writer(output, &results)?))?;
    }
    print(&results);
    Ok(())
}

fn prepare(args: &ThresholdsArgs) -> Result<Task, Failure> {
    let urgent = if args.bursts { Urgent::Bursts } else { Urgent::Paced };
    let Shares { known, deadline: deadline_bytes } = args.mix;
    let mix = Mix { deadline_bytes, deadline_size: args.deadline_size, known, ..Mix::UNKNOWN };
    let levels = usize::from(args.queues) - usize::from(args.mix.deadline > 0.0);
    let levels = NonZeroUsize::new(levels).ok_or_else(|| {
        Failure::Input("--queues 1: flows with a deadline take it, and the others need one too".to_owned())
    })?;
    let mut task = Task { traffics: Vec::new(), theirs: Vec::new(), levels };
    for cdf in &args.cdf {
        let sizes = FlowSizes::load(cdf).map_err(|error| Failure::Input(format!("--cdf {error}")))?;
        for &load in &args.load {
            let refused = |error| Failure::Input(format!("--load, --mix: {error}"));
            let service = args.service.service();
            let traffic = |mix: &Mix| {
                let traffic = Traffic::new(sizes.clone(), load, mix, urgent).map_err(refused)?;
                Ok::<Traffic, Failure>(traffic.served(service))
            };
            let theirs = match args.against {
                None => None,
                Some(Against::Pias) => {
                    let thresholds = published(cdf, load, args.queues)?;
                    Some((traffic(&Mix::UNKNOWN)?, thresholds))
                }
            };
            task.traffics.push((cdf.clone(), traffic(&mix)?));
            task.theirs.push(theirs);
        }
    }
    Ok(task)
}

fn published(cdf: &str, load: f64, queues: u8) -> Result<Thresholds, Failure> {
    let [low, high] = PIAS_LOADS;
    let thresholds = pias(cdf, load).ok_or_else(|| {
        let known = format!("PIAS published some for web-search and data-mining at load {low} and {high}");
        Failure::Input(format!("--against pias: no thresholds for {cdf} at load {load}; {known}"))
    })?;
    if thresholds.levels() != usize::from(queues) {
        let levels = thresholds.levels();
        return Err(Failure::Input(format!("--against pias: its thresholds are for --queues {levels}")));
    }
    Ok(thresholds)
}

/// Everything compared for one traffic, and the thresholds found.
fn choices(
    args: &ThresholdsArgs,
    traffic: &Traffic,
    theirs: Option<&(Traffic, Thresholds)>,
    levels: NonZeroUsize,
) -> (Vec<Choice>, Thresholds) {
    let plain = |name, traffic: &Traffic, thresholds: &Thresholds| {
        Choice::new(name, thresholds, &traffic.forecast(thresholds), args.link_rate)
    };
    let mut choices = vec![
        plain(ONE_LEVEL, traffic, &Thresholds::none()),
        plain("even", traffic, &even_split(traffic, levels)),
    ];
    if let Some((unknown, thresholds)) = theirs {
        choices.push(plain("PIAS", unknown, thresholds));
    }
    let before = thread_cpu_secs();
    let Optimum { thresholds, judged, .. } = optimise(traffic, levels, args.seed);
    let cpu_s = thread_cpu_secs() - before;
    let found = plain(OPTIMISED, traffic, &thresholds);
    choices.push(Choice { judged: Some(judged), cpu_s: Some(cpu_s), ..found });
    (choices, thresholds)
}

impl Choice {
    fn new(name: &'static str, thresholds: &Thresholds, forecast: &Forecast, link: Rate) -> Choice {
        let bytes = |sizes: &[Bytes]| sizes.iter().map(|size| size.0).collect();
        let levels = forecast.levels.iter().map(|level| LevelRow {
            load: level.load,
            flows: level.flows,
            mean_fct_s: level.mean.map(|mean| mean.secs(link)),
        });
        Choice {
            thresholds: name,
            demotion_bytes: bytes(thresholds.demotion()),
            splitting_bytes: bytes(thresholds.splitting()),
            mean_fct_packets: forecast.mean.0,
            mean_fct_s: forecast.mean.secs(link),
            known_fct_s: forecast.known.map(|mean| mean.secs(link)),
            unknown_fct_s: forecast.unknown.map(|mean| mean.secs(link)),
            levels: levels.collect(),
            judged: None,
            cpu_s: None,
        }
    }
}

fn print(results: &Results) {
    let urgent = match (results.deadline > 0.0, results.paced) {
        (false, _) => "no deadlines".to_owned(),
        (true, true) => format!("{} of the bytes with a deadline, just in time", results.deadline),
        (true, false) => {
            let size = results.deadline_size_bytes.map(|size| format!(" of {}", Bytes(size)));
            format!(
                "{} of the bytes with a deadline, in bursts{}",
                results.deadline,
                size.unwrap_or_default()
            )
        }
    };
    let link = Rate::from_bits_per_sec(results.link_rate_bps as f64);
    let (levels, known) = (results.levels, results.known);
    let service = match results.service {
        Levels::Fifo => "first come, first served",
        Levels::Shared => "shared by their flows",
    };
    println!(
        "{levels} levels, {service}, at {link}; {urgent}; {known} of the other flows of known size. Forecasts of theory."
    );
    println!("\n{}", means(results));
    println!("\n{}", found(results));
    if results.traffics.len() > 1 {
        println!("\n{}", made_for_others(results));
    }
}

/// Mean completion times; `gain` is over one level.
fn means(results: &Results) -> String {
    let header = [
        "flow sizes",
        "load",
        "thresholds",
        "packet times",
        "mean ms",
        "known ms",
        "unknown ms",
        "gain",
        "CPU s",
    ];
    let mut table = table(&header, 3);
    let millis = |secs: Option<f64>| secs.map_or("-".to_owned(), |secs| number(secs * 1e3));
    for traffic in &results.traffics {
        let one = traffic.choices.iter().find(|choice| choice.thresholds == ONE_LEVEL);
        for choice in &traffic.choices {
            table.add_row([
                traffic.cdf.clone(),
                traffic.load.to_string(),
                choice.thresholds.to_owned(),
                number(choice.mean_fct_packets),
                number(choice.mean_fct_s * 1e3),
                millis(choice.known_fct_s),
                millis(choice.unknown_fct_s),
                one.map_or(String::new(), |one| ratio(one.mean_fct_packets, choice.mean_fct_packets)),
                choice.cpu_s.map_or("-".to_owned(), |secs| format!("{secs:.2}")),
            ]);
        }
    }
    text(&table)
}

/// The thresholds found: only of the kinds of flows that there are.
fn found(results: &Results) -> String {
    let cuts = 1..results.levels;
    let header = ["flow sizes", "load", "optimised"].map(str::to_owned);
    let header: Vec<String> =
        header.into_iter().chain(cuts.map(|level| format!("level {level} to"))).collect();
    let mut table = table(&header.iter().map(String::as_str).collect::<Vec<_>>(), 3);
    for traffic in &results.traffics {
        for choice in traffic.choices.iter().filter(|choice| choice.thresholds == OPTIMISED) {
            let kinds = [
                ("demotion", &choice.demotion_bytes, results.known < 1.0),
                ("splitting", &choice.splitting_bytes, results.known > 0.0),
            ];
            for (kind, sizes, _) in kinds.iter().filter(|(.., exists)| *exists) {
                let row = [traffic.cdf.clone(), traffic.load.to_string(), (*kind).to_owned()];
                table.add_row(row.into_iter().chain(sizes.iter().map(|&size| Bytes(size).to_string())));
            }
        }
    }
    text(&table)
}

/// Each traffic under the thresholds made for each.
fn made_for_others(results: &Results) -> String {
    let names: Vec<String> =
        results.traffics.iter().map(|traffic| format!("{} {}", traffic.cdf, traffic.load)).collect();
    let header: Vec<&str> = std::iter::once("mean over own, thresholds made for")
        .chain(names.iter().map(String::as_str))
        .collect();
    let mut table = table(&header, 1);
    for (name, ratios) in names.iter().zip(&results.robustness) {
        table.add_row(std::iter::once(name.clone()).chain(ratios.iter().map(|ratio| format!("{ratio:.3}"))));
    }
    text(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_in_any_order_and_refused_by_part() {
        let shares = |text: &str| text.parse::<Shares>();
        assert_eq!(shares("deadline=0.2,known=0.5"), Ok(Shares { known: 0.5, deadline: 0.2 }));
        assert_eq!(shares("known=1"), Ok(Shares { known: 1.0, deadline: 0.0 }));
        assert_eq!(shares("unknown=1"), Err("`unknown=1` is neither known=X nor deadline=Y".to_owned()));
        assert_eq!(shares("known"), Err("`known` has no value; a setting is NAME=VALUE".to_owned()));
        for bad in ["known=", "known=2", "deadline=NaN", "known=-1"] {
            assert_eq!(shares(bad), Err(format!("`{bad}` has no share from 0 to 1")));
        }
    }
}
