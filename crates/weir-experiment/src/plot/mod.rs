//! Results as a drawing. Points that are numbers stand on an axis of numbers, and a line joins each policy's; points
//! without an order are rows, with bars from zero or, on a logarithmic axis, dots. What the paper reports stands beside
//! ours as a hollow diamond, and the 95 % confidence interval of a mean over seeds as a whisker.

mod axis;
mod curves;
mod legend;
mod lines;
mod rows;
mod style;

use crate::measure::half_width;
use crate::measures::{INTERVAL, RATIO};
use crate::names::words;
use crate::results::PolicyResult;
use crate::{Experiment, Results};
use axis::Axis;
use curves::{curve_axis, curves};
use std::fmt::Write;

/// Text that is safe inside HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Width of a drawing in user units. A page of 420 pixels shows its text of 13 units at 9 pixels.
const WIDTH: f64 = 600.0;
/// Width of a letter of 13 units, at most and on average: no label may be wider than what is kept free for it.
const LETTER: f64 = 7.6;
/// Width of a bold letter.
const BOLD: f64 = 8.6;
/// From one line of text to the next.
const LINE: f64 = 16.0;
/// Distance of everything from the edges.
const EDGE: f64 = 12.0;

/// A policy's mean at one point.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// None where the policy was not run at the point.
    value: Option<f64>,
    /// Half of its confidence interval, where it is known.
    half: Option<f64>,
    /// The paper's number, and whether it is only a reading of a figure.
    paper: Option<(f64, bool)>,
}

/// A policy (or a curve) over all points.
#[derive(Clone, Debug)]
struct Series {
    name: String,
    marks: Vec<Mark>,
}

struct Chart {
    title: String,
    /// The measure with its unit.
    value: String,
    /// Whether the measure's axis is to be logarithmic.
    log: bool,
    /// Whether it compares with the baseline, which is 1 then.
    factor: bool,
    /// What points are, with a unit where there is one.
    x: String,
    points: Vec<String>,
    /// Where points stand on an axis of numbers; none of points without an order.
    places: Option<Axis>,
    /// Whether that axis shows the names of points instead of numbers.
    named: bool,
    series: Vec<Series>,
    /// What the means are over.
    note: String,
}

impl Chart {
    /// Every number that is drawn: means, ends of their intervals, and the paper's.
    fn values(&self) -> impl Iterator<Item = f64> {
        let of = |mark: &Mark| {
            let half = mark.half.unwrap_or(0.0);
            let ends = mark.value.map(|value| [(value - half).max(0.0), value + half]);
            let paper = mark.paper.map(|(value, _)| value);
            ends.into_iter().flatten().chain(paper).collect::<Vec<f64>>()
        };
        self.series.iter().flat_map(|series| &series.marks).flat_map(of)
    }

    fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.series.iter().flat_map(|series| &series.marks)
    }
}

/// The drawing as SVG.
pub fn plot(experiment: &Experiment, results: &Results) -> String {
    let chart = match (experiment.is_of_workload(), results.points.as_slice()) {
        (true, _) => of_workload(experiment, results),
        (false, [_]) => of_policies(experiment, results),
        (false, _) => of_points(experiment, results),
    };
    let mut body = String::new();
    let mut bottom = EDGE;
    text_lines(&mut body, "title", EDGE, &mut bottom, &wrapped(&chart.title, WIDTH - 2.0 * EDGE, BOLD));
    bottom += 6.0;
    match &chart.places {
        Some(places) => lines::draw(&chart, places, &mut body, &mut bottom),
        None => rows::draw(&chart, &mut body, &mut bottom),
    }
    legend::draw(&chart, &mut body, &mut bottom);
    let height = bottom + EDGE;
    let label = escape(&chart.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"{label}\">\n<style>{}</style>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n",
        style::STYLE
    )
}

/// Of one point: a row for each policy.
fn of_policies(experiment: &Experiment, results: &Results) -> Chart {
    let point = &results.points[0];
    let measured = point.policies.iter().filter(|run| run.measures.contains_key(&experiment.plot.measure));
    let policies: Vec<&str> = measured.map(|run| run.policy.as_str()).collect();
    let marks = policies.iter().map(|policy| mark(experiment, results, 0, policy)).collect();
    let series = Series { name: point.name.clone(), marks };
    let x = if experiment.is_of_packets() { "transport" } else { "policy" };
    let points = policies.into_iter().map(str::to_owned).collect();
    chart(experiment, results, x.to_owned(), points, vec![series])
}

/// Of several points: a series for each policy.
fn of_points(experiment: &Experiment, results: &Results) -> Chart {
    let mut policies: Vec<&str> = Vec::new();
    for run in results.points.iter().flat_map(|point| &point.policies) {
        if run.measures.contains_key(&experiment.plot.measure) && !policies.contains(&run.policy.as_str()) {
            policies.push(&run.policy);
        }
    }
    let count = results.points.len();
    let of = |policy: &&str| Series {
        name: (*policy).to_owned(),
        marks: (0..count).map(|point| mark(experiment, results, point, policy)).collect(),
    };
    let series = policies.iter().map(of).collect();
    let points: Vec<String> = results.points.iter().map(|point| point.name.clone()).collect();
    let x = experiment.plot.x.as_ref();
    let name = x.map_or("setting", |x| x.name.as_str()).to_owned();
    let mut chart = chart(experiment, results, name, points, series);
    chart.places = x.filter(|x| x.values.len() == count).map(|x| Axis::of_points(&x.values, x.log));
    chart
}

