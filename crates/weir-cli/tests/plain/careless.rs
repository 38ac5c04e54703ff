//! What a careless user types: every bad input gets one line that says what, where and what to do, and exit 2.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn weir(arguments: &[&str]) -> Output {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(workspace)
        .args(arguments)
        .output()
        .expect("weir runs")
}

/// Two hosts, one coflow of 1 MB, with a byte-order mark before it.
fn trace(dir: &Path, first: &str) -> String {
    let file = dir.join("t.txt");
    std::fs::write(&file, format!("{first}2 1\n1 0 1 0 1 1:1\n")).expect("a trace");
    file.to_str().expect("a path").to_owned()
}

/// One flow larger than any disk: 10^9 MiB.
fn huge(dir: &Path) -> String {
    let file = dir.join("huge.txt");
    std::fs::write(&file, "2 1\n1 0 1 0 1 1:1000000000\n").expect("a trace");
    file.to_str().expect("a path").to_owned()
}

/// Command lines, and what their one line has to say.
const REFUSED: &[(&str, &[&str])] = &[
    ("sim --trace T --policy dclas:first=10", &["--policy", "first=10", "at least 1 kB", "10MB"]),
    ("sim --trace T --policy dclas:first=10B", &["first=10B", "at least 1 kB"]),
    ("sim --trace T --policy dclas:first=10Mb", &["first=10Mb", "a size with its unit"]),
    ("sim --trace T --policy fair --hosts 4000000000", &["--hosts", "4000000000", "1048576"]),
    ("sim --trace T --policy fair --hosts -1", &["--hosts -1", "it takes N", "Number of hosts"]),
    ("sim --trace T --policy fair --count -10", &["--count -10", "it takes N"]),
    ("sim --trace T --policy fair --seed -1", &["--seed -1", "it takes"]),
    ("sim --trace T --policy fair --arrival-scale NaN", &["--arrival-scale", "NaN"]),
    ("sim --trace T --policy fair --arrival-scale -1", &["--arrival-scale", "-1"]),
    (
        "sim --trace synthetic:fb2010 --policy fair --arrival-scale 1e9",
        &["--arrival-scale", "coflow 1 arrives 1530000000 s", "at most 10^9 s"],
    ),
    ("sim --trace T --policy fair --deadlines inf", &["--deadlines", "inf"]),
    ("sim --trace T --policy fair --isolation-cap 0", &["--isolation-cap 0"]),
    ("sim --trace T --policy fair --link-rate 1Gbyte", &["--link-rate", "1Gbyte", "1gbit"]),
    ("sim --trace T --policy fair --link-rate 0mbit", &["--link-rate", "0mbit"]),
    ("sim --trace T --policy fair --first 9 --json /dev/null", &["--first 9 of 1 coflows"]),
    ("sim --trace T --policy fair --count 0", &["--count", "1.."]),
    ("sim --trace T --policy fair,,varys", &["--policy", "``"]),
    ("sim --trace D --policy fair", &["--trace", "directory"]),
    ("sim --trace D/none --policy fair", &["--trace", "none", "No such file"]),
    ("sim --trace  --policy fair", &["--trace"]),
    ("sim --trace synthetic:fb2010,hosts=0 --policy fair", &["hosts=0", "1048576"]),
    ("sim --trace T --policy fair --json D", &["--json", "directory"]),
    ("sim --trace T --policy fair --report D/no/x.html", &["--report", "D/no", "No such file"]),
    ("live --plan-share 2 --loopback", &["--plan-share", "at most 1"]),
    ("live --plan-share -1 --loopback", &["--plan-share", "at most 1"]),
    ("live --runs -1", &["--runs -1", "Repeat everything"]),
    (
        "live --trace H --count 1 --hosts 2 --loopback",
        &["largest flow, 1048.6 TB, into /", " free: ", "--bytes-divisor, --isolation-cap", "TMPDIR"],
    ),
    ("bench loopback --block-mb 99999999999", &["--block-mb 99999999999", "at most 8388608 MB"]),
    ("bench loopback --block-mb 8388608", &["--block-mb 8388608", "8.8 TB in /", "TMPDIR"]),
    ("live --scenario scenarios/varys-figure-2.toml --hosts 4 --loopback", &["--scenario", "--hosts"]),
    ("live --scenario scenarios/varys-figure-2.toml --count 4 --loopback", &["--scenario", "--count"]),
    ("live --trace T --policy siphon --loopback", &["--policy siphon", "weir controller"]),
    ("sim --trace T --policy fair --offline --arrival-scale 2", &["--offline", "--arrival-scale"]),
    ("sim --trace T --policy varys:delta=1s:delta=2s", &["--policy", "`delta` is set twice"]),
    ("sim --trace T --policy varys:T=0:delta=200ms", &["--policy", "T=0"]),
    ("sim --trace synthetic:fb2010,hosts=4,hosts=5 --policy fair", &["--trace", "`hosts` is set twice"]),
    ("packet --scenario S --transport dctcp:init=1:init=2", &["--transport", "`init` is set twice"]),
    ("trace convert T D/out --seed 2", &["--seed 2 changes nothing", "leave it out"]),
    ("coordinator --hosts 2 --link-rate 1gbit --policy siphon", &["--policy siphon", "weir controller"]),
    ("controller --policy varys", &["--policy varys is not for links between sites", "siphon"]),
    (
        "relay --name a --site 0 --listen 127.0.0.1:0 --advertise 0.0.0.0:7072",
        &["--advertise 0.0.0.0:7072", "give the relay's own"],
    ),
    (
        "agent --host 0 --listen 127.0.0.1:0 --interface none --spool /proc",
        &["--spool /proc: nothing can be"],
    ),
    (
        "agent --host 0 --listen 127.0.0.1:0 --interface none --spool D/LONG",
        &["--spool", "of at most 96 bytes"],
    ),
    ("sim --trace T --policy fair --hosts 1", &["--hosts 1", "take 2 or more"]),
    ("sim --trace H --policy fair --link-rate 1bit", &["--link-rate 1 bit/s", "take a higher rate"]),
    ("sim --trace T --policy varis", &["--policy", "did you mean `varys`?"]),
    ("sim --trace T --polcy fair", &["--polcy", "did you mean `--policy`?"]),
    ("packet --scenario S --transport dctp", &["--transport", "did you mean `dctcp`?"]),
    ("pakcet", &["pakcet", "did you mean `packet`?"]),
    ("live --report D/no/x.html --loopback", &["--report", "No such file"]),
    ("trace convert D D/out", &["directory"]),
    ("experiment run small --dir D/none", &["--dir", "none"]),
    ("experiment run small --trace synthetic:other", &["--trace", "unknown synthetic workload `other`"]),
    ("packet --scenario D --transport tcp", &["--scenario", "directory"]),
    ("packet --scenario scenarios/packets/four-flows.toml --transport tpc", &["tpc"]),
];

