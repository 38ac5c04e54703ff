//! Which ports there are, and by which of them a packet goes.

use crate::packet::Route;
use crate::port::PortSpec;
use crate::time::Picos;
use thiserror::Error;
use weir_model::Rate;

/// Ports are counted with 16 bits in packets.
const MAX_PORTS: u64 = u16::MAX as u64;
/// A full packet takes 12 s: slower links are a slip of the pen, and their times overflow.
const LEAST_RATE: Rate = Rate::from_bits_per_sec(1e3);

/// Hosts at one switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleSwitch {
    /// Number of hosts, at least 2.
    pub hosts: u32,
    /// Of every host, up and down.
    pub rate: Rate,
    /// Propagation delay of every link, one way.
    pub link_delay: Picos,
    /// What a host needs for each packet that it sends, and again for each that it receives, beside others.
    pub host_delay: Picos,
}

/// Racks of hosts, each with a switch (leaf), and switches above (spines) that every leaf has one link to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeafSpine {
    /// Number of racks, at least 1.
    pub racks: u32,
    /// How many hosts in each.
    pub hosts_per_rack: u32,
    /// Number of spine switches, at least 1.
    pub spines: u32,
    /// Of every host, up and down.
    pub host_rate: Rate,
    /// Between a leaf and a spine.
    pub spine_rate: Rate,
    /// Propagation delay of every link, one way.
    pub link_delay: Picos,
    /// As [`SingleSwitch::host_delay`] of one switch.
    pub host_delay: Picos,
    /// Which spine packets between racks go by.
    pub balance: Balance,
}

/// How packets are spread over ways of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// All packets of a flow take one, drawn for the flow.
    Ecmp,
    /// Each packet takes the next one, beginning with one drawn for the flow.
    Spray,
}

/// Why a topology cannot be built.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TopologyError {
    /// Something there has to be at least so much of.
    #[error("{what} is {is}, and has to be at least {least}")]
    TooFew {
        /// The quantity at fault, in words.
        what: &'static str,
        /// How much there is.
        is: u64,
        /// How much there has to be.
        least: u64,
    },
    /// A link on which a packet would take seconds.
    #[error("a link of {rate} is too slow: it has to carry at least {LEAST_RATE}")]
    TooSlow {
        /// Rate of the link at fault.
        rate: Rate,
    },
    /// More ports than packets can name.
    #[error("{ports} ports are more than {MAX_PORTS}: take fewer hosts, racks or spines")]
    TooManyPorts {
        /// Number of ports that it would have.
        ports: u64,
    },
}

#[derive(Clone, Debug)]
enum Shape {
    SingleSwitch,
    LeafSpine { racks: u32, hosts_per_rack: u32, spines: u32, balance: Balance },
}

/// A network of hosts and output-queued switches.
#[derive(Clone, Debug)]
pub struct Topology {
    ports: Vec<PortSpec>,
    hosts: u32,
    host_rate: Rate,
    shape: Shape,
}

fn at_least(what: &'static str, is: u32, least: u32) -> Result<(), TopologyError> {
    if is >= least {
        return Ok(());
    }
    Err(TopologyError::TooFew { what, is: is.into(), least: least.into() })
}

fn fast_enough(rate: Rate) -> Result<(), TopologyError> {
    if rate.bytes_per_sec() >= LEAST_RATE.bytes_per_sec() {
        Ok(())
    } else {
        Err(TopologyError::TooSlow { rate })
    }
}

fn few_ports(ports: u64) -> Result<(), TopologyError> {
    if ports <= MAX_PORTS { Ok(()) } else { Err(TopologyError::TooManyPorts { ports }) }
}

impl Topology {
    /// Hosts at one switch. Ports: a host's own by its number, then the switch's towards each.
    ///
    /// # Errors
    /// Fewer than two hosts, or more than ports can be counted for.
    pub fn single_switch(spec: &SingleSwitch) -> Result<Topology, TopologyError> {
        at_least("the number of hosts", spec.hosts, 2)?;
        few_ports(2 * u64::from(spec.hosts))?;
        fast_enough(spec.rate)?;
        let delay = spec.link_delay + spec.host_delay;
        let up = PortSpec { rate: spec.rate, delay, switch: None };
        let down = PortSpec { switch: Some(0), ..up };
        let hosts = spec.hosts as usize;
        let ports = [vec![up; hosts], vec![down; hosts]].concat();
        Ok(Topology { ports, hosts: spec.hosts, host_rate: spec.rate, shape: Shape::SingleSwitch })
    }

    /// Racks and spines. Ports: a host's own, a leaf's towards each host, then each leaf's towards each spine, then each
    /// spine's towards each leaf.
    ///
    /// # Errors
    /// No racks, hosts or spines, fewer than two hosts in all, or more ports than can be counted.
    pub fn leaf_spine(spec: &LeafSpine) -> Result<Topology, TopologyError> {
        at_least("the number of racks", spec.racks, 1)?;
        at_least("the number of hosts per rack", spec.hosts_per_rack, 1)?;
        at_least("the number of spines", spec.spines, 1)?;
        fast_enough(spec.host_rate)?;
        fast_enough(spec.spine_rate)?;
        let all = u64::from(spec.racks) * u64::from(spec.hosts_per_rack);
        few_ports(2 * all + 2 * u64::from(spec.racks) * u64::from(spec.spines))?;
        let hosts = all as u32;
        at_least("the number of hosts", hosts, 2)?;
        let near = spec.link_delay + spec.host_delay;
        let mut ports = vec![PortSpec { rate: spec.host_rate, delay: near, switch: None }; hosts as usize];
        for host in 0..hosts {
            let switch = Some(host / spec.hosts_per_rack);
            ports.push(PortSpec { rate: spec.host_rate, delay: near, switch });
        }
        for rack in 0..spec.racks {
            let up = PortSpec { rate: spec.spine_rate, delay: spec.link_delay, switch: Some(rack) };
            ports.extend(std::iter::repeat_n(up, spec.spines as usize));
        }
        for spine in 0..spec.spines {
            let down =
                PortSpec { rate: spec.spine_rate, delay: spec.link_delay, switch: Some(spec.racks + spine) };
            ports.extend(std::iter::repeat_n(down, spec.racks as usize));
        }
        let shape = Shape::LeafSpine {
            racks: spec.racks,
            hosts_per_rack: spec.hosts_per_rack,
            spines: spec.spines,
            balance: spec.balance,
        };
        Ok(Topology { ports, hosts, host_rate: spec.host_rate, shape })
    }

