//! Results as a drawing: a line per policy over the points, or a bar per policy where there is one point.

use crate::{Experiment, Results};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 60.0;
/// Colours that people with any kind of colour vision tell apart (Okabe and Ito), and grey.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f"];

struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn over(values: &[f64], log: bool) -> Axis {
        let highest = values.iter().copied().fold(0.0, f64::max);
        let lowest = values.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        if log && lowest.is_finite() {
            let (low, high) = (10f64.powf(lowest.log10().floor()), 10f64.powf(highest.log10().ceil()));
            return Axis { low, high: if high > low { high } else { low * 10.0 }, log };
        }
        let step = 10f64.powf(highest.max(1e-9).log10().floor());
        Axis { low: 0.0, high: (highest / step).ceil().max(1.0) * step, log: false }
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            value / self.high
        };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|decade| self.low * 10f64.powi(decade)).collect();
        }
        (0..=4).map(|quarter| self.high * f64::from(quarter) / 4.0).collect()
    }
}

/// Text that is safe inside HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The drawing as SVG.
pub fn plot(experiment: &Experiment, results: &Results) -> String {
    let measure = &experiment.plot.measure;
    let (curves, words);
    let results = if experiment.is_of_workload() {
        curves = crate::characteristics::curves(results, measure);
        words = "no more than that, % of all".to_owned();
        &curves
    } else {
        words = crate::measure::describe(measure);
        results
    };
    let mut policies: Vec<&str> = Vec::new();
    for policy in results.points.iter().flat_map(|point| &point.policies) {
        if policy.measures.contains_key(measure) && !policies.contains(&policy.policy.as_str()) {
            policies.push(&policy.policy);
        }
    }
    let value = |point: usize, policy: &str| {
        let found = results.points[point].policies.iter().find(|result| result.policy == policy)?;
        found.measures.get(measure).copied()
    };
    let count = results.points.len();
    let all: Vec<f64> =
        (0..count).flat_map(|point| policies.iter().filter_map(move |policy| value(point, policy))).collect();
    let axis = Axis::over(&all, experiment.plot.log);
    let mut body = String::new();
    draw_axis(&axis, &words, &mut body);
    // Writing to a String cannot fail.
    let _ =
        writeln!(body, "<text x=\"{LEFT}\" y=\"18\" class=\"title\">{}</text>", escape(&experiment.title));
    let inner = WIDTH - LEFT - RIGHT;
    if count == 1 {
        let step = inner / policies.len().max(1) as f64;
        for (at, policy) in policies.iter().enumerate() {
            let y = axis.y(value(0, policy).unwrap_or(0.0));
            let (x, colour) = (LEFT + step * (at as f64 + 0.15), COLOURS[at % COLOURS.len()]);
            let (width, height) = (step * 0.7, (HEIGHT - BOTTOM - y).max(0.0));
            let _ = writeln!(
                body,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
            );
        }
    } else {
        let x = |point: usize| LEFT + inner * (point as f64 + 0.5) / count as f64;
        for (at, policy) in policies.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let dash = if at < COLOURS.len() { "" } else { " stroke-dasharray=\"5 3\"" };
            let points = (0..count)
                .filter_map(|point| Some(format!("{:.1},{:.1}", x(point), axis.y(value(point, policy)?))));
            let points: Vec<String> = points.collect();
            let _ = writeln!(
                body,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
                points.join(" ")
            );
            for point in &points {
                let (x, y) = point.split_once(',').unwrap_or_default();
                let _ = writeln!(body, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
            }
        }
        for (point, result) in results.points.iter().enumerate() {
            let _ = writeln!(
                body,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x(point),
                HEIGHT - BOTTOM + 18.0,
                escape(&result.name)
            );
        }
    }
    for (at, policy) in policies.iter().enumerate() {
        let y = TOP + 18.0 * at as f64;
        let (x, colour) = (WIDTH - RIGHT + 16.0, COLOURS[at % COLOURS.len()]);
        let _ = writeln!(
            body,
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"{:.1}\">{}</text>",
            y,
            x + 18.0,
            y + 10.0,
            escape(policy)
        );
    }
    let style = "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.grid{stroke:#ddd}";
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n<style>{style}</style>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n{body}</svg>\n",
        escape(&experiment.title)
    )
}

fn draw_axis(axis: &Axis, words: &str, body: &mut String) {
    for tick in axis.ticks() {
        let y = axis.y(tick);
        let label = if tick >= 100.0 || tick == 0.0 { format!("{tick:.0}") } else { format!("{tick:.3}") };
        let label = if label.contains('.') {
            label.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            label
        };
        let end = WIDTH - RIGHT;
        let _ = writeln!(
            body,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\" class=\"grid\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    let _ = writeln!(body, "<text x=\"{LEFT}\" y=\"{}\">{}</text>", HEIGHT - 14.0, escape(words));
}
