//! Messages no longer than a peer reads: lists are told in portions.

use weir_proto::{Message, limits};

/// What fits into one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    entries: usize,
    bytes: usize,
    is_empty: bool,
}

impl Portion {
    /// Room for so many entries.
    pub(crate) fn of(entries: usize) -> Portion {
        Portion::within(entries, limits::MAX_PORTION_BYTES)
    }

    /// Room for so many entries of so many bytes together.
    pub(crate) fn within(entries: usize, bytes: usize) -> Portion {
        Portion { entries, bytes, is_empty: true }
    }

    /// Takes room for one more; false if there is none. The first always has room: it is below the bound of a message by
    /// the bounds of what is in it.
    pub(crate) fn take(&mut self, entry: &impl Message) -> bool {
        let bytes = entry.encoded_len();
        if self.entries == 0 || (bytes > self.bytes && !self.is_empty) {
            return false;
        }
        self.is_empty = false;
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::v1::BlockGone;

    fn of_length(length: usize) -> BlockGone {
        // Two bytes of tag and length, or up to four for the length alone.
        BlockGone { coflow: 0, block: "b".repeat(length) }
    }

    #[test]
    fn a_portion_is_full_by_entries_or_by_bytes_and_the_first_entry_always_fits() {
        let mut few = Portion::of(2);
        assert!(few.take(&of_length(1)) && few.take(&of_length(1)) && !few.take(&of_length(1)));
        let mut long = Portion::of(100);
        // 400 kB each: two of them are within 1 MiB.
        assert!(long.take(&of_length(400_000)) && long.take(&of_length(400_000)));
        assert!(!long.take(&of_length(400_000)) && long.take(&of_length(10)));
        assert!(Portion::of(1).take(&of_length(2_000_000)));
    }
}
