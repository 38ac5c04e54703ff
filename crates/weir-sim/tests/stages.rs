//! Stages of jobs in a run: when they arrive, when their job is complete, and what becomes of them when it cannot be.
//! Every port moves 1 unit per second; a unit is 10^6 bytes.

use weir_model::{
    Bytes, CoflowId, CoflowSpec, Dependencies, Fabric, FlowSpec, HostId, JobId, Rate, Span, Time,
};
use weir_sim::{Options, Outcome, SimError, simulate};

/// A coflow of so many units from host 0 to host 1, in job 10.
fn stage(id: u64, units: u64, after: &[u64], compute_ms: u64) -> CoflowSpec {
    let size = Bytes(units * 1_000_000);
    let flow = FlowSpec { source: HostId(0), destination: HostId(1), size, group: 0 };
    let dependencies = Dependencies {
        job: Some(JobId(10)),
        after: after.iter().map(|&id| CoflowId(id)).collect(),
        compute: Span::from_millis(compute_ms),
        ..Dependencies::default()
    };
    CoflowSpec { dependencies, ..CoflowSpec::new(CoflowId(id), Time::from_millis(2000), vec![flow]) }
}

fn run(coflows: &[CoflowSpec], policy: &str, options: &Options) -> Result<Outcome, SimError> {
    let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1e6)).expect("a fabric");
    let mut policy = weir_policy::create(policy).expect("a policy");
    simulate(&fabric, coflows.to_vec(), policy.as_mut(), options)
}

fn ms(span: Span) -> f64 {
    span.nanos() as f64 / 1e6
}

#[test]
fn a_job_takes_its_compute_times_and_its_transfers_and_options_move_only_its_arrival() {
    // 0.5 s, 3 units, 1 s, 2 units: 6.5 s from the job's arrival, whenever that is.
    let coflows = [stage(1, 3, &[], 500), stage(2, 2, &[1], 1000)];
    for (options, arrival_ms) in [
        (Options::default(), 2000),
        (Options { offline: true, ..Options::default() }, 0),
        (Options { arrival_scale: 0.5, ..Options::default() }, 1000),
    ] {
        for info in weir_policy::registry() {
            let outcome = run(&coflows, info.name, &options).expect("an end");
            let [job] = outcome.jobs.as_slice() else { panic!("one job") };
            assert_eq!((job.id, job.arrival, job.coflows), (JobId(10), Time::from_millis(arrival_ms), 2));
            assert!((ms(job.jct.expect("an end")) - 6500.0).abs() < 1e-3, "{}: {:?}", info.name, job.jct);
            let arrivals: Vec<f64> = outcome.coflows.iter().map(|coflow| coflow.arrival.as_secs()).collect();
            let begin = arrival_ms as f64 / 1e3;
            assert!((arrivals[0] - begin - 0.5).abs() < 1e-6 && (arrivals[1] - begin - 4.5).abs() < 1e-6);
        }
    }
}

#[test]
fn stages_behind_a_refused_coflow_are_refused_with_it_and_their_job_has_no_end() {
    // 3 s of work for a deadline of 2 s; coflow 4 is a job of its own.
    let mut coflows = [stage(1, 3, &[], 0), stage(2, 1, &[1], 0), stage(3, 1, &[2], 0), stage(4, 1, &[], 0)];
    coflows[0].deadline = Some(Span::from_millis(2000));
    coflows[3].dependencies = Dependencies::default();
    let outcome = run(&coflows, "varys-deadline", &Options::default()).expect("an end");
    let admitted: Vec<(u64, bool)> =
        outcome.coflows.iter().map(|coflow| (coflow.id.0, coflow.admitted)).collect();
    assert_eq!(admitted, [(1, false), (2, false), (3, false), (4, true)]);
    let jcts: Vec<(u64, Option<f64>)> = outcome.jobs.iter().map(|job| (job.id.0, job.jct.map(ms))).collect();
    assert_eq!(jcts, [(4, Some(1000.0)), (10, None)]);
    assert!(outcome.refused[2].reason.contains("follow on coflow 1"), "{}", outcome.refused[2].reason);
}

#[test]
fn coflows_that_wait_for_each_other_are_an_error_and_not_an_endless_run() {
    let coflows = [stage(1, 1, &[], 0), stage(2, 1, &[3], 0), stage(3, 1, &[2], 0)];
    let error = run(&coflows, "varys", &Options::default()).expect_err("a circle");
    assert_eq!(error, SimError::NeverArrives { coflow: CoflowId(2) });
}
