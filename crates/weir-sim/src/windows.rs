//! Receivers that ask for a part of their data at a time.
//!
//! # Problem
//! A task of Spark fetches its blocks in requests of a fifth of `spark.reducer.maxSizeInFlight`, which is 48 MB unless set,
//! with no more than that under way. A scheduler sees what was asked for, and not what will be.
//!
//! # Approach
//! Each receiver (a group of flows at a host) cuts its flows into requests of a fifth of the window and opens them by turns, a
//! request of each source after the other, while what is open fits into the window. Turns begin at another source for each
//! receiver, so that not all ask the same one first. The rest is what is to come: by uplink of its source, if the policy is
//! told of it.
//!
//! Where a flow is a block ([`crate::Window::blocks`]), a request is one flow, however large: Spark does not cut blocks, so that a
//! receiver with larger blocks than its window asks one source at a time, and uplinks that no receiver asks idle.
//!
//! # Departures
//! Spark draws the order of its requests at random. So it is for blocks, by a hash of their numbers; parts of flows go by turns.
//! Spark asks for several small blocks of a source at once; here each is a request.

use std::collections::{BTreeMap, VecDeque};
use weir_model::{Bytes, CoflowSpec, Fabric, FlowSpec, HostId, LinkId};

/// Requests of this part of a window.
const REQUESTS_PER_WINDOW: u64 = 5;

/// Bytes of a request, but for the last one of a flow.
pub(crate) fn request_bytes(window: Bytes, blocks: bool) -> u64 {
    if blocks { u64::MAX } else { (window.0 / REQUESTS_PER_WINDOW).max(1) }
}

/// A place in the order of a receiver's blocks.
fn drawn(receiver: usize, flow: usize) -> u64 {
    let mixed = ((receiver as u64) << 32 | flow as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A receiver: a host, and a task there.
type Receiver = (HostId, u32);

/// A part of a flow that is asked for at once, and which flow of the coflow it is of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) flow: usize,
    pub(crate) spec: FlowSpec,
}

#[derive(Clone, Debug, Default)]
struct Window {
    open: u64,
    waiting: VecDeque<Request>,
}

/// The requests of a coflow that are not open yet.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    bytes: u64,
    receivers: BTreeMap<Receiver, Window>,
    to_come: BTreeMap<HostId, u64>,
}

impl Windows {
    /// All requests of a coflow whose flows cross links, with windows of so many bytes.
    pub(crate) fn new(coflow: &CoflowSpec, fabric: &Fabric, window: Bytes, blocks: bool) -> Windows {
        let request = request_bytes(window, blocks);
        let mut flows: BTreeMap<Receiver, VecDeque<Request>> = BTreeMap::new();
        let mut to_come: BTreeMap<HostId, u64> = BTreeMap::new();
        for (flow, spec) in coflow.flows.iter().enumerate() {
            if fabric.path(spec.source, spec.destination).is_some() {
                let of = flows.entry((spec.destination, spec.group)).or_default();
                of.push_back(Request { flow, spec: *spec });
                *to_come.entry(spec.source).or_default() += spec.size.0;
            }
        }
        let receivers = flows.into_iter().enumerate().map(|(number, (receiver, mut flows))| {
            // Each receiver begins at another source, so that not all ask the same one first.
            let first = number % flows.len();
            flows.rotate_left(first);
            if blocks {
                flows.make_contiguous().sort_by_key(|request| drawn(number, request.flow));
            }
            let mut waiting = VecDeque::new();
            while let Some(mut left) = flows.pop_front() {
                let size = left.spec.size.0.min(request);
                waiting.push_back(Request {
                    flow: left.flow,
                    spec: FlowSpec { size: Bytes(size), ..left.spec },
                });
                left.spec.size.0 -= size;
                if left.spec.size.0 > 0 {
                    flows.push_back(left);
                }
            }
            (receiver, Window { open: 0, waiting })
        });
        Windows { bytes: window.0, receivers: receivers.collect(), to_come }
    }

    /// What all receivers ask for first.
    pub(crate) fn begin(&mut self) -> Vec<Request> {
        let receivers: Vec<Receiver> = self.receivers.keys().copied().collect();
        receivers.into_iter().flat_map(|receiver| self.open(receiver)).collect()
    }

    /// A request has ended: what its receiver asks for next.
    pub(crate) fn next(&mut self, ended: &FlowSpec) -> Vec<Request> {
        let receiver = (ended.destination, ended.group);
        if let Some(window) = self.receivers.get_mut(&receiver) {
            window.open -= ended.size.0;
        }
        self.open(receiver)
    }

