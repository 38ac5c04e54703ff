//! Workloads: what they are, the formats they are stored in, and pieces cut out of them.
//!
//! [`load`] gives what `--trace` names, [`open`] the same job by job; [`Slice`] cuts a piece that a few
//! hosts can move live; [`wan`] has bandwidths between datacenters. [`Poisson`] makes flows that arrive one by one, of
//! a distribution of sizes, [`FlowSizes`]. The crate simulates nothing and decides nothing.
#![forbid(unsafe_code)]

pub mod coflow_benchmark;
mod deadlines;
pub mod distributions;
mod flow_sizes;
mod flows;
mod load;
pub mod scenario;
mod slice;
pub mod statistics;
pub mod synthetic;
mod text;
mod topology;
pub mod wan;
pub mod weir_format;
mod workload;

pub use deadlines::{SHORTEST_DEADLINE, draw_deadlines};
pub use flow_sizes::{Below, FlowSizes, FlowSizesError, PACKET_PAYLOAD};
pub use flows::{
    Ends, FlowArrival, FlowKind, HEADER, Mix, Poisson, PoissonError, PoissonSpec, mean_wire_bytes, wire_bytes,
};
pub use load::{LoadError, PUBLIC_TRACE, Source, find_public_trace, load, open};
pub use scenario::{Expected, ScaleError, Scenario, ScenarioError};
pub use slice::Slice;
pub use synthetic::SYNTHETIC;
pub use text::{
    MAX_FLOWS_PER_COFLOW, MAX_HOSTS, MAX_LINE_BYTES, MAX_TOTAL_BYTES, ReadError, line_of, read_text,
    toml_fault,
};
pub use topology::{Rack, Site, Topology, TopologyError, TopologyHost};
pub use workload::{Job, Stage, Workload};
