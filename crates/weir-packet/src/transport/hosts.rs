//! What real hosts and switches have to do for a transport.

use weir_endhost::mcp::Params;
use weir_endhost::thresholds::Thresholds;
use weir_model::Bytes;

/// The congestion control of hosts' sockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostControl {
    /// Reno, which hears of losses alone.
    Reno,
    /// DCTCP.
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
    /// How windows change.
    pub control: HostControl,
    /// None where all packets are in one queue.
    pub classes: Option<HostClasses>,
    /// Above so much that waits in a queue packets are marked that enter it: in that of class 0, and in each other. None: never. Ports
    /// of real switches count each queue by itself, as the setting `marks=queue` has it.
    pub marking: Option<[Bytes; 2]>,
}
