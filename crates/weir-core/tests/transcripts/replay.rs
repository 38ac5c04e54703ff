//! Plays a transcript to one side alone: it has to say its part.

use crate::agents::{self, Act, Served};
use crate::cases::{self, Case};
use crate::play::{self, NOW};
use crate::record::{self, MAPPER, described, how, receiver as receiver_of};
use crate::text::{Cuts, Line, Who};
use std::collections::{BTreeMap, VecDeque};
use weir_core::receiver::{Link, Output, Receiver};
use weir_core::serving::Outlet;

/// A receiver, and what it did that no line has shown yet.
struct Played {
    receiver: Receiver,
    links: BTreeMap<u32, Link>,
    connects: VecDeque<(Link, std::net::SocketAddr, bool)>,
    said: BTreeMap<Link, Vec<u8>>,
    closed: Vec<Link>,
    end: Option<&'static str>,
    now: weir_model::Time,
}

/// Plays what agents and relays say to a receiver.
pub(crate) fn receiver(case: &Case, lines: &[Line], cuts: &mut Cuts) {
    let mut blocks = case.gets.iter();
    let mut played: Option<Played> = None;
    for (at, line) in lines.iter().enumerate() {
        if let Line::Get(_) = line {
            let links = played.map(|played| played.links).unwrap_or_default();
            let mut begun = Played {
                receiver: receiver_of(case, blocks.next().unwrap(), NOW),
                links,
                connects: VecDeque::new(),
                said: BTreeMap::new(),
                closed: Vec::new(),
                end: None,
                now: NOW,
            };
            begun.receiver.handle_wanted(NOW);
            begun.act(case);
            played = Some(begun);
            continue;
        }
        let place = format!("{}, event {}", case.name, at + 1);
        played.as_mut().unwrap().play(case, line, cuts, &place);
    }
}

