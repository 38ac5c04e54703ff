//! Work between datacenters: a trace of one cluster spread over them, or shuffles drawn at random.

mod bound;
mod connections;
mod links;
mod shuffles;
mod spread;
mod traffic;

pub(crate) use bound::least_average_secs;
pub use links::LinkUse;
pub(crate) use links::{RegionNet, add_links};
pub use shuffles::ShuffleSetup;
pub(crate) use traffic::Traffic;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_model::{
    CapacityChange, CoflowId, CoflowSpec, Fabric, LinkId, LinkKind, Rate, SiteSpec, Span, Time,
};
use weir_trace::synthetic::Draw;
use weir_trace::wan::{Excerpt, Grid};

/// Changes of capacities go on for so many times as long as arrivals do.
const CHANGES_LAST: f64 = 8.0;
/// The most a link's capacity may change within a run.
const MOST_CHANGES: f64 = 1e6;
/// What makes the seed of lasting factors another than that of all else: any number.
const LASTING: u64 = 0x6c61_7374_696e_6721;

/// Sites joined by one link a pair, of bandwidths that were measured; nothing else limits, and traffic inside a site
/// takes no time. What moves between them is the trace at a `load`, or `shuffles`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SiteSetup {
    /// Measured bandwidths: an excerpt in `data/wan`.
    pub bandwidth: String,
    /// Only regions whose names begin with one of these.
    #[serde(default)]
    pub regions: Vec<String>,
    /// The snapshot to take; else every snapshot is a sample of the same distribution.
    pub snapshot: Option<String>,
    /// The trace's hosts are spread over the sites, and sizes multiplied so that the link with the most to do for its
    /// mean bandwidth is busy for this share of the time in which coflows arrive, if all traffic goes directly. Every
    /// site has as many hosts (racks, in the public trace) as the others, give or take one, by a draw of the seed.
    /// Flows of a coflow from one site to another are one flow; coflows with no such leave the workload.
    pub load: Option<f64>,
    /// Sites have parts of the hosts in proportion to Zipf weights with this exponent, in an order that the seed draws;
    /// 0 or absent is alike. The load is then that of the busiest site, all its links out or in together: on direct links
    /// alone the busiest would be far above what routes can do.
    pub uneven: Option<f64>,
    /// Shuffles between the sites, in place of the trace.
    pub shuffles: Option<ShuffleSetup>,
    /// No pair of sites gets more than so many TCP connections do, which all its flows share; else the measured
    /// bandwidth is what there is.
    pub connections: Option<u32>,
    /// Capacities are drawn anew from the samples, link by link, each time so many seconds have passed; else they
    /// are the mean and stay.
    pub every: Option<f64>,
    /// With `every`: what a link has is multiplied by a factor that it keeps for the run, U(0, 1) to this power, 0 to 4. The time
    /// that a byte takes has a heavy tail then (Pareto's, of the shape 1 over this): a few links are slow for good.
    pub lasting: Option<f64>,
}

/// A network of sites, and the work on it.
#[derive(Debug)]
pub(crate) struct SiteWork {
    pub(crate) fabric: Fabric,
    pub(crate) changes: Vec<CapacityChange>,
    pub(crate) coflows: Vec<CoflowSpec>,
    /// Which quarter of all coflows, by their bytes between sites, each is in: 1 to 4, the smallest first.
    pub(crate) bins: BTreeMap<CoflowId, u8>,
    pub(crate) regions: RegionNet,
}

/// Capacities that were measured: one table for each sample.
struct Samples {
    grids: Vec<Grid>,
}

