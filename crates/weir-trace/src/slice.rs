//! A piece of a workload, small enough to be moved live by a few hosts.

use std::collections::BTreeMap;
use weir_model::{Bytes, CoflowSpec, Dependencies, FlowSpec, HostId, Rate, Span, Time};

/// Which piece, and how it is made small.
///
/// Coflows are taken by (arrival, id); their hosts wrap around; flows of one coflow with the same ends
/// become one, and those inside a host are left out (they would cross no link). Then sizes and arrivals
/// are divided, and coflows that would take too long are scaled down as a whole. A stage does not wait for coflows
/// that are not in the piece.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Index of the first coflow, by (arrival, id).
    pub first: usize,
    /// Number of coflows, before those without flows are dropped.
    pub count: usize,
    /// Number of hosts: host h becomes h modulo this. At least 1.
    pub hosts: u32,
    /// Sizes are divided by this, rounded down, at least 1 byte. At least 1.
    pub bytes_divisor: u64,
    /// Time since the first arrival, deadlines and compute times are divided by this, rounded down. At least 1.
    pub time_divisor: u64,
    /// Coflows whose isolation time T exceeds half of this cap C are scaled down to C - C^2 / 4T: none takes
    /// longer than the cap, and the longer of two stays the longer. Were they cut off at the cap, many would be
    /// equally long, and which of them goes first would hang on microseconds.
    pub isolation_cap: Option<Span>,
}

impl Slice {
    /// All of a workload on its own hosts, unscaled.
    pub fn whole(hosts: u32) -> Slice {
        Slice { first: 0, count: usize::MAX, hosts, bytes_divisor: 1, time_divisor: 1, isolation_cap: None }
    }

    /// Cuts the piece; isolation times count on a big switch of links of `link_rate`. Coflows without
    /// flows left are dropped, ids are kept. Flow groups are renumbered: one per receiving host.
    pub fn cut(&self, coflows: &[CoflowSpec], link_rate: Rate) -> Vec<CoflowSpec> {
        let mut order: Vec<&CoflowSpec> = coflows.iter().collect();
        order.sort_by_key(|coflow| (coflow.arrival, coflow.id));
        let chosen = order.into_iter().skip(self.first).take(self.count);
        let mut start = None;
        let mut piece = Vec::new();
        for coflow in chosen {
            // Before flows are looked at: a first coflow that is dropped still is the beginning of
            // the piece.
            let start = *start.get_or_insert(coflow.arrival);
            let mut flows = self.fold(&coflow.flows);
            if flows.is_empty() {
                continue;
            }
            if let Some(cap) = self.isolation_cap {
                shrink(&mut flows, self.hosts, link_rate, cap);
            }
            let divided = |span: Span| Span::from_nanos(span.nanos() / self.time_divisor.max(1));
            let compute = divided(coflow.dependencies.compute);
            piece.push(CoflowSpec {
                arrival: Time::ZERO + divided(coflow.arrival - start),
                deadline: coflow.deadline.map(divided),
                flows,
                dependencies: Dependencies { compute, ..coflow.dependencies.clone() },
                ..*coflow
            });
        }
        piece
    }

    /// Flows between different hosts, one per pair, by destination then source.
    fn fold(&self, flows: &[FlowSpec]) -> Vec<FlowSpec> {
        let hosts = self.hosts.max(1);
        let mut pairs: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for flow in flows {
            let (source, destination) = (flow.source.0 % hosts, flow.destination.0 % hosts);
            if source != destination {
                let size = pairs.entry((destination, source)).or_default();
                *size = size.saturating_add(flow.size.0);
            }
        }
        let mut folded: Vec<FlowSpec> = Vec::with_capacity(pairs.len());
        for ((destination, source), size) in pairs {
            let group = match folded.last() {
                Some(last) if last.destination.0 == destination => last.group,
                Some(last) => last.group + 1,
                None => 0,
            };
            folded.push(FlowSpec {
                source: HostId(source),
                destination: HostId(destination),
                size: Bytes((size / self.bytes_divisor.max(1)).max(1)),
                group,
            });
        }
        folded
    }
}

