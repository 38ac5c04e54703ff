//! What is counted for those who watch, and what is not.

use super::*;

/// Coflows that were counted, with their flows and bytes.
fn counted(pair: &Pair) -> (u64, u64, u64) {
    let all = pair.coordinator.observe(pair.now).completed;
    all.values().fold((0, 0, 0), |(coflows, flows, bytes), of| {
        (coflows + of.counts.iter().sum::<u64>(), flows + of.flows, bytes + of.bytes)
    })
}

#[test]
fn a_coflow_counts_once_when_it_ends_whole_and_under_the_process_that_registered_it() {
    let mut pair = Pair::new(3);
    // Never sealed, and no number of flows announced: the coordinator does not know that it is complete before it ends.
    let coflow = pair.register(0);
    for (name, size) in [("a", 1_000), ("b", 6_000_000)] {
        let flow = pair.open(coflow, name, size, 0, 1);
        pair.finish(0, flow, size);
    }
    assert_eq!(counted(&pair), (0, 0, 0));
    pair.unregister(coflow);
    assert_eq!(counted(&pair), (1, 2, 6_001_000));
    let observed = pair.coordinator.observe(pair.now);
    assert!(observed.completed.contains_key(&("varys", "long-narrow")), "{observed:?}");
    // Given up: one flow broke off, and another never began.
    for announced in [0, 2] {
        let coflow = pair.register(announced);
        let flow = pair.open(coflow, "done", 1_000, 0, 1);
        pair.finish(0, flow, 1_000);
        if announced == 0 {
            let broken = pair.open(coflow, "broken", 1_000, 0, 2);
            pair.agents[0].handle_closed(broken, false);
            pair.settle();
        }
        pair.unregister(coflow);
    }
    // Complete before a restart: what agents tell of it has no times.
    let coflow = pair.register(1);
    let flow = pair.open(coflow, "x", 1_000, 0, 1);
    pair.finish(0, flow, 1_000);
    assert_eq!(counted(&pair), (1, 2, 6_001_000));
    pair.restart_coordinator(1_000_000);
    pair.connect_all();
    pair.wait(100);
    pair.unregister(coflow);
    assert_eq!(counted(&pair), (0, 0, 0));
}

#[test]
fn deadlines_are_met_missed_or_refused_as_their_coflows_were_told() {
    let mut pair = Pair::under(config(2, 1), "varys-deadline");
    let mut end = |deadline_ms, bytes: u64, wait| {
        let options = v1::CoflowOptions { flows: 1, deadline_ms, ..v1::CoflowOptions::default() };
        let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
        let coflow = pair.coordinator.handle_register(pair.now, request).unwrap();
        let flow = pair.open(coflow, "x", bytes, 0, 1);
        pair.wait(wait);
        pair.finish(0, flow, bytes);
        pair.unregister(coflow);
        let deadlines = pair.coordinator.observe(pair.now).deadlines;
        (deadlines.met, deadlines.missed, deadlines.refused)
    };
    assert_eq!(end(2_000, 1_000_000, 1_000), (1, 0, 0));
    assert_eq!(end(2_000, 1_000_000, 3_000), (1, 1, 0));
    assert_eq!(end(1_000, 9_000_000, 900), (1, 1, 1));
    assert_eq!(end(0, 1_000, 10), (1, 1, 1));
}
