//! Experiments: figures and tables of papers, rebuilt from a workload by the simulator.
//!
//! A folder of `experiments/` holds one: `experiment.toml` says what is run and what the paper reports
//! ([`Experiment`]), and beside it lie the results for each workload it was run on ([`Results`]) as numbers, as a
//! table and as a plot. [`run`] makes the first from the workload, [`table`] and [`plot`] the others from it.
//!
//! Results depend on the experiment and the workload alone: no times of this machine are in them. The crate moves
//! no bytes and decides nothing about scheduling.
#![forbid(unsafe_code)]

mod characteristics;
mod jobs;
mod live;
mod live_work;
mod measure;
mod measures;
mod names;
mod packets;
mod plot;
mod probe;
mod results;
mod run;
mod runs;
mod sites;
mod source;
mod spec;
mod table;
mod workload;

pub use jobs::JobSetup;
pub use live::Live;
pub use live_work::LiveWork;
pub use measure::half_width;
pub use measures::{Measures, Probe};
pub use packets::{CoflowTraffic, PACKETS, PacketSetup, run_packets};
pub use plot::{escape, plot};
pub use probe::{probe, probe_difference};
pub use results::{Difference, MadeBy, PointResult, PolicyResult, Results};
pub use run::{RunError, run};
pub use runs::{RUNS, Runs};
pub use sites::{LinkUse, ShuffleSetup, SiteSetup};
pub use source::Source;
pub use spec::{Experiment, Paper, Plot, PlotX, Point, Setup, SpecError};
pub use table::{stem, table};
