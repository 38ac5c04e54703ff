//! `weir tag` on a host of a test bed: what it prints, what it takes over, how it ends.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::{Command, Output};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn weir(words: &[&str]) -> Output {
    Command::new(WEIR).args(words).output().unwrap()
}

fn complaint(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
#[cfg(not(feature = "ebpf"))]
fn a_build_without_the_program_says_how_to_make_one_with_it() {
    let output = weir(&["tag", "--interface", "lo"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("--features weir-cli/ebpf"), "{}", complaint(&output));
}

#[test]
#[cfg(feature = "ebpf")]
fn files_and_interfaces_that_cannot_be_are_refused_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tags.toml");
    std::fs::write(&file, "thresholds = [\"2MB\", \"1MB\"]").unwrap();
    let file = file.to_str().unwrap();
    // Of zeros: an error that shows its line has megabytes.
    let [long, never] =
        [("long", "\0".repeat(3_000_000)), ("never", "idle = \"0s\"".to_owned())].map(|(name, text)| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        });
    let spool = dir.path().join("spool");
    let agent = |words: [&'static str; 2]| {
        let first = ["agent", "--host", "0", "--listen", "127.0.0.1:0", "--interface", "none", "--spool"];
        [&first[..], &[spool.to_str().unwrap()], &words].concat()
    };
    for (words, said) in [
        (agent(["--tag", "no-such-one"]), "no interface no-such-one"),
        (vec!["tag", "--interface", "lo", "--tags", file], "rising"),
        (vec!["tag", "--interface", "lo", "--tags", &long], "--tags "),
        (vec!["tag", "--interface", "lo", "--tags", &never], "idle: 0s; give a time above that, or \"none\""),
        (vec!["tag", "--interface", "lo", "--tags", "/dev/null/none"], "--tags /dev/null/none"),
        (vec!["tag", "--interface", "no-such-one"], "no interface no-such-one"),
    ] {
        let output = weir(&words);
        let complaint = complaint(&output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains(said) && complaint.lines().count() == 1, "{complaint}");
        assert!(complaint.len() < 1_000, "{} bytes", complaint.len());
    }
}

