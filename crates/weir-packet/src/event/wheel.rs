//! The event queue: a wheel of short slots for what comes soon, a heap for the rest.
//!
//! Problem: nearly all events of a packet network come within some microseconds, and there are some ten thousand at a
//! time. A heap takes log n steps, each at another place in memory; and memory that is larger than a cache costs more
//! than the steps.
//!
//! Approach: an event goes to the slot of its time without being compared. When the time of a slot comes, it is opened:
//! its events are put in order in one small list, by a counting sort over parts of the slot. What is beyond the last slot
//! (timers, arrivals of flows) waits in a heap, and moves to its slot as soon as the wheel reaches that far. The wheel
//! reaches as far as packets need, no farther, and an event is eight bytes in it, so that it leaves the cache to packets.
//!
//! Order: sorting is stable and slots are filled in the order of insertion, so equal times, of which late events come
//! last, keep the order in which they were put in. Events from the heap come to a slot in the moment in which it comes
//! into reach, before any that is put
//! there directly, and those were put in earlier, so that holds for them too.

use super::{Event, What};
use crate::time::Picos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A slot is 2^13 ps = 8 ns to 2^27 ps = 134 us long: so that some twenty events come in it.
const SLOT_BITS: (u32, u32) = (13, 27);
/// A slot has 64 parts, few enough to count in a few cache lines.
const PART_BITS: u32 = 6;
const PARTS: usize = 1 << PART_BITS;
/// Slots, at least and at most.
const SLOTS: (u64, u64) = (256, 8192);
/// A slot of fewer events is sorted by insertion alone, one of more by comparisons: its parts have many each.
const FEW: usize = 12;
const MANY: usize = 1024;
/// How many events are to come in a slot.
const IN_A_SLOT: u64 = 32;

/// An event in its slot, which says the rest of its time. From the highest bit: the time within the slot (28 bits), late or
/// not, what happens (3 bits), to whom (32 bits).
#[derive(Clone, Copy, Debug, Default)]
struct Near(u64);

const WITHIN_SHIFT: u32 = 36;
const LATE_SHIFT: u32 = 35;

impl Near {
    #[inline]
    fn of(event: &Event, slot_bits: u32) -> Near {
        let within = event.at.0 & ((1 << slot_bits) - 1);
        let late = u64::from(event.late);
        Near(within << WITHIN_SHIFT | late << LATE_SHIFT | (event.what as u64) << 32 | u64::from(event.whom))
    }
    #[inline]
    fn within(self) -> u64 {
        self.0 >> WITHIN_SHIFT
    }
    /// What it is ordered by.
    #[inline]
    fn order(self) -> u64 {
        self.0 >> LATE_SHIFT
    }
    #[inline]
    fn part(self, slot_bits: u32) -> usize {
        (self.within() >> (slot_bits - PART_BITS)) as usize % PARTS
    }
    #[inline]
    fn event(self, slot: u64, slot_bits: u32) -> Event {
        let at = Picos(slot << slot_bits | self.within());
        let late = self.0 >> LATE_SHIFT & 1 == 1;
        Event { at, late, what: What::numbered((self.0 >> 32) as u8 & 7), whom: self.0 as u32 }
    }
}

/// An event of the heap, ordered by time, late or not, number of insertion.
struct Far {
    number: u64,
    event: Event,
}

impl Far {
    fn order(&self) -> (Picos, bool, u64) {
        (self.event.at, self.event.late, self.number)
    }
}

impl PartialEq for Far {
    fn eq(&self, other: &Far) -> bool {
        self.order() == other.order()
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
        self.order().cmp(&other.order())
    }
}

/// Events in order of time. None may be put in before the time of the last that was taken out.
pub(crate) struct Wheel {
    /// A slot is 2^this picoseconds long.
    slot_bits: u32,
    slots: Vec<Vec<Near>>,
    /// Which slots have events, by place in `slots`.
    occupied: Vec<u64>,
    /// The slot that is open, counted from the beginning of time.
    open: u64,
    /// Its events in order; its place in `slots` is empty.
    opened: Vec<Near>,
    /// The next event of `opened`.
    cursor: usize,
    far: BinaryHeap<Reverse<Far>>,
    inserted_far: u64,
}

