//! What an experiment is: the file `experiment.toml`.

use crate::{JobSetup, Live, PacketSetup, SiteSetup};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weir_model::Rate;
use weir_trace::toml_fault;

/// An experiment, as its `experiment.toml` says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// One line for people.
    pub title: String,
    /// The paper, and where in it.
    pub source: String,
    /// Why our numbers differ from the paper's where they do.
    pub why: String,
    /// Why the stored results are not what the code gives, where they are not: the page begins with it. It is taken out when
    /// they are made again.
    pub outdated: Option<String>,
    /// The policy that others are compared with; none in an experiment on the workload itself.
    pub baseline: Option<String>,
    /// Policies of every point that names none. Without any, nothing is simulated: what is measured is the workload.
    #[serde(default)]
    pub policies: Vec<String>,
    /// Names of measures to show, in order.
    pub show: Vec<String>,
    /// Every point is run once per seed, and its measures are means over them.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// What all points have in common.
    #[serde(default)]
    pub setup: Setup,
    /// Points that differ in their setup; unless said, one that changes nothing.
    #[serde(default = "one_point")]
    pub point: Vec<Point>,
    /// What the paper reports.
    #[serde(default)]
    pub paper: Vec<Paper>,
    /// Bytes are counted link by link between sites, and their price where prices are known.
    #[serde(default)]
    pub links: bool,
    /// The measure that the plot shows, and its axis.
    pub plot: Plot,
    /// What is repeated with real bytes, if anything.
    pub live: Option<Live>,
}

/// How a workload is changed before it is run; absent means as it is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Rate of hosts' links, 1gbit unless said.
    pub link_rate: Option<String>,
    /// Arrival times are multiplied by this.
    pub arrival_scale: Option<f64>,
    /// Every coflow gets a deadline of its isolation time times `1 + U(0, deadlines)`.
    pub deadlines: Option<f64>,
    /// Every coflow arrives up to so many seconds later than the workload says, each by a draw of its own.
    pub jitter: Option<f64>,
    /// So many coflows, drawn at random, arrive at once.
    pub concurrent: Option<usize>,
    /// So many coflows of each bin of Varys' Table 4, drawn at random, arrive within the workload's time.
    pub mix: Option<[usize; 4]>,
    /// A reducer's bytes come from its mappers in parts that fall with their rank to this power.
    pub skew: Option<f64>,
    /// Racks of ten hosts whose links to the core carry this part of what their hosts can send: 1 / this.
    pub oversubscription: Option<f64>,
    /// Plan at arrivals and ends of coflows only, as the paper's system does.
    pub plan_at_coflows: Option<bool>,
    /// Coflows become stages of jobs that compute.
    pub jobs: Option<JobSetup>,
    /// Hosts are spread over datacenters.
    pub sites: Option<SiteSetup>,
    /// Flows one by one, packet by packet; nothing else of a setup is for that.
    pub packets: Option<PacketSetup>,
}

impl Setup {
    /// These values, and where one is absent that of `base`.
    pub(crate) fn over(&self, base: &Setup) -> Setup {
        Setup {
            link_rate: self.link_rate.clone().or_else(|| base.link_rate.clone()),
            arrival_scale: self.arrival_scale.or(base.arrival_scale),
            deadlines: self.deadlines.or(base.deadlines),
            jitter: self.jitter.or(base.jitter),
            concurrent: self.concurrent.or(base.concurrent),
            mix: self.mix.or(base.mix),
            skew: self.skew.or(base.skew),
            oversubscription: self.oversubscription.or(base.oversubscription),
            plan_at_coflows: self.plan_at_coflows.or(base.plan_at_coflows),
            jobs: self.jobs.or(base.jobs),
            sites: self.sites.clone().or_else(|| base.sites.clone()),
            packets: match &self.packets {
                Some(own) => Some(own.over(base.packets.as_ref())),
                None => base.packets.clone(),
            },
        }
    }

