//! Peers that say anything: sequences of messages and calls with ids, sizes and times from all over their ranges, beside an
//! agent and a driver that are honest. Nothing panics, every call is answered, and the honest ones are served.

use super::*;
use proptest::prelude::*;
use weir_proto::v1::agent_event::Kind;

/// Few ids that meet each other, and the ends of the range.
fn id() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..6, Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 40), any::<u64>()]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..5, Just(u64::MAX), Just(1 << 43), any::<u64>()]
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-1.0),
        Just(1e6),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(1e300),
        any::<f64>()
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("b".to_owned()), Just("c".to_owned()), Just("x".repeat(2_000))]
}

prop_compose! {
    fn options()(
        name in name(), flows in number(), weight in real(), deadline_ms in number(), lease_ms in number(),
        parents in prop::collection::vec(id(), 0..4), job in id(), tail_us in number(), stop_if_refused: bool,
    ) -> v1::CoflowOptions {
        let tail_transfer_us = tail_us;
        v1::CoflowOptions {
            name, flows, weight, deadline_ms, lease_ms, parents, job, tail_us, tail_transfer_us, stop_if_refused,
            ..v1::CoflowOptions::default()
        }
    }
}

prop_compose! {
    fn note()(
        coflow in id(), options in prop::option::of(options()), age_ns in number(), sealed: bool, done_flows in number(),
        done_bytes in number(), moving_age_ns in number(), request_key in 0u64..3, refused in name(),
    ) -> v1::CoflowNote {
        v1::CoflowNote { coflow, options, age_ns, sealed, done_flows, done_bytes, moving_age_ns, request_key, refused, admitted: sealed }
    }
}

prop_compose! {
    fn block_added()(coflow in id(), block in name(), size in number(), identity in prop::collection::vec(any::<u8>(), 0..20))
        -> v1::BlockAdded {
        v1::BlockAdded { coflow, block, size, identity }
    }
}

prop_compose! {
    fn flow_opened()(
        flow in id(), coflow in id(), block in name(), destination in prop_oneof![0u32..4, any::<u32>()], size in number(),
        offset in number(), group in 0u32..3,
    ) -> v1::FlowOpened {
        v1::FlowOpened { flow, coflow, block, destination, size, offset, group }
    }
}

fn range() -> impl Strategy<Value = v1::IdRange> {
    (id(), id()).prop_map(|(first, last)| v1::IdRange { first, last })
}

fn event() -> impl Strategy<Value = Kind> {
    let part = (
        prop::collection::vec(note(), 0..3),
        prop::collection::vec(block_added(), 0..3),
        prop::collection::vec(flow_opened(), 0..3),
        prop::collection::vec(range(), 0..3),
        any::<bool>(),
        number(),
    );
    let part = part.prop_map(|(coflows, blocks, flows, ended, last, clock_ns)| v1::HelloPart {
        coflows,
        blocks,
        flows,
        ended,
        last,
        clock_ns,
    });
    prop_oneof![
        block_added().prop_map(Kind::BlockAdded),
        number().prop_map(|at_ns| Kind::Clock(v1::Clock { at_ns })),
        flow_opened().prop_map(Kind::FlowOpened),
        (id(), number(), any::<bool>(), any::<bool>()).prop_map(
            |(flow, sent, done, again)| Kind::FlowClosed(v1::FlowClosed { flow, sent, done, again })
        ),
        (id(), number()).prop_map(|(flow, sent)| Kind::Progress(v1::Progress {
            flows: vec![v1::FlowProgress { flow, sent }]
        })),
        (id(), number()).prop_map(|(coflow, bytes)| {
            Kind::Attained(v1::Attained { coflows: vec![v1::CoflowAttained { coflow, bytes }] })
        }),
        (number(), number(), number(), any::<u32>(), number()).prop_map(
            |(interval_ns, sent, received, host, bytes)| {
                let own = vec![v1::HostBytes { host, bytes }];
                Kind::Interface(v1::InterfaceReport { interval_ns, sent, received, own })
            }
        ),
        (id(), real()).prop_map(|(flow, bytes_per_s)| Kind::Limits(v1::FlowLimits {
            flows: vec![v1::FlowLimit { flow, bytes_per_s }]
        })),
        id().prop_map(|coflow| Kind::Settled(v1::CoflowSettled { coflow })),
        (id(), name()).prop_map(|(coflow, block)| Kind::BlockGone(v1::BlockGone { coflow, block })),
        part.prop_map(Kind::HelloPart),
    ]
}

#[derive(Clone, Debug)]
enum Noise {
    Hello(Vec<v1::CoflowNote>, Vec<v1::IdRange>, bool),
    Event(Kind),
    Lost,
    Register(v1::CoflowOptions, u64),
    Seal(u64),
    Unregister(u64),
    Renew(Vec<u64>),
    Locate(u64, String, u64),
    Await(u64, u64),
    Wait(u64),
}

