//! What senders decide alone against the plan for the whole network: the simulator runs the plan, a live system the
//! rule, and they must not drift apart.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_model::*;
use weir_policy::local::{LocalCoflow, LocalFlow};
use weir_policy::local_rule;
use weir_policy::{CoflowTable, FlowRef, Plan, Policy, Share, Slot, find};

const SENDERS: u32 = 4;
/// Tolerance of comparisons between rates, relative to the uplink: rounding of sums.
const ROUNDING: f64 = 1e-6;
/// Past the first thresholds of D-CLAS, 10 and 100 MB, after a few events.
const LARGEST: u64 = 150_000_000;

/// Coflows of flows by (sender, receiver, bytes); one arrives before every event, as long as there are more.
fn coflows() -> impl Strategy<Value = Vec<Vec<(u32, u32, u64)>>> {
    let flow = (0..SENDERS, 0..SENDERS, 1_000_000..LARGEST);
    prop::collection::vec(prop::collection::vec(flow, 1..6), 1..6)
}

/// A network, and the policy for it.
struct Network {
    fabric: Fabric,
    table: CoflowTable,
    policy: Box<dyn Policy>,
    plan: Plan,
    now: Time,
    /// Per coflow, what links have for each of its flows.
    levels: BTreeMap<Slot, BTreeMap<LinkId, f64>>,
}

impl Network {
    fn new(name: &'static str, rates: &[f64]) -> Network {
        let rates: Vec<Rate> = rates.iter().copied().map(Rate::from_bytes_per_sec).collect();
        let fabric = Fabric::big_switch_with(&rates).expect("rates above 0");
        Network {
            table: CoflowTable::new(&fabric),
            fabric,
            policy: find(name).expect("a policy").create(),
            plan: Plan::default(),
            now: Time::ZERO,
            levels: BTreeMap::new(),
        }
    }

    /// Keeps the levels of coflows that the plan leaves as they were, as a coordinator does.
    fn plan(&mut self) {
        self.policy.plan(self.now, &self.fabric, &self.table, &mut self.plan);
        self.table.adopt(&self.plan);
        if !self.plan.continues {
            self.levels.clear();
        }
        for Share { coflow, levels, .. } in &self.plan.shares {
            self.levels.insert(*coflow, levels.iter().copied().collect());
        }
    }

    /// Moves on to the next event under the plan; false if nothing moves any more.
    fn step(&mut self) -> bool {
        let wakeup = self.policy.next_wakeup(self.now, &self.table).map(|at| at - self.now);
        let Some(span) = self.table.next_end().into_iter().chain(wakeup).min() else { return false };
        self.table.advance(&self.plan, span);
        self.now = self.now + span;
        let (mut none, mut ended) = (Vec::new(), Vec::new());
        self.table.take_ends(&mut none, &mut ended);
        for at in ended {
            self.table.finish_flow(at);
            if self.table.coflow(at.coflow).live_flows() == 0 {
                self.table.remove(at.coflow);
            }
        }
        true
    }

    /// What a sender knows: its own flows with what `usable` says of each, queues as the policy has them, and
    /// what it sent itself. Beside it, the flows.
    fn known_to(
        &self,
        sender: HostId,
        usable: impl Fn(&Network, FlowRef, HostId) -> f64,
    ) -> (Vec<LocalCoflow>, Vec<FlowRef>) {
        let (mut known, mut flows) = (Vec::new(), Vec::new());
        for (slot, coflow) in self.table.coflows() {
            let told = self.plan.queues.iter().find(|(told, _)| *told == slot);
            let queue = told.expect("D-CLAS has queues").1;
            let mut local = LocalCoflow { queue, ..LocalCoflow::default() };
            for (index, flow) in (0u32..).zip(coflow.flows()) {
                let class = flow.class().map(|class| &self.table.classes()[class.index()]);
                let Some(class) = class.filter(|class| class.source() == sender) else { continue };
                let at = FlowRef { coflow: slot, flow: index };
                local.sent += Bytes(flow.size().0 - self.table.remaining(at).ceil() as u64);
                if flow.live() {
                    let usable = usable(self, at, class.destination());
                    local.flows.push(LocalFlow { usable: Rate::from_bytes_per_sec(usable) });
                    flows.push(at);
                }
            }
            if !local.flows.is_empty() {
                known.push(local);
            }
        }
        (known, flows)
    }
}

