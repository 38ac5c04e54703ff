//! A trace of one cluster as it would be if the cluster were spread over datacenters.

mod bound;

pub(crate) use bound::least_average_secs;

use serde::Deserialize;
use std::collections::BTreeMap;
use weir_model::{
    Bytes, CapacityChange, CoflowId, CoflowSpec, Fabric, FlowSpec, HostId, LinkId, LinkKind, Rate, SiteSpec,
    Span, Time,
};
use weir_trace::synthetic::Draw;
use weir_trace::wan::{Excerpt, Grid};

/// Changes of capacities go on for so many times as long as arrivals do.
const CHANGES_LAST: f64 = 8.0;
/// The most a link's capacity may change within a run.
const MOST_CHANGES: f64 = 1e6;

/// A workload between datacenters. Every host (a rack, in the public trace) is in one of the sites, each of which has
/// as many as the others, give or take one, by a draw of the seed. Flows of a coflow from one site to another are
/// one flow: sites are joined by one link a pair, and nothing else limits. Traffic inside a site takes no time; coflows
/// with no other leave the workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteSetup {
    /// Measured bandwidths: an excerpt in `data/wan`.
    pub bandwidth: String,
    /// Only regions whose names begin with one of these.
    #[serde(default)]
    pub regions: Vec<String>,
    /// The snapshot to take; else every snapshot is a sample of the same distribution.
    pub snapshot: Option<String>,
    /// Sizes are multiplied so that the link with the most to do for its mean bandwidth is busy for this share of
    /// the time in which coflows arrive, if all traffic goes directly.
    pub load: f64,
    /// Capacities are drawn anew from the samples, link by link, each time so many seconds have passed; else they
    /// are the mean and stay.
    pub every: Option<f64>,
}

/// A network of sites, and the work on it.
#[derive(Debug)]
pub(crate) struct SiteWork {
    pub(crate) fabric: Fabric,
    pub(crate) changes: Vec<CapacityChange>,
    pub(crate) coflows: Vec<CoflowSpec>,
    /// Which quarter of all coflows, by their bytes between sites, each is in: 1 to 4, the smallest first.
    pub(crate) bins: BTreeMap<CoflowId, u8>,
}

/// Capacities that were measured: one table for each sample.
struct Samples {
    grids: Vec<Grid>,
}

impl SiteSetup {
    pub(crate) fn check(&self) -> Result<(), String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !positive(self.load) || !self.every.is_none_or(positive) {
            return Err("load or every of the sites is not a number above 0".to_owned());
        }
        self.samples().map(|_| ())
    }

    fn samples(&self) -> Result<Samples, String> {
        let excerpt: Excerpt = self.bandwidth.parse().map_err(|error| format!("bandwidth: {error}"))?;
        let measured = excerpt.read().map_err(|error| format!("bandwidth {}: {error}", self.bandwidth))?;
        let grids = match &self.snapshot {
            Some(snapshot) => {
                vec![measured.grid(snapshot, &self.regions).map_err(|error| error.to_string())?]
            }
            None => measured.grids(&self.regions),
        };
        match grids.first() {
            Some(first) if grids.iter().all(|grid| grid.regions == first.regions) => Ok(Samples { grids }),
            Some(_) => Err("snapshots have different regions; name a snapshot".to_owned()),
            None => Err("no snapshot has all pairs of these regions".to_owned()),
        }
    }

    /// Spreads coflows of so many hosts over the sites.
    pub(crate) fn spread(&self, coflows: Vec<CoflowSpec>, hosts: u32, seed: u64) -> Result<SiteWork, String> {
        let samples = self.samples()?;
        let mean = samples.mean();
        let mut draw = Draw::new(seed);
        let site_of = place(hosts, mean.len(), &mut draw);
        let mut coflows: Vec<CoflowSpec> =
            coflows.into_iter().filter_map(|coflow| between_sites(coflow, &site_of)).collect();
        let last = coflows.iter().map(|coflow| coflow.arrival).max().ok_or("no coflow crosses sites")?;
        let busy_secs = busiest(&coflows, &mean);
        let factor = self.load * last.as_secs() / busy_secs;
        if !(factor.is_finite() && factor > 0.0) {
            return Err("coflows all arrive at once: there is no time for a load to be a share of".to_owned());
        }
        for flow in coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
            flow.size = Bytes(((flow.size.0 as f64 * factor).round() as u64).max(1));
        }
        let hosts_per_site = vec![1; mean.len()];
        let fabric = Fabric::sites(&SiteSpec { hosts_per_site, host_rate: None, rates: mean });
        let mut fabric = fabric.map_err(|error| error.to_string())?;
        let mut changes = Vec::new();
        if let Some(every) = self.every {
            let steps = (last.as_secs() * CHANGES_LAST / every).ceil();
            if steps > MOST_CHANGES {
                return Err(format!("a change every {every} s makes {steps} of them; ask for fewer"));
            }
            for link in 0..fabric.links().len() as u32 {
                let first = samples.of_link(&fabric, LinkId(link), &mut draw);
                fabric.set_capacity(LinkId(link), first).map_err(|error| error.to_string())?;
            }
            for step in 1..=steps as u64 {
                let at = Time::ZERO + Span::from_secs_ceil(every * step as f64);
                changes.extend((0..fabric.links().len() as u32).map(LinkId).map(|link| CapacityChange {
                    at,
                    link,
                    capacity: samples.of_link(&fabric, link, &mut draw),
                }));
            }
        }
        let bins = quarters(&coflows);
        Ok(SiteWork { fabric, changes, coflows, bins })
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

    /// What a link had in any of the samples, each as likely.
    fn of_link(&self, fabric: &Fabric, link: LinkId, draw: &mut Draw) -> Rate {
        let grid = &self.grids[draw.below(self.grids.len() as u64) as usize];
        let LinkKind::Site { from, to } = fabric.links()[link.index()].kind else {
            unreachable!("sites without limits of hosts have no other links")
        };
        grid.rates[from as usize][to as usize]
    }
}

