//! The system in virtual time beside the fluid simulator: completion times that were worked out by hand, and a workload.

use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, HostId, Rate, Span, Time};
use weir_policy::{Parameter, ParameterKind};
use weir_trace::{Slice, synthetic::Fb2010};
use weir_world::scale::{Comparison, Control, ScaleSettings, compare, fluid, run};

/// Rounding of rates and of whole nanoseconds, in seconds.
const ROUNDING_S: f64 = 1e-6;

fn settings(hosts: u32, policy: &str, delay_ms: u64) -> ScaleSettings {
    ScaleSettings { delay: Span::from_millis(delay_ms), ..ScaleSettings::usual(hosts, policy) }
}

fn flow(source: u32, destination: u32, size: u64) -> FlowSpec {
    FlowSpec { source: HostId(source), destination: HostId(destination), size: Bytes(size), group: 0 }
}

#[track_caller]
fn takes(settings: &ScaleSettings, flows: &[FlowSpec], secs: f64) {
    let coflow = CoflowSpec::new(CoflowId(1), Time::ZERO, flows.to_vec());
    let done = run(settings, &[coflow]).expect("a run");
    assert!((done.ccts[0].as_secs() - secs).abs() < ROUNDING_S, "{} s, not {secs} s", done.ccts[0].as_secs());
}

/// Links of 125 MB/s, of which 0.985 are planned with: 123.125 MB/s.
const TENTH_OF_A_SECOND: u64 = 12_312_500;

#[test]
fn a_coflow_alone_takes_six_messages_and_its_bytes_at_the_planned_rate() {
    // The receiver asks who has its block and is told (2), asks there (1), the coordinator hears so (1) and at once makes a
    // plan (1), under which the first byte is there after (1): 6 ms, and 0.1 s.
    let varys = ScaleSettings { bypass: Span::ZERO, ..settings(4, "varys", 1) };
    takes(&varys, &[flow(0, 1, TENTH_OF_A_SECOND)], 0.106);
    // Two flows from two hosts meet at a receiver: twice the bytes through one link.
    takes(&varys, &[flow(0, 1, TENTH_OF_A_SECOND), flow(2, 1, TENTH_OF_A_SECOND)], 0.206);
}

#[test]
fn what_no_plan_is_made_for_takes_four_messages_and_its_bytes_at_the_rate_of_the_link() {
    // Below 0.25 s it is left to TCP: locate (2), request (1), bytes on their way (1). 12.5 MB at 125 MB/s are 0.1 s.
    takes(&settings(4, "varys", 1), &[flow(0, 1, 12_500_000)], 0.104);
    // Where senders decide, the agent does so at once, with what is planned of its uplink.
    takes(&settings(4, "dclas-strict", 1), &[flow(0, 1, TENTH_OF_A_SECOND)], 0.104);
}

#[test]
fn of_two_coflows_the_shorter_goes_first_and_the_longer_after_it() {
    // Both begin together on one link of which all is planned with. With messages that take no time the shorter takes its
    // 0.1 s; the longer waits for it and takes 0.3 s in all. Both plans follow a millisecond after the last one at most.
    let settings = ScaleSettings { plan_share: 1.0, bypass: Span::ZERO, ..settings(4, "varys", 0) };
    let of = |id, size| CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow(0, 1, size)]);
    let done = run(&settings, &[of(1, 25_000_000), of(2, 12_500_000)]).expect("a run");
    let secs: Vec<f64> = done.ccts.iter().map(|cct| cct.as_secs()).collect();
    assert!((0.3..0.302).contains(&secs[0]) && (0.1..0.102).contains(&secs[1]), "{secs:?}");
}

/// 20 hosts, 60 coflows: sizes and times divided so that it lasts a minute.
fn generated() -> Vec<CoflowSpec> {
    let made = Fb2010 { hosts: 20, coflows: 60, seconds: 1_200, seed: 3 }.generate();
    let slice = Slice {
        bytes_divisor: 40,
        time_divisor: 30,
        isolation_cap: Some(Span::from_millis(4_000)),
        ..Slice::whole(20)
    };
    slice.cut(&made.into_coflows(), Rate::from_bits_per_sec(1e9))
}

