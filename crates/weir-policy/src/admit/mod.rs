//! Which coflows are let in, so that every one of them can meet its deadline (Varys, SIGCOMM 2014, section 5.4,
//! Pseudocode 2).
//!
//! # Problem
//! A deadline can be promised only if what was promised to others leaves enough of every link, and a promise
//! must hold whatever arrives later.
//!
//! # Approach
//! Every coflow let in has a booking: the times at which it may use which share of its links, enough for all it
//! has left before its deadline. A new coflow is let in if bookings for all can be found: all anew in the order of
//! their deadlines, or in the order in which they must begin at the latest, or the new one beside those that exist. What a plan gives a coflow
//! beyond its booking only means that it needs less of it later, so bookings never break.
//!
//! # Terminology
//! * due: when a coflow must be complete.
//! * booking: pieces of time, each with the share of the coflow that moves in it; the shares sum to 1. All flows
//!   of the coflow move in proportion to what they have left (MADD).
//! * share ahead: what the pieces from now on sum to. No link has more left to carry for the coflow than its
//!   share ahead of what it had when the booking was made.
//!
//! # Pseudo-code
//! ```text
//! on arrival of a coflow with a deadline (of several at one moment: by Gamma, the least first):
//!     for key of (due, due - Gamma):
//!         timetable = empty; for coflow of those let in and the new one, by (key, arrival, id):
//!             book it as early as the timetable lets it (see Timetable::book)
//!         if all are booked in time: let it in
//!     timetable = existing bookings; if the new one can be booked in it: let it in
//!     else refuse it; bookings stay
//! least rate of a flow now = what it has left * (share of the current piece / its length) / share ahead
//!     (of coflows that come behind their bookings, in a running system: see `late`)
//! ```
//!
//! # Properties
//! * No coflow that was let in is late: the last piece ends when it is due at the latest, and its rates are what
//!   is left over the time left, so rounding does not pile up.
//! * No coflow that was let in is turned away later, unless flows joined it that its booking does not cover.
//! * What Pseudocode 2 lets in beside the same bookings is let in: a constant rate up to the deadline is one of
//!   the bookings.
//! * A coflow that is refused may come again: it is judged anew after it left the table.
//!
//! # Departures
//! Pseudocode 2 gives every coflow one rate, what is left over the time left, and lets a new one in if its Gamma
//! on the capacity left *now* is short enough. Here capacity is looked at over time: what is free after an
//! earlier deadline counts, and coflows with time to spare make way for one with less. Of coflows that come at one
//! moment, of which the paper does not speak, short ones are judged first: more of them fit. [`Admission::by_rates`] is
//! Pseudocode 2 as it stands: a booking is one piece up to the deadline, and what is left now counts alone.

mod late;
mod timetable;

use crate::{CoflowTable, Refusal, Slot};
use timetable::{Piece, Timetable};
use weir_model::{CoflowId, Fabric, LinkId, Rate, Span, Time};

/// What is left of a link for a coflow is covered by its booking up to this share: rounding of sums.
const ROUNDING: f64 = 1e-9;
/// The last piece of a booking is this much faster than needed, so that rounding makes no coflow late.
const HASTE: f64 = 1e-12;

/// What a coflow with a deadline was promised.
#[derive(Clone, Debug)]
struct Booking {
    coflow: CoflowId,
    /// Number of flows that were ever part of the coflow, ended ones too.
    flows: usize,
    arrival: Time,
    due: Time,
    pieces: Vec<Piece>,
    /// What its links had left to carry when it was made.
    demand: Vec<(LinkId, f64)>,
    refused: bool,
}

impl Booking {
    /// What the pieces from `now` on sum to.
    fn ahead(&self, now: Time) -> f64 {
        self.pieces.iter().map(|piece| piece.share_after(now)).sum()
    }

