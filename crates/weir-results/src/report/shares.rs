//! Shares complete within something: a line for each run.

use super::scale::Scale;
use super::svg::{Drawing, Look, WIDTH};

/// What a line shows.
pub(super) struct Shares {
    pub(super) look: Look,
    /// Values that became complete, in any order.
    pub(super) values: Vec<f64>,
    /// Number that is 100 %; more than there are values where some never were complete.
    pub(super) of: usize,
}

/// The drawing; `mark` is a value with a line of its own.
pub(super) fn draw(
    lines: &[Shares],
    (x_name, y_name): (&str, &str),
    mark: Option<f64>,
    words: &str,
) -> String {
    let all =
        || lines.iter().flat_map(|line| line.values.iter().copied()).chain(mark).filter(|value| *value > 0.0);
    let (left, right, top, bottom) = (56.0, WIDTH - 16.0, 34.0, 330.0);
    let x = Scale::log(all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max), left, right);
    let y = Scale::linear(100.0, bottom, top);
    let mut drawing = Drawing::new(WIDTH, bottom + 48.0);
    drawing.x_axis(&x, top, bottom, x_name);
    drawing.y_axis(&y, left, right, y_name);
    if let Some(mark) = mark {
        drawing.line("mark", (x.at(mark), top), (x.at(mark), bottom));
    }
    for line in lines {
        let mut sorted = line.values.clone();
        sorted.sort_by(f64::total_cmp);
        let count = line.of.max(1) as f64;
        let mut below = y.at(0.0);
        let mut points = vec![(x.at(x.low()), below)];
        for (index, &value) in sorted.iter().enumerate() {
            points.push((x.at(value), below));
            below = y.at(100.0 * (index + 1) as f64 / count);
            points.push((x.at(value), below));
        }
        points.push((x.at(x.high()), below));
        drawing.series(line.look, &points);
    }
    drawing.finish(words)
}
