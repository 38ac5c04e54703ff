//! The workload of a point: what the trace has, changed as the point says.

use crate::Setup;
use crate::jobs::{Classes, fair_times, into_jobs};
use crate::sites::RegionNet;
use std::collections::BTreeMap;
use weir_model::{Bytes, CapacityChange, CoflowId, CoflowSpec, Fabric, RackSpec, Span, Time};
use weir_trace::synthetic::Draw;

/// Hosts of a rack where links to the core are modelled.
const HOSTS_PER_RACK: u32 = 10;

/// Network and coflows of one run.
pub(crate) struct Work {
    pub(crate) fabric: Fabric,
    pub(crate) coflows: Vec<CoflowSpec>,
    /// How the capacities of links change.
    pub(crate) changes: Vec<CapacityChange>,
    /// Bins of coflows, if they are not those of Varys.
    pub(crate) bins: BTreeMap<CoflowId, u8>,
    /// Whether it matters when reducers have read.
    pub(crate) reads: bool,
    /// Regions of the sites, if there are any.
    pub(crate) regions: RegionNet,
    /// The classes of jobs, if coflows were made stages of them.
    pub(crate) classes: Classes,
}

/// Makes the work of a point from the coflows of a trace.
pub(crate) fn prepare(coflows: &[CoflowSpec], hosts: u32, setup: &Setup, seed: u64) -> Result<Work, String> {
    let rate = setup.link_rate()?;
    let fabric = match setup.oversubscription {
        None => Fabric::big_switch(hosts, rate),
        Some(oversubscription) => Fabric::racks(&RackSpec {
            hosts_per_rack: HOSTS_PER_RACK,
            racks: hosts.div_ceil(HOSTS_PER_RACK),
            host_rate: rate,
            oversubscription,
        }),
    };
    let mut fabric = fabric.map_err(|error| error.to_string())?;
    let mut draw = Draw::new(seed);
    let mut coflows = match (setup.concurrent, setup.mix) {
        (Some(count), _) if count > coflows.len() => {
            return Err(format!("concurrent = {count}: the workload has {} coflows", coflows.len()));
        }
        (Some(count), _) => at_once(coflows, count, &mut draw),
        (None, Some(mix)) => mixed(coflows, mix, &mut draw)?,
        (None, None) => coflows.to_vec(),
    };
    if let Some(most_secs) = setup.jitter {
        delay(&mut coflows, Span::from_secs_ceil(most_secs), &mut draw);
    }
    if let Some(skew) = setup.skew {
        coflows.iter_mut().for_each(|coflow| skew_parts(coflow, skew, &mut draw));
    }
    let (mut changes, mut bins, mut reads) = (Vec::new(), BTreeMap::new(), false);
    let mut regions = RegionNet::default();
    if let Some(sites) = &setup.sites {
        let work = sites.work(coflows, hosts, seed)?;
        (fabric, changes, coflows, bins) = (work.fabric, work.changes, work.coflows, work.bins);
        (reads, regions) = (sites.shuffles.is_some(), work.regions);
    }
    if let Some(spread) = setup.deadlines {
        weir_trace::draw_deadlines(&mut coflows, spread, seed, |coflow| weir_sim::isolation(&fabric, coflow));
    }
    let mut classes = Classes::new();
    if let Some(jobs) = setup.jobs {
        let fair = fair_times(&fabric, &coflows)?;
        (coflows, classes) = into_jobs(coflows, &fair, jobs, &mut draw);
    }
    Ok(Work { fabric, coflows, changes, bins, reads, regions, classes })
}

/// So many different coflows, arriving together in the order of the trace.
fn at_once(coflows: &[CoflowSpec], count: usize, draw: &mut Draw) -> Vec<CoflowSpec> {
    let mut order: Vec<usize> = (0..coflows.len()).collect();
    draw.shuffle(&mut order);
    order.truncate(count);
    order.sort_unstable();
    order.iter().map(|&at| CoflowSpec { arrival: Time::ZERO, ..coflows[at].clone() }).collect()
}

/// So many coflows of each bin, drawn with repetition, at random times within those of the trace.
fn mixed(coflows: &[CoflowSpec], mix: [usize; 4], draw: &mut Draw) -> Result<Vec<CoflowSpec>, String> {
    let last = coflows.iter().map(|coflow| coflow.arrival.nanos()).max().unwrap_or(0);
    let mut drawn = Vec::new();
    for (bin, count) in (1u8..).zip(mix) {
        let of_bin: Vec<&CoflowSpec> = coflows.iter().filter(|coflow| coflow.bin() == bin).collect();
        if of_bin.is_empty() && count > 0 {
            return Err(format!("the workload has no coflow of bin {bin}"));
        }
        for _ in 0..count {
            let coflow = of_bin[draw.below(of_bin.len() as u64) as usize];
            let arrival = Time::from_nanos(draw.below(last + 1));
            drawn.push(CoflowSpec { arrival, ..coflow.clone() });
        }
    }
    drawn.sort_by_key(|coflow| coflow.arrival);
    for (id, coflow) in (1..).zip(&mut drawn) {
        // Drawn with repetition: a coflow of the trace may be there several times, and ids have to
        // differ.
        coflow.id = CoflowId(id);
    }
    Ok(drawn)
}

