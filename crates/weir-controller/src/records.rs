//! What servers tell the store, document by document, and what the documents of all servers come to.
//!
//! Every document is of one relay: `relay/NAME` says where it is, `coflow/ID/NAME` what entered there of a coflow and
//! is left, `links/NAME` how fast its links to other sites were. A relay that changes its server is for a while in the
//! documents of both; those of its newer session count.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Documents of one server by name.
pub type Documents = BTreeMap<String, String>;

/// A relay, in `relay/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRecord {
    /// Number of the site that it serves.
    pub site: u32,
    /// Where other relays reach it.
    pub data_address: String,
    /// Its session there: of two servers' records that of the greater one counts. A relay counts its own sessions, so
    /// that no two clocks are compared.
    #[serde(alias = "since_ns")]
    pub session: u64,
}

/// What entered at one relay of a coflow and is left, in `coflow/ID/NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoflowRecord {
    /// When the first flow was opened, in nanoseconds since the Unix epoch.
    pub arrival_ns: u64,
    /// Bytes left by receiving site; none for flows inside the site.
    pub left: BTreeMap<u32, f64>,
    /// By flow group, what of it entered here.
    pub groups: BTreeMap<u32, GroupRecord>,
}

/// A flow group: all flows of a coflow to one reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Number of the reducer's site.
    pub site: u32,
    /// Bytes of all its flows, those that ended included.
    pub bytes: u64,
}

/// Measured bandwidths by receiving site, in bytes per second, oldest first, in `links/NAME`.
pub type LinksRecord = BTreeMap<u32, Vec<f64>>;

/// Names the document of a relay.
pub fn relay_document(relay: &str) -> String {
    format!("relay/{relay}")
}

/// Names the document of a coflow at a relay.
pub fn coflow_document(coflow: u64, relay: &str) -> String {
    format!("coflow/{coflow}/{relay}")
}

/// Names the document of a relay's links.
pub fn links_document(relay: &str) -> String {
    format!("links/{relay}")
}

/// What a document is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind<'a> {
    Relay(&'a str),
    Coflow(u64, &'a str),
    Links(&'a str),
}

fn kind(name: &str) -> Option<Kind<'_>> {
    let (kind, rest) = name.split_once('/')?;
    match kind {
        "relay" => Some(Kind::Relay(rest)),
        "links" => Some(Kind::Links(rest)),
        "coflow" => {
            let (id, relay) = rest.split_once('/')?;
            Some(Kind::Coflow(id.parse().ok()?, relay))
        }
        _ => None,
    }
}

/// All that is known of a coflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoflowState {
    /// When its first flow was opened, in nanoseconds since the Unix epoch.
    pub arrival_ns: u64,
    /// Bytes left by sending and receiving site.
    pub left: BTreeMap<(u32, u32), f64>,
    /// By flow group, what entered of it at all relays.
    pub groups: BTreeMap<u32, GroupRecord>,
}

impl CoflowState {
    /// The flow groups, the largest first; equal ones by number.
    pub fn largest_groups_first(&self) -> Vec<(u32, GroupRecord)> {
        let mut groups: Vec<(u32, GroupRecord)> =
            self.groups.iter().map(|(&group, &record)| (group, record)).collect();
        groups.sort_by_key(|(group, record)| (std::cmp::Reverse(record.bytes), *group));
        groups
    }
}

/// What the documents of all servers come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Relays of all servers, by name.
    pub relays: BTreeMap<String, RelayRecord>,
    /// Coflows of all servers, by id.
    pub coflows: BTreeMap<u64, CoflowState>,
    /// Measured bandwidths by sending and receiving site, in bytes per second.
    pub samples: BTreeMap<(u32, u32), Vec<f64>>,
    /// Documents that could not be read; nothing of them is in the rest.
    pub unreadable: usize,
}

