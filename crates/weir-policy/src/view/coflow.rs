//! One live coflow: its flows, and their sums per link.

use super::ClassId;
use crate::bits::BitSet;
use weir_model::{Bytes, CoflowId, Fabric, FlowId, HostId, LinkId, Path, Span, Time};

pub(super) const NONE: u32 = u32::MAX;

/// What is left of a flow that was predicted to be done but not yet reported so, at least (bytes).
/// Keeps a late report from turning into an infinite rate; no completion time depends on it.
const FLOOR_BYTES: f64 = 1e-6;
/// The largest part of a coflow that one step may take before its completion is reported.
const FLOOR_FACTOR: f64 = 1.0 / (1u64 << 40) as f64;

/// A sum that one change leaves with less than this part is computed anew: what rounding added to it when
/// it was large may be more than what is left.
const CANCELLED: f64 = 1e-4;

/// One flow of a live coflow.
#[derive(Clone, Debug)]
pub struct Flow {
    pub(super) id: FlowId,
    pub(super) size: Bytes,
    /// Drained coflows: left = base * scale. Levels: left = base - service(class).
    pub(super) base: f64,
    pub(super) class: Option<ClassId>,
    /// The links of its path where it has just two, else twice a place past the last link.
    ends: [u32; 2],
    /// Next flow of the same source and destination.
    next: u32,
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

    fn heads(&self) -> &[u32] {
        match &self.heads {
            Heads::Dense { flows, .. } | Heads::Sparse { flows, .. } => flows,
        }
    }
}

/// A live coflow.
#[derive(Clone, Debug)]
pub struct Coflow {
    pub(super) id: CoflowId,
    pub(super) arrival: Time,
    pub(super) weight: f64,
    pub(super) deadline: Option<Span>,
    pub(super) flows: Vec<Flow>,
    pub(super) live_flows: usize,
    pub(super) scale: f64,
    /// Keys of this coflow's entries in the table of flow ids.
    pub(super) id_ranges: Vec<u64>,
    raises: u64,
    /// Changes to sums since they were last computed from the flows.
    roundings: usize,
    /// A sum lost so much of itself at once that what stays may be mostly rounding.
    cancelled: bool,
    links: Vec<LinkId>,
    /// Per link of the fabric: sum of bases (and one unused sum more), number of live flows, place in
    /// `links`.
    sums: Vec<f64>,
    counts: Vec<u32>,
    position: Vec<u32>,
    link_set: BitSet,
    sources: BitSet,
    destinations: BitSet,
    /// Live flows per destination.
    arriving: Vec<u32>,
    rows: Vec<Row>,
    /// Destinations with a live flow, row by row, one bit each.
    live: Vec<u64>,
    /// Per source, where its row is.
    row_of: Vec<u32>,
}

impl Coflow {
    pub(super) fn new(id: CoflowId, arrival: Time, hosts: usize, links: usize) -> Coflow {
        Coflow {
            id,
            arrival,
            weight: 1.0,
            deadline: None,
            flows: Vec::new(),
            live_flows: 0,
            scale: 1.0,
            id_ranges: Vec::new(),
            raises: 0,
            roundings: 0,
            cancelled: false,
            links: Vec::new(),
            sums: vec![0.0; links + 1],
            counts: vec![0; links],
            position: vec![NONE; links],
            link_set: BitSet::new(links),
            sources: BitSet::new(hosts),
            destinations: BitSet::new(hosts),
            arriving: vec![0; hosts],
            rows: Vec::new(),
            live: Vec::new(),
            row_of: vec![NONE; hosts],
        }
    }

    /// Identity.
    #[inline]
    pub fn id(&self) -> CoflowId {
        self.id
    }
    /// When it arrived.
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
    /// All flows ever added, finished ones too; a [`super::FlowRef`] holds an index into them.
    #[inline]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }
    /// Bytes left of a flow divided by [`Coflow::scale`], as long as the table does not move by levels.
    #[inline]
    pub fn base(&self, flow: u32) -> f64 {
        self.flows[flow as usize].base
    }
    /// Number of live flows.
    #[inline]
    pub fn live_flows(&self) -> usize {
        self.live_flows
    }
    /// Rises whenever a sum may have grown (relative to [`Coflow::scale`]): while it stays the same, flows
    /// have only moved and ended.
    #[inline]
    pub fn raises(&self) -> u64 {
        self.raises
    }
    /// Remaining demand on a link divided by [`Coflow::scale`].
    #[inline]
    pub fn demand_base(&self, link: LinkId) -> f64 {
        match self.position[link.index()] {
            NONE => 0.0,
            at => self.sums[at as usize],
        }
    }
    /// The factor that all bases and sums share: bytes left = base * scale.
    #[inline]
    pub fn scale(&self) -> f64 {
        self.scale
    }
    /// Links with a live flow, in no particular order.
    #[inline]
    pub fn links(&self) -> &[LinkId] {
        &self.links
    }
    /// Per link of the fabric, the remaining demand in bytes divided by [`Coflow::scale`]. Meaningless
    /// while the table moves by levels.
    #[inline]
    pub fn demand_bases(&self) -> &[f64] {
        &self.sums[..self.counts.len()]
    }
    /// The links with a live flow as a set.
    #[inline]
    pub fn link_set(&self) -> &BitSet {
        &self.link_set
    }
    /// Remaining demand on a link in bytes.
    pub fn demand(&self, link: LinkId) -> f64 {
        self.sums[link.index()] * self.scale
    }
    /// Number of live flows on a link.
    pub fn live_on(&self, link: LinkId) -> u32 {
        self.counts[link.index()]
    }
    /// Seconds it would still need if the whole fabric were its own (Varys, equation 1).
    pub fn gamma(&self, fabric: &Fabric) -> f64 {
        let times = self.links.iter().map(|&link| self.demand(link) / fabric.capacity(link).bytes_per_sec());
        times.fold(0.0, f64::max)
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

    /// Adds a live flow and returns its index. `ends` are its hosts and path unless it crosses no link.
    pub(super) fn add(
        &mut self,
        id: FlowId,
        size: Bytes,
        base: f64,
        class: Option<ClassId>,
        ends: Option<(HostId, HostId, Path)>,
    ) -> u32 {
        let index = self.flows.len() as u32;
        let nowhere = [self.link_count() as u32; 2];
        let ends_of =
            |path: &Path| <[LinkId; 2]>::try_from(&**path).map_or(nowhere, |links| links.map(|link| link.0));
        let pair = ends.as_ref().map_or(nowhere, |(_, _, path)| ends_of(path));
        self.flows.push(Flow { id, size, base, class, ends: pair, next: NONE, live: true });
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
        self.sources.insert(source);
        self.destinations.insert(destination);
        self.arriving[destination] += 1;
        self.live[at * words + destination / 64] |= 1 << (destination % 64);
        let head = self.rows[at].head(destination, words * 64);
        if *head == NONE {
            *head = index;
            return;
        }
        let mut last = *head as usize;
        while self.flows[last].next != NONE {
            last = self.flows[last].next as usize;
        }
        self.flows[last].next = index;
    }

    fn add_to_link(&mut self, link: LinkId, base: f64) {
        let at = link.index();
        if self.counts[at] == 0 {
            self.position[at] = self.links.len() as u32;
            self.link_set.insert(at);
            self.links.push(link);
        }
        self.sums[at] += base;
        self.counts[at] += 1;
    }

    /// Takes a live flow out of rows and sums.
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
        self.arriving[destination] -= 1;
        if self.arriving[destination] == 0 {
            self.destinations.remove(destination);
        }
        let next = self.flows[index as usize].next;
        let head = self.rows[at].head(destination, words * 64);
        if *head != index {
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
        }
    }

