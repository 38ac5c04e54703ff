use super::*;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

const HEADER: &str = "snapshot,src_region,src_tier,src_instance,dst_region,dst_tier,dst_instance,tcp_connections,\
                      iperf3_seconds,sent_mbps,received_mbps\n";

fn row(snapshot: &str, from: &str, to: &str, tiers: [&str; 2], received: &str) -> String {
    let [source, destination] = tiers;
    format!("{snapshot},{from},{source},big,{to},{destination},big,64,5,9999,{received}\n")
}

const BEST: [&str; 2] = ["PREMIUM", "PREMIUM"];

fn read(rows: &[String]) -> Result<Measurements, WanReadError> {
    Measurements::read(format!("{HEADER}{}", rows.concat()).as_bytes())
}

fn two_ways(snapshot: &str, there: &str, back: &str) -> Vec<String> {
    vec![row(snapshot, "a", "b", BEST, there), row(snapshot, "b", "a", BEST, back)]
}

fn megabits(grid: &Grid, from: usize, to: usize) -> f64 {
    grid.rates[from][to].bits_per_sec() / 1e6
}

#[test]
fn a_grid_has_what_receivers_counted_in_each_direction() {
    let grid = read(&two_ways("day", "800", "1600.5")).unwrap().grid("day", &[]).unwrap();
    assert_eq!(grid.regions, ["a", "b"]);
    assert_eq!((megabits(&grid, 0, 1), megabits(&grid, 1, 0)), (800.0, 1600.5));
    assert_eq!(grid.rates[0][0], Rate::default());
}

#[test]
fn a_byte_order_mark_before_the_header_is_skipped() {
    let rows = two_ways("day", "800", "1600.5").concat();
    let marked = Measurements::read(format!("\u{feff}{HEADER}{rows}").as_bytes()).expect("measurements");
    assert_eq!(marked.snapshots().collect::<Vec<_>>(), ["day"]);
    // The first column is still found where a header quotes it.
    let quoted = HEADER.replacen("snapshot", "\"snapshot\"", 1);
    assert!(Measurements::read(format!("\u{feff}{quoted}{rows}").as_bytes()).is_ok());
}