    fn open(&mut self, receiver: Receiver) -> Vec<Request> {
        let (bytes, to_come) = (self.bytes, &mut self.to_come);
        let Some(window) = self.receivers.get_mut(&receiver) else { return Vec::new() };
        let mut opened = Vec::new();
        while let Some(next) = window.waiting.front() {
            let size = next.spec.size.0;
            // A request larger than the window goes alone: without this a window below one request would never open.
            if window.open > 0 && window.open + size > bytes {
                break;
            }
            window.open += size;
            *to_come.entry(next.spec.source).or_default() -= size;
            opened.extend(window.waiting.pop_front());
        }
        opened
    }

    /// What is to come by the links of its sources.
    pub(crate) fn to_come(&self, fabric: &Fabric) -> Vec<(LinkId, f64)> {
        let of = |(&host, &bytes): (&HostId, &u64)| Some((fabric.uplink(host)?, bytes as f64));
        self.to_come.iter().filter(|(_, bytes)| **bytes > 0).filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{CoflowId, Rate, Time};

    /// 250 bytes from host 0 and 120 from host 1 to host 2, in requests of 100 with 200 open: at first one of each source;
    /// when one ends, the next of the other, if it fits.
    #[test]
    fn requests_open_by_turns_while_they_fit() {
        let fabric = Fabric::big_switch(3, Rate::from_bytes_per_sec(1.0)).unwrap();
        let flow = |source, size| FlowSpec {
            source: HostId(source),
            destination: HostId(2),
            size: Bytes(size),
            group: 0,
        };
        let coflow = CoflowSpec::new(CoflowId(1), Time::ZERO, vec![flow(0, 250), flow(1, 120)]);
        let mut windows = Windows::new(&coflow, &fabric, Bytes(500), false);
        windows.bytes = 200;
        let parts = |requests: Vec<Request>| -> Vec<(usize, u64)> {
            requests.iter().map(|r| (r.flow, r.spec.size.0)).collect()
        };
        assert_eq!(parts(windows.begin()), [(0, 100), (1, 100)]);
        let uplinks = |windows: &Windows| windows.to_come(&fabric);
        let up = |host| fabric.uplink(HostId(host)).unwrap();
        assert_eq!(uplinks(&windows), [(up(0), 150.0), (up(1), 20.0)]);
        assert_eq!(parts(windows.next(&flow(1, 100))), [(0, 100)]);
        assert_eq!(parts(windows.next(&flow(0, 100))), [(1, 20), (0, 50)]);
        assert_eq!(uplinks(&windows), []);
        assert_eq!(parts(windows.next(&flow(0, 100))), []);
    }

    #[test]
    fn a_window_smaller_than_a_request_holds_one() {
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(1.0)).unwrap();
        let flow = FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(3), group: 7 };
        let coflow = CoflowSpec::new(CoflowId(1), Time::ZERO, vec![flow]);
        let mut windows = Windows::new(&coflow, &fabric, Bytes(1), false);
        let mut opened = 0;
        let mut next = windows.begin();
        while let Some(request) = next.pop() {
            assert!(next.is_empty());
            opened += request.spec.size.0;
            next = windows.next(&request.spec);
        }
        assert_eq!(opened, 3);
    }

    #[test]
    fn blocks_are_asked_for_whole_and_once_in_another_order_by_each_receiver() {
        let fabric = Fabric::big_switch(8, Rate::from_bytes_per_sec(1.0)).unwrap();
        let flow = |source, group| FlowSpec {
            source: HostId(source),
            destination: HostId(7),
            size: Bytes(400),
            group,
        };
        let flows = (0..2).flat_map(|group| (0..7).map(move |source| flow(source, group)));
        let coflow = CoflowSpec::new(CoflowId(1), Time::ZERO, flows.collect());
        let mut windows = Windows::new(&coflow, &fabric, Bytes(500), true);
        let mut open = windows.begin();
        let mut orders = [Vec::new(), Vec::new()];
        while let Some(request) = open.pop() {
            assert_eq!(request.spec.size, Bytes(400));
            orders[request.spec.group as usize].push(request.spec.source.0);
            open.extend(windows.next(&request.spec));
            assert!(open.len() <= 2, "one block at a time");
        }
        assert_ne!(orders[0], orders[1]);
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4, 5, 6]);
        }
    }
}