    /// The least drain per second that keeps the promise now.
    fn drain(&self, now: Time) -> f64 {
        let Some(piece) = self.pieces.iter().find(|piece| piece.from <= now && now < piece.until) else {
            return self.drain_when_late(now);
        };
        let rest = piece.until.since(now).as_secs();
        let share = piece.share_after(now);
        // Shares are parts of the whole booking, a drain is a part of what is left now: `share /
        // (share + later)` turns one into the other.
        let later = self.ahead(now) - share;
        // The last piece: all that is left, in the time that is left, so that earlier rounding is made up here.
        if later <= 0.0 { drain_within(piece.until.since(now)) } else { share / (share + later) / rest }
    }

    /// The next time at which its drain is not what it was.
    fn next_change(&self, now: Time) -> Option<Time> {
        let edges = self.pieces.iter().flat_map(|piece| [piece.from, piece.until]);
        edges.filter(|&at| at > now).min()
    }
}

/// The coflows that were let in and what they were promised.
#[derive(Debug, Default)]
pub struct Admission {
    /// A coflow gets one rate up to its deadline, and is let in if there is room for that now.
    by_rates: bool,
    /// Per slot, the promise or refusal.
    bookings: Vec<Option<Booking>>,
    /// A coflow of each slot that was refused in this call.
    refusals: Vec<Refusal>,
    drains: Vec<f64>,
}

impl Admission {
    /// Admission as in Pseudocode 2: least rates are what is left over the time left, and a coflow is let in if they leave
    /// enough for its own now.
    pub fn by_rates() -> Admission {
        Admission { by_rates: true, ..Admission::default() }
    }

    /// Judges the coflows that are new, or that grew beyond what they were promised.
    pub fn judge(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable) {
        self.refusals.clear();
        self.bookings.resize_with(view.slot_bound(), || None);
        // A coflow may have left and come back under its id in the same slot: its id alone would
        // let the old judgement stand.
        for slot in view.changes().arrived.iter().chain(&view.changes().departed) {
            self.bookings[slot.0 as usize] = None;
        }
        let mut waiting: Vec<(Span, Slot, Time)> = Vec::new();
        for &slot in view.slots() {
            let Some(due) = view.due(slot) else { continue };
            if !self.is_judged(now, view, slot) {
                self.bookings[slot.0 as usize] = None;
                waiting.push((alone(view, fabric, slot), slot, due));
            }
        }
        // A stable sort: equally short ones stay in the order of the table, by (arrival, id).
        waiting.sort_by_key(|&(alone, _, _)| alone);
        for (_, slot, due) in waiting {
            self.judge_one(now, fabric, view, slot, due);
        }
    }

    /// Whether the last judgement on a coflow still holds.
    fn is_judged(&mut self, now: Time, view: &CoflowTable, slot: Slot) -> bool {
        let coflow = view.coflow(slot);
        let Some(booking) = &mut self.bookings[slot.0 as usize] else { return false };
        if booking.coflow != coflow.id() {
            return false;
        }
        // One that only moves slower than planned, as a running system reports, is late and not larger.
        let grown = booking.flows < coflow.flows().len();
        // A coflow that was refused, or whose time is over, has no promise that more flows could exceed.
        if !grown || booking.refused || booking.due <= now {
            return true;
        }
        // Noted even where the booking covers the new flows, so that each growth is checked once.
        booking.flows = coflow.flows().len();
        let ahead = booking.ahead(now) * (1.0 + ROUNDING);
        coflow.links().iter().all(|&link| {
            // Only the share ahead of what was promised is still reserved; the pieces before now
            // are gone.
            let promised =
                booking.demand.iter().find(|(other, _)| *other == link).map_or(0.0, |entry| entry.1);
            view.demand(slot, link) <= promised * (ahead + ROUNDING)
        })
    }