impl SiteSetup {
    pub(crate) fn check(&self) -> Result<(), String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !self.load.is_none_or(positive) || !self.every.is_none_or(positive) {
            return Err("load or every of the sites is not a number above 0".to_owned());
        }
        if self.load.is_some() == self.shuffles.is_some() {
            return Err("sites need a load, for the trace, or shuffles, and not both".to_owned());
        }
        if self.connections == Some(0) {
            return Err("sites need a connection at least".to_owned());
        }
        if self.uneven.is_some_and(|exponent| !(0.0..=4.0).contains(&exponent) || self.load.is_none()) {
            return Err("uneven sites need a load, and an exponent from 0 to 4".to_owned());
        }
        if self.lasting.is_some_and(|exponent| !(0.0..=4.0).contains(&exponent) || self.every.is_none()) {
            return Err("lasting factors of links need `every`, and an exponent from 0 to 4".to_owned());
        }
        let sites = self.samples()?.grids.first().map_or(0, |grid| grid.regions.len());
        self.shuffles.as_ref().map_or(Ok(()), |shuffles| shuffles.check(sites))
    }

    fn samples(&self) -> Result<Samples, String> {
        let excerpt: Excerpt = self.bandwidth.parse().map_err(|error| format!("bandwidth: {error}"))?;
        let measured = excerpt.read().map_err(|error| format!("bandwidth {}: {error}", self.bandwidth))?;
        let mut grids = match &self.snapshot {
            Some(snapshot) => {
                vec![measured.grid(snapshot, &self.regions).map_err(|error| error.to_string())?]
            }
            None => measured.grids(&self.regions),
        };
        if let Some(count) = self.connections {
            connections::limit(&mut grids, count)?;
        }
        match grids.first() {
            Some(first) if grids.iter().all(|grid| grid.regions == first.regions) => Ok(Samples { grids }),
            Some(_) => Err("snapshots have different regions; name a snapshot".to_owned()),
            None => Err("no snapshot has all pairs of these regions".to_owned()),
        }
    }

    /// The network, and the work: made of these coflows between so many hosts, or drawn.
    pub(crate) fn work(&self, coflows: Vec<CoflowSpec>, hosts: u32, seed: u64) -> Result<SiteWork, String> {
        let mut samples = self.samples()?;
        if let Some(exponent) = self.lasting {
            // Draws of its own, so that the others are those of a run without it.
            samples.multiply(exponent, &mut Draw::new(seed ^ LASTING));
        }
        let mean = samples.mean();
        let mut draw = Draw::new(seed);
        let coflows = match (&self.shuffles, self.load) {
            (Some(shuffles), _) => shuffles.draw(&mean, seed)?,
            (None, load) => {
                spread::spread(coflows, hosts, &mean, load.unwrap_or(1.0), self.uneven, &mut draw)?
            }
        };
        let hosts_per_site = vec![1; mean.len()];
        let fabric = Fabric::sites(&SiteSpec { hosts_per_site, host_rate: None, rates: mean });
        let mut fabric = fabric.map_err(|error| error.to_string())?;
        let changes = match self.every {
            Some(every) => {
                // Capacities change for CHANGES_LAST times as long as coflows arrive: the last ones end later than they arrive.
                let last = coflows.iter().map(|coflow| coflow.arrival).max().unwrap_or(Time::ZERO);
                samples.changes(&mut fabric, every, last, &mut draw)?
            }
            None => Vec::new(),
        };
        let bins = spread::quarters(&coflows);
        let regions = RegionNet::of(&samples.grids[0].regions)?;
        Ok(SiteWork { fabric, changes, coflows, bins, regions })
    }
}

impl Samples {
    fn mean(&self) -> Vec<Vec<Rate>> {
        let sites = self.grids[0].regions.len();
        let mut mean = vec![vec![Rate::default(); sites]; sites];
        for (from, row) in mean.iter_mut().enumerate() {
            for (to, mean) in row.iter_mut().enumerate() {
                let sum: f64 = self.grids.iter().map(|grid| grid.rates[from][to].bytes_per_sec()).sum();
                *mean = Rate::from_bytes_per_sec(sum / self.grids.len() as f64);
            }
        }
        mean
    }

