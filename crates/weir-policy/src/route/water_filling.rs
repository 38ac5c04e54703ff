//! Water-filling over one-relay detours (Siphon, ATC 2018, section 3.3).
//!
//! # Problem
//! Bandwidths between sites differ, and so do the amounts that a shuffle moves between them: with direct links alone
//! the slowest pair decides when the shuffle ends, while other links stand idle. A relay at a third site opens two
//! of these to that pair. Which bytes should take which detour so that the last link is done early?
//!
//! # Approach
//! All traffic starts on its direct link. Take the link that will be done last and move a part of its traffic to the
//! detour that has least to do, as much as makes both be done at the same time; then look again. The rule is greedy:
//! it needs no solver, microseconds, and may miss the optimum.
//!
//! # Terminology
//! * D(l), B(l): bytes over link l, relayed ones included, and its capacity. t(l) = D(l) / B(l) is its time.
//! * bottleneck l*: the link with the largest time. The makespan is t(l*).
//! * path: the direct link of a pair of sites, or one of its detours. Time of a path: that of its slower link.
//! * alpha: the share of D(l*) that is moved. With D*, B* of the bottleneck and D', B' of a link of the detour,
//!   D* (1 - alpha) / B* = (D* alpha + D') / B' gives alpha = (D* B' - D' B*) / (D* (B' + B*)).
//!
//! # Pseudo-code
//! ```text
//! one iteration, published:
//!     l* = the link with the largest time
//!     detour = the one of l*'s pair with the least time
//!     alpha = the least that the formula gives for the detour's links, and no more than l*'s direct traffic is
//!     move alpha D* from the direct link to the detour
//!     published: again, until alpha <= epsilon
//! converged:
//!     for link l in order of falling time:
//!         for (pair, path) with bytes on l:
//!             new path = the other one of the pair with the least time
//!             move as above, with l in the place of l*
//!     again, until a sweep moved nothing, or several did not lower the makespan
//! ```
//!
//! # Properties
//! * No step makes the makespan longer: links that gain end at the time of the link that is relieved, or before.
//! * All bytes of a pair are on some path of it, and every link has what its paths put on it.
//! * `converged` is never behind `published`: it goes on from there.
//! * Ties break by (sending site, receiving site), then by relay.
//!
//! # Departures
//! * The paper solves for the heavier link of the detour. The link that limits what can be moved may be the other one,
//!   if it is smaller; the least of both keeps the makespan from rising.
//! * `published` moves direct traffic of the bottleneck, and ends when none of it can move. Bytes that were moved onto
//!   a detour stay there, also where that has become the bottleneck: one pair with three paths of equal links ends
//!   with 1/4, 1/2 and 1/4 of its bytes on them. `converged`, which is ours, moves whatever crosses a link, back to
//!   the direct link too, and relieves links in the bottleneck's way that are not the bottleneck themselves. What it
//!   misses of the optimum is what takes moves of several pairs at once.

use super::{Router, Routes, SiteDemand, links};

/// A share of a link's bytes too small to move.
const EPSILON: f64 = 1e-4;
/// Sweeps that leave the makespan (by `EPSILON`) where it was, before the last one. One such sweep may clear the way
/// for the next: ending after the first would leave some demands a tenth slower.
const IDLE_SWEEPS: usize = 4;
/// Most steps, and most sweeps, for one demand; dozens do in practice, as every move evens out a difference.
const MAX_ROUNDS: usize = 10_000;

/// How far water-filling goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// No bytes are moved: all go directly.
    Direct,
    /// One move, off the link that is slowest with direct links alone: the paper's first iteration.
    OneIteration,
    /// The paper's iteration, until the bottleneck's direct traffic cannot be moved.
    Published,
    /// From there on, until no traffic of any link can be moved to a faster path: ours.
    Converged,
}

impl Rule {
    /// All of them, from the least work to the most.
    pub const ALL: [Rule; 4] = [Rule::Direct, Rule::OneIteration, Rule::Published, Rule::Converged];

    /// What the rule is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Direct => "direct",
            Rule::OneIteration => "one-iteration",
            Rule::Published => "published",
            Rule::Converged => "converged",
        }
    }

    /// Splits a demand over direct links and detours.
    pub fn route(self, demand: &SiteDemand) -> Routes {
        let mut routes = Routes::direct(demand);
        let rounds = match self {
            Rule::Direct => 0,
            Rule::OneIteration => 1,
            Rule::Published | Rule::Converged => MAX_ROUNDS,
        };
        for _ in 0..rounds {
            if !relieve_bottleneck(&mut routes) {
                break;
            }
        }
        if self == Rule::Converged {
            level(&mut routes);
        }
        routes
    }
}