    fn judge_one(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable, slot: Slot, due: Time) {
        let mut existing = self.booked(now, fabric, view);
        let demand = demand(view, slot);
        let pieces = if self.by_rates {
            // Pseudocode 2, line 3, of Varys: Gamma on the capacity left now, though some of it comes free before the deadline.
            existing.hold();
            let fits = existing.clone().book(&demand, due).is_some();
            fits.then(|| vec![Piece { from: now, until: due, share: 1.0 }])
        } else {
            let found = self.all_anew(now, fabric, view, slot, |due, _| due);
            // No one order finds every schedule there is.
            let latest_start =
                |due: Time, alone: Span| Time::from_nanos(due.nanos().saturating_sub(alone.nanos()));
            let found = found.or_else(|| self.all_anew(now, fabric, view, slot, latest_start));
            // Booking is greedy: in either order coflows may fail to fit whose present bookings
            // hold. The new one may still find room beside these.
            found.or_else(|| existing.clone().book(&demand, due))
        };
        if pieces.is_none() {
            let (link, needed, left) = existing.scarcest(&demand, due);
            self.refusals.push(Refusal {
                coflow: slot,
                link: fabric.links()[link.index()].kind,
                needed: Rate::from_bytes_per_sec(needed),
                left: Rate::from_bytes_per_sec(left),
                within: due.since(now),
            });
        }
        let coflow = view.coflow(slot);
        self.bookings[slot.0 as usize] = Some(Booking {
            coflow: coflow.id(),
            flows: coflow.flows().len(),
            arrival: coflow.arrival(),
            due,
            refused: pieces.is_none(),
            pieces: pieces.unwrap_or_default(),
            demand,
        });
    }

    /// Books all coflows let in and a new one from now on, by a key of when they are due and of the time they need
    /// alone; the bookings are taken over and those of the new one returned if all fit.
    fn all_anew(
        &mut self,
        now: Time,
        fabric: &Fabric,
        view: &CoflowTable,
        new: Slot,
        key: impl Fn(Time, Span) -> Time,
    ) -> Option<Vec<Piece>> {
        let mut order: Vec<(Time, usize, Slot)> = Vec::new();
        for (rank, &slot) in view.slots().iter().enumerate() {
            let due = view.due(slot).filter(|_| slot == new || self.is_admitted(slot));
            // Coflows whose time is over cannot be booked in time; their drains are those of `late`.
            let Some(due) = due.filter(|&due| due > now || slot == new) else { continue };
            order.push((key(due, alone(view, fabric, slot)), rank, slot));
        }
        order.sort_unstable();
        let mut timetable = Timetable::new(now, fabric);
        let mut found = Vec::new();
        for &(_, _, slot) in &order {
            let demand = demand(view, slot);
            // No booking is changed before all of them are found: a new coflow that does not fit must not cost another its own.
            let pieces = timetable.book(&demand, view.due(slot)?)?;
            found.push((slot, pieces, demand));
        }
        let mut of_new = None;
        for (slot, pieces, demand) in found {
            match &mut self.bookings[slot.0 as usize] {
                _ if slot == new => of_new = Some(pieces),
                // The demand as well: shares of the new pieces are shares of what is left now.
                Some(booking) => (booking.pieces, booking.demand) = (pieces, demand),
                None => {}
            }
        }
        of_new
    }

    /// The timetable with what is booked from now on, as far as it is still needed.
    fn booked(&self, now: Time, fabric: &Fabric, view: &CoflowTable) -> Timetable {
        let mut timetable = Timetable::new(now, fabric);
        for &slot in view.slots() {
            let Some(Some(booking)) = self.bookings.get(slot.0 as usize) else { continue };
            let ahead = booking.ahead(now);
            if ahead > 0.0 {
                // What is left moves in the pieces ahead: a coflow that was given more than its booking needs less of them now.
                timetable.take(&booking.pieces, &demand(view, slot), 1.0 / ahead);
            }
        }
        timetable
    }

    /// Whether a coflow was let in.
    pub fn is_admitted(&self, slot: Slot) -> bool {
        self.bookings
            .get(slot.0 as usize)
            .is_some_and(|booking| booking.as_ref().is_some_and(|one| !one.refused))
    }

    /// Whether a coflow was refused, now or before.
    pub fn is_refused(&self, slot: Slot) -> bool {
        self.bookings
            .get(slot.0 as usize)
            .is_some_and(|booking| booking.as_ref().is_some_and(|one| one.refused))
    }

