//! Identifiers. Each is a distinct type, so that a host can never be passed for a link.

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A machine (or rack, in rack-level traces) attached to the fabric, counted from 0.
    HostId(u32)
);
id!(
    /// A directed link of a [`crate::Fabric`], an index into its links.
    LinkId(u32)
);
id!(
    /// A coflow. Ties between coflows break by (arrival, id), so ids follow registration order.
    CoflowId(u64)
);
id!(
    /// A flow, unique across all coflows of one run or one coordinator.
    FlowId(u64)
);
id!(
    /// A job: a graph of stages, each of which computes and then waits for one coflow.
    JobId(u64)
);

macro_rules! index {
    ($($name:ident)*) => { $(impl $name {
        /// The id as an index into a table.
        #[inline]
        pub fn index(self) -> usize {
            self.0 as usize
        }
    })* };
}
index!(HostId LinkId);
