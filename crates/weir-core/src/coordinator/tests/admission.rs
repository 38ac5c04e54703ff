//! Coflows with deadlines are let in or refused, and every caller that waits is told.

use super::*;
use v1::Admission;

const TCP: f64 = f64::INFINITY;

fn deadlines(margin: DeadlineMargin) -> Pair {
    Pair::under(tuned(config(4, 1), |tuning| tuning.deadline_margin = margin), "varys-deadline")
}

/// A coflow of so many flows that is due so long after its first get.
fn register(pair: &mut Pair, flows: u64, deadline_ms: u64, stop_if_refused: bool) -> CoflowId {
    let options = v1::CoflowOptions { flows, deadline_ms, stop_if_refused, ..v1::CoflowOptions::default() };
    let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
    let coflow = pair.coordinator.handle_register(pair.now, request).unwrap();
    pair.settle();
    coflow
}

fn admission(pair: &mut Pair, coflow: CoflowId, wait_ms: u64) -> Option<(Admission, String)> {
    pair.coordinator.handle_await_admission(pair.now, 7, &v1::AdmissionRequest { coflow: coflow.0, wait_ms });
    decided(pair)
}

fn decided(pair: &mut Pair) -> Option<(Admission, String)> {
    let decision = pair.coordinator.poll_decision()?;
    assert_eq!(decision.token, 7);
    Some((decision.reply.admission(), decision.reply.reason))
}

fn status(pair: &mut Pair, coflow: CoflowId) -> v1::CoflowStatus {
    let status = pair.coordinator.status(pair.now);
    status.coflows.into_iter().find(|row| row.coflow == coflow.0).unwrap()
}

#[test]
fn a_coflow_that_cannot_meet_its_deadline_moves_at_tcps_share_and_its_driver_hears_why() {
    let mut pair = deadlines(DeadlineMargin::NONE);
    let (first, second) = (register(&mut pair, 1, 1000, false), register(&mut pair, 1, 1000, false));
    let one = pair.open(first, "a", 800_000, 0, 1);
    assert_eq!(admission(&mut pair, first, 60_000), Some((Admission::Admitted, String::new())));
    assert_eq!(admission(&mut pair, second, 60_000), None, "nothing of it is known yet");
    let two = pair.open(second, "b", 400_000, 0, 1);
    let (verdict, reason) = decided(&mut pair).unwrap();
    assert_eq!(verdict, Admission::Refused);
    assert!(reason.starts_with("host 0 up: "), "{reason}");
    // It moves without a plan beside the one that was let in.
    assert_eq!(pair.rate(0, two), TCP);
    assert!(pair.rate(0, one) >= 800_000.0, "{}", pair.rate(0, one));
    let row = status(&mut pair, second);
    assert_eq!((row.admission(), row.refusal.as_str()), (Admission::Refused, reason.as_str()));
    assert!(row.waits_for.contains("left to TCP"), "{}", row.waits_for);
    assert_eq!(status(&mut pair, first).admission(), Admission::Admitted);
    // It is refused for good, with all that joins it.
    let three = pair.open(second, "c", 1000, 2, 3);
    assert_eq!(pair.rate(2, three), TCP);
}

#[test]
fn a_refused_coflow_stops_if_its_driver_wants_so_and_no_receiver_waits() {
    let mut pair = deadlines(DeadlineMargin::NONE);
    let coflow = register(&mut pair, 1, 1000, true);
    let locate = |block: &str| v1::LocateRequest {
        coflow: coflow.0,
        block: block.to_owned(),
        wait_ms: 60_000,
        host: 2,
    };
    pair.coordinator.handle_locate(pair.now, 1, locate("never"));
    assert_eq!(pair.coordinator.poll_answer(), None);
    let flow = pair.open(coflow, "a", 1_200_000, 0, 1);
    assert_eq!(pair.agents[0].poll_abort(), Some(flow));
    let request = request(coflow, 0, 1, "a");
    assert_eq!(pair.agents[0].handle_request(pair.now, &request), Err(Status::CoflowRefused));
    let waited = pair.coordinator.poll_answer().unwrap();
    assert!(waited.reply.refused.contains("needed"), "{waited:?}");
    pair.coordinator.handle_locate(pair.now, 2, locate("a"));
    let asked = pair.coordinator.poll_answer().unwrap();
    assert_eq!((asked.reply.holders.len(), asked.reply.refused), (0, waited.reply.refused));
    assert!(status(&mut pair, coflow).waits_for.starts_with("its driver"));
    // To try again is to register anew: with time enough it is let in.
    let again = register(&mut pair, 1, 2000, true);
    pair.open(again, "a", 1_200_000, 0, 1);
    assert_eq!(admission(&mut pair, again, 0).unwrap().0, Admission::Admitted);
}

