//! What became of deadlines: how many were met, and how much of their time coflows or flows used.

use super::scale::Scale;
use super::section;
use super::shares::{self, Shares};
use super::svg::{Anchor, Drawing, Look, WIDTH};
use std::fmt::Write;

/// Height of a row: its name, its counts, and its bar below.
const ROW: f64 = 68.0;

/// Deadlines of one run.
pub(super) struct Deadlines {
    pub(super) name: String,
    pub(super) look: Look,
    /// Number that came to each of the ends that [`section_of`] is told.
    pub(super) ends: [usize; 3],
    /// Completion time over deadline, of what was complete.
    pub(super) used: Vec<f64>,
}

/// The section of deadlines. `what` has them, and `ends` are the ways that they end, the good one first; `legend` is that
/// of the runs.
pub(super) fn section_of(what: &str, ends: [&str; 3], legend: &str, runs: &[Deadlines]) -> String {
    if runs.iter().all(|run| run.ends.iter().sum::<usize>() == 0) {
        return String::new();
    }
    let mut body = String::from("<div class=\"legend\">");
    for (at, name) in ends.iter().enumerate() {
        let _ = write!(
            body,
            "<span><svg class=\"sample\" viewBox=\"0 0 30 12\"><rect class=\"end{at}\" x=\"1\" y=\"1\" width=\"28\" height=\"10\"/></svg>{name}</span>"
        );
    }
    body.push_str("</div>\n");
    body.push_str(&bars(what, ends, runs));
    if runs.iter().any(|run| !run.used.is_empty()) {
        body.push_str(legend);
        let lines = runs.iter().map(|run| {
            // Of all that had deadlines: what was never complete keeps the line below 100 %.
            let of = run.ends.iter().sum();
            Shares { look: run.look, values: run.used.clone(), of }
        });
        let names = ("completion time over deadline (ratio, logarithmic)", format!("{what} complete (%)"));
        let words = format!("Share of {what} complete within a part of their deadline, one line per run");
        body.push_str(&shares::draw(&lines.collect::<Vec<_>>(), (names.0, &names.1), Some(1.0), &words));
    }
    let words = format!(
        "Of all {what}. Below: how many were complete within a part of the time that their deadline left them; right of the \
         dotted line they were late."
    );
    section("Deadlines", &words, &body)
}

fn bars(what: &str, ends: [&str; 3], runs: &[Deadlines]) -> String {
    let (left, right, top) = (16.0, WIDTH - 16.0, 30.0);
    let bottom = top + ROW * runs.len() as f64 + 6.0;
    let mut drawing = Drawing::new(WIDTH, bottom + 48.0);
    let x = Scale::linear(100.0, left, right);
    drawing.text("name", (left, 18.0), Anchor::Start, "run");
    drawing.x_axis(&x, top, bottom, &format!("{what} (%)"));
    for (at, run) in runs.iter().enumerate() {
        let y = top + ROW * at as f64;
        let all = run.ends.iter().sum::<usize>().max(1) as f64;
        let counts: Vec<String> =
            ends.iter().zip(run.ends).map(|(end, count)| format!("{count} {end}")).collect();
        drawing.text("", (left + 4.0, y + 18.0), Anchor::Start, &run.name);
        drawing.text("tick", (left + 4.0, y + 38.0), Anchor::Start, &counts.join(", "));
        let mut before = 0;
        for (end, count) in run.ends.into_iter().enumerate() {
            let (from, to) = (x.at(100.0 * before as f64 / all), x.at(100.0 * (before + count) as f64 / all));
            let title = format!("{}: {}", run.name, counts.join(", "));
            if count > 0 {
                drawing.rect(&format!("end{end}"), (from, y + 46.0), (to - from, 14.0), &title);
            }
            before += count;
        }
    }
    drawing.finish(&format!("What became of the deadlines of {what}, one bar per run"))
}
