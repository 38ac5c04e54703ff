//! `lp-routed` beside `sebf-routed`, which differs from it only in who routes.

use weir_model::{Bytes, CoflowId, CoflowSpec, Fabric, FlowSpec, HostId, Rate, SiteSpec, Time};
use weir_policy::create;

/// Five sites of one host each. No two links are alike.
fn fabric() -> Fabric {
    let rate = |from: u32, to: u32| Rate::from_bytes_per_sec(f64::from(3 + (7 * from + 5 * to) % 11) * 1e6);
    let rates = (0..5).map(|from| (0..5).map(|to| rate(from, to)).collect()).collect();
    Fabric::sites(&SiteSpec { hosts_per_site: vec![1; 5], host_rate: None, rates }).expect("a fabric")
}

fn coflow(id: u64, millis: u64) -> CoflowSpec {
    let flow = |at: u64| FlowSpec {
        source: HostId((at % 5) as u32),
        destination: HostId(((at + 1 + id % 4) % 5) as u32),
        size: Bytes(1_000_003 * (1 + (at * at + id) % 29)),
        group: 0,
    };
    CoflowSpec::new(CoflowId(id), Time::from_millis(millis), (0..3 + id % 4).map(flow).collect())
}

fn ccts(policy: &str, coflows: Vec<CoflowSpec>) -> Vec<f64> {
    let mut policy = create(policy).expect("a policy");
    let outcome = weir_sim::simulate(&fabric(), coflows, policy.as_mut(), &Default::default());
    outcome.expect("nobody starves").coflows.iter().map(|record| record.cct.as_secs()).collect()
}

/// Links that others have filled carry nothing, which linear programs have to cope with.
#[test]
fn linear_programs_route_coflows_beside_each_other() {
    // The only test of this program: nobody asked for the registry before.
    assert!(weir_policy::add_policies(weir_lp::POLICIES));
    for id in 0..12 {
        let (by_program, by_water) =
            (ccts("lp-routed", vec![coflow(id, 0)])[0], ccts("sebf-routed", vec![coflow(id, 0)])[0]);
        // Nothing is faster than the optimum; water-filling is seldom a tenth slower.
        assert!(by_program <= by_water * (1.0 + 1e-6), "coflow {id}: {by_program} and {by_water}");
        assert!(by_water <= by_program * 1.1, "coflow {id}: {by_program} and {by_water}");
    }
    let all = || (0..40).map(|id| coflow(id, 200 * id)).collect::<Vec<_>>();
    let mean = |ccts: Vec<f64>| ccts.iter().sum::<f64>() / ccts.len() as f64;
    let (by_program, by_water) = (mean(ccts("lp-routed", all())), mean(ccts("sebf-routed", all())));
    assert!((by_program / by_water - 1.0).abs() < 0.05, "{by_program} and {by_water}");
}
