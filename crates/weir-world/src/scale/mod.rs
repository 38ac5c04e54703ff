//! Workloads of many hosts in virtual time without faults, beside the fluid simulator.
//!
//! # Problem
//! How far is the running system from the simulation of its policy where no machine here can hold it live: hundreds of hosts,
//! an hour of a trace, messages that take milliseconds?
//!
//! # Approach
//! The real coordinator and one real agent per host run on one queue of events, with the times that `weir coordinator` and
//! `weir agent` have unless they are told others. Bytes are a fluid (`links`): a flow moves at what its agent paces it to.
//! Drivers, tasks and receivers do what the client library does: a coflow is registered [`LEAD`] before it begins and
//! its blocks are put; when it begins every receiver locates its block, and gets it from who has it. Every message takes
//! the same time, and so does the way of a byte. Completion times count from when a coflow begins to when the last
//! receiver has its last byte.
//!
//! # What it leaves out
//! Faults, journals, the time that computing takes, chunks and queues of packets. What a coordinator computes is measured,
//! and the measure changes nothing of the run.

mod comparison;
mod event;
mod links;
mod parties;
mod system;

pub use comparison::{Comparison, compare, fluid};
pub use system::{Control, run};

use std::time::Duration;
use weir_model::{Rate, Span};

/// How long before it begins a coflow is registered.
pub const LEAD: Span = Span::from_millis(2_000);

/// How the system is set up, in virtual time.
#[derive(Clone, Debug)]
pub struct ScaleSettings {
    /// Hosts, each with an agent.
    pub hosts: u32,
    /// The policy, as simulated: without a guard against starvation that it does not name.
    pub policy: String,
    /// Payload that each host's link carries, up and down.
    pub link: Rate,
    /// Share of it that is planned with.
    pub plan_share: f64,
    /// How long every message takes, and every byte.
    pub delay: Span,
    /// Coflows whose bottleneck needs less alone are not scheduled.
    pub bypass: Span,
    /// How long a coflow waits for its announced flows.
    pub ready_wait: Span,
    /// Plans, and messages of an agent, are at least so far apart.
    pub batch: Span,
    /// How often senders that decide report and hear queues.
    pub sync_interval: Span,
    /// How often agents report how far flows came.
    pub report_interval: Span,
}

impl ScaleSettings {
    /// What the daemons do unless they are told otherwise, on links of 1 Gbit/s with messages of half a millisecond.
    pub fn usual(hosts: u32, policy: &str) -> ScaleSettings {
        ScaleSettings {
            hosts,
            policy: policy.to_owned(),
            link: Rate::from_bits_per_sec(1e9),
            plan_share: 0.985,
            delay: Span::from_nanos(500_000),
            bypass: Span::from_millis(250),
            ready_wait: Span::from_millis(3),
            batch: Span::from_millis(1),
            sync_interval: Span::from_millis(10),
            report_interval: Span::from_millis(20),
        }
    }
}

/// Messages in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of messages in this direction.
    pub messages: u64,
    /// Bytes of these messages, as they are encoded.
    pub bytes: u64,
}

/// Wall-clock time that computing took: of this machine, and not the same twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Computing {
    /// Plans, or syncs where senders decide.
    pub plans: Duration,
    /// The longest of them.
    pub worst_plan: Duration,
    /// All else that the coordinator did.
    pub coordinator: Duration,
    /// The agents, all of them.
    pub agents: Duration,
    /// The whole run, from start to end.
    pub run: Duration,
}
