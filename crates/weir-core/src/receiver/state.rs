//! The receiver's state machine: what is under way, and what goes on when it ends.

use super::facts::{Link, Located, Output, ReceiverConfig, ReceiverError};
use super::stage::{FRAME_AT, Source, Stage};
use super::taken::Taken;
use super::timer::Timer;
use super::tried::Tried;
use crate::planted::{Defect, is_planted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::data::{ACK, FRAME_HEADER_BYTES};

/// First pause between attempts to reach a holder; each is twice as long as the one before.
pub const FIRST_RETRY: Span = Span::from_millis(5);
/// Longest pause between attempts to reach a holder.
pub const LONGEST_RETRY: Span = Span::from_millis(250);
/// How long a holder may be silent before it is asked whether it is there, at first and at most: plans may pause a
/// flow for as long as they like.
const SILENCE: (Span, Span) = (Span::from_millis(4_000), Span::from_millis(60_000));
/// How long the coordinator may take to answer beyond what it was told to wait.
const LOCATE_LIMIT: Span = Span::from_millis(12_000);
/// Longest wait of one `Locate`; repeated until the get's own limit.
const LOCATE_WAIT: Span = Span::from_millis(5_000);
/// How long a holder that did not answer, or sent a damaged frame, is asked after all others.
const AVOID: Span = Span::from_millis(10_000);

/// A receiver of one block. Call order: see the crate's documentation; besides, [`Receiver::handle_wanted`] comes first and
/// after each [`Output::Verified`], and what [`Receiver::room`] offers is told filled with [`Receiver::handle_read`].
pub struct Receiver {
    pub(super) config: ReceiverConfig,
    pub(super) taken: Taken,
    pub(super) stage: Stage,
    /// When the stage under way ends by time, if it does.
    pub(super) timer: Option<Timer>,
    /// Relays failed: the rest comes straight from the holder.
    pub(super) direct: bool,
    /// A holder's answer, and from [`FRAME_AT`] on the current frame, its header first,
    pub(super) buffer: Vec<u8>,
    /// and how much of the frame is there.
    pub(super) filled: usize,
    pause: Span,
    pub(super) silence: Span,
    pub(super) tried: Tried,
    /// Holders that are asked after all others, and until when.
    avoided: BTreeMap<SocketAddr, Time>,
    /// The holder that sent something and went on no more.
    pub(super) broke: Option<SocketAddr>,
    /// Holders that said that the block's file changed.
    pub(super) changed_at: BTreeSet<SocketAddr>,
    /// The coordinator was asked for holders after one had said so.
    pub(super) looked_again: bool,
    pub(super) first_byte: Option<Time>,
    /// The caller waits for the next frame.
    pub(super) wanted: bool,
    pub(super) outputs: VecDeque<Output>,
}

impl Receiver {
    /// A receiver that has asked no holder yet. `buffer`: memory for a frame, of any length.
    pub fn new(config: ReceiverConfig, buffer: Vec<u8>) -> Receiver {
        Receiver {
            taken: Taken::new(config.verify_whole),
            avoided: config.avoided.clone(),
            config,
            stage: Stage::Paused,
            timer: None,
            direct: false,
            buffer,
            filled: 0,
            pause: FIRST_RETRY,
            silence: SILENCE.0,
            tried: Tried::default(),
            broke: None,
            changed_at: BTreeSet::new(),
            looked_again: false,
            first_byte: None,
            wanted: false,
            outputs: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`Receiver::handle_timeout`] if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        if !self.wanted {
            return None;
        }
        let relayed = match &self.stage {
            Stage::Receiving(source) => source.relayed.as_ref().map(|relayed| relayed.silence.due()),
            _ => None,
        };
        let due = self.timer.map(|timer| timer.due());
        [Some(self.config.end), due, relayed].into_iter().flatten().min()
    }

    /// The payload of the frame that was verified last, of that length.
    pub fn frame(&self, length: usize) -> &[u8] {
        self.buffer
            .get(FRAME_AT + FRAME_HEADER_BYTES..)
            .and_then(|payload| payload.get(..length))
            .unwrap_or_default()
    }

    /// Size of the block in bytes, once a holder has answered.
    pub fn size(&self) -> Option<u64> {
        self.taken.size
    }

    /// When the first payload byte arrived.
    pub fn first_byte(&self) -> Option<Time> {
        self.first_byte
    }

    /// The memory for a frame, for another receiver. The last frame, and what of the next one was read, go with it.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.filled = 0;
        std::mem::take(&mut self.buffer)
    }

    /// Holders that are asked after all others, and until when.
    pub fn take_avoided(&mut self) -> BTreeMap<SocketAddr, Time> {
        std::mem::take(&mut self.avoided)
    }

    /// The caller waits for the next frame, and is done with the one before. Time in which it did not wait is not counted as silence of a peer.
    pub fn handle_wanted(&mut self, now: Time) {
        self.wanted = true;
        match &mut self.stage {
            Stage::Over(result) => {
                self.wanted = false;
                return self.outputs.push_back(Output::End(result.clone()));
            }
            Stage::Paused if self.timer.is_none() => return self.open(now),
            // Cutting a pause short would ask holders more often than it allows.
            Stage::Paused => return,
            // The caller is done with the last frame: only now the holder is told that the block arrived.
            Stage::Receiving(_) if self.taken.is_complete() => return self.acknowledge(),
            Stage::Receiving(source) => source.restart_silence(now),
            Stage::Locating | Stage::Asking(_) | Stage::Probing(..) | Stage::Acknowledging(_) => {}
        }
        if let Some(timer) = &mut self.timer {
            timer.restart(now);
        }
    }

    /// The coordinator answered [`Output::Locate`].
    pub fn handle_located(&mut self, now: Time, located: Located) {
        if !matches!(self.stage, Stage::Locating) {
            return;
        }
        self.end(match located {
            Located::Holders(holders) => return self.begin_round(now, holders),
            Located::Unavailable(why) => return self.obstacle(now, why),
            Located::Ended => ReceiverError::CoflowEnded,
            Located::Refused(reason) => ReceiverError::CoflowRefused(reason),
            Located::Denied(reason) => ReceiverError::NotLocated(reason),
            Located::NoCoordinator => ReceiverError::Refused("no coordinator to ask and no holder given"),
        });
    }

    /// A connection was made. `pooled`: an earlier get left it, and it may have died since.
    pub fn handle_connected(&mut self, now: Time, link: Link, pooled: bool) {
        match (&self.stage, link) {
            (Stage::Asking(_), Link::Holder | Link::Relay) => self.connected_to_ask(now, link, pooled),
            (Stage::Probing(..), Link::Probe) => self.connected_to_probe(),
            _ => {}
        }
    }

    /// All that was to be written on a connection is on its way.
    pub fn handle_written(&mut self, now: Time, link: Link) {
        match (&self.stage, link) {
            (Stage::Asking(_), Link::Relay) => self.subscribed(now),
            (Stage::Acknowledging(_), Link::Holder) => self.acknowledged(true),
            _ => {}
        }
    }

    /// A connection could not be made or has ended: `why`, or its peer closed it.
    pub fn handle_closed(&mut self, now: Time, link: Link, why: Option<String>) {
        match (&self.stage, link) {
            (Stage::Asking(_), Link::Holder | Link::Relay) => self.lost_while_asking(now, link, why),
            (Stage::Receiving(_) | Stage::Probing(..), Link::Holder | Link::Relay) => {
                let who = if link == Link::Holder { "holder" } else { "relay" };
                self.obstacle(now, why.unwrap_or_else(|| format!("the {who} closed the connection")));
            }
            (Stage::Probing(..), Link::Probe) => self.fell_silent(now),
            // A holder that died after its last byte needs no acknowledgement.
            (Stage::Acknowledging(_), Link::Holder) => self.acknowledged(false),
            _ => {}
        }
    }

    /// Whether all of [`Receiver::room`] is about to be filled, so that fewer bytes need not be looked at. Before the first byte
    /// of a block every byte counts, for it says when the flow began; an answer may come without a frame; and of a holder that is
    /// asked whether it is there, each byte is an answer.
    pub fn is_filling(&self, link: Link) -> bool {
        let every_byte_counts = matches!(self.stage, Stage::Asking(_) | Stage::Probing(..));
        !every_byte_counts && (link == Link::Relay || self.first_byte.is_some())
    }

    /// Room for bytes that are to be read from a connection now; empty: none are. The driver tells how many it read with
    /// [`Receiver::handle_read`].
    pub fn room(&mut self, link: Link) -> &mut [u8] {
        if !self.wanted {
            return &mut [];
        }
        match (&self.stage, link) {
            (Stage::Asking(_), Link::Holder) => self.answer_room(),
            (Stage::Receiving(_), Link::Holder | Link::Relay) => self.frame_room(link),
            // What a relay says shows nothing of the holder.
            (Stage::Probing(source, _), Link::Holder) if source.relayed.is_none() => self.frame_room(link),
            (Stage::Probing(..), Link::Probe) => self.probe_room(),
            _ => &mut [],
        }
    }

    /// So many bytes, at least one, were read into [`Receiver::room`].
    pub fn handle_read(&mut self, now: Time, link: Link, count: usize) {
        // No more than there was room for, whatever a driver says.
        let count = count.min(self.room(link).len());
        if count == 0 {
            return;
        }
        match &self.stage {
            Stage::Asking(_) => self.read_answer(now, count),
            Stage::Receiving(_) => self.read_frame(now, link, count),
            Stage::Probing(..) => {
                self.is_alive(now);
                if link != Link::Probe {
                    self.read_frame(now, link, count);
                }
            }
            _ => {}
        }
    }

    /// Time went by: does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.next_timeout().is_none_or(|due| due > now) {
            return;
        }
        if now >= self.config.end {
            // Nothing is given up: the caller may want to look again.
            self.wanted = false;
            return self.outputs.push_back(Output::End(Err(ReceiverError::TimeLimit(self.obstacles()))));
        }
        match &self.stage {
            Stage::Paused => self.open(now),
            Stage::Locating => self.obstacle(now, "the coordinator does not answer".to_owned()),
            Stage::Asking(_) => self.asked_too_long(now),
            Stage::Receiving(_) => self.look_after(now),
            Stage::Probing(..) => self.fell_silent(now),
            Stage::Acknowledging(_) | Stage::Over(_) => {}
        }
    }

    /// Begins a round with the holders that are known, or asks the coordinator for some.
    fn open(&mut self, now: Time) {
        if !self.config.holders.is_empty() {
            return self.begin_round(now, self.config.holders.clone());
        }
        let mut wait = self.config.end.since(now).min(LOCATE_WAIT);
        if self.broke.is_some() || !self.changed_at.is_empty() {
            // The holder that broke off can be asked meanwhile; or one said that the file changed, and is believed if no other is named.
            wait = Span::ZERO;
        }
        self.looked_again = !self.changed_at.is_empty();
        self.stage = Stage::Locating;
        // A coordinator that is stopped, and not gone, would keep the call for ever.
        self.timer = Some(Timer::new(now, wait + LOCATE_LIMIT));
        self.outputs.push_back(Output::Locate { wait });
    }

    /// Holders, those that did not answer lately last.
    pub(super) fn sort_holders(&mut self, now: Time, holders: &mut [SocketAddr]) {
        self.avoided.retain(|_, until| *until > now);
        holders.sort_by_key(|holder| self.avoided.contains_key(holder));
    }

    /// Asks others first for a while.
    pub(super) fn avoid(&mut self, now: Time, holder: SocketAddr) {
        self.avoided.insert(holder, now + AVOID);
    }

    /// A frame was taken: the next wait for one is a new one.
    pub(super) fn forget_obstacles(&mut self) {
        // Pauses double only while nothing new comes.
        (self.pause, self.silence) = (FIRST_RETRY, SILENCE.0);
    }

    pub(super) fn longer_silence(&mut self) {
        self.silence = (self.silence + self.silence).min(SILENCE.1);
    }

    /// Something that may be otherwise after a pause. What is under way ends.
    pub(super) fn obstacle(&mut self, now: Time, why: String) {
        self.close_links();
        let source = match std::mem::replace(&mut self.stage, Stage::Paused) {
            Stage::Receiving(source) | Stage::Probing(source, _) => Some(source),
            _ => None,
        };
        self.direct |= source.as_ref().is_some_and(|source| source.relayed.is_some());
        let holder = source.map(|source| source.holder);
        let with = holder.map(|holder| holder.to_string()).unwrap_or_default();
        // The holder that broke off is asked once more when holders are known, though the coordinator may not answer before.
        self.broke = holder.or(self.broke.filter(|_| !is_planted(Defect::BrokeForgotten)));
        self.tried.note(with, why);
        let pause = self.pause.min(self.config.end.since(now));
        self.timer = Some(Timer::new(now, pause));
        self.pause = (self.pause + self.pause).min(LONGEST_RETRY);
    }

    /// Ends the get for good, with an error.
    pub(super) fn end(&mut self, error: ReceiverError) {
        self.close_links();
        self.finish(Err(error));
    }

    fn finish(&mut self, result: Result<(), ReceiverError>) {
        (self.stage, self.timer, self.wanted) = (Stage::Over(result.clone()), None, false);
        self.outputs.push_back(Output::End(result));
    }

    fn close_links(&mut self) {
        let (asks, relay, probes) = match &self.stage {
            Stage::Paused | Stage::Locating | Stage::Over(_) => (false, false, false),
            Stage::Asking(round) => (round.has_connection(), round.has_relay(), false),
            Stage::Receiving(source) | Stage::Acknowledging(source) => {
                (true, source.relayed.is_some(), false)
            }
            Stage::Probing(source, _) => (true, source.relayed.is_some(), true),
        };
        let links = [(Link::Holder, asks), (Link::Relay, relay), (Link::Probe, probes)];
        let closed = links.into_iter().filter(|&(_, is_open)| is_open);
        self.outputs.extend(closed.map(|(link, _)| Output::Close { link }));
    }

    /// Waits for the next frame, or acknowledges if there is none.
    pub(super) fn go_on(&mut self, now: Time) {
        if self.taken.is_complete() {
            return self.acknowledge();
        }
        self.timer = Some(Timer::new(now, self.silence));
    }

    fn acknowledge(&mut self) {
        if let Stage::Receiving(source) = std::mem::replace(&mut self.stage, Stage::Paused) {
            (self.stage, self.timer) = (Stage::Acknowledging(source), None);
            self.outputs.push_back(Output::Write { link: Link::Holder, bytes: vec![ACK] });
        }
    }

    fn acknowledged(&mut self, written: bool) {
        let Stage::Acknowledging(source) = &self.stage else { return };
        let relay = source.relayed.as_ref().map(|relayed| (Link::Relay, relayed.is_spent()));
        for (link, is_fit) in [Some((Link::Holder, written)), relay].into_iter().flatten() {
            self.outputs.push_back(if is_fit { Output::GiveBack { link } } else { Output::Close { link } });
        }
        self.finish(Ok(()));
    }

    fn obstacles(&self) -> String {
        let mut texts = self.tried.texts();
        let source = match &self.stage {
            Stage::Receiving(source) | Stage::Probing(source, _) | Stage::Acknowledging(source) => {
                Some(source)
            }
            _ => None,
        };
        if let (Some(Source { holder, .. }), Some(size)) = (source, self.taken.size) {
            let sent = self.taken.verified;
            texts.push(format!("{holder} accepted the request and sent {sent} of {size} bytes so far"));
        }
        if texts.is_empty() {
            texts.push("neither a coordinator nor a holder has answered yet".to_owned());
        }
        texts.join("; ")
    }
}
