//! Tells the program which commit it is built from, so that results can say so. From a tarball, or without git: `unknown`.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

fn main() {
    // A package of the source without its repository may say the commit.
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    let commit = std::env::var("WEIR_COMMIT").ok().or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=WEIR_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    // The log of HEAD grows with every commit, whatever branch it is on.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| std::path::Path::new(log).exists());
    println!("cargo::rerun-if-changed={}", log.as_deref().unwrap_or("build.rs"));
}
