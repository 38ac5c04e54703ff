//! What switches are told of flows that begin.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use weir_model::{Bytes, Span};

/// Sets the priority that switches give the packets of a socket.
pub trait Tags: Debug + Send + Sync {
    /// What `socket` sends next is one flow, of this size.
    ///
    /// # Errors
    /// Its packets are tagged as before then.
    fn known(&self, socket: BorrowedFd<'_>, size: Bytes) -> io::Result<()>;

    /// What `socket` sends from now on has this class, counted from 0; the last class if there are not so many.
    ///
    /// # Errors
    /// Its packets are tagged as before then.
    fn class(&self, socket: BorrowedFd<'_>, class: u8) -> io::Result<()>;

    /// What `socket` sends next is one flow, of this size, which is to arrive within this time and not much sooner.
    ///
    /// # Errors
    /// Its packets are tagged as before then.
    fn deadline(&self, socket: BorrowedFd<'_>, size: Bytes, within: Span) -> io::Result<()>;
}
