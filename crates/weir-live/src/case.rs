//! A workload as real bytes under one policy, beside the simulation of the same.

use crate::Work;
use weir_model::{CoflowSpec, Fabric, Time};
use weir_policy::Chosen;
use weir_results::report::{LinkUse, ReportRun, Transfer};
use weir_results::{FlowRecorder, Mode, Recorded, Run, Simulated, Spec, coflow_rows, simulate};
use weir_testbed::live::{self, LiveOptions, LiveOutcome, Network};
use weir_testbed::{BedLinks, Queues};

/// In place of a policy's name: no Weir at all.
pub const TCP: &str = "tcp";
/// What plain TCP is compared with in simulation, and stands for it on loopback.
pub const FAIR: &str = "fair";

/// A measured run beside the simulated one of the same workload.
#[derive(Clone, Debug)]
pub struct Pair {
    /// As it was named: [`TCP`], or a policy.
    pub policy: String,
    /// The coflows as real bytes moved on the bed.
    pub live: Run,
    /// By the fluid simulator; of [`TCP`] under [`FAIR`].
    pub simulated: Run,
    /// Processor seconds of the coordinator, all agents and all tasks.
    pub cpu_secs: [f64; 3],
    /// Microseconds, as [`LiveOutcome::first_byte_us`].
    pub first_byte_us: Vec<u32>,
    /// Microseconds, as [`LiveOutcome::replan_us`].
    pub replan_us: Vec<u32>,
    /// How full links were, live.
    pub link_use: LinkUse,
}

impl Pair {
    /// The policy that the simulation ran.
    pub fn twin(&self) -> &str {
        if self.policy == TCP { FAIR } else { &self.policy }
    }

    /// Both, as a report shows them.
    pub fn report_runs(&self) -> [ReportRun<'_>; 2] {
        [
            ReportRun { run: &self.live, link_use: Some(self.link_use.clone()) },
            ReportRun { run: &self.simulated, link_use: None },
        ]
    }
}

/// One workload under one policy.
#[derive(Debug)]
pub struct Case<'a> {
    work: &'a Work,
    /// As it was named.
    policy: &'a str,
    /// What the simulation runs.
    chosen: Chosen,
    /// Agents tag what they send.
    tags: bool,
}

impl<'a> Case<'a> {
    /// `tags`: agents tag packets by the size of their flow; those of a policy with classes tag in any case, and those of [`TCP`]
    /// never.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn new(work: &'a Work, policy: &'a str, tags: bool) -> Result<Case<'a>, weir_policy::UnknownPolicy> {
        let chosen = weir_policy::find(if policy == TCP { FAIR } else { policy })?;
        let tags = policy != TCP && (tags || chosen.create().classes().is_some());
        Ok(Case { work, policy, chosen, tags })
    }

    /// Those that the bed has to have: with queues by class where agents tag.
    pub fn links(&self) -> BedLinks {
        let links = self.work.links.clone();
        if !self.tags {
            return links;
        }
        let queues = Queues::ByDscp(weir_endhost::tagging::DEFAULT_DSCP);
        BedLinks { queues, host_queues: queues, ..links }
    }

    /// Simulates it, then moves its bytes over a network with [`Case::links`]. Policy, links and tags of `options` are set here.
    /// `flows`: rows of both runs have each flow. `moved` is told the bytes that have arrived.
    ///
    /// # Errors
    /// The workload cannot be simulated, or [`live::run`] fails.
    pub fn measure(
        &self,
        network: &Network,
        options: LiveOptions,
        flows: bool,
        moved: impl FnMut(u64),
    ) -> Result<Pair, anyhow::Error> {
        let Work { coflows, fabric, .. } = self.work;
        let spec = Spec {
            fabric: fabric.clone(),
            coflows: coflows.clone(),
            changes: Vec::new(),
            options: weir_sim::Options::default(),
        };
        // The report shows the links of the live run alone (`report_runs`).
        let recorded = Recorded { link_use: false, flows };
        let Simulated { run: simulated, .. } = simulate(&spec, &self.chosen, recorded, &mut |_| {})?;
        let policy = match (self.policy, network) {
            // Loopback has no shaped links that TCP could share: Weir paces max-min fair in its stead.
            (TCP, Network::Loopback) => Some(FAIR.to_owned()),
            (TCP, _) => None,
            (name, _) => Some(name.to_owned()),
        };
        let options = LiveOptions { policy, links: self.links(), tags: self.tags, ..options };
        let outcome = live::run(&options, network, coflows, moved)?;
        let records = live_records(&outcome, coflows, fabric);
        let jobs = weir_sim::Jobs::of(&live::from_start(coflows)).records(&records);
        let rows = coflow_rows(&records, coflows);
        let link_use = LinkUse::from_transfers(fabric, &transfers(&outcome, coflows));
        let cpu_secs = outcome.cpu_secs;
        let mut run = Run::new(self.policy, Mode::Live, rows, cpu_secs.iter().sum()).with_jobs(&jobs);
        if flows {
            let mut recorder = FlowRecorder::new(coflows);
            for done in &outcome.flows {
                let coflow = coflows[done.coflow].id.0;
                recorder.measured(coflow, done.flow, done.first_byte.as_secs(), done.done.as_secs());
            }
            run.flows = recorder.finish();
        }
        let LiveOutcome { first_byte_us, replan_us, .. } = outcome;
        let policy = self.policy.to_owned();
        Ok(Pair { policy, live: run, simulated, cpu_secs, first_byte_us, replan_us, link_use })
    }
}

fn transfers(outcome: &LiveOutcome, coflows: &[CoflowSpec]) -> Vec<Transfer> {
    let transfer = |done: &live::FlowOutcome| {
        let flow = &coflows[done.coflow].flows[done.flow];
        Transfer {
            source: flow.source,
            destination: flow.destination,
            start_s: done.first_byte.as_secs(),
            end_s: done.done.as_secs(),
            bytes: flow.size.0,
        }
    };
    outcome.flows.iter().map(transfer).collect()
}

/// What was measured, as the simulator would have it.
fn live_records(
    outcome: &LiveOutcome,
    coflows: &[CoflowSpec],
    fabric: &Fabric,
) -> Vec<weir_sim::CoflowRecord> {
    let measured = outcome.completion.iter().zip(&outcome.arrival).zip(&outcome.refused);
    coflows
        .iter()
        .zip(measured)
        .map(|(coflow, ((&cct, &arrival), refused))| weir_sim::CoflowRecord {
            id: coflow.id,
            arrival: Time::ZERO + arrival,
            admitted: refused.is_none(),
            cct,
            isolation: weir_sim::isolation(fabric, coflow),
            width: coflow.width(),
            bytes: coflow.bytes(),
            bin: coflow.bin(),
        })
        .collect()
}
