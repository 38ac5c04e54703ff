//! `weir tag --controls`, `weir mark` and `weir bench tags`.

use super::{WEIR, complaint, weir};
use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use weir_ebpf::DEFAULT_DSCP;
use weir_testbed::{Bed, BedError, BedLinks, Place, Queues};

/// A process that has said its first line; `None` if it has no rights, which on CI is a failure.
pub(super) fn started(child: std::io::Result<Child>) -> Option<(Child, BufReader<ChildStdout>)> {
    let mut child = child.unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if !line.is_empty() {
        return Some((child, said));
    }
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    child.wait().unwrap();
    assert!(complaint.contains("no right") && std::env::var_os("CI").is_none(), "{complaint}");
    eprintln!("SKIPPED: {complaint}");
    None
}

/// Ends it, and returns what else it said.
pub(super) fn ended(mut child: Child, mut said: BufReader<ChildStdout>) -> String {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    rest
}

fn has_control(bed: &Bed, name: &str) -> bool {
    let choose =
        || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap().set_tcp_congestion(name.as_bytes()).is_ok();
    bed.run_at(Place::Host(0), choose).unwrap()
}

pub(super) fn controlled(bed: &Bed) {
    let tagger = |words: &[&str]| {
        let mut command = bed.command(Place::Host(0), WEIR).unwrap();
        command.args(["tag", "--interface", "eth0", "--controls"]).args(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let Some((child, said)) = started(bed.spawn(tagger(&["--link-rate", "1gbit"]))) else { return };
    assert!(has_control(bed, "weir_karuna") && has_control(bed, "weir_dctcp"));
    // Names are the machine's.
    let mut second = bed.command(Place::Host(1), WEIR).unwrap();
    let second = second.args(["tag", "--interface", "eth0", "--controls"]).output().unwrap();
    assert_eq!(second.status.code(), Some(2), "{}", complaint(&second));
    assert!(complaint(&second).contains("weir_karuna already"), "{}", complaint(&second));
    ended(child, said);
    assert!(!has_control(bed, "weir_karuna") && !has_control(bed, "weir_dctcp"));
    let wrong = tagger(&["--base-rtt", "10s"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(complaint(&wrong).contains("base_rtt"), "{}", complaint(&wrong));
}

/// The lines by which docs/congestion.md has a port made, for another one.
fn documented_port(theirs: &str, ours: &str) -> String {
    let page = include_str!("../../../../docs/congestion.md");
    let lines = page.split("```sh\n").find(|block| block.starts_with(theirs)).unwrap();
    lines.split("```").next().unwrap().replace(theirs, ours)
}

/// A sender of 1 Gbit/s into a port of 100 Mbit/s: its queue grows until it is marked.
pub(super) fn marked() {
    let mut links = BedLinks { queues: Queues::ByDscp(DEFAULT_DSCP), ..BedLinks::equal(2, 100_000_000) };
    links.hosts[0].rates.up_bps = 1_000_000_000;
    let bed = match Bed::create(&links) {
        Ok(bed) => bed,
        Err(lack @ (BedError::NoRights { .. } | BedError::MissingTool { .. })) => {
            assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped: {lack}");
            return eprintln!("SKIPPED: {lack}");
        }
        Err(error) => panic!("{error}"),
    };
    for (words, complaint_of) in [
        (vec!["--interface", "no-such-one"], "no interface"),
        (vec!["--interface", "p1", "--leaves", "1:20"], "--leaves: 8 of the form"),
        (
            vec!["--interface", "p1", "--leaves", "1:99,1:21,1:22,1:23,1:24,1:25,1:26,1:27"],
            "no HTB with a leaf 1:99",
        ),
        (vec!["--interface", "p1", "--threshold", "5GB"], "4294967295 bytes are the most"),
    ] {
        let output = bed.run_in_switch(|| weir(&[&["mark"], &words[..]].concat())).unwrap();
        if complaint(&output).contains("no right") && std::env::var_os("CI").is_none() {
            return eprintln!("SKIPPED: {}", complaint(&output));
        }
        assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
        assert!(complaint(&output).contains(complaint_of), "{}", complaint(&output));
    }
    let port = bed.switch_port(1);
    let lines = documented_port("port=p1 rate=1gbit", &format!("port={port} rate=100mbit"));
    let made = bed.run_in_switch(|| Command::new("sh").args(["-ec", &lines]).output()).unwrap().unwrap();
    assert!(made.status.success() && made.stderr.is_empty(), "{}", complaint(&made));
    let start = || {
        let mut command = Command::new(WEIR);
        command.args(["mark", "--interface", &port, "--threshold", "60kB"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn()
    };
    let Some((child, said)) = started(bed.run_in_switch(start).unwrap()) else { return };
    let address = bed.address(1);
    for host in [0, 1] {
        bed.run_at(Place::Host(host), || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1")).unwrap().unwrap();
    }
    let listener = bed.run_at(Place::Host(1), || std::net::TcpListener::bind((address, 0))).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    let mut sending = bed.run_at(Place::Host(0), || std::net::TcpStream::connect(target)).unwrap().unwrap();
    let (mut receiving, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || receiving.read_to_end(&mut Vec::new()).unwrap());
    sending.write_all(&vec![7; 5_000_000]).unwrap();
    drop(sending);
    assert_eq!(reader.join().unwrap(), 5_000_000);
    let rest = ended(child, said);
    let last: Vec<u64> =
        rest.lines().nth(8).unwrap().split_whitespace().map(|cell| cell.parse().unwrap()).collect();
    // Untagged packets are in the last class.
    assert!(last[0] == 7 && last[2] >= 3_000 && last[3] > 10, "{rest}");
}

pub(super) fn measured() {
    let output = weir(&["bench", "tags", "--rounds", "8", "--runs", "1", "--seconds", "1"]);
    if complaint(&output).contains("no right") && std::env::var_os("CI").is_none() {
        return eprintln!("SKIPPED: {}", complaint(&output));
    }
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{said}{}", complaint(&output));
    assert!(said.contains("8 rounds, 4 by SIGKILL: something was left in 0"), "{said}");
    let row = said.lines().find(|line| line.contains("and marker at the switch")).unwrap();
    let rate: f64 = row.split_whitespace().nth(5).unwrap().parse().unwrap();
    assert!(rate > 0.01, "{said}");
}