/// Lets every coflow arrive up to `most` later, each by a draw of its own.
fn delay(coflows: &mut [CoflowSpec], most: Span, draw: &mut Draw) {
    for coflow in coflows.iter_mut() {
        coflow.arrival = coflow.arrival + Span::from_nanos(draw.below(most.nanos().saturating_add(1)));
    }
    coflows.sort_by_key(|coflow| (coflow.arrival, coflow.id));
}

/// Lets a reducer's bytes come from its mappers in unequal parts: the one of rank k, by a random order of the
/// reducer's own, sends a part in proportion to `1 / k^skew`. What the reducer gets stays the same to the byte.
fn skew_parts(coflow: &mut CoflowSpec, skew: f64, draw: &mut Draw) {
    let groups = coflow.flows.iter().map(|flow| (flow.destination, flow.group));
    let groups: std::collections::BTreeSet<_> = groups.collect();
    for group in groups {
        let mut flows: Vec<usize> = (0..coflow.flows.len())
            .filter(|&at| (coflow.flows[at].destination, coflow.flows[at].group) == group)
            .collect();
        draw.shuffle(&mut flows);
        let total: u64 = flows.iter().map(|&at| coflow.flows[at].size.0).sum();
        let sum: f64 = (1..=flows.len()).map(|rank| (rank as f64).powf(-skew)).sum();
        // Every flow has at least a byte; the first one gets what rounding leaves.
        let mut left = total;
        for (before, &at) in flows.iter().enumerate().rev() {
            let part = (total as f64 * ((before + 1) as f64).powf(-skew) / sum).round() as u64;
            let size = if before == 0 { left } else { part.clamp(1, left - before as u64) };
            coflow.flows[at].size = Bytes(size);
            left -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{FlowSpec, HostId};

    fn coflow(id: u64, flows: u32, size: u64) -> CoflowSpec {
        let flow =
            |source| FlowSpec { source: HostId(source), destination: HostId(0), size: Bytes(size), group: 0 };
        CoflowSpec::new(CoflowId(id), Time::from_millis(id), (0..flows).map(flow).collect())
    }

    #[test]
    fn skew_keeps_what_a_reducer_gets_and_gives_ranks_their_parts() {
        let mut skewed = coflow(1, 3, 1_100_000);
        skew_parts(&mut skewed, 1.0, &mut Draw::new(1));
        let mut sizes: Vec<u64> = skewed.flows.iter().map(|flow| flow.size.0).collect();
        sizes.sort_unstable();
        // 3.3 MB in the ratio 1 : 1/2 : 1/3, that is 6 : 3 : 2 of 11.
        assert_eq!(sizes, [600_000, 900_000, 1_800_000]);
    }

    #[test]
    fn tiny_parts_are_of_at_least_a_byte() {
        let mut skewed = coflow(1, 40, 1);
        skew_parts(&mut skewed, 2.0, &mut Draw::new(1));
        assert!(skewed.flows.iter().all(|flow| flow.size == Bytes(1)));
    }

    #[test]
    fn jitter_delays_every_coflow_by_its_own_draw_and_no_longer_than_asked() {
        let coflows: Vec<CoflowSpec> = (0..50).map(|id| coflow(id, 1, 1000)).collect();
        let setup = Setup { jitter: Some(2.0), ..Setup::default() };
        let delayed = prepare(&coflows, 3, &setup, 1).expect("work").coflows;
        let delay = |coflow: &CoflowSpec| coflow.arrival - Time::from_millis(coflow.id.0);
        assert!(delayed.iter().all(|coflow| delay(coflow) <= Span::from_millis(2000)));
        assert!(delayed.iter().any(|coflow| delay(coflow) > Span::from_millis(1500)));
        assert!(delayed.iter().any(|coflow| delay(coflow) < Span::from_millis(500)));
        assert!(delayed.is_sorted_by_key(|coflow| coflow.arrival));
    }

    #[test]
    fn draws_have_the_numbers_asked_for_and_depend_on_the_seed_alone() {
        let coflows: Vec<CoflowSpec> = (0..20).map(|id| coflow(id, 1, 1000)).collect();
        let drawn = |seed| {
            let setup = Setup { concurrent: Some(5), ..Setup::default() };
            prepare(&coflows, 3, &setup, seed).expect("work").coflows
        };
        assert_eq!((drawn(1).len(), drawn(1) == drawn(1), drawn(1) == drawn(2)), (5, true, false));
        assert!(drawn(1).iter().all(|coflow| coflow.arrival == Time::ZERO));
        let setup = Setup { mix: Some([7, 0, 0, 0]), ..Setup::default() };
        assert_eq!(prepare(&coflows, 3, &setup, 1).expect("work").coflows.len(), 7);
        let setup = Setup { mix: Some([0, 0, 0, 1]), ..Setup::default() };
        assert!(prepare(&coflows, 3, &setup, 1).is_err());
    }
}
