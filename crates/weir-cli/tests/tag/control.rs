//! `weir run --control`: which congestion control the connections of a command have.

use super::programs::{ended, started};
use super::{WEIR, complaint, weir};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use weir_testbed::{Bed, Place};

/// Where the command that listens does.
const PORT: u16 = 7999;
const DEADLINE: [&str; 4] = ["--size", "1MB", "--deadline", "60s"];

/// What the kernel says of a host's sockets at the port, or of the one that listens there.
fn sockets(bed: &Bed, host: usize, words: &[&str]) -> String {
    let filter = format!("( sport = :{PORT} or dport = :{PORT} )");
    let output =
        bed.run_at(Place::Host(host), || Command::new("ss").args(words).arg(filter).output()).unwrap();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// A command that connects, and holds its connection until its input ends; one connection at a time.
struct Connected(Child);

impl Connected {
    fn with(bed: &Bed, options: &[&str]) -> Connected {
        let address = bed.address(1);
        let script = format!(
            "for i in {{1..200}}; do exec 3<>/dev/tcp/{address}/{PORT} && break; sleep 0.1; done 2>/dev/null; echo; read -r"
        );
        let mut command = bed.command(Place::Host(0), WEIR).unwrap();
        command.arg("run").args(options).args(["--", "bash", "-c", &script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "\n", "it has connected");
        Connected(child)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The controls while a tagger runs.
fn tagger(bed: &Bed) -> Option<(Child, BufReader<ChildStdout>)> {
    let mut command = bed.command(Place::Host(0), WEIR).unwrap();
    command.args(["tag", "--interface", "eth0", "--controls"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    started(bed.spawn(command))
}

pub(super) fn chosen(bed: &Bed) {
    let none = weir(&["run", "--control", "no_such", "--", "true"]);
    assert_eq!(none.status.code(), Some(2), "{}", complaint(&none));
    assert!(complaint(&none).contains("no congestion control no_such, but"), "{}", complaint(&none));
    let Some((child, said)) = tagger(bed) else { return };
    let mut listens = bed.command(Place::Host(1), WEIR).unwrap();
    let listen = format!("{}:{PORT}", bed.address(1));
    listens.args(["run", "--control", "weir_dctcp", "--", WEIR, "coordinator", "--listen", &listen]);
    let mut listens = bed.spawn(listens).unwrap();
    for (options, control) in [
        (&DEADLINE[..], "weir_karuna"),
        (&[&DEADLINE[..], &["--control", "reno"]].concat(), "reno"),
        (&["--control", "weir_dctcp"], "weir_dctcp"),
    ] {
        let _connected = Connected::with(bed, options);
        let seen = sockets(bed, 0, &["-tinoH"]);
        assert!(seen.contains(&format!(" {control} ")), "{options:?}: {seen}");
        // What it accepts has the control of the socket that listens, and only these two ends agree upon ECN in the first packets.
        let theirs = sockets(bed, 1, &["-tinoH"]);
        assert!(theirs.contains(" weir_dctcp ") || control == "reno", "{options:?}: {theirs}");
        assert_eq!(seen.contains("ecn"), control != "reno", "{options:?}: {seen}");
    }
    assert!(sockets(bed, 1, &["-tlinH"]).contains(" weir_dctcp "), "{}", sockets(bed, 1, &["-tlinH"]));
    taken_away(bed, || _ = ended(child, said));
    {
        // Where nothing has Karuna's control, a deadline takes none of it.
        let _connected = Connected::with(bed, &DEADLINE);
        let seen = sockets(bed, 0, &["-tinoH"]);
        assert!(!seen.is_empty() && !seen.contains("weir_"), "{seen}");
    }
    kill_process(Pid::from_child(&listens), Signal::TERM).unwrap();
    listens.wait().unwrap();
}

/// A command that connects after its control is gone goes on by the system's, and it is said.
fn taken_away(bed: &Bed, take_away: impl FnOnce()) {
    let script = format!("echo; read -r; exec 3<>/dev/tcp/{}/{PORT}", bed.address(1));
    let mut command = bed.command(Place::Host(0), WEIR).unwrap();
    command.args(["run", "--control", "weir_dctcp", "--", "bash", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = bed.spawn(command).unwrap();
    // The command runs, so that it has its control group.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    take_away();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(complaint(&output).contains("did not get it: 1"), "{}", complaint(&output));
}
