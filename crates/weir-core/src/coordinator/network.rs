//! The network that is planned on, and which of its hosts a number stands for.
//!
//! Agents, receivers and drivers name hosts by numbers, which say nothing of how many there are; a [`Fabric`] has its hosts
//! in a row. Where the two meet is here, and nowhere else in the coordinator. A network is either closed, with the hosts that
//! were given and no other, or open: a host has its place from the moment at which its agent comes, or at which an agent has
//! a flow for it, and links as fast as its agent says.
//!
//! A place stays with its host's number while the host is away. Once there are [`limits::MAX_HOSTS`], places of hosts
//! without an agent and without flows go to others.

use super::known::{Joining, KnownRack, Said, Where, wrong_label};
use super::refused::{ForgetError, HelloError};
use super::state::{Coordinator, SessionId};
use crate::ids::HostNumber;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::{Fabric, FabricError, HostId, LinkId, Path, Rate, Span, Time};
use weir_proto::{limits, v1};

/// The network grows by this part of what there is, so that few joins make the table of live coflows anew,
const GROWTH: f64 = 0.25;
/// and by so many places at least.
const LEAST_GROWTH: u32 = 16;
/// What the links of a place without a host have. Nothing is ever sent there.
const UNUSED: Rate = Rate::from_bytes_per_sec(1.0);
/// Hosts that others send to and whose agents never came, at most.
const MAX_EXPECTED: usize = 1_000;
/// Places without a use are looked for no more often than this.
const SEARCH_INTERVAL: Span = Span::from_millis(1_000);

/// A host of the network.
#[derive(Clone, Debug, Default, PartialEq)]
struct Member {
    number: HostNumber,
    /// As its agent said; empty if that said none, or never came.
    name: String,
    /// Whether its agent ever came, or it was given.
    is_known: bool,
    /// When its agent's last session ended.
    away: Option<Time>,
    /// What its agent said of it.
    said: Said,
}

/// How a host is planned with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Planned {
    /// Payload rates, up and down.
    rates: [Rate; 2],
    rack: Option<u32>,
    site: Option<u32>,
}

/// Hosts by number, and their links.
#[derive(Clone, Debug)]
pub(super) struct Network {
    /// The fabric with the whole capacity of every link,
    whole: Fabric,
    /// and less what foreign traffic uses of it.
    left: Fabric,
    /// By place; places beyond it are not used yet.
    members: Vec<Member>,
    places: BTreeMap<HostNumber, HostId>,
    /// Places whose hosts were forgotten.
    free: Vec<HostId>,
    expected: usize,
    /// Racks of the fabric by name.
    racks: BTreeMap<String, u32>,
    /// Sites of the fabric by name.
    sites: BTreeMap<String, u32>,
    searched: Option<Time>,
    /// None: no other hosts than those given.
    joining: Option<Joining>,
}

impl Network {
    /// The hosts of a fabric, numbered in a row, and those that may join.
    pub(super) fn new(fabric: &Fabric, joining: Option<&Joining>) -> Network {
        let member = |number: HostNumber| Member { number, is_known: true, ..Member::default() };
        let mut network = Network {
            whole: fabric.clone(),
            left: fabric.clone(),
            members: (0..fabric.hosts()).map(HostNumber).map(member).collect(),
            places: (0..fabric.hosts()).map(|host| (HostNumber(host), HostId(host))).collect(),
            free: Vec::new(),
            expected: 0,
            racks: BTreeMap::new(),
            sites: BTreeMap::new(),
            searched: None,
            joining: joining.cloned(),
        };
        if let Some(joining) = joining {
            network.set_racks(joining);
            network.set_sites(joining);
        }
        network
    }

    /// Gives the racks that there are to be their links.
    fn set_racks(&mut self, joining: &Joining) {
        for (name, KnownRack { rates, .. }) in &joining.racks {
            let [up, down] = rates.map(|rate| rate.scaled(joining.share));
            let links = self.racks.get(name).map(|&rack| self.whole.rack_links(rack));
            match links {
                Some(links) => {
                    for (link, rate) in links.into_iter().zip([up, down]) {
                        let set = self.whole.set_capacity(link, rate).and(self.left.set_capacity(link, rate));
                        debug_assert!(set.is_ok(), "rates are above 0");
                    }
                }
                None => {
                    if let (Ok(rack), Ok(_)) = (self.whole.add_rack(up, down), self.left.add_rack(up, down)) {
                        self.racks.insert(name.clone(), rack);
                    }
                }
            }
        }
    }