    /// The coflows that the last call of [`Admission::judge`] refused.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// Per slot, the least drain that keeps the promise from now until [`Admission::next_change`].
    pub fn least_drains(&mut self, now: Time, fabric: &Fabric, view: &CoflowTable) -> &[f64] {
        let drain = |booking: &Option<Booking>| booking.as_ref().map_or(0.0, |booking| booking.drain(now));
        self.drains.clear();
        self.drains.extend(self.bookings.iter().map(drain));
        self.fit_drains(fabric, view);
        &self.drains
    }

    /// When a least drain changes next.
    pub fn next_change(&self, now: Time) -> Option<Time> {
        self.bookings.iter().flatten().filter_map(|booking| booking.next_change(now)).min()
    }
}

/// The drain of a coflow that must be complete within a time; rounding makes it no later.
pub(crate) fn drain_within(span: Span) -> f64 {
    (1.0 + HASTE) / span.as_secs()
}

/// A link may be given this share of its capacity too much for so long: the rounding of sums, and of times to
/// nanoseconds.
pub(crate) fn noise_share(span: Span) -> f64 {
    timetable::ROUNDING.max(timetable::NOISE_SECS / span.as_secs())
}

/// The time that a coflow still needs if the network is its own.
fn alone(view: &CoflowTable, fabric: &Fabric, slot: Slot) -> Span {
    let links = view.coflow(slot).links().iter();
    let secs = links.map(|&link| view.demand(slot, link) / fabric.capacity(link).bytes_per_sec());
    Span::until_done(secs.fold(0.0, f64::max))
}

