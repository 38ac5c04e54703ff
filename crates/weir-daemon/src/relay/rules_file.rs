//! Relays and rules from a file, where there is no controller.
//!
//! ```toml
//! [[relay]]
//! name = "paris-1"
//! site = 0
//! address = "10.0.0.5:7072"
//!
//! [[rule]]                 # of the flows of coflow 7 to reducer 2; all three parts may be left out
//! coflow = 7
//! reducer = 2
//! rank = 1                 # less goes first; 0 unless said
//! weight = 1.0
//! to = [{ relay = "oslo-1", weight = 3 }, { deliver = true, weight = 1 }]
//! ```

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use weir_core::relay::Prefix;
use weir_proto::v1;
use weir_proto::v1::to_relay::Kind;

/// Relays and rules, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticRules {
    relays: v1::RelayList,
    rules: v1::Rules,
}

/// What is wrong with a file of rules.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// It is not of this format. The text says where.
    #[error("{0}")]
    Format(String),
    /// Two relays have this name.
    #[error("relay `{0}` is there twice")]
    Twice(String),
    /// A rule leads to a relay that the file does not name.
    #[error("rule {rule} leads to relay `{relay}`, which the file does not have")]
    Unknown {
        /// The rule, counted from 1.
        rule: usize,
        /// Name that no relay of the file has.
        relay: String,
    },
    /// Two rules are of the same flows: which one holds would be a guess.
    #[error("rule {rule} is of the same flows as rule {earlier}")]
    SameFlows {
        /// The later rule, counted from 1.
        rule: usize,
        /// The earlier rule of the same flows, counted from 1.
        earlier: usize,
    },
    /// A rule has a reducer without a coflow, or a mapper without a reducer.
    #[error(
        "rule {0} leaves out a part of its prefix before one that it has: coflow, then reducer, then mapper"
    )]
    Hole(usize),
    /// A rule has a weight that is not a number above 0.
    #[error("rule {0} has a weight that is not above 0")]
    Weight(usize),
    /// A next hop names neither a relay nor `deliver = true`, or both.
    #[error("rule {0} has a next hop that is not either `relay` or `deliver = true`")]
    NextHop(usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    relay: Vec<RelayTable>,
    #[serde(default)]
    rule: Vec<RuleTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RelayTable {
    name: String,
    site: u32,
    address: SocketAddr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    coflow: Option<u64>,
    reducer: Option<u32>,
    mapper: Option<u32>,
    #[serde(default)]
    rank: u64,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default)]
    entering: bool,
    to: Vec<NextHopTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NextHopTable {
    relay: Option<String>,
    #[serde(default)]
    deliver: bool,
    #[serde(default = "one")]
    weight: f64,
}

fn one() -> f64 {
    1.0
}

impl StaticRules {
    /// Reads and checks the text of a file.
    ///
    /// # Errors
    /// The text is not of this format, two relays have one name, or a rule cannot be followed: [`RulesError`] says
    /// which, and why.
    pub fn parse(text: &str) -> Result<StaticRules, RulesError> {
        let file: File = toml::from_str(text).map_err(|error| RulesError::Format(one_line(&error, text)))?;
        let mut names = BTreeSet::new();
        let mut relays = Vec::new();
        for RelayTable { name, site, address } in file.relay {
            if !names.insert(name.clone()) {
                return Err(RulesError::Twice(name));
            }
            relays.push(v1::RelayEntry { relay: name, site, data_address: address.to_string() });
        }
        let rules = (1..).zip(&file.rule).map(|(number, rule)| rule.checked(number, &names));
        let set = rules.collect::<Result<Vec<_>, _>>()?;
        let mut first = BTreeMap::new();
        for (rule, prefix) in
            (1..).zip(set.iter().filter_map(|rule| Prefix::from_wire(rule.prefix.as_ref()?)))
        {
            if let Some(earlier) = first.insert(prefix, rule) {
                return Err(RulesError::SameFlows { rule, earlier });
            }
        }
        let rules = v1::Rules { epoch: 1, complete: true, set, withdrawn: Vec::new() };
        Ok(StaticRules { relays: v1::RelayList { relays }, rules })
    }