    /// As a file has it, without what is absent.
    pub(crate) fn as_table(&self) -> toml::Table {
        // What was read from such a file can be written as one.
        toml::Table::try_from(self).unwrap_or_default()
    }

    /// The rate of hosts' links.
    pub(crate) fn link_rate(&self) -> Result<Rate, String> {
        self.link_rate.as_deref().unwrap_or("1gbit").parse().map_err(|error| format!("link_rate: {error}"))
    }

    fn check(&self) -> Result<(), String> {
        self.link_rate()?;
        let numbers = [
            ("arrival_scale", self.arrival_scale),
            ("deadlines", self.deadlines),
            ("jitter", self.jitter),
            ("skew", self.skew),
            ("oversubscription", self.oversubscription),
        ];
        match numbers
            .iter()
            .find(|(_, value)| value.is_some_and(|value| !(value.is_finite() && value >= 0.0)))
        {
            Some((name, _)) => Err(format!("{name} is not a number of at least 0")),
            None if self.oversubscription.is_some_and(|factor| factor <= 0.0) => {
                Err("oversubscription is not above 0".to_owned())
            }
            None if self.jobs.is_some_and(|jobs| jobs.stages == 0) => Err("jobs have no stage".to_owned()),
            None if self.sites.is_some() && self.oversubscription.is_some() => {
                Err("sites have no racks: leave out sites or oversubscription".to_owned())
            }
            None if self.sites.is_some() && self.arrival_scale.is_some() => {
                Err("arrivals between sites are not scaled: leave out sites or arrival_scale".to_owned())
            }
            None if self.sites.is_some() && self.jobs.is_some() => {
                Err("jobs between sites are not modelled: leave out sites or jobs".to_owned())
            }
            None => self.sites.as_ref().map_or(Ok(()), SiteSetup::check),
        }
    }
}

/// One point of what is varied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// What it is called in tables.
    pub name: String,
    /// Its policies, if others than the experiment's.
    pub policies: Option<Vec<String>>,
    /// What differs from the experiment's setup here.
    #[serde(default)]
    pub setup: Setup,
}

/// A number of the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Which point; the first unless said.
    pub point: Option<String>,
    /// Which policy; `workload` where the workload is what is measured.
    #[serde(default = "of_workload")]
    pub policy: String,
    /// Name of the measure, as in tables.
    pub measure: String,
    /// The paper's number, in the unit of the measure.
    pub value: f64,
    /// Whether it is only a reading of a figure.
    #[serde(default)]
    pub read: bool,
}

/// What is drawn: a measure by point, or, of one point, by policy. Of the workload itself: the curves that are read
/// where this measure, one of a curve, is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Name of the measure that is drawn.
    pub measure: String,
    /// Whether its axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// What the points are points of.
    pub x: Option<PlotX>,
}

/// The axis of points.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotX {
    /// What differs between points, with its unit in brackets where it has one.
    pub name: String,
    /// Where each point stands, rising; without these, points have no order and are not joined by lines.
    #[serde(default)]
    pub values: Vec<f64>,
    /// Whether the axis is logarithmic.
    #[serde(default)]
    pub log: bool,
}

impl PlotX {
    fn check(&self, points: usize) -> Result<(), String> {
        let values = &self.values;
        if values.is_empty() {
            return if self.log { Err("plot: x has no values to be logarithmic".to_owned()) } else { Ok(()) };
        }
        if values.len() != points {
            return Err(format!("plot: x has {} values for {points} points", values.len()));
        }
        let rising = values.windows(2).all(|pair| pair[0] < pair[1]);
        if !rising || !values.iter().all(|value| value.is_finite() && *value >= 0.0) {
            return Err("plot: the values of x are not rising numbers of at least 0".to_owned());
        }
        if self.log && values[0] <= 0.0 {
            return Err("plot: a logarithmic x begins above 0".to_owned());
        }
        Ok(())
    }
}

/// What stands in a policy's place where the workload itself is measured.
pub(crate) const WORKLOAD: &str = "workload";

