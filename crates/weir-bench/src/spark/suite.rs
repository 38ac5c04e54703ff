//! `weir bench spark suite`: the ways in which Spark shuffles, one application each.

use super::application::Application;
use super::cluster::{Cluster, ClusterArgs, Setup, Shape};
use anyhow::anyhow;
use clap::Args;
use std::collections::BTreeMap;
use weir_console::Failure;
use weir_console::find_for_hosts;
use weir_model::Rate;
use weir_results::{fixed, table, text};

const CLASS: &str = "io.weir.bench.Cases";

/// Runs each case by Spark alone and by Weir, on a cluster of a worker, an agent and an external shuffle service on each host.
/// What both read has to be the same, and Weir has to have moved some of it. A case fails, too, if what it is about did not
/// happen: an executor that was to die, a query that was to be planned anew.
///
/// seconds: of the case, without the start of its application. MB from others: what tasks read from other executors, by
/// whomever. MB by Weir: what agents sent meanwhile; where executors die or tasks are run twice, that may be more.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SuiteArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Cases to run instead of all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    case: Vec<String>,
    /// The policy under which Weir moves the shuffles
    #[arg(long, value_name = "NAME", default_value = "dclas")]
    policy: String,
    /// Number of hosts, each with a worker
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=32))]
    hosts: u32,
    /// Rate of each host's link, each direction, headers included
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    link_rate: Rate,
}

/// What a case said, and what of it Weir moved.
struct Outcome {
    seconds: f64,
    remote_bytes: f64,
    weir_bytes: f64,
    digest: String,
}

fn run(cluster: &Cluster, case: &str) -> anyhow::Result<Outcome> {
    let before = cluster.carried()?;
    let args = vec![case.to_owned()];
    let running = cluster.submit(&Application { name: case, class: CLASS, args, conf: Vec::new() })?;
    let lines = running.said()?;
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["case", _, "seconds", seconds, "remote", remote, "digest", digest] = words[..] {
            let weir_bytes = cluster.carried()?.bytes - before.bytes;
            let (seconds, remote_bytes) = (seconds.parse()?, remote.parse()?);
            return Ok(Outcome { seconds, remote_bytes, weir_bytes, digest: digest.to_owned() });
        }
    }
    Err(anyhow!("the application did not say what it read"))
}

/// What is wrong with a case, if anything.
fn verdict(vanilla: &anyhow::Result<Outcome>, weir: &anyhow::Result<Outcome>) -> Option<String> {
    match (vanilla, weir) {
        (Err(error), _) => Some(format!("by Spark alone: {error:#}")),
        (_, Err(error)) => Some(format!("by Weir: {error:#}")),
        (Ok(vanilla), Ok(weir)) if vanilla.digest != weir.digest => Some("other results".to_owned()),
        (_, Ok(weir)) if weir.weir_bytes == 0.0 => Some("Weir moved nothing".to_owned()),
        _ => None,
    }
}

pub(super) fn suite(args: &SuiteArgs) -> Result<(), Failure> {
    super::check_modes(std::slice::from_ref(&args.policy), &["tcp"], find_for_hosts)?;
    let setup = Setup::new(&args.cluster)?;
    let known = setup.ask(CLASS, "list").map_err(Failure::Run)?;
    let cases = if args.case.is_empty() { known.clone() } else { args.case.clone() };
    if let Some(case) = cases.iter().find(|case| !known.contains(case)) {
        return Err(Failure::Input(format!("--case {case}: there is none; there are {}", known.join(", "))));
    }
    let shape = Shape {
        hosts: args.hosts,
        link_rate: args.link_rate,
        slots: 4,
        applications: 1,
        worker_conf: vec!["spark.shuffle.service.enabled=true".to_owned()],
        sites: None,
    };
    let mut outcomes: BTreeMap<&str, BTreeMap<&str, anyhow::Result<Outcome>>> = BTreeMap::new();
    for mode in [super::cluster::VANILLA, args.policy.as_str()] {
        let cluster = Cluster::start(&setup, &shape, mode, mode).map_err(Failure::Run)?;
        for case in &cases {
            let outcome = run(&cluster, case);
            match &outcome {
                Ok(outcome) => println!("{mode}: {case}: {:.1} s", outcome.seconds),
                Err(error) => println!("{mode}: {case}: {error:#}"),
            }
            outcomes.entry(case).or_default().insert(mode, outcome);
        }
    }
    let heads = ["case", "by Spark alone, s", "by Weir, s", "MB from others", "MB by Weir", "result"];
    let mut rows = table(&heads, 1);
    let mut failed = 0;
    for case in &cases {
        let both = &outcomes[case.as_str()];
        let (vanilla, weir) = (&both[super::cluster::VANILLA], &both[args.policy.as_str()]);
        let wrong = verdict(vanilla, weir);
        failed += usize::from(wrong.is_some());
        let of = |outcome: &anyhow::Result<Outcome>, value: fn(&Outcome) -> f64| match outcome {
            Ok(outcome) => fixed(value(outcome), 1, ""),
            Err(_) => String::new(),
        };
        rows.add_row(vec![
            case.clone(),
            of(vanilla, |outcome| outcome.seconds),
            of(weir, |outcome| outcome.seconds),
            of(weir, |outcome| outcome.remote_bytes / 1e6),
            of(weir, |outcome| outcome.weir_bytes / 1e6),
            wrong.unwrap_or_else(|| "the same".to_owned()),
        ]);
    }
    println!("\n{}", text(&rows));
    if failed > 0 {
        return Err(Failure::Run(anyhow!("{failed} of {} cases failed", cases.len())));
    }
    println!("results are the same in all cases");
    Ok(())
}
