//! What every page has to have.

use super::*;
use crate::CoflowRow;
use std::collections::BTreeSet;

fn row(id: u64, factor: f64) -> CoflowRow {
    CoflowRow {
        id,
        arrival_s: id as f64,
        cct_s: factor * (1.0 + id as f64),
        isolation_s: 1.0,
        width: 3,
        bytes: 1000,
        bin: 1 + (id % 4) as u8,
        admitted: true,
        deadline_s: None,
        met: None,
    }
}

fn run(policy: &str, mode: Mode, factor: f64) -> Run {
    Run::new(policy, mode, (0..40).map(|id| row(id, factor)).collect(), 0.1)
}

/// Every coflow has 20 s: of 40 that take `factor` times 1 to 40 s, and of which the last two are refused.
fn run_with_deadlines(policy: &str, factor: f64) -> Run {
    let row = |id: u64| {
        let (row, admitted) = (row(id, factor), id < 38);
        let met = Some(admitted && row.cct_s <= 20.0);
        CoflowRow { deadline_s: Some(20.0), admitted, met, ..row }
    };
    Run::new(policy, Mode::Simulated, (0..40).map(row).collect(), 0.1)
}

fn page(runs: &[Run]) -> String {
    let link_use = || LinkUse { edges_s: vec![0.0, 1.0, 2.0], mean: vec![0.5, 0.2], full: vec![0.1, 0.0] };
    let runs = runs.iter().map(|run| ReportRun { run, link_use: Some(link_use()) }).collect();
    let made_by = &Provenance::of_this_run(Some(7));
    render(&ReportInput { title: "a < b".to_owned(), setting: "x".to_owned(), made_by, runs })
}

/// The charts of a page, without the samples of legends.
fn charts(page: &str) -> Vec<&str> {
    let charts = ["wide", "panel"].map(|class| format!("<svg class=\"{class}\""));
    let of = |begin: &String| page.split(begin.as_str()).skip(1).collect::<Vec<_>>();
    charts.iter().flat_map(of).filter_map(|rest| rest.split("</svg>").next()).collect()
}

#[test]
fn the_page_needs_nothing_else() {
    let page = page(&[run("fair", Mode::Simulated, 2.0), run("varys", Mode::Simulated, 1.0)]);
    for outside in ["http://", "https://", "src=", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("a &lt; b") && !page.contains("NaN") && !page.contains("inf"));
    assert!(!page.contains("Live beside simulated"));
}

#[test]
fn live_runs_stand_beside_their_simulated_twins() {
    let runs = [
        run("tcp", Mode::Live, 2.2),
        run("fair", Mode::Simulated, 2.0),
        run("varys", Mode::Live, 1.1),
        run("varys", Mode::Simulated, 1.0),
    ];
    let page = page(&runs);
    assert!(page.contains("Live beside simulated"));
    assert!(page.contains("varys (live)") && page.contains("fair (simulated)"));
}

#[test]
fn where_no_coflow_is_long_enough_to_be_counted_ratios_are_a_dash() {
    let short = |mode, factor| {
        let rows = (0..5).map(|id| CoflowRow { cct_s: factor * 1e-5, ..row(id, 1.0) }).collect();
        Run::new("varys", mode, rows, 0.1)
    };
    let page = page(&[short(Mode::Live, 2.0), short(Mode::Simulated, 1.0)]);
    assert!(page.contains("<td>2.000</td><td>-</td><td>-</td><td>0 of 5</td>") && !page.contains("NaN"));
    // And small times keep their digits.
    assert!(page.contains("<td>2.000e-5 s</td>"));
}

#[test]
fn every_panel_over_time_has_its_times_and_a_narrow_page_says_that_tables_scroll() {
    let page = page(&[run("fair", Mode::Simulated, 2.0), run("varys", Mode::Simulated, 1.0)]);
    let drawn = charts(&page);
    // Two panels of coflows, and two of links.
    let times = drawn.iter().map(|chart| chart.matches(">time (seconds)<").count());
    assert_eq!(times.filter(|count| *count > 0).collect::<Vec<_>>(), [2, 2]);
    let narrow = page.split("@media (max-width: 600px)").nth(1).expect("rules for narrow pages");
    assert!(narrow.contains(".scroll::before { display: block; }") && page.contains("scroll it sideways"));
}

#[test]
fn empty_runs_make_a_page_too() {
    let page = page(&[Run::new("fair", Mode::Simulated, Vec::new(), 0.0)]);
    assert!(page.contains("</html>") && !page.contains("NaN"));
}