    /// Gives the links between sites that there are to be what they carry.
    fn set_sites(&mut self, joining: &Joining) {
        for name in joining.sites.keys() {
            let next = self.sites.len() as u32;
            self.sites.entry(name.clone()).or_insert(next);
        }
        for ((from, to), rate) in &joining.between {
            let (Some(&from), Some(&to)) = (self.sites.get(from), self.sites.get(to)) else { continue };
            let rate = rate.scaled(joining.share);
            let joined = self.whole.join_sites(from, to, rate).and(self.left.join_sites(from, to, rate));
            debug_assert!(joined.is_ok(), "rates are above 0");
        }
    }

    /// How a host of that name is planned with whose agent says this. Where neither says how fast its links are, they stay what
    /// they were; none if there were none.
    fn planned_of(&self, name: &str, said: &Said, before: Option<[Rate; 2]>) -> Option<Planned> {
        let joining = self.joining.as_ref()?;
        let Where { rack, site } = joining.place(name, said);
        let number = |of: &BTreeMap<String, u32>, name: Option<&str>| of.get(name?).copied();
        let (rack, site) = (number(&self.racks, rack), number(&self.sites, site));
        Some(Planned { rates: joining.rates(name, said).or(before)?, rack, site })
    }

    /// The same of a host that has a place; none of one whose agent never came.
    fn planned_at(&self, place: HostId) -> Option<Planned> {
        let member = self.members.get(place.index()).filter(|member| member.is_known)?;
        self.planned_of(&label(member.number, &member.name), &member.said, self.rates_at(place))
    }

    /// Payload rates that a host's links are planned with, up and down.
    fn rates_at(&self, place: HostId) -> Option<[Rate; 2]> {
        let rate = |link: LinkId| self.whole.capacity(link);
        Some([self.whole.uplink(place).map(rate)?, self.whole.downlink(place).map(rate)?])
    }

    /// Puts a host where it belongs.
    fn move_host(&mut self, place: HostId, Planned { rack, site, .. }: Planned) {
        self.whole.move_host(place, rack, site);
        self.left.move_host(place, rack, site);
    }

    /// The rack and the site that a host is planned in, by name; empty where it is in none.
    pub(super) fn place_names(&self, host: HostNumber) -> [String; 2] {
        let Some(place) = self.place(host) else { return Default::default() };
        let rack = self.whole.rack_of(place).map(|rack| name_of(&self.racks, rack));
        let site = self.whole.site_of(place).map(|site| name_of(&self.sites, site));
        [rack, site].map(Option::unwrap_or_default)
    }

    /// What a host's agent says that it is like.
    pub(super) fn labels(&self, host: HostNumber) -> &[String] {
        self.place(host).map_or(&[], |place| &self.members[place.index()].said.labels)
    }

    /// Every link as it would be without foreign traffic.
    pub(super) fn whole(&self) -> &Fabric {
        &self.whole
    }

    /// What policies see: every link less foreign traffic.
    pub(super) fn left(&self) -> &Fabric {
        &self.left
    }

    /// Where a host is in the fabric; `None` if its number is not known.
    pub(super) fn place(&self, host: HostNumber) -> Option<HostId> {
        self.places.get(&host).copied()
    }

    /// The name that a host's agent said; its number if it said none.
    pub(super) fn name(&self, host: HostNumber) -> String {
        let name = self.place(host).map_or("", |place| &self.members[place.index()].name);
        if name.is_empty() { host.to_string() } else { name.to_owned() }
    }

    /// The agent of a host has no session from now on.
    pub(super) fn note_away(&mut self, now: Time, host: HostNumber) {
        if let Some(place) = self.place(host) {
            self.members[place.index()].away = Some(now);
        }
    }

