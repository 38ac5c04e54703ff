//! The summary, the distribution of completion times, averages per bin, and deadlines.

use super::bars::{self, Bar};
use super::deadlines::{self, Deadlines};
use super::shares::{self, Shares};
use super::svg::escape;
use super::{Looks, ReportInput, ReportRun, Sample, base, base_names, legend, repeated, section};
use crate::{BINS, Run, bin_average, mean};
use crate::{fixed, number, ratio};
use std::fmt::Write;

pub(super) fn summary(input: &ReportInput<'_>, looks: &Looks) -> String {
    if input.runs.is_empty() {
        return String::new();
    }
    let mut table = String::from("<div class=\"scroll\"><table>\n<tr><th></th>");
    for (above, below) in [
        ("average", "CCT"),
        ("median", "CCT"),
        ("95th perc.", "CCT"),
        ("99th perc.", "CCT"),
        ("mean", "slowdown"),
        ("", "makespan"),
        ("gain,", "average"),
        ("gain,", "95th perc."),
    ] {
        let _ = write!(table, "<th>{above}<br>{below}</th>");
    }
    table.push_str("</tr>\n");
    for (index, run) in input.runs.iter().enumerate() {
        let (now, then) = (&run.run.summary, &base(input, run.run).summary);
        let _ = write!(table, "<tr><td>{}</td>", escape(&looks.name(input, index)));
        for seconds in [now.avg_cct_s, now.p50_cct_s, now.p95_cct_s, now.p99_cct_s] {
            let _ = write!(table, "<td>{} s</td>", number(seconds));
        }
        let _ =
            write!(table, "<td>{}</td><td>{} s</td>", fixed(now.avg_slowdown, 2, ""), number(now.makespan_s));
        let gains = [(then.avg_cct_s, now.avg_cct_s), (then.p95_cct_s, now.p95_cct_s)];
        for (before, after) in gains {
            let _ = write!(table, "<td>{}</td>", ratio(before, after));
        }
        table.push_str("</tr>\n");
    }
    let bases = escape(&base_names(input, looks));
    table + &format!("</table></div>\n<p>Gain: how many times as fast as {bases}.</p>\n")
}

/// Share of coflows done within a time, one line per run.
pub(super) fn distribution(input: &ReportInput<'_>, looks: &Looks) -> String {
    let lines: Vec<Shares> = input
        .runs
        .iter()
        .map(|run| {
            let values: Vec<f64> = run.run.completed().map(|row| row.cct_s).collect();
            Shares { look: looks.of(run.run), of: values.len(), values }
        })
        .collect();
    let names = ("coflow completion time (seconds, logarithmic)", "coflows done (%)");
    let words = "Cumulative distribution of coflow completion times, one line per run";
    let body = legend(input, |_| true, Sample::Line, looks) + &shares::draw(&lines, names, None, words);
    section(
        "Distribution of completion times",
        "How many coflows were done within a time. A line further to the left is faster.",
        &body,
    )
}

/// Bars of average completion time, one panel per bin and one for all, each with its own axis from 0.
pub(super) fn bins(input: &ReportInput<'_>, looks: &Looks) -> String {
    let Some(first) = input.runs.first() else { return String::new() };
    let all = |run: &Run| Some(run.summary.avg_cct_s).filter(|value| value.is_finite());
    let mut panels = String::from("<div class=\"panels\">\n");
    for bin in 1..=4u8 {
        let count = first.run.coflows.iter().filter(|row| row.bin == bin).count();
        let title = format!("{} ({count})", BINS[usize::from(bin) - 1]);
        panels.push_str(&panel(&title, input, looks, &|run| bin_average(run, bin)));
    }
    panels.push_str(&panel(&format!("all ({})", first.run.coflows.len()), input, looks, &all));
    panels.push_str("</div>\n");
    section(
        "Average completion time per bin",
        &format!(
            "Bins of Varys' Table 4: short coflows have no flow of 5 MB or more, narrow ones at most 50 flows; \
             in brackets how many coflows. Every panel has its own scale. Behind a bar: its value, and how many times \
             as fast that is as {}. Where runs were repeated: their mean, with its 95 % confidence interval.",
            base_names(input, looks)
        ),
        &panels,
    )
}

fn panel(title: &str, input: &ReportInput<'_>, looks: &Looks, of: &dyn Fn(&Run) -> Option<f64>) -> String {
    let groups = repeated(input);
    let average = |group: &[&Run]| {
        let values: Vec<f64> = group.iter().filter_map(|run| of(run)).collect();
        (!values.is_empty()).then(|| mean(&values))
    };
    let bars: Vec<Bar> = groups
        .iter()
        .map(|group| {
            let base = groups.iter().find(|other| other[0].mode == group[0].mode);
            // The base is no gain over itself.
            let base = base.filter(|base| !std::ptr::eq(*base, group)).and_then(|base| average(base));
            let own = average(group).filter(|own| *own > 0.0);
            let note = base.zip(own).map(|(base, own)| gain(base / own)).unwrap_or_default();
            Bar {
                name: looks.policy(group[0]),
                look: looks.of(group[0]),
                values: group.iter().filter_map(|run| of(run)).collect(),
                note,
            }
        })
        .collect();
    bars::panel(title, "policy", "average CCT (s)", &bars)
}

/// What became of deadlines, where any coflow has one.
pub(super) fn deadlines(input: &ReportInput<'_>, looks: &Looks) -> String {
    let of = |(index, run): (usize, &ReportRun<'_>)| {
        let stated = || run.run.coflows.iter().filter(|row| row.met.is_some());
        let count = |met: bool, admitted: bool| {
            stated().filter(|row| (row.met, row.admitted) == (Some(met), admitted)).count()
        };
        let used = stated().filter(|row| row.admitted).filter_map(|row| Some(row.cct_s / row.deadline_s?));
        Deadlines {
            name: looks.name(input, index),
            look: looks.of(run.run),
            ends: [count(true, true), count(false, true), count(false, false)],
            used: used.collect(),
        }
    };
    let runs: Vec<Deadlines> = input.runs.iter().enumerate().map(of).collect();
    let legend = legend(input, |_| true, Sample::Line, looks);
    deadlines::section_of("coflows with deadlines", ["met", "late", "refused"], &legend, &runs)
}

/// A ratio to two digits or more.
fn gain(ratio: f64) -> String {
    let digits = match ratio {
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ => 4,
    };
    format!("{ratio:.digits$}x")
}
