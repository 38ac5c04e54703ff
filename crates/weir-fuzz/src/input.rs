//! Steps out of bytes.

use prost::Message;

/// What is left of an input.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next bytes; `None` at the end.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    /// The next byte; `None` at the end.
    pub fn byte(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    /// The next number: a byte, or after a 255 eight of them.
    pub fn number(&mut self) -> Option<u64> {
        match self.byte()? {
            255 => Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?)),
            small => Some(u64::from(small)),
        }
    }

    /// The next text or message: its length in two bytes, then that much of what is left.
    pub fn part(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?));
        self.bytes(length.min(self.0.len()))
    }

    /// The next message; what does not decode is skipped.
    pub fn message<M: Message + Default>(&mut self) -> Option<M> {
        loop {
            if let Ok(message) = M::decode(self.part()?) {
                return Some(message);
            }
        }
    }
}

/// Writes what [`Input`] reads: inputs that fuzzing begins with.
#[derive(Default)]
pub struct Output(pub Vec<u8>);

impl Output {
    /// A step, or a number.
    pub fn number(mut self, number: u64) -> Output {
        if number < 255 {
            self.0.push(number as u8);
        } else {
            self.0.push(255);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
        self
    }

    /// A text or message.
    pub fn part(mut self, part: &[u8]) -> Output {
        self.0.extend_from_slice(&(part.len() as u16).to_le_bytes());
        self.0.extend_from_slice(part);
        self
    }

    /// A message, encoded, as a part.
    pub fn message(self, message: &impl Message) -> Output {
        self.part(&message.encode_to_vec())
    }
}
