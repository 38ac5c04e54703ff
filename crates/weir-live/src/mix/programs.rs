//! The programs in the kernel that a transport takes, loaded for one bed.

use std::io;
use std::net::TcpStream;
use weir_ebpf::{Config, DEFAULT_DSCP, Dctcp, Karuna, Marker, Marking, McpConfig, Tagger};
use weir_model::Hint;
use weir_packet::Scenario;
use weir_packet::transport::{HostClasses, HostControl, OnHosts};
use weir_testbed::{Bed, HOST_LINK, Place, Queues};
use weir_trace::{FlowArrival, FlowKind};

/// Of the switch's ports.
pub(super) const QUEUES: Queues = Queues::ByDscp(DEFAULT_DSCP);
/// The class of acknowledgements, as in the simulator.
const ACKNOWLEDGEMENTS: u8 = 0;

/// The kernel's name of a control.
pub(super) fn name(control: HostControl) -> Result<&'static str, String> {
    Ok(match control {
        HostControl::Reno => "reno",
        HostControl::Dctcp => Dctcp::NAME,
        HostControl::Karuna(_) => Karuna::NAME,
    })
}

/// What goes when it is dropped: controls before the tagger whose table they read.
pub(super) struct Programs {
    _dctcp: Option<Dctcp>,
    _karuna: Option<Karuna>,
    tagger: Option<Tagger>,
    /// Whether the tagger is told deadlines and sizes.
    told: bool,
    /// At the switch's port to each host.
    markers: Vec<Marker>,
}

impl Programs {
    pub(super) fn load(bed: &Bed, rules: &OnHosts, scenario: &Scenario) -> Result<Programs, anyhow::Error> {
        let mut markers = Vec::new();
        if let Some([first, others]) = rules.marking {
            let mut marking = Marking::new(others, std::array::from_fn(Queues::htb_class));
            if rules.classes.is_some() {
                marking.thresholds[0] = first;
            }
            for host in 0..bed.hosts() {
                let attach = || Marker::attach(&bed.switch_port(host), &marking);
                markers.push(bed.run_in_switch(attach)??);
            }
        }
        let tagger = rules.classes.as_ref().map(|classes| tagger(bed, classes)).transpose()?;
        let (mut dctcp, mut karuna) = (None, None);
        match (rules.control, &tagger) {
            (HostControl::Karuna(params), Some(tagger)) => {
                let config =
                    McpConfig { params, ..McpConfig::new(params.base_rtt, Some(scenario.host_rate())) };
                karuna = Some(Karuna::register(tagger, &config)?);
            }
            (HostControl::Reno, _) => {}
            _ => dctcp = Some(Dctcp::register()?),
        }
        let told = rules.classes.as_ref().is_some_and(|classes| classes.told);
        Ok(Programs { _dctcp: dctcp, _karuna: karuna, tagger, told, markers })
    }

    /// A receiver sends acknowledgements alone.
    pub(super) fn connected(&self, near: &TcpStream, far: &TcpStream) -> io::Result<()> {
        let Some(tagger) = &self.tagger else { return Ok(()) };
        let place = |socket| tagger.place(socket, ACKNOWLEDGEMENTS).map_err(io::Error::other);
        // What a sender says before its flow begins has no payload.
        place(near).and_then(|()| place(far))
    }

    /// A flow begins: what its host may know of it.
    pub(super) fn begins(&self, flow: &FlowArrival, near: &TcpStream) -> io::Result<()> {
        let Some(tagger) = &self.tagger else { return Ok(()) };
        let hint = match flow.kind {
            FlowKind::Deadline { within } if self.told => Hint::Deadline { size: flow.size, within },
            FlowKind::Known if self.told => Hint::Known(flow.size),
            _ => Hint::Unknown,
        };
        tagger.hint(near, hint).map_err(io::Error::other)
    }

    /// Pieces that were marked, at all ports.
    pub(super) fn marked(&self) -> Result<u64, anyhow::Error> {
        let mut marked = 0;
        for marker in &self.markers {
            let marks = marker.marks()?;
            marked += marks.classes.iter().map(|class| class.marked).sum::<u64>();
        }
        Ok(marked)
    }
}

/// One tagger for all hosts: hints are of sockets, whichever namespace they are in.
fn tagger(bed: &Bed, classes: &HostClasses) -> Result<Tagger, anyhow::Error> {
    let HostClasses { thresholds, best, ages_after, .. } = classes.clone();
    let config = Config { best, ages_after, ..Config::new(thresholds) };
    let attach = || Tagger::attach(HOST_LINK, &config);
    let mut tagger = bed.run_at(Place::Host(0), attach)??;
    for host in 1..bed.hosts() {
        bed.run_at(Place::Host(host), || tagger.attach_also(HOST_LINK))??;
    }
    Ok(tagger)
}
