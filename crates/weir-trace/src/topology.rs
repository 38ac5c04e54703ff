//! Topology files: which hosts there are, how fast their links are, and which racks and sites they are in.
//!
//! ```toml
//! link_rate = "10gbit"        # of hosts that say none
//!
//! [[rack]]
//! name = "r1"
//! rate = "40gbit"             # of its link to the core, each direction; or, in its place,
//! # oversubscription = 4      # what its hosts can send together over what the link carries
//! site = "east"               # where there are sites
//! label = "rack=r1"           # hosts whose agents say this label are in it, unless the file says where they are
//!
//! [[site]]
//! name = "east"
//! # label = "region=east"
//!
//! [[link]]                    # between sites; each pair has one
//! from = "east"
//! to = "west"
//! rate = "500mbit"
//! back_rate = "300mbit"       # from west to east, where that is another one
//!
//! [[host]]
//! name = "web-[1-20]"         # or a name without a range
//! rack = "r1"                 # without one, it is attached to the core of its site
//! # site = "west"             # of a host without a rack
//! rate = "25gbit"             # headers included, each direction
//! down_rate = "10gbit"        # towards the host, where that is another one
//! ```
//! One file simulates, plans a running cluster and shapes a test bed.

use crate::text::{line_of, quote, toml_fault};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::Spanned;
use weir_model::{Fabric, HostId, Rate};

/// Most hosts of a file.
const MAX_HOSTS: u32 = 100_000;

/// Most sites of a file: each is joined to every other.
const MAX_SITES: usize = 64;

/// A rack's links to and from the core, headers included.
#[derive(Clone, Debug, PartialEq)]
pub struct Rack {
    /// Name that hosts of the file give as their rack.
    pub name: String,
    /// Rates from the rack and towards it.
    pub rates: [Rate; 2],
    /// Which of the sites it is in.
    pub site: Option<usize>,
    /// Hosts that say this label, `key=value`, are in it.
    pub label: Option<String>,
}

/// A site: hosts and racks with a core of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Name that hosts and racks of the file give as their site.
    pub name: String,
    /// Hosts that say this label, `key=value`, are in it.
    pub label: Option<String>,
}

/// A host that the file names.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologyHost {
    /// Name, unique among hosts of the file.
    pub name: String,
    /// Rates of its links, up and down, headers included; none where neither it nor the file as a whole says one.
    pub rates: [Option<Rate>; 2],
    /// Which of the racks it is below.
    pub rack: Option<usize>,
    /// Which of the sites it is in, its rack's if it has one.
    pub site: Option<usize>,
}

/// Hosts, racks and sites, as a file has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Rate of the links of hosts that say none.
    pub link_rate: Option<Rate>,
    /// Racks, in the order of the file.
    pub racks: Vec<Rack>,
    /// Sites, in the order of the file.
    pub sites: Vec<Site>,
    /// `between[from][to]`: what links between sites carry, headers included; nothing of a site to itself.
    pub between: Vec<Vec<Option<Rate>>>,
    /// Hosts, in the order of the file.
    pub hosts: Vec<TopologyHost>,
}

