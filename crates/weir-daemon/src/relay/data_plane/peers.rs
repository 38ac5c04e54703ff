//! Who is at the other end of a connection.

use crate::relay::link::Link;
use weir_core::relay::Contact;
use weir_model::Time;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Link,
    pub(super) contact: Contact,
    /// The connection is not there yet.
    pub(super) connecting: bool,
    /// When it was there, or said something last.
    pub(super) heard: Time,
    /// The socket takes no more for now.
    pub(super) blocked: bool,
}

impl Peer {
    pub(super) fn new(now: Time, link: Link, contact: Contact, connecting: bool) -> Peer {
        Peer { link, contact, connecting, heard: now, blocked: false }
    }

    pub(super) fn may_read(&self) -> bool {
        self.contact.may_read(self.link.is_between_messages())
    }
}