#[test]
fn careless_input_gets_one_line_and_exit_2() {
    let dir = tempfile::tempdir().expect("a folder");
    let (folder, trace) = (dir.path().to_str().expect("a path"), trace(dir.path(), ""));
    let huge = huge(dir.path());
    let mut wrong = Vec::new();
    for (line, says) in REFUSED {
        let named = |word: &str| match word {
            "T" => trace.clone(),
            "H" => huge.clone(),
            "S" => "scenarios/packets/four-flows.toml".to_owned(),
            "D/LONG" => format!("{folder}/{}", "x".repeat(120)),
            "D" => folder.to_owned(),
            word if word.starts_with("D/") => word.replacen('D', folder, 1),
            word => word.to_owned(),
        };
        let words: Vec<String> = line.split(' ').map(named).collect();
        let output = weir(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let whole = says.iter().all(|part| said.contains(&part.replacen("D/", &format!("{folder}/"), 1)));
        if output.status.code() != Some(2) || said.lines().count() != 1 || !whole {
            wrong.push(format!("{line}: {:?}: {said}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_byte_order_mark_at_the_start_of_a_file_is_skipped() {
    let dir = tempfile::tempdir().expect("a folder");
    let marked = trace(dir.path(), "\u{feff}");
    let output = weir(&["sim", "--trace", &marked, "--policy", "fair"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let scenario = dir.path().join("s.toml");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(workspace.join("scenarios/varys-figure-2.toml")).expect("a scenario");
    std::fs::write(&scenario, format!("\u{feff}{text}")).expect("a file");
    let output = weir(&["sim", "--scenario", scenario.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_closed_output_pipe_ends_a_command_without_a_panic() {
    for line in [
        "policies",
        "experiment list",
        "trace stats",
        "sim --trace synthetic:fb2010,hosts=8,coflows=20,seconds=60 --policy fair",
        "packet --scenario scenarios/packets/four-flows.toml --transport dctcp",
        "thresholds --cdf web-search --load 0.8",
    ] {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // Closed before the command begins: a short one may have said all before it could be closed.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .current_dir(workspace)
            .args(line.split(' '))
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir runs");
        let output = child.wait_with_output().expect("weir ends");
        let said = String::from_utf8_lossy(&output.stderr);
        // As a shell has it of a program that a closed pipe ended.
        assert_eq!((output.status.code(), &*said), (Some(141), ""), "{line}");
    }
}

#[test]
fn a_full_disk_behind_the_output_is_named() {
    for line in ["policies", "experiment list"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.current_dir(workspace).args(line.split(' ')).stdout(full).stderr(Stdio::piped());
        let output = output.spawn().and_then(std::process::Child::wait_with_output).expect("weir runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("weir: standard output: No space left"), "{said}");
    }
    let dir = tempfile::tempdir().expect("a folder");
    for option in ["--json", "--csv"] {
        let output =
            weir(&["sim", "--trace", &trace(dir.path(), ""), "--policy", "fair", option, "/dev/full"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(&format!("{option} /dev/full")) && said.contains("No space left"), "{said}");
    }
}
