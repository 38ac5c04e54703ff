//! Path classes: live flows with the same source and destination, across coflows.

use weir_model::{Fabric, HostId, LinkId, LinkKind, Path};

/// A path class, an index that stays valid as long as its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(pub u32);

impl ClassId {
    /// The class as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// All live flows between one source and one destination: a policy that ignores sizes and coflows
/// gives them equal rates.
#[derive(Clone, Debug)]
pub struct Class {
    pub(super) source: HostId,
    pub(super) destination: HostId,
    pub(super) path: Path,
    pub(super) live: u32,
    /// The link whose level its flows move at; none before the first plan with levels.
    pub(super) bottleneck: Option<LinkId>,
    /// Service of the class = served(bottleneck) - offset, in bytes.
    pub(super) offset: f64,
    pub(super) changed: bool,
}

impl Class {
    /// Where its flows start.
    #[inline]
    pub fn source(&self) -> HostId {
        self.source
    }
    /// Where its flows end.
    #[inline]
    pub fn destination(&self) -> HostId {
        self.destination
    }
    /// The links its flows cross.
    #[inline]
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Number of live flows.
    #[inline]
    pub fn live(&self) -> u32 {
        self.live
    }
    /// The link whose level its flows have moved at since the last plan with levels.
    #[inline]
    pub fn bottleneck(&self) -> Option<LinkId> {
        self.bottleneck
    }
}

/// All classes met so far, and the service clock of every link.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    pub(super) all: Vec<Class>,
    /// Per source, class index + 1 per destination; a row exists once its source had a flow.
    rows: Vec<Vec<u32>>,
    /// Per link of the fabric, what it stands for.
    pub(super) kinds: Vec<LinkKind>,
    /// Bytes a flow at the link's level has moved since the link was last without such flows.
    pub(super) served: Vec<f64>,
}

impl Classes {
    pub(super) fn new(fabric: &Fabric) -> Classes {
        Classes {
            all: Vec::new(),
            rows: vec![Vec::new(); fabric.hosts() as usize],
            kinds: fabric.links().iter().map(|link| link.kind).collect(),
            served: vec![0.0; fabric.links().len()],
        }
    }

    /// Takes over another network. Classes stay what they are but for their paths; they follow no link's level.
    pub(super) fn refit(&mut self, fabric: &Fabric) {
        let hosts = fabric.hosts() as usize;
        self.rows.resize(hosts, Vec::new());
        // Empty rows stay empty: `find` gives them their length with the first flow of the source.
        self.rows.iter_mut().filter(|row| !row.is_empty()).for_each(|row| row.resize(hosts, 0));
        self.kinds = fabric.links().iter().map(|link| link.kind).collect();
        self.served = vec![0.0; fabric.links().len()];
        for class in &mut self.all {
            class.path = fabric.path(class.source, class.destination).expect("a path where there was one");
            (class.bottleneck, class.offset) = (None, 0.0);
        }
    }

    /// The class of a pair of hosts; `None` where traffic crosses no link.
    pub(super) fn find(&mut self, fabric: &Fabric, source: HostId, destination: HostId) -> Option<ClassId> {
        let row = &mut self.rows[source.index()];
        if row.is_empty() {
            // Rows are made when a source has its first flow: most pairs of hosts never have any.
            row.resize(fabric.hosts() as usize, 0);
        }
        let entry = &mut row[destination.index()];
        if *entry == 0 {
            let path = fabric.path(source, destination)?;
            self.all.push(Class {
                source,
                destination,
                path,
                live: 0,
                bottleneck: None,
                offset: 0.0,
                changed: false,
            });
            *entry = self.all.len() as u32;
        }
        Some(ClassId(*entry - 1))
    }

    /// Calls `visit` with every class that crosses the link of a host; with none for other links.
    pub(super) fn for_each_at_host(&self, link: usize, mut visit: impl FnMut(&Class)) {
        let mut enter = |entry: &u32| {
            if let Some(class) = entry.checked_sub(1) {
                visit(&self.all[class as usize]);
            }
        };
        match self.kinds[link] {
            LinkKind::Uplink(host) => self.rows[host.index()].iter().for_each(enter),
            LinkKind::Downlink(host) => {
                self.rows.iter().filter_map(|row| row.get(host.index())).for_each(&mut enter);
            }
            LinkKind::RackUplink(_) | LinkKind::RackDownlink(_) | LinkKind::Site { .. } => {}
        }
    }

    /// Whether a link is the one of a host: all traffic from the host, or all to it, crosses it.
    pub(super) fn is_of_host(&self, link: usize) -> bool {
        matches!(self.kinds[link], LinkKind::Uplink(_) | LinkKind::Downlink(_))
    }

    /// Bytes each flow of the class has been served by levels, up to a constant of the class.
    #[inline]
    pub(super) fn service(&self, class: ClassId) -> f64 {
        let class = &self.all[class.index()];
        class.bottleneck.map_or(0.0, |link| self.served[link.index()]) - class.offset
    }

    /// Lets the class follow another link's level without a jump in its service.
    pub(super) fn attach(&mut self, class: ClassId, link: LinkId) {
        let service = self.service(class);
        let entry = &mut self.all[class.index()];
        entry.bottleneck = Some(link);
        entry.offset = self.served[link.index()] - service;
    }
}
