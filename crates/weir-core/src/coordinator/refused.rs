//! Why an agent's session is refused, in words for its operator.

use crate::ids::HostNumber;
use weir_proto::limits;

/// Why a host was not forgotten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// It is not in the list of hosts that are away.
    #[error("no host {0} is away at this coordinator; `weir hosts` lists those that are")]
    Unknown(String),
    /// Its agent has a session.
    #[error("the agent of host {0} is there; stop it first")]
    Present(String),
}

/// Why an agent's session was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// It speaks another version.
    #[error("this coordinator speaks version 1 of the control plane, the agent version {0}")]
    Version(u32),
    /// It goes by other terms than this coordinator has: they changed, or another process had them.
    #[error("the coordinator's policy has changed since the agent asked for its terms; it asks again")]
    Terms,
    /// Its host is not in the fabric.
    #[error(
        "host {host} is outside the fabric of {hosts} hosts; check the agent's --host and the coordinator's --hosts"
    )]
    Host {
        /// What the agent said.
        host: HostNumber,
        /// Hosts of the fabric.
        hosts: u32,
    },
    /// Its number is too large for one.
    #[error("the number of a host is less than {max}, not {0}", max = limits::MAX_HOST_NUMBER)]
    Number(HostNumber),
    /// Its name is too long, or has control characters.
    #[error(
        "the name of a host has at most {max} bytes and no control characters; {0:?} is refused",
        max = limits::MAX_HOST_NAME_BYTES
    )]
    Name(String),
    /// The network is of known hosts alone.
    #[error("host {0} is not in the coordinator's topology, which takes no others")]
    Unknown(String),
    /// The name of its rack is too long.
    #[error("the name of a rack has at most {max} bytes, not {0}", max = limits::MAX_HOST_NAME_BYTES)]
    Rack(usize),
    /// One of its labels is none, or there are too many.
    #[error("{0}")]
    Label(String),
    /// Its links have no rate.
    #[error(
        "the rate of the links of host {0} is not known; give its agent --link-rate, or the coordinator one for all"
    )]
    LinkRate(String),
    /// The network has no place for one more host.
    #[error("there are {max} hosts, which is the bound", max = limits::MAX_HOSTS)]
    TooManyHosts,
    /// Another host has the number that was made from its name: it draws another one.
    #[error("host {name} has number {number}, and so has host {other}")]
    NumberTaken {
        /// Number that both hosts have.
        number: HostNumber,
        /// Name of the host whose agent is refused.
        name: String,
        /// Name of the host that has the number.
        other: String,
    },
    /// It has a name, where hosts are numbered.
    #[error("host {name} has a name, and this coordinator takes numbers from 0 to {last} alone (--hosts)")]
    Named {
        /// Name that the agent said for its host.
        name: String,
        /// Largest host number of this coordinator.
        last: u32,
    },
    /// Another agent, with another spool or a copy of its spool, has a session for its host.
    #[error(
        "host {host} has an agent already, at {address}; check the --host and the spools of both, of which none may be a \
         copy. If that agent is gone, this one is taken once its connection is found dead, in ten seconds or so"
    )]
    Taken {
        /// What the agent said.
        host: String,
        /// Data address of the other agent.
        address: String,
    },
    /// It was refused for another agent before, and this process has just begun: that one has time to come back.
    #[error(
        "host {host} had another agent when this one came last; the coordinator has begun anew and waits ten seconds for it"
    )]
    Awaited {
        /// What the agent said.
        host: String,
    },
    /// It came late: the same agent has a session that it began after this one.
    #[error("host {0} has a newer session of this agent")]
    Late(String),
    /// Its address is longer than a name may be.
    #[error("an agent's address has at most {max} bytes, not {0}", max = limits::MAX_NAME_BYTES)]
    Address(usize),
}
