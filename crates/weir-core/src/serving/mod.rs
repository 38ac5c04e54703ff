//! The serving side of a data connection: requests come in, and blocks go out as frames, to the receiver or by way of a relay.
//!
//! # Problem
//! What a receiver says may arrive a byte at a time or all at once, and a socket may take any part of what is written. What is
//! answered and sent must not depend on it. Which bytes come next has to be decided the same way with sockets and without.
//!
//! # Approach
//! [`Conversation`] is one connection, without its socket. Its driver hands over what arrives ([`Conversation::handle_input`]),
//! asks what that means ([`Conversation::poll_input`]), and asks what is to be written ([`Conversation::poll_write`]): bytes from
//! memory, or a range of a block, which the driver sends from the block's file without copying it. The driver says how much the
//! socket took, and asks again.
//!
//! An answer may wait a moment for the first frame ([`Answers`]), and payload may go in one write with what leads it
//! ([`Write::Bytes`]): a small block is one write then.
//!
//! A flow carries a list of ranges, each of one block, one after the other. Frames lie on the grid of their block.
//!
//! # Properties
//! - How the input is cut into reads, and the output into writes, changes nothing.
//! - No payload goes out before the header of its frame, and no header before the frame's checksum is known.
//! - An acknowledgement counts once all was written, and once.

mod answers;
mod conversation;
mod relays;
mod sending;
#[cfg(test)]
mod tests;

pub use answers::Answers;
pub use conversation::{Conversation, Input, Late, Opening};
pub use relays::Relays;
pub use sending::{Outlet, Payload, Range, Write};
