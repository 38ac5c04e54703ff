//! `weir run`: how the command ends, and what becomes of its control group.

use super::{WEIR, complaint, weir};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Says its groups, then goes on for longer than a test. One process all the time: another might be in the group a little longer
/// than what it said.
const STAYS: [&str; 3] =
    ["sh", "-c", "while read -r line; do echo \"$line\"; done < /proc/self/cgroup; exec sleep 60"];

fn run(words: &[&str]) -> Output {
    weir(&[&["run", "--size", "1MB", "--"], words].concat())
}

/// Whether programs may be loaded here; CI has to.
fn may_run() -> bool {
    let output = run(&["true"]);
    if output.status.success() {
        return true;
    }
    let said = complaint(&output);
    assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped: {said}");
    eprintln!("SKIPPED: {said}");
    false
}

/// The folder of a group, as a process in it names it.
fn folder(line: &str) -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = fields.find(|fields| fields[2] == "cgroup2").unwrap()[1].to_owned();
    Path::new(&mount).join(line.trim().strip_prefix("0::/").unwrap())
}

/// A command that stays, and its group.
fn staying() -> (Child, PathBuf) {
    let words = [&["run", "--"], &STAYS[..]].concat();
    let mut child = Command::new(WEIR).args(words).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let line = said.lines().map(|line| line.unwrap()).find(|line| line.starts_with("0::")).unwrap();
    (child, folder(&line))
}

/// None either once another `weir run` has removed the group.
fn inside(group: &Path) -> Vec<Pid> {
    let processes = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    processes.lines().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
}

pub(super) fn ended() {
    if !may_run() {
        return;
    }
    let output = run(&["sh", "-c", "cat /proc/self/cgroup; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", complaint(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let group = folder(said.lines().find(|line| line.starts_with("0::")).unwrap());
    assert!(group.to_str().unwrap().contains("weir-run-") && !group.exists(), "{}", group.display());
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).status.code(), Some(128 + 15));
    let missing = run(&["/no/such/command"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(complaint(&missing).contains("/no/such/command") && complaint(&missing).lines().count() == 1);
    // What it leaves behind goes on, in the group above.
    let output = run(&["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!; cat /proc/self/cgroup"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let left = Pid::from_raw(said.lines().next().unwrap().parse().unwrap()).unwrap();
    let group = folder(said.lines().find(|line| line.starts_with("0::")).unwrap());
    assert!(output.status.success() && !group.exists());
    kill_process(left, Signal::KILL).unwrap();
    // It is asked to end, and so is the command.
    let (mut child, group) = staying();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(!group.exists());
}

pub(super) fn killed() {
    if !may_run() {
        return;
    }
    let (mut child, group) = staying();
    child.kill().unwrap();
    child.wait().unwrap();
    let left = inside(&group);
    assert_eq!(left.len(), 1, "the command goes on");
    assert!(run(&["true"]).status.success() && group.exists(), "its group has a process");
    kill_process(left[0], Signal::KILL).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !inside(&group).is_empty() {
        assert!(Instant::now() < end, "a killed command does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(run(&["true"]).status.success() && !group.exists(), "an empty one is removed");
}

/// What the inner one says holds, also once the outer one is gone.
pub(super) fn within() {
    if !may_run() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; ss -tinoeH dport = :{port}");
    let inner = [WEIR, "run", "--control", "cubic", "--size", "10kB", "--", "bash", "-c", &script];
    let output = weir(&[&["run", "--control", "reno", "--size", "1MB", "--"], &inner[..]].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mark = weir_model::Hint::Known(weir_model::Bytes(10_000)).mark_after(0);
    assert!(said.contains(&format!("fwmark:{mark:#x}")) && said.contains(" cubic "), "{said}");
    assert!(output.status.success() && complaint(&output).is_empty(), "{}", complaint(&output));
}
