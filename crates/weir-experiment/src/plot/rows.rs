//! Points without an order: a row for each, values to the right. Nothing joins one row with another. Where the axis is
//! linear it begins at zero, and bars do too; where it is logarithmic there is no zero for a bar to begin at.

use super::axis::{Axis, label};
use super::style::{Look, paper, paper_words};
use super::{Chart, EDGE, LETTER, LINE, Mark, Series, WIDTH, axis_name, line, text, width, wrapped};
use std::fmt::Write;

/// Height of a bar with its distance to the next.
const SLOT: f64 = 13.0;
/// Widest column of names; longer ones get several lines.
const NAMES: f64 = 210.0;

/// Draws from `bottom` on downwards, and moves it.
pub(super) fn draw(chart: &Chart, body: &mut String, bottom: &mut f64) {
    let names: Vec<Vec<String>> = chart.points.iter().map(|point| wrapped(point, NAMES, LETTER)).collect();
    let column = names.iter().map(|name| width(name)).fold(0.0, f64::max);
    axis_name(body, "points", (EDGE, "start"), bottom, &chart.x);
    let axis = Axis::over(chart.values(), chart.log);
    let (left, right) = (EDGE + column + 10.0, WIDTH - EDGE - 16.0);
    let x = |value: f64| left + axis.share(value) * (right - left);
    let top = *bottom + 4.0;
    let heights: Vec<f64> = (0..chart.points.len())
        .map(|at| {
            let bars = chart.series.iter().filter(|series| series.marks[at].value.is_some()).count();
            (bars.max(1) as f64 * SLOT).max(names[at].len() as f64 * LINE) + 10.0
        })
        .collect();
    let floor = top + heights.iter().sum::<f64>();
    for &tick in &axis.ticks {
        line(body, "grid", (x(tick), top), (x(tick), floor));
        text(body, "", (x(tick), floor + 18.0), "middle", &label(tick));
    }
    if chart.factor {
        line(body, "one", (x(1.0), top), (x(1.0), floor));
    }
    line(body, "axis", (left, top), (left, floor));
    line(body, "axis", (left, floor), (right, floor));
    let mut above = top;
    for (at, (name, height)) in names.iter().zip(&heights).enumerate() {
        let middle = above + height / 2.0;
        let first = middle - (name.len() as f64 - 1.0) * LINE / 2.0 + 4.5;
        for (number, part) in name.iter().enumerate() {
            text(body, "", (left - 8.0, first + number as f64 * LINE), "end", part);
        }
        if at > 0 {
            line(body, "grid", (EDGE, above), (right, above));
        }
        let shown: Vec<(usize, &Series)> =
            chart.series.iter().enumerate().filter(|(_, series)| series.marks[at].value.is_some()).collect();
        let mut y = middle - (shown.len() as f64 - 1.0) * SLOT / 2.0;
        for (number, series) in shown {
            let name = if chart.series.len() > 1 { &series.name } else { &chart.points[at] };
            draw_mark(number, name, &series.marks[at], (&axis, &x), y, body);
            y += SLOT;
        }
        above += height;
    }
    *bottom = floor + 28.0;
    axis_name(body, "values", (WIDTH / 2.0, "middle"), bottom, &chart.value);
    *bottom += 8.0;
}

fn draw_mark(
    number: usize,
    name: &str,
    mark: &Mark,
    (axis, x): (&Axis, &dyn Fn(f64) -> f64),
    y: f64,
    body: &mut String,
) {
    let Some(value) = mark.value else { return };
    let look = Look::of(number);
    look.open("mark", &format!("{name}: {}", label(value)), body);
    if !axis.is_log() {
        let from = x(0.0);
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            "<rect class=\"bar\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"7\" fill-opacity=\"0.55\"/>",
            y - 3.5,
            x(value) - from
        );
    }
    if let Some(half) = mark.half {
        let (low, high) = (x((value - half).max(0.0)), x(value + half));
        look.whisker((low, y), (high, y), (0.0, 4.0), body);
    }
    look.marker((x(value), y), body);
    body.push_str("</g>\n");
    if let Some((value, read, words)) = paper_words(name, mark) {
        paper((x(value), y), read, look.colour, &words, body);
    }
}