#[test]
fn both_axes_of_every_chart_have_a_name_and_one_a_unit() {
    let mut runs = vec![run_with_deadlines("fair", 2.0), run_with_deadlines("varys", 1.0)];
    runs.push(run("varys", Mode::Live, 1.2));
    let page = page(&runs);
    let charts = charts(&page);
    // Distribution, five panels of bins, deadlines twice, live beside simulated, coflows over time, and link use.
    assert_eq!(charts.len(), 11);
    for chart in charts {
        let names = chart.split("<text class=\"name\"").skip(1);
        let names: Vec<&str> = names.filter_map(|rest| rest.split('>').nth(1)?.split('<').next()).collect();
        let units = names.iter().filter(|name| name.ends_with(')')).count();
        assert!(names.len() >= 2 && units >= 1, "{names:?} in {}", &chart[..120]);
    }
}

#[test]
fn more_runs_than_colours_are_told_apart_by_markers_and_dashes() {
    let policies: Vec<String> = (0..12).map(|number| format!("policy-{number}")).collect();
    let runs: Vec<Run> = policies.iter().map(|policy| run(policy, Mode::Simulated, 1.0)).collect();
    let page = page(&runs);
    let legend = page.split("<div class=\"legend\">").nth(1).and_then(|rest| rest.split("</div>").next());
    let keys: Vec<&str> = legend.expect("a legend").split("<span>").skip(1).collect();
    let samples: BTreeSet<&str> = keys.iter().filter_map(|key| key.split("</svg>").next()).collect();
    assert_eq!((keys.len(), samples.len()), (12, 12));
    let markers: BTreeSet<&str> =
        keys[..7].iter().filter_map(|key| key.split("class=\"dot").nth(1)?.split('"').nth(2)).collect();
    assert_eq!(markers.len(), 7);
    // A legend is as long as it has to be: all names are whole.
    assert!(policies.iter().all(|policy| keys.iter().any(|key| key.ends_with(&format!("{policy}</span>")))));
}

#[test]
fn repeated_runs_are_one_bar_with_its_interval() {
    let once = [run("tcp", Mode::Live, 1.0), run("varys", Mode::Live, 0.5)];
    assert!(!page(&once).contains("class=\"whisker\""));
    let thrice = [1.0, 1.1, 1.2].map(|factor| run("tcp", Mode::Live, factor));
    let page = page(&thrice);
    // In each of the four bins, and of all coflows.
    assert_eq!(page.matches("class=\"whisker\"").count(), 5);
    assert_eq!(page.matches("<rect class=\"bar").count(), 5);
    assert!(page.contains("95 % confidence interval over 3 runs") && page.contains("tcp, 3 runs</span>"));
}

#[test]
fn deadlines_have_a_chart_wherever_coflows_have_them() {
    assert!(!page(&[run("fair", Mode::Simulated, 2.0)]).contains("<h2>Deadlines</h2>"));
    let page = page(&[run_with_deadlines("fair", 2.0), run_with_deadlines("varys", 1.0)]);
    assert!(page.contains("<h2>Deadlines</h2>"));
    // At 2 s and more by 2 s up to 76 s, ten are within 20 s; at 1 s and more by 1 s, twenty.
    for counts in ["10 met, 28 late, 2 refused", "20 met, 18 late, 2 refused"] {
        assert!(page.contains(&format!(">{counts}</text>")), "{counts}");
    }
}

#[test]
fn a_page_is_no_wider_than_a_narrow_window() {
    let page = page(&[run_with_deadlines("fair", 2.0), run("varys", Mode::Live, 1.0)]);
    // What is wider than the window scrolls in its own box.
    assert_eq!(page.matches("<table>").count(), page.matches("<div class=\"scroll\"><table>").count());
    assert_eq!(page.matches("<svg ").count(), page.matches(" viewBox=\"0 0 ").count());
    assert!(!page.contains("<svg viewBox"), "a drawing without a class has no size in style.css");
    // Wide drawings are 640 units: at 420 pixels, less the edges, a letter of 16.5 units has 10 pixels.
    assert!(page.contains("@media (max-width: 600px)") && page.contains("viewBox=\"0 0 640 "));
    assert!(
        charts(&page)
            .iter()
            .all(|chart| chart.starts_with(" viewBox=\"0 0 640") || chart.starts_with(" viewBox=\"0 0 360"))
    );
}

#[test]
fn the_end_of_a_page_says_what_made_it() {
    let page = page(&[run("fair", Mode::Simulated, 2.0)]);
    let footer = page.split("<footer>").nth(1).expect("a footer");
    assert!(footer.contains("Made by: weir ") && footer.contains(", seed 7 (version "), "{footer}");
}
