//! `weir packet --report`: what each flow got over time, completion times and their averages by size.

use super::bars::{self, Bar};
use super::deadlines::{self, Deadlines};
use super::scale::{Scale, label, round_step};
use super::shares::{self, Shares};
use super::svg::{Anchor, Drawing, Look, WIDTH, escape};
use super::{Sample, foot, head, keys, section};
use crate::Provenance;
use std::fmt::Write;

/// What the page shows.
pub struct PacketReport {
    /// Heading, such as the scenario's name.
    pub title: String,
    /// One sentence on workload and network.
    pub setting: String,
    /// What made the results.
    pub made_by: Provenance,
    /// One per transport, in the order asked for.
    pub runs: Vec<PacketRun>,
}

/// What one transport made of the flows.
pub struct PacketRun {
    /// The transport, as it was asked for.
    pub name: String,
    /// Heads of columns and cells of its row in the table.
    pub cells: Vec<(&'static str, String)>,
    /// Completion times of flows without deadlines, in milliseconds.
    pub completions_ms: Vec<f64>,
    /// Average completion time by size in milliseconds, where there are such flows.
    pub averages_ms: Vec<(&'static str, Option<f64>)>,
    /// Deadlines met, missed, and those that the flow could not meet alone.
    pub deadlines: [usize; 3],
    /// Completion time over deadline of flows with deadlines.
    pub used: Vec<f64>,
    /// What every flow received over time, if that is to be shown.
    pub rates: Vec<FlowRate>,
}

/// What a flow received.
pub struct FlowRate {
    /// What the legend calls the flow.
    pub name: String,
    /// Its deadline, in milliseconds.
    pub deadline_ms: Option<f64>,
    /// Ends of intervals in milliseconds, and Mbit/s in them.
    pub points: Vec<(f64, f64)>,
}

/// The report as one page of HTML.
pub fn render_packets(report: &PacketReport) -> String {
    let mut page = head(&report.title, &report.setting);
    page.push_str(&table(report));
    page.push_str(&rates(report));
    page.push_str(&distribution(report));
    page.push_str(&averages(report));
    page.push_str(&deadlines(report));
    page.push_str(&foot(
        &report.made_by,
        "A completion time counts from a flow's arrival to its last byte at the receiver; slowdown is that over the \
         time of the flow alone. Small: up to 100 kB, large: above 10 MB. Percentiles by linear interpolation.",
    ));
    page
}

fn table(report: &PacketReport) -> String {
    let mut table = String::from("<div class=\"scroll\"><table>\n<tr><th></th>");
    for (name, _) in report.runs.first().into_iter().flat_map(|run| &run.cells) {
        let _ = write!(table, "<th>{}</th>", escape(name));
    }
    table.push_str("</tr>\n");
    for run in &report.runs {
        let _ = write!(table, "<tr><td>{}</td>", escape(&run.name));
        for (_, cell) in &run.cells {
            let _ = write!(table, "<td>{}</td>", escape(cell));
        }
        table.push_str("</tr>\n");
    }
    table + "</table></div>\n"
}

fn legend<'a>(names: impl Iterator<Item = &'a str>) -> String {
    keys(names.enumerate().map(|(number, name)| (Look::of(number), name.to_owned())), Sample::Line)
}

/// A panel per transport, a line per flow; deadlines are marked where they are.
fn rates(report: &PacketReport) -> String {
    let shown: Vec<&PacketRun> = report.runs.iter().filter(|run| !run.rates.is_empty()).collect();
    let Some(first) = shown.first() else { return String::new() };
    let all = || shown.iter().flat_map(|run| &run.rates).flat_map(|rate| &rate.points);
    let (last, highest) =
        all().fold((0.0, 0.0), |(last, high): (f64, f64), (at, rate)| (last.max(*at), high.max(*rate)));
    let (left, right, height) = (64.0, WIDTH - 16.0, 306.0);
    let mut drawing = Drawing::new(WIDTH, height * shown.len() as f64);
    for (index, run) in shown.iter().enumerate() {
        let top = index as f64 * height + 60.0;
        let bottom = top + height - 116.0;
        let x = Scale::linear(last, left, right);
        let step = round_step(highest / 5.0);
        let y = Scale::linear((highest / step).ceil() * step, bottom, top);
        drawing.text("panel", (20.0, top - 34.0), Anchor::Start, &run.name);
        drawing.x_axis(&x, top, bottom, "time (ms)");
        drawing.y_axis(&y, left, right, "received (Mbit/s)");
        for (index, rate) in run.rates.iter().enumerate() {
            let look = Look::of(index);
            let mut points = Vec::with_capacity(2 * rate.points.len());
            let mut from = rate.points.first().map_or(0.0, |(at, _)| *at);
            for &(until, value) in &rate.points {
                // Two points for each interval: a rate is a mean over it, and between two of them
                // the line is upright.
                points.extend([(x.at(from), y.at(value)), (x.at(until), y.at(value))]);
                from = until;
            }
            drawing.series(look, &points);
            if let Some(deadline) = rate.deadline_ms {
                let title = format!("deadline of {}: {} ms", rate.name, label(deadline));
                drawing.line(
                    &format!("deadline {}", look.class()),
                    (x.at(deadline), top),
                    (x.at(deadline), bottom),
                );
                drawing.marker(look, (x.at(deadline), top), &title);
            }
        }
    }
    let body = legend(first.rates.iter().map(|rate| rate.name.as_str()))
        + &drawing.finish("What each flow received over time, one panel per transport");
    section(
        "What each flow received",
        "Payload received for the first time. A marker at the upper edge, with an upright line, is the deadline of the \
         flow of its colour and marker.",
        &body,
    )
}

/// Share of flows without deadlines complete within a time, a line per transport.
fn distribution(report: &PacketReport) -> String {
    let all = || report.runs.iter().flat_map(|run| run.completions_ms.iter().copied());
    if all().next().is_none() {
        return String::new();
    }
    let line = |(number, run): (usize, &PacketRun)| {
        let values = run.completions_ms.clone();
        Shares { look: Look::of(number), of: values.len(), values }
    };
    let lines: Vec<Shares> = report.runs.iter().enumerate().map(line).collect();
    let names = ("completion time (ms, logarithmic)", "flows complete (%)");
    let words = "Cumulative distribution of completion times, one line per transport";
    let body =
        legend(report.runs.iter().map(|run| run.name.as_str())) + &shares::draw(&lines, names, None, words);
    section(
        "Completion times of flows without deadlines",
        "How many were complete within a time. A line further to the left is faster.",
        &body,
    )
}

/// A panel per size, a bar per transport.
fn averages(report: &PacketReport) -> String {
    let Some(first) = report.runs.first() else { return String::new() };
    let panels: Vec<usize> = (0..first.averages_ms.len())
        .filter(|&panel| report.runs.iter().any(|run| run.averages_ms[panel].1.is_some()))
        .collect();
    if panels.is_empty() {
        return String::new();
    }
    let mut body = String::from("<div class=\"panels\">\n");
    for panel in panels {
        let bar = |(number, run): (usize, &PacketRun)| Bar {
            name: run.name.clone(),
            look: Look::of(number),
            values: run.averages_ms[panel].1.into_iter().collect(),
            note: String::new(),
        };
        let bars: Vec<Bar> = report.runs.iter().enumerate().map(bar).collect();
        let title = first.averages_ms[panel].0;
        body.push_str(&bars::panel(title, "transport", "average completion time (ms)", &bars));
    }
    body.push_str("</div>\n");
    section("Average completion time by size", "Flows without deadlines; each panel has its own axis.", &body)
}

/// What became of deadlines, where any flow has one.
fn deadlines(report: &PacketReport) -> String {
    let of = |(number, run): (usize, &PacketRun)| Deadlines {
        name: run.name.clone(),
        look: Look::of(number),
        ends: run.deadlines,
        used: run.used.clone(),
    };
    let runs: Vec<Deadlines> = report.runs.iter().enumerate().map(of).collect();
    let legend = legend(report.runs.iter().map(|run| run.name.as_str()));
    let ends = ["met", "missed", "infeasible: the flow alone would be late"];
    deadlines::section_of("flows with deadlines", ends, &legend, &runs)
}
