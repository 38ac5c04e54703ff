//! `weir packet --report`: what each flow got over time, completion times and their averages by size.

use super::charts::WIDTH;
use super::scale::{Scale, label, round_step};
use super::svg::{Anchor, Drawing, escape};
use super::{COLOURS, foot, head, section};
use crate::output::number;
use std::fmt::Write;

/// What the page shows.
pub(crate) struct PacketReport {
    pub(crate) title: String,
    pub(crate) setting: String,
    pub(crate) runs: Vec<PacketRun>,
}

/// What one transport made of the flows.
pub(crate) struct PacketRun {
    pub(crate) name: String,
    /// Heads of columns and cells of its row in the table.
    pub(crate) cells: Vec<(&'static str, String)>,
    /// Completion times of flows without deadlines, in milliseconds.
    pub(crate) completions_ms: Vec<f64>,
    /// Average completion time by size in milliseconds, where there are such flows.
    pub(crate) averages_ms: Vec<(&'static str, Option<f64>)>,
    /// What every flow received over time, if that is to be shown.
    pub(crate) rates: Vec<FlowRate>,
}

/// What a flow received.
pub(crate) struct FlowRate {
    pub(crate) name: String,
    /// Its deadline, in milliseconds.
    pub(crate) deadline_ms: Option<f64>,
    /// Ends of intervals in milliseconds, and Mbit/s in them.
    pub(crate) points: Vec<(f64, f64)>,
}

/// The page.
pub(crate) fn render_packets(report: &PacketReport) -> String {
    let mut page = head(&report.title, &report.setting);
    page.push_str(&table(report));
    page.push_str(&rates(report));
    page.push_str(&distribution(report));
    page.push_str(&averages(report));
    page.push_str(&foot(
        "A completion time counts from a flow's arrival to its last byte at the receiver; slowdown is that over the \
         time of the flow alone. Small: up to 100 kB, large: above 10 MB. Percentiles by linear interpolation.",
    ));
    page
}

fn colour(index: usize) -> String {
    format!("c{} simulated", index % COLOURS)
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
    let mut text = String::from("<div class=\"legend\">");
    for (index, name) in names.enumerate() {
        let (class, name) = (colour(index), escape(name));
        let _ = write!(
            text,
            "<span><svg viewBox=\"0 0 30 12\"><path class=\"line {class}\" d=\"M0 6L30 6\"/></svg>{name}</span>"
        );
    }
    text + "</div>\n"
}

/// A panel per transport, a line per flow; deadlines are marked where they are.
fn rates(report: &PacketReport) -> String {
    let shown: Vec<&PacketRun> = report.runs.iter().filter(|run| !run.rates.is_empty()).collect();
    let Some(first) = shown.first() else { return String::new() };
    let all = || shown.iter().flat_map(|run| &run.rates).flat_map(|rate| &rate.points);
    let (last, highest) =
        all().fold((0.0, 0.0), |(last, high): (f64, f64), (at, rate)| (last.max(*at), high.max(*rate)));
    let (left, right, height) = (64.0, WIDTH - 16.0, 290.0);
    let mut drawing = Drawing::new(WIDTH, height * shown.len() as f64);
    for (index, run) in shown.iter().enumerate() {
        let top = index as f64 * height + 44.0;
        let bottom = top + height - 100.0;
        let x = Scale::linear(last, left, right);
        let step = round_step(highest / 5.0);
        let y = Scale::linear((highest / step).ceil() * step, bottom, top);
        drawing.text("panel", (left, top - 26.0), Anchor::Start, &run.name);
        drawing.x_axis(&x, top, bottom, "time (ms)");
        drawing.y_axis(&y, left, right, "received (Mbit/s)");
        for (index, rate) in run.rates.iter().enumerate() {
            let class = colour(index);
            let mut points = Vec::with_capacity(2 * rate.points.len());
            let mut from = rate.points.first().map_or(0.0, |(at, _)| *at);
            for &(until, value) in &rate.points {
                points.extend([(x.at(from), y.at(value)), (x.at(until), y.at(value))]);
                from = until;
            }
            drawing.path(&format!("line {class}"), points);
            if let Some(deadline) = rate.deadline_ms {
                let title = format!("deadline of {}: {} ms", rate.name, label(deadline));
                drawing.circle(&format!("dot {class}"), (x.at(deadline), top), 4.0, &title);
            }
        }
    }
    let body = legend(first.rates.iter().map(|rate| rate.name.as_str()))
        + &drawing.finish("What each flow received over time, one panel per transport");
    section(
        "What each flow received",
        "Payload received for the first time. A dot at the upper edge is the deadline of the flow of its colour.",
        &body,
    )
}

/// Share of flows without deadlines complete within a time, a line per transport.
fn distribution(report: &PacketReport) -> String {
    let all = || report.runs.iter().flat_map(|run| run.completions_ms.iter().copied());
    if all().next().is_none() {
        return String::new();
    }
    let (left, right, top, bottom) = (56.0, WIDTH - 16.0, 34.0, 330.0);
    let x = Scale::log(all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max), left, right);
    let y = Scale::linear(100.0, bottom, top);
    let mut drawing = Drawing::new(WIDTH, bottom + 48.0);
    drawing.x_axis(&x, top, bottom, "completion time (ms, logarithmic)");
    drawing.y_axis(&y, left, right, "flows complete (%)");
    for (index, run) in report.runs.iter().enumerate() {
        let mut sorted = run.completions_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        let points = sorted
            .iter()
            .enumerate()
            .map(|(at, completion)| (x.at(*completion), y.at(100.0 * (at + 1) as f64 / count)));
        drawing.path(&format!("line {}", colour(index)), points);
    }
    let body = legend(report.runs.iter().map(|run| run.name.as_str()))
        + &drawing.finish("Cumulative distribution of completion times, one line per transport");
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
    let (width, height) = (WIDTH / panels.len() as f64, 300.0);
    let mut drawing = Drawing::new(WIDTH, height);
    for (place, &panel) in panels.iter().enumerate() {
        let (left, right) = (place as f64 * width + 52.0, (place + 1) as f64 * width - 12.0);
        let (top, bottom) = (44.0, height - 30.0);
        let values: Vec<f64> =
            report.runs.iter().map(|run| run.averages_ms[panel].1.unwrap_or_default()).collect();
        let highest = values.iter().copied().fold(0.0, f64::max);
        let step = round_step(highest / 4.0);
        let y = Scale::linear((highest / step).ceil() * step, bottom, top);
        drawing.text("panel", (left, 18.0), Anchor::Start, first.averages_ms[panel].0);
        drawing.y_axis(&y, left, right, "ms");
        let bar = (right - left) / values.len() as f64;
        for (index, value) in values.iter().enumerate() {
            let corner = (left + index as f64 * bar + bar * 0.1, y.at(*value));
            let title = format!("{}: {} ms", report.runs[index].name, number(*value));
            drawing.rect(&format!("bar {}", colour(index)), corner, (bar * 0.8, bottom - corner.1), &title);
        }
    }
    let body = legend(report.runs.iter().map(|run| run.name.as_str()))
        + &drawing.finish("Average completion time by size of flows, one bar per transport");
    section("Average completion time by size", "Flows without deadlines; each panel has its own axis.", &body)
}
