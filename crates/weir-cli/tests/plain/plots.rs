//! Plots of experiments, as they lie in their folders (`experiment.rs` holds that they are as `--redraw` makes them).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// An experiment's plot, with what it was drawn from.
struct Plot {
    path: PathBuf,
    svg: String,
    experiment: toml::Table,
    numbers: serde_json::Value,
}

impl Plot {
    fn of_experiment(&self) -> &toml::Value {
        &self.experiment["plot"]
    }

    fn measure(&self) -> &str {
        self.of_experiment()["measure"].as_str().expect("a name")
    }

    /// Nothing is simulated: curves of the workload are drawn.
    fn is_of_workload(&self) -> bool {
        !self.experiment.contains_key("policies")
    }

    fn points(&self) -> &Vec<serde_json::Value> {
        self.numbers["points"].as_array().expect("points")
    }

    fn is_ordered(&self) -> bool {
        let x = self.of_experiment().get("x");
        self.is_of_workload() || x.is_some_and(|x| x.get("values").is_some())
    }

    fn count(&self, part: &str) -> usize {
        self.svg.matches(part).count()
    }

    /// What stands between each beginning and the next end.
    fn between<'a>(&'a self, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
        self.svg.split(begin).skip(1).map(move |rest| rest.split(end).next().unwrap_or_default())
    }
}

fn plots() -> Vec<Plot> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut plots = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the experiments") {
        let folder = entry.expect("a folder").path();
        for file in std::fs::read_dir(&folder).expect("an experiment") {
            let path = file.expect("a file").path();
            if path.extension().is_none_or(|extension| extension != "svg") {
                continue;
            }
            let read = |path: &Path| std::fs::read_to_string(path).expect("text");
            let experiment = read(&folder.join("experiment.toml")).parse().expect("an experiment");
            let numbers = serde_json::from_str(&read(&path.with_extension("json"))).expect("numbers");
            plots.push(Plot { svg: read(&path), path, experiment, numbers });
        }
    }
    assert!(plots.len() >= 35, "only {} plots", plots.len());
    plots
}

#[test]
fn both_axes_of_every_plot_have_a_name_and_values_have_a_unit() {
    for plot in plots() {
        let name = |axis: &str| {
            let begin = format!("<g class=\"axis-name\" data-axis=\"{axis}\">");
            let inner: Vec<&str> = plot.between(&begin, "</g>").collect();
            assert_eq!(inner.len(), 1, "{}: {axis}", plot.path.display());
            let words = inner[0].split('>').filter_map(|part| part.split_once("</text"));
            words.map(|(words, _)| words).collect::<Vec<_>>().join(" ")
        };
        let values = name("values");
        assert!(values.contains(" (") && values.ends_with(')'), "{}: {values}", plot.path.display());
        let points = name("points");
        assert!(points.len() > 3, "{}: {points}", plot.path.display());
        // An axis of numbers has a unit; names of policies have none.
        assert!(!plot.is_ordered() || points.ends_with(')'), "{}: {points}", plot.path.display());
    }
}

#[test]
fn points_without_an_order_are_not_joined_by_lines() {
    let (mut ordered, mut other) = (0, 0);
    for plot in plots() {
        let lines = plot.count("<polyline");
        if plot.is_ordered() {
            ordered += 1;
            assert!(lines > 0, "{}: no line", plot.path.display());
        } else {
            other += 1;
            assert_eq!(lines, 0, "{}: lines between names", plot.path.display());
        }
    }
    assert!(ordered >= 8 && other >= 15, "{ordered} and {other}");
}

#[test]
fn bars_begin_at_zero_and_stand_on_no_logarithmic_axis() {
    for plot in plots().iter().filter(|plot| !plot.is_ordered()) {
        let log = plot.of_experiment().get("log").and_then(toml::Value::as_bool).unwrap_or(false);
        let bars: Vec<&str> = plot.between("<rect class=\"bar\" x=\"", "\"").collect();
        assert_eq!(bars.is_empty(), log, "{}", plot.path.display());
        let begins: BTreeSet<&str> = bars.into_iter().collect();
        // All at one place, where the axis has its 0.
        assert!(begins.len() <= 1, "{}: {begins:?}", plot.path.display());
        if let Some(zero) = begins.first() {
            let labelled = format!("<text x=\"{zero}\"");
            let labels: Vec<&str> = plot.between(&labelled, "<").collect();
            assert!(labels.iter().any(|label| label.ends_with(">0")), "{}: {labels:?}", plot.path.display());
        }
    }
}

