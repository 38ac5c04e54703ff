//! Flows that arrive one by one: what a packet-level simulator moves, where a coflow has its flows all at once.
//!
//! Kinds of flows, and that they share a network, are Karuna's (Chen, Chen, Bai, Alizadeh, SIGCOMM 2016); Poisson
//! arrivals between random hosts at a load are how that paper and those it compares with drive their simulations.
//!
//! **Load counts what is on the wire.** A flow of `X` bytes is cut into packets of [`PACKET_PAYLOAD`] bytes, each with
//! [`HEADER`] bytes of headers; load is the mean of such bytes offered to a host's link over what that link carries.
//! Acknowledgements and what is sent twice are not counted.

use crate::flow_sizes::{FlowSizes, PACKET_PAYLOAD, unit};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use weir_model::{Bytes, HostId, Rate, Span, Time};

/// Headers of a packet on the wire: 20 bytes of IP and 20 of TCP.
pub const HEADER: Bytes = Bytes(40);

/// What is known of a flow when it arrives: Karuna's types 1, 2 and 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKind {
    /// Type 1: it has to be complete within a span after its arrival. Its size is known.
    Deadline {
        /// From the arrival to the deadline.
        within: Span,
    },
    /// Type 2: no deadline, the size known.
    Known,
    /// Type 3: no deadline, and its size is known only when it ends.
    Unknown,
    /// None of Karuna's types: part of a coflow that a coordinator gives rates, by the number of the flow's plan.
    Planned(u32),
}

/// A flow and when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowArrival {
    /// When its first byte may be sent.
    pub arrival: Time,
    /// Where its bytes are.
    pub source: HostId,
    /// Where they go; never the source.
    pub destination: HostId,
    /// Payload, at least 1 byte.
    pub size: Bytes,
    /// What is known of it.
    pub kind: FlowKind,
}

/// How many flows are of which kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Share of all bytes, 0 to 1, that belong to flows with a deadline. Where sizes are distributed alike for all
    /// kinds, it is also the probability that a flow has one: see [`Mix::deadline_flows`].
    pub deadline_bytes: f64,
    /// Payload of every flow with a deadline, at least 1 byte; without it they are as large as others are.
    pub deadline_size: Option<Bytes>,
    /// Share, 0 to 1, of the flows without a deadline whose size is known.
    pub known: f64,
    /// Deadlines are uniform between these, the first not above the second.
    pub within: (Span, Span),
}

impl Mix {
    /// No flow has a deadline, and no size is known: what information-agnostic schedulers face.
    pub const UNKNOWN: Mix =
        Mix { deadline_bytes: 0.0, deadline_size: None, known: 0.0, within: (Span::ZERO, Span::ZERO) };

    /// Probability, 0 to 1, that a flow has a deadline, where others have `sizes`.
    ///
    /// With a probability p, deadline flows of size s and others of mean size m, the share of bytes is
    /// `p s / (p s + (1 - p) m)`; solved for p. Our own derivation.
    pub fn deadline_flows(&self, sizes: &FlowSizes) -> f64 {
        let share = self.deadline_bytes;
        let Some(size) = self.deadline_size else { return share };
        let (with, without) = (share * sizes.mean(), (1.0 - share) * size.0 as f64);
        with / (with + without)
    }
}

/// Between which hosts flows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Any ordered pair of different hosts, all alike. The load is that of every host's link, both directions.
    Uniform,
    /// From any other host to this one. The load is that of its link towards it.
    Into(HostId),
    /// From this host to any other one. The load is that of its link from it.
    From(HostId),
}

/// A workload of flows that arrive as a Poisson process.
#[derive(Clone, Debug, PartialEq)]
pub struct PoissonSpec {
    /// Number of hosts, at least 2.
    pub hosts: u32,
    /// What a host's link carries each direction, headers included.
    pub access_rate: Rate,
    /// Offered load, above 0: see the head of this file. From 1 on, queues grow without end.
    pub load: f64,
    /// How large flows are.
    pub sizes: FlowSizes,
    /// Of which kinds they are.
    pub mix: Mix,
    /// Between which hosts they go.
    pub ends: Ends,
    /// The same seed gives the same flows, to the byte. Arrivals, sizes and hosts do not depend on the mix, and
    /// another load only stretches time. Where deadline flows have a size of their own, it is theirs instead of the one
    /// drawn, and the mix stretches time too.
    pub seed: u64,
    /// How many flows there are.
    pub flows: u64,
}

