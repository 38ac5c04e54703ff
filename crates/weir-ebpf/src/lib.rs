//! Programs that Weir runs in the kernel. There is one: it sets the DSCP of the packets of TCP sockets, so that the priorities
//! of switches hold for them.
//!
//! A [`Tagger`] attaches it to what leaves one interface. The class of a packet follows from what its process said about
//! the flow ([`Hint`]), or from the bytes that were sent so far, by the law of `weir-endhost` ([`weir_endhost::tagging`]).
//! It goes when the [`Tagger`] is dropped, and when the process ends, however it ends.
//!
//! It needs Linux 6.6, `CAP_BPF` and `CAP_NET_ADMIN` in the machine's own user namespace. It does no congestion control,
//! and configures no switch. Sockets of other network namespaces, forwarded packets, and all that is not TCP over
//! Ethernet are left as they are.

mod attach;
mod config;
mod error;
mod tagger;

pub use config::{Config, DEFAULT_DSCP, Hint, Unhinted};
pub use error::{ConfigError, TagError};
pub use tagger::{ClassCounters, Counters, Tagger};
