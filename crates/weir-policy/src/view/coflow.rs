//! One live coflow: its flows, and their sums per link.

use super::ClassId;
use super::line::{FLOOR_BYTES, Line};
use super::load::Load;
use super::moving::{Drain, Moving};
use super::paced::Paced;
use super::place::NONE;
use crate::bits::BitSet;
use weir_model::{Bytes, CoflowId, Dependencies, FlowId, HostId, JobId, LinkId, Path, Span, Time};

/// One flow of a live coflow.
#[derive(Clone, Debug)]
pub struct Flow {
    pub(super) id: FlowId,
    pub(super) size: Bytes,
    /// Drained coflows: left = base * scale, and 0 while it has a grant. Levels: left = base - service(class).
    pub(super) base: f64,
    pub(super) class: Option<ClassId>,
    /// Its place among the flows with a grant.
    pub(super) granted: u32,
    /// Next flow of the same source and destination.
    pub(super) next: u32,
    group: u32,
    pub(super) live: bool,
}

impl Flow {
    /// Identity, as its owner gave it.
    pub fn id(&self) -> FlowId {
        self.id
    }
    /// Bytes to move in all.
    pub fn size(&self) -> Bytes {
        self.size
    }
    /// The task at its receiving end, as in [`weir_model::FlowSpec::group`].
    pub fn group(&self) -> u32 {
        self.group
    }
    /// Whether it has neither finished nor been removed.
    pub fn live(&self) -> bool {
        self.live
    }
    /// Its path class; `None` where it crosses no link.
    #[inline]
    pub fn class(&self) -> Option<ClassId> {
        self.class
    }
}

/// First flow per destination: an array over the span of destinations, or, where that would be mostly
/// holes, over those in use.
#[derive(Clone, Debug)]
enum Heads {
    Dense { base: usize, flows: Vec<u32> },
    Sparse { used: BitSet, flows: Vec<u32> },
}

/// The live flows of a coflow from one source, by destination.
#[derive(Clone, Debug)]
pub struct Row {
    /// First live flow per destination; flows of one pair are chained by rising index.
    heads: Heads,
}

impl Row {
    fn new(destination: usize) -> Row {
        Row { heads: Heads::Dense { base: destination, flows: Vec::new() } }
    }

    /// The first live flow to a destination with one.
    #[inline]
    pub fn first(&self, destination: usize) -> u32 {
        match &self.heads {
            Heads::Dense { base, flows } => flows[destination - base],
            Heads::Sparse { used, flows } => flows[used.rank(destination)],
        }
    }

    /// The place of the first live flow to a destination, made if there was none.
    fn head(&mut self, destination: usize, hosts: usize) -> &mut u32 {
        if let Heads::Dense { base, flows } = &mut self.heads {
            // The array of a new row is empty: its base then counts as its only place.
            let (low, high) = (destination.min(*base), destination.max(*base + flows.len().max(1) - 1));
            let used = flows.iter().filter(|&&flow| flow != NONE);
            let in_range = destination >= *base && destination < *base + flows.len();
            // The count is taken only when the array must grow.
            if !in_range && high - low >= 128 && high - low > 4 * used.count() + 128 {
                let mut set = BitSet::new(hosts);
                (0..flows.len()).filter(|&at| flows[at] != NONE).for_each(|at| set.insert(*base + at));
                let flows = flows.iter().copied().filter(|&flow| flow != NONE).collect();
                self.heads = Heads::Sparse { used: set, flows };
            } else if !in_range {
                flows.splice(0..0, std::iter::repeat_n(NONE, *base - low));
                *base = low;
                flows.resize(high - low + 1, NONE);
            }
        }
        match &mut self.heads {
            Heads::Dense { base, flows } => &mut flows[destination - *base],
            Heads::Sparse { used, flows } => {
                let rank = used.rank(destination);
                if !used.contains(destination) {
                    used.insert(destination);
                    flows.insert(rank, NONE);
                }
                &mut flows[rank]
            }
        }
    }

    pub(super) fn heads(&self) -> &[u32] {
        match &self.heads {
            Heads::Dense { flows, .. } | Heads::Sparse { flows, .. } => flows,
        }
    }
}

