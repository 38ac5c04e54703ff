//! The flows of a packet scenario on a bed of this machine, with the kernel's TCP and Weir's programs.

#[cfg_attr(not(feature = "ebpf"), path = "no_programs.rs")]
mod programs;

use programs::Programs;
use std::net::TcpStream;
use std::time::Duration;
use weir_model::{Bytes, Span, Time};
use weir_packet::scenario::{ENDLESS, Shape};
use weir_packet::transport::{self, HostControl, OnHosts};
use weir_packet::{FlowRecord, Picos, RunCounts, Scenario, Topology, Unfinished, ideal};
use weir_results::packets::{LIVE, Machine, On, Run, Sink};
use weir_testbed::{
    Bed, BedError, BedFlow, BedLinks, MoveOptions, Queues, SEGMENT_BYTES, has_rights, most_flows, move_flows,
};
use weir_trace::FlowArrival;

/// Linux's usual congestion control, which the simulator does not have.
const CUBIC: &str = "cubic";
/// What a file without an end waits for after its last flow has begun.
const PATIENCE: Duration = Duration::from_secs(60);
/// A host hands down pieces of so small a share of the queue that marks: a piece is in the queue all at once.
const PIECES_PER_THRESHOLD: u64 = 10;

/// Why flows are not moved.
#[derive(Debug, thiserror::Error)]
pub enum MixError {
    /// A transport that there is not, or not here.
    #[error("{name}: {reason}")]
    Transport {
        /// As it was named.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What a scenario asks of a bed that there cannot be.
    #[error("{0}")]
    Scenario(String),
    /// The bed, a program of the kernel or a connection failed.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// What moves flows on real hosts.
#[derive(Clone, Debug)]
struct Way {
    /// The kernel's name of the congestion control.
    control: &'static str,
    /// None of Linux's own controls, without classes and marks.
    rules: Option<OnHosts>,
}

/// Refuses what cannot be done, before anything is.
///
/// # Errors
/// As said; nothing of the machine is touched.
pub fn check(names: &[String], scenario: &Scenario, topology: &Topology) -> Result<(), MixError> {
    for name in names {
        if name.contains(':') {
            let reason = "settings are the simulator's alone; give the bare name".to_owned();
            return Err(MixError::Transport { name: name.clone(), reason });
        }
        way(name, scenario, topology)?;
    }
    if names.is_empty() {
        return Ok(());
    }
    let refused = |reason: String| Err(MixError::Scenario(reason));
    if !matches!(scenario.shape, Shape::SingleSwitch(_)) {
        return refused("hosts of a bed are around one switch: `topology = \"single-switch\"`".to_owned());
    }
    let flows = scenario.flow_count();
    let most = most_flows();
    if flows > most {
        return refused(format!(
            "{flows} flows have two sockets each, and this process may have those of {most} (`ulimit -n`); fewer with --flows"
        ));
    }
    if !has_rights() {
        return refused("it takes root, or a machine that lets users make network namespaces".to_owned());
    }
    Ok(())
}

fn unknown(name: &str) -> MixError {
    let reason = format!("there are {CUBIC}, tcp (Reno), dctcp, pias and karuna");
    MixError::Transport { name: name.to_owned(), reason }
}

fn way(name: &str, scenario: &Scenario, topology: &Topology) -> Result<Way, MixError> {
    if name == CUBIC {
        return Ok(Way { control: CUBIC, rules: None });
    }
    let mut transport = transport::named(name).map_err(|_| unknown(name))?;
    let network = scenario.network(topology);
    transport.prepare(&network);
    let rules = transport.on_hosts(&network).ok_or_else(|| unknown(name))?;
    Ok(match rules.control {
        HostControl::Reno => Way { control: "reno", rules: None },
        control => {
            let named = programs::name(control);
            let control = named.map_err(|reason| MixError::Transport { name: name.to_owned(), reason })?;
            Way { control, rules: Some(rules) }
        }
    })
}

fn links(scenario: &Scenario, way: &Way) -> BedLinks {
    let equal = BedLinks::equal(scenario.hosts() as usize, scenario.host_rate().bits_per_sec() as u64);
    // Also where nothing marks: all are to have the same pieces.
    let piece = u32::try_from(scenario.marking.0 / PIECES_PER_THRESHOLD).unwrap_or(u32::MAX);
    let segment_bytes = Some(piece.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end()));
    let queues = way.rules.as_ref().map_or(Queues::One, |_| programs::QUEUES);
    // As in the simulator, hosts have what switches have; but nothing is marked there.
    BedLinks { queues, host_queues: queues, segment_bytes, ..equal }
}

/// What a scenario asks of a bed that there cannot be is the user's to mend.
fn of_bed(error: BedError) -> MixError {
    match error {
        BedError::Config(reason) => MixError::Scenario(reason),
        error => MixError::Failed(error.into()),
    }
}

fn flow_of(flow: &FlowArrival) -> BedFlow {
    BedFlow {
        source: flow.source.0 as usize,
        destination: flow.destination.0 as usize,
        bytes: (flow.size != ENDLESS).then_some(flow.size.0),
        at: Duration::from_nanos(flow.arrival.since(Time::ZERO).nanos()),
    }
}

/// Moves the scenario's flows on a bed that is made for it. `keep`: each flow has a row; `begun` is called where one begins.
///
/// # Errors
/// As of [`check`], and where the bed or its programs fail.
pub fn run(
    scenario: &Scenario,
    topology: &Topology,
    name: &str,
    keep: bool,
    begun: &(dyn Fn() + Sync),
) -> Result<Run, MixError> {
    let way = way(name, scenario, topology)?;
    let numbered: Vec<(u64, FlowArrival)> = scenario.numbered().map_err(anyhow::Error::from)?.collect();
    let flows: Vec<BedFlow> = numbered.iter().map(|(_, flow)| flow_of(flow)).collect();
    let bed = Bed::create(&links(scenario, &way)).map_err(of_bed)?;
    let programs = way.rules.as_ref().map(|rules| Programs::load(&bed, rules, scenario)).transpose()?;
    let connected = |_: usize, near: &TcpStream, far: &TcpStream| {
        programs.as_ref().map_or(Ok(()), |programs| programs.connected(near, far))
    };
    let begins = |index: usize, near: &TcpStream| {
        begun();
        programs.as_ref().map_or(Ok(()), |programs| programs.begins(&numbered[index].1, near))
    };
    let last = flows.iter().map(|flow| flow.at).max().unwrap_or_default();
    let until = scenario.until.map(|until| Duration::from_secs_f64(until.as_secs()));
    let lasts = until.unwrap_or(last + PATIENCE);
    let options = MoveOptions { congestion: way.control, lasts, connected: &connected, begins: &begins };
    let moves = move_flows(&bed, &flows, &options).map_err(of_bed)?;

    let network = scenario.network(topology);
    let mut unseen = |_: &FlowRecord| {};
    let mut sink = Sink::new(keep, &mut unseen);
    let mut counts = RunCounts::default();
    let mut late: Vec<f64> = Vec::new();
    for ((number, flow), moved) in numbered.iter().zip(&moves.flows) {
        let Some(began) = moved.began else { continue };
        counts.begun += 1;
        let planned = Duration::from_nanos(flow.arrival.since(Time::ZERO).nanos());
        late.push(began.saturating_sub(planned).as_secs_f64());
        let ideal = ideal(flow, topology, &network);
        match moved.ended {
            Some(ended) => {
                counts.finished += 1;
                // A flow's time is that since its first byte was given to the kernel: so late is the machine, not the transport.
                let finish = Picos::from(flow.arrival) + picos(ended.saturating_sub(began));
                counts.end = counts.end.max(finish);
                let retransmitted = moved.retransmitted;
                let record =
                    FlowRecord { number: *number, flow: *flow, finish, retransmitted, timeouts: 0, ideal };
                sink.add(&record);
            }
            None => {
                let open =
                    Unfinished { number: *number, flow: *flow, ideal, received: Bytes(moved.received) };
                sink.add_unfinished(&open, picos(lasts));
            }
        }
    }
    if let Some(programs) = &programs {
        counts.marked = programs.marked()?;
    }
    // Bed and flows are all on this machine: where its processors are busy, times are the machine's
    // and not the transport's.
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let machine = Machine {
        begun_late_avg_s: late.iter().sum::<f64>() / late.len().max(1) as f64,
        begun_late_max_s: late.iter().copied().fold(0.0, f64::max),
        processors_busy: moves.busy_s / moves.lasted.as_secs_f64() / processors,
    };
    let mut run = sink.end(&format!("{name}{LIVE}"), On::Bed(machine), counts, moves.busy_s);
    // The bed counts segments sent again, but no timeouts: the 0 of the records above would read
    // as if there had been none.
    run.flows.iter_mut().for_each(|flow| flow.timeouts = None);
    Ok(run)
}

fn picos(time: Duration) -> Picos {
    Picos::from(Span::from_secs_ceil(time.as_secs_f64()))
}