fn of_workload() -> String {
    WORKLOAD.to_owned()
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

fn one_point() -> Vec<Point> {
    vec![Point { name: "as it is".to_owned(), policies: None, setup: Setup::default() }]
}

/// Why a file is not an experiment.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It could not be read.
    #[error("{path}: {source}")]
    Open {
        /// Path of the file that was to be read.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// It says something else than an experiment.
    #[error("{path}: {reason}")]
    Malformed {
        /// Path of the file with the fault.
        path: PathBuf,
        /// What, in one line.
        reason: String,
    },
}

impl Experiment {
    /// Reads `experiment.toml` of a folder.
    ///
    /// # Errors
    /// The file cannot be read, or it is no experiment: an unknown setting or measure, or settings that do not go
    /// together.
    pub fn load(folder: &Path) -> Result<Experiment, SpecError> {
        let path = folder.join("experiment.toml");
        let text =
            weir_trace::read_text(&path).map_err(|source| SpecError::Open { path: path.clone(), source })?;
        Experiment::parse(&text).map_err(|reason| SpecError::Malformed { path, reason })
    }

    pub(crate) fn parse(text: &str) -> Result<Experiment, String> {
        let experiment: Experiment = toml::from_str(text).map_err(|error| {
            let (line, reason) = toml_fault(text, &error);
            format!("line {line}: {reason}")
        })?;
        experiment.check()?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), String> {
        if self.seeds.is_empty() || self.point.is_empty() {
            return Err("it has no seed or no point".to_owned());
        }
        if let Some(twice) = repeated(self.seeds.iter()) {
            return Err(format!("seed {twice} stands twice in `seeds`: each run would count twice"));
        }
        if let Some(twice) = repeated(self.point.iter().map(|point| &point.name)) {
            return Err(format!("two points have the name {twice}"));
        }
        let measures = self.show.iter().chain([&self.plot.measure]);
        let measures = measures.chain(self.paper.iter().map(|paper| &paper.measure));
        for name in measures {
            if self.is_of_workload() {
                crate::characteristics::check(name)?;
            } else if self.is_of_packets() {
                crate::packets::measures::check(name)?;
            } else {
                crate::names::check(name)?;
            }
        }
        self.plot.x.as_ref().map_or(Ok(()), |x| x.check(self.point.len()))?;
        for point in &self.point {
            let setup = point.setup.over(&self.setup);
            setup.check()?;
            let counts = |sites: &SiteSetup| sites.shuffles.is_some() && sites.every.is_none();
            if self.links && !setup.sites.as_ref().is_some_and(counts) {
                return Err(format!(
                    "links need shuffles between sites of steady capacity; not {}",
                    point.name
                ));
            }
            self.check_baseline(point)?;
        }
        if let Some(live) = &self.live {
            live.check()?;
            if !self.point.iter().any(|point| point.name == live.point) {
                return Err(format!("live: there is no point {}", live.point));
            }
        }
        for paper in &self.paper {
            let name = paper.point.as_ref().unwrap_or(&self.point[0].name);
            let point = self.point.iter().find(|point| point.name == *name);
            let runs = point.is_some_and(|point| {
                self.policies_of(point).contains(&paper.policy)
                    || (self.is_of_workload() && paper.policy == WORKLOAD)
            });
            if !runs {
                return Err(format!("the paper's number for {name}, {} has no run", paper.policy));
            }
        }
        Ok(())
    }

    /// Whether it is run packet by packet: its policies are transports then.
    pub fn is_of_packets(&self) -> bool {
        self.setup.packets.is_some() || self.point.iter().any(|point| point.setup.packets.is_some())
    }

    /// Whether this program has all policies or transports that are asked for.
    ///
    /// # Errors
    /// The first that it has not, in words.
    pub fn check_policies(&self) -> Result<(), String> {
        let of_points = self.point.iter().flat_map(|point| self.policies_of(point));
        let of_points = of_points.chain(self.live.iter().flat_map(|live| &live.policies));
        of_points.map(|name| self.find(name)).find_map(Result::err).map_or(Ok(()), Err)
    }

    /// Whether this program has a policy or transport, with the settings in its name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    fn find(&self, name: &str) -> Result<(), String> {
        if self.is_of_packets() {
            return weir_packet::transport::named(name).map(drop).map_err(|error| error.to_string());
        }
        weir_policy::find(name).map(drop).map_err(|error| error.to_string())
    }

    /// Policies are compared with one that runs as well; a workload is compared with nothing.
    fn check_baseline(&self, point: &Point) -> Result<(), String> {
        let policies = self.policies_of(point);
        match &self.baseline {
            Some(baseline) if !policies.contains(baseline) => {
                Err(format!("point {} does not run the baseline {baseline}", point.name))
            }
            None if !policies.is_empty() => Err("it has policies and no baseline".to_owned()),
            Some(_) if self.is_of_workload() => {
                Err(format!("point {} has policies and the experiment has none", point.name))
            }
            _ => Ok(()),
        }
    }

    /// Whether nothing is simulated and the workload itself is measured.
    pub(crate) fn is_of_workload(&self) -> bool {
        self.policies.is_empty()
    }

    /// Number of simulations, or of measured workloads.
    pub fn runs(&self) -> usize {
        let of_point = |point| self.policies_of(point).len().max(1);
        self.seeds.len() * self.point.iter().map(of_point).sum::<usize>()
    }

    /// The policies of a point.
    pub(crate) fn policies_of<'a>(&'a self, point: &'a Point) -> &'a [String] {
        point.policies.as_deref().unwrap_or(&self.policies)
    }
}

