//! Mean completion time of flows under strict priority levels, as a function of the thresholds between them.
//!
//! # Problem
//! Flows arrive at one link as a Poisson process. Which sizes shall share a level, so that the mean completion time of
//! the flows without a deadline is least?
//!
//! # Approach
//! The levels are an M/G/1 queue with preemptive priorities, first come first served inside a level: multilevel
//! processor sharing (Kleinrock, Queueing Systems, volume 2, chapter 4). PIAS (Bai et al., NSDI 2015) takes it for
//! unknown sizes, Karuna (Chen et al., SIGCOMM 2016; slides 11 to 13 of its talk) for both kinds. Both then simplify
//! it for their solvers; here it is kept as it is. What follows is of [`Service::Fifo`]; levels whose flows share the
//! link are in `shared.rs`.
//!
//! # Terminology
//! `X` is the size of a flow, sizes are distributed alike for all types (flows with a deadline may have one of their own); `l2`, `l3` arrivals per byte's time on the
//! link of flows of known and of unknown size; `rho1` the load of flows with a deadline, which are above all levels;
//! `a_k` demotion and `b_k` splitting thresholds, 0 for k = 0 and without bound for k = K.
//!
//! ```text
//! sigma_k = rho1 + l3 E[min(X, a_k)] + l2 E[X; X <= b_k],     sigma_0 = rho1
//! S_k     = s1   + l3 E[min(X, a_k)^2] + l2 E[X^2; X <= b_k]
//! R_k     = S_k / (2 (1 - sigma_k))
//! T(x)    = (R_k + x) / (1 - sigma_(k-1))        of a flow whose last byte goes at level k
//! ```
//! A flow of unknown size that sends its last byte at level k has a_(k-1) < x <= a_k; what it waits for is the work at
//! its level and above that it finds, R_k, its own bytes, and what arrives above its level meanwhile. A known one has
//! b_(k-1) < x <= b_k.
//!
//! # Flows with a deadline
//! What they add to S depends on how they send ([`Urgent`]). Bursts at the speed of the link add their second moment,
//! `s1 = l1 E[X^2]`. Flows that are paced to end just before their deadline, as Karuna's are, rather make the link
//! slower by rho1 at all times: then s1 = 0 gives exactly the M/G/1 queue of a link with the capacity 1 - rho1, whose
//! waiting time is l E[X^2] / (2 (1 - rho1) (1 - rho1 - rho)). That they are paced perfectly is our simplification.
//!
//! # Properties
//! With flows of one kind the formulas are exact. With both they are, if a level serves by the arrival of flows. If it
//! serves by the arrival of bytes, a flow of known size, which is at its level at once, comes before demoted ones that
//! are older, and the formulas are near. `tests.rs` has a simulation of the queue that agrees.
//!
//! Time is in packets: what a packet of [`PACKET_PAYLOAD`] bytes takes on the link. Headers weigh on all bytes alike,
//! so that load is the same with and without them; part-filled packets are not modelled, nor is anything of transport:
//! no round trips, no windows, no losses. Forecasts rank thresholds. They are not what a network will show.

use weir_model::{Bytes, Rate};
use weir_trace::{FlowSizes, HEADER, Mix, PACKET_PAYLOAD};

/// A time in multiples of what a full packet takes on the link.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct PacketTimes(pub f64);

impl PacketTimes {
    /// The same in seconds on a link of this rate, which carries the headers of packets too.
    pub fn secs(self, link: Rate) -> f64 {
        self.0 * (PACKET_PAYLOAD + HEADER).0 as f64 / link.bytes_per_sec()
    }
}

/// How flows with a deadline use the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgent {
    /// At the rate that meets the deadline, steadily: what Karuna's congestion control is for.
    Paced,
    /// At the speed of the link from their arrival on, as under schedulers by deadline.
    Bursts,
}

/// How the flows of one level are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// The first that came first: the model of published thresholds.
    #[default]
    Fifo,
    /// All at the same rate, as flows of DCTCP in one queue are: the model of `shared.rs`.
    Shared,
}

/// Where levels end: a threshold less than there are levels, for each kind of flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    demotion: Vec<Bytes>,
    splitting: Vec<Bytes>,
}