impl Wheel {
    /// A wheel for events that come mostly within `reach`, one every `spacing` or so.
    pub(crate) fn new(reach: Picos, spacing: Picos) -> Wheel {
        let slot = spacing.0.saturating_mul(IN_A_SLOT).max(1);
        let slot_bits = slot.ilog2().clamp(SLOT_BITS.0, SLOT_BITS.1);
        // The open slot is one of them, and begins before now.
        let slots =
            (reach.0 >> slot_bits).saturating_add(2).clamp(SLOTS.0, SLOTS.1).next_power_of_two() as usize;
        Wheel {
            slot_bits,
            slots: vec![Vec::new(); slots],
            occupied: vec![0; slots / 64],
            open: 0,
            opened: Vec::new(),
            cursor: 0,
            far: BinaryHeap::new(),
            inserted_far: 0,
        }
    }

    /// The place of a slot.
    #[inline]
    fn place(&self, slot: u64) -> usize {
        // A power of two.
        slot as usize & (self.slots.len() - 1)
    }

    /// Puts an event in.
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        let slot = event.at.0 >> self.slot_bits;
        debug_assert!(slot >= self.open, "an event in the past");
        if slot == self.open {
            let near = Near::of(&event, self.slot_bits);
            let later = &self.opened[self.cursor..];
            // After its equals, which were put in before it.
            let after = later.partition_point(|other| other.order() <= near.order());
            self.opened.insert(self.cursor + after, near);
        } else if slot - self.open < self.slots.len() as u64 {
            self.put(slot, &event);
        } else {
            self.far.push(Reverse(Far { number: self.inserted_far, event }));
            self.inserted_far += 1;
        }
    }

    #[inline]
    fn put(&mut self, slot: u64, event: &Event) {
        let place = self.place(slot);
        self.slots[place].push(Near::of(event, self.slot_bits));
        self.occupied[place / 64] |= 1 << (place % 64);
    }

    /// Takes the next event of the open slot out; none if that has no more: [`Wheel::open_next`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let near = *self.opened.get(self.cursor)?;
        self.cursor += 1;
        Some(near.event(self.open, self.slot_bits))
    }

    /// Opens the next slot that has events, after the last event of the open one. Whether there is any.
    pub(crate) fn open_next(&mut self) -> bool {
        self.opened.clear();
        self.cursor = 0;
        let Some(next) = self.next_occupied() else { return false };
        self.open = next;
        // Before the slot is sorted: events of the heap may belong to it.
        self.draw_near();
        let place = self.place(next);
        self.occupied[place / 64] &= !(1 << (place % 64));
        sort(&self.slots[place], &mut self.opened, self.slot_bits);
        self.slots[place].clear();
        true
    }

    /// The events of the open slot that are to come, in order.
    #[inline]
    pub(crate) fn opened(&self) -> impl Iterator<Item = Event> {
        self.opened[self.cursor..].iter().map(|near| near.event(self.open, self.slot_bits))
    }

    /// The next slot with events, in the wheel or, if that is empty, in the heap.
    fn next_occupied(&self) -> Option<u64> {
        let start = self.place(self.open);
        // A power of two, as the number of slots is (256 at least), so that a mask takes the search around.
        let words = self.occupied.len();
        // Words from the one of the open slot on, around, and that one again for the places before it.
        for step in 0..=words {
            let word = (start / 64 + step) & (words - 1);
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            }
            if bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                return Some(self.open + (place.wrapping_sub(start) & (self.slots.len() - 1)) as u64);
            }
        }
        self.far.peek().map(|Reverse(far)| far.event.at.0 >> self.slot_bits)
    }

    /// Moves what has come into reach from the heap to its slot.
    #[inline]
    fn draw_near(&mut self) {
        let end = self.open + self.slots.len() as u64;
        while let Some(Reverse(first)) = self.far.peek() {
            if first.event.at.0 >> self.slot_bits >= end {
                return;
            }
            let Some(Reverse(far)) = self.far.pop() else { return };
            self.put(far.event.at.0 >> self.slot_bits, &far.event);
        }
    }
}

