//! Results as a page of Markdown.

use crate::names::describe;
use crate::{Experiment, PointResult, Results};
use std::fmt::Write;

/// The page: what was run, our numbers, the paper's beside ours, and why they differ.
pub fn table(experiment: &Experiment, results: &Results, name: &str) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ =
        writeln!(page, "# {}\n\n{}. Workload: {}.", experiment.title, experiment.source, results.workload);
    if let Some(outdated) = &experiment.outdated {
        let _ = writeln!(page, "\n**These numbers are older than the code.** {}", outdated.trim());
    }
    let seeds = experiment.seeds.len();
    let means = if seeds > 1 { format!(" Means over {seeds} seeds.") } else { String::new() };
    let made_by = match &results.made_by {
        Some(made_by) => made_by.line(&results.seeds),
        None => unwritten(experiment, results, name),
    };
    let _ = writeln!(page, "\n{made_by}{means}\n");
    if experiment.is_of_workload() {
        measures_by_point(experiment, results, &mut page);
    } else {
        policies_by_measure(experiment, results, &mut page);
        results.points.iter().for_each(|point| links_by_policy(point, &mut page));
    }
    papers_beside_ours(experiment, results, &mut page);
    let _ = writeln!(
        page,
        "\n## Why they differ\n\n{}\n\n![{}]({})",
        experiment.why.trim(),
        experiment.title,
        plot_name(results)
    );
    page
}

/// What is known of numbers of versions that did not write down what made them: the command makes them again.
fn unwritten(experiment: &Experiment, results: &Results, name: &str) -> String {
    let trace = match results.workload.as_str() {
        _ if experiment.is_of_packets() => String::new(),
        workload => format!(" --trace {workload}"),
    };
    let seeds: Vec<String> = results.seeds.iter().map(u64::to_string).collect();
    format!(
        "`weir experiment run {name}{trace}` makes this page, with seeds {}; the version that made it did not write itself \
         down.",
        seeds.join(", ")
    )
}

/// A row per policy of a point, a column per measure.
fn policies_by_measure(experiment: &Experiment, results: &Results, page: &mut String) {
    let shown: Vec<&String> = experiment.show.iter().filter(|name| is_measured(results, name)).collect();
    let _ = writeln!(page, "| point | policy | {} |", join(shown.iter().map(|name| name.as_str())));
    let _ = writeln!(page, "|---|---|{}", "---:|".repeat(shown.len()));
    for point in &results.points {
        for policy in &point.policies {
            let cells = shown
                .iter()
                .map(|name| policy.measures.get(*name).map_or("-".to_owned(), |value| number(*value)));
            let _ = writeln!(page, "| {} | {} | {} |", point.name, policy.policy, join(cells));
        }
    }
    page.push('\n');
    for name in shown {
        let _ = writeln!(page, "- {name}: {}", describe(name));
    }
}

/// A row per link between sites, a column per policy; nothing where links were not counted.
fn links_by_policy(point: &PointResult, page: &mut String) {
    let Some(links) = point.policies.first().map(|policy| &policy.links).filter(|links| !links.is_empty())
    else {
        return;
    };
    let _ = writeln!(
        page,
        "\n## Link by link: {}\n\nGB, and % of what the link could carry until the last end.\n",
        point.name
    );
    let _ = writeln!(
        page,
        "| from | to | {} |",
        join(point.policies.iter().map(|policy| policy.policy.as_str()))
    );
    let _ = writeln!(page, "|---|---|{}", "---:|".repeat(point.policies.len()));
    for (at, link) in links.iter().enumerate() {
        let cells = point.policies.iter().map(|policy| {
            let link = policy.links.get(at);
            link.map_or("-".to_owned(), |link| format!("{:.3}, {:.0} %", link.gb, link.used))
        });
        let _ = writeln!(page, "| {} | {} | {} |", link.from, link.to, join(cells));
    }
}

/// A row per measure, a column per point: of a workload there are many measures and no policies to compare.
fn measures_by_point(experiment: &Experiment, results: &Results, page: &mut String) {
    let _ =
        writeln!(page, "| measure | {} | |", join(results.points.iter().map(|point| point.name.as_str())));
    let _ = writeln!(page, "|---|{}---|", "---:|".repeat(results.points.len()));
    for name in experiment.show.iter().filter(|name| is_measured(results, name)) {
        let cells = results.points.iter().map(|point| {
            let value = point.policies.first().and_then(|measured| measured.measures.get(name));
            value.map_or("-".to_owned(), |value| number(*value))
        });
        let _ = writeln!(page, "| {name} | {} | {} |", join(cells), crate::characteristics::describe(name));
    }
}

/// The stem of the files of a workload's results.
pub fn stem(workload: &str) -> String {
    workload.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

fn plot_name(results: &Results) -> String {
    format!("{}.svg", stem(&results.workload))
}

fn is_measured(results: &Results, name: &str) -> bool {
    results.points.iter().flat_map(|point| &point.policies).any(|policy| policy.measures.contains_key(name))
}

fn papers_beside_ours(experiment: &Experiment, results: &Results, page: &mut String) {
    if experiment.paper.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "\n## The paper's numbers\n\n| point | policy | measure | paper | ours |\n|---|---|---|---:|---:|"
    );
    let mut read = false;
    for paper in &experiment.paper {
        let name = paper.point.as_ref().unwrap_or(&experiment.point[0].name);
        let point = results.points.iter().find(|point| point.name == *name);
        let policy =
            point.and_then(|point| point.policies.iter().find(|policy| policy.policy == paper.policy));
        let ours = policy.and_then(|policy| policy.measures.get(&paper.measure));
        let ours = ours.map_or("-".to_owned(), |value| number(*value));
        let mark = if paper.read { " (read)" } else { "" };
        read |= paper.read;
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {}{mark} | {ours} |",
            paper.policy, paper.measure, paper.value
        );
    }
    if read {
        page.push_str("\n(read): taken from a figure, not from the text; which number belongs to which bar is likely, not sure.\n");
    }
}

fn join(cells: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| cell.as_ref().to_owned()).collect();
    cells.join(" | ")
}

/// Four significant digits, or whole.
fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 4) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_what_counts() {
        assert_eq!(
            [0.0, 3.661_04, 23.6276, 0.085_21, 4480.3].map(number),
            ["0", "3.661", "23.63", "0.0852", "4480"]
        );
        assert_eq!(stem("synthetic:fb2010"), "synthetic-fb2010");
    }
}