/// Why numbers are no thresholds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdsError {
    /// Both kinds of flows have the same levels.
    #[error(
        "{demotion} demotion and {splitting} splitting thresholds: both need one less than there are levels"
    )]
    Lengths {
        /// How many for unknown sizes.
        demotion: usize,
        /// How many for known sizes.
        splitting: usize,
    },
    /// A threshold is below the one before it.
    #[error("{what} threshold {number} is {after} bytes, less than the {before} before it")]
    Falling {
        /// Which thresholds: "demotion" or "splitting".
        what: &'static str,
        /// Number of the threshold, counted from 1.
        number: usize,
        /// The threshold before it.
        before: u64,
        /// The threshold itself, in bytes.
        after: u64,
    },
}

impl Thresholds {
    /// Demotion thresholds (of bytes sent) and splitting thresholds (of sizes), both rising and as many.
    ///
    /// # Errors
    /// The two differ in number, or a threshold is below the one before it.
    pub fn new(demotion: Vec<Bytes>, splitting: Vec<Bytes>) -> Result<Thresholds, ThresholdsError> {
        let (demotions, splittings) = (demotion.len(), splitting.len());
        if demotions != splittings {
            return Err(ThresholdsError::Lengths { demotion: demotions, splitting: splittings });
        }
        for (what, values) in [("demotion", &demotion), ("splitting", &splitting)] {
            // Counted from 1, and of each pair the second is at fault.
            for (number, pair) in (2..).zip(values.windows(2)) {
                let (before, after) = (pair[0].0, pair[1].0);
                if after < before {
                    return Err(ThresholdsError::Falling { what, number, before, after });
                }
            }
        }
        Ok(Thresholds { demotion, splitting })
    }

    /// The same thresholds for both kinds, sorted.
    pub fn same(mut thresholds: Vec<Bytes>) -> Thresholds {
        thresholds.sort_unstable();
        Thresholds { splitting: thresholds.clone(), demotion: thresholds }
    }

    /// For the optimiser, whose vectors rise and are as many.
    pub(super) fn rising(demotion: Vec<Bytes>, splitting: Vec<Bytes>) -> Thresholds {
        debug_assert!(demotion.is_sorted() && splitting.is_sorted() && demotion.len() == splitting.len());
        Thresholds { demotion, splitting }
    }

    /// One level for all.
    pub fn none() -> Thresholds {
        Thresholds::same(Vec::new())
    }

    /// Where each level ends, the last one at the largest size.
    pub(super) fn ends(&self, largest: Bytes) -> impl Iterator<Item = Ends> {
        let ends = self.demotion.iter().zip(&self.splitting);
        ends.map(|(&demotion, &splitting)| Ends { demotion, splitting }).chain([Ends::both(largest)])
    }

    /// Number of levels, at least 1.
    pub fn levels(&self) -> usize {
        self.demotion.len() + 1
    }

    /// Of flows of unknown size: the level after the k-th begins when more than this is sent.
    pub fn demotion(&self) -> &[Bytes] {
        &self.demotion
    }

    /// Of flows of known size: the largest size of the k-th level.
    pub fn splitting(&self) -> &[Bytes] {
        &self.splitting
    }
}

/// What arrives at a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    sizes: FlowSizes,
    load: f64,
    deadline: f64,
    /// How large flows with a deadline are, if not as others.
    deadline_size: Option<Bytes>,
    known: f64,
    urgent: Urgent,
    service: Service,
    /// Arrivals per byte's time on the link, of all flows if those with a deadline are as large as others.
    arrivals: f64,
}

/// Why there is no steady state to forecast.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TrafficError {
    /// The load is not between 0 and 1.
    #[error("the load is {0}: it must be above 0 and below 1, or queues grow without end")]
    Load(f64),
    /// A share of the mix is not between 0 and 1.
    #[error("the share of {what} is {share}: it must be from 0 to 1")]
    Share {
        /// Which share of the mix.
        what: &'static str,
        /// The share that was given.
        share: f64,
    },
    /// All flows have deadlines: no flow has a level.
    #[error("all bytes are of flows with a deadline: thresholds are for the others")]
    OnlyDeadlines,
    /// Flows with a deadline have no bytes.
    #[error("flows with a deadline have a size of 0")]
    NoBytes,
}