/// What a coflow has left on each of its links.
fn demand(view: &CoflowTable, slot: Slot) -> Vec<(LinkId, f64)> {
    let links = view.coflow(slot).links();
    let mut demand: Vec<_> = links.iter().map(|&link| (link, view.demand(slot, link))).collect();
    // By link, so that which of equally scarce links a refusal names does not depend on the order in which flows joined.
    demand.sort_unstable_by_key(|&(link, _)| link.0);
    demand
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, CoflowSpec, FlowId, FlowSpec, HostId};

    /// A switch of two hosts at 1 MB/s, and a coflow of so many MB from the first to the second.
    fn fabric() -> Fabric {
        Fabric::big_switch(2, Rate::from_bytes_per_sec(1e6)).unwrap()
    }

    fn flow(megabytes: u64) -> FlowSpec {
        FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(megabytes * 1_000_000), group: 0 }
    }

    fn coflow(id: u64, arrival_s: u64, megabytes: u64, deadline_s: u64) -> CoflowSpec {
        let spec = CoflowSpec::new(CoflowId(id), Time::from_millis(1000 * arrival_s), vec![flow(megabytes)]);
        CoflowSpec { deadline: Some(Span::from_millis(1000 * deadline_s)), ..spec }
    }

    fn judged(admission: &mut Admission, now_s: u64, table: &mut CoflowTable) -> Vec<Slot> {
        admission.judge(Time::from_millis(1000 * now_s), &fabric(), table);
        table.adopt(&crate::Plan::default());
        admission.refusals().iter().map(|refusal| refusal.coflow).collect()
    }

    #[test]
    fn a_refused_coflow_may_come_again() {
        let (mut table, mut admission) = (CoflowTable::new(&fabric()), Admission::default());
        let first = table.insert(&coflow(1, 0, 3, 3), FlowId(0), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), []);
        let second = table.insert(&coflow(2, 0, 2, 4), FlowId(1), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), [second], "3 + 2 by 4 are too much");
        assert!(admission.is_admitted(first) && admission.is_refused(second));
        assert_eq!(judged(&mut admission, 1, &mut table), [], "once is enough");
        table.remove(second);
        table.insert(&coflow(2, 1, 2, 5), FlowId(1), &fabric());
        // Nothing has moved, so the first cannot move its 3 by 3 any more; the second is booked beside its booking.
        assert_eq!(judged(&mut admission, 1, &mut table), [], "3 + 2 fit by 6");
    }

    #[test]
    fn of_coflows_that_come_at_one_moment_short_ones_are_judged_first() {
        let (mut table, mut admission) = (CoflowTable::new(&fabric()), Admission::default());
        let first = table.insert(&coflow(1, 0, 4, 4), FlowId(0), &fabric());
        table.insert(&coflow(2, 0, 1, 4), FlowId(1), &fabric());
        table.insert(&coflow(3, 0, 2, 4), FlowId(2), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), [first], "1 + 2 fit by 4, and 4 + 1 do not");
    }

    #[test]
    fn a_coflow_that_grows_beyond_its_booking_is_judged_anew() {
        let (mut table, mut admission) = (CoflowTable::new(&fabric()), Admission::default());
        let slot = table.insert(&coflow(1, 0, 2, 4), FlowId(0), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), []);
        table.add_flow(slot, FlowId(1), &flow(2), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), [], "4 fit by 4");
        assert_eq!(admission.least_drains(Time::ZERO, &fabric(), &table), [(1.0 + HASTE) / 4.0]);
        table.add_flow(slot, FlowId(2), &flow(1), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), [slot], "5 do not");
    }

    #[test]
    fn by_rates_a_coflow_needs_room_now_and_what_ran_ahead_makes_room() {
        // The first needs half of the link until 4, so a second cannot have three quarters of it until 2, though 2 + 1.5
        // fit by 4 in its turn.
        let (mut table, mut admission) = (CoflowTable::new(&fabric()), Admission::by_rates());
        let first = table.insert(&coflow(1, 0, 2, 4), FlowId(0), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), []);
        let spec =
            CoflowSpec { flows: vec![FlowSpec { size: Bytes(1_500_000), ..flow(1) }], ..coflow(2, 0, 1, 2) };
        let second = table.insert(&spec, FlowId(1), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), [second]);
        let refusal = &admission.refusals()[0];
        assert_eq!(
            (refusal.needed, refusal.left),
            (Rate::from_bytes_per_sec(75e4), Rate::from_bytes_per_sec(5e5))
        );
        let mut over_time = Admission::default();
        over_time.judge(Time::ZERO, &fabric(), &table);
        assert_eq!(over_time.refusals(), [], "over time both fit");
        // Backfill gave the first all of the link for 1 s: 1 left by 4 is a third of it, and two thirds are free.
        table.remove(second);
        let plan = crate::Plan { drains: vec![(first, 0.5)], ..crate::Plan::default() };
        table.adopt(&plan);
        table.advance(&plan, Span::from_millis(1000));
        table.adopt(&crate::Plan::default());
        let third = table.insert(&coflow(3, 1, 2, 4), FlowId(2), &fabric());
        assert_eq!(judged(&mut admission, 1, &mut table), [], "1 of 3 and 2 of 4");
        let drains = admission.least_drains(Time::from_millis(1000), &fabric(), &table);
        assert_eq!(drains[third.0 as usize], (1.0 + HASTE) / 4.0);
    }

    #[test]
    fn the_least_drain_is_the_share_of_the_piece_over_what_is_ahead() {
        // The second, due at 1, takes the first second; the first has 2 of 3 seconds left after it.
        let (mut table, mut admission) = (CoflowTable::new(&fabric()), Admission::default());
        let first = table.insert(&coflow(1, 0, 2, 4), FlowId(0), &fabric());
        let second = table.insert(&coflow(2, 0, 1, 1), FlowId(1), &fabric());
        assert_eq!(judged(&mut admission, 0, &mut table), []);
        let drains = admission.least_drains(Time::ZERO, &fabric(), &table);
        assert_eq!((drains[first.0 as usize], drains[second.0 as usize]), (0.0, 1.0 + HASTE));
        assert_eq!(admission.next_change(Time::ZERO), Some(Time::from_millis(1000)));
        table.remove(second);
        assert_eq!(
            admission.least_drains(Time::from_millis(1000), &fabric(), &table)[first.0 as usize],
            (1.0 + HASTE) / 2.0
        );
    }
}