/// Of a workload: its curves over their bounds.
fn of_workload(experiment: &Experiment, results: &Results) -> Chart {
    let measure = &experiment.plot.measure;
    let drawn = curves(results, measure);
    let mut names: Vec<&str> = Vec::new();
    for curve in drawn.points.iter().flat_map(|point| &point.policies) {
        if !names.contains(&curve.policy.as_str()) {
            names.push(&curve.policy);
        }
    }
    let points: Vec<String> = drawn.points.iter().map(|point| point.name.clone()).collect();
    let mark = |bound: usize, curve: &str| {
        let own = drawn.points[bound].policies.iter().find(|own| own.policy == curve);
        let name = format!("{curve} up to {}", points[bound]);
        let paper = experiment.paper.iter().find(|paper| paper.measure == name);
        Mark {
            value: own.and_then(|own| own.measures.get(measure)).copied(),
            half: None,
            paper: paper.map(|paper| (paper.value, paper.read)),
        }
    };
    let of = |curve: &&str| Series {
        name: (*curve).to_owned(),
        marks: (0..points.len()).map(|bound| mark(bound, curve)).collect(),
    };
    let series = names.iter().map(of).collect();
    // Bounds are read at equal distances: powers of ten, most of them.
    let places: Vec<f64> = (0..points.len()).map(|bound| bound as f64).collect();
    let mut chart = chart(experiment, results, curve_axis(measure), points, series);
    chart.value = "no more than that (% of all)".to_owned();
    chart.factor = false;
    chart.places = Some(Axis::of_points(&places, false));
    chart.named = true;
    chart
}

fn chart(
    experiment: &Experiment,
    results: &Results,
    x: String,
    points: Vec<String>,
    series: Vec<Series>,
) -> Chart {
    let measure = &experiment.plot.measure;
    let (mut value, unit) = words(measure);
    let factor = unit == RATIO && value.contains("the baseline's");
    if let Some(baseline) = &results.baseline {
        value = value.replace("the baseline's", &format!("that of {baseline}"));
    }
    let value = format!("{value} ({unit})");
    let seeds = results.seeds.len();
    let whiskers = series.iter().flat_map(|series| &series.marks).any(|mark| mark.half.is_some());
    let note = match (seeds, whiskers) {
        (0 | 1, _) => String::new(),
        (_, true) => {
            format!("Means over {seeds} seeds; a whisker is the 95 % confidence interval of the mean.")
        }
        // A spread over seeds is one number of all of them, and no mean.
        (_, false) if measure.starts_with("spread") => format!("Over {seeds} seeds."),
        (_, false) => format!("Means over {seeds} seeds; their intervals were not stored."),
    };
    let title = experiment.title.clone();
    let log = experiment.plot.log;
    Chart { title, value, log, factor, x, points, places: None, named: false, series, note }
}

/// Half of the confidence interval of a measure's mean: as it is stored, or of what is stored seed by seed.
fn half(own: &PolicyResult, measure: &str) -> Option<f64> {
    let stored = own.measures.get(&format!("{measure}{INTERVAL}")).copied();
    stored.or_else(|| half_width(own.by_seed.get(measure)?))
}

fn mark(experiment: &Experiment, results: &Results, point: usize, policy: &str) -> Mark {
    let measure = &experiment.plot.measure;
    let point = &results.points[point];
    let Some(own) = point.policies.iter().find(|own| own.policy == policy) else { return Mark::default() };
    // The paper's numbers are of the first point unless they say of which.
    let first = &experiment.point[0].name;
    let same = |paper: &&crate::Paper| {
        let of_point = paper.point.as_ref().unwrap_or(first) == &point.name;
        of_point && paper.policy == policy && paper.measure == *measure
    };
    Mark {
        value: own.measures.get(measure).copied(),
        half: half(own, measure).filter(|half| *half > 0.0),
        paper: experiment.paper.iter().find(same).map(|paper| (paper.value, paper.read)),
    }
}

/// A text in lines of at most so many user units, parted at spaces, or behind the signs between settings of a policy.
fn wrapped(text: &str, width: f64, letter: f64) -> Vec<String> {
    let most = ((width / letter) as usize).max(8);
    let mut lines = vec![String::new()];
    for word in text.split_inclusive([' ', ':', ',']) {
        // The last line: there is always one.
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() || line.chars().count() + word.trim_end().chars().count() <= most {
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Width of the longest line, as it is kept free for.
fn width(lines: &[String]) -> f64 {
    lines.iter().map(|line| line.chars().count() as f64 * LETTER).fold(0.0, f64::max)
}

/// What an axis is, below each other from `bottom` on, which moves behind it.
fn axis_name(body: &mut String, axis: &str, (x, anchor): (f64, &str), bottom: &mut f64, name: &str) {
    let _ = writeln!(body, "<g class=\"axis-name\" data-axis=\"{axis}\">");
    for line in wrapped(name, WIDTH - 2.0 * EDGE, BOLD) {
        *bottom += LINE;
        text(body, "name", (x, *bottom - 4.0), anchor, &line);
    }
    body.push_str("</g>\n");
}

/// Lines of text below each other from `bottom` on, which moves behind them.
fn text_lines(body: &mut String, class: &str, x: f64, bottom: &mut f64, lines: &[String]) {
    for line in lines {
        *bottom += LINE;
        text(body, class, (x, *bottom - 4.0), "start", line);
    }
}

// Writing to a String cannot fail, here and above.
fn text(body: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let words = escape(words);
    let _ = writeln!(body, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn line(body: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        body,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}
