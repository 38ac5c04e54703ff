//! The summary, the distribution of completion times, and averages per bin.

use super::scale::{Scale, label, round_step};
use super::svg::{Anchor, Drawing, escape};
use super::{Looks, ReportInput, Sample, base, base_names, legend, section};
use crate::output::{BINS, Run, bin_average, fixed, number, ratio};
use std::fmt::Write;

pub(super) const WIDTH: f64 = 1072.0;

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
    let sorted: Vec<(&Run, Vec<f64>)> = input
        .runs
        .iter()
        .map(|run| {
            let mut ccts: Vec<f64> = run.run.completed().map(|row| row.cct_s).collect();
            ccts.sort_by(f64::total_cmp);
            (run.run, ccts)
        })
        .collect();
    let all = || sorted.iter().flat_map(|(_, ccts)| ccts.iter().copied()).filter(|cct| *cct > 0.0);
    let (left, right, top, bottom) = (56.0, WIDTH - 16.0, 34.0, 330.0);
    let x = Scale::log(all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max), left, right);
    let y = Scale::linear(100.0, bottom, top);
    let mut drawing = Drawing::new(WIDTH, bottom + 48.0);
    drawing.x_axis(&x, top, bottom, "coflow completion time (seconds, logarithmic)");
    drawing.y_axis(&y, left, right, "coflows done (%)");
    for (run, ccts) in &sorted {
        let count = ccts.len() as f64;
        let mut below = y.at(0.0);
        let mut points = vec![(x.at(x.low()), below)];
        for (index, &cct) in ccts.iter().enumerate() {
            points.push((x.at(cct), below));
            below = y.at(100.0 * (index + 1) as f64 / count);
            points.push((x.at(cct), below));
        }
        points.push((x.at(x.high()), below));
        drawing.path(&format!("line {}", looks.class(run)), points);
    }
    let body = legend(input, 0..input.runs.len(), Sample::Line, looks)
        + &drawing.finish("Cumulative distribution of coflow completion times, one line per run");
    section(
        "Distribution of completion times",
        "How many coflows were done within a time. A line further to the left is faster.",
        &body,
    )
}

/// Bars of average completion time, one panel per bin and one for all, each with its own axis from 0.
pub(super) fn bins(input: &ReportInput<'_>, looks: &Looks) -> String {
    let Some(first) = input.runs.first() else { return String::new() };
    let panels: Vec<(String, Vec<Option<f64>>)> = (1..=4u8)
        .map(|bin| {
            let count = first.run.coflows.iter().filter(|row| row.bin == bin).count();
            let title = format!("{} ({count})", BINS[usize::from(bin) - 1]);
            (title, input.runs.iter().map(|run| bin_average(run.run, bin)).collect())
        })
        .chain(std::iter::once({
            let average = |run: &super::ReportRun<'_>| Some(run.run.summary.avg_cct_s);
            let all = |run: &super::ReportRun<'_>| average(run).filter(|value| value.is_finite());
            (format!("all ({})", first.run.coflows.len()), input.runs.iter().map(all).collect())
        }))
        .collect();
    // Many runs need wide panels: two rows of three.
    let columns = if input.runs.len() > 4 { 3 } else { panels.len() };
    let (width, height) = (WIDTH / columns as f64, 318.0);
    let mut drawing = Drawing::new(WIDTH, height * panels.len().div_ceil(columns) as f64);
    for (index, (title, values)) in panels.iter().enumerate() {
        let place = ((index % columns) as f64 * width, (index / columns) as f64 * height);
        panel(&mut drawing, place, width, title, values, input, looks);
    }
    let body = legend(input, 0..input.runs.len(), Sample::Bar, looks)
        + &drawing.finish("Average completion time per bin, one bar per run");
    section(
        "Average completion time per bin (seconds)",
        &format!(
            "Bins of Varys' Table 4: short coflows have no flow of 5 MB or more, narrow ones at most 50 flows; \
             in brackets how many coflows. Every panel has its own scale. Below the bars: how many times as fast \
             as {}.",
            base_names(input, looks)
        ),
        &body,
    )
}

fn panel(
    drawing: &mut Drawing,
    (left, above): (f64, f64),
    width: f64,
    title: &str,
    values: &[Option<f64>],
    input: &ReportInput<'_>,
    looks: &Looks,
) {
    let (from, to, top, bottom) = (left + 48.0, left + width - 8.0, above + 52.0, above + 270.0);
    drawing.text("panel", (left + 4.0, above + 16.0), Anchor::Start, title);
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        drawing.text("tick", ((from + to) / 2.0, (top + bottom) / 2.0), Anchor::Middle, "no coflows");
        return;
    }
    let step = round_step(most / 4.0);
    let y = Scale::linear(step * (most / step - 1e-9).ceil(), bottom, top);
    for (value, _) in y.ticks(4) {
        drawing.line("grid", (from, y.at(value)), (to, y.at(value)));
        drawing.text("tick", (from - 6.0, y.at(value) + 4.0), Anchor::End, &label(value));
    }
    let slot = (to - from) / values.len() as f64;
    let bar = (slot * 0.72).min(46.0);
    for (index, (value, run)) in values.iter().zip(&input.runs).enumerate() {
        let Some(value) = *value else { continue };
        let middle = from + slot * (index as f64 + 0.5);
        let corner = (middle - bar / 2.0, y.at(value));
        let title = format!("{}: {} s", looks.name(input, index), number(value));
        drawing.rect(&format!("bar {}", looks.class(run.run)), corner, (bar, bottom - y.at(value)), &title);
        drawing.text("value", (middle, y.at(value) - 5.0), Anchor::Middle, &short(value));
        let first = input.runs.iter().position(|other| std::ptr::eq(other.run, base(input, run.run)));
        if let Some(base) = first.filter(|&first| first != index).and_then(|first| values[first]) {
            drawing.text("gain", (middle, bottom + 17.0), Anchor::Middle, &gain(base / value));
        }
    }
    drawing.line("axis", (from, bottom), (to, bottom));
}

/// A ratio in at most four characters and the sign.
fn gain(ratio: f64) -> String {
    let digits = if ratio >= 100.0 { 0 } else { 1 + usize::from(ratio < 10.0) };
    format!("{ratio:.digits$}x")
}

/// Three significant digits: what fits over a bar.
fn short(value: f64) -> String {
    let digits = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 4) as usize;
    format!("{value:.digits$}")
}
