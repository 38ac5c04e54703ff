//! What is said of runs between sites.

use super::{LiveResults, LiveRun};
use std::fmt::Write;
use weir_experiment::{Experiment, Live};
use weir_results::mean;

/// One line on a run.
pub fn line(run: &LiveRun) -> String {
    let LiveRun { policy, seed, live, simulated, learned_error, .. } = run;
    let learned =
        learned_error.map_or_else(String::new, |error| format!(", links learned to {:.1} %", error * 100.0));
    format!(
        "seed {seed}, {policy}: average {:.2} s, simulated {:.2} s ({:.3}x); reads p50 {:.2} s, simulated {:.2} s{learned}",
        live.avg_cct_s,
        simulated.avg_cct_s,
        live.avg_cct_s / simulated.avg_cct_s,
        live.read_p50_s,
        simulated.read_p50_s,
    )
}

/// The page: a row per policy.
pub fn page(experiment: &Experiment, live: &Live, name: &str, results: &LiveResults) -> String {
    let mut page = String::new();
    let seeds = experiment.live_seeds(live).len();
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "# {}, with real bytes\n\n{}, {}. Workload: {}. `weir experiment live {name}` makes this page; it is of one \
         machine and one run, unlike the simulated one beside it. Means over {seeds} seeds; in brackets the least and the \
         most. {}\n",
        experiment.title,
        experiment.source,
        results.point,
        results.workload,
        results.made_by.line(experiment.live_seeds(live))
    );
    let _ = writeln!(
        page,
        "| policy | average, s | simulated, s | live / simulated | factor | simulated factor | read p50, s | simulated, s | learned to |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for policy in &live.policies {
        let of = |policy: &String| -> Vec<&LiveRun> {
            results.runs.iter().filter(|run| run.policy == *policy).collect()
        };
        let (runs, base) = (of(policy), of(&live.policies[0]));
        let average =
            |of: &dyn Fn(&LiveRun) -> f64| mean(&runs.iter().map(|run| of(run)).collect::<Vec<_>>());
        let ratios = |of: &dyn Fn(&LiveRun, &LiveRun) -> f64| {
            let mut all: Vec<f64> = runs.iter().zip(&base).map(|(run, base)| of(run, base)).collect();
            all.sort_by(f64::total_cmp);
            let ends = all.first().zip(all.last()).map_or((0.0, 0.0), |(first, last)| (*first, *last));
            format!("{:.3} ({:.3}-{:.3})", mean(&all), ends.0, ends.1)
        };
        let learned: Vec<f64> = runs.iter().filter_map(|run| run.learned_error).collect();
        let learned =
            if learned.is_empty() { "-".to_owned() } else { format!("{:.1} %", mean(&learned) * 100.0) };
        let _ = writeln!(
            page,
            "| {policy} | {:.2} | {:.2} | {} | {} | {} | {:.2} | {:.2} | {learned} |",
            average(&|run| run.live.avg_cct_s),
            average(&|run| run.simulated.avg_cct_s),
            ratios(&|run, _| run.live.avg_cct_s / run.simulated.avg_cct_s),
            ratios(&|run, base| run.live.avg_cct_s / base.live.avg_cct_s),
            ratios(&|run, base| run.simulated.avg_cct_s / base.simulated.avg_cct_s),
            average(&|run| run.live.read_p50_s),
            average(&|run| run.simulated.read_p50_s),
        );
    }
    let _ = writeln!(
        page,
        "\n- average: from a coflow's arrival to its last verified byte; of a single shuffle, its slowest read\n\
         - factor: average over that of the first policy\n\
         - read p50: median time until a reducer has read\n\
         - learned to: mean over links of how far the mean of what relays measured is from what the link had"
    );
    page
}
