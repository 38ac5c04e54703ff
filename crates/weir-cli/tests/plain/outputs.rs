//! Where outputs go: files, links, pipes, devices, standard output, and what is refused. No test writes to a device of
//! this machine: all of them stand in a temporary directory.

use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Two hosts, one coflow of 1 MB.
const TRACE: &str = "2 1\n1 0 1 0 1 1:1\n";
const SCENARIO: &str = "scenarios/packets/four-flows.toml";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `weir` on words, of which those that begin with `D/` are paths in a folder.
fn command(folder: &Path, line: &str) -> Command {
    let folder = folder.to_str().expect("a path");
    let words = line.split(' ').map(|word| match word.strip_prefix("D/") {
        Some(name) => format!("{folder}/{name}"),
        None => word.to_owned(),
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(workspace()).args(words).stdin(Stdio::null());
    command
}

fn run(folder: &Path, line: &str) -> Output {
    command(folder, line).output().expect("weir runs")
}

#[track_caller]
fn succeed(folder: &Path, line: &str) -> Output {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn folder_with_trace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("t.txt"), TRACE).expect("a trace");
    dir
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("a file")
}

#[test]
fn a_link_stays_and_its_target_is_replaced_with_the_mode_it_had() {
    let dir = folder_with_trace();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    std::fs::write(&target, "old").expect("a file");
    std::fs::set_permissions(&target, Permissions::from_mode(0o640)).expect("its mode");
    symlink("target", &link).expect("a link");
    symlink("later", dir.path().join("dangling")).expect("a link");
    succeed(dir.path(), "sim --trace D/t.txt --policy fair --json D/link --report D/dangling");
    assert!(link.is_symlink() && dir.path().join("dangling").is_symlink());
    assert!(read(&target).starts_with("{\"schema\":1"));
    assert_eq!(target.metadata().expect("a file").permissions().mode() & 0o777, 0o640);
    assert!(read(dir.path().join("later")).contains("<html"));
}

/// As `/dev/stdout` is a link to what is behind standard output.
#[test]
fn every_name_of_standard_output_gets_the_output_alone_and_is_not_replaced() {
    let dir = folder_with_trace();
    let (link, behind) = (dir.path().join("stdout"), dir.path().join("behind"));
    symlink("/proc/self/fd/1", &link).expect("a link");
    let header = "run,policy,mode,id,";
    for name in ["D/stdout", "-"] {
        // A file that standard output goes to,
        std::fs::write(&behind, "before\n").expect("a file");
        let append = File::options().append(true).open(&behind).expect("a file");
        let line = format!("sim --trace D/t.txt --policy fair --csv {name}");
        let output = command(dir.path(), &line).stdout(append).stderr(Stdio::piped()).output();
        let output = output.expect("weir runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(read(&behind).starts_with(&format!("before\n{header}")), "{name}: {}", read(&behind));
        assert!(!read(&behind).contains("avg CCT") && said.contains("1 coflows"), "{name}: {said}");
        assert!(link.is_symlink());
        // and a pipe.
        let output = succeed(dir.path(), &line);
        assert!(output.stdout.starts_with(header.as_bytes()), "{name}");
    }
    let mut json = succeed(dir.path(), &format!("packet --scenario {SCENARIO} --transport dctcp --json -"));
    serde_json::from_slice::<serde_json::Value>(&json.stdout).expect("JSON alone");
    json = succeed(dir.path(), "trace convert D/t.txt -");
    assert!(json.stdout.starts_with(b"weir-trace "));
    let names = std::fs::read_dir(dir.path()).expect("a folder").count();
    assert_eq!(names, 3, "the trace, the link and what is behind it");
}

#[test]
fn a_fifo_is_written_to_and_stays_one() {
    let dir = folder_with_trace();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
    for (line, start) in [
        ("sim --trace D/t.txt --policy fair --csv D/fifo".to_owned(), "run,policy"),
        ("trace generate fb2010,hosts=4,coflows=2 --out D/fifo".to_owned(), "weir-trace"),
        (format!("packet --scenario {SCENARIO} --transport dctcp --series D/fifo"), "time"),
    ] {
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || {
                let mut text = String::new();
                File::open(fifo).and_then(|mut file| file.read_to_string(&mut text)).expect("a text");
                text
            }
        });
        succeed(dir.path(), &line);
        assert!(fifo.symlink_metadata().expect("it").file_type().is_fifo(), "{line}");
        let text = reader.join().expect("no panic");
        assert!(text.starts_with(start), "{line}: {text}");
    }
}

/// A node of the null device in a temporary directory, where this process may make one.
#[test]
fn a_device_is_written_to_by_several_options_and_stays_one() {
    let dir = folder_with_trace();
    let node = dir.path().join("null");
    let device = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    if rustix::fs::mknodat(rustix::fs::CWD, &node, kind, 0o666.into(), device).is_err()
        || File::options().write(true).open(&node).is_err()
    {
        eprintln!("SKIPPED: no device can be made here; it takes root");
        return;
    }
    succeed(dir.path(), "sim --trace D/t.txt --policy fair --csv D/null --json D/null --report D/null");
    assert!(node.symlink_metadata().expect("it").file_type().is_char_device());
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 2);
}

