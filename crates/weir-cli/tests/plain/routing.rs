//! `weir bench routing` as a user meets it.

use std::collections::BTreeMap;
use std::process::{Command, Output};

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("weir runs")
}

#[track_caller]
fn routing(arguments: &[&str]) -> String {
    let output = weir(&[&["bench", "routing"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = weir(&[&["bench", "routing"], arguments].concat());
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// The numbers of each rule's row, by rule; `None` where there is a dash.
fn rows(table: &str) -> BTreeMap<&str, Vec<Option<f64>>> {
    let rows = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let numbers = words.filter(|&word| word != "%").map(|word| word.parse().ok()).collect();
        ["direct", "one-iteration", "published", "converged"].contains(&name).then_some((name, numbers))
    });
    rows.collect()
}

#[test]
fn bound_converged_published_one_iteration_and_direct_come_in_this_order() {
    let said = routing(&["--demands", "20", "--seed", "3"]);
    // Three snapshots of five regions, one of four; each with its own table.
    let tables: Vec<&str> = said.split("\n\n").filter(|part| part.contains(" regions, 20 demands")).collect();
    assert_eq!(tables.len(), 4, "{said}");
    for table in tables {
        let rows = rows(table);
        let rules = ["converged", "published", "one-iteration", "direct"].map(|rule| &rows[rule]);
        for (better, worse) in rules.iter().zip(&rules[1..]) {
            // Below direct, in percent.
            assert!(better[2] >= worse[2], "{table}");
            assert!(Some(1.0) <= better[0] && better[0] <= worse[0], "{table}");
            assert!(better[0] <= better[1], "{table}");
        }
        let direct = rules[3];
        // No gain over itself, nothing relayed.
        assert_eq!(direct[2..4], [Some(0.0), Some(0.0)], "{table}");
        assert!(rules[0][2] > Some(10.0), "{table}");
    }
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let figures = |seed| {
        let said = routing(&["--demands", "5", "--snapshot", "2022-01-24", "--seed", seed]);
        // The last two columns are times of this machine.
        rows(&said).into_iter().map(|(name, row)| (name.to_owned(), row[..4].to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(figures("1"), figures("1"));
    assert_ne!(figures("1"), figures("2"));
}

#[test]
fn a_grid_of_ones_own_with_a_hole_is_left_out_or_refused() {
    let header = "snapshot,src_region,src_tier,dst_region,dst_tier,received_mbps\n";
    let rows = "full,a,,b,,100\nfull,b,,a,,50\nhole,a,,b,,100\nhole,b,,c,,100\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grid.csv");
    std::fs::write(&path, format!("{header}{rows}")).unwrap();
    let grid = path.to_str().unwrap();
    let said = routing(&["--grid", grid, "--demands", "1"]);
    assert!(
        said.contains("full: 2 regions") && said.contains("left out: snapshot hole lacks 4 pairs"),
        "{said}"
    );
    let said = refused(&["--grid", grid, "--snapshot", "hole"]);
    assert!(said.contains(grid) && said.contains("lacks 4 pairs"), "{said}");
    std::fs::write(&path, format!("{header}full,a,,b,,quick\n")).unwrap();
    let said = refused(&["--grid", grid]);
    assert!(said.contains(grid) && said.contains("line 2"), "{said}");
}

#[test]
fn values_that_make_no_sense_are_refused() {
    assert!(refused(&["--skew", "5"]).contains("skew of 5"));
    assert!(refused(&["--noise", "5"]).contains("noise of 5"));
    assert!(refused(&["--snapshot", "1999-12-31"]).contains("2022-01-24"));
    assert!(refused(&["--regions", "mars"]).contains("0 of the regions"));
    assert!(refused(&["--grid", "nowhere.csv"]).contains("nowhere.csv"));
}
