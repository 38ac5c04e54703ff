//! Single flows, packet by packet: a scenario and a transport in, records out; and what runs give back, simulated and on test beds, as
//! tables, JSON, CSV and a page.

mod csv;
mod json;
mod page;
mod tables;

pub use csv::write_csv;
pub use json::{results, setting};
pub use page::{Received, has_few, page};
pub use tables::{LIVE, live_table, ratio_table, times_table, work_table};

use crate::thread_cpu_secs;
use serde::Serialize;
use weir_packet::transport::Transport;
use weir_packet::{
    FlowRecord, Gathered, Observer, Picos, PortCounts, RunCounts, Scenario, Simulation, Summary, Topology,
    Unfinished,
};
use weir_trace::{FlowArrival, FlowKind, PoissonError};

/// Whether flows moved in the simulator or on the bed.
#[derive(Clone, Copy, Debug)]
pub enum On {
    /// In the packet-level simulator.
    Simulator,
    /// On a test bed.
    Bed(Machine),
}

/// What a run took of the machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Machine {
    /// How much later than it was to be a flow's first byte was given to the kernel, on average, in seconds.
    pub begun_late_avg_s: f64,
    /// Seconds by which a flow began later than it was to, at most.
    pub begun_late_max_s: f64,
    /// Share of the time that the machine's processors were busy.
    pub processors_busy: f64,
}

/// What one transport made of the flows.
#[derive(Debug)]
pub struct Run {
    /// As it was asked for; of a live run it ends in [`LIVE`].
    pub transport: String,
    /// Whether they moved in the simulator or on the bed.
    pub on: On,
    /// Completion times by kind and size, and deadlines.
    pub summary: Summary,
    /// What happened to packets.
    pub counts: RunCounts,
    /// Retransmission timeouts of all flows.
    pub timeouts: u64,
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Processor time: of the simulator, or of the machine that a bed is on.
    pub cpu_s: f64,
    /// Complete flows, if they were to be kept.
    pub flows: Vec<FlowRow>,
    /// What became of packets at each port.
    pub ports: Vec<PortCounts>,
    /// Bytes that each flow received, by interval, where that was observed.
    pub received: Received,
}

/// A flow that was complete, in results.
#[derive(Clone, Debug, Serialize)]
pub struct FlowRow {
    /// Its number in the scenario.
    pub id: u64,
    /// Arrival, in seconds since the run began.
    pub arrival_s: f64,
    /// Host that sends.
    pub source: u32,
    /// Host that receives.
    pub destination: u32,
    /// Its size.
    pub bytes: u64,
    /// deadline, known, unknown or planned.
    pub kind: &'static str,
    /// From arrival to the last byte at the receiver.
    pub fct_s: f64,
    /// The same in an empty network.
    pub ideal_s: f64,
    /// Absent without a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<f64>,
    /// Absent without a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// Segments that were sent again.
    pub retransmitted: u32,
    /// None of live runs, which do not count them.
    pub timeouts: Option<u32>,
}

/// Takes records of flows in, as they complete.
pub struct Sink<'a> {
    gathered: Gathered,
    timeouts: u64,
    retransmitted: u64,
    rows: Option<Vec<FlowRow>>,
    ports: Vec<PortCounts>,
    completed: &'a mut dyn FnMut(&FlowRecord),
}

impl<'a> Sink<'a> {
    /// `keep`: whether flows are told one by one. `completed` is called with every flow that completes.
    pub fn new(keep: bool, completed: &'a mut dyn FnMut(&FlowRecord)) -> Sink<'a> {
        Sink {
            gathered: Gathered::default(),
            timeouts: 0,
            retransmitted: 0,
            rows: keep.then(Vec::new),
            ports: Vec::new(),
            completed,
        }
    }

    /// A flow is complete.
    pub fn add(&mut self, record: &FlowRecord) {
        self.gathered.add(record);
        self.timeouts += u64::from(record.timeouts);
        self.retransmitted += u64::from(record.retransmitted);
        if let Some(rows) = &mut self.rows {
            rows.push(row(record));
        }
        (self.completed)(record);
    }

    /// A flow was not complete when the run ended.
    pub fn add_unfinished(&mut self, open: &Unfinished, end: Picos) {
        self.gathered.add_unfinished(open, end);
    }

    /// The run is over.
    pub fn end(self, transport: &str, on: On, counts: RunCounts, cpu_s: f64) -> Run {
        Run {
            transport: transport.to_owned(),
            on,
            summary: self.gathered.summary(),
            counts,
            timeouts: self.timeouts,
            retransmitted: self.retransmitted,
            cpu_s,
            flows: self.rows.unwrap_or_default(),
            ports: self.ports,
            received: Received::default(),
        }
    }
}

/// Runs a scenario under a transport, which is called `name` in what comes out.
///
/// # Errors
/// The scenario's traffic cannot be drawn.
pub fn simulate<'a>(
    scenario: &'a Scenario,
    topology: &'a Topology,
    name: &str,
    transport: Box<dyn Transport>,
    observer: Option<&'a mut dyn Observer>,
    mut sink: Sink<'_>,
) -> Result<Run, PoissonError> {
    let before = thread_cpu_secs();
    let network = scenario.network(topology);
    let mut simulation = Simulation::numbered(topology, transport, network, scenario.numbered()?);
    if let Some(observer) = observer {
        simulation.observe(observer);
    }
    let until = scenario.until.unwrap_or(Picos::MAX);
    let counts = simulation.run(until, &mut |record| sink.add(&record));
    simulation.unfinished().for_each(|open| sink.add_unfinished(&open, counts.end));
    sink.ports = simulation.ports().collect();
    drop(simulation);
    Ok(sink.end(name, On::Simulator, counts, thread_cpu_secs() - before))
}

fn row(record: &FlowRecord) -> FlowRow {
    let flow: &FlowArrival = &record.flow;
    let (kind, deadline_s) = match flow.kind {
        FlowKind::Deadline { within } => ("deadline", Some(within.as_secs())),
        FlowKind::Known => ("known", None),
        FlowKind::Unknown => ("unknown", None),
        FlowKind::Planned(_) => ("planned", None),
    };
    FlowRow {
        id: record.number,
        arrival_s: flow.arrival.as_secs(),
        source: flow.source.0,
        destination: flow.destination.0,
        bytes: flow.size.0,
        kind,
        fct_s: record.completion().as_secs(),
        ideal_s: record.ideal.as_secs(),
        deadline_s,
        met: record.met(),
        retransmitted: record.retransmitted,
        timeouts: Some(record.timeouts),
    }
}
