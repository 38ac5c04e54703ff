//! `--report`: one HTML page with everything in it, drawn here, readable without a network.

mod charts;
mod comparison;
mod link_use;
mod packets;
mod scale;
mod svg;
mod timeline;

pub(crate) use link_use::{LinkRecorder, LinkUse, Transfer};
pub(crate) use packets::{FlowRate, PacketReport, PacketRun, render_packets};

use crate::output::{Mode, Provenance, Run};
use std::fmt::Write;
use svg::escape;

/// What a report shows.
pub(crate) struct ReportInput<'a> {
    /// Name of the trace or scenario.
    pub(crate) title: String,
    /// One sentence on workload and network.
    pub(crate) setting: String,
    /// Gains are counted from the first run of the same mode.
    pub(crate) runs: Vec<ReportRun<'a>>,
}

/// A run to show.
pub(crate) struct ReportRun<'a> {
    pub(crate) run: &'a Run,
    /// Without it the run is missing from the chart of link use.
    pub(crate) link_use: Option<LinkUse>,
}

/// How runs look: one colour per policy, live and simulated told apart where both are there.
struct Looks {
    keys: Vec<String>,
    both: bool,
}

/// Colours there are.
const COLOURS: usize = 6;

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

    /// Classes for style.css.
    fn class(&self, run: &Run) -> String {
        let colour = self.keys.iter().position(|key| key == twin(&run.policy)).unwrap_or(0) % COLOURS;
        let both = if self.both { " both" } else { "" };
        format!("c{colour} {}{both}", run.mode)
    }

    /// What a run is called: its policy, its mode where both are there, its number where it was repeated.
    fn name(&self, input: &ReportInput<'_>, index: usize) -> String {
        let run = input.runs[index].run;
        let same = |other: &&ReportRun<'_>| (&other.run.policy, other.run.mode) == (&run.policy, run.mode);
        let mut name = if self.both { format!("{} ({})", run.policy, run.mode) } else { run.policy.clone() };
        if input.runs.iter().filter(same).count() > 1 {
            let number = input.runs[..=index].iter().filter(same).count();
            name.push_str(&format!(", run {number}"));
        }
        name
    }
}

/// What a policy is compared with in the other mode: TCP on real links with exact fair sharing.
fn twin(policy: &str) -> &str {
    if policy == "tcp" { "fair" } else { policy }
}

/// The page.
pub(crate) fn render(input: &ReportInput<'_>) -> String {
    let looks = Looks::new(input);
    let mut page = head(&input.title, &input.setting);
    page.push_str(&charts::summary(input, &looks));
    page.push_str(&charts::distribution(input, &looks));
    page.push_str(&charts::bins(input, &looks));
    page.push_str(&comparison::live_against_simulated(input, &looks));
    page.push_str(&timeline::timeline(input, &looks));
    page.push_str(&timeline::link_use(input, &looks));
    page.push_str(&foot(
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

/// The end of a page, with what its words mean.
fn foot(words: &str) -> String {
    let made = Provenance::of_this_run(None).line();
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
#[derive(Clone, Copy)]
enum Sample {
    Line,
    Bar,
}

/// One sample of each run's line or bar, with its name.
fn legend(
    input: &ReportInput<'_>,
    shown: impl IntoIterator<Item = usize>,
    sample: Sample,
    looks: &Looks,
) -> String {
    let mut text = String::from("<div class=\"legend\">");
    for index in shown {
        let class = looks.class(input.runs[index].run);
        let shape = match sample {
            Sample::Line => format!("<path class=\"line {class}\" d=\"M0 6L30 6\"/>"),
            Sample::Bar => format!("<rect class=\"bar {class}\" x=\"9\" width=\"12\" height=\"12\"/>"),
        };
        let name = escape(&looks.name(input, index));
        let _ = write!(text, "<span><svg viewBox=\"0 0 30 12\">{shape}</svg>{name}</span>");
    }
    text.push_str("</div>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::CoflowRow;

    fn run(policy: &str, mode: Mode, factor: f64) -> Run {
        let row = |id: u64| CoflowRow {
            id,
            arrival_s: id as f64,
            cct_s: factor * (1.0 + id as f64),
            isolation_s: 1.0,
            width: 3,
            bytes: 1000,
            bin: 1 + (id % 4) as u8,
            admitted: true,
            met: None,
        };
        Run::new(policy, mode, (0..40).map(row).collect(), 0.1)
    }

    fn page(runs: &[Run]) -> String {
        let runs = runs.iter().map(|run| ReportRun { run, link_use: None }).collect();
        render(&ReportInput { title: "a < b".to_owned(), setting: "x".to_owned(), runs })
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = page(&[run("fair", Mode::Simulated, 2.0), run("varys", Mode::Simulated, 1.0)]);
        for outside in ["http://", "https://", "src=", "<script", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("a &lt; b") && !page.contains("NaN") && !page.contains("inf"));
        assert!(!page.contains("Live beside simulated"));
    }

    #[test]
    fn live_runs_stand_beside_their_simulated_twins() {
        let runs = [
            run("tcp", Mode::Live, 2.2),
            run("fair", Mode::Simulated, 2.0),
            run("varys", Mode::Live, 1.1),
            run("varys", Mode::Simulated, 1.0),
        ];
        let page = page(&runs);
        assert!(page.contains("Live beside simulated"));
        assert!(page.contains("varys (live)") && page.contains("fair (simulated)"));
    }

    #[test]
    fn empty_runs_make_a_page_too() {
        let page = page(&[Run::new("fair", Mode::Simulated, Vec::new(), 0.0)]);
        assert!(page.contains("</html>") && !page.contains("NaN"));
    }
}
