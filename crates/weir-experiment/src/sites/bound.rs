//! What no policy can beat between sites: a lower bound of the average completion time.
//!
//! Cut the sites in two. Whatever the routes, all bytes from one side to the other pass the links between the sides, which
//! together are one machine of the sum of their capacities. On one machine, shortest remaining processing time first
//! has the least average completion time of all schedules, those that know the future included (Schrage, A proof of
//! the optimality of the shortest remaining processing time discipline, Operations Research 1968), also if its speed changes.
//! So no policy does better for the coflows that have bytes on the machine; and no other coflow takes less than the
//! slowest cut needs for it alone at the most that its links ever carry. The bound is that of the cut that says most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_model::{CapacityChange, CoflowSpec, Fabric, LinkId, LinkKind};

/// More sites have too many cuts.
const MOST_SITES: u32 = 12;
/// Sizes on the machine are compared in parts of a byte as whole numbers, which a heap can order.
const PARTS: f64 = 1024.0;

/// A machine: what it carries from each moment on, in bytes per second.
type Speeds = Vec<(f64, f64)>;

/// Seconds that no policy's average completion time is below; none where there are too many sites to tell.
pub(crate) fn least_average_secs(
    fabric: &Fabric,
    changes: &[CapacityChange],
    coflows: &[CoflowSpec],
) -> Option<f64> {
    let sites = fabric.site_count();
    if !(2..=MOST_SITES).contains(&sites) || coflows.is_empty() {
        return None;
    }
    let cuts = 1u32..(1 << sites) - 1;
    let mut alone = vec![0.0f64; coflows.len()];
    let mut machines = Vec::new();
    for cut in cuts {
        let speeds = speeds(fabric, changes, cut);
        let fastest = speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        let bytes: Vec<f64> = coflows.iter().map(|coflow| crossing(fabric, coflow, cut)).collect();
        for (alone, bytes) in alone.iter_mut().zip(&bytes) {
            *alone = alone.max(bytes / fastest);
        }
        machines.push((speeds, bytes));
    }
    let sums = machines.into_iter().map(|(speeds, bytes)| {
        let jobs = coflows.iter().zip(&bytes).filter(|(_, bytes)| **bytes > 0.0);
        // Coflows that do not cross this cut are bounded by what they need alone.
        let others: f64 =
            alone.iter().zip(&bytes).filter(|(_, bytes)| **bytes == 0.0).map(|(alone, _)| alone).sum();
        shortest_first(jobs.map(|(coflow, bytes)| (coflow.arrival.as_secs(), *bytes)).collect(), &speeds)
            + others
    });
    Some(sums.fold(alone.iter().sum(), f64::max) / coflows.len() as f64)
}

fn on_near_side(cut: u32, site: u32) -> bool {
    cut & (1 << site) != 0
}

/// Bytes of a coflow that have to get from the near side of a cut to the far one.
fn crossing(fabric: &Fabric, coflow: &CoflowSpec, cut: u32) -> f64 {
    let side = |host| fabric.site_of(host).is_some_and(|site| on_near_side(cut, site));
    let flows = coflow.flows.iter().filter(|flow| side(flow.source) && !side(flow.destination));
    flows.map(|flow| flow.size.0 as f64).sum()
}

/// The sum of the capacities of the links from the near to the far side, over time.
fn speeds(fabric: &Fabric, changes: &[CapacityChange], cut: u32) -> Speeds {
    let crosses = |link: LinkId| match fabric.links()[link.index()].kind {
        LinkKind::Site { from, to } => on_near_side(cut, from) && !on_near_side(cut, to),
        _ => false,
    };
    let mut capacity: BTreeMap<LinkId, f64> = (0..fabric.links().len() as u32)
        .map(LinkId)
        .filter(|&link| crosses(link))
        .map(|link| (link, fabric.capacity(link).bytes_per_sec()))
        .collect();
    let mut speeds = vec![(0.0, capacity.values().sum())];
    let mut changes: Vec<&CapacityChange> = changes.iter().filter(|change| crosses(change.link)).collect();
    changes.sort_by_key(|change| change.at);
    for together in changes.chunk_by(|one, other| one.at == other.at) {
        capacity.extend(together.iter().map(|change| (change.link, change.capacity.bytes_per_sec())));
        speeds.push((together[0].at.as_secs(), capacity.values().sum()));
    }
    speeds
}

