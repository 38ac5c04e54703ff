//! What daemons say in their logs, and what `weir status` says of them.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

#[expect(dead_code, reason = "a part of it is used here")]
#[path = "support/process.rs"]
mod process;

use process::{Process, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use weir_testbed::free_address;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_log_that_a_slip_would_silence_is_refused_in_one_line() {
    for (variable, value, says) in [
        ("WEIR_LOG", "infoo", "`infoo` is neither a level"),
        ("WEIR_LOG", "warn,weir_deamon=debug", "`weir_deamon=debug`"),
        ("WEIR_LOG", "weir_daemon=loud", "weir_daemon=loud"),
        ("WEIR_LOG_FORMAT", "xml", "`xml` is neither text nor json"),
    ] {
        let output = weir(&["policies"]).env(variable, value).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{value}: {said}");
        assert!(said.starts_with(&format!("weir: {variable}: ")) && said.contains(says), "{said}");
    }
}

/// The message of a line of a log in JSON.
#[track_caller]
fn message(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    line["fields"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn daemons_say_in_their_log_where_they_listen_and_that_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let spool = spool.to_str().unwrap();
    let any = "127.0.0.1:0";
    for arguments in [
        &["coordinator", "--listen", any, "--hosts", "2", "--link-rate", "1gbit"][..],
        &["agent", "--listen", any, "--host", "0", "--spool", spool, "--interface", "none"][..],
        &["relay", "--listen", any, "--name", "oslo-1", "--site", "0"][..],
        &["controller", "--listen", any][..],
    ] {
        let mut command = weir(arguments);
        command.env_remove("WEIR_LOG").env("WEIR_LOG_FORMAT", "json").stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let mut log = BufReader::new(process.0.stderr.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let begins = message(&line);
        let port = begins.split("127.0.0.1:").nth(1).unwrap_or_else(|| panic!("no port: {begins}"));
        let port: String = port.chars().take_while(char::is_ascii_digit).collect();
        assert!(begins.starts_with(arguments[0]) && port.parse::<u16>().unwrap() > 0, "{begins}");
        kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        let messages: Vec<String> = rest.lines().map(message).collect();
        let last = messages.last().unwrap();
        assert!(last.starts_with(arguments[0]) && last.contains("ends"), "{}: {rest}", arguments[0]);
        assert!(process.0.wait().unwrap().success());
    }
}

fn coordinator(address: &str) -> Process {
    let mut command = weir(&["coordinator", "--listen", address, "--hosts", "2", "--link-rate", "1gbit"]);
    Process::spawn(command.stderr(Stdio::null()))
}

#[test]
fn a_watch_goes_on_when_the_coordinator_was_away_and_writes_no_escape_codes_into_a_pipe() {
    let address = free_address().unwrap().to_string();
    let mut running = coordinator(&address);
    while std::net::TcpStream::connect(&address).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut watch = weir(&["status", "--watch", "--coordinator", &address]);
    let mut watch = Process::spawn(watch.stdout(Stdio::piped()));
    let mut said = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut until = |what: &str| {
        let line = said.find(|line| line.as_ref().unwrap().contains(what));
        let line = line.unwrap_or_else(|| panic!("it ended before {what}")).unwrap();
        assert!(!line.contains('\x1b'), "{line:?}");
    };
    until("policy varys");
    running.kill();
    until("trying again");
    let _again = coordinator(&address);
    until("policy varys");
}

#[test]
fn a_status_of_a_port_that_nobody_listens_at_names_the_reason_and_not_the_transport() {
    let address = free_address().unwrap().to_string();
    for who in ["coordinator", "controller"] {
        let output = weir(&["status", &format!("--{who}"), &address]).output().unwrap();
        let said = text(&output.stderr);
        // It may be there later.
        assert_eq!((output.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(
            said.starts_with(&format!("weir: no {who} answers at {address}: Connection refused")),
            "{said}"
        );
    }
}

#[test]
fn a_status_asked_of_another_daemon_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    let spool = spool.to_str().unwrap();
    let any = "127.0.0.1:0";
    for (arguments, who) in [
        (&["coordinator", "--listen", any, "--hosts", "2", "--link-rate", "1gbit"][..], "controller"),
        (&["controller", "--listen", any][..], "coordinator"),
        (
            &["agent", "--listen", any, "--host", "0", "--spool", spool, "--interface", "none"][..],
            "coordinator",
        ),
    ] {
        let mut command = weir(arguments);
        command.env_remove("WEIR_LOG").env("WEIR_LOG_FORMAT", "json").stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let mut line = String::new();
        BufReader::new(process.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let begins = message(&line);
        let address = begins.split([' ', ',']).find(|word| word.starts_with("127.0.0.1:")).unwrap();
        let output = weir(&["status", &format!("--{who}"), address]).output().unwrap();
        let said = text(&output.stderr);
        // It refused, or did not understand.
        assert!(matches!(output.status.code(), Some(3 | 4)) && said.lines().count() == 1, "{said}");
        assert!(said.starts_with(&format!("weir: what listens at {address} ")), "{said}");
        assert!(said.contains(&format!("give --{who} the address")), "{said}");
    }
}
