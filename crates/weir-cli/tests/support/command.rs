//! How tests call `weir` and read what it says.

use std::process::{Command, Output};

pub(crate) fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("weir runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = weir(arguments);
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The one line of a refusal.
#[track_caller]
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = weir(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!((said.lines().count(), text(&output.stdout).as_str()), (1, ""), "{arguments:?}: {said}");
    said
}
