//! Real bytes beside their simulation, for callers that have a workload and a policy: the same coflows on a test bed and in the fluid
//! simulator ([`Case`]), between sites through relays ([`sites`]), and single flows packet by packet ([`mix`]). Work goes in, records
//! come out; no command line is read here, and nothing is printed.
#![forbid(unsafe_code)]

mod case;
pub mod mix;
pub mod sites;
mod tables;
mod work;

pub use case::{Case, FAIR, Pair, TCP};
pub use tables::{line, notes, tables};
pub use work::{Work, equal_links, least_rate, topology_links};
