//! Exact max-min fairness between flows, by progressive filling (Bertsekas and Gallager, Data Networks,
//! section 6.5.2).
//!
//! # Problem
//! Give every flow a rate such that none can be raised without lowering one that is not larger. Done anew
//! for every flow at every event this is the whole cost of a simulation.
//!
//! # Approach
//! Flows of one path class have equal rates, and all classes limited by one link move at that link's
//! level, so only levels are computed. Links are taken by rising level; each takes its classes out of
//! the links they also cross. Three things save work from one plan to the next:
//! * Links before the first one whose flows changed keep their levels: filling resumes from a checkpoint.
//! * The order hardly changes: where paths have at most two links it is followed and mended, see
//!   [`follow`]. Else links are taken from a small window that slides over the last order. If a level
//!   comes out below the one before, the guess was wrong; the plan is made again with every link in the
//!   window.
//! * A share only grows while others are taken, so one computed earlier is a lower bound.
//!
//! # Terminology
//! * share of a link: capacity not yet taken / flows not yet limited elsewhere.
//! * level: the share of a link when it is taken; the rate of the flows it limits.
//! * done: a link that was taken, or whose flows are all limited elsewhere.
//! * own class of a link: one that it limits, the first of its path to be done.
//!
//! # Pseudo-code
//! ```text
//! resume from the last checkpoint before any link whose flows changed
//! window = next links of the last order
//! while window is not empty:
//!     link = least share in window; links without flows left are done, at level infinity
//!     level = share of link, must not be less than the last level (else again, with all links in the window)
//!     for class crossing link, not limited yet:
//!         for other link of class: capacity -= level * flows of class, flows -= flows of class
//!         if link overtook another and is not the class's limit of the last plan: report the switch
//!     link is done at this position of the new order; next link of the last order enters the window
//! ```
//! On paths of two links "not limited yet" needs no test: what is subtracted from a link that is done is
//! never read.
//!
//! # Properties
//! * Rising levels make the result right whatever the order was: every class crosses a full link on which
//!   no flow is faster, which is the max-min condition. The guess decides speed only.
//! * Cost per plan: one visit per (link that limits flows, class crossing it), from the checkpoint on.
//!
//! # Departures
//! None in the result. Window, check and checkpoints are ours.

mod follow;

use crate::{Class, ClassId, CoflowTable, Form, Plan};
use weir_model::{Fabric, LinkId, LinkKind, MAX_PATH_LINKS};

/// Links looked at for the next level when the order is expected to be nearly that of the last plan.
const WINDOW: usize = 12;
/// A checkpoint is kept every so many links.
const CHECKPOINT_LINKS: usize = 12;
/// Rows of up to so many times as many places as entries are walked as a whole.
const DENSE_SPREAD: usize = 4;
/// A level below the last by less than this share is the same level, rounded.
const ROUNDING: f64 = 1e-9;

/// A class on one of its links, where its path has at most one more.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The other link, or one past the last link.
    other: u32,
    live: f32,
}

/// What is not decided yet of every link (and, unused, of one past the last).
#[derive(Clone, Debug, Default)]
struct Open {
    capacity: Vec<f64>,
    flows: Vec<f64>,
}

impl Open {
    fn copy_from(&mut self, other: &Open) {
        self.capacity.clone_from(&other.capacity);
        self.flows.clone_from(&other.flows);
    }
}

/// Classes crossing a link.
#[derive(Clone, Debug, Default)]
struct Crossing {
    /// Classes on paths of one or two links, and whose they are.
    short: Vec<Entry>,
    classes: Vec<u32>,
    /// Whether the link was the limit of the class in the last plan, parallel to `short`.
    own: Vec<bool>,
    /// `short` once more as live flows per other link from `base` on, while that is not too sparse.
    row: Vec<f32>,
    base: usize,
    /// Classes on longer paths.
    long: Vec<u32>,
}

impl Crossing {
    /// Adds to the live flows of an entry in the row, which covers every other link met so far.
    fn note(&mut self, other: u32, delta: f32) {
        let other = other as usize;
        if self.row.is_empty() {
            self.base = other;
        }
        if other < self.base {
            let gap = self.base - other;
            self.row.splice(0..0, std::iter::repeat_n(0.0, gap));
            self.base = other;
        }
        let at = other - self.base;
        if at >= self.row.len() {
            self.row.resize(at + 1, 0.0);
        }
        self.row[at] += delta;
    }

