//! Whose turn it is where TCP shares the network: gathers of one coflow to one host go one after the other.
//!
//! # Problem
//! Spark has one connection between two executors of an application, on which one fetch comes after the other. Here a fetch is a
//! flow with a connection of its own, and tasks that run at once ask for as many. Side by side all of them end late: no task has all
//! of its blocks before nearly all have. And the more connections share a queue, the more they lose there.
//!
//! # Approach
//! Of the gathers from this host to one other, for one coflow and without a planned rate, one may write at a time, in the order in which
//! they were asked for. The next begins once the last byte of the one before is handed to the kernel, which holds little of it unsent
//! meanwhile. A receiver that does not read, or slowly, keeps no other waiting for long: where those that may write do not for a while, or
//! one's receiver has had no room for most of it, twice as many may.
//!
//! Two are let off. A new connection finds its rate in a few round trips; where these are long, turns would cost more than they gain. And
//! a receiver of several blocks at once had a connection for each without Weir, so that blocks take no turns.
//!
//! # Terminology
//! * lane: the gathers of one coflow to one host that take turns.
//!
//! # Properties
//! * In each lane at least one flow may write.
//! * Behind flows whose receivers do not read, the last of n that wait may write after at most log2(n) + 1 times two [`LOOK`]s; behind flows that do
//!   not move for another reason, as many times [`PATIENCE`] and a [`LOOK`].

use super::flow::Flow;
use super::pacer::Pacing;
use super::state::Agent;
use crate::ids::{FlowNumber, HostNumber};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{CoflowId, Span, Time};
use weir_policy::rules::LIMITED;

/// Longest round trip of an empty path on which turns are taken: a network within one place has less, and gathers of a
/// megabyte still fill 100 MB/s one after the other.
pub(super) const NEAR: Span = Span::from_millis(2);
/// How long flows of a lane may write nothing, for whatever reason, before more of it may. On a slow path a flow writes seldom.
const PATIENCE: Span = Span::from_millis(2_000);
/// How often that is looked at, and whether receivers have room.
const LOOK: Span = Span::from_millis(250);

type LaneKey = (CoflowId, HostNumber);

#[derive(Debug)]
struct Lane {
    /// Those that may write, and for how long, in all, each one's receiver had no room when that was last looked at;
    moving: BTreeMap<FlowNumber, Option<(Time, Span)>>,
    /// how many may at once, since when,
    abreast: usize,
    widened: Time,
    /// and when one of them last did, or began to be let.
    moved: Time,
    waiting: BTreeSet<FlowNumber>,
}

impl Lane {
    fn new(now: Time) -> Lane {
        Lane { moving: BTreeMap::new(), abreast: 1, widened: now, moved: now, waiting: BTreeSet::new() }
    }

    /// Lets twice as many write, if it did not just now.
    fn widen(&mut self, now: Time) -> Vec<FlowNumber> {
        if now.since(self.widened) < LOOK {
            return Vec::new();
        }
        (self.abreast, self.widened) = (self.abreast.saturating_mul(2), now);
        self.fill(now)
    }

    /// Lets as many flows write as may; gives those that did not before.
    fn fill(&mut self, now: Time) -> Vec<FlowNumber> {
        let room = self.abreast.saturating_sub(self.moving.len());
        let begin: Vec<FlowNumber> = std::iter::from_fn(|| self.waiting.pop_first()).take(room).collect();
        if !begin.is_empty() {
            self.moving.extend(begin.iter().map(|&flow| (flow, None)));
            self.moved = now;
        }
        begin
    }
}

/// The lanes of a host.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lanes: BTreeMap<LaneKey, Lane>,
    /// Lanes in which flows wait.
    contended: BTreeSet<LaneKey>,
    last_look: Time,
    /// The last time that it was told.
    now: Time,
}

impl Turns {
    /// How many flows wait for their turn.
    pub(super) fn waiting(&self) -> u64 {
        self.contended
            .iter()
            .filter_map(|key| self.lanes.get(key))
            .map(|lane| lane.waiting.len() as u64)
            .sum()
    }

