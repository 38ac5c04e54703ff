//! What happened when: coflows from arrival to last byte, and links in use.

use super::scale::Scale;
use super::svg::{Anchor, Drawing, WIDTH};
use super::{Looks, ReportInput, Sample, legend, section};
use crate::number;
use crate::{BINS, Run};
use std::fmt::Write;

/// Coflows drawn per run, at most; of more, every n-th by arrival is.
const DRAWN: usize = 600;
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 16.0;
/// Room above a panel for its name, and below it for the axis of time.
const ABOVE: f64 = 48.0;
const BELOW: f64 = 48.0;
const TIME: &str = "time (seconds)";

fn last_s(input: &ReportInput<'_>) -> f64 {
    input.runs.iter().map(|run| run.run.summary.makespan_s).fold(0.0, f64::max)
}

/// One panel per run; every coflow a bar from arrival to last byte, in order of arrival from top to bottom.
pub(super) fn timeline(input: &ReportInput<'_>, looks: &Looks) -> String {
    let most = input.runs.iter().map(|run| run.run.coflows.len()).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let every = most.div_ceil(DRAWN);
    let height = (most.div_ceil(every) as f64 * 1.6).clamp(100.0, 360.0);
    let panel = height + ABOVE + BELOW;
    let x = Scale::linear(last_s(input), LEFT, RIGHT);
    let mut drawing = Drawing::new(WIDTH, panel * input.runs.len() as f64);
    for (index, run) in input.runs.iter().enumerate() {
        let top = index as f64 * panel + ABOVE;
        drawing.text("panel", (12.0, top - 28.0), Anchor::Start, &looks.name(input, index));
        drawing.text(
            "name",
            (12.0, top - 8.0),
            Anchor::Start,
            "coflows by arrival, first on top (one row each)",
        );
        bars(&mut drawing, run.run, every, &x, (top, top + height));
        // Under every panel: of many, the last one's is off the screen.
        drawing.x_axis(&x, top, top + height, TIME);
    }
    let mut text = String::from("<div class=\"legend\">");
    for (bin, name) in (1..).zip(BINS) {
        let _ = write!(
            text,
            "<span><svg class=\"sample\" viewBox=\"0 0 30 12\"><rect class=\"bin{bin}\" width=\"30\" height=\"12\"/></svg>{name}</span>"
        );
    }
    text.push_str("</div>\n");
    let left_out = if every > 1 { format!(" One coflow in {every} is drawn.") } else { String::new() };
    section(
        "Coflows over time",
        &format!("Every bar is a coflow from its arrival to its last byte; shorter is better.{left_out}"),
        &(text + &drawing.finish("Timeline of coflows, one panel per run")),
    )
}

fn bars(drawing: &mut Drawing, run: &Run, every: usize, x: &Scale, (top, bottom): (f64, f64)) {
    let mut rows: Vec<_> = run.completed().collect();
    rows.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s).then(a.id.cmp(&b.id)));
    let rows: Vec<_> = rows.into_iter().step_by(every).collect();
    let slot = (bottom - top) / rows.len().max(1) as f64;
    for (index, row) in rows.iter().enumerate() {
        let (from, to) = (x.at(row.arrival_s), x.at(row.arrival_s + row.cct_s));
        let title = format!(
            "coflow {}: arrives at {} s, takes {} s, {} flows, {}",
            row.id,
            number(row.arrival_s),
            number(row.cct_s),
            row.width,
            weir_model::Bytes(row.bytes)
        );
        // Thin bars stay visible where rows are thinner: they may overlap the next one.
        let size = ((to - from).max(2.0), (slot * 0.85).max(1.5));
        drawing.rect(&format!("bin{}", row.bin), (from, top + slot * index as f64), size, &title);
    }
}

/// What of a link use is drawn.
type Shares = fn(&super::LinkUse) -> &Vec<f64>;

/// Mean use of all links, and the share of links that are nearly full.
pub(super) fn link_use(input: &ReportInput<'_>, looks: &Looks) -> String {
    let shown: Vec<_> = (0..input.runs.len())
        .filter_map(|index| Some((input.runs[index].run, input.runs[index].link_use.as_ref()?)))
        .collect();
    if shown.iter().all(|(_, found)| found.mean.is_empty()) {
        return String::new();
    }
    let last = shown.iter().filter_map(|(_, found)| found.edges_s.last().copied()).fold(0.0, f64::max);
    let (height, gap) = (170.0, 30.0 + BELOW);
    let x = Scale::linear(last, LEFT, RIGHT);
    let mut drawing = Drawing::new(WIDTH, 2.0 * (height + gap) + 8.0);
    let charts: [(&str, Shares); 2] = [
        ("mean use of all links (% of capacity)", |found| &found.mean),
        ("links at least 90 % used (% of links)", |found| &found.full),
    ];
    for (index, (name, values)) in charts.into_iter().enumerate() {
        let top = 30.0 + index as f64 * (height + gap);
        let most = shown.iter().flat_map(|(_, found)| values(found)).copied().fold(0.0, f64::max);
        let y = Scale::linear(nice_percent(most), top + height, top);
        drawing.x_axis(&x, top, top + height, TIME);
        drawing.y_axis(&y, LEFT, RIGHT, name);
        for (run, found) in &shown {
            let steps = found.edges_s.windows(2).zip(values(found)).flat_map(|(edges, &share)| {
                let height = y.at(100.0 * share);
                [(x.at(edges[0]), height), (x.at(edges[1]), height)]
            });
            drawing.series(looks.of(run), &steps.collect::<Vec<_>>());
        }
    }
    let is_shown = |run: &Run| shown.iter().any(|(other, _)| std::ptr::eq(*other, run));
    let body = legend(input, is_shown, Sample::Line, looks)
        + &drawing.finish("Use of links over time, one line per run");
    section(
        "Link use over time",
        "Uplinks and downlinks of all hosts, and whatever is between them, averaged over each interval.",
        &body,
    )
}

/// A round percentage that is not below a share.
fn nice_percent(share: f64) -> f64 {
    [5.0, 10.0, 20.0, 40.0, 60.0, 80.0].into_iter().find(|&percent| percent >= 100.0 * share).unwrap_or(100.0)
}