    /// Takes all classes on short paths out of the links they also cross.
    fn take_short(&self, level: f64, open: &mut Open) {
        // As long as holes are few, two arrays walked in step are cheaper than scattered writes; a
        // hole holds 0 and changes nothing.
        if self.row.len() <= DENSE_SPREAD * self.short.len() {
            let range = self.base..self.base + self.row.len();
            let (capacity, flows) = (&mut open.capacity[range.clone()], &mut open.flows[range]);
            for ((capacity, flows), &live) in capacity.iter_mut().zip(flows).zip(&self.row) {
                *capacity -= f64::from(live) * level;
                *flows -= f64::from(live);
            }
            return;
        }
        for entry in &self.short {
            let live = f64::from(entry.live);
            open.capacity[entry.other as usize] -= live * level;
            open.flows[entry.other as usize] -= live;
        }
    }
}

/// What is known of a class.
#[derive(Clone, Copy, Debug)]
struct Known {
    live: u32,
    /// Position of its entry at each of its links.
    at: [u32; MAX_PATH_LINKS],
    /// Link that limits it, one past the last link if none yet.
    limit: u32,
}

/// The state of a filling before the link at `position` was taken.
#[derive(Clone, Debug, Default)]
struct Checkpoint {
    position: usize,
    level: f64,
    open: Open,
}

/// A path by places of links.
#[derive(Clone, Copy)]
struct Places {
    of: [u32; MAX_PATH_LINKS],
    len: usize,
}

impl std::ops::Deref for Places {
    type Target = [u32];
    #[inline]
    fn deref(&self) -> &[u32] {
        &self.of[..self.len]
    }
}

/// Progressive filling that remembers the last plan. Within, links are numbered by place: uplinks of hosts, then their
/// downlinks, then all others, so that the links that share flows with one are in a row.
#[derive(Debug, Default)]
pub struct MaxMin {
    /// Per link, its place; per place, its link.
    place_of: Vec<u32>,
    link_at: Vec<LinkId>,
    shape: u64,
    links: usize,
    capacity: Vec<f64>,
    crossing: Vec<Crossing>,
    known: Vec<Known>,
    /// Flows per link, each counted once.
    flows: Vec<u64>,
    /// Change of `flows` since the last plan, and the links that were touched.
    deltas: Vec<i64>,
    touched: Vec<u32>,
    order: Vec<u32>,
    new_order: Vec<u32>,
    position: Vec<u32>,
    levels: Vec<f64>,
    checkpoints: Vec<Checkpoint>,
    spare: Vec<Checkpoint>,
    open: Open,
    done: Vec<bool>,
    /// Lower bound of its share, position in the last order, link.
    window: Vec<(f64, u32, u32)>,
    /// Flows per link that it limits.
    limited: Vec<f64>,
    /// Per link (and one past the last), its level once it is taken, else 0.
    taken: Vec<f64>,
    /// Links given back, the next one last.
    pending: Vec<u32>,
    /// Links that limit no flow.
    idle: Vec<u32>,
    /// Whether there is a class with more than two links.
    long_paths: bool,
}

impl MaxMin {
    /// Fills the levels of a plan and the classes whose limiting link changed.
    pub fn allocate(&mut self, fabric: &Fabric, view: &CoflowTable, plan: &mut Plan) {
        let mut expected = self.same_capacities(fabric);
        let changes = view.changes();
        for &class in &changes.classes {
            self.update(view.classes(), class);
        }
        // New coflows have no place in the last order.
        let no_link = self.links as u32;
        let has_place = |class: &ClassId| {
            let known = &self.known[class.index()];
            known.live == 0 || known.limit != no_link
        };
        expected &= changes.arrived.is_empty() && changes.classes.iter().all(has_place);
        plan.form = Form::Levels;
        plan.levels.resize(self.links, f64::INFINITY);
        let resumed = expected && {
            if self.long_paths {
                self.keep_checkpoints();
                self.fill(view.classes(), WINDOW, plan)
            } else {
                self.follow(plan)
            }
        };
        if !resumed {
            // Reports of the pass that failed; each class is reported anew below.
            plan.switched.clear();
            self.drop_checkpoints(0);
            // With every link in the window no guess is left that could be wrong: this pass always succeeds.
            self.fill(view.classes(), usize::MAX, plan);
        }
        self.forget_deltas();
        for at in 0..plan.switched.len() {
            let (class, link) = plan.switched[at];
            self.note_limit(view.classes(), class, self.place_of[link.index()]);
        }
        for &class in &changes.classes {
            self.place_new(view.classes(), class, plan);
        }
        // The plan so far is by place; the copy stays so, and the plan is rewritten by link.
        self.levels.clone_from(&plan.levels);
        for (level, &place) in plan.levels.iter_mut().zip(&self.place_of) {
            *level = self.levels[place as usize];
        }
    }

