//! What the tests of the simulator share.

use proptest::prelude::*;
use weir_model::*;

/// Fabrics of every layout, with 4 to 6 hosts.
pub(crate) fn fabrics() -> impl Strategy<Value = Fabric> {
    let rate = (1u32..8).prop_map(|tenth| Rate::from_bytes_per_sec(f64::from(tenth) * 1.25e7));
    let switch = prop::collection::vec(rate.clone(), 4..=6).prop_map(|rates| Fabric::big_switch_with(&rates));
    let racks = (rate.clone(), 10u32..45).prop_map(|(host_rate, tenths)| {
        let oversubscription = f64::from(tenths) / 10.0;
        Fabric::racks(&RackSpec { hosts_per_rack: 2, racks: 3, host_rate, oversubscription })
    });
    let sites =
        (prop::option::of(rate.clone()), prop::collection::vec(rate, 9)).prop_map(|(host_rate, rates)| {
            let rates = rates.chunks(3).map(<[Rate]>::to_vec).collect();
            Fabric::sites(&SiteSpec { hosts_per_site: vec![2, 1, 2], host_rate, rates })
        });
    prop_oneof![switch, racks, sites].prop_map(|fabric| fabric.expect("a fabric that can be built"))
}

/// Up to 6 coflows of up to 8 flows between hosts 0 to 3, arriving within a few seconds.
pub(crate) fn workloads() -> impl Strategy<Value = Vec<CoflowSpec>> {
    let flow = (0u32..4, 0u32..4, 1_000_000u64..300_000_000).prop_map(|(source, destination, size)| {
        FlowSpec { source: HostId(source), destination: HostId(destination), size: Bytes(size), group: 0 }
    });
    let coflow = (0u64..8000, prop::collection::vec(flow, 1..8));
    prop::collection::vec(coflow, 1..6).prop_map(|coflows| {
        let with_id = (1u64..).zip(coflows);
        with_id
            .map(|(id, (millis, flows))| CoflowSpec::new(CoflowId(id), Time::from_millis(millis), flows))
            .collect()
    })
}

/// A switch of 8 hosts and up to 8 coflows of up to 40 flows that arrive within a second. All flows of a
/// coflow are 1 to 3 times as large as its smallest, so that links fill at the same flow and flows end
/// together; no two coflows are alike, and they arrive at odd nanoseconds, so that neither their order nor which of
/// two ends first is a matter of rounding.
pub(crate) fn busy_switch() -> impl Strategy<Value = (Fabric, Vec<CoflowSpec>)> {
    let flow = (0u32..8, 0u32..8, 1u64..4);
    let coflows = prop::collection::vec((0u64..1_000_000_000, prop::collection::vec(flow, 1..40)), 1..8);
    let coflows = coflows.prop_map(|coflows| {
        let flow = |id, &(source, destination, units): &(u32, u32, u64)| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(units * (10_000_000 + 1_379_113 * id)),
            group: 0,
        };
        let spec = |(id, (nanos, flows)): (u64, &(u64, Vec<_>))| {
            let flows = flows.iter().map(|ends| flow(id, ends)).collect();
            CoflowSpec::new(CoflowId(id), Time::from_nanos(*nanos), flows)
        };
        (1u64..).zip(&coflows).map(spec).collect()
    });
    (Just(Fabric::big_switch(8, Rate::from_bytes_per_sec(1.25e8)).expect("a fabric")), coflows)
}