impl Router for Rule {
    fn route(&self, demand: &SiteDemand) -> Routes {
        Rule::route(*self, demand)
    }
}

type Link = (usize, usize);

/// The paper's step. Says whether bytes were moved.
fn relieve_bottleneck(routes: &mut Routes) -> bool {
    let slower = |one: Link, other: Link| {
        // Strictly: of equally slow links the first pair by (sending, receiving site) counts.
        if time_s(routes, other) > time_s(routes, one) { other } else { one }
    };
    let Some(bottleneck) = routes.demand().pairs().reduce(slower) else { return false };
    // Only the bottleneck's own direct traffic, as published: bytes that others relay over it stay.
    relieve(routes, bottleneck, bottleneck, bottleneck.1)
}

/// Sweeps over all links until none can be relieved, or the bottleneck is not.
fn level(routes: &mut Routes) {
    let mut sweep: Vec<(f64, Link)> = Vec::new();
    let (mut lowest_s, mut idle) = (routes.makespan_s(), 0);
    for _ in 0..MAX_ROUNDS {
        sweep.clear();
        sweep.extend(routes.demand().pairs().map(|link| (time_s(routes, link), link)));
        sweep.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let mut moved = false;
        for &(_, link) in &sweep {
            for (pair, next_hop) in crossing(link, routes.demand().sites()) {
                // Times of links in the sweep are those of its beginning; `relieve` looks at those of now and never moves too much.
                moved |= relieve(routes, link, pair, next_hop);
            }
        }
        let makespan_s = routes.makespan_s();
        if makespan_s < lowest_s * (1.0 - EPSILON) {
            (lowest_s, idle) = (makespan_s, 0);
        } else {
            idle += 1;
        }
        if !moved || idle == IDLE_SWEEPS {
            return;
        }
    }
}

/// All paths over a link: the direct one, then detours whose first link it is, or second, by the third site.
fn crossing((from, to): Link, sites: usize) -> impl Iterator<Item = (Link, usize)> {
    let others = (0..sites).filter(move |&other| other != from && other != to);
    let detours = others.flat_map(move |other| [((from, other), to), ((other, to), from)]);
    std::iter::once(((from, to), to)).chain(detours)
}

/// Moves bytes of a pair that cross `link` by `next_hop` to the fastest other path of the pair, so many that link and
/// path are done at the same time. Says whether it was worth it.
fn relieve(routes: &mut Routes, link: Link, pair: Link, next_hop: usize) -> bool {
    let least = EPSILON * routes.link_bytes(link.0, link.1);
    if routes.split_bytes(pair.0, pair.1, next_hop) <= least {
        return false;
    }
    // The receiving site as next hop is the direct link: bytes on a detour may go back to it.
    let others = (0..routes.demand().sites()).filter(|&hop| hop != pair.0 && hop != next_hop);
    let open = others.filter(|&hop| {
        links(pair, hop).all(|(from, to)| routes.demand().capacity[from * routes.demand().sites + to] > 0.0)
    });
    let paths = open.map(|hop| (links(pair, hop).map(|link| time_s(routes, link)).fold(0.0, f64::max), hop));
    let Some((_, new_hop)) = paths.reduce(|one, other| if other.0 < one.0 { other } else { one }) else {
        return false;
    };
    let bytes =
        // The least of both links of a detour, where the paper takes the heavier: else the lighter one could become the bottleneck.
        links(pair, new_hop).map(|other| levelling_bytes(routes, link, other)).fold(f64::INFINITY, f64::min);
    // Two links evened out against each other would exchange ever smaller amounts without end.
    bytes > least && routes.shift(pair, next_hop, new_hop, bytes) > 0.0
}

/// Bytes whose move from a link to another lets both be done at the same time (alpha D*); below 0 where the other
/// one is done later already.
fn levelling_bytes(routes: &Routes, link: Link, other: Link) -> f64 {
    let of = |(from, to)| (routes.link_bytes(from, to), routes.demand().capacity(from, to).bytes_per_sec());
    let ((bytes, capacity), (other_bytes, other_capacity)) = (of(link), of(other));
    (bytes * other_capacity - other_bytes * capacity) / (capacity + other_capacity)
}

fn time_s(routes: &Routes, (from, to): Link) -> f64 {
    routes.link_time_s(from, to)
}

#[cfg(test)]
mod tests;
