//! A receiver: finds a holder of a block, asks it, verifies what arrives, resumes what broke, and begins anew where only
//! other bytes are left.
//!
//! # Problem
//! A holder may die in the middle of a block, and the next holder may have other bytes under its name, put by
//! another host or by a task that ran again. What was handed out must never be continued with them. All of it has to be
//! decided the same way with sockets and without, so that it can be tested at every byte.
//!
//! # Approach
//! [`Receiver`] decides, and does no I/O. Its driver holds up to three connections ([`Link`]), does what
//! [`Receiver::poll_output`] says, and tells what came of it. Bytes are read into the memory that [`Receiver::room`] offers: a
//! frame is verified where it was read, and lent to the caller from there. A holder's answer is read with what of the first frame
//! comes with it.
//!
//! A resumed request says which bytes it began with, and only an agent that has the same goes on ([`Identity`]). Where
//! no agent has, the block is asked for from its start, and every frame that was handed out already is compared by its
//! checksum: the same bytes may have been put under another identity. If a frame differs, the get ends as changed.
//!
//! ```text
//! Paused -> Locating -> Asking: one holder after the other -> Receiving <-> Probing
//!    ^         |           |        relays, connection,           |            |
//!    |         |           |        request, answer               |            |
//!    +---------+-----------+--------------------------------------+------------+
//!                                                                 +-> Acknowledging -> Over
//! ```
//!
//! # Silence
//! A flow that is paused by a plan is silent for as long as the plan says. A receiver that hears nothing for a while
//! asks the holder something that is answered at once, on another connection; only a holder that does not answer
//! is left for another one. Time in which the caller wanted nothing is no silence: with [`Receiver::handle_wanted`] every
//! wait begins anew.
//!
//! # Properties
//! - No byte is handed out before its frame had its checksum, none twice, and none of another block.
//! - How the input is cut into reads changes nothing.
//! - Holders are asked again after pauses that double from [`FIRST_RETRY`] to [`LONGEST_RETRY`].
//!
//! [`Identity`]: weir_proto::data::Identity

mod asking;
mod facts;
mod frames;
mod relayed;
mod stage;
mod state;
mod taken;
#[cfg(test)]
mod tests;
mod timer;
mod tried;

pub use facts::{Link, Located, Output, ReceiverConfig, ReceiverError, RelaysOfHost};
pub use state::{FIRST_RETRY, LONGEST_RETRY, Receiver};
