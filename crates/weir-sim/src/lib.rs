//! Exact, event-driven fluid simulator: flows move at the rates a policy gives them, and nothing else
//! takes time.
//!
//! # Rules
//! * **Time** is whole nanoseconds. Between two events every rate is constant.
//! * **Events** are arrivals of coflows, completions of flows, and the times a policy asks for
//!   ([`weir_policy::Policy::next_wakeup`]). After the events of one instant the policy plans once
//!   ([`Replan`] says after which).
//! * **A flow is complete** at the first nanosecond by which the fluid it had left is used up:
//!   `t + ceil(left / rate)`, decided from the amounts at the last plan. A coflow that moves as a whole
//!   (a drain in its plan) is decided as a whole, so flows that should end together do.
//! * **Bytes** are integers. A completed flow has delivered exactly its size; the fraction of a byte by
//!   which the last nanosecond overshoots is not given to anyone.
//! * **Floating point** computes rates and amounts. It may put a completion that falls on a whole nanosecond
//!   one nanosecond to the other side, so completion and isolation times are exact to 1 ns. Under drains and
//!   grants an end less than a hundredth of a nanosecond late counts as on time: flows that should end
//!   together then do, and no policy comes between them.
//!   An end that falls on the same fraction of a nanosecond as another, of a coflow that goes before it, may come
//!   after it: what the rounding of earlier ends left of the flow, a small part of a byte, then waits its turn.
//!   Both orders are right to within a nanosecond of every input.
//! * **No epsilon decides.** Two other tolerances are in the policies: a link with less than 1e-9 of its capacity left
//!   is full, and a test moves that by 100 either way; and a flow that is granted a rate for less than a thousandth of
//!   a byte (8 picoseconds at 1 Gbit/s) ends at once. Without that, rates in proportion to what is left, planned anew
//!   at every end of a flow, make ever more events of ever less.
//! * **Equal times**: all completions of an instant come before its arrivals, and both before the plan.
//!   Coflows that arrive together are inserted by id.
//! * **Capacities** may change; all changes of an instant come after its arrivals and before the plan, which sees
//!   them, and none earlier.
//! * A flow that crosses no link is complete when it arrives.
//! * **Stages**: a stage begins at its coflow's `arrival`, or when the last of the coflows it waits for is complete if
//!   that is later, and its coflow arrives when it has computed: at once if it computes nothing. Coflows that are not
//!   part of the run are not waited for. How long stages compute is not scaled with arrivals.
//! * **Windows** ([`Window`]): all flows of a coflow open as it arrives, unless receivers ask for a part at a time; then the
//!   policy sees what was asked for, and what is to come if it is told so.
//! * A coflow that the policy refuses ([`weir_policy::Plan::refused`]) leaves at once and moves nothing.
//!   Stages that wait for it never begin: their coflows are refused with it, and their job has no completion time.
//!
//! The crate reads no file, no clock and draws no random number: equal arguments give equal results.
#![forbid(unsafe_code)]

mod completions;
mod engine;
mod isolation;
mod jobs;
mod outcome;
mod statistics;
mod windows;

pub use engine::{Options, Replan, SimError, Window, simulate, simulate_changing, simulate_observed};
pub use isolation::isolation;
pub use jobs::{Jobs, set_tails};
pub use outcome::{CoflowRecord, Counters, FlowRecord, JobRecord, Observer, Outcome, RefusedCoflow};
pub use statistics::{mean, percentile};
