//! A real Spark on a bed of three hosts: its shuffles move by Weir, whole and right, and by Spark's own fetch where Weir is not.

mod support;

use std::path::{Path, PathBuf};
use support::process::weir;

/// The Spark that was fetched, and the jars that were built; none where either is missing, which says why.
fn spark() -> Option<[PathBuf; 3]> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let jvm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../jvm");
    let found = [
        target.join("tools/spark/4.2.0"),
        jvm.join("weir-spark/target/weir-spark-0.1.0.jar"),
        jvm.join("weir-spark-bench/target/weir-spark-bench-0.1.0.jar"),
    ];
    let has_rights = weir_testbed::has_rights();
    let is_there = found[0].join("jars/complete").exists() && found[1].exists() && found[2].exists();
    if is_there && has_rights {
        return Some(found);
    }
    let reason = "no Spark was fetched (scripts/install-spark.sh), no jars were built (make jvm), or there are no rights for namespaces";
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
    None
}

/// `weir bench spark` of a kind, with what it needs.
fn bench(kind: &str, [home, plugin, jobs]: [PathBuf; 3], more: &[&str]) -> String {
    let output = weir(&["bench", "spark", kind])
        .args(more)
        .arg("--spark-home")
        .arg(home)
        .arg("--plugin")
        .arg(plugin)
        .arg("--jobs")
        .arg(jobs)
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Files of an executor vanish between two reads. The command fails if results differ, or if
/// Weir moved nothing.
#[test]
fn what_is_lost_is_written_again_and_read_by_weir_with_the_same_results() {
    let Some(found) = spark() else { return };
    let said = bench("suite", found, &["--case", "outputs-lost"]);
    assert!(said.contains("results are the same in all cases"), "{said}");
}

/// An application with SQL, end to end: the command fails if its result is another one than Spark's own.
#[test]
fn applications_end_with_the_results_they_have_by_spark_alone() {
    let Some(found) = spark() else { return };
    let options = ["--hosts", "3", "--slots", "2", "--partitions", "6", "--rounds", "1"];
    let jobs = ["--job", "tpch-q3:5", "--link-rate", "100mbit", "--mode", "vanilla,varys"];
    let said = bench("jobs", found, &[&options[..], &jobs[..]].concat());
    assert!(said.contains("round 0, varys"), "{said}");
}

/// The application compares what it reads with what it wrote.
#[test]
fn shuffles_of_spark_move_by_weir_and_without_it() {
    let Some(found) = spark() else { return };
    let options = ["--hosts", "3", "--megabytes", "3,6", "--tasks", "6", "--rounds", "2"];
    let said = bench("shuffles", found, &[&options[..], &["--mode", "vanilla,dclas"]].concat());
    let gathers = |mode| of_mode(&said, mode)[0];
    assert_eq!(gathers("vanilla"), 0.0, "{said}");
    // Of three hosts each fetches from two others, for two shuffles, three times.
    assert!(gathers("dclas") >= 12.0, "{said}");
}

/// The last columns of a mode in a table: gathers, megabytes by Weir, and faults.
fn of_mode(said: &str, mode: &str) -> [f64; 3] {
    let mut rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row =
        rows.rfind(|row| row.len() > 3 && row[0] == mode).unwrap_or_else(|| panic!("no {mode}: {said}"));
    let last = row[row.len() - 3..].iter().map(|number| number.parse().expect("a number"));
    last.collect::<Vec<f64>>().try_into().expect("three")
}

/// Hosts at five sites, where all that moves bytes fails, one after the other: what comes is what was written.
#[test]
fn between_sites_what_is_read_is_right_though_relays_agents_and_executors_fail() {
    let Some(found) = spark() else { return };
    let sites = ["--fastest", "50mbit", "--hosts", "5", "--slots", "2", "--mode", "siphon"];
    let shuffles = ["--megabytes", "6,12", "--tasks", "10", "--rounds", "25"];
    let faults = ["--faults", "relays,agents,executors,coordinator", "--seed", "4"];
    let said = bench("shuffles", found, &[&sites[..], &shuffles[..], &faults[..]].concat());
    let [gathers, _, faults] = of_mode(&said, "siphon");
    assert!(gathers > 0.0 && faults >= 2.0, "{said}");
}