/// Why a topology cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The file cannot be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file that was to be read.
        path: PathBuf,
        /// Why it cannot be read.
        reason: String,
    },
    /// Something in it is wrong.
    #[error("{}:{line}: {reason}", path.display())]
    Wrong {
        /// The file with the fault.
        path: PathBuf,
        /// Line at fault, counted from 1.
        line: usize,
        /// What, and what would be right.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    link_rate: Option<Spanned<String>>,
    #[serde(default)]
    rack: Vec<RackFile>,
    #[serde(default)]
    site: Vec<SiteFile>,
    #[serde(default)]
    link: Vec<LinkFile>,
    #[serde(default)]
    host: Vec<HostFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RackFile {
    name: Spanned<String>,
    rate: Option<Spanned<String>>,
    down_rate: Option<Spanned<String>>,
    oversubscription: Option<Spanned<f64>>,
    site: Option<Spanned<String>>,
    label: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteFile {
    name: Spanned<String>,
    label: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    from: Spanned<String>,
    to: Spanned<String>,
    rate: Spanned<String>,
    back_rate: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostFile {
    name: Spanned<String>,
    rack: Option<Spanned<String>>,
    site: Option<Spanned<String>>,
    rate: Option<Spanned<String>>,
    down_rate: Option<Spanned<String>>,
}

/// Where in the text, and what is wrong there.
type Wrong = (usize, String);

fn at<T>(place: &Spanned<T>, reason: impl Into<String>) -> Wrong {
    (place.span().start, reason.into())
}

fn rate(text: &Option<Spanned<String>>) -> Result<Option<Rate>, Wrong> {
    text.as_ref().map(rate_of).transpose()
}

fn rate_of(text: &Spanned<String>) -> Result<Rate, Wrong> {
    text.get_ref().parse().map_err(|error| at(text, format!("{error}")))
}

/// The place of a name among those that there are.
fn find<'a>(
    what: &str,
    name: &Spanned<String>,
    mut among: impl Iterator<Item = &'a Spanned<String>>,
) -> Result<usize, Wrong> {
    let found = among.position(|other| other.get_ref() == name.get_ref());
    found.ok_or_else(|| at(name, format!("there is no {what} {}", quote(name.get_ref()))))
}

/// Refuses a name that is there twice.
fn no_two<'a>(what: &str, names: impl Iterator<Item = &'a Spanned<String>>) -> Result<(), Wrong> {
    let mut known = BTreeSet::new();
    for name in names {
        if !known.insert(name.get_ref()) {
            return Err(at(name, format!("there are two {what} {}", quote(name.get_ref()))));
        }
    }
    Ok(())
}

fn label(text: &Option<Spanned<String>>) -> Result<Option<String>, Wrong> {
    let Some(text) = text else { return Ok(None) };
    weir_model::label::check(text.get_ref()).map_err(|reason| at(text, reason))?;
    Ok(Some(text.get_ref().clone()))
}

/// The names that a name with at most one range, `[first-last]`, stands for.
fn expand(name: &Spanned<String>) -> Result<Vec<String>, Wrong> {
    let text = name.get_ref();
    let wrong = || {
        let quoted = quote(text);
        at(
            name,
            format!(
                "{quoted} is no name; names have letters, digits, `.`, `-` and `_`, begin with one of the first two, and have one range at most, as in web-[1-20]"
            ),
        )
    };
    let sound = |part: &str| part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let Some((before, rest)) = text.split_once('[') else {
        return if begins(text) && sound(text) { Ok(vec![text.clone()]) } else { Err(wrong()) };
    };
    let (range, after) = rest.split_once(']').ok_or_else(wrong)?;
    let (first, last) = range.split_once('-').ok_or_else(wrong)?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !(before.is_empty() || begins(before))
        || !sound(before)
        || !sound(after)
        || !is_number(first)
        || !is_number(last)
    {
        return Err(wrong());
    }
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let (low, high) = (number(first)?, number(last)?);
    // Before any name is made: a slip in a range of millions must not fill the memory.
    if low > high || high - low >= MAX_HOSTS {
        return Err(at(name, format!("the range {range} is of no hosts, or of more than {MAX_HOSTS}")));
    }
    // As many digits as the first has: web-[01-20] begins with web-01.
    let width = first.len();
    Ok((low..=high).map(|number| format!("{before}{number:0width$}{after}")).collect())
}

/// Longest file, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

impl Topology {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong: file, line, and what would be right.
    pub fn load(path: &Path) -> Result<Topology, TopologyError> {
        let unreadable = |reason: String| TopologyError::Unreadable { path: path.to_owned(), reason };
        // A process that serves reads it too: what never ends, or never begins, is none.
        let found = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if !found.is_file() {
            return Err(unreadable("not a regular file".to_owned()));
        }
        if found.len() > MAX_FILE_BYTES {
            return Err(unreadable(format!("longer than {MAX_FILE_BYTES} bytes")));
        }
        let text = crate::read_text(path).map_err(|error| unreadable(error.to_string()))?;
        Topology::parse(&text).map_err(|(line, reason)| TopologyError::Wrong {
            path: path.to_owned(),
            line,
            reason,
        })
    }

    /// Reads a text; an error is a line and a reason.
    ///
    /// # Errors
    /// Something in it is wrong.
    pub fn parse(text: &str) -> Result<Topology, (usize, String)> {
        let file: File = toml::from_str(text).map_err(|error| toml_fault(text, &error))?;
        Topology::of(&file).map_err(|(byte, reason)| (line_of(text, byte), reason))
    }

    fn of(file: &File) -> Result<Topology, Wrong> {
        let mut topology = Topology { link_rate: rate(&file.link_rate)?, ..Topology::default() };
        no_two("racks", file.rack.iter().map(|rack| &rack.name))?;
        no_two("sites", file.site.iter().map(|site| &site.name))?;
        no_two("labels of racks", file.rack.iter().filter_map(|rack| rack.label.as_ref()))?;
        no_two("labels of sites", file.site.iter().filter_map(|site| site.label.as_ref()))?;
        topology.add_sites(file)?;
        let site_of = |name: &Option<Spanned<String>>| {
            let find = |name| find("site", name, file.site.iter().map(|site| &site.name));
            name.as_ref().map(find).transpose()
        };
        let of_racks: Vec<_> = file.rack.iter().map(|rack| site_of(&rack.site)).collect::<Result<_, _>>()?;
        let mut names = BTreeSet::new();
        for host in &file.host {
            let up = rate(&host.rate)?.or(topology.link_rate);
            let down = rate(&host.down_rate)?.or(up);
            let find = |name| find("rack", name, file.rack.iter().map(|rack| &rack.name));
            let rack = host.rack.as_ref().map(find).transpose()?;
            let site = match (rack.map(|rack| of_racks[rack]), &host.site) {
                (None, site) => site_of(site)?,
                (Some(of_rack), None) => of_rack,
                (Some(of_rack), Some(said)) if site_of(&host.site)? != of_rack => {
                    return Err(at(
                        said,
                        "the host's rack is not in this site; the site of a rack is that of its hosts",
                    ));
                }
                (Some(of_rack), Some(_)) => of_rack,
            };
            for name in expand(&host.name)? {
                if !names.insert(name.clone()) {
                    return Err(at(&host.name, format!("there are two hosts {}", quote(&name))));
                }
                topology.hosts.push(TopologyHost { name, rates: [up, down], rack, site });
            }
            if topology.hosts.len() > MAX_HOSTS as usize {
                return Err(at(&host.name, format!("there are more than {MAX_HOSTS} hosts")));
            }
        }
        // After all hosts: an oversubscription divides the sum of the rates of the rack's hosts.
        for (number, rack) in file.rack.iter().enumerate() {
            let rates = topology.rack_rates(number, rack)?;
            let (name, site, label) = (rack.name.get_ref().clone(), of_racks[number], label(&rack.label)?);
            topology.racks.push(Rack { name, rates, site, label });
        }
        Ok(topology)
    }

    /// Sites, and what joins them.
    fn add_sites(&mut self, file: &File) -> Result<(), Wrong> {
        if let Some(site) = file.site.get(MAX_SITES) {
            return Err(at(&site.name, format!("there are more than {MAX_SITES} sites")));
        }
        let count = file.site.len();
        self.between = vec![vec![None; count]; count];
        for link in &file.link {
            let find = |name| find("site", name, file.site.iter().map(|site| &site.name));
            let (from, to) = (find(&link.from)?, find(&link.to)?);
            if from == to {
                return Err(at(&link.to, "a link joins a site to another one"));
            }
            if self.between[from][to].is_some() {
                return Err(at(
                    &link.from,
                    "there are two links between these sites; one has both directions",
                ));
            }
            let there = rate_of(&link.rate)?;
            self.between[from][to] = Some(there);
            self.between[to][from] = Some(rate(&link.back_rate)?.unwrap_or(there));
        }
        for (from, site) in file.site.iter().enumerate() {
            // A link has both directions, so that one half of the pairs says all.
            if let Some(to) = (0..from).find(|&to| self.between[from][to].is_none()) {
                let names = [site, &file.site[to]].map(|site| quote(site.name.get_ref()));
                return Err(at(&site.name, format!("no [[link]] joins {} and {}", names[0], names[1])));
            }
            let label = label(&site.label)?;
            self.sites.push(Site { name: site.name.get_ref().clone(), label });
        }
        Ok(())
    }

    fn rack_rates(&self, number: usize, rack: &RackFile) -> Result<[Rate; 2], Wrong> {
        match (&rack.oversubscription, rate(&rack.rate)?) {
            (None, Some(up)) => Ok([up, rate(&rack.down_rate)?.unwrap_or(up)]),
            (Some(times), None) if rack.down_rate.is_none() => {
                let below = *times.get_ref();
                if !(below.is_finite() && below > 0.0) {
                    return Err(at(times, format!("{below} is no number above 0")));
                }
                let mut sums = [0.0; 2];
                for host in self.hosts.iter().filter(|host| host.rack == Some(number)) {
                    for (sum, rate) in sums.iter_mut().zip(host.rates) {
                        let reason =
                            || at(times, format!("host {} has no rate, so neither has its rack", host.name));
                        *sum += rate.ok_or_else(reason)?.bytes_per_sec();
                    }
                }
                if sums[0] == 0.0 {
                    return Err(at(
                        times,
                        "no host is in this rack; give its rate in place of oversubscription",
                    ));
                }
                Ok(sums.map(|sum| Rate::from_bytes_per_sec(sum / below)))
            }
            _ => Err(at(
                &rack.name,
                "a rack has either a rate (and a down_rate, where that is another one) or an oversubscription",
            )),
        }
    }

    /// The network of all its hosts, in the order of the file, with this share of every rate.
    ///
    /// # Errors
    /// There is no host, or one without a rate.
    pub fn fabric(&self, share: f64) -> Result<Fabric, String> {
        let mut fabric = Fabric::without_hosts();
        for host in &self.hosts {
            let [Some(up), Some(down)] = host.rates else {
                return Err(format!("host {} has no rate, and there is no link_rate", host.name));
            };
            fabric.add_host(up.scaled(share), down.scaled(share), None).map_err(|error| error.to_string())?;
        }
        for rack in &self.racks {
            let [up, down] = rack.rates.map(|rate| rate.scaled(share));
            fabric.add_rack(up, down).map_err(|error| error.to_string())?;
        }
        for (from, row) in (0u32..).zip(&self.between) {
            for (to, rate) in (0u32..).zip(row) {
                let Some(rate) = rate else { continue };
                fabric.join_sites(from, to, rate.scaled(share)).map_err(|error| error.to_string())?;
            }
        }
        for (host, of) in (0u32..).zip(&self.hosts) {
            fabric.move_host(HostId(host), of.rack.map(|rack| rack as u32), of.site.map(|site| site as u32));
        }
        if self.hosts.is_empty() { Err("there is no host".to_owned()) } else { Ok(fabric) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
link_rate = "1gbit"

[[rack]]
name = "r1"
oversubscription = 4

[[rack]]
name = "r2"
rate = "2gbit"
down_rate = "3gbit"

[[host]]
name = "a-[08-10]"
rack = "r1"

[[host]]
name = "b"
rack = "r2"
rate = "8gbit"
down_rate = "4gbit"

[[host]]
name = "c"
"#;

    #[test]
    fn hosts_racks_and_rates_are_those_of_the_file() {
        let topology = Topology::parse(GOOD).unwrap();
        let names: Vec<&str> = topology.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["a-08", "a-09", "a-10", "b", "c"]);
        let fabric = topology.fabric(0.5).unwrap();
        let capacity = |link| (fabric.capacity(link).bytes_per_sec() * 8.0 / 1e9 * 1000.0).round() / 1000.0;
        // Half of 1 and of 8 and 4 Gbit/s; of three hosts at 1 Gbit/s over 4; of 2 and 3.
        assert_eq!([0, 3].map(|host| capacity(fabric.uplink(HostId(host)).unwrap())), [0.5, 4.0]);
        assert_eq!(capacity(fabric.downlink(HostId(3)).unwrap()), 2.0);
        assert_eq!(fabric.rack_links(0).map(capacity), [0.375, 0.375]);
        assert_eq!(fabric.rack_links(1).map(capacity), [1.0, 1.5]);
        assert_eq!([0, 2, 3, 4].map(|host| fabric.rack_of(HostId(host))), [Some(0), Some(0), Some(1), None]);
        let paths =
            [(0, 2), (0, 3), (4, 4), (4, 1)].map(|(a, b)| fabric.path(HostId(a), HostId(b)).unwrap().len());
        assert_eq!(paths, [2, 4, 2, 3]);
    }

    const SITES: &str = r#"
link_rate = "1gbit"

[[site]]
name = "east"
label = "region=east"

[[site]]
name = "west"

[[link]]
from = "east"
to = "west"
rate = "500mbit"
back_rate = "300mbit"

[[rack]]
name = "r1"
rate = "2gbit"
site = "west"
label = "rack=r1"

[[host]]
name = "e"
site = "east"

[[host]]
name = "w"
rack = "r1"

[[host]]
name = "n"
"#;

    #[test]
    fn sites_are_joined_and_a_rack_takes_its_hosts_with_it() {
        let topology = Topology::parse(SITES).unwrap();
        let labels = [topology.sites[0].label.as_deref(), topology.racks[0].label.as_deref()];
        assert_eq!(labels, [Some("region=east"), Some("rack=r1")]);
        let fabric = topology.fabric(1.0).unwrap();
        assert_eq!([0, 1, 2].map(|host| fabric.site_of(HostId(host))), [Some(0), Some(1), None]);
        let capacity = |from, to| fabric.capacity(fabric.between(from, to).unwrap()).bytes_per_sec();
        assert_eq!([capacity(0, 1), capacity(1, 0)], [500e6 / 8.0, 300e6 / 8.0]);
        // Up, between, into the rack, down.
        assert_eq!(fabric.path(HostId(0), HostId(1)).unwrap().len(), 4);
        assert_eq!(fabric.path(HostId(0), HostId(2)).unwrap().len(), 2);
    }

    #[test]
    fn sites_that_cannot_be_are_told_with_their_line() {
        for (from, to, line, reason) in [
            ("name = \"west\"", "name = \"east\"", 9, "two sites"),
            ("name = \"west\"", "name = \"west\"\nlabel = \"region=east\"", 10, "two labels"),
            ("label = \"region=east\"", "label = \"region\"", 6, "KEY=VALUE"),
            ("label = \"rack=r1\"", "label = \"=r1\"", 21, "KEY=VALUE"),
            ("from = \"east\"", "from = \"north\"", 12, "no site `north`"),
            ("to = \"west\"", "to = \"east\"", 13, "to another one"),
            ("rate = \"500mbit\"", "rate = \"0bit\"", 14, "is not a rate"),
            ("rate = \"500mbit\"", "", 11, "rate"),
            (
                "[[rack]]",
                "[[link]]\nfrom = \"west\"\nto = \"east\"\nrate = \"1gbit\"\n[[rack]]",
                18,
                "two links",
            ),
            ("[[rack]]", "[[site]]\nname = \"south\"\n[[rack]]", 18, "no [[link]] joins"),
            ("site = \"west\"", "site = \"south\"", 20, "no site"),
            ("rack = \"r1\"\n", "rack = \"r1\"\nsite = \"east\"\n", 30, "not in this site"),
        ] {
            let text = SITES.replacen(from, to, 1);
            assert_ne!(text, SITES, "{from}");
            let (found, said) = Topology::parse(&text).unwrap_err();
            assert!(said.contains(reason), "{to}: {said}");
            assert!(found.abs_diff(line) <= 1, "{to}: line {found}, not {line}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        let many: String = (0..65).map(|site| format!("[[site]]\nname = \"s{site}\"\n")).collect();
        assert!(Topology::parse(&many).unwrap_err().1.contains("more than 64"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_what_is_right() {
        for (from, to, line, reason) in [
            ("link_rate = \"1gbit\"", "link_rate = \"fast\"", 2, "fast"),
            ("link_rate = \"1gbit\"", "link_rate = \"0bit\"", 2, "is not a rate"),
            ("link_rate", "linkrate", 2, "link_rate"),
            ("oversubscription = 4", "oversubscription = 0", 6, "above 0"),
            ("oversubscription = 4", "oversubscription = nan", 6, "above 0"),
            ("oversubscription = 4", "", 5, "either a rate"),
            ("oversubscription = 4", "oversubscription = 4\nrate = \"1gbit\"", 5, "either a rate"),
            ("name = \"r2\"", "name = \"r1\"", 9, "two racks"),
            ("a-[08-10]", "a-[10-08]", 14, "no hosts"),
            ("a-[08-10]", "a-[1-99999999]", 14, "more than"),
            ("a-[08-10]", "a-[1-", 14, "no name"),
            ("a-[08-10]", "a-[x-y]", 14, "no name"),
            ("a-[08-10]", "", 14, "no name"),
            ("a-[08-10]", "a b", 14, "no name"),
            ("\"c\"", "\"b\"", 24, "two hosts"),
            ("rack = \"r2\"", "rack = \"r3\"", 19, "no rack"),
            ("[[host]]\nname = \"c\"", "[[hosts]]\nname = \"c\"", 23, "hosts"),
            ("rate = \"8gbit\"", "rate = 8", 20, "string"),
            ("name = \"c\"", "rack = \"r1\"", 23, "name"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let (found, said) = Topology::parse(&text).unwrap_err();
            assert!(said.contains(reason), "{to}: {said}");
            assert!(found.abs_diff(line) <= 1, "{to}: line {found}, not {line}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        let none = Topology::parse("").unwrap();
        assert_eq!(none.fabric(1.0).unwrap_err(), "there is no host");
        let without = Topology::parse("[[host]]\nname = \"a\"").unwrap();
        assert!(without.fabric(1.0).unwrap_err().contains("host a has no rate"));
    }
}