#[test]
fn snapshots_are_not_pooled() {
    let rows = [two_ways("one", "100", "200"), two_ways("two", "300", "400")].concat();
    let measured = read(&rows).unwrap();
    assert_eq!(measured.snapshots().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(megabits(&measured.grid("one", &[]).unwrap(), 0, 1), 100.0);
    assert_eq!(megabits(&measured.grid("two", &[]).unwrap(), 0, 1), 300.0);
}

#[test]
fn only_premium_or_unrecorded_tiers_at_both_ends_count_and_repetitions_are_averaged() {
    let mut rows = two_ways("day", "100", "100");
    rows.push(row("day", "a", "b", BEST, "200"));
    for tiers in [["STANDARD", "PREMIUM"], ["PREMIUM", "STANDARD"], ["STANDARD", "STANDARD"], ["", "PREMIUM"]]
    {
        rows.push(row("day", "a", "b", tiers, "7000"));
    }
    rows.push(row("bare", "a", "b", ["", ""], "50"));
    rows.push(row("bare", "b", "a", ["", ""], "60"));
    let measured = read(&rows).unwrap();
    // (100 + 200) / 2.
    assert_eq!(megabits(&measured.grid("day", &[]).unwrap(), 0, 1), 150.0);
    assert_eq!(megabits(&measured.grid("bare", &[]).unwrap(), 1, 0), 60.0);
}

#[test]
fn prefixes_choose_regions() {
    let mut rows = two_ways("day", "1", "2");
    rows.push(row("day", "x:1", "a", BEST, "3"));
    let measured = read(&rows).unwrap();
    let chosen = measured.grid("day", &["a".to_owned(), "b".to_owned()]).unwrap();
    assert_eq!(chosen.regions, ["a", "b"]);
    let one = GridError::TooFewRegions { snapshot: "day".to_owned(), found: 1 };
    assert_eq!(measured.grid("day", &["x:".to_owned()]), Err(one));
}

#[test]
fn a_grid_with_holes_is_refused_and_says_where() {
    let mut rows = two_ways("day", "1", "2");
    rows.push(row("day", "b", "c", BEST, "3"));
    // a to c, c to a, c to b.
    let said = read(&rows).unwrap().grid("day", &[]).unwrap_err().to_string();
    assert!(
        said.contains("lacks 3 pairs") && said.contains("a to c") && said.contains("leave out"),
        "{said}"
    );
    let said = read(&rows).unwrap().grid("night", &[]).unwrap_err().to_string();
    assert_eq!(said, "no snapshot night; there are day");
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    let said = Measurements::read(text.as_bytes()).expect_err("an error").to_string();
    assert!(expected.iter().all(|part| said.contains(part)), "{said}");
}

#[test]
fn errors_name_the_line_and_what_is_wrong_there() {
    let good = row("day", "a", "b", BEST, "5");
    says(&format!("{HEADER}{good}{}", row("day", "b", "a", BEST, "fast")), &["line 3", "column 11"]);
    says(&format!("{HEADER}{good}day,a\n"), &["line 3", "2 columns", "11"]);
    for rate in ["0", "-3", "nan", "inf"] {
        says(&format!("{HEADER}{}", row("day", "a", "b", BEST, rate)), &["line 2", "received_mbps"]);
    }
    says(&format!("{HEADER}{}", row("day", "a", "a", BEST, "5")), &["no row"]);
    says(&format!("{HEADER}{}", row("", "a", "b", BEST, "5")), &["line 2", "no name"]);
    says("snapshot,src_region\nday,a\n", &["line 2", "src_tier"]);
    says(&format!("{HEADER}{}", row("day", "a", "b", ["STANDARD"; 2], "5")), &["no row"]);
    says("", &["no row"]);
    let said = Measurements::read(&b"snapshot\n\xff\xfe\n"[..]).unwrap_err().to_string();
    assert!(said.contains("line 2") && said.contains("UTF-8"), "{said}");
}

#[test]
fn a_file_without_end_is_cut_off() {
    let endless = HEADER.as_bytes().chain(std::io::repeat(b'x'));
    assert!(matches!(Measurements::read(endless), Err(WanReadError::TooLong)));
}

#[test]
fn the_excerpt_that_comes_along_has_full_grids() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/wan/skyplane-gcp5.csv");
    let measured = Measurements::open(path.as_ref()).unwrap();
    let sites: Vec<(String, usize)> = measured
        .snapshots()
        .map(|name| (name.to_owned(), measured.grid(name, &[]).unwrap().regions.len()))
        .collect();
    let expected = [("2022-01-24", 5), ("2022-01-29", 5), ("2022-04-20", 5), ("2022-11-28", 4)];
    assert_eq!(sites, expected.map(|(name, count)| (name.to_owned(), count)));
    // Its second line.
    assert_eq!(megabits(&measured.grid("2022-01-24", &[]).unwrap(), 0, 1), 6692.5);
}

/// All regions that Skyplane measured are too large to come along.
#[test]
fn the_whole_file_has_full_grids_of_each_provider() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/wan");
    let folder = std::env::var_os("WEIR_WAN_DIR").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let path = folder.join("skyplane_throughput.csv.gz");
    if !path.is_file() {
        // Not `eprintln`, which the harness hides where a test passes.
        writeln!(std::io::stderr(), "SKIPPED: no {}; set WEIR_WAN_DIR to its folder", path.display())
            .unwrap();
        return;
    }
    let unpacked = Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    let measured = Measurements::read(&unpacked.stdout[..]).unwrap();
    let count =
        |snapshot: &str, prefix: &str| measured.grid(snapshot, &[prefix.to_owned()]).unwrap().regions.len();
    assert_eq!((count("2022-01-24", "gcp:"), count("2022-01-24", "aws:")), (27, 22));
}
