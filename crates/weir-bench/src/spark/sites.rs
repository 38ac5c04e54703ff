//! `weir bench spark sites`: applications on hosts of several sites, one after the other.

use super::cluster::{Cluster, ClusterArgs, Setup, Shape, Sites, VANILLA};
use super::jobs::{Job, Said, application, prepare, said};
use super::{check_modes, mean, spread};
use anyhow::{Context, anyhow};
use clap::Args;
use comfy_table::Table;
use std::collections::BTreeMap;
use weir_console::Failure;
use weir_console::controller_options;
use weir_console::find_between_sites;
use weir_model::{Bytes, Rate};
use weir_results::{fixed, table, text};
use weir_testbed::live::RelaySetup;
use weir_trace::wan::{Excerpt, Measurements};

/// Runs applications on hosts of the five sites of Siphon's evaluation, whose links are those that were measured between them,
/// scaled down; hosts of one site reach each other without limit. Each application runs alone, on all hosts, and its results have to be the
/// same whatever moves the bytes.
///
/// vanilla: Spark's own fetch. naive: Weir, with a relay at each site and no controller: flows share the links between sites.
/// multi-path: a controller leads a part of them by third sites. siphon: that, and flows of the reducer that has most to read go first.
/// Others: a controller of that policy, as `weir controller --policy` has it.
///
/// Each application runs on a small input first, then twice on its own, of which the second counts: from the first the relays learn of links. map: seconds of stages that read
/// no shuffle. stages: of those that do. read: how long a task waited for its blocks, the slowest of them and the median. Ratios
/// are of one round, the first mode's time to the mode's, and averaged over rounds; +- is twice the standard error.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SitesArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// What moves the bytes
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values_t = [VANILLA, NAIVE, MULTI_PATH, "siphon"].map(str::to_owned))]
    mode: Vec<String>,
    /// The jobs, as NAME or NAME:MEGABYTES of input
    #[arg(long, value_name = "NAME:MB", value_delimiter = ',', default_values_t = ["skewed-sort:120"].map(str::to_owned))]
    job: Vec<String>,
    /// Partitions of their shuffles
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    partitions: u32,
    /// Hosts of each site
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=6))]
    hosts: u32,
    /// Rate of the fastest link between sites, headers included; the others are as much slower as they were measured
    #[arg(long, value_name = "RATE", default_value = "10mbit")]
    fastest: Rate,
    /// Tasks that an executor runs at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Rounds that are counted, each with all modes in turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
}

/// Relays, and no controller.
pub(super) const NAIVE: &str = "naive";
/// A controller that chooses ways, and has flows of one shuffle go alike.
pub(super) const MULTI_PATH: &str = "multi-path";
/// Of each relay to each other.
const CONNECTIONS: u8 = 4;

/// Rates between sites in bits per second, the fastest as said.
pub(super) fn rates(fastest: Rate) -> anyhow::Result<Vec<Vec<u64>>> {
    let measured: Measurements = Excerpt::SkyplaneGcp5.read()?;
    let mut grids = measured.grids(&[]);
    let regions = grids.iter().map(|grid| grid.regions.len()).max().unwrap_or(0);
    anyhow::ensure!(regions > 1, "no grid of measured links");
    // The last snapshot has a region less.
    grids.retain(|grid| grid.regions.len() == regions);
    let mean = |from: usize, to: usize| {
        grids.iter().map(|grid| grid.rates[from][to].bits_per_sec()).sum::<f64>() / grids.len() as f64
    };
    let means: Vec<Vec<f64>> = (0..regions)
        .map(|from| (0..regions).map(|to| if from == to { 0.0 } else { mean(from, to) }).collect())
        .collect();
    let most = means.iter().flatten().copied().fold(0.0, f64::max);
    let scaled = |rate: f64| (rate / most * fastest.bits_per_sec()) as u64;
    Ok(means.into_iter().map(|row| row.into_iter().map(scaled).collect()).collect())
}

fn relays(mode: &str) -> Result<Option<RelaySetup>, Failure> {
    let controller = match mode {
        VANILLA => return Ok(None),
        NAIVE => None,
        MULTI_PATH => controller_options("siphon:groups=off")?,
        policy => controller_options(policy)?,
    };
    Ok(Some(RelaySetup {
        connections: CONNECTIONS,
        connection_rates: None,
        controller,
        warm_up: Bytes(0),
        changes: Vec::new(),
    }))
}

/// Of one application at a time.
pub(super) fn shape(rates_bps: Vec<Vec<u64>>, mode: &str, hosts: u32, slots: u32) -> Result<Shape, Failure> {
    Ok(Shape {
        hosts,
        link_rate: "10gbit".parse().map_err(|error| Failure::Run(anyhow!("{error}")))?,
        slots,
        applications: 1,
        worker_conf: Vec::new(),
        sites: Some(Sites { rates_bps, relays: relays(mode)? }),
    })
}