    /// The ports, by number.
    pub fn ports(&self) -> &[PortSpec] {
        &self.ports
    }
    /// Number of hosts, which are numbered from 0.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }
    /// Of every host's link.
    pub fn host_rate(&self) -> Rate {
        self.host_rate
    }
    /// Whether packets of a flow may overtake each other.
    pub fn reorders(&self) -> bool {
        matches!(self.shape, Shape::LeafSpine { balance: Balance::Spray, spines: 2.., .. })
    }
    /// The port of a switch that leads to a host.
    pub fn port_to(&self, host: u32) -> u32 {
        self.hosts + host
    }

    /// The way of a packet. `flow` is drawn once per flow, `packet` counts its packets.
    #[inline]
    pub(crate) fn route(&self, source: u32, destination: u32, flow: u32, packet: u32) -> Route {
        let last = self.hosts + destination;
        match self.shape {
            Shape::SingleSwitch => Route::through(&[source, last]),
            Shape::LeafSpine { racks, hosts_per_rack, spines, balance } => {
                let (from, to) = (source / hosts_per_rack, destination / hosts_per_rack);
                if from == to {
                    return Route::through(&[source, last]);
                }
                let spine = match balance {
                    Balance::Ecmp => flow % spines,
                    Balance::Spray => flow.wrapping_add(packet) % spines,
                };
                // In the order in which `leaf_spine` makes ports: hosts', leaves' towards hosts, leaves' towards spines, spines' towards leaves.
                let up = 2 * self.hosts + from * spines + spine;
                let down = 2 * self.hosts + racks * spines + spine * racks + to;
                Route::through(&[source, up, down, last])
            }
        }
    }

    /// How long a packet of `bytes` takes from `source` to `destination` through a network in which nothing waits.
    pub fn empty_delay(&self, source: u32, destination: u32, bytes: u32) -> Picos {
        // Whichever spine it is: all have links of one rate and one delay.
        let route = self.route(source, destination, 0, 0);
        route.ports[..usize::from(route.hops)].iter().fold(Picos::ZERO, |sum, &port| {
            let spec = &self.ports[usize::from(port)];
            sum + crate::time::PerByte::at(spec.rate).of(bytes) + spec.delay
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fabric() -> LeafSpine {
        LeafSpine {
            racks: 9,
            hosts_per_rack: 16,
            spines: 4,
            host_rate: Rate::from_bits_per_sec(10e9),
            spine_rate: Rate::from_bits_per_sec(40e9),
            link_delay: Picos::from_nanos(200),
            host_delay: Picos::from_micros(20),
            balance: Balance::Spray,
        }
    }

    #[test]
    fn ways_across_racks_go_up_to_a_spine_and_down_from_it() {
        let topology = Topology::leaf_spine(&fabric()).unwrap();
        // 144 ports of hosts, 144 towards them, 9 x 4 up, 4 x 9 down.
        assert_eq!(topology.ports().len(), 144 + 144 + 36 + 36);
        // Host 17 is in rack 1, host 143 in rack 8; packet 3 of a flow that begins at spine 3 takes spine 2.
        let route = topology.route(17, 143, 3, 3);
        assert_eq!(route.hops, 4);
        assert_eq!(route.ports[..4], [17, 288 + 4 + 2, 288 + 36 + 2 * 9 + 8, 144 + 143]);
        assert_eq!(topology.route(0, 15, 7, 9).hops, 2);
    }

    #[test]
    fn a_round_trip_across_racks_is_about_85_us() {
        let topology = Topology::leaf_spine(&fabric()).unwrap();
        // 1500 B: 2 x 1.2 us, 2 x 0.3 us, 4 links of 0.2 us, 2 x 20 us in hosts. 40 B: 0.08 us of serialization.
        let there = topology.empty_delay(0, 143, 1500);
        let back = topology.empty_delay(143, 0, 40);
        assert_eq!(there, Picos(3_000_000 + 800_000 + 40_000_000));
        assert_eq!(back, Picos(80_000 + 800_000 + 40_000_000));
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let one = SingleSwitch {
            hosts: 1,
            rate: Rate::from_bits_per_sec(1e9),
            link_delay: Picos::ZERO,
            host_delay: Picos::ZERO,
        };
        assert!(Topology::single_switch(&one).is_err());
        assert!(Topology::single_switch(&SingleSwitch { hosts: 40_000, ..one }).is_err());
        assert!(Topology::leaf_spine(&LeafSpine { spines: 0, ..fabric() }).is_err());
        let slow = Rate::from_bits_per_sec(10.0);
        assert!(Topology::leaf_spine(&LeafSpine { spine_rate: slow, ..fabric() }).is_err());
    }
}