/// A live coflow, as a policy sees it in a [`CoflowTable`](super::CoflowTable).
#[derive(Clone, Debug)]
pub struct Coflow {
    pub(super) id: CoflowId,
    pub(super) arrival: Time,
    pub(super) weight: f64,
    pub(super) deadline: Option<Span>,
    pub(super) dependencies: Dependencies,
    pub(super) flows: Vec<Flow>,
    pub(super) live_flows: usize,
    pub(super) scale: f64,
    pub(super) drain: Option<Drain>,
    /// Its flows while the table moves by shares.
    pub(super) paced: Option<Box<Paced>>,
    /// While it does not: bytes sent by flows that have ended.
    pub(super) sent: f64,
    pub(super) expected: Vec<(LinkId, f64)>,
    /// Keys of this coflow's entries in the table of flow ids.
    pub(super) id_ranges: Vec<u64>,
    stay: u64,
    raises: u64,
    /// Changes to sums since they were last computed from the flows.
    pub(super) roundings: usize,
    /// A sum lost so much of itself at once that what stays may be mostly rounding.
    pub(super) cancelled: bool,
    links: Vec<LinkId>,
    /// Per link of the fabric: what it carries, and its place in `links`.
    pub(super) loads: Vec<Load>,
    position: Vec<u32>,
    link_set: BitSet,
    sources: BitSet,
    destinations: BitSet,
    pub(super) rows: Vec<Row>,
    /// Destinations with a live flow, row by row, one bit each.
    live: Vec<u64>,
    /// Per source, where its row is.
    pub(super) row_of: Vec<u32>,
    /// The same by destination: sources with a live flow, column by column.
    live_columns: Vec<u64>,
    column_of: Vec<u32>,
}

impl Coflow {
    /// `stay` is a number that no coflow of this id had before.
    pub(super) fn new(id: CoflowId, arrival: Time, hosts: usize, links: usize, stay: u64) -> Coflow {
        Coflow {
            id,
            arrival,
            weight: 1.0,
            deadline: None,
            dependencies: Dependencies::default(),
            flows: Vec::new(),
            live_flows: 0,
            scale: 1.0,
            drain: None,
            paced: None,
            sent: 0.0,
            expected: Vec::new(),
            id_ranges: Vec::new(),
            stay,
            raises: stay,
            roundings: 0,
            cancelled: false,
            links: Vec::new(),
            loads: vec![Load::default(); links],
            position: vec![NONE; links],
            link_set: BitSet::new(links),
            sources: BitSet::new(hosts),
            destinations: BitSet::new(hosts),
            rows: Vec::new(),
            live: Vec::new(),
            row_of: vec![NONE; hosts],
            live_columns: Vec::new(),
            column_of: vec![NONE; hosts],
        }
    }

