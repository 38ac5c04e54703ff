//! No command leaves anything behind, however it ends: no process, no folder, no file that is not complete.

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run that ends with its test, failed or not.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Coflows come over minutes: long enough to be ended in the middle.
const LIVE: &str = "live --loopback --hosts 4 --count 40 --bytes-divisor 40 --isolation-cap 2 --policy varys";

/// `weir` on words, with temporary files in a folder.
fn command(folder: &Path, line: &str) -> Command {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // These tests may run under nohup, whose children ignore SIGHUP, or in the background of a shell, where SIGINT is ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_weir")]).args(line.split(' '));
    command.current_dir(workspace).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn start(folder: &Path, line: &str) -> Run {
    Run(command(folder, line).spawn().expect("weir runs"))
}

fn wait_until(what: &str, done: &dyn Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many folders of runs are left in a folder.
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

fn signal(run: &Run, signal: Signal) {
    let pid = i32::try_from(run.0.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal).expect("a signal");
}

/// Commands with processes, and how many they are at least.
const WITH_PROCESSES: [(&str, usize); 3] = [
    (LIVE, 6),
    ("bench slow-reader --policy varys --seconds 60", 5),
    ("bench restart --agents 3 --coflows 10 --blocks 10 --flows 2 --rounds 20", 5),
];

#[test]
fn signals_that_end_a_run_leave_no_folder_and_no_process() {
    for (line, count) in WITH_PROCESSES {
        for number in [Signal::INT, Signal::TERM, Signal::HUP] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut child = start(folder.path(), line);
            wait_until("all processes start", &|| processes(folder.path()) >= count);
            signal(&child, number);
            let status = child.0.wait().expect("weir ends");
            assert_eq!(status.code(), Some(128 + number.as_raw()), "{line}");
            wait_until("all processes end", &|| processes(folder.path()) == 0);
            assert_eq!(left(folder.path()), 0, "{line}, {number:?}");
        }
    }
}

/// Daemons of a measurement have nobody who would end them.
#[test]
fn processes_of_a_killed_measurement_end_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (line, count) = WITH_PROCESSES[1];
    let mut child = start(folder.path(), line);
    wait_until("all processes start", &|| processes(folder.path()) >= count);
    signal(&child, Signal::KILL);
    child.0.wait().expect("weir ends");
    wait_until("all processes end", &|| processes(folder.path()) == 0);
}

/// Of a scenario that goes on for long, the hidden file that is not complete.
#[test]
fn signals_that_end_a_simulation_leave_no_unfinished_file_and_the_old_one_as_it_was() {
    for number in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = tempfile::tempdir().expect("a folder");
        let output = folder.path().join("out.csv");
        std::fs::write(&output, "old").expect("a file");
        let line = "packet --scenario scenarios/packets/leaf-spine.toml --transport dctcp --flows 10000000";
        let mut child =
            command(folder.path(), line).arg("--series").arg(&output).spawn().map(Run).expect("weir");
        wait_until("it writes", &|| left(folder.path()) == 2);
        signal(&child, number);
        let status = child.0.wait().expect("weir ends");
        assert_eq!(status.code(), Some(128 + number.as_raw()));
        assert_eq!(left(folder.path()), 1, "{number:?}");
        assert_eq!(std::fs::read_to_string(&output).expect("a file"), "old");
    }
}

#[test]
fn a_signal_that_is_ignored_from_the_start_as_under_nohup_stays_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_weir");
    let script = format!("trap '' HUP; exec {program} {LIVE}");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).env("TMPDIR", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = shell.spawn().map(Run).expect("a shell");
    wait_until("all processes start", &|| processes(folder.path()) >= 6);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id())).expect("its status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a mask");
    assert_eq!(ignored & 1, 1, "SIGHUP, the first signal");
    signal(&child, Signal::TERM);
    let status = child.0.wait().expect("weir ends");
    assert_eq!(status.code(), Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = start(folder.path(), LIVE);
    wait_until("all processes start", &|| processes(folder.path()) >= 6);
    signal(&first, Signal::KILL);
    first.0.wait().expect("weir ends");
    wait_until("all processes end", &|| processes(folder.path()) == 0);
    assert_eq!(left(folder.path()), 1);
    let mut second = start(folder.path(), LIVE);
    wait_until("all processes start", &|| processes(folder.path()) >= 6);
    assert_eq!(left(folder.path()), 1, "only its own");
    signal(&second, Signal::TERM);
    second.0.wait().expect("weir ends");
    assert_eq!(left(folder.path()), 0);
}