    /// Hosts that had an agent, and when that went.
    pub(super) fn away(&self) -> impl Iterator<Item = (HostNumber, Time)> + '_ {
        let of = |(&number, place): (&HostNumber, &HostId)| Some((number, self.members[place.index()].away?));
        self.places.iter().filter_map(of)
    }

    /// What stands for a link, with the host's name where it is one of a host.
    pub(super) fn link_name(&self, link: LinkId) -> String {
        use weir_model::LinkKind;
        let kind = self.whole.links()[link.index()].kind;
        let number =
            |place: HostId| self.members.get(place.index()).map_or(HostNumber(0), |member| member.number);
        match kind {
            LinkKind::Uplink(place) => format!("host {} up", self.name(number(place))),
            LinkKind::Downlink(place) => format!("host {} down", self.name(number(place))),
            LinkKind::RackUplink(rack) => format!("rack {} up", name_of(&self.racks, rack)),
            LinkKind::RackDownlink(rack) => format!("rack {} down", name_of(&self.racks, rack)),
            LinkKind::Site { from, to } => {
                format!("site {} to site {}", name_of(&self.sites, from), name_of(&self.sites, to))
            }
        }
    }

    pub(super) fn uplink(&self, host: HostNumber) -> Option<LinkId> {
        self.whole.uplink(self.place(host)?)
    }

    pub(super) fn downlink(&self, host: HostNumber) -> Option<LinkId> {
        self.whole.downlink(self.place(host)?)
    }

    /// Payload in bytes per second that a link is planned with, foreign traffic aside.
    pub(super) fn planned(&self, link: Option<LinkId>) -> f64 {
        link.map_or(0.0, |link| self.whole.capacity(link).bytes_per_sec())
    }

    pub(super) fn path(&self, source: HostNumber, destination: HostNumber) -> Option<Path> {
        self.whole.path(self.place(source)?, self.place(destination)?)
    }

    /// Leaves this much of a link to policies.
    pub(super) fn leave(&mut self, link: LinkId, capacity: Rate) -> Result<(), FabricError> {
        self.left.set_capacity(link, capacity)
    }

    /// The number under which a host of that name is known.
    pub(super) fn number_of(&self, name: &str) -> Option<HostNumber> {
        let named = |member: &&Member| member.name == name && self.places.contains_key(&member.number);
        self.members.iter().find(named).map(|member| member.number)
    }

    /// Gives a host the links that it says it has, up and down, where hosts say it; true if any is another one now.
    fn set_rates(&mut self, place: HostId, rates: [Rate; 2]) -> bool {
        let links = self.whole.uplink(place).zip(self.whole.downlink(place));
        let Some((up, down)) = links else { return false };
        let mut changed = false;
        for (link, rate) in [up, down].into_iter().zip(rates) {
            if self.whole.capacity(link) != rate && self.whole.set_capacity(link, rate).is_ok() {
                // What foreign traffic leaves of it is told anew with the next report.
                changed |= self.left.set_capacity(link, rate).is_ok();
            }
        }
        changed
    }

    /// Adds places without hosts; true if there was room.
    fn grow(&mut self) -> bool {
        let hosts = self.whole.hosts();
        let more = ((f64::from(hosts) * GROWTH) as u32).max(LEAST_GROWTH);
        let until = hosts.saturating_add(more).min(limits::MAX_HOSTS);
        for _ in hosts..until {
            let added =
                self.whole.add_host(UNUSED, UNUSED, None).and(self.left.add_host(UNUSED, UNUSED, None));
            debug_assert!(added.is_ok(), "the rate of an unused link is above 0");
        }
        hosts < until
    }

    /// A place for one more host; `None` if there is none. Says whether the fabric has grown for it.
    fn take_place(&mut self) -> Option<(HostId, bool)> {
        if let Some(place) = self.free.pop() {
            return Some((place, false));
        }
        let grown = self.members.len() >= self.whole.hosts() as usize;
        if grown && !self.grow() {
            return None;
        }
        self.members.push(Member::default());
        Some((HostId((self.members.len() as u32).saturating_sub(1)), grown))
    }

    /// Forgets hosts without an agent and without flows, or those alone whose agents never came.
    fn forget_unused(&mut self, used: &BTreeSet<HostNumber>, expected_alone: bool) {
        let may_go = |(number, place): (&HostNumber, &HostId)| {
            let stays = used.contains(number) || (expected_alone && self.members[place.index()].is_known);
            (!stays).then_some(*number)
        };
        let unused: Vec<HostNumber> = self.places.iter().filter_map(may_go).collect();
        for number in unused {
            let Some(place) = self.places.remove(&number) else { continue };
            self.expected = self.expected.saturating_sub(usize::from(!self.members[place.index()].is_known));
            self.members[place.index()] = Member::default();
            self.free.push(place);
        }
    }
}