/// The first value that came before.
fn repeated<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut seen = std::collections::BTreeSet::new();
    for value in values {
        if seen.contains(&value) {
            return Some(value);
        }
        seen.insert(value);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        title = "t"
        source = "s"
        why = "w"
        baseline = "varys"
        policies = ["varys", "fair"]
        show = ["avg", "factor avg"]
        plot = { measure = "factor avg" }
        [[point]]
        name = "x"
        setup = { deadlines = 1.0 }
        [[paper]]
        policy = "fair"
        measure = "factor avg"
        value = 3.66
    "#;

    #[test]
    fn what_makes_no_sense_is_answered_with_the_reason() {
        assert!(Experiment::parse(GOOD).is_ok());
        for (from, to, reason) in [
            ("measure = \"factor avg\" }", "measure = \"speed\" }", "`speed` is no measure"),
            ("baseline = \"varys\"", "baseline = \"fifo\"", "does not run the baseline fifo"),
            ("deadlines = 1.0", "deadlines = -1.0", "deadlines is not a number"),
            ("deadlines = 1.0", "deadline = 1.0", "unknown field `deadline`"),
            ("deadlines = 1.0", "jobs = { stages = 0 }", "jobs have no stage"),
            ("policy = \"fair\"", "policy = \"fifo\"", "has no run"),
            ("why = \"w\"", "why = \"w\"\nlinks = true", "links need shuffles"),
            ("baseline = \"varys\"", "", "no baseline"),
            (
                "\"factor avg\" }",
                "\"factor avg\", x = { name = \"x\", values = [1, 2] } }",
                "2 values for 1 points",
            ),
            (
                "\"factor avg\" }",
                "\"factor avg\", x = { name = \"x\", values = [0], log = true } }",
                "begins above 0",
            ),
            ("title", "seeds = [1, 2, 1]\ntitle", "seed 1 stands twice"),
            ("policies = [\"varys\", \"fair\"]", "", "`avg` is no measure of a workload"),
        ] {
            let error = Experiment::parse(&GOOD.replacen(from, to, 1)).expect_err(to);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn policies_that_this_program_lacks_are_named_before_anything_runs() {
        let unknown = GOOD.replacen("\"fair\"]", "\"fairy\"]", 1).replace("\"fair\"", "\"fairy\"");
        let experiment = Experiment::parse(&unknown).expect("a well-formed experiment");
        let error = experiment.check_policies().expect_err("no such policy").to_string();
        assert!(error.contains("unknown policy `fairy`"), "{error}");
    }
}
