//! What is said on the connections of relays: messages, however they are cut.

use crate::content::{Part, read_parts, take_parts};
use std::collections::VecDeque;
use weir_core::relay::{Contact, Received};
use weir_proto::data::DecodeError;
use weir_proto::relay::{HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind, OPEN_BYTES, Open};

/// Messages of one direction, as far as they were read.
#[derive(Default)]
pub(crate) struct Messages {
    header: Option<Header>,
    /// Of the header, or of the body.
    begun: Vec<u8>,
    payload: Vec<Part>,
}

impl Messages {
    /// Whether the next byte begins a message.
    pub(crate) fn is_between(&self) -> bool {
        self.header.is_none() && self.begun.is_empty()
    }

    /// The next message, if all of it is there. Bytes that are taken are counted.
    pub(crate) fn next(
        &mut self,
        parts: &mut VecDeque<Part>,
        taken: &mut u64,
    ) -> Result<Option<Received<Vec<Part>>>, DecodeError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(head) = self.whole::<HEADER_BYTES>(parts, taken) else { return Ok(None) };
                *self.header.insert(Header::decode(&head)?)
            }
        };
        let message = match header.kind {
            Kind::Hello => match self.whole::<HELLO_BYTES>(parts, taken) {
                Some(body) => Received::Hello(Hello::decode(&body)?),
                None => return Ok(None),
            },
            Kind::Open => match self.whole::<OPEN_BYTES>(parts, taken) {
                Some(body) => Received::Open(header, Open::decode(&body)?),
                None => return Ok(None),
            },
            Kind::Data => {
                let have: u64 = self.payload.iter().map(Part::len).sum();
                let more = take_parts(parts, u64::from(header.length) - have);
                let count: u64 = more.iter().map(Part::len).sum();
                *taken += count;
                self.payload.extend(more);
                if have + count < header.length.into() {
                    return Ok(None);
                }
                Received::Data(header, std::mem::take(&mut self.payload))
            }
            _ => Received::About(header),
        };
        self.header = None;
        Ok(Some(message))
    }

    /// So many bytes, if they are there.
    fn whole<const N: usize>(&mut self, parts: &mut VecDeque<Part>, taken: &mut u64) -> Option<[u8; N]> {
        let mut room = [0; N];
        let missing = &mut room[self.begun.len()..];
        let count = read_parts(parts, missing);
        self.begun.extend_from_slice(&missing[..count]);
        *taken += count as u64;
        let whole = self.begun.as_slice().try_into().ok()?;
        self.begun.clear();
        Some(whole)
    }
}

/// What the relays at the ends of a connection have of it.
pub(crate) struct RelayEnd {
    /// As the relay has it that did not make it.
    pub(crate) contact: Contact,
    /// Flows and what is said of them, as the relay that reads takes them in.
    pub(crate) forth: Messages,
    /// What was said the other way, and waits to be read by the relay that sends.
    pub(crate) heard: VecDeque<Part>,
    pub(crate) back: Messages,
    /// What the relay that sends has to write before anything else.
    pub(crate) waiting: VecDeque<Part>,
}

impl Default for RelayEnd {
    fn default() -> RelayEnd {
        RelayEnd {
            contact: Contact::accepted(),
            forth: Messages::default(),
            heard: VecDeque::new(),
            back: Messages::default(),
            waiting: VecDeque::new(),
        }
    }
}

impl RelayEnd {
    pub(crate) fn may_read(&self) -> bool {
        self.contact.may_read(self.forth.is_between())
    }
}
