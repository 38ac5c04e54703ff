//! Coflows of a job, under policies that plan at the coordinator.

use super::*;

impl Pair {
    fn stage(&mut self, parents: &[CoflowId], tail_transfer_ms: u64) -> CoflowId {
        self.stage_of(0, parents, tail_transfer_ms)
    }

    fn stage_of(&mut self, job: u64, parents: &[CoflowId], tail_transfer_ms: u64) -> CoflowId {
        let options = v1::CoflowOptions {
            flows: 1,
            parents: parents.iter().map(|parent| parent.0).collect(),
            job,
            tail_us: tail_transfer_ms * 1000,
            tail_transfer_us: tail_transfer_ms * 1000,
            ..v1::CoflowOptions::default()
        };
        let request = v1::RegisterRequest { options: Some(options), request_key: 0 };
        self.coordinator.handle_register(self.now, request).unwrap()
    }

    fn restart(&mut self) {
        self.agents.iter_mut().for_each(Agent::handle_session_lost);
        self.coordinator = coordinator(2, 100);
        self.connect_all();
    }
}

#[test]
fn a_small_child_goes_behind_its_live_parent_and_others_go_before_both() {
    let mut pair = Pair::new(2);
    let parent = pair.stage(&[], 0);
    let (child, other) = (pair.stage(&[parent], 0), pair.stage(&[], 0));
    let first = pair.open(parent, "parent", 5_000_000, 0, 1);
    let second = pair.open(child, "child", 1_000_000, 0, 1);
    assert_rate(pair.rate(0, first), CAPACITY);
    assert_rate(pair.rate(0, second), 0.0);
    let third = pair.open(other, "other", 3_000_000, 0, 1);
    assert_rate(pair.rate(0, third), CAPACITY);
    pair.finish(0, third, 3_000_000);
    assert_rate(pair.rate(0, first), CAPACITY);
    pair.finish(0, first, 5_000_000);
    assert_rate(pair.rate(0, second), CAPACITY);
}

#[test]
fn a_grandchild_goes_behind_though_its_parent_has_nothing_to_move() {
    let mut pair = Pair::new(2);
    let grandparent = pair.stage(&[], 0);
    let parent = pair.stage(&[grandparent], 0);
    let child = pair.stage(&[parent], 0);
    let first = pair.open(grandparent, "first", 5_000_000, 0, 1);
    let last = pair.open(child, "last", 1_000_000, 0, 1);
    assert_rate(pair.rate(0, first), CAPACITY);
    assert_rate(pair.rate(0, last), 0.0);
    // Parents are in the notes that agents keep.
    pair.restart();
    assert_rate(pair.rate(0, first), CAPACITY);
    assert_rate(pair.rate(0, last), 0.0);
}

#[test]
fn the_job_with_less_to_transfer_goes_first_where_the_critical_path_counts() {
    // 1 s and 4 s that follow, against 3 s; by the bottleneck alone the first would go first.
    for (policy, first_goes) in [("varys", true), ("varys-critical-path", false)] {
        let mut pair = Pair::under(config(2, 1), policy);
        let (long, short) = (pair.stage(&[], 4000), pair.stage(&[], 0));
        let first = pair.open(long, "long", 1_000_000, 0, 1);
        let second = pair.open(short, "short", 3_000_000, 0, 1);
        assert_rate(pair.rate(0, first), if first_goes { CAPACITY } else { 0.0 });
        assert_rate(pair.rate(0, second), if first_goes { 0.0 } else { CAPACITY });
    }
}

#[test]
fn in_a_job_the_longest_path_goes_first_though_its_root_was_unregistered() {
    // Both descend from a coflow that is gone when they begin; the second has 5 s behind it, and 6 s are more than 2.
    let mut pair = Pair::under(config(2, 1), "varys-critical-path");
    let root = pair.stage(&[], 0);
    let (small, long) = (pair.stage(&[root], 0), pair.stage(&[root], 5000));
    pair.unregister(root);
    let first = pair.open(small, "small", 2_000_000, 0, 1);
    let second = pair.open(long, "long", 1_000_000, 0, 1);
    assert_rate(pair.rate(0, first), 0.0);
    assert_rate(pair.rate(0, second), CAPACITY);
}

#[test]
fn coflows_without_a_common_ancestor_are_of_one_job_if_their_driver_says_so() {
    // As two jobs 2 s go before 1 + 5; as one, the path of 6 s goes first.
    for (same, first_goes) in [(false, true), (true, false)] {
        let mut pair = Pair::under(config(2, 1), "varys-critical-path");
        let small = pair.stage(&[], 0);
        let long = pair.stage_of(if same { small.0 } else { 0 }, &[], 5000);
        let first = pair.open(small, "small", 2_000_000, 0, 1);
        let second = pair.open(long, "long", 1_000_000, 0, 1);
        assert_rate(pair.rate(0, first), if first_goes { CAPACITY } else { 0.0 });
        assert_rate(pair.rate(0, second), if first_goes { 0.0 } else { CAPACITY });
    }
}
