//! The event queue: a wheel of short slots for what comes soon, a heap for the rest.
//!
//! Problem: nearly all events of a packet network come within some microseconds, and there are some ten thousand at a
//! time. A heap takes log n steps, each at another place in memory.
//!
//! Approach: an event goes to the slot of its time without being compared. A slot is sorted when its time comes, when it
//! has few events. What is beyond the last slot (timers, arrivals of flows) waits in a heap, and moves to its slot as
//! soon as the wheel reaches that far.
//!
//! Order: sorting is stable and slots are filled in the order of insertion, so equal times keep the order in which they
//! were put in. Events from the heap come to a slot in the moment in which it comes into reach, before any that is put
//! there directly, and those were put in earlier, so that holds for them too.

use super::Event;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// 2^15 ps = 33 ns a slot: some ten events where 144 hosts are busy.
const SLOT_BITS: u32 = 15;
/// 2048 slots: 67 us, more than a packet takes from port to port. More of them, or shorter ones, leave the caches.
const SLOTS: usize = 2048;
const WORDS: usize = SLOTS / 64;

/// An event of the heap, ordered by time, then by number of insertion.
struct Far {
    number: u64,
    event: Event,
}

impl PartialEq for Far {
    fn eq(&self, other: &Far) -> bool {
        (self.event.at, self.number) == (other.event.at, other.number)
    }
}
impl Eq for Far {}
impl PartialOrd for Far {
    fn partial_cmp(&self, other: &Far) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Far {
    fn cmp(&self, other: &Far) -> std::cmp::Ordering {
        (self.event.at, self.number).cmp(&(other.event.at, other.number))
    }
}

/// Events in order of time. None may be put in before the time of the last that was taken out.
pub(crate) struct Wheel {
    slots: Vec<Vec<Event>>,
    /// Which slots have events, by place in `slots`.
    occupied: [u64; WORDS],
    /// The slot that is open, counted from the beginning of time. Its events are in order.
    open: u64,
    /// The next event of the open slot.
    cursor: usize,
    far: BinaryHeap<Reverse<Far>>,
    inserted_far: u64,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            occupied: [0; WORDS],
            open: 0,
            cursor: 0,
            far: BinaryHeap::new(),
            inserted_far: 0,
        }
    }

    /// Puts an event in.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        let slot = event.at.0 >> SLOT_BITS;
        debug_assert!(slot >= self.open, "an event in the past");
        if slot - self.open >= SLOTS as u64 {
            self.far.push(Reverse(Far { number: self.inserted_far, event }));
            self.inserted_far += 1;
            return;
        }
        let place = slot as usize % SLOTS;
        let events = &mut self.slots[place];
        if slot == self.open {
            let after = self.cursor + events[self.cursor..].partition_point(|other| other.at <= event.at);
            events.insert(after, event);
        } else {
            events.push(event);
        }
        self.occupied[place / 64] |= 1 << (place % 64);
    }

    /// Takes the next event out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        loop {
            let place = self.open as usize % SLOTS;
            if let Some(&event) = self.slots[place].get(self.cursor) {
                self.cursor += 1;
                return Some(event);
            }
            self.slots[place].clear();
            self.cursor = 0;
            self.occupied[place / 64] &= !(1 << (place % 64));
            self.open = self.next_occupied()?;
            self.draw_near();
            let slot = &mut self.slots[self.open as usize % SLOTS];
            if slot.len() > 1 {
                slot.sort_by_key(|event| event.at);
            }
        }
    }

    /// The next slot with events, in the wheel or, if that is empty, in the heap.
    fn next_occupied(&self) -> Option<u64> {
        let start = self.open as usize % SLOTS;
        // Words from the one of the open slot on, around, and that one again for the places before it.
        for step in 0..=WORDS {
            let word = (start / 64 + step) % WORDS;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            }
            if bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                return Some(self.open + ((place + SLOTS - start) % SLOTS) as u64);
            }
        }
        self.far.peek().map(|Reverse(far)| far.event.at.0 >> SLOT_BITS)
    }

    /// Moves what has come into reach from the heap to its slot.
    #[inline]
    fn draw_near(&mut self) {
        let end = self.open + SLOTS as u64;
        while let Some(Reverse(first)) = self.far.peek() {
            if first.event.at.0 >> SLOT_BITS >= end {
                return;
            }
            let Some(Reverse(far)) = self.far.pop() else { return };
            let place = (far.event.at.0 >> SLOT_BITS) as usize % SLOTS;
            self.slots[place].push(far.event);
            self.occupied[place / 64] |= 1 << (place % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::What;
    use super::*;
    use crate::time::Picos;
    use proptest::prelude::*;

    /// The obvious queue: the least (time, number of insertion) of all.
    #[derive(Default)]
    struct Plain(Vec<(Picos, usize, Event)>, usize);

    impl Plain {
        fn push(&mut self, event: Event) {
            self.0.push((event.at, self.1, event));
            self.1 += 1;
        }
        fn pop(&mut self) -> Option<Event> {
            let least = (0..self.0.len()).min_by_key(|&i| (self.0[i].0, self.0[i].1))?;
            Some(self.0.remove(least).2)
        }
    }

    /// Spans from equal times to far beyond the wheel.
    fn span() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 0..1_u64 << 10, 0..1_u64 << 17, 0..1_u64 << 27, 0..1_u64 << 34]
    }

    proptest! {
        #[test]
        fn events_come_out_as_from_the_obvious_queue(
            steps in proptest::collection::vec((proptest::collection::vec(span(), 0..4), 1..4_usize), 1..120)
        ) {
            let (mut wheel, mut plain) = (Wheel::new(), Plain::default());
            let (mut now, mut whom) = (0, 0);
            for (spans, pops) in steps {
                for span in spans {
                    let event = Event { at: Picos(now + span), what: What::Timer, whom };
                    whom += 1;
                    wheel.push(event);
                    plain.push(event);
                }
                for _ in 0..pops {
                    let event = plain.pop();
                    prop_assert_eq!(wheel.pop(), event);
                    now = event.map_or(now, |event| event.at.0);
                }
            }
            while let Some(event) = plain.pop() {
                prop_assert_eq!(wheel.pop(), Some(event));
            }
            prop_assert_eq!(wheel.pop(), None);
        }
    }
}