/// The least sum of completion times of jobs, given by arrival and bytes, on one machine.
fn shortest_first(mut jobs: Vec<(f64, f64)>, speeds: &Speeds) -> f64 {
    jobs.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut jobs = jobs.into_iter().peekable();
    let mut changes = speeds.iter().copied().peekable();
    let mut waiting: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let (mut now, mut speed, mut sum) = (0.0f64, 0.0, 0.0);
    loop {
        while let Some((_, next)) = changes.next_if(|(at, _)| *at <= now) {
            speed = next;
        }
        while let Some((arrival, bytes)) = jobs.next_if(|(arrival, _)| *arrival <= now) {
            // Rounded down, so that the bound stays one. Times are not negative, so their bits are in the order of their values.
            waiting.push(Reverse(((bytes * PARTS) as u64, arrival.to_bits())));
        }
        let event = [jobs.peek(), changes.peek()]
            .into_iter()
            .flatten()
            .map(|next| next.0)
            .fold(f64::INFINITY, f64::min);
        let Some(Reverse((parts, arrival))) = waiting.pop() else {
            if jobs.peek().is_none() {
                return sum;
            }
            now = event;
            continue;
        };
        let end = now + parts as f64 / PARTS / speed;
        if end <= event {
            now = end;
            sum += now - f64::from_bits(arrival);
        } else {
            let moved = (event - now) * speed * PARTS;
            waiting.push(Reverse(((parts as f64 - moved).max(0.0) as u64, arrival)));
            now = event;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowId, FlowSpec, HostId, Rate, SiteSpec, Time};

    fn coflow(id: u64, arrival: u64, flows: &[(u32, u32, u64)]) -> CoflowSpec {
        let flow = |&(source, destination, size): &(u32, u32, u64)| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size),
            group: 0,
        };
        CoflowSpec::new(CoflowId(id), Time::from_millis(1000 * arrival), flows.iter().map(flow).collect())
    }

    fn three_sites() -> Fabric {
        let rates = vec![vec![Rate::from_bytes_per_sec(10.0); 3]; 3];
        Fabric::sites(&SiteSpec { hosts_per_site: vec![1; 3], host_rate: None, rates }).expect("a fabric")
    }

    #[test]
    fn the_slowest_cut_bounds_whatever_the_routes() {
        // Out of site 0 go 20 a second. Of 200 and 100 bytes the shorter one first: 5 and 15 s. A third coflow does not
        // leave site 0: 60 bytes out of site 1 take 3 s.
        let coflows = [
            coflow(1, 0, &[(0, 1, 200)]),
            coflow(2, 0, &[(0, 1, 60), (0, 2, 40)]),
            coflow(3, 0, &[(1, 2, 60)]),
        ];
        let bound = least_average_secs(&three_sites(), &[], &coflows).expect("few sites");
        assert!((bound - 23.0 / 3.0).abs() < 1e-6, "{bound}");
    }

    #[test]
    fn who_comes_later_and_is_shorter_goes_first_and_speeds_change() {
        // At 5 s, 100 bytes are left of the first. Of the second 40: 2 s. From 8 s on the cut has 10 + 30: by then 80 are
        // left, 2 s more. 10 s and 2 s.
        let change = |to| CapacityChange {
            at: Time::from_millis(8000),
            link: three_sites().between(0, to).expect("a link"),
            capacity: Rate::from_bytes_per_sec(if to == 1 { 10.0 } else { 30.0 }),
        };
        let coflows = [coflow(1, 0, &[(0, 1, 200)]), coflow(2, 5, &[(0, 2, 40)])];
        let bound = least_average_secs(&three_sites(), &[change(1), change(2)], &coflows).expect("few sites");
        assert!((bound - 6.0).abs() < 1e-3, "{bound}");
    }
}