impl Traffic {
    /// `load` is the share of the link that is used, above 0 and below 1. How long deadlines are does not matter.
    /// Levels are [`Service::Fifo`].
    ///
    /// # Errors
    /// The load is not between 0 and 1, a share of `mix` is not from 0 to 1, all bytes have deadlines, or flows with one have size 0.
    pub fn new(sizes: FlowSizes, load: f64, mix: &Mix, urgent: Urgent) -> Result<Traffic, TrafficError> {
        if !(load > 0.0 && load < 1.0) {
            return Err(TrafficError::Load(load));
        }
        for (what, share) in [("deadline bytes", mix.deadline_bytes), ("known sizes", mix.known)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(TrafficError::Share { what, share });
            }
        }
        if mix.deadline_bytes >= 1.0 {
            return Err(TrafficError::OnlyDeadlines);
        }
        if mix.deadline_size == Some(Bytes(0)) {
            return Err(TrafficError::NoBytes);
        }
        let arrivals = load / sizes.mean();
        let (deadline, deadline_size) = (mix.deadline_bytes, mix.deadline_size);
        let (known, service) = (mix.known, Service::Fifo);
        Ok(Traffic { sizes, load, deadline, deadline_size, known, urgent, service, arrivals })
    }

    /// The same where levels serve their flows so.
    pub fn served(self, service: Service) -> Traffic {
        Traffic { service, ..self }
    }

    /// How levels serve their flows.
    pub fn service(&self) -> Service {
        self.service
    }

    /// How large flows are.
    pub fn sizes(&self) -> &FlowSizes {
        &self.sizes
    }

    /// Share of the link that is used, those with a deadline included.
    pub fn load(&self) -> f64 {
        self.load
    }

    /// Share of the flows without a deadline whose size is known.
    pub fn known(&self) -> f64 {
        self.known
    }

    /// Share of the link that flows with a deadline use: sigma_0.
    pub fn deadline_load(&self) -> f64 {
        self.load * self.deadline
    }

    /// Load of flows with a deadline and of all bytes up to one threshold for both kinds: sigma at that threshold.
    pub(super) fn load_up_to(&self, threshold: Bytes) -> f64 {
        let [known, unknown] = self.rates();
        self.deadline_load()
            + known * self.sizes.below(threshold).first
            + unknown * self.sizes.mean_capped(threshold)
    }

    /// Arrivals of known and unknown sizes per byte's time.
    pub(super) fn rates(&self) -> [f64; 2] {
        let others = self.arrivals * (1.0 - self.deadline);
        [others * self.known, others * (1.0 - self.known)]
    }

    /// Mean completion time of the flows without a deadline.
    pub fn mean(&self, thresholds: &Thresholds) -> PacketTimes {
        let mut bytes = 0.0;
        self.each_level(thresholds, |level| {
            bytes += self.known * level.known.1 + (1.0 - self.known) * level.unknown.1;
        });
        PacketTimes(bytes / PACKET_PAYLOAD.0 as f64)
    }

    /// All that the model tells about these thresholds.
    pub fn forecast(&self, thresholds: &Thresholds) -> Forecast {
        let packets = |bytes: f64| PacketTimes(bytes / PACKET_PAYLOAD.0 as f64);
        let (mut known, mut unknown) = (0.0, 0.0);
        let mut levels = Vec::with_capacity(thresholds.levels());
        self.each_level(thresholds, |level| {
            known += level.known.1;
            unknown += level.unknown.1;
            let flows = self.known * level.known.0 + (1.0 - self.known) * level.unknown.0;
            let bytes = self.known * level.known.1 + (1.0 - self.known) * level.unknown.1;
            let mean = (flows > 0.0).then(|| packets(bytes / flows));
            levels.push(LevelForecast { load: level.load, flows, mean });
        });
        let mean = self.known * known + (1.0 - self.known) * unknown;
        let exists = |share: f64, bytes: f64| (share > 0.0).then(|| packets(bytes));
        Forecast {
            mean: packets(mean),
            known: exists(self.known, known),
            unknown: exists(1.0 - self.known, unknown),
            levels,
        }
    }

    /// Flows' completion times level by level from the highest.
    fn each_level(&self, thresholds: &Thresholds, mut see: impl FnMut(Level)) {
        match self.service {
            Service::Fifo => self.each_fifo_level(thresholds, see),
            Service::Shared => {
                let mut above = Ends::both(Bytes(0));
                for end in thresholds.ends(self.sizes.largest()) {
                    see(self.shared_level(above, end));
                    above = end;
                }
            }
        }
    }

    /// S of flows with a deadline.
    fn urgent_squares(&self) -> f64 {
        match self.urgent {
            Urgent::Paced => 0.0,
            Urgent::Bursts => {
                // s1 = l1 E[X^2] with l1 = rho1 / E[X]; with one size that is rho1 times the size.
                let of_all = || self.sizes.mean_square() / self.sizes.mean();
                self.deadline_load() * self.deadline_size.map_or_else(of_all, |size| size.0 as f64)
            }
        }
    }

    /// sigma and S of all levels up to one that ends there.
    pub(super) fn load_and_squares(&self, end: Ends) -> (f64, f64) {
        let [known_rate, unknown_rate] = self.rates();
        let known = self.sizes.below(end.splitting);
        let load = self.deadline_load()
            + known_rate * known.first
            + unknown_rate * self.sizes.mean_capped(end.demotion);
        let squares = self.urgent_squares()
            + known_rate * known.second
            + unknown_rate * self.sizes.mean_square_capped(end.demotion);
        (load, squares)
    }

    /// The sums of the head of this file, level by level from the highest.
    fn each_fifo_level(&self, thresholds: &Thresholds, mut see: impl FnMut(Level)) {
        let [known_rate, unknown_rate] = self.rates();
        let urgent = self.urgent_squares();
        // Share and first moment of the flows that end above this level; load above it.
        let (mut known_before, mut unknown_before) = ((0.0, 0.0), (0.0, 0.0));
        let mut above = self.deadline_load();
        for Ends { demotion, splitting } in thresholds.ends(self.sizes.largest()) {
            let (unknown, known) = (self.sizes.below(demotion), self.sizes.below(splitting));
            // E[min(X, a_k)] and E[min(X, a_k)^2] below are made of the moments at hand:
            // `mean_capped` would search the table again.
            let (cap, longer) = (demotion.0 as f64, 1.0 - unknown.share);
            let load = self.deadline_load()
                + unknown_rate * (unknown.first + cap * longer)
                + known_rate * known.first;
            let squares =
                urgent + unknown_rate * (unknown.second + cap * cap * longer) + known_rate * known.second;
            // R_k of the head of this file.
            let work = squares / (2.0 * (1.0 - load));
            let ending = |below: weir_trace::Below, (share, first): (f64, f64)| {
                let flows = below.share - share;
                (flows, (flows * work + below.first - first) / (1.0 - above))
            };
            see(Level { load, known: ending(known, known_before), unknown: ending(unknown, unknown_before) });
            known_before = (known.share, known.first);
            unknown_before = (unknown.share, unknown.first);
            above = load;
        }
    }
}

/// Where a level ends: a threshold for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) demotion: Bytes,
    pub(super) splitting: Bytes,
}

impl Ends {
    /// The same for both kinds.
    pub(super) fn both(end: Bytes) -> Ends {
        Ends { demotion: end, splitting: end }
    }
}

/// A level while it is summed: for each kind, the share of its flows that end here, and E[T(X); X ends here] in bytes.
pub(super) struct Level {
    /// Of this level, all above it and flows with a deadline.
    pub(super) load: f64,
    pub(super) known: (f64, f64),
    pub(super) unknown: (f64, f64),
}

/// What the model tells about thresholds.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Mean completion time of all flows without a deadline.
    pub mean: PacketTimes,
    /// Of those of known size, if there are any.
    pub known: Option<PacketTimes>,
    /// Of those of unknown size, if there are any.
    pub unknown: Option<PacketTimes>,
    /// Level by level, the highest first.
    pub levels: Vec<LevelForecast>,
}

/// What the model tells about a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelForecast {
    /// Load of this level, of all above it and of flows with a deadline: sigma_k.
    pub load: f64,
    /// Share of the flows without a deadline whose last byte goes here.
    pub flows: f64,
    /// Their mean completion time, if there are any.
    pub mean: Option<PacketTimes>,
}