/// Runs coflows to their end; at every event each sender that decides alone, told of its receivers what `usable`
/// says, gives its flows the rates of the plan.
fn senders_decide_as_planned(
    policy: &'static str,
    rates: &[f64],
    coflows: &[Vec<FlowSpec>],
    usable: impl Fn(&Network, FlowRef, HostId) -> f64,
) -> Result<(), TestCaseError> {
    let rule = find(policy).expect("a policy").sender_queues().and_then(|queues| local_rule(policy, queues));
    let rule = rule.expect("senders decide");
    let mut network = Network::new(policy, rates);
    let mut waiting = (0u64..).zip(coflows);
    loop {
        let arrived = waiting.next();
        if let Some((id, flows)) = arrived {
            let spec = CoflowSpec::new(CoflowId(id), Time::from_nanos(id), flows.clone());
            network.table.insert(&spec, FlowId(id * 100), &network.fabric);
        }
        network.plan();
        for sender in (0..SENDERS).map(HostId) {
            let (known, flows) = network.known_to(sender, &usable);
            let (uplink, mut decided) = (Rate::from_bytes_per_sec(rates[sender.index()]), Vec::new());
            rule.share(network.now, uplink, &known, &mut decided);
            prop_assert_eq!(decided.len(), flows.len());
            for (at, decided) in flows.into_iter().zip(decided) {
                let planned = network.plan.rate(&network.table, at).bytes_per_sec();
                let apart = (decided.bytes_per_sec() - planned).abs();
                prop_assert!(
                    apart <= ROUNDING * uplink.bytes_per_sec(),
                    "{policy}, {:?}, {at:?} of sender {sender}: {decided:?} decided, {planned} planned",
                    network.now
                );
            }
        }
        if !network.step() && arrived.is_none() {
            prop_assert_eq!(network.table.live_flows(), 0);
            return Ok(());
        }
    }
}

proptest! {
    /// Every flow has a fast receiver of its own: only the senders' uplinks limit, each at its own rate. Queues still
    /// depend on what all senders sent of a coflow together.
    #[test]
    fn senders_whose_receivers_limit_nobody_decide_as_the_plan(
        coflows in coflows(),
        uplinks in prop::collection::vec(1e7..1e8f64, SENDERS as usize),
        policy in prop_oneof![Just("dclas"), Just("dclas-strict")],
    ) {
        let mut receivers = SENDERS..;
        let mut to_its_own = |&(source, _, size): &(u32, u32, u64)| FlowSpec {
            source: HostId(source),
            destination: HostId(receivers.next().expect("numbers enough")),
            size: Bytes(size),
            group: 0,
        };
        let coflows: Vec<Vec<FlowSpec>> =
            coflows.iter().map(|flows| flows.iter().map(&mut to_its_own).collect()).collect();
        let count: usize = coflows.iter().map(Vec::len).sum();
        let rates = [uplinks, vec![1e9; count]].concat();
        senders_decide_as_planned(policy, &rates, &coflows, |_, _, _| f64::INFINITY)?;
    }

    /// Receivers limit, too, and senders hear what the plan's levels have at them for each coflow, as a coordinator
    /// tells its agents. By weights a receiver divides itself, too, before it is asked; the rule knows nothing of that.
    #[test]
    fn senders_told_of_their_receivers_levels_decide_as_the_strict_plan(
        coflows in coflows(),
        ports in prop::collection::vec(1e7..1e8f64, SENDERS as usize),
    ) {
        let among_themselves = |&(source, destination, size): &(u32, u32, u64)| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size),
            group: 0,
        };
        let coflows: Vec<Vec<FlowSpec>> =
            coflows.iter().map(|flows| flows.iter().map(among_themselves).collect()).collect();
        senders_decide_as_planned("dclas-strict", &ports, &coflows, |network, at, receiver| {
            let levels = &network.levels[&at.coflow];
            let class = network.table.flow(at).class().expect("it crosses a link");
            let path = network.table.classes()[class.index()].path();
            let downlink = path.iter().find(|link| {
                network.fabric.links()[link.index()].kind == LinkKind::Downlink(receiver)
            });
            levels[downlink.expect("a path on a switch")]
        })?;
    }
}
