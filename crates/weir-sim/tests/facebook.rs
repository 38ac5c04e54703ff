//! The Facebook trace at 1 Gbit/s, where two independent exact calculations agree on the averages. Skipped
//! where the trace is not at hand: its licence does not let us store it here.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use weir_model::{CoflowSpec, Fabric, Rate, Span};
use weir_policy::order::Sebf;
use weir_policy::share::Residual;
use weir_policy::{CoflowByCoflow, create};
use weir_sim::{Options, Outcome, Replan, simulate};
use weir_trace::coflow_benchmark::Reader;

const NAME: &str = "FB2010-1Hr-150-0.txt";

/// Fabric and coflows, or `None` with a word on standard error.
fn trace() -> Option<(Fabric, Vec<CoflowSpec>)> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = std::env::var_os("WEIR_TRACE_DIR").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(file) = std::fs::File::open(folder.join(NAME)) else {
        // Not `eprintln`, which the harness hides where a test passes.
        let said =
            writeln!(std::io::stderr(), "SKIPPED: no {NAME} in {}; set WEIR_TRACE_DIR", folder.display());
        said.expect("standard error");
        return None;
    };
    let reader = Reader::new(BufReader::new(file)).expect("a first line");
    let fabric = Fabric::big_switch(reader.hosts(), Rate::from_bytes_per_sec(125e6)).expect("a fabric");
    Some((fabric, reader.collect::<Result<_, _>>().expect("a whole trace")))
}

fn run(fabric: &Fabric, coflows: &[CoflowSpec], policy: &str, options: &Options) -> Outcome {
    let mut policy = create(policy).expect("a registered policy");
    let outcome = simulate(fabric, coflows.to_vec(), policy.as_mut(), options).expect("nobody starves");
    assert_eq!(outcome.coflows.len(), coflows.len());
    assert_eq!(outcome.delivered, coflows.iter().map(CoflowSpec::bytes).sum());
    for record in &outcome.coflows {
        // Both are exact up to the side of a whole nanosecond on which a floating-point division falls.
        assert!(record.cct + Span::from_nanos(1) >= record.isolation, "{record:?} beats an empty network");
    }
    outcome
}

#[track_caller]
fn assert_average(outcome: &Outcome, expected_secs: f64) {
    let average = outcome.average_cct_secs();
    assert!((average / expected_secs - 1.0).abs() < 0.002, "{average} s, expected {expected_secs} s");
}

#[test]
fn averages_of_fair_and_varys_are_the_exact_ones() {
    let Some((fabric, coflows)) = trace() else { return };
    let fair = run(&fabric, &coflows, "fair", &Options::default());
    assert!((fair.average_isolation_secs() - 15.436).abs() < 0.001);
    assert_average(&fair, 64.63);
    assert_average(&run(&fabric, &coflows, "varys", &Options::default()), 23.63);
}

#[test]
fn frozen_rates_between_coflow_events_cost_varys_more_than_half() {
    let Some((fabric, coflows)) = trace() else { return };
    let options = Options { replan: Replan::CoflowEvents, ..Options::default() };
    assert_average(&run(&fabric, &coflows, "varys", &options), 53.6);
}

#[test]
fn smallest_flow_first_has_its_known_average() {
    let Some((fabric, coflows)) = trace() else { return };
    assert_average(&run(&fabric, &coflows, "smallest-flow", &Options::default()), 35.88);
}

/// Flows of a reducer are equally long, so an order of single flows leaves open which of them goes first: two simulators
/// with exact rates need not agree to the last digits. An order of coflows leaves nothing open.
#[test]
fn the_order_of_flows_in_a_coflow_moves_smallest_flow_by_up_to_a_percent_and_varys_by_nothing() {
    let Some((fabric, coflows)) = trace() else { return };
    let averages = |policy: &str| -> Vec<f64> {
        let shuffled = |seed| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut coflows = coflows.clone();
            coflows.iter_mut().for_each(|coflow| coflow.flows.shuffle(&mut random));
            run(&fabric, &coflows, policy, &Options::default()).average_cct_secs()
        };
        (1..=3).map(shuffled).collect()
    };
    for (policy, usual, moves) in [("smallest-flow", 35.883, 0.001..0.01), ("varys", 23.6275, 0.0..1e-5)] {
        let averages = averages(policy);
        println!("{policy}: {averages:.3?} s with flows of coflows shuffled");
        let most = averages.iter().map(|average| (average / usual - 1.0).abs()).fold(0.0, f64::max);
        assert!(moves.contains(&most), "{policy}: {averages:?} s, {usual} s as listed");
    }
}

/// What counts as a full link may be a hundred times more or less.
#[test]
fn dust_does_not_decide() {
    let Some((fabric, coflows)) = trace() else { return };
    let coflows = &coflows[..coflows.len() / 4];
    let average = |dust_share: f64| {
        let residual = Residual::with_dust_share(dust_share);
        let mut policy = CoflowByCoflow::with_residual(Box::<Sebf>::default(), residual);
        simulate(&fabric, coflows.to_vec(), &mut policy, &Options::default()).unwrap().average_cct_secs()
    };
    let usual = average(1e-9);
    for dust_share in [1e-7, 1e-11] {
        let other = average(dust_share);
        assert!((other / usual - 1.0).abs() < 1e-6, "{other} s with {dust_share}, {usual} s with 1e-9");
    }
}