/// An experiment of packets in a folder of experiments `D/e`.
fn experiment(dir: &Path) -> PathBuf {
    let folder = dir.join("e/one");
    std::fs::create_dir_all(&folder).expect("a folder");
    let from = workspace().join("experiments/small/experiment.toml");
    std::fs::copy(from, folder.join("experiment.toml")).expect("an experiment");
    folder
}

#[test]
fn an_output_that_is_an_input_or_another_output_is_refused_before_anything_runs() {
    let dir = folder_with_trace();
    let at = |name: &str| dir.path().join(name);
    symlink("t.txt", at("link.txt")).expect("a link");
    std::fs::hard_link(at("t.txt"), at("hard.txt")).expect("a link");
    symlink("new.json", at("new-link")).expect("a link");
    std::fs::copy(workspace().join(SCENARIO), at("s.toml")).expect("a scenario");
    std::fs::copy(workspace().join("scenarios/varys-figure-2.toml"), at("f.toml")).expect("a scenario");
    std::fs::write(at("cdf"), "0 0\n1000 1\n").expect("sizes");
    let mut before = contents(dir.path());
    for (line, says) in [
        ("trace convert D/t.txt D/t.txt", ["OUT", "IN"]),
        ("trace convert D/t.txt D/hard.txt", ["OUT", "IN"]),
        ("sim --trace D/t.txt --policy fair --json D/link.txt", ["--json", "--trace"]),
        ("sim --trace D/link.txt --policy fair --csv D/t.txt", ["--csv", "--trace"]),
        ("sim --scenario D/f.toml --report D/f.toml", ["--report", "--scenario"]),
        ("sim --trace D/t.txt --policy fair --json D/new.json --report D/new.json", ["--report", "--json"]),
        ("sim --trace D/t.txt --policy fair --json D/new.json --report D/new-link", ["--report", "--json"]),
        ("sim --trace D/t.txt --policy fair --json D/a.made_by.json --csv D/a.csv", ["--csv", "--json"]),
        ("sim --trace D/t.txt --policy fair --json - --csv /dev/stdout", ["--csv", "--json"]),
        ("live --trace D/t.txt --hosts 2 --loopback --json D/t.txt", ["--json", "--trace"]),
        ("packet --scenario D/s.toml --transport dctcp --json D/s.toml", ["--json", "--scenario"]),
        ("packet --scenario D/s.toml --transport dctcp --series D/x --pcap D/x", ["--pcap", "--series"]),
        ("thresholds --cdf D/cdf --load 0.5 --json D/cdf", ["--json", "--cdf"]),
    ] {
        let output = run(dir.path(), line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
        assert!(
            says.iter().all(|part| said.contains(part)) && said.contains("would be lost"),
            "{line}: {said}"
        );
    }
    let mut after = contents(dir.path());
    before.sort();
    after.sort();
    assert_eq!(before, after);
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).expect("it")))
        .collect()
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_the_run() {
    let dir = folder_with_trace();
    let results = experiment(dir.path());
    // Where root, too, cannot write.
    std::fs::create_dir(results.join("synthetic-fb2010.svg")).expect("a folder");
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).expect("a socket");
    for (line, says) in [
        ("sim --trace D/t.txt --policy fair --json D/socket", "a socket"),
        ("sim --trace D/t.txt --policy fair --csv D/", "is a directory"),
        ("sim --trace D/t.txt --policy fair --csv D/x/", "directory"),
        ("sim --trace D/t.txt --policy fair --report D/t.txt/x", "Not a directory"),
        ("sim --trace D/t.txt --policy fair --json /proc/weir", "/proc"),
        ("experiment run one --dir D/e", "synthetic-fb2010.svg: is a directory"),
    ] {
        let output = run(dir.path(), line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{line}: {said}");
        assert!(output.stdout.is_empty() && said.contains(says), "{line}: {said}");
    }
    assert_eq!(std::fs::read_dir(results).expect("a folder").count(), 2, "nothing was written");
}

#[test]
fn results_of_an_experiment_go_through_links_and_say_what_made_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let results = experiment(dir.path());
    symlink("../../kept.json", results.join("synthetic-fb2010.json")).expect("a link");
    succeed(dir.path(), "experiment run one --dir D/e");
    assert!(results.join("synthetic-fb2010.json").is_symlink());
    assert!(read(dir.path().join("kept.json")).contains("\"made_by\""));
}

#[test]
fn a_reader_of_an_output_that_stops_ends_the_command_without_a_word() {
    let dir = folder_with_trace();
    let mut child = command(dir.path(), "trace generate fb2010,hosts=50,coflows=2000 --out -")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("weir ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(141), ""));
}