/// Each job in an application of its own, one after the other: what they said, and megabytes that Weir carried. The controller of relays
/// learns of links from what warms up.
fn round(cluster: &Cluster, jobs: &[Job], args: &SitesArgs, name: &str) -> anyhow::Result<(Vec<Said>, f64)> {
    let run = |job: &Job| {
        let name = format!("{}-{name}", job.name);
        let mut application = application(cluster.setup(), job, args.partitions, &name);
        application.conf.push("spark.bench.again=true".to_owned());
        said(cluster.submit(&application)?).with_context(|| format!("{job}, {name}"))
    };
    let found = jobs.iter().map(run).collect::<anyhow::Result<_>>()?;
    let carried = cluster.carried()?;
    anyhow::ensure!(
        carried.gathers > 0.0 || !cluster.is_weir(),
        "Weir carried nothing; logs are in {}",
        cluster.dir().display()
    );
    Ok((found, carried.bytes / 1e6))
}

pub(super) fn sites(args: &SitesArgs) -> Result<(), Failure> {
    let jobs: Vec<Job> = args.job.iter().map(|said| Job::parse(said)).collect::<Result<_, _>>()?;
    check_modes(&args.mode, &[VANILLA, NAIVE, MULTI_PATH], find_between_sites)?;
    let setup = Setup::new(&args.cluster)?;
    let rates_bps = rates(args.fastest).map_err(Failure::Run)?;
    let hosts = args.hosts * rates_bps.len() as u32;
    let shape = |mode: &String| shape(rates_bps.clone(), mode, hosts, args.slots);
    let shapes: Vec<Shape> = args.mode.iter().map(shape).collect::<Result<_, _>>()?;
    println!(
        "{} sites of {} hosts each, the fastest link {}, {} partitions, {} rounds",
        rates_bps.len(),
        args.hosts,
        args.fastest,
        args.partitions,
        args.rounds
    );
    prepare(&setup, &shapes[0], &jobs, args.partitions).map_err(Failure::Run)?;
    let mut cluster = Cluster::start(&setup, &shapes[0], "sites", &args.mode[0]).map_err(Failure::Run)?;
    // By job, then by mode, then by round.
    let mut found: Vec<BTreeMap<&str, Vec<Said>>> = jobs.iter().map(|_| BTreeMap::new()).collect();
    for number in 0..args.rounds {
        for (mode, shape) in args.mode.iter().zip(&shapes) {
            cluster.change(shape, mode).map_err(Failure::Run)?;
            let name = format!("{mode}-{number}");
            let (said, megabytes) = round(&cluster, &jobs, args, &name).map_err(Failure::Run)?;
            for (of_job, (said, job)) in found.iter_mut().zip(said.into_iter().zip(&jobs)) {
                println!(
                    "round {number}, {mode}: {job} {:.1} s, slowest read {:.1} s",
                    said.seconds, said.slowest_read
                );
                let first = of_job.values().flatten().next();
                if let Some(first) = first.filter(|first| first.digest != said.digest) {
                    return Err(Failure::Run(anyhow!(
                        "{job} by {mode}: another result: {} and not {}",
                        said.digest,
                        first.digest
                    )));
                }
                of_job.entry(mode).or_default().push(said);
            }
            println!("round {number}, {mode}: {megabytes:.0} MB by Weir");
        }
    }
    for (job, of_job) in jobs.iter().zip(&found) {
        println!("\n{job}\n{}", text(&page(&args.mode, of_job)));
    }
    Ok(())
}

fn page(modes: &[String], found: &BTreeMap<&str, Vec<Said>>) -> Table {
    let heads = [
        "mode",
        "seconds",
        "+-",
        "shorter",
        "+-",
        "map",
        "stages",
        "slowest read",
        "+-",
        "shorter",
        "+-",
        "median read",
    ];
    let mut rows = table(&heads, 1);
    let first = &found[modes[0].as_str()];
    for mode in modes {
        let own = &found[mode.as_str()];
        let of = |value: fn(&Said) -> f64| own.iter().map(value).collect::<Vec<f64>>();
        let shorter = |value: fn(&Said) -> f64| -> Vec<f64> {
            first.iter().zip(own).map(|(first, own)| 100.0 * (1.0 - value(own) / value(first))).collect()
        };
        let both = |values: &[f64], digits: usize, unit: &str| {
            [fixed(mean(values), digits, unit), fixed(spread(values), digits, unit)]
        };
        let mut row = vec![mode.clone()];
        row.extend(both(&of(|said| said.seconds), 2, ""));
        row.extend(both(&shorter(|said| said.seconds), 1, " %"));
        row.push(fixed(mean(&of(|said| said.map)), 2, ""));
        row.push(fixed(mean(&of(|said| said.stages)), 2, ""));
        row.extend(both(&of(|said| said.slowest_read), 2, ""));
        row.extend(both(&shorter(|said| said.slowest_read), 1, " %"));
        row.push(fixed(mean(&of(|said| said.median_read)), 2, ""));
        rows.add_row(row);
    }
    rows
}
