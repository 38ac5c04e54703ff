//! Puts the messages of a flow in order again at the relay that delivers them: parallel connections, and several
//! ways, let them overtake each other.
//!
//! A message's sequence number is the number of bytes before it, so that what is in order needs no count of
//! messages and no agreement on where they are cut. What is held is bounded by the credits that were granted.

use super::facts::Message;
use std::collections::BTreeMap;

/// Bytes that came twice, or that are no part of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

/// What came of a flow, until it goes on in order.
#[derive(Debug)]
pub struct Reassembly<P> {
    /// Bytes of the whole flow.
    bytes: u64,
    /// All before it went on.
    next: u64,
    held: BTreeMap<u64, Message<P>>,
}

impl<P> Reassembly<P> {
    /// Of a flow of `bytes`, from its start.
    pub fn new(bytes: u64) -> Reassembly<P> {
        Reassembly { bytes, next: 0, held: BTreeMap::new() }
    }

    /// Takes a message in, and keeps it until all before it went on.
    ///
    /// # Errors
    /// A byte of it is here or went on already, or it ends beyond the flow.
    pub fn insert(&mut self, message: Message<P>) -> Result<(), Misplaced> {
        let end = message.offset.checked_add(message.length.into()).ok_or(Misplaced)?;
        // Only its neighbours can overlap it, as those held do not overlap each other.
        let after = self.held.range(message.offset..).next().map_or(self.bytes, |(&offset, _)| offset);
        let before = self.held.range(..message.offset).next_back();
        let before =
            before.map_or(self.next, |(&offset, held)| offset.saturating_add(u64::from(held.length)));
        if message.offset < before || end > after {
            return Err(Misplaced);
        }
        self.held.insert(message.offset, message);
        Ok(())
    }

    /// Whether the next message in order is here.
    pub fn is_ready(&self) -> bool {
        self.held.first_key_value().is_some_and(|(&offset, _)| offset == self.next)
    }

    /// The next message in order.
    pub fn pop(&mut self) -> Option<Message<P>> {
        let first = self.held.first_entry().filter(|entry| *entry.key() == self.next)?;
        let message = first.remove();
        self.next = self.next.saturating_add(u64::from(message.length));
        Some(message)
    }

    /// Whether all of the flow went on.
    pub fn is_complete(&self) -> bool {
        self.next == self.bytes
    }

    /// Whether some of the flow has not come.
    pub fn has_hole(&self) -> bool {
        let held: u64 = self.held.values().map(|message| u64::from(message.length)).sum();
        self.next.saturating_add(held) < self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_proto::relay::FlowKey;

    fn message(offset: u64, length: u32) -> Message<u64> {
        let key = FlowKey { coflow: 1, reducer: 2, mapper: 3 };
        Message { key, offset, length, hop_limit: 1, payload: offset }
    }

    proptest! {
        #[test]
        fn messages_in_any_order_come_out_in_order(
            lengths in proptest::collection::vec(1u32..50, 1..30), seed: u64,
        ) {
            let mut offset = 0;
            let mut messages: Vec<_> = lengths.iter().map(|&length| {
                let made = message(offset, length);
                offset += u64::from(length);
                made
            }).collect();
            // A fixed shuffle per seed.
            messages.sort_by_key(|message| (message.offset ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut reassembly = Reassembly::new(offset);
            let (mut next, mut inserted) = (0, 0);
            for message in messages {
                inserted += u64::from(message.length);
                prop_assert_eq!(reassembly.insert(message), Ok(()));
                while let Some(popped) = reassembly.pop() {
                    prop_assert_eq!((popped.offset, popped.payload), (next, next));
                    next += u64::from(popped.length);
                }
                prop_assert_eq!(reassembly.has_hole(), inserted < offset);
            }
            prop_assert!(reassembly.is_complete());
        }

        #[test]
        fn no_byte_is_taken_twice(
            parts in proptest::collection::vec((0u64..60, 1u32..20), 1..40), pop: bool,
        ) {
            let (mut taken, mut reassembly) = ([false; 60], Reassembly::new(60));
            for (offset, length) in parts {
                let range = offset as usize..(offset as usize + length as usize);
                let fits = taken.get(range.clone()).is_some_and(|bytes| bytes.iter().all(|&byte| !byte));
                prop_assert_eq!(reassembly.insert(message(offset, length)).is_ok(), fits);
                if fits {
                    taken[range].fill(true);
                }
                if pop {
                    reassembly.pop();
                }
            }
        }
    }

    #[test]
    fn an_offset_near_the_end_of_counting_is_misplaced() {
        let mut reassembly = Reassembly::new(u64::MAX);
        assert_eq!(reassembly.insert(message(u64::MAX - 1, 5)), Err(Misplaced));
    }
}