    fn take_from_link(&mut self, link: LinkId, base: f64) {
        let at = link.index();
        self.counts[at] -= 1;
        let left = self.sums[at] - base;
        self.cancelled |= left < self.sums[at] * CANCELLED && self.counts[at] > 0;
        self.sums[at] = left;
        if self.counts[at] == 0 {
            self.sums[at] = 0.0;
            self.link_set.remove(at);
            let place = self.position[at] as usize;
            self.links.swap_remove(place);
            if let Some(&moved) = self.links.get(place) {
                self.position[moved.index()] = place as u32;
            }
        }
    }

    /// Notes that a sum may have grown otherwise than by a new flow.
    pub(super) fn note_raise(&mut self) {
        self.raises += 1;
    }

    fn link_count(&self) -> usize {
        self.counts.len()
    }

    /// Takes granted bytes from a live flow. `per_byte` is `1 / scale`, `floor` that of [`Coflow::floor`];
    /// `path_of` is asked only where the path has not just two links.
    #[inline]
    pub(super) fn take(
        &mut self,
        index: u32,
        bytes: f64,
        per_byte: f64,
        floor: f64,
        path_of: impl FnOnce(ClassId) -> Path,
    ) {
        let nowhere = self.link_count() as u32;
        let flow = &mut self.flows[index as usize];
        if !flow.live {
            return;
        }
        let moved = flow.base - bytes * per_byte;
        let base = moved.max(floor);
        // It should have ended: reports are late, and nothing may be left of its links' sums.
        self.cancelled |= moved < floor;
        let delta = base - flow.base;
        flow.base = base;
        let (ends, class) = (flow.ends, flow.class);
        self.sums[ends[0] as usize] += delta;
        self.sums[ends[1] as usize] += delta;
        if let (true, Some(class)) = (ends[0] == nowhere, class) {
            path_of(class).iter().for_each(|link| self.sums[link.index()] += delta);
        }
        self.roundings += 1;
    }

    /// Changes the base of a live flow by `delta`, and the sums of its links with it.
    #[inline]
    pub(super) fn shift(&mut self, index: u32, delta: f64, path: &Path) {
        self.flows[index as usize].base += delta;
        for &link in path.iter() {
            let sum = &mut self.sums[link.index()];
            self.cancelled |= *sum + delta < *sum * CANCELLED;
            *sum += delta;
        }
        self.roundings += 1;
    }

    /// Moves the whole coflow on: every flow loses `fraction` of what it has left.
    #[inline]
    pub(super) fn drain(&mut self, fraction: f64) {
        self.scale *= (1.0 - fraction).max(FLOOR_FACTOR);
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
    /// index), so that rounding does not pile up.
    pub(super) fn refresh(&mut self, mut path_of: impl FnMut(ClassId) -> Path) {
        self.roundings = 0;
        self.cancelled = false;
        self.raises += 1;
        self.sums.fill(0.0);
        let scale = std::mem::replace(&mut self.scale, 1.0);
        for source in 0..self.row_of.len() {
            let Some(row) = self.rows.get(self.row_of[source] as usize) else { continue };
            for &head in row.heads().iter().filter(|&&head| head != NONE) {
                let (mut at, mut sum) = (head, 0.0);
                while at != NONE {
                    let flow = &mut self.flows[at as usize];
                    flow.base = (flow.base * scale).max(FLOOR_BYTES);
                    sum += flow.base;
                    at = flow.next;
                }
                let Some(class) = self.flows[head as usize].class else { continue };
                for &link in path_of(class).iter() {
                    self.sums[link.index()] += sum;
                }
            }
        }
    }
}