/// Scales all flows by one factor (at least 1 byte each) so that the busiest link needs less than `cap`.
fn shrink(flows: &mut [FlowSpec], hosts: u32, link_rate: Rate, cap: Span) {
    let mut up = vec![0u64; hosts as usize];
    let mut down = up.clone();
    for flow in flows.iter() {
        for sum in [&mut up[flow.source.index()], &mut down[flow.destination.index()]] {
            *sum = sum.saturating_add(flow.size.0);
        }
    }
    let busiest = up.into_iter().chain(down).max().unwrap_or(0) as f64;
    let allowed = cap.as_secs() * link_rate.bytes_per_sec();
    if busiest > allowed / 2.0 {
        // C - C^2 / 4T, in bytes on the busiest link. At T = C / 2 that is T itself, so that sizes do not jump there.
        let factor = (allowed - allowed * allowed / (4.0 * busiest)) / busiest;
        for flow in flows {
            flow.size = Bytes(((flow.size.0 as f64 * factor) as u64).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::CoflowId;

    fn coflow(id: u64, arrival_ms: u64, flows: &[(u32, u32, u64)]) -> CoflowSpec {
        let flow = |&(source, destination, size): &(u32, u32, u64)| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size),
            group: 7,
        };
        CoflowSpec::new(CoflowId(id), Time::from_millis(arrival_ms), flows.iter().map(flow).collect())
    }

    fn flows(coflow: &CoflowSpec) -> Vec<(u32, u32, u64, u32)> {
        coflow.flows.iter().map(|f| (f.source.0, f.destination.0, f.size.0, f.group)).collect()
    }

    const SLICE: Slice =
        Slice { first: 1, count: 3, hosts: 4, bytes_divisor: 10, time_divisor: 5, isolation_cap: None };

    #[test]
    fn hosts_wrap_pairs_merge_and_local_flows_go() {
        // 5 -> 1, 6 -> 2: 5->6 and 1->2 become one flow of 300/10; 0->4 is inside host 0; 3 is 7 mod 4.
        let taken = coflow(2, 100, &[(5, 6, 100), (1, 2, 200), (0, 4, 50), (7, 1, 4)]);
        let piece = SLICE.cut(&[coflow(1, 0, &[(0, 1, 1)]), taken], Rate::from_bytes_per_sec(1.0));
        assert_eq!(flows(&piece[0]), [(3, 1, 1, 0), (1, 2, 30, 1)]);
    }

    #[test]
    fn arrivals_count_from_the_first_coflow_taken_and_empty_coflows_are_dropped() {
        let coflows = [
            coflow(4, 1000, &[(0, 1, 10)]),
            coflow(1, 0, &[(0, 1, 10)]),
            coflow(2, 100, &[(0, 4, 10)]),
            coflow(3, 600, &[(0, 1, 10)]),
            coflow(5, 2000, &[(0, 1, 10)]),
        ];
        // By arrival 2, 3, 4 are taken; 2 is inside one host, but time counts from it: 500/5, 900/5.
        let piece = SLICE.cut(&coflows, Rate::from_bytes_per_sec(1.0));
        let ids: Vec<_> = piece.iter().map(|c| (c.id.0, c.arrival)).collect();
        assert_eq!(ids, [(3, Time::from_millis(100)), (4, Time::from_millis(180))]);
    }

    #[test]
    fn long_coflows_shrink_below_the_cap_and_keep_their_order() {
        let slice =
            Slice { bytes_divisor: 1, isolation_cap: Some(Span::from_millis(2000)), ..Slice::whole(4) };
        // Downlink 3 carries 3000 + 1000 bytes: 4 s at 1000 B/s, to become 2 - 4/16 = 1.75 s. The others take
        // 2 s, to become 2 - 4/8 = 1.5 s, and 1 s, half of the cap, which stays.
        let coflows = [
            coflow(1, 0, &[(0, 3, 3000), (1, 3, 1000), (1, 2, 1)]),
            coflow(2, 0, &[(0, 1, 2000)]),
            coflow(3, 0, &[(0, 1, 1000)]),
        ];
        let piece = slice.cut(&coflows, Rate::from_bytes_per_sec(1000.0));
        assert_eq!(flows(&piece[0]), [(1, 2, 1, 0), (0, 3, 1312, 1), (1, 3, 437, 1)]);
        assert_eq!(flows(&piece[1]), [(0, 1, 1500, 0)]);
        assert_eq!(flows(&piece[2]), [(0, 1, 1000, 0)]);
    }
}
