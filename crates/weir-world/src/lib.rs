//! A world in which the machines of the live system run in virtual time: the real coordinator, agents, serving sides and
//! receivers on one queue of events, and models of all else (links, sockets, disks, drivers).
//!
//! # Problem
//! Processes that are killed at random find what a laboratory's timing lets happen. What is rare needs thousands of runs that
//! differ, and a run that failed must come again exactly.
//!
//! # Approach
//! All that is drawn comes from one seed: what jobs do, how long messages take, what fails and when. Machines get time as an
//! argument, so a run of minutes takes milliseconds, and the same seed gives the same run, event by event.
//!
//! Faults stop at some time. At every step it is checked that nothing wrong happens ([`Violation`]); when all should be over,
//! that all is over and nothing is left.
//!
//! At scale, without faults and beside the fluid simulator, another loop runs the same machines: [`scale`].
//!
//! # What is modelled, and how
//! * A session between an agent and its coordinator is two streams in order, each message delayed at random; it can be cut, and
//!   each end learns of that at another time.
//! * Data goes through a buffer of the sending socket, over the sender's uplink and the receiver's downlink, first come first
//!   served at their rates, into a buffer of the receiving one, which some receivers read slowly or leave alone for a while.
//!   Requests, answers and frames are the real ones, byte for byte, and every byte that a receiver hands out is compared with
//!   the block's; blocks are parts of one long noise, so that no block has to be kept in memory.
//! * A disk takes time for each batch of the journal; a process that is killed leaves what was written, and of the batch under
//!   way some bytes; a full disk refuses puts and lets all else wait. In some runs machines are lost: of what was not synced any
//!   part is gone, also a part before one that is left, and files have their length and not their bytes.
//! * Hosts are at two sites, with relays between them: the real machines, over connections that fill, break and end as others do.
//!   In half of the runs what they are told (which flows go by which relays) is drawn, and changes all the time. In the others
//!   there are three sites, and the controller is there: its real servers and decision makers, and the store where they meet, which
//!   may be away, forget everything, and do what was asked without an answer.
//! * Strangers dial agents and relays, and say what has no sense, or what is a lie of flows that are under way.
//! * A path from one machine to another may let nothing through for a while, and the path back still does.
//! * Drivers do what the client library does: they register, renew leases, try again; some have deadlines, and give up if they are
//!   refused.
#![forbid(unsafe_code)]

mod content;
mod controllers;
mod coordinator;
mod data;
mod deadlines;
mod disk;
mod end;
mod events;
mod faults;
mod host;
mod jobs;
mod liars;
mod messages;
mod receiver;
mod relays;
pub mod scale;
mod seeds;
mod serving;
mod session;
mod settings;
mod shrinking;
mod sites;
mod streams;
mod world;

pub use content::MAX_BLOCK_BYTES;
pub use end::{Report, Violation};
#[cfg(feature = "planted")]
pub use seeds::find;
pub use seeds::{Outcome, run_seeds};
pub use settings::Settings;
pub use shrinking::{Failing, shrink};
pub use world::run;