impl Coordinator {
    /// Whether a host whose agent comes may be of the network, and with which links. Refuses a number or a name that is
    /// another host's.
    pub(super) fn may_join(&self, hello: &v1::Hello) -> Result<Option<Planned>, HelloError> {
        let (host, name) = (HostNumber(hello.host), hello.name.as_str());
        if name.len() > limits::MAX_HOST_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(HelloError::Name(name.chars().filter(|c| !c.is_control()).take(64).collect()));
        }
        if hello.rack.len() > limits::MAX_HOST_NAME_BYTES {
            return Err(HelloError::Rack(hello.rack.len()));
        }
        if let Some(reason) = wrong_label(&hello.labels) {
            return Err(HelloError::Label(reason));
        }
        let Some(joining) = &self.network.joining else {
            let hosts = self.network.whole().hosts();
            let unknown = match name {
                "" => HelloError::Host { host, hosts },
                _ => HelloError::Named { name: name.to_owned(), last: hosts.saturating_sub(1) },
            };
            return self.network.place(host).map(|_| None).ok_or(unknown);
        };
        // A host that is of the network stays so, whatever the file says by now.
        let here = self.network.place(host).filter(|place| {
            let member = &self.network.members[place.index()];
            member.is_known && member.name == name
        });
        if joining.is_closed && !joining.hosts.contains_key(&label(host, name)) && here.is_none() {
            return Err(HelloError::Unknown(label(host, name)));
        }
        if host.0 >= limits::MAX_HOST_NUMBER {
            return Err(HelloError::Number(host));
        }
        let before = here.and_then(|place| self.network.rates_at(place));
        let planned = self.network.planned_of(&label(host, name), &Said::of(hello), before);
        let planned = planned.ok_or_else(|| HelloError::LinkRate(label(host, name)))?;
        let is_here = |number: &HostNumber| self.hosts.contains_key(number);
        if let Some(place) = self.network.place(host) {
            let other = &self.network.members[place.index()];
            if other.is_known && other.name != name && is_here(&host) {
                let other = self.network.name(host);
                return Err(HelloError::NumberTaken { number: host, name: label(host, name), other });
            }
        }
        let elsewhere = self.network.number_of(name).filter(|&number| !name.is_empty() && number != host);
        if let Some(number) = elsewhere.filter(is_here) {
            let address = self.hosts.get(&number).and_then(|session| self.agents.get(session));
            let address = address.map(|agent| agent.data_address.clone()).unwrap_or_default();
            return Err(HelloError::Taken { host: label(host, name), address });
        }
        Ok(Some(planned))
    }

    /// Gives a host that may join its place, name and links.
    pub(super) fn join(&mut self, now: Time, hello: &v1::Hello, planned: Planned) -> Result<(), HelloError> {
        let (host, name) = (HostNumber(hello.host), hello.name.as_str());
        let before = self.network.number_of(name).filter(|&number| !name.is_empty() && number != host);
        let place = self.place_for(now, host).ok_or(HelloError::TooManyHosts)?;
        if let Some(before) = before.and_then(|number| self.network.place(number)) {
            // The host had another number before: its name goes to the new one.
            let member = &mut self.network.members[before.index()];
            (member.name, member.away) = (String::new(), None);
        }
        let member = &mut self.network.members[place.index()];
        self.network.expected = self.network.expected.saturating_sub(usize::from(!member.is_known));
        (member.is_known, member.name, member.said) = (true, name.to_owned(), Said::of(hello));
        self.plan_with(now, self.network.whole.shape(), &[(place, planned)]);
        Ok(())
    }

    /// A host's links have become faster or slower, as its agent says.
    pub(super) fn handle_link_rates(&mut self, now: Time, session: SessionId, said: &v1::LinkRates) {
        let place = self.agents.get(&session).and_then(|agent| self.network.place(agent.host));
        let Some(place) = place.filter(|_| self.network.joining.is_some()) else { return };
        self.network.members[place.index()].said.rates = [said.up_bytes_per_s, said.down_bytes_per_s];
        if let Some(planned) = self.network.planned_at(place) {
            self.plan_with(now, self.network.whole.shape(), &[(place, planned)]);
        }
    }

    /// Has a host that is away listed no longer, and returns its name. Flows to it go on being planned, as of one whose agent
    /// never came; it may come back.
    ///
    /// # Errors
    /// There is no such host, or its agent is there.
    pub fn handle_forget(&mut self, request: &v1::ForgetRequest) -> Result<String, ForgetError> {
        let (host, host_name) = (HostNumber(request.host), &request.host_name);
        let number = if host_name.is_empty() { Some(host) } else { self.network.number_of(host_name) };
        let unknown = || ForgetError::Unknown(label(host, host_name));
        let number = number.ok_or_else(unknown)?;
        let place = self.network.place(number).ok_or_else(unknown)?;
        let name = self.network.name(number);
        if self.hosts.contains_key(&number) {
            return Err(ForgetError::Present(name));
        }
        let is_open = self.network.joining.is_some();
        let member = &mut self.network.members[place.index()];
        if member.away.take().is_none() {
            return Err(ForgetError::Unknown(name));
        }
        if is_open {
            *member = Member { number, ..Member::default() };
            self.network.expected = self.network.expected.saturating_add(1);
        }
        Ok(name)
    }

    /// Takes over what an open network is to be like from now on; nothing of what moves is lost. False for a network that is
    /// closed: it stays what it is.
    pub fn handle_network(&mut self, now: Time, joining: Joining) -> bool {
        match &self.network.joining {
            None => return false,
            Some(before) if *before == joining => return true,
            Some(_) => {}
        }
        self.advance(now);
        let shape = self.network.whole.shape();
        self.network.set_racks(&joining);
        self.network.set_sites(&joining);
        self.network.joining = Some(joining);
        let places = (0..self.network.members.len() as u32).map(HostId);
        let planned: Vec<_> =
            places.filter_map(|place| Some((place, self.network.planned_at(place)?))).collect();
        self.plan_with(now, shape, &planned);
        self.disturb_senders();
        self.want_plan(now);
        true
    }

    /// Gives hosts the links and the rack that they are planned with. `shape` is the one that the table is of.
    fn plan_with(&mut self, now: Time, shape: u64, hosts: &[(HostId, Planned)]) {
        let mut changed = false;
        for &(place, planned) in hosts {
            if self.network.set_rates(place, planned.rates) {
                changed = true;
                // Its agent makes of no plan more than its uplink carried when it was last told so: by a complete plan.
                let number = self.network.members[place.index()].number;
                let session = self.hosts.get(&number).copied();
                session.into_iter().for_each(|session| self.forget_told(session));
            }
            self.network.move_host(place, planned);
        }
        if changed {
            self.disturb_senders();
            self.count("link_rates_changed");
            self.want_plan(now);
        }
        if self.network.whole.shape() != shape {
            self.refit(now);
        }
    }

    /// The fabric has another shape: what moves goes on over the paths that it has now.
    fn refit(&mut self, now: Time) {
        self.advance(now);
        self.begin_plans_anew();
        self.count("networks_refitted");
        self.want_plan(now);
    }

    /// Whether flows to a host can be planned: its place is known, or made for an agent that is not back yet, or that is yet
    /// to come. Until that says more, the host has links as fast as the sender's or as the default says.
    pub(super) fn expect(&mut self, now: Time, sender: HostNumber, host: HostNumber) -> bool {
        if self.network.place(host).is_some() {
            return true;
        }
        let is_open = self.network.joining.is_some() && host.0 < limits::MAX_HOST_NUMBER;
        if is_open && self.network.expected >= MAX_EXPECTED {
            self.forget_unused(now, true);
        }
        if !is_open || self.network.expected >= MAX_EXPECTED {
            return false;
        }
        let of_sender = self.network.uplink(sender).map(|link| self.network.whole().capacity(link));
        let usual = self.network.planned_of(&host.to_string(), &Said::default(), None);
        let planned = usual.or(of_sender.map(|rate| Planned { rates: [rate; 2], rack: None, site: None }));
        let Some(planned) = planned else { return false };
        let Some(place) = self.place_for(now, host) else { return false };
        self.plan_with(now, self.network.whole.shape(), &[(place, planned)]);
        true
    }

    /// Forgets hosts without an agent and without flows, once a second at most: it looks at all flows.
    fn forget_unused(&mut self, now: Time, expected_alone: bool) {
        if self.network.searched.is_some_and(|at| now < at + SEARCH_INTERVAL) {
            return;
        }
        self.network.searched = Some(now);
        let ends = self.flows.values().flat_map(|flow| [flow.host, flow.destination]);
        let used: BTreeSet<HostNumber> = ends.chain(self.hosts.keys().copied()).collect();
        self.network.forget_unused(&used, expected_alone);
    }

    /// The place of a host, made if it has none; `None` if there are too many. Coflows go on where the network grows for it.
    fn place_for(&mut self, now: Time, host: HostNumber) -> Option<HostId> {
        if let Some(place) = self.network.place(host) {
            return Some(place);
        }
        if self.network.places.len() >= limits::MAX_HOSTS as usize {
            self.forget_unused(now, false);
        }
        let (place, grown) = self.network.take_place()?;
        if grown {
            self.refit(now);
        }
        self.network.members[place.index()] = Member { number: host, ..Member::default() };
        self.network.places.insert(host, place);
        self.network.expected = self.network.expected.saturating_add(1);
        Some(place)
    }
}

/// The name of a rack or a site.
fn name_of(named: &BTreeMap<String, u32>, number: u32) -> String {
    let found = named.iter().find(|(_, other)| **other == number);
    found.map_or_else(|| number.to_string(), |(name, _)| name.clone())
}

/// What a host is called in messages.
pub(super) fn label(host: HostNumber, name: &str) -> String {
    if name.is_empty() { host.to_string() } else { name.to_owned() }
}