impl Played {
    /// Does what the receiver says, but for what a line is to show.
    fn act(&mut self, case: &Case) {
        while let Some(output) = self.receiver.poll_output() {
            let now = self.now;
            match output {
                Output::Describe => self.receiver.handle_described(now, described(case).as_ref(), MAPPER),
                Output::Connect { link, address, pooled } => self.connects.push_back((link, address, pooled)),
                Output::Write { link, bytes } => {
                    self.said.entry(link).or_default().extend(bytes);
                    self.receiver.handle_written(now, link);
                }
                Output::Close { link } => self.closed.push(link),
                Output::Verified { .. } => self.receiver.handle_wanted(now),
                Output::End(end) => self.end = Some(how(&end)),
                Output::GiveBack { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets time go by until something holds.
    fn until(&mut self, case: &Case, place: &str, holds: impl Fn(&Played) -> bool) {
        while !holds(self) {
            let Some(due) = self.receiver.next_timeout().filter(|due| *due < NOW + crate::replay::PATIENCE)
            else {
                panic!("{place}: the receiver does not do that");
            };
            self.now = due;
            self.receiver.handle_timeout(due);
            self.act(case);
        }
    }

    fn play(&mut self, case: &Case, line: &Line, cuts: &mut Cuts, place: &str) {
        match line {
            Line::Connects(number, Who::Receiver, to) => {
                self.until(case, place, |played| !played.connects.is_empty());
                let (link, address, _) = self.connects.pop_front().unwrap();
                assert_eq!(address, *to, "{place}");
                self.links.insert(*number, link);
                self.receiver.handle_connected(self.now, link, false);
            }
            Line::Fails(to) => {
                self.until(case, place, |played| !played.connects.is_empty());
                let (link, address, _) = self.connects.pop_front().unwrap();
                assert_eq!(address, *to, "{place}");
                self.receiver.handle_closed(self.now, link, Some("refused".to_owned()));
            }
            Line::Reuses(number) => {
                self.until(case, place, |played| !played.connects.is_empty());
                let (link, _, pooled) = self.connects.pop_front().unwrap();
                assert!(pooled && self.links[number] == link, "{place}");
                self.receiver.handle_connected(self.now, link, true);
            }
            Line::Says(number, Who::Receiver, bytes) => {
                let link = self.links[number];
                self.until(case, place, |played| {
                    played.said.get(&link).is_some_and(|said| said.len() >= bytes.len())
                });
                let said = self.said.get_mut(&link).unwrap();
                let part: Vec<u8> = said.drain(..bytes.len()).collect();
                assert_eq!(part, *bytes, "{place}");
            }
            Line::Closes(number, Who::Receiver) => {
                let link = self.links[number];
                self.until(case, place, |played| played.closed.contains(&link));
                self.closed.retain(|closed| *closed != link);
            }
            Line::Ends(end) => {
                self.until(case, place, |played| played.end.is_some());
                assert_eq!(self.end, Some(end.as_str()), "{place}");
                assert!(self.said.values().all(Vec::is_empty), "{place}: it said more");
            }
            Line::Says(number, _, bytes) => {
                // What goes to a relay from elsewhere is not the receiver's to hear.
                if let Some(&link) = self.links.get(number) {
                    self.hear(case, link, bytes, cuts, place);
                }
            }
            Line::Closes(number, _) => {
                if let Some(&link) = self.links.get(number) {
                    self.receiver.handle_closed(self.now, link, None);
                }
            }
            _ => {}
        }
        self.act(case);
    }

    fn hear(&mut self, case: &Case, link: Link, mut left: &[u8], cuts: &mut Cuts, place: &str) {
        while !left.is_empty() {
            let room = self.receiver.room(link);
            assert!(!room.is_empty() || self.closed.contains(&link), "{place}: the receiver reads no more");
            if room.is_empty() {
                return;
            }
            let count = cuts.next(left.len().min(room.len()));
            room[..count].copy_from_slice(&left[..count]);
            self.receiver.handle_read(self.now, link, count);
            left = &left[count..];
            self.act(case);
        }
    }
}

/// Longer than any of a receiver's pauses, and shorter than what it does against silence.
pub(crate) const PATIENCE: weir_model::Span = weir_model::Span::from_millis(1_000);

/// Plays what the receiver says to agents.
pub(crate) fn agents(case: &Case, lines: &[Line], cuts: &mut Cuts) {
    let mut sides = agents::sides(case);
    let mut open: BTreeMap<u32, (usize, Served)> = BTreeMap::new();
    // What agents did that no line has shown yet, by connection; and the connections to relays, by that of the receiver.
    let mut acts: BTreeMap<u32, VecDeque<Act>> = BTreeMap::new();
    let mut uploads: BTreeMap<u32, u32> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        let place = format!("{}, event {}", case.name, at + 1);
        match line {
            Line::Connects(number, Who::Receiver, to) => {
                if let Some(side) = (0..sides.len()).find(|&side| cases::agent(side) == *to) {
                    open.insert(*number, (side, sides[side].accept()));
                }
            }
            Line::Connects(number, Who::Agent, to) => {
                let (by, acts) = acts.iter_mut().find(|(_, acts)| !acts.is_empty()).expect(&place);
                assert_eq!(acts.pop_front(), Some(Act::Dials(*to)), "{place}");
                uploads.insert(*number, *by);
            }
            Line::Says(number, Who::Receiver, bytes) => {
                if let Some((side, served)) = open.get_mut(number) {
                    let did = sides[*side].hear(served, bytes, false, cuts);
                    acts.entry(*number).or_default().extend(did);
                }
            }
            Line::Closes(number, Who::Receiver) => {
                if let Some((side, mut served)) = open.remove(number) {
                    sides[side].hear(&mut served, &[], true, cuts);
                }
            }
            Line::Says(number, Who::Agent, bytes) => {
                let upload = uploads.get(number);
                let outlet = if upload.is_some() { Outlet::Relay } else { Outlet::Receiver };
                let did = acts.entry(*upload.unwrap_or(number)).or_default().pop_front();
                assert!(did == Some(Act::Says(outlet, bytes.clone())), "{place}: it says something else");
            }
            Line::Closes(number, Who::Agent) => {
                let upload = uploads.get(number);
                let act = if upload.is_some() { Act::HangsUp } else { Act::Closes };
                assert_eq!(
                    acts.entry(*upload.unwrap_or(number)).or_default().pop_front(),
                    Some(act),
                    "{place}"
                );
            }
            _ => {}
        }
    }
    assert!(acts.values().all(VecDeque::is_empty), "{}: an agent did more: {acts:?}", case.name);
}

/// Plays a transcript to its relays.
pub(crate) fn relays(case: &Case, lines: &[Line], cuts: &mut Cuts) {
    for relay in record::relays(case) {
        play::replay(case.name, relay, lines, cuts);
    }
}
