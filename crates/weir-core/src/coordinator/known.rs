//! What an open network is known to be like, by its topology and by what agents say, and where a host belongs in it.

use std::collections::BTreeMap;
use weir_model::Rate;
use weir_proto::{limits, v1};

/// What an open network is known to be like before its hosts come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joining {
    /// Link rate of a host whose agent says none, headers included; without one such an agent is refused.
    pub link_rate: Option<Rate>,
    /// The share of a link's rate that is planned with: what is left after headers, and what is set aside.
    pub share: f64,
    /// Racks of the network, by name.
    pub racks: BTreeMap<String, KnownRack>,
    /// Sites by name, and the label, `key=value`, that hosts of a site say.
    pub sites: BTreeMap<String, Option<String>>,
    /// What links from one site to another carry, headers included, by the names of both.
    pub between: BTreeMap<(String, String), Rate>,
    /// Hosts by name. What is known of them counts, whatever their agents say.
    pub hosts: BTreeMap<String, KnownHost>,
    /// Whether hosts that are not known may join.
    pub is_closed: bool,
}

/// What is known of a rack.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownRack {
    /// Rates of its links, from it and towards it, headers included.
    pub rates: [Rate; 2],
    /// The site it is in.
    pub site: Option<String>,
    /// Hosts that say this label, `key=value`, are below it.
    pub label: Option<String>,
}

/// What is known of a host before its agent comes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownHost {
    /// Link rates, up and down, headers included.
    pub rates: [Option<Rate>; 2],
    /// Its rack, one of those known; without one it is attached to the core.
    pub rack: Option<String>,
    /// The site of a host without a rack.
    pub site: Option<String>,
}

/// What an agent says of its host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// Link rates, up and down, headers included; 0 where it does not say.
    pub(super) rates: [f64; 2],
    pub(super) rack: String,
    /// Labels of the host, each as `key=value`.
    pub(super) labels: Vec<String>,
}

impl Said {
    pub(super) fn of(hello: &v1::Hello) -> Said {
        let rates = [hello.up_bytes_per_s, hello.down_bytes_per_s];
        Said { rates, rack: hello.rack.clone(), labels: hello.labels.clone() }
    }
}

/// Where a host belongs, by names.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Where<'a> {
    pub(super) rack: Option<&'a str>,
    pub(super) site: Option<&'a str>,
}

impl Joining {
    /// Rates of a host's links, up and down, headers included. None: neither topology, agent nor default says them.
    pub(super) fn rates(&self, name: &str, said: &Said) -> Option<[Rate; 2]> {
        let known = self.hosts.get(name);
        let sound = |rate: f64| rate.is_finite() && rate > 0.0;
        let of = |side: usize| {
            let said = sound(said.rates[side]).then(|| Rate::from_bytes_per_sec(said.rates[side]));
            let known = known.and_then(|known| known.rates[side]);
            let rate = known.or(said).or(self.link_rate)?.scaled(self.share);
            sound(rate.bytes_per_sec()).then_some(rate)
        };
        Some([of(0)?, of(1)?])
    }

    /// The rack and the site of a host: as the topology says of it by name; if it does not name it, the rack that its agent
    /// names, else those that it has a label of. A rack that the topology does not know limits nothing.
    pub(super) fn place<'a>(&'a self, name: &str, said: &'a Said) -> Where<'a> {
        let has = |label: &Option<String>| label.as_ref().is_some_and(|label| said.labels.contains(label));
        let (rack, site) = match self.hosts.get(name) {
            Some(known) => (known.rack.as_deref(), known.site.as_deref()),
            None => {
                let labelled =
                    || self.racks.iter().find(|(_, rack)| has(&rack.label)).map(|(name, _)| name.as_str());
                let rack = Some(said.rack.as_str()).filter(|rack| !rack.is_empty()).or_else(labelled);
                (rack, self.sites.iter().find(|(_, label)| has(label)).map(|(name, _)| name.as_str()))
            }
        };
        match rack.and_then(|rack| self.racks.get_key_value(rack)) {
            Some((rack, known)) => Where { rack: Some(rack), site: known.site.as_deref() },
            None => Where { rack: None, site: site.filter(|&site| self.sites.contains_key(site)) },
        }
    }
}

/// Why labels are refused: there are too many, or one is none.
pub(super) fn wrong_label(labels: &[String]) -> Option<String> {
    if labels.len() > limits::MAX_LABELS {
        return Some(format!("a host has at most {} labels, not {}", limits::MAX_LABELS, labels.len()));
    }
    labels.iter().find_map(|label| weir_model::label::check(label).err())
}