fn noise() -> impl Strategy<Value = Noise> {
    prop_oneof![
        (prop::collection::vec(note(), 0..3), prop::collection::vec(range(), 0..3), any::<bool>())
            .prop_map(|(notes, ended, more)| Noise::Hello(notes, ended, more)),
        event().prop_map(Noise::Event),
        event().prop_map(Noise::Event),
        event().prop_map(Noise::Event),
        Just(Noise::Lost),
        (options(), 0u64..3).prop_map(|(options, key)| Noise::Register(options, key)),
        id().prop_map(Noise::Seal),
        id().prop_map(Noise::Unregister),
        prop::collection::vec(id(), 0..4).prop_map(Noise::Renew),
        (id(), name(), number()).prop_map(|(coflow, block, wait)| Noise::Locate(coflow, block, wait)),
        (id(), number()).prop_map(|(coflow, wait)| Noise::Await(coflow, wait)),
        (0u64..2_000).prop_map(Noise::Wait),
    ]
}

/// The stranger is host 3, in a session of its own.
const STRANGER: SessionId = SessionId(1_000);

fn make(pair: &mut Pair, noise: Noise, tokens: &mut u64) {
    let (now, coordinator) = (pair.now, &mut pair.coordinator);
    *tokens += 1;
    match noise {
        Noise::Hello(coflows, ended_ranges, more) => {
            let hello =
                v1::Hello { version: 1, host: 3, coflows, ended_ranges, more, ..v1::Hello::default() };
            let _ = coordinator.handle_hello(now, STRANGER, hello);
        }
        Noise::Event(kind) => {
            let events = vec![v1::AgentEvent { kind: Some(kind) }];
            coordinator.handle_agent(now, STRANGER, v1::AgentMessage { events });
        }
        Noise::Lost => coordinator.handle_session_lost(now, STRANGER),
        Noise::Register(options, request_key) => {
            let _ =
                coordinator.handle_register(now, v1::RegisterRequest { options: Some(options), request_key });
        }
        Noise::Seal(coflow) => _ = coordinator.handle_seal(now, CoflowId(coflow)),
        // The honest driver's coflow is the first.
        Noise::Unregister(coflow) => coordinator.handle_unregister(now, *tokens, CoflowId(coflow.max(2))),
        Noise::Renew(coflows) => _ = coordinator.handle_renew(now, &v1::RenewRequest { coflows }),
        Noise::Locate(coflow, block, wait_ms) => {
            coordinator.handle_locate(now, *tokens, v1::LocateRequest { coflow, block, wait_ms, host: 2 });
        }
        Noise::Await(coflow, wait_ms) => {
            coordinator.handle_await_admission(now, *tokens, &v1::AdmissionRequest { coflow, wait_ms });
        }
        Noise::Wait(millis) => pair.wait(millis),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::noise_cases()))]

    #[test]
    fn whatever_a_peer_says_nothing_panics_and_the_honest_are_served(
        sequence in prop::collection::vec(noise(), 1..40),
        policy in prop::sample::select(vec!["varys", "varys:delta=200ms", "fair", "dclas", "varys-deadline", "varys-critical-path"]),
    ) {
        let mut pair = Pair::under(CoordinatorConfig { coflow_lease: Span::from_millis(60_000), ..config(4, 1) }, policy);
        let coflow = pair.register(1);
        let flow = pair.open(coflow, "honest", 100_000_000, 0, 1);
        let mut tokens = 100;
        for noise in sequence {
            make(&mut pair, noise, &mut tokens);
            pair.coordinator.check_dues();
            pair.settle();
            pair.coordinator.status(pair.now);
        }
        pair.wait(2_000);
        // It moves, at no more than its link has; what the stranger opened may be in its way for a time.
        let rate = pair.rate(0, flow);
        prop_assert!(rate.is_infinite() || (0.0..=1.02 * CAPACITY).contains(&rate), "{}", rate);
        pair.finish(0, flow, 100_000_000 - 1_000);
        let request = v1::LocateRequest { coflow: coflow.0, block: "honest".to_owned(), wait_ms: 0, host: 1 };
        pair.coordinator.handle_locate(pair.now, 1, request);
        let answers: Vec<_> = std::iter::from_fn(|| pair.coordinator.poll_answer()).collect();
        prop_assert!(answers.iter().any(|answer| answer.token == 1 && !answer.reply.holders.is_empty()));
        let epochs: Vec<u64> = pair.said.iter().filter_map(|said| if let Said::Coordinator(message) = said { Some(message.epoch) } else { None }).collect();
        prop_assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "epochs only grow");
    }

    #[test]
    fn an_agent_survives_any_coordinator(
        messages in prop::collection::vec((any::<u64>(), number(), number(), message()), 1..40),
    ) {
        let mut pair = Pair::new(2);
        let coflow = pair.register(1);
        let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
        let agent = &mut pair.agents[0];
        let mut now = pair.now;
        for (at, (wait, lease_ms, heard_ns, kind)) in (0u64..).zip(messages) {
            now = now + Span::from_nanos(wait % 2_000_000_000);
            let (epoch, kind) = ((1 << 60) + at, Some(kind));
            agent.handle_coordinator(now, v1::CoordinatorMessage { epoch, lease_ms, heard_ns, kind });
            agent.handle_timeout(now);
            while let Some(transmit) = agent.poll_transmit(now) {
                agent.handle_sent(now, transmit.flow, 0);
                agent.handle_blocked(now, transmit.flow);
            }
            agent.handle_writable(now, flow);
            while agent.poll_message(now).is_some() {}
            while agent.poll_journal().is_some() {}
            agent.next_timeout();
        }
        // Its coflow may have been ended by then; else it still holds what it was given.
        let request = Request { coflow: coflow.0, offset: 0, destination: 1, group: 0, identity: Identity::UNKNOWN, block: "b".to_owned() };
        let served = agent.handle_request(now, &request);
        prop_assert!(agent.has_ended(coflow) || served.is_ok() || served == Err(Status::CoflowRefused), "{:?}", served);
    }
}