fn compared(settings: &ScaleSettings, coflows: &[CoflowSpec]) -> (Control, Comparison) {
    let done = run(settings, coflows).expect("a run");
    let compared = compare(&done, &fluid(settings, coflows).expect("a simulation"));
    (done, compared)
}

#[test]
fn a_generated_workload_is_close_to_its_simulation_and_comes_out_the_same_again() {
    let coflows = generated();
    assert!(coflows.len() > 50);
    for policy in ["varys", "dclas-strict"] {
        let near = ScaleSettings { bypass: Span::ZERO, ..ScaleSettings::usual(20, policy) };
        let near = ScaleSettings { delay: Span::from_nanos(10_000), ..near };
        let (done, close) = compared(&near, &coflows);
        assert_eq!(done.digest(), run(&near, &coflows).expect("a run").digest(), "{policy}");
        // Links are planned with to 98.5 %: 1.5 % more, and what plans that are a millisecond late cost.
        assert!((1.0..1.06).contains(&close.ratio()), "{policy}: {close:?}");
        assert!(close.too_fast.is_empty(), "{policy}: {close:?}");
        let far = ScaleSettings { delay: Span::from_millis(10), ..near };
        let (_, far) = compared(&far, &coflows);
        assert!(far.ratio() > close.ratio() && far.too_fast.is_empty(), "{policy}: {far:?} {close:?}");
    }
}

/// Policies that hosts can follow, as they are and with each of their settings at another value than its default.
fn every_policy_and_setting() -> Vec<String> {
    let other = |parameter: &Parameter| match parameter.kind {
        ParameterKind::Size => "1MB".to_owned(),
        ParameterKind::Time => "50ms".to_owned(),
        ParameterKind::Count => "3".to_owned(),
        ParameterKind::Factor => "2".to_owned(),
        ParameterKind::Switch => if parameter.default == "on" { "off" } else { "on" }.to_owned(),
        ParameterKind::Choice { of, .. } => of.last().expect("something to choose").to_string(),
    };
    let for_hosts = weir_policy::registry().iter().filter(|info| !info.between_sites);
    let with_settings = for_hosts.flat_map(|info| {
        let set = info.parameters.iter().map(move |of| format!("{}:{}={}", info.name, of.name, other(of)));
        std::iter::once(info.name.to_owned()).chain(set)
    });
    // One is refused on hosts, whose coordinator decides by all that it has heard; and links have no classes of priority here.
    with_settings.filter(|name| name != "clas:sync=50ms" && !name.starts_with("by-class")).collect()
}

/// What a setting does in the simulator it does in the system, whose clock stands at odd times.
#[test]
fn every_policy_with_each_of_its_settings_is_close_to_its_simulation() {
    let coflows = generated();
    for policy in every_policy_and_setting() {
        let settings = ScaleSettings { bypass: Span::ZERO, ..ScaleSettings::usual(20, &policy) };
        let (_, close) = compared(&settings, &coflows);
        assert!((1.0..1.12).contains(&close.ratio()), "{policy}: {close:?}");
        assert!(close.too_fast.is_empty(), "{policy}: {close:?}");
    }
}

#[test]
fn the_first_coflows_of_the_public_trace_are_close_to_their_simulation() {
    let Ok(path) = weir_trace::find_public_trace() else {
        eprintln!("SKIPPED: the public Facebook trace is not here; set WEIR_TRACE_DIR to its folder");
        return;
    };
    let trace = weir_trace::load(&path.to_string_lossy(), 1).expect("the public trace");
    let (hosts, mut coflows) = (trace.hosts, trace.into_coflows());
    coflows.truncate(10);
    for policy in ["varys", "dclas-strict"] {
        let (_, compared) = compared(&ScaleSettings::usual(hosts, policy), &coflows);
        assert!(compared.too_fast.is_empty(), "{compared:?}");
        println!("{policy}: {compared:?}");
    }
}

#[test]
fn what_it_cannot_run_is_refused_in_words() {
    let coflow = CoflowSpec::new(CoflowId(1), Time::ZERO, Vec::new());
    let error = run(&settings(2, "varys", 1), std::slice::from_ref(&coflow)).expect_err("no flows");
    assert_eq!(error, "coflow 1 has stages, a deadline or no flows");
    assert!(run(&settings(2, "vary", 1), &[coflow]).is_err());
}
