//! Hosts in network namespaces around one switch, with both directions of every link shaped: a network to
//! try real bytes on, on one Linux machine, as root or (after [`enter_user_namespace`]) as a normal user.
//!
//! ```text
//!   host 0 --eth0 ==HTB==> p0 |        |            ==HTB==>  limits a direction to the link rate,
//!          <==HTB== p0 -------|        |                      control class before data class
//!   host 1 ...                | bridge |
//!   host N-1 ...              |        |--- pc === eth0  control host, not shaped
//! ```
//!
//! Ports of the switch may have eight queues for data, of strict priority by DSCP ([`Queues`]).
//!
//! Hosts may be below racks, whose links to the core are shaped, too: a bridge for each rack, and two HTBs between it
//! and the core's bridge. A [`SiteBed`] has hosts at several sites, and shaped links between these.
//!
//! Nothing of a [`Bed`] shows in the machine's own network: all namespaces are anonymous, held by open
//! files of the owner and by the processes inside, so the kernel removes them when both are gone, however
//! the owner ended.
//!
//! [`move_flows`] moves single flows over one, by a congestion control.
//!
//! What this crate does not do (yet): it reads no traces or scenarios ([`live`] is given coflows), adds no delay or loss, and shapes no traffic between two
//! programs of the same host (that goes over the host's loopback).

mod bed;
mod error;
mod flows;
mod links;
pub mod live;
mod namespace;
mod place;
mod places;
mod ports;
mod process;
mod queues;
mod rights;
mod shape;
mod sites;
mod tool;
mod topology;

pub use bed::{Bed, LinkCounters};
pub use error::{BedError, RightsError};
pub use flows::{BedFlow, MoveOptions, Moved, Moves, busy_seconds, most_flows, move_flows};
pub use links::{BedLinks, HostLinks, MAX_RACKS, MAX_SITES, RackLinks, Rates, SEGMENT_BYTES};
pub use place::{MAX_HOSTS, Place};
pub use ports::free_address;
pub use queues::{QUEUES, Queues};
pub use rights::{Rights, enter_user_namespace, give_user_namespace, has_rights};
pub use shape::{DSCP_CONTROL_TOS, MAX_LINK_RATE_BPS, MIN_LINK_RATE_BPS, QUEUE_DELAY_MS, queue_limit_bytes};
pub use sites::{SiteBed, SiteBedConfig};
pub use topology::HOST_LINK;