    /// Id of the coflow; equal arrivals are told apart by it.
    #[inline]
    pub fn id(&self) -> CoflowId {
        self.id
    }
    /// Time of arrival, from which completion time and deadline count.
    pub fn arrival(&self) -> Time {
        self.arrival
    }
    /// Share relative to other coflows.
    pub fn weight(&self) -> f64 {
        self.weight
    }
    /// Time allowed from arrival, if any.
    pub fn deadline(&self) -> Option<Span> {
        self.deadline
    }
    /// How it stands to others of its job.
    pub fn dependencies(&self) -> &Dependencies {
        &self.dependencies
    }
    /// Its job; if none was stated, a job of its own.
    pub fn job(&self) -> JobId {
        self.dependencies.job.unwrap_or(JobId(self.id.0))
    }
    /// The place of its job among others: who came first.
    pub fn place(&self) -> Time {
        self.dependencies.place.unwrap_or(self.arrival)
    }
    /// Whether it has a place or ancestors of its own.
    pub(super) fn is_related(&self) -> bool {
        self.dependencies.place.is_some() || !self.dependencies.ancestors.is_empty()
    }
    /// All flows ever added, finished ones too; a [`super::FlowRef`] holds an index into them.
    #[inline]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }
    /// Number of live flows.
    #[inline]
    pub fn live_flows(&self) -> usize {
        self.live_flows
    }
    /// Rises whenever a sum may have grown (relative to [`Coflow::scale`]): while it stays the same, flows
    /// have only moved and ended. A coflow that is taken out of the table and put in again under its id begins above
    /// all numbers that it had: its flows are others.
    #[inline]
    pub fn raises(&self) -> u64 {
        self.raises
    }
    /// With its id, tells a coflow from the same one before it was taken out of the table and put in again: its flows are
    /// others then, and begin at index 0 again.
    #[inline]
    pub fn stay(&self) -> u64 {
        self.stay
    }
    /// Remaining demand on a link divided by [`Coflow::scale`].
    #[inline]
    pub(super) fn demand_base(&self, link: LinkId, clock: u64) -> f64 {
        let load = &self.loads[link.index()];
        match load.grants {
            0 => load.base,
            // Past the predicted ends the sum of lines falls below 0. Every flow counts with the
            // floor until its end is reported.
            grants => load.base + load.granted.at(clock).max(FLOOR_BYTES * f64::from(grants)) / self.scale,
        }
    }
    /// Remaining demand on a link in bytes.
    #[inline]
    pub(super) fn demand(&self, link: LinkId, clock: u64) -> f64 {
        let load = &self.loads[link.index()];
        match load.grants {
            0 => load.base * self.scale,
            grants => load.base * self.scale + load.granted.at(clock).max(FLOOR_BYTES * f64::from(grants)),
        }
    }
    /// The factor that shrinks all flows without a grant: bytes left = base * scale.
    #[inline]
    pub fn scale(&self) -> f64 {
        self.scale
    }
    /// Links with a live flow, in no particular order.
    #[inline]
    pub fn links(&self) -> &[LinkId] {
        &self.links
    }
    /// The links with a live flow as a set.
    #[inline]
    pub fn link_set(&self) -> &BitSet {
        &self.link_set
    }
    /// Number of live flows on a link.
    pub fn live_on(&self, link: LinkId) -> u32 {
        self.loads[link.index()].flows
    }
    /// Sources with a live flow that crosses a link.
    #[inline]
    pub fn sources(&self) -> &BitSet {
        &self.sources
    }
    /// Destinations of live flows that cross a link.
    #[inline]
    pub fn destinations(&self) -> &BitSet {
        &self.destinations
    }
    /// The live flows from a source that is a member of [`Coflow::sources`], and the set of their
    /// destinations as words.
    #[inline]
    pub fn row(&self, source: usize) -> (&Row, &[u64]) {
        let (at, words) = (self.row_of[source] as usize, self.sources.words().len());
        (&self.rows[at], &self.live[at * words..(at + 1) * words])
    }

    /// The destinations of live flows from a source as words; none if it never had one.
    #[inline]
    pub fn destinations_of(&self, source: usize) -> &[u64] {
        let words = self.sources.words().len();
        match self.row_of[source] {
            NONE => &[],
            at => &self.live[at as usize * words..(at as usize + 1) * words],
        }
    }
    /// The sources of live flows to a destination as words; none if it never had one.
    #[inline]
    pub fn sources_of(&self, destination: usize) -> &[u64] {
        let words = self.sources.words().len();
        match self.column_of[destination] {
            NONE => &[],
            at => &self.live_columns[at as usize * words..(at as usize + 1) * words],
        }
    }

    /// Adds a live flow and returns its index. `ends` are its hosts and path unless it crosses no link.
    pub(super) fn add(
        &mut self,
        id: FlowId,
        (size, group): (Bytes, u32),
        base: f64,
        class: Option<ClassId>,
        ends: Option<(HostId, HostId, Path)>,
    ) -> u32 {
        let index = self.flows.len() as u32;
        self.flows.push(Flow { id, size, base, class, granted: NONE, next: NONE, group, live: true });
        self.live_flows += 1;
        self.raises += 1;
        if let Some((source, destination, path)) = ends {
            self.link_into_row(index, source.index(), destination.index());
            for &link in path.iter() {
                self.add_to_link(link, base);
            }
        }
        index
    }