fn message() -> impl Strategy<Value = v1::coordinator_message::Kind> {
    use v1::coordinator_message::Kind;
    let plan = (
        prop::collection::vec((id(), real(), any::<bool>()), 0..3),
        prop::collection::vec((id(), real()), 0..3),
        prop::collection::vec(id(), 0..3),
        (any::<bool>(), number(), number(), number(), real()),
    );
    let plan = plan.prop_map(
        |(rates, grants, bypassed, (complete, bypass_bytes, ready_wait_ns, latest_flow, uplink))| {
            let coflows = rates.into_iter().map(|(coflow, drain_per_s, whole)| v1::CoflowRate {
                coflow,
                drain_per_s,
                whole,
            });
            let grants = grants.into_iter().map(|(flow, bytes_per_s)| v1::FlowGrant { flow, bytes_per_s });
            let (coflows, grants) = (coflows.collect(), grants.collect());
            v1::Plan {
                coflows,
                grants,
                bypassed,
                complete,
                bypass_bytes,
                ready_wait_ns,
                latest_flow,
                uplink,
                ..v1::Plan::default()
            }
        },
    );
    prop_oneof![
        plan.prop_map(Kind::Plan),
        Just(Kind::Keepalive(v1::Keepalive {})),
        prop::collection::vec(note(), 0..3).prop_map(|notes| Kind::CoflowNotes(v1::CoflowNotes { notes })),
        id().prop_map(|coflow| Kind::CoflowEnding(v1::CoflowEnding { coflow })),
        prop::collection::vec(range(), 0..2)
            .prop_map(|ranges| Kind::CoflowsEnded(v1::CoflowsEnded { ranges })),
        id().prop_map(|coflow| Kind::CoflowEnded(v1::CoflowEnded { coflow })),
        name().prop_map(|text| Kind::Notice(v1::Notice { text })),
        (any::<bool>(), id(), any::<u32>(), number(), real()).prop_map(
            |(complete, coflow, queue, place_ns, uplink)| {
                let limits = vec![v1::ReceiverLimit { host: 1, bytes_per_s: uplink }];
                let coflows = vec![v1::CoflowQueue { coflow, queue, place_ns, limits }];
                Kind::Queues(v1::Queues { complete, coflows, uplink })
            }
        ),
    ]
}

/// Found by fuzzing: a range that ends before it begins, as a journal may have it, and a driver that sent too much.
#[test]
fn an_agent_survives_ranges_that_are_none_and_more_bytes_than_there_are() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "b", 1_000_000, 0, 1);
    pair.agents[0].restore(crate::agent::JournalEntry::EndedRange(CoflowId(9), CoflowId(5)));
    pair.agents[0].handle_sent(pair.now, flow, u64::MAX);
    pair.wait(100);
    pair.agents[0].handle_closed(flow, true);
    pair.settle();
    assert_eq!(pair.coordinator.status(pair.now).completed[0].bytes, 1_000_000);
}

/// Found by fuzzing: infinity times no time, from drains near the largest number before the uplink was told.
#[test]
fn what_a_flow_earns_stays_a_number_whatever_it_is_given() {
    let mut pair = Pair::new(2);
    let mut agent = agent(0, 1);
    agent.handle_session_up(pair.now);
    agent.handle_put(block(CoflowId(1), "b", 1_000_000)).unwrap();
    let flow = agent.handle_request(pair.now, &request(CoflowId(1), 0, 1, "b")).unwrap().flow;
    for (epoch, complete, uplink) in [(1, false, 0.0), (2, false, 0.0), (3, true, 1e6), (4, false, 0.0)] {
        let coflows = vec![v1::CoflowRate { coflow: 1, drain_per_s: f64::MAX, whole: true }];
        let grants = vec![v1::FlowGrant { flow: flow.0, bytes_per_s: f64::MAX }];
        let plan = v1::Plan { complete, coflows, grants, latest_flow: flow.0, uplink, ..v1::Plan::default() };
        let kind = Some(v1::coordinator_message::Kind::Plan(plan));
        agent.handle_coordinator(
            pair.now,
            v1::CoordinatorMessage { epoch, lease_ms: 10_000, heard_ns: 0, kind },
        );
    }
    for _ in 0..20 {
        pair.now = pair.now + Span::from_millis(50);
        agent.handle_timeout(pair.now);
    }
    assert!(matches!(agent.pacing(flow), Some(Pacing::Rated(rate)) if rate.bytes_per_sec() <= 1e6));
}
