//! `weir coordinator` and `weir agent` with options that cannot be: one line that says which, and exit 2.

mod support;

use support::process::refused;

#[test]
fn times_out_of_range_are_refused_by_name() {
    for (option, value) in [
        ("--bypass", "-1"),
        ("--bypass", "soon"),
        ("--bypass", "nan"),
        ("--batch-window", "1001"),
        ("--ready-wait", "60001"),
        ("--ready-wait", "inf"),
    ] {
        let option_value = format!("{option}={value}");
        let said = refused(&["coordinator", "--hosts", "2", "--link-rate", "1gbit", &option_value]);
        assert!(said.contains(option) && said.contains(value), "{said}");
    }
}

#[test]
fn an_interface_that_does_not_exist_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let arguments =
        ["agent", "--host", "0", "--listen", "127.0.0.1:0", "--interface", "no-such-one", "--spool"];
    let said = refused(&[&arguments[..], &[spool.to_str().unwrap()]].concat());
    assert!(said.contains("--interface no-such-one"), "{said}");
    assert!(!spool.exists(), "nothing is written");
}
