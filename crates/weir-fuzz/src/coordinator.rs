//! A coordinator, its agents and its drivers' calls.

use crate::input::Input;
use std::collections::BTreeMap;
use weir_core::coordinator::{
    Coordinator, CoordinatorConfig, DeadlineMargin, Output, SessionId, Tuning, Wire,
};
use weir_model::{CoflowId, Fabric, Rate, Span, Time};
use weir_proto::{limits, v1};

const HOSTS: u32 = 4;
const CAPACITY: f64 = 1e6;
const POLICIES: [&str; 8] = [
    "varys",
    "varys:delta=200ms",
    "fair",
    "fair-coflows",
    "dclas",
    "varys-deadline",
    "baraat",
    "varys-critical-path",
];

fn config() -> CoordinatorConfig {
    CoordinatorConfig {
        fabric: Fabric::big_switch(HOSTS, Rate::from_bytes_per_sec(CAPACITY)).expect("a fabric"),
        joining: None,
        lease: Span::from_millis(1_000),
        first_coflow: CoflowId(1),
        coflow_lease: Span::from_millis(60_000),
        wire: Wire { bytes_per_byte: 1.0, headroom: 1.0 },
        tuning: Tuning {
            bypass: Span::ZERO,
            ready_wait: Span::from_millis(3),
            deadline_margin: DeadlineMargin::NONE,
            sync_interval: Span::from_millis(10),
            batch: Span::from_millis(1),
        },
    }
}

/// Plays the sequence in `data` against a coordinator of one of several policies.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let Some(choice) = input.byte() else { return };
    let policy = weir_policy::find(POLICIES[usize::from(choice) % POLICIES.len()]).expect("a policy");
    let mut coordinator = Coordinator::new(config(), &policy);
    let mut now = Time::from_millis(1_000_000);
    let mut epochs: BTreeMap<SessionId, u64> = BTreeMap::new();
    let mut token = 0;
    // An honest driver's coflow, which no step unregisters.
    let honest = coordinator.handle_register(now, v1::RegisterRequest::default()).expect("room");
    while step(&mut coordinator, &mut input, &mut now, &mut token, honest).is_some() {
        coordinator.handle_timeout(now);
        coordinator.poll_plan(now);
        while let Some(output) = coordinator.poll_output() {
            if let Output::Message(session, message) = output {
                let before = epochs.insert(session, message.epoch).unwrap_or(0);
                assert!(before < message.epoch, "epochs of a session grow");
                check(&message);
            }
        }
        if let Some(next) = coordinator.next_timeout() {
            assert!(next.nanos() > 0);
        }
        let status = coordinator.status(now);
        for coflow in &status.coflows {
            let rate = coflow.rate_bytes_per_s;
            assert!((0.0..=1.02 * CAPACITY * f64::from(HOSTS)).contains(&rate), "{rate} B/s");
        }
        assert!(status.coflows.len() <= limits::MAX_LIVE_COFLOWS);
    }
    // Its lease may have run out by then, but ids that were given are never given again.
    let next = coordinator.handle_register(now, v1::RegisterRequest::default());
    assert!(next.is_err() || next.is_ok_and(|next| next > honest));
}

/// Nothing that agents are told is no number, or below nothing.
fn check(message: &v1::CoordinatorMessage) {
    use v1::coordinator_message::Kind;
    if let Some(Kind::Plan(plan)) = &message.kind {
        for coflow in &plan.coflows {
            assert!(coflow.drain_per_s >= 0.0, "{coflow:?}");
        }
        for grant in &plan.grants {
            assert!(grant.bytes_per_s >= 0.0, "{grant:?}");
        }
    }
}

fn step(
    coordinator: &mut Coordinator,
    input: &mut Input<'_>,
    now: &mut Time,
    token: &mut u64,
    honest: CoflowId,
) -> Option<()> {
    *token += 1;
    match input.byte()? % 11 {
        0 => {
            let session = SessionId(input.number()? % 8);
            let hello = input.message()?;
            // The driver of a coordinator never numbers two sessions alike.
            coordinator.handle_session_lost(*now, session);
            let _ = coordinator.handle_hello(*now, session, hello);
        }
        1 | 2 => {
            let session = SessionId(input.number()? % 8);
            coordinator.handle_agent(*now, session, input.message()?);
        }
        3 => coordinator.handle_session_lost(*now, SessionId(input.number()? % 8)),
        4 => _ = coordinator.handle_register(*now, input.message()?),
        5 => coordinator.handle_unregister(*now, *token, CoflowId(input.number()?.max(honest.0 + 1))),
        6 => _ = coordinator.handle_seal(*now, CoflowId(input.number()?)),
        7 => coordinator.handle_locate(*now, *token, input.message()?),
        8 => coordinator.handle_await_admission(*now, *token, &input.message()?),
        9 => _ = coordinator.handle_renew(*now, &input.message()?),
        _ => *now = *now + Span::from_nanos(input.number()?.saturating_mul(1_000_000) % (1 << 40)),
    }
    Some(())
}
