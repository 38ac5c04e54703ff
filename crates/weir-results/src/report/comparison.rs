//! Live beside simulated, coflow by coflow.

use super::scale::Scale;
use super::svg::{Anchor, Drawing, PANEL, escape};
use super::{Looks, ReportInput, section, twin};
use crate::{CoflowRow, Mode, Run, percentile};
use crate::{fixed, number};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Coflows that take less in simulation are drawn, but not counted in the ratios: a constant few
/// milliseconds decide them.
const COUNTED_FROM_S: f64 = 0.1;

struct Pair<'a> {
    live: &'a Run,
    simulated: &'a Run,
    /// Names of the live and the simulated run.
    names: [String; 2],
    /// Simulated and live completion time, and id, of coflows in both.
    points: Vec<(f64, f64, u64)>,
}

fn pairs<'a>(input: &ReportInput<'a>, looks: &Looks) -> Vec<Pair<'a>> {
    let of = |mode| (0..input.runs.len()).filter(move |&index| input.runs[index].run.mode == mode);
    let mut pairs = Vec::new();
    for live_at in of(Mode::Live) {
        let live = input.runs[live_at].run;
        let simulated_at =
            of(Mode::Simulated).find(|&index| twin(&input.runs[index].run.policy) == twin(&live.policy));
        let Some(simulated_at) = simulated_at else { continue };
        let simulated = input.runs[simulated_at].run;
        let expected: BTreeMap<u64, f64> = simulated.completed().map(|row| (row.id, row.cct_s)).collect();
        let both = |row: &CoflowRow| Some((*expected.get(&row.id)?, row.cct_s, row.id));
        // The axes are logarithmic: a time of 0 has no place on them.
        let points = live.coflows.iter().filter_map(both).filter(|point| point.0 > 0.0 && point.1 > 0.0);
        let names = [looks.name(input, live_at), looks.name(input, simulated_at)];
        pairs.push(Pair { live, simulated, names, points: points.collect() });
    }
    pairs
}

pub(super) fn live_against_simulated(input: &ReportInput<'_>, looks: &Looks) -> String {
    let pairs: Vec<Pair<'_>> =
        pairs(input, looks).into_iter().filter(|pair| !pair.points.is_empty()).collect();
    if pairs.is_empty() {
        return String::new();
    }
    let all = || pairs.iter().flat_map(|pair| pair.points.iter().flat_map(|point| [point.0, point.1]));
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let mut body = String::from("<div class=\"panels\">\n");
    for pair in &pairs {
        body.push_str(&scatter(pair, (low, high), looks));
    }
    let body = body + "</div>\n" + &ratios(&pairs);
    section(
        "Live beside simulated",
        "Every dot is a coflow. On the diagonal the real network took as long as the simulation said; above it, longer.",
        &body,
    )
}

fn scatter(pair: &Pair<'_>, (low, high): (f64, f64), looks: &Looks) -> String {
    let longest = pair.names.iter().map(|name| name.chars().count() + 8).max().unwrap_or(0);
    let width = PANEL.max(longest as f64 * 7.6);
    let (left, top, side) = (56.0, 72.0, 286.0);
    let x = Scale::log(low, high, left, left + side);
    let y = Scale::log(low, high, top + side, top);
    let mut drawing = Drawing::new(width, top + side + 48.0);
    drawing.text("panel", (12.0, 18.0), Anchor::Start, &pair.names[0]);
    drawing.text("panel", (12.0, 36.0), Anchor::Start, &format!("against {}", pair.names[1]));
    drawing.x_axis(&x, top, top + side, "simulated CCT (seconds, logarithmic)");
    drawing.y_axis(&y, left, left + side, "live CCT (seconds, logarithmic)");
    drawing.line("mark", (left, top + side), (left + side, top));
    for &(simulated, live, id) in &pair.points {
        let title = format!("coflow {id}: simulated {} s, live {} s", number(simulated), number(live));
        let class = format!("dot {}", looks.of(pair.live).class());
        drawing.circle(&class, (x.at(simulated), y.at(live)), 3.2, &title);
    }
    drawing.finish(&format!("Live against simulated completion time of every coflow, {}", pair.names[0]))
}

fn ratios(pairs: &[Pair<'_>]) -> String {
    let mut table = String::from(
        "<div class=\"scroll\"><table>\n<tr><th>live / simulated</th><th>of the averages</th>\
         <th>median coflow</th><th>95th percentile</th><th>coflows counted</th></tr>\n",
    );
    for pair in pairs {
        let counted = pair.points.iter().filter(|point| point.0 >= COUNTED_FROM_S);
        let mut shares: Vec<f64> = counted.map(|point| point.1 / point.0).collect();
        shares.sort_by(f64::total_cmp);
        let of_averages = pair.live.summary.avg_cct_s / pair.simulated.summary.avg_cct_s.max(1e-12);
        let _ = writeln!(
            table,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} of {}</td></tr>",
            escape(&pair.names[0]),
            fixed(of_averages, 3, ""),
            fixed(percentile(&shares, 0.5), 3, ""),
            fixed(percentile(&shares, 0.95), 3, ""),
            shares.len(),
            pair.points.len()
        );
    }
    let _ = writeln!(
        table,
        "</table></div>\n<p>Ratios per coflow count coflows of at least {COUNTED_FROM_S} s in simulation.</p>"
    );
    table
}
