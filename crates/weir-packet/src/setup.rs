//! What a transport needs of switches, receivers and senders, as plain data.

use crate::receiver::Acknowledging;
use crate::time::Picos;
use weir_model::{Bytes, Rate};

/// Where a packet that arrives is marked (ECN) instead of being told of congestion by loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// Packets are never marked.
    Off,
    /// If its own class has at least so many bytes waiting.
    PerQueue(Bytes),
    /// If all classes of the port together have.
    PerPort(Bytes),
}

/// How a port orders what waits, and what it drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Strict priorities, first come first served in each; what finds the buffer full is dropped.
    Classes {
        /// In the first class.
        first: Marking,
        /// In each class after the first.
        others: Marking,
        /// What of a port's buffer only the first class may fill; of ports that share a memory all parts together have to
        /// leave some of it. Without it packets of the first class are dropped where
        /// others have filled the buffer.
        reserved: Bytes,
    },
    /// By rank: the least goes first, of its flow the earliest segment; of a full buffer the greatest
    /// rank is dropped, its last come first (pFabric, sections 4.1 and 4.3).
    Ranked,
}

/// How much may wait at a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buffer {
    /// So many bytes at each.
    PerPort(Bytes),
    /// The ports of a switch share `all`: each may have `share` times what is free of it (the dynamic thresholds
    /// of Choudhury and Hahne, 1998).
    Shared {
        /// Memory of a switch.
        all: Bytes,
        /// What a port may have, as a multiple of what no port has.
        share: f64,
    },
}

/// How ports give rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Giving {
    /// The round trip, every which the capacity is adapted.
    pub round_trip: Picos,
    /// The weight of capacity that is not used.
    pub alpha: f64,
    /// The weight of the queue.
    pub beta: f64,
    /// What every flow gets at least: one header a round trip.
    pub base: Rate,
}

/// How lost segments are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// By three duplicates (NewReno, RFC 6582).
    NewReno,
    /// By selective acknowledgements (RFC 6675), with proportional rate reduction (RFC 9937); what was sent again, by time.
    Sack,
    /// By timeouts alone; each segment is acknowledged by itself. For networks that reorder packets.
    Selective,
    /// As that, and by time: a segment is lost once others are acknowledged that were sent half a round trip later
    /// (RACK, RFC 8985, which has a quarter that adapts).
    Timed,
}

/// When a sender stops waiting for an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeouts {
    /// After this time, always.
    Fixed(Picos),
    /// By the measured round trip (RFC 6298), but not before this time; doubled each time in a row.
    AtLeast(Picos),
}

/// What switches do, and receivers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// How ports order what waits, and what they mark or drop.
    pub discipline: Discipline,
    /// How much may wait.
    pub buffer: Buffer,
    /// Whether receivers acknowledge each segment, or wait for a second one.
    pub acknowledging: Acknowledging,
    /// After so many timeouts in a row a flow's tagging ages ([`crate::Tagging`]); none: never.
    pub ages_after: Option<u32>,
    /// After so many timeouts in a row a sender asks with headers alone whether packets come through.
    pub probes_after: Option<u32>,
    /// How ports give rates to flows that ask ([`crate::Control::ask`]); none: they do not. All packets of a flow take one way then.
    pub gives: Option<Giving>,
}