impl State {
    /// Puts the documents of servers together.
    pub fn of<'a>(servers: impl IntoIterator<Item = (&'a String, &'a Documents)> + Clone) -> State {
        let mut state = State::default();
        let owners = state.take_relays(servers.clone());
        for (server, documents) in servers {
            for (name, text) in documents {
                let owned = |relay: &str| owners.get(relay) == Some(&server.as_str());
                let read = match kind(name) {
                    Some(Kind::Relay(_)) => true,
                    Some(Kind::Coflow(id, relay)) => !owned(relay) || state.take_coflow(id, relay, text),
                    Some(Kind::Links(relay)) => !owned(relay) || state.take_links(relay, text),
                    None => false,
                };
                state.unreadable += usize::from(!read);
            }
        }
        state
    }

    /// Takes over relays, and says which server has the newest session of each.
    fn take_relays<'a>(
        &mut self,
        servers: impl IntoIterator<Item = (&'a String, &'a Documents)>,
    ) -> BTreeMap<String, &'a str> {
        let mut owners = BTreeMap::new();
        for (server, documents) in servers {
            for (name, text) in documents {
                let Some(Kind::Relay(relay)) = kind(name) else { continue };
                let Ok(record) = serde_json::from_str::<RelayRecord>(text) else {
                    self.unreadable += 1;
                    continue;
                };
                let newer = self.relays.get(relay).is_none_or(|had| had.session < record.session);
                if newer {
                    owners.insert(relay.to_owned(), server.as_str());
                    self.relays.insert(relay.to_owned(), record);
                }
            }
        }
        owners
    }

    fn take_coflow(&mut self, id: u64, relay: &str, text: &str) -> bool {
        let Ok(record) = serde_json::from_str::<CoflowRecord>(text) else { return false };
        let Some(from) = self.relays.get(relay).map(|relay| relay.site) else { return false };
        let new = || CoflowState { arrival_ns: record.arrival_ns, ..CoflowState::default() };
        let coflow = self.coflows.entry(id).or_insert_with(new);
        coflow.arrival_ns = coflow.arrival_ns.min(record.arrival_ns);
        for (&to, &bytes) in record.left.iter().filter(|(_, bytes)| bytes.is_finite() && **bytes >= 0.0) {
            *coflow.left.entry((from, to)).or_default() += bytes;
        }
        for (group, GroupRecord { site, bytes }) in record.groups {
            let known = coflow.groups.entry(group).or_insert(GroupRecord { site, bytes: 0 });
            known.bytes = known.bytes.saturating_add(bytes);
        }
        true
    }

    fn take_links(&mut self, relay: &str, text: &str) -> bool {
        let Ok(record) = serde_json::from_str::<LinksRecord>(text) else { return false };
        let Some(from) = self.relays.get(relay).map(|relay| relay.site) else { return false };
        for (to, samples) in record {
            self.samples.entry((from, to)).or_default().extend(samples);
        }
        true
    }

    /// Sites that have a relay or take part in a coflow, ascending.
    pub fn sites(&self) -> Vec<u32> {
        let pairs = self.coflows.values().flat_map(|coflow| coflow.left.keys());
        let ends = pairs.flat_map(|&(from, to)| [from, to]);
        let sites: BTreeSet<u32> = self.relays.values().map(|relay| relay.site).chain(ends).collect();
        sites.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(site: u32, session: u64) -> String {
        let record = RelayRecord { site, data_address: "127.0.0.1:1".to_owned(), session };
        serde_json::to_string(&record).expect("a record")
    }

    fn coflow(arrival_ns: u64, to: u32, bytes: f64, group: u32) -> String {
        let record = CoflowRecord {
            arrival_ns,
            left: [(to, bytes)].into_iter().collect(),
            groups: [(group, GroupRecord { site: to, bytes: 3 })].into_iter().collect(),
        };
        serde_json::to_string(&record).expect("a record")
    }

    fn server(documents: &[(&str, String)]) -> Documents {
        documents.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect()
    }

    #[test]
    fn a_coflow_is_what_is_left_of_it_at_all_relays() {
        let servers: BTreeMap<String, Documents> = [
            ("x".to_owned(), server(&[("relay/a", relay(0, 5)), ("coflow/7/a", coflow(30, 2, 10.0, 1))])),
            ("y".to_owned(), server(&[("relay/b", relay(1, 5)), ("coflow/7/b", coflow(20, 2, 4.0, 9))])),
            ("z".to_owned(), server(&[("relay/c", relay(0, 5)), ("coflow/7/c", coflow(25, 2, 1.0, 9))])),
        ]
        .into_iter()
        .collect();
        let state = State::of(&servers);
        let expected = CoflowState {
            arrival_ns: 20,
            left: [((0, 2), 11.0), ((1, 2), 4.0)].into_iter().collect(),
            groups: [(1, GroupRecord { site: 2, bytes: 3 }), (9, GroupRecord { site: 2, bytes: 6 })]
                .into_iter()
                .collect(),
        };
        let order: Vec<u32> = expected.largest_groups_first().into_iter().map(|(group, _)| group).collect();
        assert_eq!(order, [9, 1]);
        assert_eq!((state.coflows.get(&7), state.unreadable), (Some(&expected), 0));
        assert_eq!(state.sites(), [0, 1, 2]);
    }

    #[test]
    fn of_a_relay_at_two_servers_the_newer_session_counts_and_nothing_twice() {
        let servers: BTreeMap<String, Documents> = [
            ("x".to_owned(), server(&[("relay/a", relay(0, 9)), ("coflow/7/a", coflow(30, 2, 10.0, 1))])),
            ("y".to_owned(), server(&[("relay/a", relay(3, 5)), ("coflow/7/a", coflow(20, 2, 12.0, 1))])),
        ]
        .into_iter()
        .collect();
        let state = State::of(&servers);
        assert_eq!((state.relays["a"].site, state.coflows[&7].left[&(0, 2)]), (0, 10.0));
        assert_eq!(state.coflows[&7].left.len(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_counted_and_left_out() {
        let documents = server(&[
            ("relay/a", relay(0, 9)),
            ("relay/b", "{}".to_owned()),
            ("coflow/x/a", coflow(1, 2, 3.0, 1)),
            ("coflow/8/a", "[".to_owned()),
            ("links/a", "{\"1\":\"fast\"}".to_owned()),
            ("something", String::new()),
        ]);
        let servers: BTreeMap<String, Documents> = [("x".to_owned(), documents)].into_iter().collect();
        let state = State::of(&servers);
        assert_eq!((state.relays.len(), state.coflows.len(), state.unreadable), (1, 0, 5));
    }
}