    fn link_into_row(&mut self, index: u32, source: usize, destination: usize) {
        let words = self.sources.words().len();
        if self.row_of[source] == NONE {
            self.row_of[source] = self.rows.len() as u32;
            self.rows.push(Row::new(destination));
            self.live.resize(self.rows.len() * words, 0);
        }
        let at = self.row_of[source] as usize;
        if self.column_of[destination] == NONE {
            self.column_of[destination] = (self.live_columns.len() / words) as u32;
            self.live_columns.resize(self.live_columns.len() + words, 0);
        }
        self.sources.insert(source);
        self.destinations.insert(destination);
        let column = self.column_of[destination] as usize * words;
        self.live_columns[column + source / 64] |= 1 << (source % 64);
        self.live[at * words + destination / 64] |= 1 << (destination % 64);
        let head = self.rows[at].head(destination, words * 64);
        if *head == NONE {
            *head = index;
            return;
        }
        // At the end of the chain, so that flows of one pair stand by rising index; chains are short.
        let mut last = *head as usize;
        while self.flows[last].next != NONE {
            last = self.flows[last].next as usize;
        }
        self.flows[last].next = index;
    }

    fn add_to_link(&mut self, link: LinkId, base: f64) {
        let at = link.index();
        if self.loads[at].flows == 0 {
            self.position[at] = self.links.len() as u32;
            self.link_set.insert(at);
            self.links.push(link);
        }
        self.loads[at].base += base;
        self.loads[at].flows += 1;
    }

    /// Forgets all that is kept by host and link, before the network becomes another one; every flow stands still.
    pub(super) fn forget_links(&mut self, hosts: usize, links: usize) {
        self.loads = vec![Load::default(); links];
        self.position = vec![NONE; links];
        self.link_set = BitSet::new(links);
        self.sources = BitSet::new(hosts);
        self.destinations = BitSet::new(hosts);
        self.row_of = vec![NONE; hosts];
        self.column_of = vec![NONE; hosts];
        self.links.clear();
        self.rows.clear();
        self.live.clear();
        self.live_columns.clear();
        (self.roundings, self.cancelled) = (0, false);
        self.raises += 1;
    }

    /// Enters a flow, if it is live, at its hosts and the links of its path.
    pub(super) fn link_anew(&mut self, index: u32, ends: impl Fn(ClassId) -> (HostId, HostId, Path)) {
        let flow = &mut self.flows[index as usize];
        flow.next = NONE;
        let base = flow.base;
        let Some(class) = flow.class.filter(|_| flow.live) else { return };
        let (source, destination, path) = ends(class);
        self.link_into_row(index, source.index(), destination.index());
        path.iter().for_each(|&link| self.add_to_link(link, base));
    }

    /// Takes a live flow without a grant out of rows and sums.
    pub(super) fn end(&mut self, index: u32, ends: Option<(HostId, HostId, Path)>) {
        let flow = &mut self.flows[index as usize];
        flow.live = false;
        let base = flow.base;
        self.live_flows -= 1;
        if let Some((source, destination, path)) = ends {
            self.unlink_from_row(index, source.index(), destination.index());
            for &link in path.iter() {
                self.take_from_link(link, base);
            }
            self.roundings += 1;
        }
    }

    fn unlink_from_row(&mut self, index: u32, source: usize, destination: usize) {
        let words = self.sources.words().len();
        let at = self.row_of[source] as usize;
        let next = self.flows[index as usize].next;
        let head = self.rows[at].head(destination, words * 64);
        if *head != index {
            // Not the first of its chain: the pair keeps a live flow, so the sets of hosts stay as
            // they are.
            let mut before = *head as usize;
            while self.flows[before].next != index {
                before = self.flows[before].next as usize;
            }
            self.flows[before].next = next;
            return;
        }
        *head = next;
        if next == NONE {
            let live = &mut self.live[at * words..(at + 1) * words];
            live[destination / 64] &= !(1 << (destination % 64));
            if live.iter().all(|&word| word == 0) {
                self.sources.remove(source);
            }
            let column = self.column_of[destination] as usize * words;
            let column = &mut self.live_columns[column..column + words];
            column[source / 64] &= !(1 << (source % 64));
            if column.iter().all(|&word| word == 0) {
                self.destinations.remove(destination);
            }
        }
    }