    /// The places of a path's links.
    #[inline]
    fn places(&self, path: &[LinkId]) -> Places {
        let mut places = Places { of: [0; MAX_PATH_LINKS], len: path.len() };
        places.of.iter_mut().zip(path).for_each(|(place, link)| *place = self.place_of[link.index()]);
        places
    }

    /// Numbers links by place.
    fn number(&mut self, fabric: &Fabric) {
        let side = |link: &LinkId| match fabric.links()[link.index()].kind {
            LinkKind::Uplink(_) => 0,
            LinkKind::Downlink(_) => 1,
            LinkKind::RackUplink(_) | LinkKind::RackDownlink(_) | LinkKind::Site { .. } => 2,
        };
        self.link_at = (0..self.links as u32).map(LinkId).collect();
        self.link_at.sort_by_key(side);
        self.place_of = vec![0; self.links];
        (0u32..).zip(&self.link_at).for_each(|(place, link)| self.place_of[link.index()] = place);
    }

    /// Whether the capacities are those of the last plan; takes over the new ones. Of another network nothing is known.
    fn same_capacities(&mut self, fabric: &Fabric) -> bool {
        let links = fabric.links();
        if self.links != links.len() || self.shape != fabric.shape() {
            *self = MaxMin { shape: fabric.shape(), links: links.len(), ..MaxMin::default() };
            self.crossing = vec![Crossing::default(); self.links];
            self.flows = vec![0; self.links];
            self.deltas = vec![0; self.links];
            self.limited = vec![0.0; self.links];
            self.order = (0..self.links as u32).collect();
            self.position = self.order.clone();
            self.done = vec![false; self.links + 1];
            self.number(fabric);
        }
        let now = self.link_at.iter().map(|link| links[link.index()].capacity.bytes_per_sec());
        let same = self.capacity.iter().copied().eq(now.clone());
        if !same {
            let now = now.collect();
            self.capacity = now;
        }
        same
    }

    /// Drops the checkpoints after the first touched link and brings the others up to date: nothing of
    /// a touched class was taken out before them.
    fn keep_checkpoints(&mut self) {
        let first = self.touched.iter().map(|&link| self.position[link as usize]).min();
        let first = first.map_or(usize::MAX, |first| first as usize);
        let keep = self.checkpoints.partition_point(|checkpoint| checkpoint.position <= first);
        self.drop_checkpoints(keep);
        self.touched.sort_unstable();
        self.touched.dedup();
        for checkpoint in &mut self.checkpoints {
            for &link in &self.touched {
                checkpoint.open.flows[link as usize] += self.deltas[link as usize] as f64;
            }
        }
    }

    fn drop_checkpoints(&mut self, keep: usize) {
        self.spare.extend(self.checkpoints.drain(keep..));
    }

    fn forget_deltas(&mut self) {
        for link in self.touched.drain(..) {
            self.deltas[link as usize] = 0;
        }
    }

    /// Takes over the number of live flows of a class.
    fn update(&mut self, classes: &[Class], class: ClassId) {
        let no_link = self.links as u32;
        self.known.resize(classes.len(), Known { live: 0, at: [u32::MAX; MAX_PATH_LINKS], limit: no_link });
        let (path, live) = (self.places(classes[class.index()].path()), classes[class.index()].live());
        let before = std::mem::replace(&mut self.known[class.index()].live, live);
        self.long_paths |= path.len() > 2;
        // While the class has no limit, `limit` is one past the last link, and `get_mut` finds
        // nothing.
        if let Some(limited) = self.limited.get_mut(self.known[class.index()].limit as usize) {
            *limited += f64::from(live) - f64::from(before);
        }
        for (step, &link) in path.iter().enumerate() {
            let at = link as usize;
            // Plus first: the numbers are unsigned.
            self.flows[at] = self.flows[at] + u64::from(live) - u64::from(before);
            if self.deltas[at] == 0 {
                // Noted twice if deltas cancel out on the way.
                self.touched.push(link);
            }
            self.deltas[at] += i64::from(live) - i64::from(before);
            match (before, live) {
                (0, 0) => {}
                (0, _) => self.enter(class, &path, step, live),
                (_, 0) => self.leave(classes, class, link, step),
                _ if path.len() <= 2 => {
                    let entry = self.known[class.index()].at[step] as usize;
                    self.crossing[at].short[entry].live = live as f32;
                    let other = self.crossing[at].short[entry].other;
                    self.crossing[at].note(other, live as f32 - before as f32);
                }
                _ => {}
            }
        }
        if live == 0 {
            self.known[class.index()].limit = no_link;
        }
    }

