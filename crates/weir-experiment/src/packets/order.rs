//! A coordinator of coflows, packet by packet: it hears what begins, arrives and ends, and says classes, or rates, anew each time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_model::{CoflowId, CoflowSpec, Fabric, FlowId, Rate, Time};
use weir_packet::transport::{RateTold, Told};
use weir_packet::{Observer, Picos, ToldClass, ToldRate};
use weir_policy::{CoflowTable, FlowRef, Plan, Policy, Slot};

/// A flow of a coflow, and what of it is not there yet.
struct Member {
    coflow: CoflowId,
    index: u32,
    left: f64,
    told: ToldRate,
    /// What was said of it last.
    said: Rate,
}

/// What a coordinator says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Says {
    /// An order: classes up to the network's last.
    Classes {
        /// The last class of the transport, counted from 0.
        last: u8,
    },
    Rates,
}

/// What the coordinator knows of coflows, by what was reported.
struct State {
    fabric: Fabric,
    policy: Box<dyn Policy>,
    table: CoflowTable,
    plan: Plan,
    /// Of those that are to come.
    specs: BTreeMap<CoflowId, CoflowSpec>,
    live: BTreeMap<CoflowId, Live>,
    /// By number of a planned flow.
    members: Vec<Member>,
    next_flow: u64,
    /// The network's class of the policy's first one, and its last; none where rates are said.
    classes: Option<(u8, u8)>,
    /// How long what is said is on its way.
    delay: Picos,
    /// Classes; of rates each flow knows itself when it hears them.
    on_the_way: VecDeque<(Picos, ToldClass, u8)>,
}

struct Live {
    slot: Slot,
    told: ToldClass,
    said: Option<u8>,
}

/// A coordinator of what moves. Clones are the same one.
#[derive(Clone)]
pub(super) struct Coordinator(Arc<Mutex<State>>);