    /// A flow takes turns, if it did not before; says whether it may write.
    fn join(&mut self, now: Time, key: LaneKey, id: FlowNumber) -> bool {
        self.now = now.max(self.now);
        let lane = self.lanes.entry(key).or_insert_with(|| Lane::new(now));
        if !lane.moving.contains_key(&id) {
            lane.waiting.insert(id);
            lane.fill(self.now);
        }
        let begins = lane.moving.contains_key(&id);
        if !begins {
            self.contended.insert(key);
        }
        begins
    }

    /// A flow takes turns no more; gives those that may write now.
    fn leave(&mut self, key: LaneKey, id: FlowNumber) -> Vec<FlowNumber> {
        let Some(lane) = self.lanes.get_mut(&key) else { return Vec::new() };
        lane.waiting.remove(&id);
        let next = if lane.moving.remove(&id).is_some() { lane.fill(self.now) } else { Vec::new() };
        if lane.waiting.is_empty() {
            self.contended.remove(&key);
        }
        if lane.moving.is_empty() {
            self.lanes.remove(&key);
        }
        next
    }

    /// A flow wrote. One that has a rate says nothing of those that take turns.
    fn note_moved(&mut self, now: Time, key: LaneKey, id: FlowNumber) {
        self.now = now.max(self.now);
        if let Some(lane) = self.lanes.get_mut(&key).filter(|lane| lane.moving.contains_key(&id)) {
            lane.moved = self.now;
        }
    }

    /// When it is to be looked at whether flows write that may.
    pub(super) fn due(&self) -> Option<Time> {
        (!self.contended.is_empty()).then(|| self.last_look + LOOK)
    }

    /// Flows that may write now, as those before them do not; and those of which it is to be found out whether their
    /// receivers have room.
    fn look(&mut self, now: Time) -> [Vec<FlowNumber>; 2] {
        self.now = now.max(self.now);
        let (mut begin, mut suspects) = (Vec::new(), Vec::new());
        if self.due().is_some_and(|due| due <= now) {
            self.last_look = now;
            let lanes = &mut self.lanes;
            self.contended.retain(|key| {
                let Some(lane) = lanes.get_mut(key) else { return false };
                suspects.extend(lane.moving.keys());
                if now.since(lane.moved) >= PATIENCE {
                    begin.extend(lane.widen(now));
                }
                !lane.waiting.is_empty()
            });
        }
        [begin, suspects]
    }

    /// A flow's receiver had no room for so long, in all. Gives flows that need not wait for it any longer.
    fn note_waited(&mut self, now: Time, key: LaneKey, id: FlowNumber, waited: Span) -> Vec<FlowNumber> {
        let Some(lane) = self.lanes.get_mut(&key) else { return Vec::new() };
        let before = lane.moving.get_mut(&id).and_then(|before| before.replace((now, waited)));
        let is_limited = before.is_some_and(|(at, before)| {
            waited.as_secs() - before.as_secs() >= LIMITED * now.since(at).as_secs().max(1e-9)
        });
        let begin = if is_limited { lane.widen(now) } else { Vec::new() };
        if lane.waiting.is_empty() {
            self.contended.remove(&key);
        }
        begin
    }

    fn others_wait(&self, key: LaneKey) -> bool {
        self.contended.contains(&key)
    }
}

impl Flow {
    fn lane(&self) -> LaneKey {
        (self.coflow, self.destination)
    }
}

impl Agent {
    /// A flow goes as TCP has it: at once, or when it is its turn.
    pub(super) fn unschedule(&mut self, now: Time, id: FlowNumber) {
        let Some(flow) = self.flows.get(&id) else { return };
        // What is in a class goes class after class, whatever the receiver.
        let in_class = self.coflows.get(&flow.coflow).is_some_and(|coflow| coflow.class.is_some());
        let begins = if flow.takes_turns && flow.left() > 0 && !in_class {
            self.turns.join(now, flow.lane(), id)
        } else {
            self.leave_turns(id);
            true
        };
        self.pacer.set(now, id, if begins { Pacing::Unscheduled } else { Pacing::Paused });
    }