    fn enter(&mut self, class: ClassId, path: &[u32], step: usize, live: u32) {
        let crossing = &mut self.crossing[path[step] as usize];
        if path.len() <= 2 {
            let other = path.get(1 - step.min(1)).filter(|_| path.len() == 2);
            let other = other.copied().unwrap_or(self.links as u32);
            self.known[class.index()].at[step] = crossing.short.len() as u32;
            crossing.short.push(Entry { other, live: live as f32 });
            crossing.classes.push(class.0);
            crossing.own.push(false);
            crossing.note(other, live as f32);
        } else {
            self.known[class.index()].at[step] = crossing.long.len() as u32;
            crossing.long.push(class.0);
        }
    }

    fn leave(&mut self, classes: &[Class], class: ClassId, link: u32, step: usize) {
        let crossing = &mut self.crossing[link as usize];
        let at = self.known[class.index()].at[step] as usize;
        // The last entry takes the place of the one removed, and its class must learn where it is now.
        let moved = if classes[class.index()].path().len() <= 2 {
            let ended = crossing.short.swap_remove(at);
            crossing.note(ended.other, -ended.live);
            crossing.own.swap_remove(at);
            crossing.classes.swap_remove(at);
            crossing.classes.get(at)
        } else {
            crossing.long.swap_remove(at);
            crossing.long.get(at)
        };
        if let Some(&moved) = moved {
            let path = self.places(classes[moved as usize].path());
            let step = path.iter().position(|&other| other == link).expect("a class that crosses the link");
            self.known[moved as usize].at[step] = at as u32;
        }
    }

    /// Remembers the limit of a class that switched, or was new.
    fn note_limit(&mut self, classes: &[Class], class: ClassId, link: u32) {
        let path = self.places(classes[class.index()].path());
        let known = &mut self.known[class.index()];
        known.limit = link;
        if path.len() <= 2 {
            for (step, other) in path.iter().enumerate() {
                self.crossing[*other as usize].own[known.at[step] as usize] = *other == link;
            }
        }
    }

    /// The limit of a class that had no live flow at the last plan: the first of its links to be done.
    fn place_new(&mut self, classes: &[Class], class: ClassId, plan: &mut Plan) {
        let known = self.known[class.index()];
        if known.live == 0 || known.limit != self.links as u32 {
            return;
        }
        let path = self.places(classes[class.index()].path());
        let first = path.iter().min_by_key(|&&link| self.position[link as usize]);
        if let Some(&link) = first {
            plan.switched.push((class, self.link_at[link as usize]));
            self.note_limit(classes, class, link);
        }
    }

    /// Puts back the state at the last checkpoint, or at the beginning, and returns level and position.
    fn resume(&mut self) -> (f64, usize) {
        self.window.clear();
        self.new_order.clear();
        self.done.fill(false);
        let Some(checkpoint) = self.checkpoints.last() else {
            self.open.capacity.clone_from(&self.capacity);
            // One past the last link: the other link of classes whose path has only one, so that the loops need no test.
            self.open.capacity.push(0.0);
            self.open.flows.clear();
            self.open.flows.extend(self.flows.iter().map(|&flows| flows as f64));
            self.open.flows.push(0.0);
            return (0.0, 0);
        };
        self.open.copy_from(&checkpoint.open);
        self.new_order.extend_from_slice(&self.order[..checkpoint.position]);
        for &link in &self.new_order {
            self.done[link as usize] = true;
        }
        (checkpoint.level, checkpoint.position)
    }