#[test]
fn what_the_paper_reports_of_the_plotted_measure_stands_in_the_plot() {
    let mut found = 0;
    for plot in plots() {
        let none = Vec::new();
        let papers = plot.experiment.get("paper").and_then(toml::Value::as_array).unwrap_or(&none);
        for paper in papers.iter().filter(|paper| paper["measure"].as_str() == Some(plot.measure())) {
            let value = &paper["value"];
            let value = value.as_float().or(value.as_integer().map(|whole| whole as f64)).expect("a number");
            let policy = paper.get("policy").and_then(toml::Value::as_str).unwrap_or("workload");
            let read = paper.get("read").and_then(toml::Value::as_bool).unwrap_or(false);
            let words = if read { ", read from a figure" } else { "" };
            let words = format!("<title>{policy}: {value} in the paper{words}</title>");
            assert!(plot.svg.contains(&words), "{}: {words}", plot.path.display());
            let key = if read { "the paper's value, read from a figure<" } else { "the paper's value<" };
            assert!(plot.svg.contains(key), "{}: no key", plot.path.display());
            found += 1;
        }
    }
    assert!(found >= 30, "{found} numbers of papers");
}

#[test]
fn intervals_are_drawn_where_they_are_known() {
    let mut with = 0;
    for plot in plots() {
        let name = format!("{} +-", plot.measure());
        let runs = plot.points().iter().flat_map(|point| point["policies"].as_array().expect("runs"));
        let known = runs.filter(|run| {
            let seeds = run["by_seed"][plot.measure()].as_array();
            let half = run["measures"][&name].as_f64();
            half.map_or_else(
                || seeds.is_some_and(|seeds| seeds.iter().any(|value| *value != seeds[0])),
                |half| half > 0.0,
            )
        });
        let known = known.count();
        assert_eq!(plot.count("class=\"whisker\""), known, "{}", plot.path.display());
        assert_eq!(plot.svg.contains("95 % confidence interval"), known > 0, "{}", plot.path.display());
        with += usize::from(known > 0);
    }
    assert!(with >= 8, "{with} plots with intervals");
}

#[test]
fn every_series_has_a_look_of_its_own_and_a_place_in_the_legend() {
    let mut most = 0;
    for plot in plots() {
        let keys: Vec<&str> = plot.between("<g class=\"key\"", "</title>").collect();
        let look = |key: &&str| key.split("<title>").next().unwrap_or_default().to_owned();
        let looks: BTreeSet<String> = keys.iter().map(look).collect();
        assert_eq!(looks.len(), keys.len(), "{}: two look alike", plot.path.display());
        // Colour and marker both differ from the first series to the seventh.
        let markers: BTreeSet<&str> = keys.iter().take(7).filter_map(|key| key.split('"').nth(1)).collect();
        assert_eq!(markers.len(), keys.len().min(7), "{}", plot.path.display());
        most = most.max(keys.len());
        if plot.points().len() > 1 {
            let runs = plot.points().iter().flat_map(|point| point["policies"].as_array().expect("runs"));
            let measured = runs.filter(|run| !run["measures"][plot.measure()].is_null());
            let names: BTreeSet<&str> = measured.filter_map(|run| run["policy"].as_str()).collect();
            assert_eq!(keys.len(), names.len(), "{}: not all in the legend", plot.path.display());
        }
    }
    assert!(most > 6, "no plot has more than six series");
}

/// A letter is 13 units high and at most 8 wide on average: what begins or ends so many letters from its place is not cut.
#[test]
fn no_text_reaches_beyond_the_drawing() {
    for plot in plots() {
        let width: f64 = plot
            .between("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", "\"")
            .next()
            .and_then(|text| text.parse().ok())
            .expect("a width");
        for text in plot.between("<text", "</text>") {
            let (attributes, words) = text.split_once('>').expect("a text");
            let of = |name: &str| {
                attributes.split(&format!(" {name}=\"")).nth(1).and_then(|rest| rest.split('"').next())
            };
            let x: f64 = of("x").and_then(|x| x.parse().ok()).expect("a place");
            let long = words.replace("&gt;", ">").replace("&lt;", "<").chars().count() as f64 * 7.6;
            let (left, right) = match of("text-anchor") {
                Some("end") => (x - long, x),
                Some("middle") => (x - long / 2.0, x + long / 2.0),
                _ => (x, x + long),
            };
            assert!(left >= 0.0 && right <= width, "{}: {words} from {left} to {right}", plot.path.display());
        }
    }
}
