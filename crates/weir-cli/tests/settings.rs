//! Settings of daemons from files, variables and the command line, with the real binary.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use support::process::{Process, weir};

fn file(text: &[u8]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Lines of a section, of which the last one is wrong, and what the refusal has to have besides file and line.
const WRONG: &[(&str, &str)] = &[
    // Sections.
    ("hosts = 3", "[coordinator]"),
    ("[coordinatr]", "did you mean `coordinator`"),
    ("[Agent]", "did you mean `agent`"),
    ("[agents]", "did you mean `agent`"),
    ("[sim]", "[controller]"),
    ("agent = 3", "agent is a section"),
    ("agent = [1]", "agent is a section"),
    ("[[agent]]", "agent is a section"),
    // What is no TOML.
    ("[agent", "]"),
    ("[agent]\nhost", "="),
    ("[agent]\nhost =", ""),
    ("[agent]\nhost = 1 2", ""),
    ("[agent]\nspool = /var", ""),
    ("[agent]\nspool = \"/var", ""),
    ("[agent]\nhost = 1\nhost = 2", "duplicate"),
    ("[agent]\n[agent]", "duplicate"),
    ("[agent]\nhost = 01", ""),
    ("[agent]\nallow = [\"/a\" \"/b\"]", ""),
    // Settings that there are not.
    ("[agent]\nhosts = 3", "did you mean `host`"),
    ("[agent]\nspol = \"/a\"", "did you mean `spool`"),
    ("[agent]\nlink_rate = \"1gbit\"", "did you mean `link-rate`"),
    ("[coordinator]\nLink-Rate = \"1gbit\"", "did you mean `link-rate`"),
    ("[coordinator]\nspool = \"/a\"", "no setting spool"),
    ("[coordinator]\nbare-policy = true", "no setting bare-policy"),
    ("[coordinator]\nconfig = \"a\"", "no setting config"),
    ("[coordinator]\nhelp = true", "no setting help"),
    ("[relay]\nhost = 1", "no setting host"),
    ("[controller]\nsites = 3", "no setting sites"),
    ("[agent]\nnested.host = 1", "no setting nested"),
    ("[agent.host]\nx = 1", "host"),
    // Values of another kind.
    ("[agent]\nhost = true", "takes N"),
    ("[agent]\nhost = [1]", "one N"),
    ("[agent]\nhost = {a = 1}", "host"),
    ("[agent]\nhost = 1979-05-27T07:32:00Z", "host"),
    ("[agent]\nspool = false", "takes DIR"),
    ("[agent]\nspool = [\"/a\", \"/b\"]", "one DIR"),
    ("[agent]\nallow = true", "takes DIR"),
    ("[coordinator]\npolicy = [\"varys\"]", "one NAME"),
    // Values beyond their bounds.
    ("[agent]\nhost = -1", "a name has letters"),
    ("[agent]\nhost = 4294967296", "below 16777216"),
    ("[agent]\nhost = \"a b\"", "a name has letters"),
    ("[agent]\nhost = \"\"", "a name has letters"),
    ("[agent]\nlisten = \"localhost\"", "listen"),
    ("[agent]\nlisten = \"10.0.0.1\"", "listen"),
    ("[agent]\nadvertise = \"10.0.0.1\"", "advertise"),
    ("[agent]\ncoordinator = \":7070\"", "coordinator"),
    ("[agent]\nfirst-plan-wait-ms = 60001", "60000"),
    ("[agent]\nreport-interval-ms = 0", "1..="),
    ("[agent]\nbatch-window = 1001", "1000"),
    ("[agent]\nlink-rate = \"fast\"", "link-rate"),
    ("[agent]\nlink-rate = \"10\"", "link-rate"),
    ("[agent]\nlink-rate = \"-1gbit\"", "link-rate"),
    ("[agent]\ndurable = \"disk\"", "process, machine"),
    ("[agent]\ngroup = \"no-such-group\"", "no such group"),
    ("[agent]\nrelay = [\"10.0.0.5:7072\", \"oslo\"]", "oslo"),
    ("[coordinator]\nhosts = 0", "100000"),
    ("[coordinator]\nhosts = 100001", "100000"),
    ("[coordinator]\nplan-share = 0", "above 0"),
    ("[coordinator]\nplan-share = 1.5", "at most 1"),
    ("[coordinator]\nplan-share = nan", "above 0"),
    ("[coordinator]\npolicy = \"varis\"", "did you mean `varys`"),
    ("[coordinator]\npolicy = \"varys:delta\"", "delta"),
    ("[coordinator]\npolicy = \"siphon\"", "siphon"),
    ("[coordinator]\npolicy = \"dclas:sync=2s\"", "from 1ms to 1s"),
    ("[coordinator]\npolicy = \"clas:sync=10ms\"", "`weir sim`"),
    ("[coordinator]\nlease-ms = 49", "50"),
    ("[coordinator]\ncoflow-lease = 2", "between 3 and 604800"),
    ("[coordinator]\nbypass = inf", "3600"),
    ("[coordinator]\nready-wait = 60001", "60000"),
    ("[coordinator]\nsync-interval = 0", "below 1"),
    ("[coordinator]\ndeadline-margin = 1", "below 1"),
    ("[coordinator]\ndeadline-margin-ms = -1", "60000"),
    ("[relay]\nconnections = 65", "64"),
    ("[relay]\nconnection-rate = \"x=1gbit\"", "number of a site"),
    ("[relay]\ncontroller = \"10.0.0.1\"", "controller"),
    ("[controller]\nrounds = 0", "1000000"),
    ("[controller]\ndepth = 6", "1..=5"),
    ("[controller]\ndecide = \"best\"", "wins"),
    ("[controller]\nroutes = \"all\"", "direct"),
];

#[test]
fn each_wrong_file_is_refused_in_one_line_with_file_line_and_what_is_right() {
    let mut wrong = Vec::new();
    for (text, has) in WRONG {
        let (_dir, path) = file(text.as_bytes());
        let (code, said) = said(&weir(&["config", "check", &path]).output().unwrap());
        // Errors of the format may be found at the line after the last one.
        let line = text.lines().count();
        let placed = [line, line + 1].iter().any(|line| said.contains(&format!("{path}:{line}:")));
        // An unended header or a value that is missing is found where it begins.
        let placed = placed || said.contains(&format!("{path}:{}:", line - usize::from(line > 1)));
        if code != Some(2) || said.lines().count() != 1 || !placed || !said.contains(has) {
            wrong.push(format!("{text:?}: {code:?}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(WRONG.len() >= 60);
}

#[test]
fn a_daemon_refuses_what_its_own_section_has_wrong_and_starts_beside_what_others_have() {
    let (_dir, path) = file(b"[coordinator]\nhosts = 2\nlink-rate = \"fast\"\n[relay]\nsite = \"x\"\n");
    let (code, line) = said(&weir(&["coordinator", "--config", &path]).output().unwrap());
    assert!(code == Some(2) && line.contains(&format!("{path}:3:")) && line.contains("link-rate"), "{line}");
    // What the command line says takes the place of a value that is right, not of one that is wrong.
    let (code, line) =
        said(&weir(&["coordinator", "--config", &path, "--link-rate", "1gbit"]).output().unwrap());
    assert!(code == Some(2) && line.contains(&format!("{path}:3:")), "{line}");
    let (code, line) = said(&weir(&["agent", "--config", "/no/such/file", "--host", "0"]).output().unwrap());
    assert!(code == Some(2) && line.contains("/no/such/file"), "{line}");
    for what in ["/", "/dev/zero"] {
        let (code, line) = said(&weir(&["agent", "--config", what]).output().unwrap());
        assert!(code == Some(2) && line.lines().count() == 1 && line.contains(what), "{line}");
    }
    let (_dir, path) = file(&[&b"[agent]\n# "[..], &[0xff, b'\n']].concat());
    let (code, line) = said(&weir(&["config", "check", &path]).output().unwrap());
    assert!(code == Some(2) && line.contains(&format!("{path}:2: ")) && line.contains("UTF-8"), "{line}");
    let (_dir, path) = file(&vec![b'#'; (1 << 20) + 1]);
    let (code, line) = said(&weir(&["config", "check", &path]).output().unwrap());
    assert!(code == Some(2) && line.contains("longer than"), "{line}");
}

#[test]
fn a_coordinator_and_an_agent_start_from_one_file() {
    let (dir, path) = file(
        b"\xef\xbb\xbf[coordinator]\nlisten = \"127.0.0.1:0\"\nhosts = 2\nlink-rate = \"1gbit\"\n[agent]\nlisten = \"127.0.0.1:0\"\n\
          [relay]\nsite = \"another daemon's\"\n",
    );
    let mut coordinator = weir(&["coordinator", "--config", &path]);
    coordinator.env("WEIR_LOG", "info").env("WEIR_COORDINATOR_POLICY", "fair");
    coordinator.env("WEIR_COORDINATOR_SERVICE_HOST", "10.0.0.9");
    let mut coordinator = Process::spawn(coordinator.stderr(Stdio::piped()));
    let mut log = BufReader::new(coordinator.0.stderr.take().unwrap()).lines();
    let mut find = |what: &str| log.by_ref().map(Result::unwrap).find(|line| line.contains(what)).unwrap();
    find("WEIR_COORDINATOR_SERVICE_HOST is no setting");
    let listens = find("coordinator: fair for 2 hosts on ");
    let address = listens.rsplit(' ').next().unwrap();
    let spool = dir.path().join("spool");
    let mut agent = weir(&["agent", "--config", &path, "--coordinator", address, "--host", "1"]);
    agent.env("WEIR_LOG", "info").env("WEIR_AGENT_SPOOL", &spool);
    let mut agent = Process::spawn(agent.stderr(Stdio::piped()));
    let mut log = BufReader::new(agent.0.stderr.take().unwrap()).lines();
    let begins = log.by_ref().map(Result::unwrap).find(|line| line.contains("agent: host 1 on 127.0.0.1:"));
    assert!(begins.unwrap().contains(spool.to_str().unwrap()));
    find("agent attached");
}

#[test]
fn what_a_daemon_is_set_to_is_shown_with_its_origin_and_is_a_file_of_settings() {
    let (dir, path) = file(b"[agent]\nhost = 1\nallow = [\"/a b\", \"/c\\\"d\"]\n");
    let mut show = weir(&["config", "show", "agent", "--config", &path, "--spool", "/var/lib/weir"]);
    let output = show.env("WEIR_AGENT_DURABLE", "machine").output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    for line in [
        format!("host = \"1\"  # {path}:2"),
        format!("allow = [\"/a b\", '/c\"d']  # {path}:3"),
        "durable = \"machine\"  # WEIR_AGENT_DURABLE".to_owned(),
        "spool = \"/var/lib/weir\"  # command line".to_owned(),
        "report-interval-ms = \"20\"  # default".to_owned(),
        "# link-rate is not set".to_owned(),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let again = dir.path().join("again.toml");
    std::fs::write(&again, &shown).unwrap();
    let output = weir(&["config", "check", again.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (code, line) = said(&weir(&["config", "show", "agent"]).output().unwrap());
    assert!(code == Some(2) && line.contains("--spool"), "{line}");
}

#[test]
fn the_page_of_settings_is_the_one_that_the_program_prints() {
    let output = weir(&["config", "page"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md")).unwrap();
    assert!(printed == page, "run `weir config page > docs/settings.md`");
    let printed = String::from_utf8(weir(&["config", "metrics"]).output().unwrap().stdout).unwrap();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    assert!(printed == page, "run `weir config metrics > docs/metrics.md`");
}