    /// Multiplies what each link has in all samples by a factor of its own.
    fn multiply(&mut self, exponent: f64, draw: &mut Draw) {
        const STEPS: u64 = 1 << 32;
        let sites = self.grids[0].regions.len();
        for (from, to) in (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to))) {
            // In (0, 1]: no link is without any.
            let factor = ((draw.below(STEPS) + 1) as f64 / STEPS as f64).powf(exponent);
            for grid in &mut self.grids {
                let rate = &mut grid.rates[from][to];
                *rate = Rate::from_bytes_per_sec(rate.bytes_per_sec() * factor);
            }
        }
    }

    /// What a link had in any of the samples, each as likely.
    fn of_link(&self, fabric: &Fabric, link: LinkId, draw: &mut Draw) -> Rate {
        let grid = &self.grids[draw.below(self.grids.len() as u64) as usize];
        let LinkKind::Site { from, to } = fabric.links()[link.index()].kind else {
            unreachable!("sites without limits of hosts have no other links")
        };
        grid.rates[from as usize][to as usize]
    }

    /// Gives every link a capacity of its samples to begin with, and others every so many seconds.
    fn changes(
        &self,
        fabric: &mut Fabric,
        every: f64,
        last: Time,
        draw: &mut Draw,
    ) -> Result<Vec<CapacityChange>, String> {
        let steps = (last.as_secs() * CHANGES_LAST / every).ceil();
        if steps > MOST_CHANGES {
            return Err(format!("a change every {every} s makes {steps} of them; ask for fewer"));
        }
        let links = 0..fabric.links().len() as u32;
        for link in links.clone().map(LinkId) {
            let first = self.of_link(fabric, link, draw);
            fabric.set_capacity(link, first).map_err(|error| error.to_string())?;
        }
        let mut changes = Vec::new();
        for step in 1..=steps as u64 {
            let at = Time::ZERO + Span::from_secs_ceil(every * step as f64);
            let change = |link| CapacityChange { at, link, capacity: self.of_link(fabric, link, draw) };
            changes.extend(links.clone().map(LinkId).map(change));
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{Bytes, FlowSpec, HostId};

    fn setup(every: Option<f64>) -> SiteSetup {
        SiteSetup {
            bandwidth: "wanify-aws8".to_owned(),
            regions: ["us-east-1", "us-west-1", "eu-west-1"].map(str::to_owned).to_vec(),
            snapshot: None,
            load: Some(0.5),
            uneven: None,
            shuffles: None,
            connections: None,
            every,
            lasting: None,
        }
    }

    /// Every ten seconds one coflow in which each of six hosts sends to each, itself too.
    fn coflows() -> Vec<CoflowSpec> {
        let ends = || (0..6).flat_map(|from| (0..6).map(move |to| (HostId(from), HostId(to))));
        let flow = |(source, destination)| FlowSpec { source, destination, size: Bytes(1000), group: 0 };
        let coflow =
            |id| CoflowSpec::new(CoflowId(id), Time::from_millis(10_000 * id), ends().map(flow).collect());
        (1..=20).map(coflow).collect()
    }

    #[test]
    fn links_keep_a_factor_for_a_run_and_the_load_is_that_of_what_they_have() {
        let work = |lasting| SiteSetup { lasting, ..setup(Some(10.0)) }.work(coflows(), 6, 1).unwrap();
        let (usual, slowed) = (work(None), work(Some(2.0)));
        let mut factors = BTreeMap::new();
        for (one, other) in usual.changes.iter().zip(&slowed.changes) {
            assert_eq!((one.at, one.link), (other.at, other.link));
            let factor = other.capacity.bytes_per_sec() / one.capacity.bytes_per_sec();
            let kept = *factors.entry(one.link.0).or_insert(factor);
            assert!((factor / kept - 1.0).abs() < 1e-9 && factor <= 1.0, "{factor}, was {kept}");
        }
        assert_eq!(factors.len(), usual.fabric.links().len());
        let least = factors.values().copied().fold(f64::INFINITY, f64::min);
        assert!(least < 0.5, "no slow link among {factors:?}");
        let bytes =
            |work: &SiteWork| work.coflows.iter().map(CoflowSpec::bytes).map(|bytes| bytes.0).sum::<u64>();
        assert!(bytes(&slowed) < bytes(&usual), "less capacity, less to do");
    }

    #[test]
    fn uneven_sites_have_the_hosts_of_their_weights_and_the_busiest_has_the_load() {
        let mut uneven = setup(None);
        uneven.uneven = Some(1.0);
        // Weights 1, 1/2, 1/3 of 6 hosts: three, two and one. Each host sends to each of the others in each coflow.
        let work = uneven.work(coflows(), 6, 7).expect("work");
        let mut sent = [0.0; 3];
        let mut received = [0.0; 3];
        for flow in work.coflows.iter().flat_map(|coflow| &coflow.flows) {
            sent[flow.source.index()] += flow.size.0 as f64;
            received[flow.destination.index()] += flow.size.0 as f64;
        }
        let most = sent.into_iter().fold(0.0, f64::max);
        let mut parts = sent.map(|bytes| (bytes / most * 9.0).round() as u32);
        parts.sort_unstable();
        assert_eq!(parts, [5, 8, 9], "1 x 5, 2 x 4 and 3 x 3 pairs");
        let last = work.coflows.iter().map(|coflow| coflow.arrival).max().expect("a coflow");
        let rate = |from: usize, to: usize| {
            let between =
                |link: &&weir_model::Link| link.kind == LinkKind::Site { from: from as u32, to: to as u32 };
            work.fabric.links().iter().find(between).map_or(0.0, |link| link.capacity.bytes_per_sec())
        };
        let busy = |site: usize| {
            let out: f64 = (0..3).map(|other| rate(site, other)).sum();
            let into: f64 = (0..3).map(|other| rate(other, site)).sum();
            f64::max(sent[site] / out, received[site] / into) / last.as_secs()
        };
        let load = (0..3).map(busy).fold(0.0, f64::max);
        assert!((load - 0.5).abs() < 1e-6, "{load}");
        uneven.uneven = Some(5.0);
        assert!(uneven.check().is_err());
    }

    #[test]
    fn the_busiest_link_has_the_load_asked_for() {
        let work = setup(None).work(coflows(), 6, 1).expect("work");
        assert_eq!(work.fabric.links().len(), 6);
        let loads = (0u32..).zip(work.fabric.links()).map(|(link, at)| {
            let of = |flow: &&FlowSpec| {
                work.fabric.path(flow.source, flow.destination).is_some_and(|path| path[0] == LinkId(link))
            };
            let bytes: u64 = work
                .coflows
                .iter()
                .flat_map(|coflow| coflow.flows.iter().filter(of).map(|flow| flow.size.0))
                .sum();
            bytes as f64 / at.capacity.bytes_per_sec() / 200.0
        });
        let most = loads.fold(0.0, f64::max);
        assert!((most - 0.5).abs() < 1e-4, "{most}");
        // Two hosts a site: 2 x 2 flows for each pair of sites are one.
        assert!(work.coflows.iter().all(|coflow| coflow.flows.len() == 6));
    }

    #[test]
    fn capacities_change_when_asked_to_and_come_from_the_samples() {
        let work = setup(Some(20.0)).work(coflows(), 6, 1).expect("work");
        assert_eq!(work.changes.len(), 6 * 80);
        assert_eq!(work.changes[6].at, Time::from_millis(40_000));
        let samples = setup(None).samples().expect("samples");
        let of_link = |link: LinkId| {
            let LinkKind::Site { from, to } = work.fabric.links()[link.index()].kind else { panic!() };
            samples.grids.iter().map(move |grid| grid.rates[from as usize][to as usize])
        };
        for change in &work.changes {
            assert!(of_link(change.link).any(|rate| rate == change.capacity));
        }
        let other = setup(Some(20.0)).work(coflows(), 6, 2).expect("work");
        assert!(
            work.changes != other.changes
                && setup(None).work(coflows(), 6, 1).expect("work").changes.is_empty()
        );
    }

    #[test]
    fn coflows_are_in_the_quarter_of_their_size() {
        let coflow = |id: u64| {
            let flow =
                FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(100 - id), group: 0 };
            CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow])
        };
        let bins = spread::quarters(&(1..=8).map(coflow).collect::<Vec<_>>());
        let bins: Vec<u8> = bins.into_values().collect();
        assert_eq!(bins, [4, 4, 3, 3, 2, 2, 1, 1]);
    }

    #[test]
    fn what_cannot_be_spread_is_refused_with_the_reason() {
        let said = |change: &dyn Fn(&mut SiteSetup)| {
            let mut setup = setup(Some(20.0));
            change(&mut setup);
            let checked = setup.check();
            checked.and_then(|()| setup.work(coflows(), 6, 1).map(|_| ())).expect_err("refused")
        };
        assert!(said(&|setup| setup.bandwidth = "mine".to_owned()).contains("known: skyplane-gcp5"));
        assert!(said(&|setup| setup.load = Some(0.0)).contains("not a number above 0"));
        assert!(said(&|setup| setup.load = None).contains("or shuffles"));
        assert!(said(&|setup| setup.every = Some(f64::NAN)).contains("not a number above 0"));
        assert!(said(&|setup| setup.every = Some(1e-6)).contains("ask for fewer"));
        // 600,000 flows of each pair of the three sites, both ways.
        let many = |setup: &mut SiteSetup| {
            let shuffles = ShuffleSetup {
                count: 1_000,
                bytes: 1e9,
                reducers: 2_000,
                skew: 0.0,
                noise: 0.0,
                even_receivers: false,
            };
            (setup.load, setup.shuffles) = (None, Some(shuffles));
        };
        assert!(said(&many).contains("10^7 flows in all"));
        let stays = |setup: &mut SiteSetup| (setup.every, setup.lasting) = (None, Some(2.0));
        assert!(said(&stays).contains("need `every`"));
        for exponent in [-1.0, 4.5, f64::NAN] {
            assert!(
                said(&|setup| setup.lasting = Some(exponent)).contains("an exponent from 0 to 4"),
                "{exponent}"
            );
        }
        assert!(said(&|setup| setup.regions = vec!["mars".to_owned()]).contains("no snapshot"));
        let pooled = |setup: &mut SiteSetup| {
            setup.bandwidth = "skyplane-gcp5".to_owned();
            setup.regions.clear();
        };
        assert!(said(&pooled).contains("different regions"));
        assert!(said(&|setup| setup.connections = Some(0)).contains("a connection at least"));
        assert!(said(&|setup| setup.connections = Some(1)).contains("one connection from eu-west-1"));
        let at_once: Vec<CoflowSpec> =
            coflows().into_iter().map(|coflow| CoflowSpec { arrival: Time::ZERO, ..coflow }).collect();
        assert!(setup(None).work(at_once, 6, 1).expect_err("refused").contains("at once"));
    }
}