    fn take_from_link(&mut self, link: LinkId, base: f64) {
        let at = link.index();
        self.loads[at].flows -= 1;
        self.cancelled |= self.loads[at].take(base);
        if self.loads[at].flows == 0 {
            // Exactly 0 for a link without flows, whatever rounding left of the sum.
            self.loads[at].base = 0.0;
            self.link_set.remove(at);
            let place = self.position[at] as usize;
            self.links.swap_remove(place);
            if let Some(&moved) = self.links.get(place) {
                self.position[moved.index()] = place as u32;
            }
        }
    }

    /// Whether a sum may be mostly rounding.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Notes that a sum may have grown otherwise than by a new flow.
    pub(super) fn note_raise(&mut self) {
        self.raises += 1;
    }

    /// Moves a flow with this base from the bases of its links to their grants.
    pub(super) fn begin_grant(&mut self, path: &Path, base: f64, line: &Line) {
        for &link in path.iter() {
            let load = &mut self.loads[link.index()];
            load.add_granted(line);
            self.cancelled |= load.take(base);
        }
        self.roundings += 1;
    }

    /// Moves a flow from the grants of its links back to their bases, to which it adds `base`.
    pub(super) fn end_grant(&mut self, index: u32, path: &Path, line: &Line, base: f64) {
        let flow = &mut self.flows[index as usize];
        (flow.granted, flow.base) = (NONE, base);
        for &link in path.iter() {
            let load = &mut self.loads[link.index()];
            load.base += base;
            self.cancelled |= load.end_grant(line);
        }
        self.roundings += 1;
    }

    /// Changes what a flow with a grant has left, and its rate.
    pub(super) fn change_granted(&mut self, path: &Path, clock: u64, bytes: f64, per_sec: f64) {
        path.iter().for_each(|link| self.loads[link.index()].granted.change(clock, bytes, per_sec));
        self.roundings += 1;
    }

    /// Takes over what the drain has left.
    #[inline]
    pub(super) fn follow_drain(&mut self, clock: u64) {
        if let Some(drain) = &self.drain {
            self.scale = drain.scale * drain.part_left(clock);
        }
    }

    /// The least base a live flow may have now.
    #[inline]
    pub(super) fn floor(&self) -> f64 {
        FLOOR_BYTES / self.scale
    }

    /// Whether sums have been changed so often that they should be computed anew: after 16 times as
    /// many changes as there are live flows, so that this costs a fraction of the changes.
    #[inline]
    pub(super) fn needs_refresh(&self) -> bool {
        self.cancelled || self.roundings > 16 * self.live_flows.max(4) || self.scale < 1e-30
    }

    /// Folds the scale into the bases and computes every sum from the flows, by (source, destination,
    /// index), so that rounding does not pile up. No flow without a grant has less than `floor` bytes left
    /// then.
    pub(super) fn refresh(&mut self, moving: &Moving, floor: f64, mut path_of: impl FnMut(ClassId) -> Path) {
        self.roundings = 0;
        self.cancelled = false;
        self.raises += 1;
        for load in &mut self.loads {
            (load.base, load.grants, load.granted) = (0.0, 0, Line::default());
        }
        let scale = std::mem::replace(&mut self.scale, 1.0);
        if let Some(drain) = &mut self.drain {
            // The scale begins again at 1; what the drain shrinks must change by the same factor.
            drain.scale /= scale;
        }
        // By number of the source, not by row: rows stand in the order in which flows joined, and
        // sums of doubles depend on the order of their terms.
        for source in 0..self.row_of.len() {
            let Some(row) = self.rows.get(self.row_of[source] as usize) else { continue };
            for &head in row.heads().iter().filter(|&&head| head != NONE) {
                let Some(class) = self.flows[head as usize].class else { continue };
                let path = path_of(class);
                let mut at = head;
                while at != NONE {
                    let flow = &mut self.flows[at as usize];
                    if flow.granted == NONE {
                        flow.base = (flow.base * scale).max(floor);
                        path.iter().for_each(|link| self.loads[link.index()].base += flow.base);
                    } else {
                        let line = moving.line(flow.granted);
                        path.iter().for_each(|link| self.loads[link.index()].add_granted(&line));
                    }
                    at = flow.next;
                }
            }
        }
    }
}
