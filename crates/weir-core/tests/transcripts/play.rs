//! Machines that speak line by line: one that records them, and one that plays a transcript to each of them alone.

use crate::messages;
use crate::text::{self, Cuts, Event, Line, Who};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use weir_model::{Span, Time};
use weir_proto::Message;

fn type_name<M>() -> &'static str {
    let path = std::any::type_name::<M>();
    path.rsplit("::").next().unwrap_or(path)
}

/// A message of a call.
pub(crate) fn message_line<M: Message>(number: u32, who: Who, message: &M) -> Line {
    Line::Message(number, who, type_name::<M>().to_owned(), message.encode_to_vec())
}

/// When all cases begin.
pub(crate) const NOW: Time = Time::from_millis(1_000);
/// A machine that wants to be called at once, and has nothing to do then, is called again after so long.
const AGAIN: Span = Span::from_millis(1);

/// A machine with what it needs to read and write, but for sockets.
pub(crate) trait Side {
    fn who(&self) -> Who;
    /// What another one did, or happened to this one; and that a connection or call of its own has its number now.
    fn hear(&mut self, now: Time, line: &Line, cuts: &mut Cuts);
    /// What it does next. A new connection or call has number 0.
    fn poll(&mut self, now: Time) -> Option<Line>;
    fn pass_time(&mut self, now: Time);
    fn next_timeout(&self) -> Option<Time>;
}

/// A transcript that machines make when others, who are none here, do what a script says.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) sides: fn() -> Vec<Box<dyn Side>>,
    pub(crate) script: fn(&mut Play),
}

impl Case {
    pub(crate) fn record(&self) -> String {
        let mut play = Play::new((self.sides)());
        (self.script)(&mut play);
        let about: String = self.about.lines().map(|line| format!("# {line}\n")).collect();
        about + &text::print(&play.lines)
    }

    /// Plays it to each machine alone.
    pub(crate) fn replay(&self, lines: &[Line], cuts: &mut Cuts) {
        (self.sides)().into_iter().for_each(|side| replay(self.name, side, lines, cuts));
    }
}

/// When a machine is to be called next, after now and up to an end.
fn next_step(sides: &[Box<dyn Side>], now: Time, end: Time) -> Time {
    let due = sides.iter().filter_map(|side| side.next_timeout()).min().unwrap_or(end);
    let due = if due <= now { now + AGAIN } else { due };
    due.min(end)
}

fn with_number(line: Line, new: &mut dyn FnMut() -> u32) -> Line {
    match line {
        Line::Connects(0, who, to) => Line::Connects(new(), who, to),
        Line::Calls(0, who, whom, call) => Line::Calls(new(), who, whom, call),
        line => line,
    }
}

/// Machines that talk to each other, and what was said so far.
#[derive(Default)]
pub(crate) struct Play {
    sides: Vec<Box<dyn Side>>,
    pub(crate) lines: Vec<Line>,
    pub(crate) numbers: u32,
    /// Time since [`NOW`].
    passed: Span,
}

impl Play {
    pub(crate) fn new(sides: Vec<Box<dyn Side>>) -> Play {
        Play { sides, ..Play::default() }
    }

    fn now(&self) -> Time {
        NOW + self.passed
    }

    /// Somebody makes a connection; its number.
    pub(crate) fn connect(&mut self, who: Who, to: SocketAddr) -> u32 {
        let number = self.new_number();
        self.act(Line::Connects(number, who, to));
        number
    }

    pub(crate) fn say(&mut self, number: u32, who: Who, bytes: &[u8]) {
        self.act(Line::Says(number, who, bytes.to_vec()));
    }

    /// Somebody makes a call with this request; its number.
    pub(crate) fn call<M: Message>(&mut self, who: Who, whom: Who, call: &str, request: &M) -> u32 {
        let number = self.new_number();
        self.act(Line::Calls(number, who, whom, call.to_owned()));
        self.tell(number, who, request);
        number
    }

    pub(crate) fn tell<M: Message>(&mut self, number: u32, who: Who, message: &M) {
        self.act(message_line(number, who, message));
    }

    pub(crate) fn happens(&mut self, who: Who, event: Event) {
        self.act(Line::Happens(who, event));
    }

    /// The last reply of a type.
    pub(crate) fn heard<M: Message + Default>(&self) -> M {
        let is = |line: &&Line| matches!(line, Line::Message(_, _, name, _) if name == type_name::<M>());
        match self.lines.iter().rfind(is) {
            Some(Line::Message(.., bytes)) => messages::decode(bytes),
            _ => panic!("nobody said {}", type_name::<M>()),
        }
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.act(Line::After(Span::from_millis(millis)));
    }

