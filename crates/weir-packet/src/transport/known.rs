//! The settings of all transports, for lists. The transports read them; a test holds this table to what they read.

/// A setting behind a transport's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingInfo {
    /// The transports that have it.
    pub transports: &'static [&'static str],
    /// What it is called.
    pub name: &'static str,
    /// What it is if not given.
    pub default: &'static str,
    /// What it does, in words for lists.
    pub about: &'static str,
}

const WINDOWED: &[&str] = &["tcp", "dctcp", "d2tcp", "pias", "karuna"];
const MARKED: &[&str] = &["dctcp", "d2tcp", "pias", "karuna"];
const RECOVERING: &[&str] = &["tcp", "dctcp", "d2tcp", "pias", "karuna", "d3"];
const KARUNA: &[&str] = &["karuna"];

/// All settings, those that several transports have first.
pub const SETTINGS: &[SettingInfo] = &[
    setting(WINDOWED, "init", "the scenario's", "segments that a flow begins with"),
    setting(WINDOWED, "rto", "the scenario's", "the least retransmission timeout"),
    setting(WINDOWED, "acks", "each", "acknowledgements: of each segment, or delayed"),
    setting(
        RECOVERING,
        "recovery",
        "auto",
        "how losses are found: sack (RFC 6675, 9937), newreno (three duplicates), selective (timeouts alone), timed \
         (RACK); auto: sack, or timed where packets overtake each other",
    ),
    setting(MARKED, "marking", "the scenario's", "packets are marked where so many bytes wait"),
    setting(MARKED, "gain", "0.0625", "weight of the newest round in the share of marks"),
    setting(MARKED, "marks", "port", "whether bytes of the whole port count, or of the packet's queue"),
    setting(
        &["pfabric", "pfabric-edf"],
        "init",
        "a full path",
        "segments that a flow begins with, and keeps",
    ),
    setting(
        &["pfabric", "pfabric-edf"],
        "rto",
        "3 round trips",
        "the retransmission timeout, always the same",
    ),
    setting(&["pfabric", "pfabric-edf"], "buffer", "2 windows", "what a port may hold"),
    setting(
        &["pias", "karuna"],
        "thresholds",
        "the best in theory",
        "bytes sent that take a flow down: 10kB+1MB",
    ),
    setting(&["pias"], "levels", "shared", "for which levels thresholds are the best: shared, or fifo"),
    setting(&["pias"], "reserved", "0", "what only the first class may fill of a port's buffer"),
    setting(KARUNA, "levels", "fifo", "for which levels thresholds are the best: shared, or fifo"),
    setting(KARUNA, "splits", "the best in theory", "sizes between the classes of flows whose size is known"),
    setting(KARUNA, "ageing", "3", "timeouts in a row after which a flow ages; 0: never"),
    setting(KARUNA, "law", "yielding", "of deadline flows; normalised, published, prototype: to compare"),
    setting(KARUNA, "margin", "2.5", "round trips before its deadline that a flow aims at"),
    setting(KARUNA, "ahead", "0.03", "share by which a deadline flow is faster than it has to be"),
    setting(
        KARUNA,
        "late",
        "demote",
        "a flow that cannot meet its deadline: demote goes on by size, trickle a segment a round trip",
    ),
    setting(
        KARUNA,
        "first-marking",
        "a quarter of marking",
        "bytes of deadline flows that wait where they are marked",
    ),
    setting(
        KARUNA,
        "reserved",
        "2 x first-marking",
        "what only deadline flows may fill of a port's buffer; 0 where no deadlines are expected or ports share a memory",
    ),
    setting(&["d3"], "late", "stop", "a flow that cannot meet its deadline: stop ends it, share goes on"),
    setting(&["d3"], "alpha", "0.1", "weight of what a link did not use in what is given away"),
    setting(&["d3"], "beta", "1", "weight of the queue in what is given away"),
    setting(&["d3"], "rto", "the scenario's", "the least retransmission timeout"),
];

const fn setting(
    transports: &'static [&'static str],
    name: &'static str,
    default: &'static str,
    about: &'static str,
) -> SettingInfo {
    SettingInfo { transports, name, default, about }
}

#[cfg(test)]
mod tests {
    use super::SETTINGS;
    use crate::transport::{named, names};
    use std::collections::BTreeSet;

    #[test]
    fn the_table_has_what_transports_read() {
        for transport in names() {
            let error = named(&format!("{transport}:nothing=1")).err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            let read: BTreeSet<&str> =
                error.split_once("there are: ").unwrap_or_default().1.split(", ").collect();
            let has = |setting: &&super::SettingInfo| setting.transports.contains(&transport);
            let listed: Vec<&str> = SETTINGS.iter().filter(has).map(|setting| setting.name).collect();
            assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), read, "{transport}: {error}");
            assert_eq!(listed.len(), read.len(), "{transport} has a setting twice");
        }
    }
}
