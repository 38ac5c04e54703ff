//! Blocks from the command line, with the coordinator and the agents of `weir up`.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::process::{Process, refused, weir};

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(30);

/// What `weir up` runs, and a folder for files.
struct Cluster {
    up: Process,
    /// All that it said before it waits.
    said: String,
    dir: tempfile::TempDir,
}

impl Cluster {
    fn start(options: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("env");
        // These tests may run under nohup, or in the background of a shell, whose children ignore signals.
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_weir"), "up"]).args(options);
        command.env("TMPDIR", dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut up = Process::spawn(&mut command);
        let mut output = BufReader::new(up.0.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("Ctrl-C") {
            assert!(output.read_line(&mut said).unwrap() > 0, "it ended: {said}");
        }
        Cluster { up, said, dir }
    }

    /// The socket of a host's agent.
    fn agent(&self, host: u32) -> PathBuf {
        let first = self.said.split("WEIR_AGENT=").nth(1).unwrap().lines().next().unwrap();
        Path::new(first).parent().unwrap().with_file_name(format!("host-{host}")).join("agent.sock")
    }

    /// `weir` on words, at a host.
    fn command(&self, host: u32, line: &str) -> Command {
        let mut command = weir(&line.split(' ').collect::<Vec<_>>());
        command.current_dir(self.dir.path()).env("WEIR_AGENT", self.agent(host));
        command.env_remove("WEIR_COFLOW").env_remove("WEIR_COORDINATOR").stdin(Stdio::null());
        command
    }

    fn run(&self, host: u32, line: &str) -> Output {
        self.command(host, line).output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, host: u32, line: &str) -> String {
        let output = self.run(host, line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit code and the one line of a failure.
    #[track_caller]
    fn fail(&self, host: u32, line: &str) -> (i32, String) {
        let output = self.run(host, line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
        (output.status.code().unwrap(), said)
    }

    fn register(&self) -> String {
        self.succeed(0, "register").trim().to_owned()
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    /// Files of blocks in a host's spool.
    fn spooled(&self, host: u32) -> usize {
        std::fs::read_dir(self.agent(host).with_file_name("blocks")).unwrap().count()
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

#[test]
fn the_lines_that_up_prints_move_a_block_from_one_host_to_another() {
    let cluster = Cluster::start(&[]);
    let lines: Vec<&str> = cluster.said.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert_eq!(lines.len(), 5, "{}", cluster.said);
    let mut shell = Command::new("sh");
    let script = format!("set -e\n{}", lines.join("\n"));
    let output = shell.arg("-c").arg(script).current_dir(cluster.dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let copy = std::fs::read(cluster.dir.path().join("copy-of-weir")).unwrap();
    assert!(copy == std::fs::read(env!("CARGO_BIN_EXE_weir")).unwrap());
    assert_eq!(cluster.spooled(0), 0, "it was unregistered");
    assert!(cluster.said.contains("demo: a coflow of 2 blocks"), "{}", cluster.said);
}

#[test]
fn what_up_made_goes_with_it_however_it_ends() {
    let cluster = Cluster::start(&[]);
    let folder = cluster.agent(0).parent().unwrap().parent().unwrap().to_owned();
    assert!(folder.exists());
    let Cluster { mut up, dir, .. } = cluster;
    kill_process(Pid::from_child(&up.0), Signal::INT).unwrap();
    assert_eq!(up.0.wait().unwrap().code(), Some(130));
    assert!(!folder.exists());
    let mut said = String::new();
    up.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "an end is no reason to warn");
    // Killed, it leaves the folder, and the next one removes it.
    let mut killed = Cluster::start(&["--hosts", "2"]);
    killed.up.kill();
    let folder = killed.agent(0).parent().unwrap().parent().unwrap().to_owned();
    assert!(folder.exists());
    let mut next = weir(&["up", "--once"]);
    assert!(next.env("TMPDIR", killed.dir.path()).output().unwrap().status.success());
    assert!(!folder.exists());
    drop(dir);
}

#[test]
fn files_pipes_and_ranges_become_blocks_and_come_back_byte_by_byte() {
    let cluster = Cluster::start(&["--link-rate", "10gbit"]);
    let coflow = cluster.register();
    let large = pattern(3_000_001);
    cluster.file("large", &large);
    cluster.file("empty", b"");
    assert_eq!(cluster.succeed(0, &format!("put -c {coflow} large empty")).lines().count(), 2);
    cluster.succeed(0, &format!("put -c {coflow} --name part --offset 10 --length 100 large"));
    let mut piped = cluster.command(0, &format!("put -c {coflow} --name dir/piped -"));
    let mut piped = Process::spawn(piped.stdin(Stdio::piped()));
    piped.0.stdin.take().unwrap().write_all(&large).unwrap();
    assert!(piped.0.wait().unwrap().success());
    for (block, bytes) in
        [("large", &large[..]), ("empty", b""), ("part", &large[10..110]), ("dir/piped", &large)]
    {
        cluster.succeed(1, &format!("get -c {coflow} --verify-whole {block} copy"));
        assert!(std::fs::read(cluster.dir.path().join("copy")).unwrap() == bytes, "{block}");
        let output = cluster.run(2, &format!("get -c {coflow} {block} -"));
        assert!(output.stdout == bytes, "{block}");
    }
    // Without a name it is a file here, and nowhere else.
    cluster.succeed(1, &format!("get -c {coflow} dir/piped"));
    assert!(std::fs::read(cluster.dir.path().join("piped")).unwrap() == large);
    let listed = cluster.succeed(2, &format!("list {coflow}"));
    let names: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["dir/piped", "empty", "large", "part"]);
    assert!(cluster.succeed(1, "list").contains(&coflow));
    assert!(cluster.succeed(1, &format!("why {coflow}")).contains("waits for"));
    cluster.succeed(0, &format!("seal {coflow}"));
    assert!(cluster.succeed(0, &format!("unregister {coflow}")).contains("8 flows"));
    assert!(cluster.succeed(0, &format!("why {coflow}")).contains("has ended"));
}

#[test]
fn a_file_is_put_in_place_where_the_agent_may_serve_it_and_refused_elsewhere() {
    let shared = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&["--allow", shared.path().to_str().unwrap()]);
    let coflow = cluster.register();
    let bytes = pattern(600_000);
    std::fs::write(shared.path().join("data"), &bytes).unwrap();
    cluster.file("elsewhere", &bytes);
    let path = shared.path().join("data");
    cluster.succeed(0, &format!("put -c {coflow} --in-place {}", path.display()));
    assert_eq!(cluster.spooled(0), 0, "nothing is copied");
    cluster.succeed(1, &format!("get -c {coflow} data copy"));
    assert!(std::fs::read(cluster.dir.path().join("copy")).unwrap() == bytes);
    let (code, said) = cluster.fail(0, &format!("put -c {coflow} --in-place elsewhere"));
    assert!(code == 4 && said.contains("elsewhere"), "{code}: {said}");
    // What was put in place and then changed is served to nobody.
    std::fs::write(&path, pattern(600_001)).unwrap();
    let (code, said) = cluster.fail(2, &format!("get -c {coflow} data copy-2"));
    assert!(code == 4 && said.contains("changed"), "{code}: {said}");
    assert!(!cluster.dir.path().join("copy-2").exists());
}

#[test]
fn exit_codes_tell_what_may_be_tried_again_from_what_will_not_come() {
    let cluster = Cluster::start(&[]);
    let coflow = cluster.register();
    cluster.file("file", b"bytes");
    // Nobody has put it yet.
    let (code, said) = cluster.fail(1, &format!("get -c {coflow} --time-limit 1 nothing"));
    assert_eq!(code, 3, "{said}");
    assert!(!cluster.dir.path().join("nothing").exists());
    // Nobody is there.
    let nowhere = cluster.dir.path().join("no.sock");
    for line in ["put -c 7 file", "get -c 7 file", "register"] {
        let mut command = cluster.command(0, line);
        let output = command.env("WEIR_AGENT", &nowhere).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("no.sock") && said.contains("WEIR_AGENT"), "{said}");
    }
    let (code, said) = cluster.fail(0, "register --coordinator 127.0.0.1:1");
    assert!(code == 3 && said.contains("no coordinator answers at 127.0.0.1:1"), "{said}");
    // It has ended, or never was.
    cluster.succeed(0, &format!("unregister {coflow}"));
    let never = (coflow.parse::<u64>().unwrap() + 1000).to_string();
    for (coflow, commands) in
        [(&coflow, &["get -c C file", "put -c C file", "seal C"][..]), (&never, &["get -c C file", "seal C"])]
    {
        for command in commands {
            let (code, said) = cluster.fail(0, &command.replace('C', coflow));
            assert!(code == 4 && said.contains(coflow), "{command}: {code}: {said}");
        }
    }
    // An id of before this coordinator's process may be told of by an agent that is still on its way.
    assert_eq!(cluster.fail(1, "get -c 7 --time-limit 1 file").0, 3);
    assert!(cluster.succeed(0, &format!("unregister {coflow}")).contains("had ended before"));
}

#[test]
fn what_cannot_be_is_refused_in_one_line_before_anything_is_put() {
    let cluster = Cluster::start(&[]);
    let coflow = cluster.register();
    cluster.file("file", b"bytes");
    std::fs::create_dir_all(cluster.dir.path().join("folder/below")).unwrap();
    std::fs::write(cluster.dir.path().join("folder/file"), "other").unwrap();
    for (line, names) in [
        ("put file", "WEIR_COFLOW"),
        ("get file", "WEIR_COFLOW"),
        ("seal", "WEIR_COFLOW"),
        ("put -c x file", "x"),
        ("put -c 7", "FILE"),
        ("put -c 7 -", "--name"),
        ("put -c 7 missing", "missing"),
        ("put -c 7 file missing", "missing"),
        ("put -c 7 --in-place --name x -", "standard input"),
        ("put -c 7 folder", "folder is a folder"),
        ("put -c 7 --in-place folder", "folder is a folder"),
        ("put -c 7 --in-place /dev/null", "/dev/null is no plain file"),
        ("put -c 7 folder/..", "--name"),
        ("put -c 7 --name a file folder/file", "--name"),
        ("put -c 7 file folder/file", "one block"),
        ("put -c 7 --offset 6 file", "5 bytes"),
        ("put -c 7 --length 6 file", "5 bytes"),
        ("put -c 7 --offset 5 --length 18446744073709551615 file", "5 bytes"),
        ("get -c 7 .. ", "no file is called"),
        ("get -c 7 folder/", "no file is called"),
        ("get -c 7 file folder", "directory"),
        ("get -c 7 file missing/copy", "missing"),
        ("get -c 7 file --time-limit -1", "time-limit"),
        ("get -c 7 file --holder nobody", "--holder"),
        ("register --stop-if-refused", "--deadline-ms"),
        ("register --lease 18446744073709551615", "--lease"),
        ("register --flows -1", "flows"),
        ("register --weight 0", "above 0"),
        ("register --weight nan", "above 0"),
        ("up --share /missing", "--share /missing"),
        ("up --allow /etc/hostname", "no folder"),
        ("up --link-rate 1bit", "between"),
        ("up --hosts 1", "--hosts"),
        ("up --hosts 65", "--hosts"),
        ("up --link-rate fast", "--link-rate"),
        ("up --policy none", "none"),
        ("list 7 --coflows", "--coflows"),
        ("status --agent a --controller 127.0.0.1:1", "--controller"),
    ] {
        let (code, said) = cluster.fail(0, line.trim_end());
        assert!(code == 2 && said.contains(names), "{line}: {code}: {said}");
    }
    for (variable, value) in [("WEIR_COFLOW", "abc"), ("WEIR_COORDINATOR", "nowhere")] {
        let mut command = cluster.command(0, "seal");
        let output = command.env("WEIR_COFLOW", &coflow).env(variable, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(&format!("{variable}={value}")), "{said}");
    }
    // Names that nothing has, and such as would be lines of their own.
    let long = "n".repeat(256);
    for words in [
        &["get", "-c", "7", ""][..],
        &["get", "-c", "7", &long],
        &["put", "-c", "7", "--name", "", "file"],
        &["put", "-c", "7", "./no\nsuch\x1b[31m"],
        &["get", "-c", "7", "file", "no\nfolder/x"],
        &["get", "-c", "7", "file", "--agent", "no\nsocket"],
        &["get", "-c", "x\ny", "file"],
        &["cp", "0:/a\nb", "no\nfolder/x"],
    ] {
        let output = cluster.command(0, words[0]).args(&words[1..]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.lines().count() == 1 && !said.contains('\x1b'), "{words:?}: {said:?}");
        assert!([Some(2), Some(3)].contains(&output.status.code()), "{words:?}: {said:?}");
    }
    // What the coordinator refuses is refused for good.
    for line in ["register --lease 1", "register --deadline-ms 99999999999999"] {
        assert_eq!(cluster.fail(0, line).0, 4, "{line}");
    }
    assert_eq!(cluster.spooled(0), 0);
    let listed = cluster.succeed(0, &format!("list {coflow}"));
    assert_eq!(listed, "", "nothing was put");
    refused(&["up", "--listen", "nowhere"]);
}

/// Reads slowly, or not at all, from a pipe that the test holds.
fn put_from_pipe(cluster: &Cluster, coflow: &str) -> Child {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_weir"), "put", "-c", coflow]);
    command.args(["--name", "half", "-"]).env("WEIR_AGENT", cluster.agent(0));
    command.stdin(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_put_that_is_ended_in_the_middle_leaves_nothing_in_the_spool() {
    let cluster = Cluster::start(&[]);
    let coflow = cluster.register();
    for signal in [Signal::INT, Signal::KILL] {
        let mut put = put_from_pipe(&cluster, &coflow);
        let mut pipe = put.stdin.take().unwrap();
        pipe.write_all(&pattern(2_000_000)).unwrap();
        // What comes later is not written: the command waits for it.
        kill_process(Pid::from_child(&put), signal).unwrap();
        let ended = put.wait().unwrap();
        assert!(!ended.success());
        if signal == Signal::INT {
            assert_eq!(ended.code(), Some(130));
        }
        assert_eq!(cluster.spooled(0), 0, "after {signal:?}");
    }
    assert_eq!(cluster.succeed(0, &format!("list {coflow}")), "");
}

#[test]
fn a_get_that_is_ended_in_the_middle_leaves_the_file_as_it_was() {
    let cluster = Cluster::start(&["--link-rate", "10mbit"]);
    let coflow = cluster.register();
    cluster.file("file", &pattern(20_000_000));
    cluster.file("old", b"old");
    cluster.succeed(0, &format!("put -c {coflow} file"));
    let files = || std::fs::read_dir(cluster.dir.path()).unwrap().count();
    let before = files();
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_weir"), "get", "-c", &coflow]);
    command.args(["file", "old"]).env("WEIR_AGENT", cluster.agent(1)).current_dir(cluster.dir.path());
    let mut get = Process::spawn(&mut command);
    let moves = || cluster.succeed(0, &format!("why {coflow}")).contains("it is moving");
    wait_until("it moves", moves);
    kill_process(Pid::from_child(&get.0), Signal::TERM).unwrap();
    assert_eq!(get.0.wait().unwrap().code(), Some(143));
    assert_eq!(std::fs::read(cluster.dir.path().join("old")).unwrap(), b"old");
    assert_eq!(files(), before, "nothing unfinished is left");
    // And the flow is over: nobody reads.
    wait_until("the flow ends", || cluster.succeed(0, &format!("why {coflow}")).contains("0 flows left"));
}

#[test]
fn a_reader_of_standard_output_that_goes_away_ends_the_get_without_a_word() {
    let cluster = Cluster::start(&["--link-rate", "100mbit"]);
    let coflow = cluster.register();
    cluster.file("file", &pattern(5_000_000));
    cluster.succeed(0, &format!("put -c {coflow} file"));
    let mut command = cluster.command(1, &format!("get -c {coflow} file -"));
    let mut get = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut first = [0; 100];
    get.0.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert!(first == pattern(100)[..]);
    let mut said = String::new();
    get.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((get.0.wait().unwrap().code(), said.as_str()), (Some(141), ""));
}

/// All keys of a document, at any depth.
fn keys(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                found.insert(key.clone());
                // Counters are named by the coordinator.
                if key != "counters" {
                    keys(value, found);
                }
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

#[test]
fn the_page_on_blocks_has_every_field_that_is_written_and_ids_are_text() {
    let cluster = Cluster::start(&[]);
    cluster.file("file", b"bytes");
    let mut found = BTreeSet::new();
    let mut ask = |line: &str| {
        let output = cluster.run(0, &format!("{line} --json"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        keys(&document, &mut found);
        document
    };
    let coflow = ask("register --name a --deadline-ms 60000")["coflow"].as_str().unwrap().to_owned();
    assert!(coflow.parse::<u64>().unwrap() > 1 << 53);
    ask(&format!("put -c {coflow} file"));
    ask(&format!("get -c {coflow} file copy"));
    let listed = ask(&format!("list {coflow}"));
    assert_eq!(listed["blocks"][0]["bytes"], 5);
    assert_eq!(ask(&format!("why {coflow}"))["live"]["coflow"], coflow.as_str());
    ask("list --coflows");
    ask("status");
    ask(&format!("seal {coflow}"));
    assert_eq!(ask(&format!("unregister {coflow}"))["record"]["bytes"], 5);
    assert_eq!(ask(&format!("why {coflow}"))["state"], "ended");
    let page = include_str!("../../../docs/blocks.md");
    let missing: Vec<&String> = found.iter().filter(|key| !page.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/blocks.md lacks {missing:?}");
}

#[test]
fn a_file_of_another_host_is_copied_in_one_go_and_nothing_stays() {
    let shared = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&["--share", shared.path().to_str().unwrap()]);
    let bytes = pattern(3_000_001);
    let path = shared.path().join("data: 1");
    std::fs::write(&path, &bytes).unwrap();
    std::fs::write(shared.path().join("empty"), "").unwrap();
    let from = format!("0:{}", path.display());
    for to in ["copy", "-"] {
        let mut command = cluster.command(1, "cp");
        let output = command.args([&from, to]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let copy =
            if to == "-" { output.stdout } else { std::fs::read(cluster.dir.path().join(to)).unwrap() };
        assert!(copy == bytes, "{to}");
    }
    let said = cluster.succeed(2, &format!("cp --json 1:{}/empty", shared.path().display()));
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((document["bytes"].as_u64(), document["block"].as_str()), (Some(0), Some("file")));
    assert!(cluster.dir.path().join("empty").exists());
    assert_eq!(cluster.succeed(0, "list"), "", "the coflows have ended");
    assert_eq!([0, 1, 2].map(|host| cluster.spooled(host)), [0; 3]);
}

#[test]
fn no_file_is_taken_that_its_host_does_not_share() {
    let (shared, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = ["--share", shared.path().to_str().unwrap(), "--allow", other.path().to_str().unwrap()];
    let cluster = Cluster::start(&options);
    std::fs::write(other.path().join("secret"), "secret").unwrap();
    std::fs::create_dir(shared.path().join("folder")).unwrap();
    std::os::unix::fs::symlink(other.path().join("secret"), shared.path().join("link")).unwrap();
    std::os::unix::fs::symlink(other.path(), shared.path().join("folder/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        shared.path().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let (shared, other) = (shared.path().display().to_string(), other.path().display().to_string());
    let journal = cluster.agent(0).with_file_name("own").join("journal.jsonl").display().to_string();
    for path in [
        format!("{other}/secret"),
        format!("{shared}/link"),
        format!("{shared}/folder/link/secret"),
        format!("{shared}/../{}/secret", other.rsplit('/').next().unwrap()),
        format!("{shared}/fifo"),
        format!("{shared}/folder"),
        shared.clone(),
        format!("{shared}/missing"),
        "/dev/zero".to_owned(),
        "/proc/self/environ".to_owned(),
        journal,
        format!("/{}", "a".repeat(5_000)),
    ] {
        let (code, said) = cluster.fail(1, &format!("cp 0:{path} taken"));
        assert_eq!(code, 4, "{path}: {said}");
        assert!(!cluster.dir.path().join("taken").exists());
    }
    for line in ["cp 0:file", "cp /file", "cp a/b:/file", "cp 0:/ taken/", "cp 0:/"] {
        assert_eq!(cluster.fail(1, line).0, 2, "{line}");
    }
    // A host that is not there may come.
    let (code, said) = cluster.fail(1, &format!("cp 9:{shared}/file taken"));
    assert!(code == 3 && said.contains("host 9 has no agent"), "{code}: {said}");
    assert_eq!(cluster.succeed(0, "list"), "", "the coflows have ended");
    // An agent that shares nothing says so.
    let closed = Cluster::start(&[]);
    let (code, said) = closed.fail(1, "cp 0:/etc/hostname");
    assert!(code == 4 && said.contains("--share"), "{code}: {said}");
}

#[test]
fn a_copy_that_is_killed_in_the_middle_is_over_soon() {
    let shared = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&["--share", shared.path().to_str().unwrap(), "--link-rate", "10mbit"]);
    std::fs::write(shared.path().join("file"), pattern(50_000_000)).unwrap();
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_weir"), "cp"]);
    command.args([&format!("0:{}/file", shared.path().display()), "copy"]);
    command.env("WEIR_AGENT", cluster.agent(1)).current_dir(cluster.dir.path());
    let mut copy = Process::spawn(&mut command);
    wait_until("it moves", || cluster.succeed(0, "list").contains("it is moving"));
    kill_process(Pid::from_child(&copy.0), Signal::TERM).unwrap();
    assert_eq!(copy.0.wait().unwrap().code(), Some(143));
    assert_eq!(cluster.succeed(0, "list"), "", "it ended its coflow");
    let mut copy = Process::spawn(&mut command);
    wait_until("it moves", || cluster.succeed(0, "list").contains("it is moving"));
    copy.kill();
    // Its lease is 10 s.
    wait_until("its coflow ends", || cluster.succeed(0, "list").is_empty());
    assert!(!cluster.dir.path().join("copy").exists());
}

#[test]
fn a_file_that_says_it_is_empty_and_one_without_an_end_are_put_as_they_are_read() {
    let cluster = Cluster::start(&[]);
    let coflow = cluster.register();
    // Files in /proc have a length of 0.
    cluster.succeed(0, &format!("put -c {coflow} --name version /proc/version"));
    let output = cluster.run(1, &format!("get -c {coflow} version -"));
    assert!(!output.stdout.is_empty() && output.stdout == std::fs::read("/proc/version").unwrap());
    cluster.succeed(0, &format!("put -c {coflow} --name zeros --offset 3 --length 70000 /dev/zero"));
    let output = cluster.run(1, &format!("get -c {coflow} zeros -"));
    assert!(output.stdout == [0; 70_000]);
}

#[test]
fn a_limit_on_the_size_of_files_is_told_as_a_full_disk_is_and_leaves_nothing() {
    let cluster = Cluster::start(&["--link-rate", "10gbit"]);
    let coflow = cluster.register();
    cluster.file("file", &pattern(3_000_000));
    cluster.succeed(0, &format!("put -c {coflow} file"));
    let limited = |words: &str| {
        let script = format!("ulimit -f 100; exec {} {words}", env!("CARGO_BIN_EXE_weir"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(cluster.dir.path()).env("WEIR_AGENT", cluster.agent(1));
        let output = shell.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let before = std::fs::read_dir(cluster.dir.path()).unwrap().count();
    for words in [format!("get -c {coflow} file copy"), format!("put -c {coflow} --name other file")] {
        let (code, said) = limited(&words);
        assert!(code == Some(1) && said.contains("File too large"), "{words}: {code:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(cluster.dir.path()).unwrap().count(), before);
    assert_eq!(cluster.spooled(1), 0);
}

#[test]
fn a_put_that_reads_for_longer_than_the_lease_keeps_its_coflow() {
    let cluster = Cluster::start(&[]);
    let coflow = cluster.succeed(0, "register --lease 3").trim().to_owned();
    let mut put = put_from_pipe(&cluster, &coflow);
    let mut pipe = put.stdin.take().unwrap();
    pipe.write_all(b"first").unwrap();
    std::thread::sleep(Duration::from_secs(7));
    pipe.write_all(b" and last").unwrap();
    drop(pipe);
    assert!(put.wait().unwrap().success());
    assert_eq!(cluster.run(1, &format!("get -c {coflow} half -")).stdout, b"first and last");
    // Without a coordinator nobody renews, and the put needs none.
    cluster.file("file", b"bytes");
    cluster.succeed(0, &format!("put -c {coflow} --coordinator 127.0.0.1:1 file"));
}

#[test]
fn a_put_into_an_id_that_was_not_given_yet_harms_no_later_coflow() {
    let cluster = Cluster::start(&[]);
    cluster.file("file", b"bytes");
    let next = (cluster.register().parse::<u64>().unwrap() + 1).to_string();
    cluster.succeed(0, &format!("put -c {next} file"));
    wait_until("the file goes", || cluster.spooled(0) == 0);
    let coflow = cluster.register();
    assert_ne!(coflow, next);
    cluster.succeed(0, &format!("put -c {coflow} file"));
    assert_eq!(cluster.run(1, &format!("get -c {coflow} file -")).stdout, b"bytes");
}
