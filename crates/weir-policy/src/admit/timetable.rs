//! What is left of every link over time.

use weir_model::{Fabric, LinkId, Time};

/// A booking may lack this much of the time its coflow needs alone: a hundredth of a nanosecond, as much as the
/// end of a flow may be late and count as on time.
pub(super) const NOISE_SECS: f64 = 1e-11;
/// A share this small is rounding.
pub(super) const ROUNDING: f64 = 1e-12;
/// What a link carries in this time may be left of one that is full: pieces end at whole nanoseconds.
const ROUNDED_SECS: f64 = 2e-9;

/// A time during which a coflow moves a share of what it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Piece {
    pub(super) from: Time,
    pub(super) until: Time,
    pub(super) share: f64,
}

impl Piece {
    /// The part of its share that moves after `now`.
    pub(super) fn share_after(&self, now: Time) -> f64 {
        if now <= self.from {
            return self.share;
        }
        if now >= self.until {
            return 0.0;
        }
        self.share * self.until.since(now).as_secs() / self.until.since(self.from).as_secs()
    }
}

/// Capacity not booked, constant between edges.
#[derive(Clone, Debug)]
pub(super) struct Timetable {
    capacity: Vec<f64>,
    /// Where it changes, rising; the last one holds for ever.
    edges: Vec<Time>,
    /// Per edge, what is left of every link from there on.
    left: Vec<Vec<f64>>,
}

impl Timetable {
    /// Everything is free from `now` on.
    pub(super) fn new(now: Time, fabric: &Fabric) -> Timetable {
        let capacity: Vec<f64> = fabric.links().iter().map(|link| link.capacity.bytes_per_sec()).collect();
        Timetable { left: vec![capacity.clone()], capacity, edges: vec![now] }
    }

    /// Makes `at` an edge and returns its index; the first edge if it is earlier.
    fn edge(&mut self, at: Time) -> usize {
        match self.edges.binary_search(&at) {
            Ok(index) => index,
            Err(0) => 0,
            Err(index) => {
                self.edges.insert(index, at);
                self.left.insert(index, self.left[index - 1].clone());
                index
            }
        }
    }

    /// Lets what is left at first be left for ever.
    pub(super) fn hold(&mut self) {
        self.edges.truncate(1);
        self.left.truncate(1);
    }

    /// Books pieces of a coflow that has `demand` over `scale` to move in all of them.
    pub(super) fn take(&mut self, pieces: &[Piece], demand: &[(LinkId, f64)], scale: f64) {
        for piece in pieces {
            let secs = piece.until.since(piece.from).as_secs();
            // In this order: an edge that is put in moves only those after it, so that `from` stays
            // right.
            let (from, until) = (self.edge(piece.from), self.edge(piece.until));
            for left in &mut self.left[from..until] {
                for &(link, bytes) in demand {
                    let left = &mut left[link.index()];
                    *left = (*left - bytes * scale * piece.share / secs).max(0.0);
                }
            }
        }
    }

    /// Books a coflow as early as possible: in every interval before `due` it gets the share that its scarcest
    /// link has left, until it has everything. `None`, and nothing booked, if that is not enough.
    pub(super) fn book(&mut self, demand: &[(LinkId, f64)], due: Time) -> Option<Vec<Piece>> {
        let alone =
            demand.iter().map(|&(link, bytes)| bytes / self.capacity[link.index()]).fold(0.0, f64::max);
        // What may be missing, as a share: what the coflow alone would move in `NOISE_SECS`.
        let enough = if alone > 0.0 { ROUNDING.max(NOISE_SECS / alone) } else { f64::INFINITY };
        let mut pieces: Vec<Piece> = Vec::new();
        let mut missing = 1.0;
        for index in 0..self.edges.len() {
            let from = self.edges[index];
            if missing <= enough || from >= due {
                break;
            }
            let until = self.edges.get(index + 1).copied().unwrap_or(Time::MAX).min(due);
            let left = &self.left[index];
            let rates = demand.iter().map(|&(link, bytes)| left[link.index()] / bytes);
            let per_sec = rates.fold(f64::INFINITY, f64::min);
            // What rounding left of a full link: a piece of it would be an edge more in the timetable, and bytes that never move. Ends
            // of pieces are whole nanoseconds, so that it may be what a link carries in one, however little the coflow has there.
            let secs = until.since(from).as_secs();
            let is_full = |&(link, _): &(LinkId, f64)| {
                left[link.index()] * secs <= self.capacity[link.index()] * ROUNDED_SECS
            };
            if per_sec * alone <= ROUNDING || demand.iter().any(is_full) {
                continue;
            }
            let filled = from + weir_model::Span::until_done(missing / per_sec);
            let share = if filled <= until { missing } else { per_sec * until.since(from).as_secs() };
            pieces.push(Piece { from, until: until.min(filled), share });
            missing -= share;
        }
        if missing > enough {
            return None;
        }
        let booked = 1.0 - missing;
        // The shares must sum to 1, also where up to `enough` is missing: drains are computed from what is ahead.
        pieces.iter_mut().for_each(|piece| piece.share /= booked);
        self.take(&pieces, demand, 1.0);
        Some(pieces)
    }

    /// The link on which a coflow lacks most until `due`: the link, the rate needed and the rate left there on
    /// average.
    pub(super) fn scarcest(&self, demand: &[(LinkId, f64)], due: Time) -> (LinkId, f64, f64) {
        // A deadline that is now: at least a nanosecond, the resolution of times, so that rates
        // stay finite.
        let secs = due.since(self.edges[0]).as_secs().max(1e-9);
        let mut found = (LinkId(0), 0.0, f64::INFINITY);
        for &(link, bytes) in demand {
            let ends = self.edges.iter().skip(1).copied().chain([Time::MAX]);
            let until_due = self.edges.iter().zip(ends).zip(&self.left);
            let left = until_due
                .map(|((&from, until), left)| left[link.index()] * until.min(due).since(from).as_secs());
            let (needed, left) = (bytes / secs, left.sum::<f64>() / secs);
            // What rounding leaves of a full link is nothing.
            let left = if left > self.capacity[link.index()] * 1e-9 { left } else { 0.0 };
            // Compares needed / left of both links without a division by 0.
            if needed * found.2 > found.1 * left || found.1 == 0.0 {
                found = (link, needed, left);
            }
        }
        found
    }
}
