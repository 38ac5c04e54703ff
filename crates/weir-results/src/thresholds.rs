//! Which flows share a priority level of a switch, and what completion times theory forecasts then.

use crate::{Provenance, number, ratio, table, text, thread_cpu_secs};
use serde::Serialize;
use std::num::NonZeroUsize;
use weir_endhost::thresholds::{
    Forecast, Optimum, Robustness, Service, Thresholds, Traffic, even_split, optimise,
};
use weir_model::{Bytes, Rate};
use weir_trace::Mix;

const FIFO: &str = "fifo";
const ONE_LEVEL: &str = "one level";
const OPTIMISED: &str = "optimised";

/// Completion times that theory has for traffics under thresholds.
#[derive(Clone, Debug, Serialize)]
pub struct Forecasts {
    schema: u32,
    made_by: Provenance,
    link_rate_bps: u64,
    queues: u8,
    /// Queues of the flows without a deadline.
    levels: usize,
    /// How a level's flows are served in theory.
    service: &'static str,
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

#[derive(Clone, Debug, Serialize)]
struct TrafficRow {
    cdf: String,
    load: f64,
    choices: Vec<Choice>,
}

/// Thresholds for a traffic, and their forecast.
#[derive(Clone, Debug, Serialize)]
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

#[derive(Clone, Debug, Serialize)]
struct LevelRow {
    /// Load of this level, those above it and flows with a deadline.
    load: f64,
    /// Share of the flows without a deadline that end here.
    flows: f64,
    mean_fct_s: Option<f64>,
}

/// What forecasts are made of, and with what they are compared.
#[derive(Clone, Debug)]
pub struct Request {
    /// What was said for the sizes, and the traffic.
    pub traffics: Vec<(String, Traffic)>,
    /// The same as PIAS sees it, and its thresholds, where these are compared with.
    pub theirs: Vec<Option<(Traffic, Thresholds)>>,
    /// Queues of the flows without a deadline.
    pub levels: NonZeroUsize,
    /// Queues of the switch.
    pub queues: u8,
    /// How flows are mixed.
    pub mix: Mix,
    /// Whether flows with a deadline send just in time.
    pub paced: bool,
    /// How a level's flows are served in theory.
    pub service: Service,
    /// Rate of the link, for times in seconds.
    pub link_rate: Rate,
    /// Of the search; the same one finds the same.
    pub seed: u64,
}

impl Forecasts {
    /// Searches thresholds for each traffic, and forecasts what it, and others, get under them.
    pub fn of(request: &Request) -> Forecasts {
        let mut rows = Vec::new();
        let mut best = Vec::new();
        for ((cdf, traffic), theirs) in request.traffics.iter().zip(&request.theirs) {
            let (choices, thresholds) = choices(request, traffic, theirs.as_ref());
            rows.push(TrafficRow { cdf: cdf.clone(), load: traffic.load(), choices });
            best.push(thresholds);
        }
        let traffics: Vec<Traffic> = request.traffics.iter().map(|(_, traffic)| traffic.clone()).collect();
        let Mix { known, deadline_bytes: deadline, deadline_size, .. } = request.mix;
        Forecasts {
            schema: 1,
            made_by: Provenance::of_this_run(Some(request.seed)),
            link_rate_bps: request.link_rate.bits_per_sec().round() as u64,
            queues: request.queues,
            levels: request.levels.get(),
            service: match request.service {
                Service::Fifo => FIFO,
                Service::Shared => "shared",
            },
            known,
            deadline,
            paced: request.paced,
            deadline_size_bytes: deadline_size.map(|size| size.0),
            seed: request.seed,
            traffics: rows,
            robustness: Robustness::of(&traffics, best).ratios,
        }
    }

    /// One sentence on what was assumed, then tables.
    pub fn text(&self) -> String {
        let urgent = match (self.deadline > 0.0, self.paced) {
            (false, _) => "no deadlines".to_owned(),
            (true, true) => format!("{} of the bytes with a deadline, just in time", self.deadline),
            (true, false) => {
                let size = self.deadline_size_bytes.map(|size| format!(" of {}", Bytes(size)));
                format!(
                    "{} of the bytes with a deadline, in bursts{}",
                    self.deadline,
                    size.unwrap_or_default()
                )
            }
        };
        let link = Rate::from_bits_per_sec(self.link_rate_bps as f64);
        let (levels, known) = (self.levels, self.known);
        let service = if self.service == FIFO { "first come, first served" } else { "shared by their flows" };
        let setting = format!(
            "{levels} levels, {service}, at {link}; {urgent}; {known} of the other flows of known size. Forecasts of theory."
        );
        let mut parts = vec![setting, means(self), found(self)];
        if self.traffics.len() > 1 {
            parts.push(made_for_others(self));
        }
        parts.join("\n\n")
    }
}

/// Everything compared for one traffic, and the thresholds found.
fn choices(
    request: &Request,
    traffic: &Traffic,
    theirs: Option<&(Traffic, Thresholds)>,
) -> (Vec<Choice>, Thresholds) {
    let plain = |name, traffic: &Traffic, thresholds: &Thresholds| {
        Choice::new(name, thresholds, &traffic.forecast(thresholds), request.link_rate)
    };
    let mut choices = vec![
        plain(ONE_LEVEL, traffic, &Thresholds::none()),
        plain("even", traffic, &even_split(traffic, request.levels)),
    ];
    if let Some((unknown, thresholds)) = theirs {
        choices.push(plain("PIAS", unknown, thresholds));
    }
    let before = thread_cpu_secs();
    let Optimum { thresholds, judged, .. } = optimise(traffic, request.levels, request.seed);
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

/// Mean completion times; `gain` is over one level.
fn means(results: &Forecasts) -> String {
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
fn found(results: &Forecasts) -> String {
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
fn made_for_others(results: &Forecasts) -> String {
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
