//! What is moved over which network.

use std::collections::BTreeMap;
use std::path::Path;
use weir_model::{CoflowId, CoflowSpec, Fabric, FabricError, Link, Rate};
use weir_results::Cut;
use weir_testbed::{BedLinks, HostLinks, MAX_HOSTS, Queues, RackLinks, Rates};
use weir_trace::{Expected, Rack, Scenario, Topology, TopologyHost};

/// Coflows, and the links of a bed beside the network that the simulator has of them.
#[derive(Clone, Debug)]
pub struct Work {
    /// Of the trace or the scenario.
    pub name: String,
    /// Of what was drawn; none where nothing was.
    pub seed: Option<u64>,
    /// What was cut out of the trace; none of a scenario.
    pub cut: Option<Cut>,
    /// The bed's, headers included.
    pub links: BedLinks,
    /// By arrival. None has a flow inside one host.
    pub coflows: Vec<CoflowSpec>,
    /// The links of payload alone.
    pub fabric: Fabric,
    /// Expected completion times in seconds, by policy and coflow.
    pub expect: BTreeMap<String, BTreeMap<CoflowId, f64>>,
}

impl Work {
    /// A scenario, in which ports in and out become different hosts, so that every flow crosses two links of this rate. `path`: its
    /// file, for errors.
    ///
    /// # Errors
    /// It cannot be had at this rate, or is not of one switch with equal links.
    pub fn of_scenario(scenario: &Scenario, path: &Path, link_rate: Rate) -> Result<Work, String> {
        let ports = scenario.hosts();
        let capacity = link_rate.payload();
        let scaled = scenario.at(capacity, scenario.unit_bytes).map_err(|error| error.to_string())?;
        let same = |link: &Link| link.capacity == scaled.fabric.links()[0].capacity;
        // A switch has one link up and one down for each port. Any other number means racks or
        // sites.
        if scaled.fabric.links().len() != 2 * ports as usize || !scaled.fabric.links().iter().all(same) {
            return Err(format!("{}: only one switch with equal links can be run live", path.display()));
        }
        let mut coflows = scaled.coflows;
        for flow in coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
            flow.destination.0 += ports;
        }
        let seconds = |(policy, times): (&String, &Vec<(CoflowId, Expected)>)| {
            let completes = |&(coflow, expected): &(CoflowId, Expected)| match expected {
                Expected::CompletesAfter(units) => Some((coflow, units * scaled.unit_secs)),
                Expected::Refused => None,
            };
            (policy.clone(), times.iter().filter_map(completes).collect())
        };
        let expect = scenario.expect.iter().map(seconds).collect();
        let (links, fabric) = equal_links(2 * ports, link_rate).map_err(|error| error.to_string())?;
        weir_sim::set_tails(&fabric, &mut coflows);
        Ok(Work { name: scenario.name.clone(), seed: None, cut: None, links, coflows, fabric, expect })
    }

    /// That of the fastest link of a host, headers included.
    pub fn fastest_link(&self) -> Rate {
        let rates = self.links.hosts.iter().map(|host| host.rates.up_bps.max(host.rates.down_bps));
        Rate::from_bits_per_sec(rates.max().unwrap_or(0) as f64)
    }
}

/// Hosts around one switch by equal links, as a bed and as a network of payload.
///
/// # Errors
/// No such network can be simulated.
pub fn equal_links(hosts: u32, link_rate: Rate) -> Result<(BedLinks, Fabric), FabricError> {
    let links = BedLinks::equal(hosts as usize, link_rate.bits_per_sec() as u64);
    Ok((links, Fabric::big_switch(hosts, link_rate.payload())?))
}

/// A topology that is to be a bed: what that has to be made of, and the network of its payload.
///
/// # Errors
/// It is no network that can be simulated, or has too many or too few hosts for a bed.
pub fn topology_links(topology: &Topology) -> Result<(BedLinks, Fabric), String> {
    let fabric = topology.fabric(Rate::PAYLOAD_SHARE)?;
    let hosts = topology.hosts.len();
    if !(2..=MAX_HOSTS).contains(&hosts) {
        return Err(format!("a bed has 2 to {MAX_HOSTS} hosts, not {hosts}"));
    }
    let rates = |[up, down]: [Rate; 2]| {
        let [up_bps, down_bps] = [up, down].map(|rate| rate.bits_per_sec() as u64);
        Rates { up_bps, down_bps }
    };
    let host = |host: &TopologyHost| {
        let [up, down] = host.rates.map(|rate| rate.unwrap_or(Rate::ZERO));
        HostLinks { rates: rates([up, down]), rack: host.rack, site: host.site }
    };
    let rack = |rack: &Rack| RackLinks { rates: rates(rack.rates), site: rack.site };
    let between = |rate: &Option<Rate>| rate.map_or(0, |rate| rate.bits_per_sec() as u64);
    let links = BedLinks {
        hosts: topology.hosts.iter().map(host).collect(),
        racks: topology.racks.iter().map(rack).collect(),
        between: topology.between.iter().map(|row| row.iter().map(between).collect()).collect(),
        queues: Queues::One,
        host_queues: Queues::One,
        segment_bytes: None,
    };
    Ok((links, fabric))
}

/// The least that a host of these links can always send or receive: its own rate, its part of its rack's, or its part of
/// that from its site to another or back.
pub fn least_rate(links: &BedLinks) -> Rate {
    let mut in_rack = vec![0u64; links.racks.len()];
    links.hosts.iter().filter_map(|host| host.rack).for_each(|rack| in_rack[rack] += 1);
    // A rack without hosts limits none, and would be divided by zero below.
    let racks = links.racks.iter().zip(in_rack).filter(|&(_, hosts)| hosts > 0);
    let racks = racks.map(|(rack, hosts)| rack.rates.up_bps.min(rack.rates.down_bps) / hosts);
    let mut in_site = vec![0u64; links.sites()];
    let site_of = |host: &HostLinks| host.rack.map_or(host.site, |rack| links.racks[rack].site);
    links.hosts.iter().filter_map(site_of).for_each(|site| in_site[site] += 1);
    let pairs = (0..links.sites()).flat_map(|from| (0..links.sites()).map(move |to| (from, to)));
    let between = pairs.filter(|(from, to)| from != to && in_site[*from].min(in_site[*to]) > 0);
    // All hosts of the sending site may share the link, and so may all of the receiving site: the
    // larger number leaves a host the least.
    let between = between.map(|(from, to)| links.between[from][to] / in_site[from].max(in_site[to]));
    let hosts = links.hosts.iter().map(|host| host.rates.up_bps.min(host.rates.down_bps));
    Rate::from_bits_per_sec(hosts.chain(racks).chain(between).min().unwrap_or(0) as f64)
}
