//! Which holder a receiver is sent to. Links carry 1 MB/s.

use super::*;

impl Pair {
    /// The hosts that a receiver is told to hold a block, in order.
    fn locate(&mut self, coflow: CoflowId, name: &str, receiver: u32) -> Vec<u32> {
        let locate =
            v1::LocateRequest { coflow: coflow.0, block: name.to_owned(), wait_ms: 0, host: receiver };
        self.coordinator.handle_locate(self.now, u64::from(receiver), locate);
        let answer = self.coordinator.poll_answer().unwrap();
        answer.reply.holders.iter().map(|holder| holder.host).collect()
    }

    fn put(&mut self, coflow: CoflowId, name: &str, size: u64, hosts: &[usize]) {
        for &host in hosts {
            self.agents[host].handle_put(block(coflow, name, size)).unwrap();
        }
        self.settle();
    }
}

#[test]
fn the_holder_that_owes_fewer_bytes_comes_first() {
    let mut pair = Pair::new(5);
    let (busy, coflow) = (pair.register(0), pair.register(0));
    // One flow of 2 MB against two of 0.5 MB: bytes count, and not flows.
    pair.open(busy, "large", 2_000_000, 0, 4);
    pair.open(busy, "small", 500_000, 1, 4);
    pair.open(busy, "small too", 500_000, 1, 3);
    pair.put(coflow, "b", 1000, &[0, 1]);
    assert_eq!(pair.locate(coflow, "b", 2), [1, 0]);
}

#[test]
fn a_holder_that_has_sent_meanwhile_is_no_longer_the_busier_one() {
    let mut pair = Pair::new(5);
    let (busy, coflow) = (pair.register(0), pair.register(0));
    let first = pair.open(busy, "large", 2_000_000, 0, 4);
    pair.open(busy, "small", 500_000, 1, 3);
    pair.put(coflow, "b", 1000, &[0, 1]);
    assert_eq!(pair.locate(coflow, "b", 2), [1, 0]);
    let now = pair.now;
    pair.agents[0].handle_sent(now, first, 1_900_000);
    pair.wait(20);
    assert_eq!(pair.locate(coflow, "b", 2), [0, 1]);
}

#[test]
fn the_receivers_own_host_comes_first_however_busy_it_is() {
    let mut pair = Pair::new(3);
    let (busy, coflow) = (pair.register(0), pair.register(0));
    pair.open(busy, "large", 2_000_000, 1, 2);
    pair.put(coflow, "b", 1000, &[0, 1]);
    assert_eq!(pair.locate(coflow, "b", 1), [1, 0]);
    assert_eq!(pair.locate(coflow, "b", 2), [0, 1]);
}

#[test]
fn receivers_that_ask_at_once_are_spread_over_the_holders() {
    let mut pair = Pair::new(6);
    let coflow = pair.register(4);
    pair.put(coflow, "b", 1_000_000, &[0, 1]);
    let first: Vec<u32> = (2..6).map(|receiver| pair.locate(coflow, "b", receiver)[0]).collect();
    assert_eq!(first, [0, 1, 0, 1]);
    // One that asks again, for its first try failed, is not counted against its own holder.
    assert_eq!(pair.locate(coflow, "b", 2)[0], 0);
    // What was never asked for is not owed for ever.
    pair.wait(1000);
    assert_eq!(pair.locate(coflow, "b", 3)[0], 0);
}

#[test]
fn what_was_promised_and_asked_for_counts_once() {
    let mut pair = Pair::new(4);
    let coflow = pair.register(0);
    pair.put(coflow, "b", 1_000_000, &[0, 1]);
    pair.put(coflow, "c", 1_500_000, &[1]);
    assert_eq!(pair.locate(coflow, "b", 2)[0], 0);
    for (from, name, to) in [(0, "b", 2), (1, "c", 3)] {
        let request = request(coflow, 0, to, name);
        pair.agents[from].handle_request(pair.now, &request).unwrap();
    }
    pair.settle();
    // 1.0 MB on host 0 (not 2.0) against 1.5 MB on host 1.
    assert_eq!(pair.locate(coflow, "b", 3)[0], 0);
}
