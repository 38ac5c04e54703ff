//! MCP's law in a sender: windows counted, pace kept, and what a flow does that cannot meet its deadline.

use super::dctcp::Dctcp;
use super::{Acked, Allowance, Control, Decided, Loss, WindowEnded};
use crate::packet::SEGMENT_BYTES;
use crate::time::Picos;
use weir_endhost::mcp::{Mcp, Params, WindowFacts};
use weir_model::{Bytes, Rate, Span};

/// Room in flight beyond the window, so that a round trip that grows does not stop a paced flow.
const ROOM: (f64, f64) = (2.0, 2.0);

/// What a flow does once it cannot meet its deadline any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// Goes on like a flow without a deadline.
    Demote,
    /// Goes on in the first class with a window of one segment.
    Trickle,
}

/// Paced by MCP until the deadline is met or out of reach.
pub(crate) struct JustInTime {
    mcp: Mcp,
    deadline: Picos,
    link: Rate,
    late: Late,
    /// What the flow follows once it has given up.
    after: Dctcp,
    given_up: bool,
    acked: u32,
    marked: u32,
    /// When the window began that is being counted.
    began: Picos,
    ended: Option<WindowEnded>,
}

impl JustInTime {
    /// A flow of so many segments that begins now.
    pub(crate) fn new(
        params: &Params,
        now: Picos,
        segments: u32,
        deadline: Picos,
        link: Rate,
        late: Late,
        after: Dctcp,
    ) -> JustInTime {
        let facts = facts(segments, deadline.since(now), Span::ZERO, 0.0, link);
        let mcp = Mcp::new(params, &facts);
        let given_up = mcp.has_given_up();
        let mut flow = JustInTime {
            mcp,
            deadline,
            link,
            late,
            after,
            given_up,
            acked: 0,
            marked: 0,
            began: now,
            ended: None,
        };
        flow.end_window(facts);
        flow
    }

    /// Notes what was decided by these facts.
    fn end_window(&mut self, facts: WindowFacts) {
        let (window, gave_up) = (self.mcp.window(), self.mcp.has_given_up());
        let decided = Decided::Mcp { facts, window, gave_up };
        self.ended = Some(WindowEnded { acked: self.acked, marked: self.marked, decided });
    }

    fn demoted(&self) -> bool {
        self.given_up && self.late == Late::Demote
    }
}

fn facts(segments: u32, left: Picos, rtt: Span, marked_share: f64, link: Rate) -> WindowFacts {
    WindowFacts {
        // All segments count as full; the last one may be less, so the flow aims a little early.
        remaining: Bytes(u64::from(segments) * u64::from(SEGMENT_BYTES)),
        left: span(left),
        rtt,
        marked_share,
        link: Some(link),
    }
}

fn span(picos: Picos) -> Span {
    Span::from_nanos(picos.0 / 1000)
}

impl Control for JustInTime {
    fn allowance(&self) -> Allowance {
        if self.demoted() {
            return self.after.allowance();
        }
        let window = ROOM.0 * self.mcp.window() + ROOM.1;
        Allowance { window, gap: self.mcp.gap().into() }
    }

    fn on_ack(&mut self, acked: &Acked) {
        if self.demoted() {
            self.after.on_ack(acked);
            return;
        }
        self.acked += acked.segments;
        self.marked += if acked.marked { acked.segments } else { 0 };
        // MCP decides once a round trip, by the share of marks in it.
        if acked.now.since(self.began) < acked.smoothed_rtt {
            return;
        }
        let share = f64::from(self.marked) / f64::from(self.acked.max(1));
        let unsent = acked.left.saturating_sub(acked.in_flight);
        let left = self.deadline.since(acked.now);
        // With nothing more to send there is nothing to decide.
        if unsent > 0 {
            let facts = facts(unsent, left, span(acked.smoothed_rtt), share, self.link);
            self.mcp.on_window(&facts);
            self.end_window(facts);
            // Never taken back: a flow that changed to the other control stays there.
            self.given_up |= self.mcp.has_given_up();
        }
        (self.acked, self.marked, self.began) = (0, 0, acked.now);
    }

    fn on_loss(&mut self, lost: &Loss) {
        // MCP goes by marks and round trips: a loss is repaired and does not change the pace.
        if self.demoted() {
            self.after.on_loss(lost);
        }
    }
    fn on_timeout(&mut self, lost: &Loss, first: bool) {
        if self.demoted() {
            self.after.on_timeout(lost, first);
        }
    }
    fn on_spurious_timeout(&mut self) {
        if self.demoted() {
            self.after.on_spurious_timeout();
        }
    }
    fn take_window(&mut self) -> Option<WindowEnded> {
        // A flow that gave up in this window tells of that before it tells what it goes by now.
        self.ended.take().or_else(|| self.after.take_window())
    }
    fn has_given_up(&self) -> bool {
        self.demoted()
    }
}