    fn new_number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// Somebody who is no machine here does something: all follows from it, line by line. What was done.
    pub(crate) fn act(&mut self, line: Line) -> Vec<Line> {
        if let Line::After(span) = line {
            return self.after(span);
        }
        self.settle(VecDeque::from([line]))
    }

    fn settle(&mut self, mut waiting: VecDeque<Line>) -> Vec<Line> {
        let mut done = Vec::new();
        loop {
            let now = self.now();
            for side in &mut self.sides {
                side.pass_time(now);
                waiting.extend(std::iter::from_fn(|| side.poll(now)));
            }
            let Some(line) = waiting.pop_front() else { return done };
            let line = with_number(line, &mut || self.new_number());
            self.sides.iter_mut().for_each(|side| side.hear(now, &line, &mut Cuts::new(0)));
            text::add(&mut self.lines, line.clone());
            done.push(line);
        }
    }

    fn after(&mut self, span: Span) -> Vec<Line> {
        let mut done = Vec::new();
        let (mut told, end) = (self.now(), self.now() + span);
        while self.now() < end {
            let now = next_step(&self.sides, self.now(), end);
            self.passed = now.since(NOW);
            let mut waiting = VecDeque::new();
            for side in &mut self.sides {
                side.pass_time(now);
                waiting.extend(std::iter::from_fn(|| side.poll(now)));
            }
            if now == end || !waiting.is_empty() {
                self.lines.push(Line::After(now.since(told)));
                told = now;
            }
            done.extend(self.settle(waiting));
        }
        done
    }
}

/// Plays what others do to one machine, which has to do its part.
pub(crate) fn replay(case: &str, mut side: Box<dyn Side>, lines: &[Line], cuts: &mut Cuts) {
    let mut now = NOW;
    let mut undone = Undone::default();
    for (at, line) in lines.iter().enumerate() {
        let place = format!("{case}, event {}", at + 1);
        if let Line::After(span) = line {
            let end = now + *span;
            undone.collect(now, &mut *side);
            while now < end {
                assert!(undone.is_empty(), "{place}: it did more before: {undone:?}");
                now = next_step(std::slice::from_ref(&side), now, end);
                undone.collect(now, &mut *side);
            }
            continue;
        }
        undone.collect(now, &mut *side);
        undone.show(side.who(), line, &place);
        side.hear(now, line, cuts);
    }
    undone.collect(now, &mut *side);
    assert!(undone.is_empty(), "{case}: it did more: {undone:?}");
}

/// What a machine did that no line has shown yet.
#[derive(Debug, Default)]
struct Undone {
    /// Bytes by connection, and all else in order.
    said: BTreeMap<u32, Vec<u8>>,
    others: VecDeque<Line>,
}

impl Undone {
    fn collect(&mut self, now: Time, side: &mut dyn Side) {
        side.pass_time(now);
        while let Some(line) = side.poll(now) {
            match line {
                Line::Says(number, _, bytes) => self.said.entry(number).or_default().extend(bytes),
                line => self.others.push_back(line),
            }
        }
    }

    /// A line shows what it did, if it is one of its own.
    fn show(&mut self, own: Who, line: &Line, place: &str) {
        match line {
            Line::Says(number, who, bytes) if *who == own => {
                let said = self.said.entry(*number).or_default();
                assert!(said.starts_with(bytes), "{place}: it says something else");
                said.drain(..bytes.len());
            }
            Line::Connects(_, who, _) | Line::Calls(_, who, ..) if *who == own => {
                let next = self.others.pop_front();
                let number = |number| move || number;
                let (Line::Connects(is, ..) | Line::Calls(is, ..)) = *line else { return };
                let next = next.map(|next| with_number(next, &mut number(is)));
                assert_eq!(next.as_ref(), Some(line), "{place}");
            }
            Line::Message(_, who, ..) | Line::Refuses(_, who, _) | Line::Closes(_, who) if *who == own => {
                assert_eq!(self.others.pop_front().as_ref(), Some(line), "{place}");
            }
            Line::Reuses(_) | Line::Ends(_) if own == Who::Receiver => {
                assert_eq!(self.others.pop_front().as_ref(), Some(line), "{place}");
            }
            Line::Happens(who, event) if *who == own && event.is_done() => {
                assert_eq!(self.others.pop_front().as_ref(), Some(line), "{place}");
            }
            _ => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.others.is_empty() && self.said.values().all(Vec::is_empty)
    }
}
