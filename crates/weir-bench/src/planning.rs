//! `weir bench planning`: how long the coordinator takes to plan, without network and on virtual time.

use super::load::{Load, LoadFlow};
use super::played::PlayedAgent;
use clap::Args;
use std::collections::VecDeque;
use std::time::Instant;
use weir_console::Failure;
use weir_console::find;
use weir_core::coordinator::{
    Coordinator, CoordinatorConfig, DeadlineMargin, Output, SessionId, Tuning, Wire,
};
use weir_model::{CoflowId, Fabric, RackSpec, Rate, Span, Time};
use weir_policy::Chosen;
use weir_proto::v1;
use weir_results::percentile;

/// A coflow leaves and another arrives after so many ends.
const ENDS_PER_ARRIVAL: usize = 4;
/// Rate of every link; only relations matter.
const LINK: Rate = Rate::from_bytes_per_sec(125e6);
/// What the hosts of a rack can send over what its link to the core carries.
const OVERSUBSCRIPTION: f64 = 4.0;
/// Bytes of a flow of the smallest coflows.
const LEAST_BYTES: f64 = 4e6;

/// Prints, for each kind of event, the median and the 95th percentile of the processor's time for one plan:
/// the policy, taking the plan over into the table of live coflows, and working out what every agent must be
/// told. Decoding, encoding and sending messages is not in it (see `weir bench coordinator`). The state is
/// steady: as many coflows are live all the time, they move as planned, and agents report how far they came.
#[derive(Args)]
pub(crate) struct PlanningArgs {
    /// Number of live coflows in the table
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    coflows: u32,
    /// Hosts, each with a port in and a port out
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    ports: u32,
    /// Racks that the hosts are divided among; their links to the core carry a quarter of what the hosts can send
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    racks: Option<u32>,
    /// Live flows, when all coflows are at their beginning
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,
    /// Policy (see `weir policies`)
    #[arg(long, default_value = "varys")]
    policy: String,
    /// Plans to time; every fifth follows an arrival, the others follow an end
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(5..=1_000_000))]
    plans: u32,
    /// Seed of the coflows
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The coordinator's state machine with agents that only move as planned.
struct Cluster {
    now: Time,
    coordinator: Coordinator,
    agents: Vec<PlayedAgent>,
    load: Load,
    live: VecDeque<CoflowId>,
}

/// One switch, or racks.
fn fabric(args: &PlanningArgs) -> Result<Fabric, Failure> {
    let fabric = match args.racks {
        None => Fabric::big_switch(args.ports, LINK),
        Some(racks) if args.ports.is_multiple_of(racks) => Fabric::racks(&RackSpec {
            racks,
            hosts_per_rack: args.ports / racks,
            host_rate: LINK,
            oversubscription: OVERSUBSCRIPTION,
        }),
        Some(racks) => {
            return Err(Failure::Input(format!("--ports {} is no multiple of --racks {racks}", args.ports)));
        }
    };
    fabric.map_err(|error| Failure::Input(error.to_string()))
}

fn session(host: usize) -> SessionId {
    SessionId(host as u64 + 1)
}

impl Cluster {
    fn start(args: &PlanningArgs, policy: &Chosen) -> Result<Cluster, Failure> {
        let fabric = fabric(args)?;
        let config = CoordinatorConfig {
            fabric,
            joining: None,
            lease: Span::from_millis(1000),
            first_coflow: CoflowId(1),
            wire: Wire { bytes_per_byte: 1.0, headroom: 1.0 },
            tuning: Tuning {
                bypass: Span::ZERO,
                ready_wait: Span::ZERO,
                deadline_margin: DeadlineMargin::NONE,
                sync_interval: Span::from_millis(10),
                batch: Span::ZERO,
            },
            coflow_lease: Span::MAX,
        };
        let width = (args.flows / args.coflows) as usize;
        let mut cluster = Cluster {
            now: Time::from_millis(1),
            coordinator: Coordinator::new(config, policy),
            agents: (0..args.ports).map(PlayedAgent::new).collect(),
            load: Load::new(args.seed, args.ports, width, LEAST_BYTES),
            live: VecDeque::new(),
        };
        for (host, agent) in cluster.agents.iter().enumerate() {
            cluster.coordinator.handle_hello(cluster.now, session(host), agent.hello())?;
        }
        for _ in 0..args.coflows {
            cluster.arrive()?;
        }
        cluster.plan();
        Ok(cluster)
    }

