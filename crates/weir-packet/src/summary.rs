//! What the flows of a run amount to: completion times by size, deadlines met and missed.

use crate::record::{FlowRecord, Unfinished, infeasible};
use crate::time::Picos;
use crate::transport::deadline_of;
use weir_model::{Bytes, Rate};

/// Upper ends of the size classes in the figures of DCTCP, PIAS and Karuna: small, middle; what is above is large.
pub const SIZE_CLASSES: [(&str, Bytes); 2] = [("small", Bytes(100_000)), ("middle", Bytes(10_000_000))];
/// What flows above all ends of [`SIZE_CLASSES`] are called.
pub const LARGE: &str = "large";

/// Completion times of a group of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Completion {
    /// Number of flows in the group.
    pub flows: u64,
    /// On average, in seconds; 0 without flows, as all below.
    pub average_s: f64,
    /// 95 of 100 are not above it, in seconds, by linear interpolation.
    pub p95_s: f64,
    /// 99 of 100 are not above it.
    pub p99_s: f64,
    /// Completion time over the time that the flow needs alone, on average.
    pub average_slowdown: f64,
}

/// What became of deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Flows that could not meet theirs alone in an empty network.
    pub infeasible: u64,
    /// Flows that could meet theirs alone.
    pub feasible: u64,
    /// Feasible ones that missed theirs.
    pub missed: u64,
}

impl Used {
    fn add(&mut self, used: f64) {
        self.least = if self.flows == 0 { used } else { self.least.min(used) };
        self.flows += 1;
        self.average += (used - self.average) / self.flows as f64;
    }
}

impl Deadlines {
    /// Share of the feasible ones that were missed, 0 if there are none.
    pub fn miss_rate(&self) -> f64 {
        if self.feasible == 0 { 0.0 } else { self.missed as f64 / self.feasible as f64 }
    }
}

/// How much of the time until their deadlines flows took that met them: what Karuna wants to be nearly all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// How many flows met theirs.
    pub flows: u64,
    /// Completion time over the time until the deadline, on average, 0 to 1; 0 without flows, as below.
    pub average: f64,
    /// The least of them.
    pub least: f64,
}

/// What flows received that were still going when the run ended: endless ones, above all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Open {
    /// Number of flows that were still going.
    pub flows: u64,
    /// Payload that they received, all together, over the whole run.
    pub rate: Rate,
}

/// Completion times, deadlines and open flows of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Of flows with deadlines.
    pub deadlines: Deadlines,
    /// Of flows that met their deadlines.
    pub used: Used,
    /// Of flows that were not complete.
    pub open: Open,
    /// Flows without deadlines by size: those of [`SIZE_CLASSES`], then the large.
    pub by_size: [Completion; 3],
    /// All flows without deadlines.
    pub others: Completion,
    /// All flows with deadlines.
    pub with_deadline: Completion,
}

/// Gathers records of flows, for a [`Summary`].
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    by_size: [Group; 3],
    with_deadline: Group,
    deadlines: Deadlines,
    used: Used,
    open: Open,
}

#[derive(Clone, Debug, Default)]
struct Group {
    completions_s: Vec<f64>,
    slowdowns: f64,
}

impl Group {
    fn add(&mut self, record: &FlowRecord) {
        let completion = record.completion().as_secs();
        self.completions_s.push(completion);
        self.slowdowns += completion / record.ideal.as_secs();
    }
    fn completion(&self) -> Completion {
        let flows = self.completions_s.len();
        if flows == 0 {
            return Completion::default();
        }
        let mut sorted = self.completions_s.clone();
        sorted.sort_by(f64::total_cmp);
        Completion {
            flows: flows as u64,
            average_s: sorted.iter().sum::<f64>() / flows as f64,
            p95_s: percentile(&sorted, 0.95),
            p99_s: percentile(&sorted, 0.99),
            average_slowdown: self.slowdowns / flows as f64,
        }
    }
}

/// By linear interpolation between neighbours of an ascending list that is not empty.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

