//! Where coflows and flows stand in a table.

/// In place of an index: there is none.
pub(super) const NONE: u32 = u32::MAX;

/// Where a live coflow stands in its table. Reused after the coflow is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// Where a flow stands in its table; valid until its coflow is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowRef {
    /// Coflow of the flow, by its slot.
    pub coflow: Slot,
    /// Its index among [`crate::Coflow::flows`].
    pub flow: u32,
}
