//! Frames: read where they are verified, compared or handed out; and what silence means.

use super::facts::{Link, Output, ReceiverError};
use super::stage::{FRAME_AT, Probe, Stage};
use super::state::Receiver;
use super::taken::Taking;
use super::timer::Timer;
use crate::planted::{Defect, is_planted};
use weir_model::{Span, Time};
use weir_proto::data::{FRAME_HEADER_BYTES, FrameHeader, Identity, Request, checksum, encode_nak};

/// How long a holder that was silent may take to show that it is there.
const ALIVE_LIMIT: Span = Span::from_millis(2_000);

impl Receiver {
    pub(super) fn frame_room(&mut self, link: Link) -> &mut [u8] {
        let (Stage::Receiving(source) | Stage::Probing(source, _)) = &mut self.stage else { return &mut [] };
        let end = self.taken.next_payload().saturating_add(FRAME_AT + FRAME_HEADER_BYTES);
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        // Never more than what is missing of this frame: it may be the last, and nothing follows it.
        let room = self.buffer.get_mut(FRAME_AT.saturating_add(self.filled)..end).unwrap_or_default();
        let Some(relayed) = &mut source.relayed else {
            return if link == Link::Holder { room } else { &mut [] };
        };
        if link == Link::Holder {
            return &mut source.unasked;
        }
        // A message may end within a frame, and the next one's header comes there.
        let wanted = room.len().min(relayed.left());
        match relayed.head_room() {
            Some(room) => room,
            None => &mut room[..wanted],
        }
    }

    pub(super) fn read_frame(&mut self, now: Time, link: Link, count: usize) {
        let Stage::Receiving(source) = &mut self.stage else { return };
        if let Some(relayed) = &mut source.relayed {
            if link == Link::Holder {
                return self.obstacle(now, "the holder sent what was to come by relays".to_owned());
            }
            relayed.silence.restart(now);
            if relayed.left() == 0 {
                if let Err(why) = relayed.take_head(count) {
                    self.obstacle(now, why);
                }
                return;
            }
            relayed.take(count);
        }
        if let Some(timer) = &mut self.timer {
            timer.restart(now);
        }
        self.filled = self.filled.saturating_add(count);
        if self.filled > FRAME_HEADER_BYTES {
            self.first_byte.get_or_insert(now);
        }
        let payload = self.taken.next_payload();
        if self.filled == FRAME_HEADER_BYTES.saturating_add(payload) {
            self.take_frame(now, payload);
        }
    }

    /// A frame arrived whole.
    fn take_frame(&mut self, now: Time, payload: usize) {
        self.filled = 0;
        let frame = self.buffer.get(FRAME_AT..).unwrap_or_default();
        let Some((head, bytes)) = frame.split_first_chunk() else { return };
        let bytes = bytes.get(..payload).unwrap_or_default();
        let header = match FrameHeader::decode(head) {
            Ok(header) => header,
            Err(error) => return self.misframed(now, error.to_string()),
        };
        if header.length as usize != payload {
            return self.misframed(now, "a frame of the wrong length".to_owned());
        }
        if checksum(bytes) != header.checksum && !is_planted(Defect::FrameUnchecked) {
            return self.doubt(now);
        }
        match self.taken.take(header.checksum, bytes) {
            Ok(Taking::Again) => self.go_on(now),
            Ok(Taking::New) => {
                self.forget_obstacles();
                self.timer = Some(Timer::new(now, self.silence));
                self.wanted = false;
                self.outputs.push_back(Output::Verified { length: payload });
            }
            Err(error) => {
                // The hash of a whole block does not say where it is wrong: another holder may have it right.
                if let (ReceiverError::WrongHash, Stage::Receiving(source)) = (&error, &self.stage) {
                    self.avoid(now, source.holder);
                }
                self.end(error);
            }
        }
    }

    /// A frame has another length than it can have: the holder would send the same again, so others are asked first.
    fn misframed(&mut self, now: Time, reason: String) {
        if let Stage::Receiving(source) = &self.stage {
            self.avoid(now, source.holder);
        }
        self.obstacle(now, reason);
    }

    /// A frame does not have its checksum. The holder is told, so that it looks at its copy, and others are asked first: it
    /// would send the same again.
    fn doubt(&mut self, now: Time) {
        let Stage::Receiving(source) = &self.stage else { return };
        let bytes = encode_nak(self.taken.next_frame()).to_vec();
        self.outputs.push_back(Output::Write { link: Link::Holder, bytes });
        self.avoid(now, source.holder);
        self.obstacle(now, "a frame whose checksum does not match".to_owned());
    }

    /// Nothing came for a while. A relay is done without; a holder is asked whether it is there.
    pub(super) fn look_after(&mut self, now: Time) {
        let Stage::Receiving(source) = &self.stage else { return };
        if source.relayed.as_ref().is_some_and(|relayed| relayed.silence.due() <= now) {
            return self.obstacle(now, "the relay is silent".to_owned());
        }
        if let Stage::Receiving(source) = std::mem::replace(&mut self.stage, Stage::Paused) {
            self.longer_silence();
            let connect = Output::Connect { link: Link::Probe, address: source.holder, pooled: false };
            self.outputs.push_back(connect);
            self.timer = Some(Timer::new(now, ALIVE_LIMIT));
            self.stage = Stage::Probing(source, Probe::default());
        }
    }

    /// Asks for a block without a name, which is refused at once.
    pub(super) fn connected_to_probe(&mut self) {
        let Stage::Probing(_, probe) = &mut self.stage else { return };
        probe.asked = true;
        let request = Request {
            coflow: self.config.coflow.0,
            offset: 0,
            destination: self.config.host.0,
            group: self.config.group,
            identity: Identity::UNKNOWN,
            block: String::new(),
        };
        self.outputs.push_back(Output::Write { link: Link::Probe, bytes: request.encode() });
    }

    pub(super) fn probe_room(&mut self) -> &mut [u8] {
        match &mut self.stage {
            Stage::Probing(_, probe) if probe.asked => &mut probe.answer,
            _ => &mut [],
        }
    }

    /// The holder answered, or sent something after all: goes on waiting, for longer than before.
    pub(super) fn is_alive(&mut self, now: Time) {
        if let Stage::Probing(mut source, _) = std::mem::replace(&mut self.stage, Stage::Paused) {
            self.outputs.push_back(Output::Close { link: Link::Probe });
            source.restart_silence(now);
            self.stage = Stage::Receiving(source);
            self.timer = Some(Timer::new(now, self.silence));
        }
    }

    /// The holder did not answer: leaves it.
    pub(super) fn fell_silent(&mut self, now: Time) {
        let Stage::Probing(source, _) = &self.stage else { return };
        self.avoid(now, source.holder);
        self.obstacle(now, "it does not answer any more".to_owned());
        // There is no use in asking it what became of the block.
        self.broke = None;
    }
}