    /// What a controller would have said.
    pub(super) fn messages(&self) -> [v1::ToRelay; 2] {
        [Kind::Relays(self.relays.clone()), Kind::Rules(self.rules.clone())]
            .map(|kind| v1::ToRelay { kind: Some(kind) })
    }
}

impl RuleTable {
    fn checked(&self, number: usize, relays: &BTreeSet<String>) -> Result<v1::Rule, RulesError> {
        let prefix = v1::FlowPrefix { coflow: self.coflow, reducer: self.reducer, mapper: self.mapper };
        if Prefix::from_wire(&prefix).is_none() {
            return Err(RulesError::Hole(number));
        }
        let weights = self.to.iter().map(|hop| hop.weight).chain([self.weight]);
        if !weights.into_iter().all(|weight| weight.is_finite() && weight > 0.0) {
            return Err(RulesError::Weight(number));
        }
        let next_hop = |hop: &NextHopTable| {
            let to = match (&hop.relay, hop.deliver) {
                (Some(relay), false) if relays.contains(relay) => v1::next_hop::To::Relay(relay.clone()),
                (Some(relay), false) => {
                    return Err(RulesError::Unknown { rule: number, relay: relay.clone() });
                }
                (None, true) => v1::next_hop::To::Deliver(true),
                _ => return Err(RulesError::NextHop(number)),
            };
            Ok(v1::NextHop { to: Some(to), weight: hop.weight })
        };
        let next_hops = self.to.iter().map(next_hop).collect::<Result<_, _>>()?;
        let RuleTable { rank, weight, entering, .. } = *self;
        Ok(v1::Rule { prefix: Some(prefix), next_hops, rank, weight, entering })
    }
}

/// The error with its line, in one line.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    line.map_or(message.clone(), |line| format!("line {line}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAY: &str = "[[relay]]\nname = \"a\"\nsite = 1\naddress = \"10.0.0.1:7072\"\n";

    fn error_of(rule: &str) -> String {
        StaticRules::parse(&format!("{RELAY}{rule}")).unwrap_err().to_string()
    }

    #[test]
    fn a_file_becomes_what_a_controller_would_say() {
        let rule =
            "[[rule]]\ncoflow = 7\nrank = 2\nto = [{ relay = \"a\", weight = 3 }, { deliver = true }]\n";
        let rules = StaticRules::parse(&format!("{RELAY}{rule}")).unwrap();
        assert_eq!(rules.relays.relays[0].data_address, "10.0.0.1:7072");
        let read = &rules.rules.set[0];
        let weights: Vec<f64> = read.next_hops.iter().map(|hop| hop.weight).collect();
        assert_eq!((read.prefix.unwrap().coflow, read.rank, read.weight), (Some(7), 2, 1.0));
        assert_eq!(weights, [3.0, 1.0]);
        assert!(rules.rules.complete);
    }

    #[test]
    fn errors_say_which_rule_and_what() {
        assert!(error_of("[[rule]]\nto = [{ relay = \"b\" }]").contains("rule 1 leads to relay `b`"));
        assert!(error_of("[[rule]]\nmapper = 1\nto = []").contains("rule 1 leaves out"));
        assert!(error_of("[[rule]]\nto = [{ deliver = true, weight = 0 }]").contains("rule 1 has a weight"));
        assert!(error_of("[[rule]]\nto = [{ weight = 2 }]").contains("rule 1 has a next hop"));
        assert!(
            error_of("[[rule]]\nrank = -1\nto = []").contains("line 6"),
            "{}",
            error_of("[[rule]]\nrank = -1\nto = []")
        );
        assert!(error_of(RELAY).contains("`a` is there twice"));
        let [of_all, of_one] = ["[[rule]]\nto = []\n", "[[rule]]\ncoflow = 1\nto = []\n"];
        let same = error_of(&[of_all, of_one, of_all].concat());
        assert_eq!(same, "rule 3 is of the same flows as rule 1");
    }
}