    fn tell(&mut self, host: usize, events: Vec<v1::AgentEvent>) {
        if !events.is_empty() {
            self.coordinator.handle_agent(self.now, session(host), v1::AgentMessage { events });
        }
    }

    /// A coflow arrives with all its flows.
    fn arrive(&mut self) -> Result<(), Failure> {
        let flows = self.load.next();
        let options = v1::CoflowOptions { flows: flows.len() as u64, ..v1::CoflowOptions::default() };
        let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
        let coflow = self.coordinator.handle_register(self.now, request)?;
        for LoadFlow { source, destination, bytes } in flows {
            let opened = self.agents[source as usize].open(self.now, coflow.0, destination, bytes);
            self.tell(source as usize, vec![opened]);
        }
        self.live.push_back(coflow);
        Ok(())
    }

    /// The oldest coflow ends, complete or not, and a new one arrives.
    fn replace_oldest(&mut self) -> Result<(), Failure> {
        if let Some(coflow) = self.live.pop_front() {
            self.coordinator.handle_unregister(self.now, 0, coflow);
        }
        self.deliver();
        self.arrive()
    }

    /// Time goes on to the next end of flows; agents report how far the others came.
    fn end_next(&mut self) -> bool {
        let next = self.agents.iter().map(PlayedAgent::next_end).min().unwrap_or(Time::MAX);
        if next == Time::MAX {
            return false;
        }
        self.now = self.now.max(next);
        for host in 0..self.agents.len() {
            let (mut events, _) = self.agents[host].take_ends(self.now);
            if !events.is_empty() {
                events.extend(self.agents[host].progress(self.now));
                self.tell(host, events);
            }
        }
        true
    }

    /// One plan, and how many microseconds it took.
    fn plan(&mut self) -> f64 {
        // Before the clock starts: timeouts are no part of a plan.
        self.coordinator.handle_timeout(self.now);
        let start = Instant::now();
        self.coordinator.poll_plan(self.now);
        let taken = start.elapsed().as_secs_f64() * 1e6;
        self.deliver();
        taken
    }

    fn deliver(&mut self) {
        while let Some(output) = self.coordinator.poll_output() {
            let Output::Message(SessionId(number), message) = output else { continue };
            let host = number as usize - 1;
            let answer = self.agents[host].apply(self.now, &message);
            self.tell(host, answer.into_iter().collect());
        }
    }
}

pub(crate) fn planning(args: &PlanningArgs) -> Result<(), Failure> {
    let policy = find(&args.policy)?;
    if args.flows < args.coflows {
        return Err(Failure::Input(format!("--flows {} is below --coflows {}", args.flows, args.coflows)));
    }
    let mut cluster = Cluster::start(args, &policy)?;
    let (mut ends, mut arrivals) = (Vec::new(), Vec::new());
    for number in 0..args.plans as usize {
        // A coflow that is over makes room for the next one.
        if number % (ENDS_PER_ARRIVAL + 1) != 0 && cluster.end_next() {
            ends.push(cluster.plan());
        } else {
            cluster.replace_oldest()?;
            arrivals.push(cluster.plan());
        }
    }
    println!(
        "{}: {} coflows, {} flows at their beginning, {} hosts{}; time of one plan, message contents included",
        policy.name,
        args.coflows,
        args.flows,
        args.ports,
        args.racks.map_or(String::new(), |racks| format!(" in {racks} racks")),
    );
    for (what, mut micros) in [("end of flows", ends), ("arrival of a coflow", arrivals)] {
        micros.sort_by(f64::total_cmp);
        println!(
            "after the {what}: {:.3} ms median, {:.3} ms p95 ({} plans)",
            percentile(&micros, 0.5) / 1e3,
            percentile(&micros, 0.95) / 1e3,
            micros.len()
        );
    }
    Ok(())
}
