//! `--report`: one HTML page with everything in it, drawn here, readable without a network.

mod bars;
mod charts;
mod comparison;
mod deadlines;
mod link_use;
mod packets;
mod scale;
mod shares;
mod svg;
mod timeline;

pub use link_use::{LinkRecorder, LinkUse, Transfer};
pub use packets::{FlowRate, PacketReport, PacketRun, render_packets};

use crate::{Mode, Provenance, Run};
use std::fmt::Write;
use svg::{Look, escape};

/// What a report shows.
pub struct ReportInput<'a> {
    /// Name of the trace or scenario.
    pub title: String,
    /// One sentence on workload and network.
    pub setting: String,
    /// What made the results.
    pub made_by: &'a Provenance,
    /// Gains are counted from the first run of the same mode.
    pub runs: Vec<ReportRun<'a>>,
}

/// A run to show.
pub struct ReportRun<'a> {
    /// The run whose coflows are drawn.
    pub run: &'a Run,
    /// Without it the run is missing from the chart of link use.
    pub link_use: Option<LinkUse>,
}

/// How runs look: colour and marker are the policy's, live and simulated are told apart where both are there.
struct Looks {
    keys: Vec<String>,
    both: bool,
}

impl Looks {
    fn new(input: &ReportInput<'_>) -> Looks {
        let mut keys: Vec<String> = Vec::new();
        for run in &input.runs {
            let key = twin(&run.run.policy);
            if !keys.iter().any(|known| known == key) {
                keys.push(key.to_owned());
            }
        }
        let modes = |mode| input.runs.iter().any(|run| run.run.mode == mode);
        Looks { keys, both: modes(Mode::Live) && modes(Mode::Simulated) }
    }

    fn of(&self, run: &Run) -> Look {
        let number = self.keys.iter().position(|key| key == twin(&run.policy)).unwrap_or(0);
        if self.both { Look::of_pair(number, run.mode == Mode::Simulated) } else { Look::of(number) }
    }

    /// What a policy is called: with its mode where both are there.
    fn policy(&self, run: &Run) -> String {
        if self.both { format!("{} ({})", run.policy, run.mode) } else { run.policy.clone() }
    }

    /// What a run is called: as its policy, with its number where it was repeated.
    fn name(&self, input: &ReportInput<'_>, index: usize) -> String {
        let run = input.runs[index].run;
        let same = |other: &&ReportRun<'_>| same(other.run, run);
        let mut name = self.policy(run);
        if input.runs.iter().filter(same).count() > 1 {
            let number = input.runs[..=index].iter().filter(same).count();
            name.push_str(&format!(", run {number}"));
        }
        name
    }
}

/// Whether two runs are repetitions of each other.
fn same(one: &Run, other: &Run) -> bool {
    (&one.policy, one.mode) == (&other.policy, other.mode)
}

/// Runs with their repetitions, in the order of the first of each.
fn repeated<'a>(input: &ReportInput<'a>) -> Vec<Vec<&'a Run>> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in &input.runs {
        match groups.iter_mut().find(|group| same(group[0], run.run)) {
            Some(group) => group.push(run.run),
            None => groups.push(vec![run.run]),
        }
    }
    groups
}

/// What a policy is compared with in the other mode: TCP on real links with exact fair sharing.
fn twin(policy: &str) -> &str {
    if policy == "tcp" { "fair" } else { policy }
}

/// The report as one page of HTML.
pub fn render(input: &ReportInput<'_>) -> String {
    let looks = Looks::new(input);
    let mut page = head(&input.title, &input.setting);
    page.push_str(&charts::summary(input, &looks));
    page.push_str(&charts::distribution(input, &looks));
    page.push_str(&charts::bins(input, &looks));
    page.push_str(&charts::deadlines(input, &looks));
    page.push_str(&comparison::live_against_simulated(input, &looks));
    page.push_str(&timeline::timeline(input, &looks));
    page.push_str(&timeline::link_use(input, &looks));
    page.push_str(&foot(
        input.made_by,
        "CCT: coflow completion time, from arrival to last byte. Slowdown: CCT over the time the coflow would take in \
         an empty network. Percentiles by linear interpolation.",
    ));
    page
}

/// A page from its beginning to its one sentence on workload and network.
fn head(title: &str, setting: &str) -> String {
    let mut page = String::with_capacity(1 << 18);
    let title = escape(title);
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
    let _ = writeln!(page, "<title>Weir: {title}</title>\n<style>\n{}</style>", include_str!("style.css"));
    let _ = writeln!(page, "</head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>", escape(setting));
    page
}

/// The end of a page, with what its words mean and what made it.
fn foot(made_by: &Provenance, words: &str) -> String {
    let made = made_by.line();
    format!("<footer>{}<br>{}</footer>\n</body>\n</html>\n", escape(words), escape(&made))
}

fn section(heading: &str, explanation: &str, body: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n<p>{}</p>\n{body}</section>\n", escape(heading), escape(explanation))
}

/// What gains of a run are counted from: the first run of its mode.
fn base<'a>(input: &ReportInput<'a>, run: &Run) -> &'a Run {
    let same = input.runs.iter().map(|other| other.run).find(|other| other.mode == run.mode);
    // Any run of a report has at least itself for a base.
    same.unwrap_or(input.runs[0].run)
}

/// What the bases are called.
fn base_names(input: &ReportInput<'_>, looks: &Looks) -> String {
    let is_base = |&index: &usize| std::ptr::eq(base(input, input.runs[index].run), input.runs[index].run);
    let names: Vec<String> =
        (0..input.runs.len()).filter(is_base).map(|index| looks.name(input, index)).collect();
    names.join(" or ")
}

/// What a legend shows of each run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sample {
    Line,
    Bar,
}

/// A legend: the sample of each look, with its name.
fn keys(of: impl IntoIterator<Item = (Look, String)>, sample: Sample) -> String {
    let mut text = String::from("<div class=\"legend\">");
    for (look, name) in of {
        let _ = write!(text, "<span>{}{}</span>", look.sample(sample == Sample::Bar), escape(&name));
    }
    text + "</div>\n"
}

/// A sample of each policy's lines or bars, with its name; repetitions look alike.
fn legend(input: &ReportInput<'_>, shown: impl Fn(&Run) -> bool, sample: Sample, looks: &Looks) -> String {
    let groups = repeated(input).into_iter().filter(|group| group.iter().any(|run| shown(run)));
    let name = |group: Vec<&Run>| {
        let name = looks.policy(group[0]);
        let name = if group.len() > 1 { format!("{name}, {} runs", group.len()) } else { name };
        (looks.of(group[0]), name)
    };
    keys(groups.map(name), sample)
}

#[cfg(test)]
mod tests;