impl Gathered {
    /// Counts a flow in.
    pub fn add(&mut self, record: &FlowRecord) {
        let Some(met) = record.met() else {
            let class = SIZE_CLASSES.iter().take_while(|(_, most)| record.flow.size > *most).count();
            self.by_size[class].add(record);
            return;
        };
        self.with_deadline.add(record);
        // Not of flows that were late: they used more than their time and would hide early ends in
        // the average.
        if let Some(used) = record.used().filter(|_| met) {
            self.used.add(used);
        }
        if record.infeasible() {
            self.deadlines.infeasible += 1;
        } else {
            self.deadlines.feasible += 1;
            self.deadlines.missed += u64::from(!met);
        }
    }

    /// Counts in what was not complete when the run ended at `end`; as missed, if it had a deadline that has passed.
    pub fn add_unfinished(&mut self, open: &Unfinished, end: Picos) {
        self.open.flows += 1;
        if end > Picos::default() {
            let rate = self.open.rate.bytes_per_sec() + open.received.0 as f64 / end.as_secs();
            self.open.rate = Rate::from_bytes_per_sec(rate);
        }
        if deadline_of(&open.flow).is_none_or(|deadline| deadline >= end) {
            return;
        }
        if infeasible(&open.flow, open.ideal) {
            self.deadlines.infeasible += 1;
        } else {
            self.deadlines.feasible += 1;
            self.deadlines.missed += 1;
        }
    }

    /// What they amount to.
    pub fn summary(&self) -> Summary {
        let mut others = Group::default();
        for group in &self.by_size {
            others.completions_s.extend(&group.completions_s);
            others.slowdowns += group.slowdowns;
        }
        Summary {
            deadlines: self.deadlines,
            used: self.used,
            open: self.open,
            by_size: self.by_size.each_ref().map(Group::completion),
            others: others.completion(),
            with_deadline: self.with_deadline.completion(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{HostId, Span, Time};
    use weir_trace::{FlowArrival, FlowKind};

    fn flow(within_ms: u64, bytes: u64) -> FlowArrival {
        FlowArrival {
            arrival: Time::from_millis(2),
            source: HostId(0),
            destination: HostId(1),
            size: Bytes(bytes),
            kind: FlowKind::Deadline { within: Span::from_millis(within_ms) },
        }
    }

    /// From 2 ms on: 9 of 10 and 3 of 10 ms are met, 12 of 10 missed.
    #[test]
    fn only_deadlines_that_are_met_say_how_much_of_them_was_used() {
        let mut gathered = Gathered::default();
        for finish_ms in [11, 5, 14] {
            let (flow, ideal) = (flow(10, 1000), Picos::from_millis(1));
            let finish = Picos::from_millis(finish_ms);
            gathered.add(&FlowRecord { number: 0, flow, finish, retransmitted: 0, timeouts: 0, ideal });
        }
        let Used { flows, average, least } = gathered.summary().used;
        assert_eq!(flows, 2);
        assert!((average - 0.6).abs() < 1e-12 && (least - 0.3).abs() < 1e-12, "{average} {least}");
        assert_eq!(gathered.summary().deadlines, Deadlines { infeasible: 0, feasible: 3, missed: 1 });
    }

    /// 3 MB and 1 MB in 20 ms: 200 MB/s. The deadline of the one, at 12 ms, has passed, that of the other has not.
    #[test]
    fn flows_that_are_not_complete_have_what_they_received() {
        let mut gathered = Gathered::default();
        for (within_ms, received) in [(10, 3_000_000), (100, 1_000_000)] {
            let (flow, ideal) = (flow(within_ms, 5_000_000), Picos::from_millis(5));
            let open = Unfinished { number: 0, flow, ideal, received: Bytes(received) };
            gathered.add_unfinished(&open, Picos::from_millis(20));
        }
        let summary = gathered.summary();
        assert_eq!(summary.open.flows, 2);
        assert!((summary.open.rate.bytes_per_sec() / 200e6 - 1.0).abs() < 1e-12, "{:?}", summary.open);
        assert_eq!(summary.deadlines, Deadlines { infeasible: 0, feasible: 1, missed: 1 });
    }

    #[test]
    fn percentiles_lie_between_neighbours() {
        // 0.95 * 4 = 3.8: 4 + 0.8 * (10 - 4).
        assert!((percentile(&[1.0, 2.0, 3.0, 4.0, 10.0], 0.95) - 8.8).abs() < 1e-12);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
    }
}
