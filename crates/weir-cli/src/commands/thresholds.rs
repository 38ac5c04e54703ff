//! `weir thresholds`: which flows share a priority level of a switch, and what completion times theory forecasts then.

use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use weir_console::Failure;
use weir_console::Files;
use weir_endhost::thresholds::{MAX_LEVELS, PIAS_LOADS, Service, Thresholds, Traffic, Urgent, pias};
use weir_model::{Bytes, Rate};
use weir_results::thresholds::{Forecasts, Request};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

pub(crate) fn thresholds(args: ThresholdsArgs) -> Result<(), Failure> {
    let mut files = Files::default();
    args.cdf.iter().for_each(|cdf| files.reads("--cdf", cdf.as_ref()));
    let output = files.may_write("--json", args.json.as_ref())?;
    let forecasts = Forecasts::of(&request(&args)?);
    if let Some(file) = &output {
        file.write(|output| Ok(serde_json::to_writer(output, &forecasts)?))?;
    }
    println!("{}", forecasts.text());
    Ok(())
}

fn request(args: &ThresholdsArgs) -> Result<Request, Failure> {
    let urgent = if args.bursts { Urgent::Bursts } else { Urgent::Paced };
    let Shares { known, deadline: deadline_bytes } = args.mix;
    let mix = Mix { deadline_bytes, deadline_size: args.deadline_size, known, ..Mix::UNKNOWN };
    // Flows with a deadline have the first queue for themselves.
    let levels = usize::from(args.queues) - usize::from(args.mix.deadline > 0.0);
    let levels = NonZeroUsize::new(levels).ok_or_else(|| {
        Failure::Input("--queues 1: flows with a deadline take it, and the others need one too".to_owned())
    })?;
    let service = args.service.service();
    let (mut traffics, mut all_theirs) = (Vec::new(), Vec::new());
    for cdf in &args.cdf {
        let sizes = FlowSizes::load(cdf).map_err(|error| Failure::Input(format!("--cdf {error}")))?;
        for &load in &args.load {
            let refused = |error| Failure::Input(format!("--load, --mix: {error}"));
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
            traffics.push((cdf.clone(), traffic(&mix)?));
            all_theirs.push(theirs);
        }
    }
    Ok(Request {
        traffics,
        theirs: all_theirs,
        levels,
        queues: args.queues,
        mix,
        paced: !args.bursts,
        service,
        link_rate: args.link_rate,
        seed: args.seed,
    })
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
