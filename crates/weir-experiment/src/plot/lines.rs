//! Points that are numbers: values upwards, a line for each series.

use super::axis::{Axis, label};
use super::style::{Look, paper, paper_words};
use super::{Chart, EDGE, WIDTH, axis_name, line, text};

/// Height of the area of lines.
const HEIGHT: f64 = 300.0;
/// Room for the numbers of the upright axis.
const NUMBERS: f64 = 56.0;

/// Draws from `bottom` on downwards, and moves it.
pub(super) fn draw(chart: &Chart, places: &Axis, body: &mut String, bottom: &mut f64) {
    axis_name(body, "values", (EDGE, "start"), bottom, &chart.value);
    let axis = Axis::over(chart.values(), chart.log);
    let (left, right) = (EDGE + NUMBERS, WIDTH - EDGE - 8.0);
    let top = *bottom + 12.0;
    let floor = top + HEIGHT;
    let y = |value: f64| floor - axis.share(value) * HEIGHT;
    let x = |value: f64| left + places.share(value) * (right - left);
    for &tick in &axis.ticks {
        line(body, "grid", (left, y(tick)), (right, y(tick)));
        text(body, "", (left - 6.0, y(tick) + 4.0), "end", &label(tick));
    }
    if chart.factor {
        line(body, "one", (left, y(1.0)), (right, y(1.0)));
    }
    line(body, "axis", (left, floor), (right, floor));
    line(body, "axis", (left, floor), (left, top));
    for (&place, name) in places.ticks.iter().zip(&chart.points) {
        line(body, "axis", (x(place), floor), (x(place), floor + 4.0));
        let name = if chart.named { name.clone() } else { label(place) };
        text(body, "", (x(place), floor + 18.0), "middle", &name);
    }
    for (number, series) in chart.series.iter().enumerate() {
        let look = Look::of(number);
        look.open("series", &series.name, body);
        let known = places.ticks.iter().zip(&series.marks);
        let known: Vec<_> = known.filter_map(|(&place, mark)| Some((place, mark, mark.value?))).collect();
        let line: Vec<(f64, f64)> = known.iter().map(|(place, _, value)| (x(*place), y(*value))).collect();
        if line.len() > 1 {
            look.polyline(&line, body);
        }
        for (place, mark, value) in known {
            if let Some(half) = mark.half {
                let (low, high) = (y((value - half).max(0.0)), y(value + half));
                look.whisker((x(place), low), (x(place), high), (4.0, 0.0), body);
            }
            look.marker((x(place), y(value)), body);
        }
        body.push_str("</g>\n");
    }
    for (number, series) in chart.series.iter().enumerate() {
        for (&place, mark) in places.ticks.iter().zip(&series.marks) {
            if let Some((value, read, words)) = paper_words(&series.name, mark) {
                paper((x(place), y(value)), read, Look::of(number).colour, &words, body);
            }
        }
    }
    *bottom = floor + 28.0;
    axis_name(body, "points", (WIDTH / 2.0, "middle"), bottom, &chart.x);
    *bottom += 8.0;
}