/// Why a specification describes no workload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PoissonError {
    /// A flow has two different ends.
    #[error("{0} hosts are too few: a flow needs two")]
    Hosts(u32),
    /// The host at which all flows meet is not there.
    #[error("host {host} does not exist: there are {hosts}, counted from 0")]
    End {
        /// The host asked for.
        host: HostId,
        /// How many there are.
        hosts: u32,
    },
    /// The link rate is not above 0 and finite.
    #[error("the rate of links is {0}: it must be above 0")]
    Rate(Rate),
    /// The load is not above 0 and finite.
    #[error("the load is {0}: it must be above 0")]
    Load(f64),
    /// A share of the mix is not between 0 and 1.
    #[error("the share of {what} is {share}: it must be from 0 to 1")]
    Share {
        /// Which share of the mix: of bytes with deadlines, or of known sizes.
        what: &'static str,
        /// The share as it was given.
        share: f64,
    },
    /// Flows with a deadline have no bytes.
    #[error("flows with a deadline have 0 bytes: their size must be above 0")]
    DeadlineSize,
    /// The shortest deadline is above the longest.
    #[error("deadlines lie between {} s and {} s: the first must not be above the second", .0.as_secs(), .1.as_secs())]
    Deadlines(Span, Span),
}

/// The flows of a [`PoissonSpec`], by rising arrival.
#[derive(Clone, Debug)]
pub struct Poisson {
    spec: PoissonSpec,
    /// Mean time between two arrivals.
    gap_secs: f64,
    /// Probability that a flow has a deadline.
    deadline_flows: f64,
    now_secs: f64,
    left: u64,
    /// When, between whom, how large.
    flows: ChaCha8Rng,
    /// Draws which flows have deadlines and known sizes.
    kinds: ChaCha8Rng,
}

impl Poisson {
    /// Checks the specification and begins at time 0, before the first arrival.
    ///
    /// # Errors
    /// There are fewer than two hosts, the one end of all flows is none of them, or the rate, the load or the mix has
    /// a value out of range: [`PoissonError`] says which.
    pub fn new(spec: PoissonSpec) -> Result<Poisson, PoissonError> {
        let &PoissonSpec { hosts, access_rate, load, mix, ends, seed, flows, .. } = &spec;
        if hosts < 2 {
            return Err(PoissonError::Hosts(hosts));
        }
        if let Ends::Into(host) | Ends::From(host) = ends
            && host.0 >= hosts
        {
            return Err(PoissonError::End { host, hosts });
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !positive(access_rate.bytes_per_sec()) {
            return Err(PoissonError::Rate(access_rate));
        }
        if !positive(load) {
            return Err(PoissonError::Load(load));
        }
        for (what, share) in [("deadline bytes", mix.deadline_bytes), ("known sizes", mix.known)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(PoissonError::Share { what, share });
            }
        }
        if mix.deadline_size == Some(Bytes(0)) {
            return Err(PoissonError::DeadlineSize);
        }
        if mix.within.0 > mix.within.1 {
            return Err(PoissonError::Deadlines(mix.within.0, mix.within.1));
        }
        let links = match ends {
            Ends::Uniform => f64::from(hosts),
            Ends::Into(_) | Ends::From(_) => 1.0,
        };
        let deadline_flows = mix.deadline_flows(&spec.sizes);
        let others = mean_wire_bytes(&spec.sizes);
        let mean = match mix.deadline_size {
            Some(size) => deadline_flows * wire_bytes(size).0 as f64 + (1.0 - deadline_flows) * others,
            None => others,
        };
        // Load = mean bytes / (gap * links * rate), solved for the gap.
        let gap_secs = mean / (load * links * access_rate.bytes_per_sec());
        let stream = |number| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            // Streams of their own: another mix draws the same sizes, hosts and times.
            random.set_stream(number);
            random
        };
        let (flows, kinds, left) = (stream(0), stream(1), flows);
        Ok(Poisson { spec, gap_secs, deadline_flows, now_secs: 0.0, left, flows, kinds })
    }

    /// What it was made of.
    pub fn spec(&self) -> &PoissonSpec {
        &self.spec
    }

    fn ends(&mut self) -> (HostId, HostId) {
        let hosts = self.spec.hosts;
        // A host other than the given one: those behind it move up by one.
        let other = |host: HostId, drawn: u32| HostId(drawn + u32::from(drawn >= host.0));
        // Two draws, also where one is not used: sizes and times of later flows are the same for
        // all kinds of ends.
        let (one, two) = (below(&mut self.flows, hosts), below(&mut self.flows, hosts - 1));
        match self.spec.ends {
            Ends::Uniform => (HostId(one), other(HostId(one), two)),
            Ends::Into(host) => (other(host, two), host),
            Ends::From(host) => (host, other(host, two)),
        }
    }

    fn kind(&mut self) -> FlowKind {
        let Mix { known, within: (shortest, longest), .. } = self.spec.mix;
        // Always three draws, so that a change of one share moves no flow but those it is about.
        let [which, knows, when] = std::array::from_fn(|_| unit(&mut self.kinds));
        if which < self.deadline_flows {
            let range = (longest.nanos() - shortest.nanos()) as f64;
            let within = shortest + Span::from_nanos((when * range).round() as u64);
            FlowKind::Deadline { within }
        } else if knows < known {
            FlowKind::Known
        } else {
            FlowKind::Unknown
        }
    }
}