#[test]
fn a_refusal_outlives_the_coordinator() {
    let mut pair = deadlines(DeadlineMargin::NONE);
    let coflow = register(&mut pair, 1, 1000, false);
    let flow = pair.open(coflow, "a", 1_200_000, 0, 1);
    let before = admission(&mut pair, coflow, 0);
    pair.restart_coordinator(1_000);
    pair.coordinator = Coordinator::new(config(4, 1_000), &weir_policy::find("varys-deadline").unwrap());
    pair.connect_all();
    assert_eq!(admission(&mut pair, coflow, 0), before);
    assert_eq!(pair.rate(0, flow), TCP);
}

#[test]
fn a_coflow_is_judged_with_all_its_announced_flows() {
    let mut pair = deadlines(DeadlineMargin::NONE);
    let coflow = register(&mut pair, 2, 1000, false);
    pair.open(coflow, "a", 100_000, 0, 1);
    assert_eq!(admission(&mut pair, coflow, 60_000), None);
    pair.wait(30);
    assert_eq!(decided(&mut pair), None, "a flow is missing");
    pair.open(coflow, "b", 1_100_000, 2, 1);
    assert_eq!(decided(&mut pair).unwrap().0, Admission::Refused);
    // One whose flows do not come is judged by those that did.
    let lonely = register(&mut pair, 2, 1000, false);
    pair.open(lonely, "a", 100_000, 0, 1);
    assert_eq!(admission(&mut pair, lonely, 60_000), None);
    pair.wait(50);
    assert_eq!(decided(&mut pair).unwrap().0, Admission::Admitted);
}

#[test]
fn a_margin_makes_deadlines_shorter_for_the_policy_and_for_nobody_else() {
    let margin = DeadlineMargin { share: 0.05, time: Span::from_millis(20) };
    let mut pair = deadlines(margin);
    // Of 1 s, 0.93 s are left: enough for 0.92 MB and not for 0.94 MB.
    let (tight, too_tight) = (register(&mut pair, 1, 1000, false), register(&mut pair, 1, 1000, false));
    let flow = pair.open(tight, "a", 920_000, 0, 1);
    pair.open(too_tight, "a", 940_000, 2, 3);
    assert_eq!(admission(&mut pair, tight, 0).unwrap().0, Admission::Admitted);
    assert_eq!(admission(&mut pair, too_tight, 0).unwrap().0, Admission::Refused);
    pair.wait(990);
    pair.finish(0, flow, 920_000);
    let record = pair.coordinator.status(pair.now).completed[0].clone();
    assert_eq!((record.deadline_ms, record.admission(), record.met), (1000, Admission::Admitted, true));
    assert_eq!(margin.shorten(Span::from_millis(10)), Span::from_nanos(1));
}

#[test]
fn waiting_for_a_verdict_ends_at_its_limit_or_with_the_coflow() {
    let mut pair = deadlines(DeadlineMargin::NONE);
    let coflow = register(&mut pair, 1, 1000, false);
    assert_eq!(admission(&mut pair, coflow, 500), None);
    pair.wait(500);
    assert_eq!(decided(&mut pair), Some((Admission::Undecided, String::new())));
    assert_eq!(admission(&mut pair, coflow, 60_000), None);
    pair.unregister(coflow);
    assert!(pair.coordinator.poll_decision().unwrap().reply.ended);
    let without = pair.register(1);
    assert_eq!(admission(&mut pair, without, 60_000).unwrap().0, Admission::NoDeadline);
}

#[test]
fn a_coflow_that_was_let_in_stays_so_though_its_flows_break_off_and_the_policy_has_no_more_room() {
    let mut pair = deadlines(DeadlineMargin::NONE);
    let first = register(&mut pair, 0, 10_000, true);
    // 5 of the 10 MB that the link carries until then.
    let broken = pair.open(first, "a", 5_000_000, 0, 1);
    assert_eq!(admission(&mut pair, first, 60_000), Some((Admission::Admitted, String::new())));
    pair.agents[0].handle_closed(broken, false);
    pair.settle();
    // Another one is promised 9 of them meanwhile. Its receiver asks again, and there is no room.
    let second = register(&mut pair, 1, 10_000, false);
    pair.open(second, "b", 9_000_000, 0, 1);
    assert_eq!(admission(&mut pair, second, 60_000).unwrap().0, Admission::Admitted);
    let again = pair.ask(first, "a", 0, 1);
    pair.settle();
    assert_eq!(pair.rate(0, again), TCP, "its bytes move, and nothing is stopped");
    assert_eq!(status(&mut pair, first).admission(), Admission::Admitted);
    assert!(status(&mut pair, first).waits_for.contains("cannot be kept"));
    // A coordinator that begins anew hears so from the agents, and judges nothing anew.
    super::attacks::restart(&mut pair, 1 << 40);
    assert_eq!(status(&mut pair, first).admission(), Admission::Admitted);
    pair.finish(0, again, 5_000_000);
    pair.coordinator.handle_seal(pair.now, first).unwrap();
    let record = pair.unregister(first).unwrap();
    assert_eq!((record.admission(), record.met), (Admission::Admitted, true));
}
