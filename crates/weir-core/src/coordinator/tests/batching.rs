//! Events of a moment share a plan, and time costs what is due.

use super::*;

const BATCH: Span = Span::from_millis(1);

#[test]
fn the_first_event_is_planned_for_at_once_and_those_within_the_batch_together_after_it() {
    let mut pair = Pair::with(tuned(config(2, 1), |tuning| tuning.batch = BATCH));
    pair.wait(100);
    let (now, coordinator) = (pair.now, &mut pair.coordinator);
    assert_eq!(coordinator.plan_due(), None);
    coordinator.want_plan(now);
    assert_eq!(coordinator.next_timeout(), Some(now));
    assert!(coordinator.poll_plan(now));
    for micros in [100, 200, 900] {
        let later = now + Span::from_nanos(micros * 1_000);
        coordinator.want_plan(later);
        assert!(!coordinator.poll_plan(later), "{micros} us after a plan");
        assert_eq!(coordinator.next_timeout(), Some(now + BATCH));
    }
    assert!(coordinator.poll_plan(now + BATCH));
    assert!(!coordinator.poll_plan(now + BATCH + BATCH), "nothing changed");
}

#[test]
fn a_plan_that_is_wanted_later_is_not_made_before() {
    let mut pair = Pair::with(tuned(config(2, 1), |tuning| tuning.batch = BATCH));
    pair.wait(100);
    let (now, coordinator) = (pair.now, &mut pair.coordinator);
    coordinator.want_plan(now + Span::from_millis(20));
    assert!(!coordinator.poll_plan(now + Span::from_millis(19)));
    assert!(coordinator.poll_plan(now + Span::from_millis(20)));
}

#[test]
fn a_call_is_answered_by_an_output_once_all_agents_have_settled() {
    let mut pair = Pair::new(2);
    let coflow = pair.register(0);
    pair.coordinator.handle_unregister(pair.now, 7, coflow);
    pair.settle();
    let outputs: Vec<Output> = std::iter::from_fn(|| pair.coordinator.poll_output()).collect();
    let [Output::Unregistered(ended)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((ended.token, ended.record.as_ref().map(|record| record.coflow)), (7, Some(coflow.0)));
}
