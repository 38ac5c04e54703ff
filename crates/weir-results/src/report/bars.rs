//! A panel of horizontal bars: a row for each policy, its name above its bar.

use super::scale::{Scale, round_step};
use super::svg::{Anchor, Drawing, Look, PANEL};
use crate::mean;
use crate::number;
use weir_experiment::half_width;

/// Height of a row: its name, and its bar below.
const ROW: f64 = 36.0;
/// Room behind the longest bar for its value and what stands beside that.
const BEHIND: f64 = 112.0;
/// Width of a letter of 12 pixels.
const LETTER: f64 = 7.0;

pub(super) struct Bar {
    pub(super) name: String,
    pub(super) look: Look,
    /// One of each run: the bar is their mean, and a whisker its 95 % confidence interval. Nothing is drawn of none.
    pub(super) values: Vec<f64>,
    /// Stands behind the value.
    pub(super) note: String,
}

/// A panel with its title, what rows are, and what bars are with their unit.
pub(super) fn panel(title: &str, rows: &str, values: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
    let width = PANEL.max(longest as f64 * LETTER + 24.0);
    let (left, right, top) = (10.0, width - BEHIND, 44.0);
    let bottom = top + ROW * bars.len() as f64 + 6.0;
    let mut drawing = Drawing::new(width, bottom + 46.0);
    drawing.text("panel", (left, 16.0), Anchor::Start, title);
    drawing.text("name", (left, 36.0), Anchor::Start, rows);
    let ends = bars.iter().filter(|bar| !bar.values.is_empty());
    let most = ends.map(|bar| mean(&bar.values) + half_width(&bar.values).unwrap_or(0.0)).fold(0.0, f64::max);
    // Nothing took any time: an axis of some length all the same.
    let step = round_step(if most > 0.0 { most / 3.0 } else { 1.0 });
    // The axis ends at the first whole step that holds the longest bar. The small number keeps
    // rounding from adding a step where the bar ends at one.
    let x = Scale::linear(step * (most / step - 1e-9).ceil().max(1.0), left, right);
    drawing.x_axis(&x, top, bottom, values);
    drawing.line("axis", (left, top), (left, bottom));
    for (at, bar) in bars.iter().enumerate() {
        let y = top + ROW * at as f64;
        drawing.text("", (left + 6.0, y + 14.0), Anchor::Start, &bar.name);
        if bar.values.is_empty() {
            drawing.text("tick", (left + 6.0, y + 30.0), Anchor::Start, "none");
            continue;
        }
        let value = mean(&bar.values);
        // Simulations that were repeated give the same to the digit.
        let half = half_width(&bar.values).filter(|half| *half > 0.0);
        let title = format!("{}: {}", bar.name, number(value));
        let class = format!("bar {}", bar.look.class());
        drawing.rect(&class, (left, y + 20.0), (x.at(value) - left, 10.0), &title);
        let mut end = x.at(value);
        let mut words = number(value);
        if let Some(half) = half {
            let (low, high) = ((value - half).max(0.0), value + half);
            let title = format!("95 % confidence interval over {} runs", bar.values.len());
            drawing.whisker((x.at(low), x.at(high)), y + 25.0, &title);
            end = end.max(x.at(high));
            words = format!("{words} ± {}", number(half));
        }
        if !bar.note.is_empty() {
            words = format!("{words}, {}", bar.note);
        }
        drawing.text("value", (end + 6.0, y + 29.0), Anchor::Start, &words);
    }
    drawing.finish(&format!("{title}: {values}, one bar for each {rows}"))
}