    /// A flow has all of its bytes handed over, or a rate.
    pub(super) fn leave_turns(&mut self, id: FlowNumber) {
        if let Some(flow) = self.flows.get(&id) {
            let lane = flow.lane();
            self.leave_lane(id, lane);
        }
    }

    fn leave_lane(&mut self, id: FlowNumber, lane: LaneKey) {
        for next in self.turns.leave(lane, id) {
            self.pacer.set(self.turns.now, next, Pacing::Unscheduled);
        }
    }

    /// A flow is over.
    pub(super) fn end_turn(&mut self, id: FlowNumber, flow: &Flow) {
        self.leave_lane(id, flow.lane());
    }

    /// A flow wrote so much.
    pub(super) fn note_turn(&mut self, now: Time, id: FlowNumber, bytes: u64) {
        let Some(flow) = self.flows.get(&id).filter(|flow| flow.takes_turns) else { return };
        if bytes > 0 {
            self.turns.note_moved(now, flow.lane(), id);
        }
        if flow.left() == 0 {
            self.leave_turns(id);
        }
    }

    /// Lets more flows write where those that may do not.
    pub(super) fn look_at_turns(&mut self, now: Time) {
        let [begin, suspects] = self.turns.look(now);
        begin.into_iter().for_each(|flow| self.pacer.set(now, flow, Pacing::Unscheduled));
        self.suspects.extend(suspects);
    }

    /// A flow's receiver had no room for so long, in all.
    pub(super) fn note_turn_waited(&mut self, now: Time, id: FlowNumber, waited: Span) {
        let Some(lane) = self.flows.get(&id).filter(|flow| flow.takes_turns).map(Flow::lane) else { return };
        let begin = self.turns.note_waited(now, lane, id, waited);
        begin.into_iter().for_each(|flow| self.pacer.set(now, flow, Pacing::Unscheduled));
    }