/// Held by a test that has congestion controls: their names are the machine's.
#[cfg(feature = "ebpf")]
static CONTROLS: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(feature = "ebpf")]
fn on_a_bed(test: fn(&weir_testbed::Bed)) {
    use weir_testbed::{Bed, BedError, BedLinks};
    match Bed::create(&BedLinks::equal(2, 1_000_000_000)) {
        Ok(bed) => test(&bed),
        Err(lack @ (BedError::NoRights { .. } | BedError::MissingTool { .. })) => {
            assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped: {lack}");
            eprintln!("SKIPPED: {lack}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
#[cfg(feature = "ebpf")]
fn flows_are_tagged_until_it_is_ended() {
    on_a_bed(live::tagged);
}

#[test]
#[cfg(feature = "ebpf")]
fn what_an_agent_serves_has_the_class_of_its_size() {
    on_a_bed(live::served);
}

#[test]
#[cfg(feature = "ebpf")]
fn what_a_command_sends_has_the_class_that_was_said_of_it() {
    on_a_bed(live::hinted);
}

#[test]
#[cfg(feature = "ebpf")]
fn sockets_may_have_the_controls_while_the_tagger_runs() {
    let _alone = CONTROLS.lock();
    on_a_bed(programs::controlled);
}

#[test]
#[cfg(feature = "ebpf")]
fn a_command_has_the_control_that_was_asked_for_and_karunas_with_a_deadline() {
    let _alone = CONTROLS.lock();
    on_a_bed(control::chosen);
}

#[test]
#[cfg(feature = "ebpf")]
fn a_coflow_with_a_deadline_goes_no_faster_than_that_takes_where_its_agent_has_mcp() {
    let _alone = CONTROLS.lock();
    on_a_bed(just_in_time::ended_just_before_the_deadline);
}

#[test]
#[cfg(feature = "ebpf")]
fn a_port_marks_what_meets_a_long_queue_until_it_is_ended() {
    programs::marked();
}

#[test]
#[cfg(feature = "ebpf")]
fn programs_that_are_ended_or_killed_leave_nothing_and_their_cost_is_told() {
    let _alone = CONTROLS.lock();
    programs::measured();
}

#[test]
#[cfg(feature = "ebpf")]
fn a_command_has_its_own_exit_and_its_group_goes_with_it() {
    run::ended();
}

#[test]
#[cfg(feature = "ebpf")]
fn a_command_in_a_command_has_what_was_said_of_it_last() {
    run::within();
}

#[test]
#[cfg(feature = "ebpf")]
fn a_killed_run_leaves_its_command_and_the_next_removes_its_group() {
    run::killed();
}

#[test]
#[cfg(feature = "ebpf")]
fn coflows_go_by_order_alone_one_after_the_other() {
    ordered::one_after_the_other();
}

#[test]
#[cfg(feature = "ebpf")]
fn small_coflows_that_are_left_to_tcp_pass_large_ones_where_agents_tag() {
    ordered::small_before_large();
}

#[test]
#[cfg(feature = "ebpf")]
fn flows_of_a_scenario_move_on_a_bed_as_in_the_simulator() {
    let _alone = CONTROLS.lock();
    flows::moved();
}

#[test]
fn what_no_host_can_do_is_refused_before_anything_runs() {
    flows::refused();
}

#[test]
#[cfg(feature = "ebpf")]
fn classes_need_switches_that_have_some() {
    for option in ["--policy by-class", "--tags"] {
        let mut words = vec!["live", "--loopback"];
        words.extend(option.split(' '));
        let output = weir(&words);
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint(&output).contains(&format!("{option} needs switches")), "{}", complaint(&output));
    }
}

#[test]
fn tags_without_a_policy_are_refused_for_they_would_change_nothing() {
    let output = weir(&["live", "--policy", "tcp", "--tags"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("--tags changes nothing under tcp"), "{}", complaint(&output));
}

#[test]
fn more_classes_than_switches_have_are_for_simulations_alone() {
    for words in
        [["coordinator", "--policy", "by-class:classes=9"], ["live", "--policy", "by-class:classes=9"]]
    {
        let output = weir(&words);
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint(&output).contains("8 at most"), "{}", complaint(&output));
    }
}

#[test]
#[cfg(not(feature = "ebpf"))]
fn classes_need_a_build_that_tags() {
    for option in [&["--policy", "by-class"][..], &["--tags"]] {
        let output = weir(&[&["live"], option].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint(&output).contains("--features weir-cli/ebpf"), "{}", complaint(&output));
    }
}

#[path = "tag/flows.rs"]
mod flows;

#[cfg(feature = "ebpf")]
#[path = "tag/just_in_time.rs"]
mod just_in_time;

#[cfg(feature = "ebpf")]
#[path = "tag/ordered.rs"]
mod ordered;

#[cfg(feature = "ebpf")]
#[path = "tag/control.rs"]
mod control;

#[cfg(feature = "ebpf")]
#[path = "tag/programs.rs"]
mod programs;

#[cfg(feature = "ebpf")]
#[path = "tag/run.rs"]
mod run;

#[cfg(feature = "ebpf")]
#[path = "../../weir-ebpf/tests/tags/capture.rs"]
#[expect(dead_code, reason = "tests of the tagger look at more of a packet")]
mod capture;

#[cfg(feature = "ebpf")]
mod live {
    use super::capture::Capture;
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    use weir_client::{Client, ClientConfig, GetOptions};
    use weir_testbed::{Bed, Place};

    /// 1 MB under a threshold of 100 kB, then 1 MB more under one of 10 MB.
    const FLOW: usize = 1_000_000;

    pub(super) fn tagged(bed: &Bed) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tags.toml");
        write(&file, "100kB");
        let mut command = bed.command(Place::Host(0), WEIR).unwrap();
        command.args(["tag", "--interface", "eth0", "--tags"]).arg(&file);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = bed.spawn(command).unwrap();
        let pid = Pid::from_child(&child);
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut complaints = BufReader::new(child.stderr.take().unwrap());
        let line = next_line(&mut said);
        if line.is_empty() {
            let complaint = next_line(&mut complaints);
            assert!(complaint.contains("no right"), "{complaint}");
            assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped: {complaint}");
            child.wait().unwrap();
            return eprintln!("SKIPPED flows_are_tagged_until_it_is_ended: {complaint}");
        }
        assert!(line.contains("through eth0"), "{line}");
        transfer(bed);
        for (threshold, expected) in [("nothing", "nothing was changed"), ("10MB", "were read again")] {
            write(&file, threshold);
            kill_process(pid, Signal::HUP).unwrap();
            let line = next_line(&mut complaints);
            assert!(line.contains(expected), "{line}");
        }
        transfer(bed);
        // A pipe that nothing is written to in its place: the tagger goes on, and can be ended.
        std::fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        let line = next_line(&mut complaints);
        assert!(line.contains("was not read within 5 s; nothing was changed"), "{line}");
        kill_process(pid, Signal::INT).unwrap();
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success());
        let classes = rows(&rest);
        let within = |bytes: u64, least: u64| (least..least + 70_000).contains(&bytes);
        // 100 kB and the packet that crosses the threshold, and all of the second flow; the rest of the first.
        assert!(within(classes[0], 1_100_000), "{rest}");
        assert!(classes[1] >= 830_000 && classes[0] + classes[1] >= 2_000_000, "{rest}");
    }

    /// The agent's port; the sizes of blocks that it serves, and the DSCP of each with a threshold of 100 kB.
    const PORT: u16 = 7071;
    const BLOCKS: [(usize, u8); 2] = [(50_000, 40), (1_000_000, 36)];

    /// A large block and a small one by one agent: every packet of each, as it comes to the receiver.
    pub(super) fn served(bed: &Bed) {
        let dir = tempfile::tempdir().unwrap();
        let (file, spool) = (dir.path().join("tags.toml"), dir.path().join("spool"));
        write(&file, "100kB");
        let address = std::net::SocketAddr::new(bed.address(0).into(), PORT);
        let mut command = bed.command(Place::Host(0), WEIR).unwrap();
        command.args(["agent", "--host", "0", "--interface", "none", "--listen", &address.to_string()]);
        command.args(["--tag", "eth0", "--tags"]).arg(&file).arg("--spool").arg(&spool);
        let mut child = bed.spawn(command).unwrap();
        let socket = spool.join("agent.sock");
        let end = Instant::now() + Duration::from_secs(20);
        while !socket.exists() {
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < end, "the agent does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        let client = || Client::new(ClientConfig { coordinator: None, agent: Some(socket.clone()), host: 0 });
        for (size, _) in BLOCKS {
            run(async { client().put_bytes(7, &size.to_string(), &vec![1; size]).await }).unwrap();
        }
        for (size, dscp) in BLOCKS {
            let capture = bed.run_at(Place::Host(1), Capture::start).unwrap().unwrap();
            let options = GetOptions { holders: vec![address], ..GetOptions::default() };
            let name = size.to_string();
            let got =
                bed.run_at(Place::Host(1), || run(async { client().get_bytes(7, &name, options).await }));
            assert_eq!(got.unwrap().unwrap().len(), size);
            let packets = capture.flow(PORT, size as u64).unwrap();
            let tagged: Vec<u8> = packets.iter().filter(|one| one.payload > 0).map(|one| one.dscp).collect();
            assert!(!tagged.is_empty() && tagged.iter().all(|&one| one == dscp), "{size}: {tagged:?}");
        }
        acknowledged_as_control(bed, address);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Before a flow has a class, what the agent acknowledges waits behind no data: the receiver would ask again and again.
    fn acknowledged_as_control(bed: &Bed, agent: std::net::SocketAddr) {
        let capture = bed.run_at(Place::Host(1), Capture::start).unwrap().unwrap();
        let mut asks = bed.run_at(Place::Host(1), || std::net::TcpStream::connect(agent)).unwrap().unwrap();
        // Until the agent has taken it.
        std::thread::sleep(Duration::from_millis(200));
        asks.write_all(b"W").unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let packets = capture.all().unwrap();
        let of_agent: Vec<u8> =
            packets.iter().filter(|one| one.source_port == PORT).map(|one| one.dscp).collect();
        assert!(of_agent.len() >= 2 && of_agent.iter().all(|&one| one == 48), "{of_agent:?}");
    }

    /// Connections of a command, with 10 and 100 kB as thresholds below a class for deadlines.
    pub(super) fn hinted(bed: &Bed) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tags.toml");
        std::fs::write(&file, "thresholds = [\"10kB\", \"100kB\"]\ndeadlines = true").unwrap();
        let mut command = bed.command(Place::Host(0), WEIR).unwrap();
        command.args(["tag", "--interface", "eth0", "--tags"]).arg(&file).stdout(Stdio::piped());
        let mut tagger = bed.spawn(command).unwrap();
        let line = next_line(&mut BufReader::new(tagger.stdout.take().unwrap()));
        if line.is_empty() {
            assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped");
            tagger.wait().unwrap();
            return eprintln!("SKIPPED: no rights to load programs");
        }
        let address = bed.address(1);
        let listener = bed.run_at(Place::Host(1), || TcpListener::bind((address, 0))).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!("head -c 5000 /dev/zero > /dev/tcp/{address}/{port}");
        let size = ["--size", "50kB"];
        for (options, dscp) in [(&size[..], 32), (&["--size", "50kB", "--deadline", "60s"], 40), (&[], 36)] {
            let capture = bed.run_at(Place::Host(1), Capture::start).unwrap().unwrap();
            let mut command = bed.command(Place::Host(0), WEIR).unwrap();
            command.arg("run").args(options).args(["--", "bash", "-c", &script]);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", complaint(&output));
            let (_, peer) = listener.accept().unwrap();
            let packets = capture.flow(peer.port(), 5000).unwrap();
            let tagged: Vec<u8> = packets.iter().filter(|one| one.payload > 0).map(|one| one.dscp).collect();
            assert!(!tagged.is_empty() && tagged.iter().all(|&one| one == dscp), "{options:?}: {tagged:?}");
        }
        kill_process(Pid::from_child(&tagger), Signal::TERM).unwrap();
        assert!(tagger.wait().unwrap().success());
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    fn write(file: &Path, threshold: &str) {
        std::fs::write(file, format!("thresholds = [\"{threshold}\"]")).unwrap();
    }

    fn next_line(from: &mut impl BufRead) -> String {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        line
    }

    /// Payload of each class.
    fn rows(table: &str) -> Vec<u64> {
        let rows = table.lines().skip(1).map(|line| line.split_whitespace().last().unwrap());
        rows.map(|bytes| bytes.parse().unwrap()).collect()
    }

    fn transfer(bed: &Bed) {
        let address = bed.address(1);
        let listener = bed.run_at(Place::Host(1), || TcpListener::bind((address, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let mut sending = bed.run_at(Place::Host(0), || TcpStream::connect(target)).unwrap().unwrap();
        let (mut receiving, _) = listener.accept().unwrap();
        let reader = std::thread::spawn(move || receiving.read_exact(&mut vec![0; FLOW]).unwrap());
        sending.write_all(&vec![7; FLOW]).unwrap();
        reader.join().unwrap();
    }
}