impl Iterator for Poisson {
    type Item = FlowArrival;

    fn next(&mut self) -> Option<FlowArrival> {
        self.left = self.left.checked_sub(1)?;
        // 1 - u is never 0.
        self.now_secs -= self.gap_secs * (1.0 - unit(&mut self.flows)).ln();
        let arrival = Time::ZERO + Span::from_nanos((self.now_secs * 1e9).round() as u64);
        let drawn = self.spec.sizes.draw(&mut self.flows);
        let (source, destination) = self.ends();
        let kind = self.kind();
        let size = match (kind, self.spec.mix.deadline_size) {
            (FlowKind::Deadline { .. }, Some(size)) => size,
            _ => drawn,
        };
        Some(FlowArrival { arrival, source, destination, size, kind })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

/// What a flow of this size has on the wire: its packets with their headers.
pub fn wire_bytes(size: Bytes) -> Bytes {
    Bytes(size.0 + size.0.div_ceil(PACKET_PAYLOAD.0).max(1) * HEADER.0)
}

/// Mean of [`wire_bytes`] over a distribution, in bytes. What whole bytes add to the payload of a draw, half a byte
/// in the mean, is left out.
pub fn mean_wire_bytes(sizes: &FlowSizes) -> f64 {
    sizes.mean() + sizes.mean_packets() * HEADER.0 as f64
}

/// A number drawn uniformly from 0 to `n` - 1.
fn below(random: &mut ChaCha8Rng, n: u32) -> u32 {
    use rand::Rng;
    // The upper half of the product: one draw and no division, with a bias of at most n / 2^64.
    ((u128::from(random.next_u64()) * u128::from(n)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIX: Mix = Mix {
        deadline_bytes: 0.3,
        deadline_size: None,
        known: 0.5,
        within: (Span::from_millis(5), Span::from_millis(25)),
    };

    fn spec(flows: u64) -> PoissonSpec {
        PoissonSpec {
            hosts: 16,
            access_rate: Rate::from_bits_per_sec(10e9),
            load: 0.6,
            sizes: FlowSizes::named("web-search").unwrap(),
            mix: MIX,
            ends: Ends::Uniform,
            seed: 1,
            flows,
        }
    }

    fn flows(spec: &PoissonSpec) -> Vec<FlowArrival> {
        Poisson::new(spec.clone()).unwrap().collect()
    }

    fn offered(flows: &[FlowArrival], wanted: impl Fn(&FlowArrival) -> bool) -> f64 {
        flows.iter().filter(|flow| wanted(flow)).map(|flow| wire_bytes(flow.size).0 as f64).sum()
    }

    #[test]
    fn a_flow_carries_its_headers() {
        assert_eq!([1, 1460, 1461, 2920].map(|size| wire_bytes(Bytes(size)).0), [41, 1500, 1541, 3000]);
    }

    #[test]
    fn load_is_what_the_links_are_offered() {
        // Sizes have a deviation of about 2.3 times their mean, 1.71 MB, gaps of once theirs: the ratio of the sums
        // of 50 000 is off by sqrt(2.3^2 + 1) / sqrt(50 000) = 1.1 %. Four times that are allowed.
        let all = flows(&spec(50_000));
        let secs = all[all.len() - 1].arrival.as_secs();
        let capacity = 1.25e9 * secs;
        let load = offered(&all, |_| true) / (16.0 * capacity);
        assert!((load / 0.6 - 1.0).abs() < 0.045, "{load}");
        for ends in [Ends::Into(HostId(3)), Ends::From(HostId(3))] {
            let all = flows(&PoissonSpec { ends, ..spec(50_000) });
            let capacity = 1.25e9 * all[all.len() - 1].arrival.as_secs();
            let at_host = |flow: &FlowArrival| match ends {
                Ends::From(_) => flow.source == HostId(3),
                _ => flow.destination == HostId(3),
            };
            assert!(all.iter().all(at_host));
            let load = offered(&all, |_| true) / capacity;
            assert!((load / 0.6 - 1.0).abs() < 0.045, "{load}");
        }
    }

    #[test]
    fn flows_have_two_ends_and_all_hosts_take_part_alike() {
        let all = flows(&spec(48_000));
        assert!(all.iter().all(|flow| flow.source != flow.destination));
        for host in (0..16).map(HostId) {
            // 3000 expected, deviation sqrt(48000 * 15) / 16 = 53.
            let sent = all.iter().filter(|flow| flow.source == host).count();
            let received = all.iter().filter(|flow| flow.destination == host).count();
            assert!(sent.abs_diff(3000) < 270 && received.abs_diff(3000) < 270, "{host}: {sent} {received}");
        }
    }

    #[test]
    fn kinds_have_the_shares_of_the_mix() {
        let all = flows(&spec(50_000));
        let deadline = |flow: &FlowArrival| matches!(flow.kind, FlowKind::Deadline { .. });
        // Of the bytes: deviation sqrt(0.3 * 0.7 * (1 + 2.3^2) / 50 000) = 0.005.
        let share = offered(&all, deadline) / offered(&all, |_| true);
        assert!((share - 0.3).abs() < 0.02, "{share}");
        let count =
            |wanted: &dyn Fn(&FlowArrival) -> bool| all.iter().filter(|flow| wanted(flow)).count() as f64;
        let (known, unknown) =
            (count(&|flow| flow.kind == FlowKind::Known), count(&|flow| flow.kind == FlowKind::Unknown));
        assert!((known / (known + unknown) - 0.5).abs() < 0.012, "{known} {unknown}");
        let deadlines: Vec<f64> = all
            .iter()
            .filter_map(|flow| match flow.kind {
                FlowKind::Deadline { within } => Some(within.as_secs() * 1e3),
                _ => None,
            })
            .collect();
        assert!(deadlines.iter().all(|within| (5.0..=25.0).contains(within)));
        // Uniform over 20 ms: the deviation of the mean is 20 / sqrt(12 * 15 000) = 0.05 ms.
        let mean = deadlines.iter().sum::<f64>() / deadlines.len() as f64;
        assert!((mean - 15.0).abs() < 0.2, "{mean}");
    }

    #[test]
    fn a_seed_gives_the_same_flows_and_a_mix_only_their_kinds() {
        let base = spec(2000);
        assert_eq!(flows(&base), flows(&base));
        assert_ne!(flows(&base), flows(&PoissonSpec { seed: 2, ..base.clone() }));
        let unmixed = flows(&PoissonSpec { mix: Mix::UNKNOWN, ..base.clone() });
        assert!(unmixed.iter().all(|flow| flow.kind == FlowKind::Unknown));
        let bare = |flow: &FlowArrival| FlowArrival { kind: FlowKind::Unknown, ..*flow };
        assert_eq!(flows(&base).iter().map(bare).collect::<Vec<_>>(), unmixed);
        // Half the load takes twice the time.
        let stretched = flows(&PoissonSpec { load: 0.3, ..base.clone() });
        for (flow, slow) in flows(&base).iter().zip(&stretched) {
            assert_eq!((flow.size, flow.source), (slow.size, slow.source));
            assert!(slow.arrival.nanos().abs_diff(2 * flow.arrival.nanos()) <= 2);
        }
    }

    /// Others are 1.71 MB in the mean, so 200 kB have 0.3 of the bytes if 0.3 * 1.71 / (0.3 * 1.71 + 0.7 * 0.2) = 0.786 of
    /// the flows are so large.
    #[test]
    fn deadline_flows_of_their_own_size_keep_share_and_load() {
        let size = Bytes(200_000);
        let all = flows(&PoissonSpec { mix: Mix { deadline_size: Some(size), ..MIX }, ..spec(100_000) });
        let deadline = |flow: &FlowArrival| matches!(flow.kind, FlowKind::Deadline { .. });
        assert!(all.iter().filter(|flow| deadline(flow)).all(|flow| flow.size == size));
        // Of the flows: deviation sqrt(0.786 * 0.214 / 100 000) = 0.0013.
        let share = all.iter().filter(|flow| deadline(flow)).count() as f64 / 100_000.0;
        assert!((share - 0.786).abs() < 0.006, "{share}");
        // 21 400 others have a sum with a deviation of sqrt(1 + 2.3^2) / sqrt(21 400) = 1.7 %, of which 0.7 go into the
        // load and 0.3 * 0.7 into the share of bytes: 1.2 % and 0.0036. Four times those are allowed.
        let share = offered(&all, deadline) / offered(&all, |_| true);
        assert!((share - 0.3).abs() < 0.0144, "{share}");
        let secs = all[all.len() - 1].arrival.as_secs();
        let load = offered(&all, |_| true) / (16.0 * 1.25e9 * secs);
        assert!((load / 0.6 - 1.0).abs() < 0.048, "{load}");
    }

    #[test]
    fn a_size_of_deadline_flows_changes_no_other_flow() {
        let base = spec(2000);
        let sized =
            flows(&PoissonSpec { mix: Mix { deadline_size: Some(Bytes(80_000)), ..MIX }, ..base.clone() });
        let drawn = flows(&base);
        // All arrivals are later or earlier by one factor.
        let factor = sized[1999].arrival.as_secs() / drawn[1999].arrival.as_secs();
        for (own, drawn) in sized.iter().zip(&drawn) {
            assert!((own.arrival.as_secs() / drawn.arrival.as_secs() / factor - 1.0).abs() < 1e-4);
            assert_eq!((own.source, own.destination), (drawn.source, drawn.destination));
            let deadline = matches!(own.kind, FlowKind::Deadline { .. });
            assert_eq!(own.size, if deadline { Bytes(80_000) } else { drawn.size });
        }
        // With no such flow, or nothing but such flows, no other probability is left.
        for share in [0.0, 1.0] {
            let mix = Mix { deadline_bytes: share, deadline_size: Some(Bytes(80_000)), ..MIX };
            assert_eq!(mix.deadline_flows(&base.sizes), share);
        }
        let none = |deadline_size| Mix { deadline_bytes: 0.0, deadline_size, ..MIX };
        let with = flows(&PoissonSpec { mix: none(Some(Bytes(80_000))), ..base.clone() });
        assert_eq!(with, flows(&PoissonSpec { mix: none(None), ..base }));
    }

    /// What seed 1 gave before deadline flows could have a size of their own.
    #[test]
    fn without_a_size_of_deadline_flows_every_draw_stays() {
        let flow = |nanos, source, destination, size, kind| FlowArrival {
            arrival: Time::from_nanos(nanos),
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size),
            kind,
        };
        let within = Span::from_nanos(11_890_818);
        let expected = [
            flow(75_451, 9, 3, 5359, FlowKind::Known),
            flow(124_334, 7, 2, 1_106_103, FlowKind::Deadline { within }),
            flow(428_742, 7, 9, 1_066_241, FlowKind::Unknown),
        ];
        assert_eq!(flows(&spec(3)), expected);
    }

    #[test]
    fn arrivals_never_go_back_and_end_at_the_count() {
        let all = flows(&spec(1000));
        assert!(all.is_sorted_by_key(|flow| flow.arrival));
        assert_eq!((all.len(), Poisson::new(spec(1000)).unwrap().size_hint()), (1000, (1000, Some(1000))));
    }

    #[test]
    fn what_describes_no_workload_is_refused_with_the_reason() {
        let refused = |change: &dyn Fn(&mut PoissonSpec)| {
            let mut spec = spec(1);
            change(&mut spec);
            Poisson::new(spec).unwrap_err().to_string()
        };
        assert_eq!(refused(&|spec| spec.hosts = 1), "1 hosts are too few: a flow needs two");
        let error = refused(&|spec| spec.ends = Ends::Into(HostId(16)));
        assert_eq!(error, "host 16 does not exist: there are 16, counted from 0");
        assert!(refused(&|spec| spec.load = 0.0).contains("the load is 0"));
        assert!(refused(&|spec| spec.load = f64::NAN).contains("the load is NaN"));
        assert!(refused(&|spec| spec.access_rate = Rate::ZERO).contains("rate of links is 0 bit/s"));
        assert!(refused(&|spec| spec.mix.known = 1.5).contains("share of known sizes is 1.5"));
        assert!(refused(&|spec| spec.mix.deadline_bytes = -0.1).contains("deadline bytes is -0.1"));
        let error = refused(&|spec| spec.mix.deadline_size = Some(Bytes(0)));
        assert_eq!(error, "flows with a deadline have 0 bytes: their size must be above 0");
        let error = refused(&|spec| spec.mix.within = (Span::from_millis(2), Span::from_millis(1)));
        assert!(error.contains("between 0.002 s and 0.001 s"), "{error}");
    }
}
