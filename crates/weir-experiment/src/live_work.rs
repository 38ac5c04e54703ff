//! The workload that is repeated with real bytes, made small enough for one machine.

use crate::run::work_of;
use crate::workload::Work;
use crate::{Experiment, Live, RunError, Source};
use weir_model::{Bytes, CapacityChange, CoflowSpec, Fabric, LinkKind, Rate, SiteSpec, Time};

/// A workload between sites on a test bed.
#[derive(Clone, Debug)]
pub struct LiveWork {
    /// Rates of links as shaped, headers included, from and to each site.
    pub rates: Vec<Vec<Rate>>,
    /// Other rates that links get: when, from, to.
    pub changes: Vec<(Time, usize, usize, Rate)>,
    /// One host per site.
    pub coflows: Vec<CoflowSpec>,
}

impl Experiment {
    /// Seeds of the live part.
    pub fn live_seeds<'a>(&'a self, live: &'a Live) -> &'a [u64] {
        live.seeds.as_deref().unwrap_or(&self.seeds)
    }

    /// The workload of the live part.
    ///
    /// # Errors
    /// [`RunError::Work`]: the experiment has no such point, its workload cannot be changed as the point asks, or it
    /// is not between sites.
    pub fn live_work(&self, live: &Live, workload: &Source, seed: u64) -> Result<LiveWork, RunError> {
        let refuse = |reason: String| RunError::Work { point: live.point.clone(), reason };
        let point = self.point.iter().find(|point| point.name == live.point);
        let point = point.ok_or_else(|| refuse("there is no such point".to_owned()))?;
        let work = work_of(self, workload, point, seed)?;
        LiveWork::scaled(work, live).map_err(refuse)
    }
}

impl LiveWork {
    fn scaled(work: Work, live: &Live) -> Result<LiveWork, String> {
        let Work { fabric, changes, mut coflows, .. } = work;
        let sites = fabric.site_count() as usize;
        let pairs = || (0..sites).flat_map(move |from| (0..sites).map(move |to| (from, to)));
        let mut rates = vec![vec![Rate::ZERO; sites]; sites];
        for (from, to) in pairs() {
            if let Some(link) = fabric.between(from as u32, to as u32) {
                rates[from][to] = fabric.capacity(link);
            }
        }
        let all = rates.iter().flatten().copied().chain(changes.iter().map(|change| change.capacity));
        let fastest = all.map(Rate::bytes_per_sec).fold(0.0, f64::max);
        if fastest <= 0.0 {
            return Err("its workload is not between sites".to_owned());
        }
        let rate_factor = live.fastest()?.bytes_per_sec() / fastest;
        let time_factor = live.sizes / rate_factor;
        if let Some(largest) = live.largest {
            coflows.sort_by_key(|coflow| (std::cmp::Reverse(coflow.bytes()), coflow.id));
            coflows.truncate(largest);
            coflows.sort_by_key(|coflow| (coflow.arrival, coflow.id));
        }
        let start = coflows.iter().map(|coflow| coflow.arrival).min().unwrap_or(Time::ZERO);
        // Times before the first coflow become 0: of changes before it the last one is in force when it arrives.
        let moved = |at: Time| Time::from_nanos((at.since(start).nanos() as f64 * time_factor) as u64);
        for coflow in &mut coflows {
            coflow.arrival = moved(coflow.arrival);
            for flow in &mut coflow.flows {
                flow.size = Bytes(((flow.size.0 as f64 * live.sizes).round() as u64).max(1));
            }
        }
        rates.iter_mut().flatten().for_each(|rate| *rate = rate.scaled(rate_factor));
        let change = |change: &CapacityChange| {
            let LinkKind::Site { from, to } = fabric.links()[change.link.index()].kind else { return None };
            Some((moved(change.at), from as usize, to as usize, change.capacity.scaled(rate_factor)))
        };
        Ok(LiveWork { rates, changes: changes.iter().filter_map(change).collect(), coflows })
    }

    /// The network as the simulator has it, where links carry this share of payload, and its changes.
    ///
    /// # Errors
    /// The rates make no network of sites, for instance because there is only one site; the text says why.
    pub fn simulated(&self, payload_share: f64) -> Result<(Fabric, Vec<CapacityChange>), String> {
        let payload = |rate: Rate| rate.scaled(payload_share);
        let rates = self.rates.iter().map(|row| row.iter().copied().map(payload).collect()).collect();
        let spec = SiteSpec { hosts_per_site: vec![1; self.rates.len()], host_rate: None, rates };
        let fabric = Fabric::sites(&spec).map_err(|error| error.to_string())?;
        let change = |&(at, from, to, rate): &(Time, usize, usize, Rate)| {
            let link = fabric.between(from as u32, to as u32)?;
            Some(CapacityChange { at, link, capacity: payload(rate) })
        };
        let changes = self.changes.iter().filter_map(change).collect();
        Ok((fabric, changes))
    }
}
