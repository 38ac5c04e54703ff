//! Vocabulary of Weir: ids, units, the network ([`Fabric`]) and the work ([`CoflowSpec`], [`FlowSpec`]).
//!
//! Everything here is plain data with its invariants. The crate makes no decision, does no I/O and
//! reads no clock; it depends on nothing else of ours.
#![forbid(unsafe_code)]

mod coflow;
mod fabric;
mod ids;
mod units;

pub use coflow::{CoflowSpec, FlowSpec, Pattern};
pub use fabric::{Fabric, FabricError, Link, LinkKind, MAX_PATH_LINKS, Path, RackSpec, SiteSpec};
pub use ids::{CoflowId, FlowId, HostId, JobId, LinkId};
pub use units::{Bytes, ParseUnitError, Rate, Span, Time};