    /// Whether flows wait for this one to be handed over, so that the kernel should hold little of it.
    pub fn others_wait(&self, flow: FlowNumber) -> bool {
        self.flows.get(&flow).is_some_and(|flow| flow.takes_turns && self.turns.others_wait(flow.lane()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AgentConfig, BlockEntry, Gathered, Output};
    use super::*;
    use weir_proto::data::{Identity, Request};
    use weir_proto::gather::{GatherRange, GatherRequest};
    use weir_proto::v1::{self, coordinator_message::Kind};

    const SIZE: u64 = 1_000_000;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn gather(agent: &mut Agent, now: Time, coflow: u64, receiver: u32, round_trip: Span) -> FlowNumber {
        let request = GatherRequest {
            coflow,
            offset: 0,
            destination: receiver,
            group: 0,
            identity: Identity::UNKNOWN,
            token: [7; 16],
            shuffle: 0,
            application: "app".to_owned(),
            executor: "1".to_owned(),
            ranges: vec![GatherRange { map: 0, first: 0, end: 1 }],
        };
        let found = Gathered { size: SIZE, identity: Identity([1; 16]) };
        agent.handle_gather(now, &request, found, round_trip).unwrap().flow
    }

    fn near(agent: &mut Agent, count: usize) -> Vec<FlowNumber> {
        (0..count).map(|_| gather(agent, ms(1), 1, 2, Span::ZERO)).collect()
    }

    /// Which of some flows may write.
    fn move_now<const N: usize>(agent: &Agent, flows: [FlowNumber; N]) -> [bool; N] {
        flows.map(|flow| agent.pacing(flow) == Some(Pacing::Unscheduled))
    }

    fn moving(agent: &Agent, flows: &[FlowNumber]) -> usize {
        flows.iter().filter(|&&flow| agent.pacing(flow) == Some(Pacing::Unscheduled)).count()
    }

    fn agent() -> Agent {
        Agent::new(AgentConfig { first_plan_wait: Span::from_millis(100), ..AgentConfig::default() })
    }

    fn say(agent: &mut Agent, now: Time, epoch: u64, plan: v1::Plan) {
        let kind = Some(Kind::Plan(plan));
        agent.handle_coordinator(
            now,
            v1::CoordinatorMessage { epoch, lease_ms: 1_000, kind, ..v1::CoordinatorMessage::default() },
        );
    }

    #[test]
    fn the_next_begins_once_the_one_before_is_handed_over_or_has_ended() {
        let mut agent = agent();
        let flows @ [first, second, third] = near(&mut agent, 3).try_into().unwrap();
        assert_eq!(move_now(&agent, flows), [true, false, false]);
        assert!(agent.others_wait(first));
        let observed = agent.observe(ms(1));
        assert_eq!((observed.unscheduled, observed.paused), (3, 0), "none waits for a plan");
        assert_eq!(agent.poll_transmit(ms(1)).map(|transmit| transmit.flow), Some(first));
        agent.handle_sent(ms(1), first, SIZE - 1);
        assert_eq!(move_now(&agent, flows), [true, false, false]);
        assert_eq!(agent.poll_transmit(ms(2)).map(|transmit| transmit.flow), Some(first));
        agent.handle_sent(ms(2), first, 1);
        assert!(move_now(&agent, flows)[1]);
        assert_eq!(agent.poll_transmit(ms(2)).map(|transmit| transmit.flow), Some(second));
        agent.handle_closed(third, false);
        assert!(!agent.others_wait(second));
        let fourth = gather(&mut agent, ms(3), 1, 2, Span::ZERO);
        agent.handle_closed(second, false);
        agent.handle_closed(first, true);
        assert_eq!(move_now(&agent, [fourth]), [true]);
        agent.handle_closed(fourth, true);
        assert!(agent.turns.lanes.is_empty() && agent.turns.contended.is_empty(), "{:?}", agent.turns);
    }

    #[test]
    fn other_coflows_other_receivers_far_ones_and_blocks_wait_for_nobody() {
        let mut agent = agent();
        let first = gather(&mut agent, ms(1), 1, 2, Span::ZERO);
        let others = [
            gather(&mut agent, ms(1), 2, 2, Span::ZERO),
            gather(&mut agent, ms(1), 1, 3, NEAR),
            gather(&mut agent, ms(1), 1, 2, NEAR + Span::from_nanos(1)),
        ];
        let identity = Identity::drawn([1; 16]);
        let entry = BlockEntry::of_file(CoflowId(1), "b".to_owned(), "/data".to_owned(), 10, identity);
        agent.handle_put(entry).unwrap();
        let request =
            Request { coflow: 1, offset: 0, destination: 2, group: 0, identity, block: "b".to_owned() };
        let block = agent.handle_request(ms(1), &request).unwrap().flow;
        assert_eq!(move_now(&agent, others), [true; 3]);
        assert_eq!(move_now(&agent, [first, block]), [true; 2]);
    }

    /// Of a thousand flows none moves, as no receiver reads, or for another reason. How long it takes until all may write.
    fn until_all_may_write(reads: bool) -> Span {
        let mut agent = agent();
        let flows = near(&mut agent, 1_000);
        let mut counts = Vec::new();
        let mut now = ms(1);
        while moving(&agent, &flows) < flows.len() {
            counts.push(moving(&agent, &flows));
            while let Some(transmit) = agent.poll_transmit(now) {
                agent.handle_blocked(now, transmit.flow);
            }
            // Its driver tried, and nothing was taken.
            agent.handle_sent(now, flows[0], 0);
            now = agent.next_timeout().unwrap();
            agent.handle_timeout(now);
            while let Some(output) = agent.poll_output(now) {
                let Output::Suspect(flow) = output else { panic!("{output:?}") };
                agent.handle_waited(now, flow, if reads { Span::ZERO } else { now.since(Time::ZERO) });
            }
            assert!(now < ms(60_000));
        }
        counts.dedup();
        assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        // Those that come later find as many abreast as there were.
        let late = gather(&mut agent, now, 1, 2, Span::ZERO);
        assert_eq!(move_now(&agent, [late]), [true]);
        now.since(ms(1))
    }

    /// The times are those that the module's documentation promises.
    #[test]
    fn nobody_waits_for_long_behind_flows_that_do_not_move() {
        assert!(
            until_all_may_write(false) <= Span::from_millis(11 * 500),
            "{:?}",
            until_all_may_write(false)
        );
        assert!(
            until_all_may_write(true) <= Span::from_millis(11 * 2_250),
            "{:?}",
            until_all_may_write(true)
        );
    }

    /// Two flows, of which the first writes a little now and then; its receiver has no room for this share of the time. Whether
    /// the second may write after all.
    fn behind_a_slow_one(share: f64) -> bool {
        let mut agent = agent();
        let [first, second] = near(&mut agent, 2).try_into().unwrap();
        for round in 1..100 {
            let now = ms(round * 400);
            agent.handle_timeout(now);
            while let Some(output) = agent.poll_output(now) {
                assert_eq!(output, Output::Suspect(first));
                agent.handle_waited(
                    now,
                    first,
                    Span::from_secs_ceil(share * now.since(Time::ZERO).as_secs()),
                );
            }
            agent.handle_sent(now, first, 1_000);
        }
        moving(&agent, &[second]) == 1
    }

    #[test]
    fn who_waits_for_a_slow_path_waits_on_and_who_waits_for_a_slow_receiver_does_not() {
        assert_eq!([0.0, 0.45, 0.55, 1.0].map(behind_a_slow_one), [false, false, true, true]);
    }

    #[test]
    fn a_plan_gives_rates_to_all_and_where_it_lapses_they_take_turns_again() {
        let mut agent = agent();
        agent.handle_session_up(ms(1));
        let flows @ [first, second] = near(&mut agent, 2).try_into().unwrap();
        let rate = v1::CoflowRate { coflow: 1, drain_per_s: 1.0, ..v1::CoflowRate::default() };
        let plan =
            v1::Plan { complete: true, coflows: vec![rate], latest_flow: second.0, ..v1::Plan::default() };
        say(&mut agent, ms(2), 1, plan);
        for flow in flows {
            assert!(matches!(agent.pacing(flow), Some(Pacing::Rated(_))), "{:?}", agent.pacing(flow));
        }
        assert!(!agent.others_wait(first) && agent.turns.lanes.is_empty());
        // One that no plan knows yet waits for a plan, and then for its turn.
        let third = gather(&mut agent, ms(3), 1, 2, Span::ZERO);
        assert_eq!((agent.observe(ms(3)).paused, agent.pacing(third)), (1, Some(Pacing::Paused)));
        agent.handle_timeout(ms(200));
        assert_eq!(move_now(&agent, [first, second, third]), [false, false, true]);
        agent.handle_timeout(ms(1_100));
        assert_eq!(move_now(&agent, [first, second, third]), [false, false, true], "it writes already");
        agent.handle_sent(ms(1_101), third, SIZE);
        assert_eq!(move_now(&agent, [first, second, third]), [true, false, true]);
    }

    #[test]
    fn in_classes_of_priority_they_take_no_turns() {
        let mut agent = agent();
        agent.handle_session_up(ms(1));
        let flows = near(&mut agent, 3).try_into().unwrap();
        assert_eq!(move_now(&agent, flows), [true, false, false]);
        let classes = vec![v1::CoflowClass { coflow: 1, class: 1, due_in_ns: 0 }];
        say(&mut agent, ms(2), 1, v1::Plan { complete: true, classes, ..v1::Plan::default() });
        assert_eq!((move_now(&agent, flows), agent.turns.waiting()), ([true; 3], 0));
    }
}