/// Puts the events of a slot in order of time, equal times as they are.
fn sort(events: &[Near], sorted: &mut Vec<Near>, slot_bits: u32) {
    if events.len() <= FEW {
        sorted.extend_from_slice(events);
    } else if events.len() > MANY {
        sorted.extend_from_slice(events);
        sorted.sort_by_key(|event| event.order());
        return;
    } else {
        by_parts(events, sorted, slot_bits);
    }
    // Parts are in order; what is within one has few to pass.
    for i in 1..sorted.len() {
        let event = sorted[i];
        let mut to = i;
        while to > 0 && sorted[to - 1].order() > event.order() {
            sorted[to] = sorted[to - 1];
            to -= 1;
        }
        sorted[to] = event;
    }
}

/// Puts the events of a slot in order of the slot's parts.
fn by_parts(events: &[Near], sorted: &mut Vec<Near>, slot_bits: u32) {
    // 16 bits are enough for at most MANY events.
    let mut starts = [0_u16; PARTS];
    for event in events {
        starts[event.part(slot_bits)] += 1;
    }
    let mut start = 0;
    for part in &mut starts {
        start += std::mem::replace(part, start);
    }
    sorted.resize(events.len(), Near::default());
    for &event in events {
        let start = &mut starts[event.part(slot_bits)];
        sorted[usize::from(*start)] = event;
        *start += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let order = |&i: &usize| (self.0[i].0, self.0[i].2.late, self.0[i].1);
            let least = (0..self.0.len()).min_by_key(order)?;
            Some(self.0.remove(least).2)
        }
    }

    fn take(wheel: &mut Wheel) -> Option<Event> {
        loop {
            let event = wheel.pop();
            if event.is_some() || !wheel.open_next() {
                return event;
            }
        }
    }

    /// Spans from equal times to far beyond the wheel.
    fn span() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 0..1_u64 << 10, 0..1_u64 << 17, 0..1_u64 << 27, 0..1_u64 << 34]
    }

    proptest! {
        #[test]
        fn events_come_out_as_from_the_obvious_queue(
            reach in span(),
            spacing in span(),
            steps in proptest::collection::vec((proptest::collection::vec(span(), 0..4), 1..4_usize), 1..120)
        ) {
            let (mut wheel, mut plain) = (Wheel::new(Picos(reach), Picos(spacing)), Plain::default());
            let (mut now, mut whom) = (0, 0);
            for (spans, pops) in steps {
                for span in spans {
                    let event = Event { at: Picos(now + span), late: whom % 3 == 0, what: What::Timer, whom };
                    whom += 1;
                    wheel.push(event);
                    plain.push(event);
                }
                for _ in 0..pops {
                    let event = plain.pop();
                    prop_assert_eq!(take(&mut wheel), event);
                    now = event.map_or(now, |event| event.at.0);
                }
            }
            while let Some(event) = plain.pop() {
                prop_assert_eq!(take(&mut wheel), Some(event));
            }
            prop_assert_eq!(take(&mut wheel), None);
        }

        #[test]
        fn slots_are_sorted_by_time_and_keep_equal_times_as_they_came(
            slot_bits in SLOT_BITS.0..=SLOT_BITS.1,
            narrower in 0..20_u32,
            times in prop_oneof![
                proptest::collection::vec(any::<u64>(), 0..60),
                proptest::collection::vec(any::<u64>(), MANY - 1..MANY + 2),
            ],
        ) {
            let width = 1_u64 << slot_bits.saturating_sub(narrower);
            let event = |(whom, time)| Event { at: Picos(time % width), late: whom % 3 == 0, what: What::Timer, whom };
            let mut events: Vec<Event> = (0..).zip(times).map(event).collect();
            let near: Vec<Near> = events.iter().map(|event| Near::of(event, slot_bits)).collect();
            let mut sorted = Vec::new();
            sort(&near, &mut sorted, slot_bits);
            events.sort_by_key(|event| (event.at, event.late));
            prop_assert_eq!(sorted.iter().map(|near| near.event(0, slot_bits)).collect::<Vec<_>>(), events);
        }
    }

    #[test]
    fn every_kind_of_event_is_told_by_its_number() {
        let all = [
            What::Arrival,
            What::PortFree,
            What::Timer,
            What::Pace,
            What::DelayedAck,
            What::FlowArrival,
            What::Sample,
            What::Sent,
        ];
        assert!(all.iter().all(|&what| What::numbered(what as u8) == what));
    }
}
