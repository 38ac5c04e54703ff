//! `weir live` leaves nothing behind, however it ends.

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run that ends with its test, failed or not.
struct Live(Child);

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Long enough to be ended in the middle: coflows come over minutes.
fn start(folder: &Path) -> Live {
    let child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args([
            "live",
            "--loopback",
            "--hosts",
            "4",
            "--count",
            "40",
            "--bytes-divisor",
            "40",
            "--isolation-cap",
            "2",
            "--policy",
            "varys",
        ])
        .env("TMPDIR", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("weir runs");
    Live(child)
}

fn wait_until(what: &str, done: &dyn Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Folders of runs.
fn left(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

/// Processes, not yet ended ones apart, whose environment names the folder.
fn processes(folder: &Path) -> usize {
    let folder = folder.to_str().expect("a path").as_bytes();
    let names = |entry: &std::fs::DirEntry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.windows(folder.len()).any(|part| part == folder)
    };
    std::fs::read_dir("/proc").expect("/proc").flatten().filter(names).count()
}

fn signal(live: &Live, signal: Signal) {
    let pid = i32::try_from(live.0.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal).expect("a signal");
}

#[test]
fn signals_that_end_a_live_run_leave_no_folder_and_no_process() {
    for number in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = start(folder.path());
        // Coordinator, agents and tasks are there.
        wait_until("all processes start", &|| processes(folder.path()) >= 6);
        signal(&child, number);
        let status = child.0.wait().expect("weir ends");
        assert_eq!(status.code(), Some(128 + number.as_raw()));
        wait_until("all processes end", &|| processes(folder.path()) == 0);
        assert_eq!(left(folder.path()), 0, "{number:?}");
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = start(folder.path());
    wait_until("all processes start", &|| processes(folder.path()) >= 6);
    signal(&first, Signal::KILL);
    first.0.wait().expect("weir ends");
    wait_until("all processes end", &|| processes(folder.path()) == 0);
    assert_eq!(left(folder.path()), 1);
    let mut second = start(folder.path());
    wait_until("all processes start", &|| processes(folder.path()) >= 6);
    assert_eq!(left(folder.path()), 1, "only its own");
    signal(&second, Signal::TERM);
    second.0.wait().expect("weir ends");
    assert_eq!(left(folder.path()), 0);
}
