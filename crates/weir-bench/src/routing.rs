//! `weir bench routing`: water-filling over measured bandwidths between datacenters, beside direct links and the optimum.

use clap::Args;
use std::path::PathBuf;
use std::time::Instant;
use weir_console::Failure;
use weir_policy::route::{Routes, Rule, SiteDemand};
use weir_results::{mean, number, percentile, table, text};
use weir_trace::wan::{Excerpt, Grid, Measurements, Skew, SkewedDemands};

/// Draws random skewed demands between the regions of a grid of measured bandwidths, routes each by every rule, and
/// prints, for each snapshot of the grid and each rule
///
/// over bound: the makespan (the time until the slowest link is done) over the least possible one, which a linear
/// program gives; mean and worst of all demands.
///
/// below direct: by how much the makespan is below that of direct links alone, mean of all demands.
///
/// relayed: the share of all bytes that goes through a relay, mean of all demands.
///
/// time: of routing one demand, in microseconds; median and 95th percentile.
///
/// Demands: sites are ranked at random twice, as senders and as receivers; a pair has 10 GB times a Zipf weight of
/// each (1 / rank^skew), times log-normal noise of median 1.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct RoutingArgs {
    /// Measurements in the format of data/wan [default: those, between five regions of Google Cloud]
    #[arg(long, value_name = "FILE")]
    grid: Option<PathBuf>,
    /// One snapshot of the measurements, instead of each with a full grid
    #[arg(long, value_name = "DATE")]
    snapshot: Option<String>,
    /// Only regions whose names begin with one of these, as in gcp:us,gcp:europe
    #[arg(long, value_name = "PREFIX,..", value_delimiter = ',')]
    regions: Vec<String>,
    /// Demands to draw for each snapshot
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    demands: u32,
    /// Exponent of the weights of sites, 0 to 4
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    skew: f64,
    /// Deviation of the logarithm of the noise of a pair, 0 to 4
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    noise: f64,
    /// Seed of the demands
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The least possible makespan.
fn bound_s(demand: &SiteDemand) -> Result<f64, Failure> {
    Ok(weir_lp::least_makespan(demand)?.makespan_s())
}

/// What one rule did, demand by demand.
struct Figures {
    rule: Rule,
    over_bound: Vec<f64>,
    below_direct: Vec<f64>,
    relayed: Vec<f64>,
    micros: Vec<f64>,
}

/// A share as a percentage.
fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl Figures {
    fn new(rule: Rule) -> Figures {
        let [over_bound, below_direct, relayed, micros] = [const { Vec::new() }; 4];
        Figures { rule, over_bound, below_direct, relayed, micros }
    }

    fn add(&mut self, demand: &SiteDemand, direct_s: f64, bound_s: f64) {
        let start = Instant::now();
        let routes = self.rule.route(demand);
        self.micros.push(start.elapsed().as_secs_f64() * 1e6);
        let makespan_s = routes.makespan_s();
        self.below_direct.push(1.0 - makespan_s / direct_s);
        self.relayed.push(routes.relayed_bytes() / demand.total_bytes());
        self.over_bound.push(makespan_s / bound_s);
    }

    fn row(&mut self) -> [String; 7] {
        let worst = self.over_bound.iter().copied().fold(0.0, f64::max);
        let (average, worst) = (format!("{:.4}", mean(&self.over_bound)), format!("{worst:.4}"));
        self.micros.sort_by(f64::total_cmp);
        let time = |share| number(percentile(&self.micros, share));
        let [below_direct, relayed] = [&self.below_direct, &self.relayed].map(|shares| percent(mean(shares)));
        [self.rule.name().to_owned(), average, worst, below_direct, relayed, time(0.5), time(0.95)]
    }
}

/// Routes all demands over one grid and prints a table.
fn measure(grid: &Grid, args: &RoutingArgs) -> Result<(), Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::Input(error.to_string());
    let skew = Skew { zipf: args.skew, noise: args.noise };
    let mut demands =
        SkewedDemands::new(grid.regions.len(), skew, args.seed).map_err(|error| input(&error))?;
    let mut rules = Rule::ALL.map(Figures::new);
    for _ in 0..args.demands {
        let demand = SiteDemand::new(&grid.rates, &demands.draw()).map_err(|error| input(&error))?;
        // The bound first: it fills the processor's caches with other things.
        let bound_s = bound_s(&demand)?;
        let direct_s = Routes::direct(&demand).makespan_s();
        for rule in &mut rules {
            rule.add(&demand, direct_s, bound_s);
        }
    }
    println!("{}: {} regions, {} demands", grid.snapshot, grid.regions.len(), args.demands);
    let header = ["rule", "over bound", "worst", "below direct", "relayed", "time median us", "time p95 us"];
    let mut rows = table(&header, 1);
    for rule in &mut rules {
        rows.add_row(rule.row());
    }
    println!("{}\n", text(&rows));
    Ok(())
}

/// Every snapshot with a full grid; the others are said to be left out.
fn measure_all(measured: &Measurements, args: &RoutingArgs) -> Result<(), Failure> {
    let grids: Vec<_> = measured.snapshots().map(|name| measured.grid(name, &args.regions)).collect();
    if grids.iter().all(Result::is_err) {
        let reasons: Vec<String> =
            grids.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        return Err(Failure::Input(reasons.join("; ")));
    }
    for grid in grids {
        match grid {
            Ok(grid) => measure(&grid, args)?,
            Err(error) => println!("left out: {error}\n"),
        }
    }
    Ok(())
}

pub(crate) fn routing(args: &RoutingArgs) -> Result<(), Failure> {
    let (name, measured) = match &args.grid {
        Some(path) => (path.display().to_string(), Measurements::open(path)),
        None => ("the grid that comes along".to_owned(), Excerpt::SkyplaneGcp5.read()),
    };
    let refuse = |error: &dyn std::fmt::Display| Failure::Input(format!("{name}: {error}"));
    let measured = measured.map_err(|error| refuse(&error))?;
    if let Some(snapshot) = &args.snapshot {
        measure(&measured.grid(snapshot, &args.regions).map_err(|error| refuse(&error))?, args)?;
    } else {
        measure_all(&measured, args)?;
    }
    Ok(())
}