impl Coordinator {
    /// For coflows whose flows have the numbers of their places in `members`. Where the network has fewer classes than the policy, the
    /// last ones are one.
    pub(super) fn new(
        policy: &str,
        fabric: Fabric,
        coflows: impl Iterator<Item = CoflowSpec>,
        members: &[(CoflowId, u32)],
        says: Says,
        delay: Picos,
    ) -> Result<Coordinator, String> {
        let made = weir_policy::create(policy).map_err(|error| error.to_string())?;
        let classes = match (says, made.classes()) {
            (Says::Classes { last }, Some(count)) => {
                Some(((u32::from(last) + 1).saturating_sub(count) as u8, last))
            }
            (Says::Classes { .. }, None) => {
                return Err(format!("`{policy}` has no classes, `by-class` has"));
            }
            (Says::Rates, Some(_)) => {
                return Err(format!("`{policy}` has classes and no rates, `varys` has rates"));
            }
            (Says::Rates, None) => None,
        };
        let specs: BTreeMap<CoflowId, CoflowSpec> = coflows.map(|coflow| (coflow.id, coflow)).collect();
        let member = |&(coflow, index): &(CoflowId, u32)| -> Result<Member, String> {
            let flow = specs.get(&coflow).and_then(|spec| spec.flows.get(index as usize));
            let size = flow.ok_or_else(|| format!("coflow {coflow} has no flow {index}"))?.size;
            let told = ToldRate::default();
            Ok(Member { coflow, index, left: size.0 as f64, told, said: Rate::ZERO })
        };
        let members = members.iter().map(member).collect::<Result<_, _>>()?;
        Ok(Coordinator(Arc::new(Mutex::new(State {
            table: CoflowTable::new(&fabric),
            fabric,
            policy: made,
            plan: Plan::default(),
            specs,
            live: BTreeMap::new(),
            members,
            next_flow: 0,
            classes,
            delay,
            on_the_way: VecDeque::new(),
        }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of flows as they begin, and gives them their class.
    pub(super) fn told(&self) -> Told {
        let coordinator = self.clone();
        Box::new(move |number, now| coordinator.state().begins(number, now))
    }

    /// Hears of flows as they begin, and gives them their rate.
    pub(super) fn rate_told(&self) -> RateTold {
        let coordinator = self.clone();
        Box::new(move |number, now| {
            let mut state = coordinator.state();
            state.begins(number, now)?;
            Some(state.members.get(number as usize)?.told.clone())
        })
    }

    /// A planned flow is complete.
    pub(super) fn ended(&self, number: u32, now: Picos) {
        self.state().ended(number, now);
    }
}

/// Tells a coordinator what arrives of planned flows.
pub(super) struct Reports {
    pub(super) coordinator: Coordinator,
    /// By number of a flow of the run, that of a planned one.
    pub(super) planned: Vec<Option<u32>>,
}

impl Observer for Reports {
    fn delivered(&mut self, flow: u64, bytes: u32, now: Picos) {
        let mut state = self.coordinator.state();
        state.deliver(now);
        if let Some(Some(number)) = self.planned.get(flow as usize)
            && let Some(member) = state.members.get_mut(*number as usize)
        {
            member.left -= f64::from(bytes);
        }
    }
}

impl State {
    /// The whole coflow of a flow is known with it.
    fn begins(&mut self, number: u32, now: Picos) -> Option<ToldClass> {
        let coflow = self.members.get(number as usize)?.coflow;
        if let Some(spec) = self.specs.remove(&coflow) {
            let slot = self.table.insert(&spec, FlowId(self.next_flow), &self.fabric);
            self.next_flow += spec.flows.len() as u64;
            self.live.insert(coflow, Live { slot, told: ToldClass::default(), said: None });
            self.plan(now);
        }
        Some(self.live.get(&coflow)?.told.clone())
    }

    fn ended(&mut self, number: u32, now: Picos) {
        let Some(member) = self.members.get_mut(number as usize) else { return };
        member.left = 0.0;
        let (coflow, flow) = (member.coflow, member.index);
        let Some(slot) = self.live.get(&coflow).map(|live| live.slot) else { return };
        self.table.finish_flow(FlowRef { coflow: slot, flow });
        if self.table.coflow(slot).live_flows() == 0 {
            self.table.remove(slot);
            self.live.remove(&coflow);
        }
        self.plan(now);
    }

    /// Plans by what is left of all that is live now, and says what changed.
    fn plan(&mut self, now: Picos) {
        for member in self.members.iter().filter(|member| member.left > 0.0) {
            if let Some(live) = self.live.get(&member.coflow) {
                let at = FlowRef { coflow: live.slot, flow: member.index };
                self.table.set_remaining(at, member.left);
            }
        }
        let at = Time::from_nanos(now.0 / 1000);
        self.policy.plan(at, &self.fabric, &self.table, &mut self.plan);
        self.table.adopt(&self.plan);
        match self.classes {
            Some(classes) => self.say_classes(now + self.delay, classes),
            None => self.say_rates(now + self.delay),
        }
        self.deliver(now);
    }

    fn say_classes(&mut self, heard: Picos, (first, last): (u8, u8)) {
        for &(slot, class) in &self.plan.classes {
            let Some(live) = self.live.get_mut(&self.table.coflow(slot).id()) else { continue };
            let class = u8::try_from(class).unwrap_or(last).saturating_add(first).min(last);
            if live.said.replace(class) != Some(class) {
                self.on_the_way.push_back((heard, live.told.clone(), class));
            }
        }
    }

    fn say_rates(&mut self, heard: Picos) {
        for member in self.members.iter_mut().filter(|member| member.left > 0.0) {
            let Some(live) = self.live.get(&member.coflow) else { continue };
            let rate = self.plan.rate(&self.table, FlowRef { coflow: live.slot, flow: member.index });
            if std::mem::replace(&mut member.said, rate) != rate {
                member.told.say(heard, rate);
            }
        }
    }

    /// What was said long enough ago is heard.
    fn deliver(&mut self, now: Picos) {
        while self.on_the_way.front().is_some_and(|(at, _, _)| *at <= now) {
            if let Some((_, told, class)) = self.on_the_way.pop_front() {
                told.say(class);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, FlowSpec, HostId, Rate, Span};

    /// To host 1: 10 MB and 1 MB; elsewhere 10 kB.
    fn coordinator(policy: &str, says: Says, delay: Picos) -> Result<Coordinator, String> {
        let fabric = Fabric::big_switch(5, Rate::from_bytes_per_sec(1e8)).expect("a fabric");
        let coflow = |number: u64, source, destination, size| {
            let flow = FlowSpec {
                source: HostId(source),
                destination: HostId(destination),
                size: Bytes(size),
                group: 0,
            };
            CoflowSpec::new(CoflowId(number), Time::ZERO + Span::from_millis(number), vec![flow])
        };
        let coflows = [coflow(0, 0, 1, 10_000_000), coflow(1, 2, 1, 1_000_000), coflow(2, 3, 4, 10_000)];
        let members = [0, 1, 2].map(|number| (CoflowId(number), 0));
        Coordinator::new(policy, fabric, coflows.into_iter(), &members, says, delay)
    }

    fn at(millis: u64) -> Picos {
        Picos::from_millis(millis)
    }

    #[test]
    fn the_coflow_with_less_left_goes_first_by_what_has_arrived() {
        let coordinator = coordinator("by-class:classes=7", Says::Classes { last: 7 }, Picos::ZERO).unwrap();
        let told = coordinator.told();
        let large = told(0, at(0)).unwrap();
        assert_eq!(large.get(), Some(1), "the first of the seven last of eight");
        let small = told(1, at(1)).unwrap();
        assert!(small.get() < large.get(), "{small:?} {large:?}");
        let planned = vec![None, Some(0)];
        let mut reports = Reports { coordinator: coordinator.clone(), planned };
        reports.delivered(0, 9_500_000, at(2));
        reports.delivered(1, 9_500_000, at(2));
        let before = small.get();
        let other = told(2, at(3)).unwrap();
        assert!(large.get() < small.get() && other.get() == Some(1), "{large:?} {small:?} {other:?}");
        assert_ne!(small.get(), before);
        (0..3).for_each(|number| coordinator.ended(number, at(4)));
        assert!(coordinator.state().live.is_empty() && coordinator.state().table.slots().is_empty());
        assert!(told(3, at(5)).is_none(), "no such flow");
    }

    #[test]
    fn classes_are_heard_when_their_time_has_come() {
        let coordinator = coordinator("by-class:classes=8", Says::Classes { last: 7 }, at(10)).unwrap();
        let told = coordinator.told();
        let large = told(0, at(0)).unwrap();
        let mut reports = Reports { coordinator: coordinator.clone(), planned: vec![Some(0)] };
        reports.delivered(0, 1_000, at(9));
        assert_eq!(large.get(), None);
        reports.delivered(0, 1_000, at(10));
        assert_eq!(large.get(), Some(0));
    }

    #[test]
    fn a_policy_without_classes_is_refused() {
        let error = coordinator("varys", Says::Classes { last: 7 }, Picos::ZERO).err().unwrap();
        assert!(error.contains("has no classes"), "{error}");
        let error = coordinator("by-class", Says::Rates, Picos::ZERO).err().unwrap();
        assert!(error.contains("has classes and no rates"), "{error}");
    }

    /// The smaller coflow takes the link that they share, and the larger one has it back by what is left of both.
    #[test]
    fn rates_are_said_anew_as_coflows_come_and_flows_end() {
        let coordinator = coordinator("varys", Says::Rates, at(1)).unwrap();
        let told = coordinator.rate_told();
        let large = told(0, at(0)).unwrap();
        assert_eq!(large.get(at(0)), Rate::ZERO, "nothing was heard yet");
        assert_eq!(large.get(at(1)).bytes_per_sec(), 1e8, "though nothing else happens");
        let small = told(1, at(2)).unwrap();
        assert_eq!(large.get(at(2)).bytes_per_sec(), 1e8);
        assert_eq!((large.get(at(3)), small.get(at(3)).bytes_per_sec()), (Rate::ZERO, 1e8));
        coordinator.ended(1, at(13));
        assert!((large.get(at(14)).bytes_per_sec() - 1e8).abs() < 1.0, "{large:?}");
    }
}