    /// One pass of progressive filling; false if the levels did not rise.
    fn fill(&mut self, classes: &[Class], window: usize, plan: &mut Plan) -> bool {
        let (mut last, start) = self.resume();
        plan.levels.clone_from(&self.levels);
        plan.levels.resize(self.links, f64::INFINITY);
        let mut waiting = start;
        let mut due = start + CHECKPOINT_LINKS;
        loop {
            while self.window.len() < window && waiting < self.links {
                self.window.push((0.0, waiting as u32, self.order[waiting]));
                waiting += 1;
            }
            if self.new_order.len() >= due {
                due = self.new_order.len() + CHECKPOINT_LINKS;
                self.save(last);
            }
            let Some((level, overtook, link)) = self.next_level(plan) else {
                if waiting == self.links {
                    break;
                }
                continue;
            };
            // With all links in the window a falling level can only be rounding, and is raised to the last one.
            if level < last * (1.0 - ROUNDING) && window < self.links {
                return false;
            }
            last = level.max(last);
            plan.levels[link] = last;
            self.limited[link] = self.open.flows[link];
            self.take(classes, link, last, overtook, plan);
        }
        std::mem::swap(&mut self.order, &mut self.new_order);
        for (position, &link) in (0u32..).zip(&self.order) {
            self.position[link as usize] = position;
        }
        true
    }

    fn save(&mut self, level: f64) {
        let mut checkpoint = self.spare.pop().unwrap_or_default();
        checkpoint.position = self.new_order.len();
        checkpoint.level = level;
        checkpoint.open.copy_from(&self.open);
        self.checkpoints.push(checkpoint);
    }

    /// Takes the link of least share out of the window, and all that have no flows left; tells whether
    /// a link that was before it in the last order is still in the window. A link without flows on which
    /// more was taken than it has should have come earlier: its level is below any.
    fn next_level(&mut self, plan: &mut Plan) -> Option<(f64, bool, usize)> {
        let (mut least, mut best) = (f64::INFINITY, usize::MAX);
        let (mut first, mut at) = (u32::MAX, 0);
        while at < self.window.len() {
            let (bound, position, link) = self.window[at];
            if bound <= least {
                let (capacity, flows) = (self.open.capacity[link as usize], self.open.flows[link as usize]);
                // Numbers of flows are whole, though kept as doubles: less than one half is none.
                if flows < 0.5 {
                    if capacity < -ROUNDING * self.capacity[link as usize] {
                        return Some((f64::NEG_INFINITY, false, link as usize));
                    }
                    plan.levels[link as usize] = f64::INFINITY;
                    self.limited[link as usize] = 0.0;
                    self.done[link as usize] = true;
                    self.new_order.push(link);
                    self.window.swap_remove(at);
                    // `swap_remove` moved the last entry to `at`. If that one was the best so far,
                    // its index moved along.
                    if best == self.window.len() {
                        best = at;
                    }
                    continue;
                }
                let share = capacity / flows;
                self.window[at].0 = share;
                // Equal shares: the lower place goes first. The order of the window depends on
                // earlier plans and must not decide.
                if share < least || (share == least && link < self.window[best].2) {
                    (least, best) = (share, at);
                }
            }
            first = first.min(position);
            at += 1;
        }
        let &(_, position, link) = self.window.get(best)?;
        self.window.swap_remove(best);
        Some((least, position > first, link as usize))
    }

    /// Gives all classes that cross the link and are not limited yet its level.
    fn take(&mut self, classes: &[Class], link: usize, level: f64, overtook: bool, plan: &mut Plan) {
        self.done[link] = true;
        self.new_order.push(link as u32);
        let crossing = &self.crossing[link];
        crossing.take_short(level, &mut self.open);
        if overtook {
            let with_owner = crossing.short.iter().zip(&crossing.own).zip(&crossing.classes);
            for ((entry, own), &class) in with_owner {
                if !own && !self.done[entry.other as usize] {
                    plan.switched.push((ClassId(class), self.link_at[link]));
                }
            }
        }
        for &class in &crossing.long {
            let (path, known) = (self.places(classes[class as usize].path()), &self.known[class as usize]);
            let others = || path.iter().map(|&other| other as usize).filter(|&other| other != link);
            // Limited by a link taken before, which has already taken the class out of all its links.
            if others().any(|other| self.done[other]) {
                continue;
            }
            if known.limit != link as u32 {
                plan.switched.push((ClassId(class), self.link_at[link]));
            }
            let live = f64::from(known.live);
            for other in others() {
                self.open.capacity[other] -= live * level;
                self.open.flows[other] -= live;
            }
        }
    }
}
