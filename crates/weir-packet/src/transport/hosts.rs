//! What real hosts and switches have to do for a transport.

use weir_endhost::mcp::Params;
use weir_endhost::thresholds::Thresholds;
use weir_model::Bytes;

/// The congestion control of hosts' sockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostControl {
    /// Reno, which hears of losses alone.
    Reno,
    /// DCTCP (SIGCOMM 2010): the share of marked bytes cuts the window.
    Dctcp,
    /// MCP for flows with deadlines, by these numbers, and DCTCP for others.
    Karuna(Params),
}

/// The classes that hosts put their packets into, for switches with a queue for each.
#[derive(Clone, Debug, PartialEq)]
pub struct HostClasses {
    /// By bytes sent, and by size where that is known.
    pub thresholds: Thresholds,
    /// The first class of flows without a deadline.
    pub best: u8,
    /// Whether hosts are told deadlines and sizes; if not, all flows go by bytes sent.
    pub told: bool,
    /// After so many timeouts in a row a flow of unknown size begins anew, and another one rises by a class.
    pub ages_after: Option<u32>,
}

/// What hosts and switches do.
#[derive(Clone, Debug, PartialEq)]
pub struct OnHosts {
    /// How windows of flows change with acknowledgements and marks.
    pub control: HostControl,
    /// None where all packets are in one queue.
    pub classes: Option<HostClasses>,
    /// Above so much that waits in a queue packets are marked that enter it: in that of class 0, and in each other. None: never. Ports
    /// of real switches count each queue by itself, as the setting `marks=queue` has it.
    pub marking: Option<[Bytes; 2]>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use crate::transport::named;

    const BED: &str = include_str!("../../../../scenarios/packets/sixteen-hosts-bed.toml");

    /// Marks at 60 kB; Karuna's first class, which is for deadlines, at a quarter of that.
    #[test]
    fn hosts_have_the_classes_and_marks_of_the_simulator() {
        let scenario = Scenario::from_text(BED).unwrap();
        let network = scenario.network(&scenario.topology().unwrap());
        let rules = |name: &str| {
            let mut transport = named(name).unwrap();
            transport.prepare(&network);
            transport.on_hosts(&network)
        };
        let classes = |name: &str| {
            let classes = rules(name)?.classes?;
            Some((classes.thresholds.levels(), classes.best, classes.told, classes.ages_after))
        };
        let marking = |name: &str| rules(name)?.marking.map(|marking| marking.map(|bytes| bytes.0));
        assert_eq!([classes("tcp"), classes("dctcp")], [None; 2]);
        assert_eq!(classes("pias"), Some((8, 0, false, None)));
        assert_eq!(classes("karuna"), Some((7, 1, true, Some(3))));
        assert_eq!(classes("karuna:ageing=0"), Some((7, 1, true, None)));
        assert_eq!([marking("tcp"), marking("dctcp")], [None, Some([60_000; 2])]);
        assert_eq!([marking("pias"), marking("karuna")], [Some([60_000; 2]), Some([15_000, 60_000])]);
        assert_eq!(marking("karuna:first-marking=20kB"), Some([20_000, 60_000]));
        let control = rules("karuna").map(|rules| rules.control);
        assert!(
            matches!(control, Some(HostControl::Karuna(params)) if params.mark_threshold_segments == 10.0)
        );
        assert!(["d3", "d2tcp", "pfabric", "pfabric-edf"].map(rules).iter().all(Option::is_none));
    }
}
