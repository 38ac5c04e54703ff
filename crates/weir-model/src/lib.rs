//! Vocabulary of Weir: ids, units, the network ([`Fabric`]) and the work ([`CoflowSpec`], [`FlowSpec`]),
//! with what waits for what ([`Arrivals`]), and what a process says of a flow ([`Hint`]).
//!
//! Everything here is plain data with its invariants. The crate makes no decision, does no I/O and
//! reads no clock; it depends on nothing else of ours.
#![forbid(unsafe_code)]

mod arrivals;
mod coflow;
mod dependencies;
mod fabric;
mod hint;
mod ids;
pub mod label;
mod names;
mod settings;
mod units;

pub use arrivals::Arrivals;
pub use coflow::{CoflowSpec, FlowSpec, Pattern, bin};
pub use dependencies::{Dependencies, Tail};
pub use fabric::{
    CapacityChange, Fabric, FabricError, Link, LinkKind, MAX_PATH_LINKS, Path, RackSpec, SiteSpec,
};
pub use hint::Hint;
pub use ids::{CoflowId, FlowId, HostId, JobId, LinkId};
pub use names::meant;
pub use settings::{SettingsForm, settings};
pub use units::{Bytes, ParseUnitError, Rate, Span, Time};