/// The site of each host: dealt out in turn, in a random order.
fn place(hosts: u32, sites: usize, draw: &mut Draw) -> Vec<u32> {
    let mut order: Vec<usize> = (0..hosts as usize).collect();
    draw.shuffle(&mut order);
    let mut site_of = vec![0; order.len()];
    for (turn, host) in order.into_iter().enumerate() {
        site_of[host] = (turn % sites) as u32;
    }
    site_of
}

/// The coflow with one flow for each pair of sites that it has traffic between.
fn between_sites(coflow: CoflowSpec, site_of: &[u32]) -> Option<CoflowSpec> {
    let mut sums: BTreeMap<(u32, u32), Bytes> = BTreeMap::new();
    for flow in &coflow.flows {
        let pair = (site_of[flow.source.index()], site_of[flow.destination.index()]);
        if pair.0 != pair.1 {
            *sums.entry(pair).or_insert(Bytes(0)) += flow.size;
        }
    }
    let flows: Vec<FlowSpec> = sums
        .into_iter()
        .map(|((from, to), size)| FlowSpec { source: HostId(from), destination: HostId(to), size, group: to })
        .collect();
    (!flows.is_empty()).then_some(CoflowSpec { flows, ..coflow })
}

/// Seconds that the busiest link needs for all coflows.
fn busiest(coflows: &[CoflowSpec], rates: &[Vec<Rate>]) -> f64 {
    let mut secs = vec![vec![0.0; rates.len()]; rates.len()];
    for flow in coflows.iter().flat_map(|coflow| &coflow.flows) {
        let (from, to) = (flow.source.index(), flow.destination.index());
        secs[from][to] += flow.size.0 as f64 / rates[from][to].bytes_per_sec();
    }
    secs.into_iter().flatten().fold(0.0, f64::max)
}

fn quarters(coflows: &[CoflowSpec]) -> BTreeMap<CoflowId, u8> {
    let mut by_size: Vec<(Bytes, CoflowId)> =
        coflows.iter().map(|coflow| (coflow.bytes(), coflow.id)).collect();
    by_size.sort_unstable();
    let count = by_size.len();
    (0..).zip(by_size).map(|(rank, (_, id))| (id, 1 + (4 * rank / count) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(every: Option<f64>) -> SiteSetup {
        SiteSetup {
            bandwidth: "wanify-aws8".to_owned(),
            regions: ["us-east-1", "us-west-1", "eu-west-1"].map(str::to_owned).to_vec(),
            snapshot: None,
            load: 0.5,
            every,
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
    fn the_busiest_link_has_the_load_asked_for() {
        let work = setup(None).spread(coflows(), 6, 1).expect("work");
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
        let work = setup(Some(20.0)).spread(coflows(), 6, 1).expect("work");
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
        let other = setup(Some(20.0)).spread(coflows(), 6, 2).expect("work");
        assert!(
            work.changes != other.changes
                && setup(None).spread(coflows(), 6, 1).expect("work").changes.is_empty()
        );
    }

    #[test]
    fn coflows_are_in_the_quarter_of_their_size() {
        let coflow = |id: u64| {
            let flow =
                FlowSpec { source: HostId(0), destination: HostId(1), size: Bytes(100 - id), group: 0 };
            CoflowSpec::new(CoflowId(id), Time::ZERO, vec![flow])
        };
        let bins = quarters(&(1..=8).map(coflow).collect::<Vec<_>>());
        let bins: Vec<u8> = bins.into_values().collect();
        assert_eq!(bins, [4, 4, 3, 3, 2, 2, 1, 1]);
    }

    #[test]
    fn what_cannot_be_spread_is_refused_with_the_reason() {
        let said = |change: &dyn Fn(&mut SiteSetup)| {
            let mut setup = setup(Some(20.0));
            change(&mut setup);
            let checked = setup.check();
            checked.and_then(|()| setup.spread(coflows(), 6, 1).map(|_| ())).expect_err("refused")
        };
        assert!(said(&|setup| setup.bandwidth = "mine".to_owned()).contains("known: skyplane-gcp5"));
        assert!(said(&|setup| setup.load = 0.0).contains("not a number above 0"));
        assert!(said(&|setup| setup.every = Some(f64::NAN)).contains("not a number above 0"));
        assert!(said(&|setup| setup.every = Some(1e-6)).contains("ask for fewer"));
        assert!(said(&|setup| setup.regions = vec!["mars".to_owned()]).contains("no snapshot"));
        let pooled = |setup: &mut SiteSetup| {
            setup.bandwidth = "skyplane-gcp5".to_owned();
            setup.regions.clear();
        };
        assert!(said(&pooled).contains("different regions"));
        let at_once: Vec<CoflowSpec> =
            coflows().into_iter().map(|coflow| CoflowSpec { arrival: Time::ZERO, ..coflow }).collect();
        assert!(setup(None).spread(at_once, 6, 1).expect_err("refused").contains("at once"));
    }
}
