//! What files and variables add to command lines of this program.

use clap::CommandFactory;
use std::ffi::OsString;
use weir_settings::compose;

fn root() -> clap::Command {
    let mut root = crate::Cli::command();
    root.build();
    root
}

fn composed(words: &[&str], variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let words = ["weir"].iter().chain(words).map(OsString::from).collect();
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let composed = compose(&root(), words, variables)?;
    Ok(composed.words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect())
}

/// A file in a folder of its own.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn a_setting_whose_value_is_help_asks_for_none() {
    let words = ["agent", "--rack", "help", "--host", "3"];
    let said = composed(&words, &[("WEIR_AGENT_SPOOL", "/b")]).unwrap();
    assert_eq!(said.last().unwrap(), "--spool=/b", "{said:?}");
    for asking in [&["agent", "--help"][..], &["agent", "--rack", "r", "-h"], &["controller", "help"]] {
        assert_eq!(composed(asking, &[("WEIR_AGENT_SPOOL", "/b")]).unwrap(), asking);
    }
}

#[test]
fn the_command_line_comes_before_the_environment_before_the_file() {
    let (_dir, path) =
        file("[agent]\nhost = 1\nspool = \"/a\"\nallow = [\"/x\", \"/y\"]\n[coordinator]\nhosts = 9\n");
    let words =
        composed(&["agent", "--config", &path, "--host", "3"], &[("WEIR_AGENT_SPOOL", "/b")]).unwrap();
    assert_eq!(words[4..], ["3", "--allow=/x", "--allow=/y", "--spool=/b"]);
    // A list on the command line takes the place of the one in the file, by whatever form.
    let words = composed(&["agent", &format!("--config={path}"), "--allow=/z"], &[]).unwrap();
    assert_eq!(words[2..], ["--allow=/z", "--host=1", "--spool=/a"]);
    // An alias is the same option.
    let words =
        composed(&["coordinator", "--batch-ms", "4"], &[("WEIR_COORDINATOR_BATCH_WINDOW", "5")]).unwrap();
    assert_eq!(words, ["coordinator", "--batch-ms", "4"]);
    // An empty variable is none, and those of other daemons are not looked at.
    let others = [("WEIR_AGENT_HOST", ""), ("WEIR_RELAY_SITE", "x"), ("WEIR_AGENT", "/run/weir/agent.sock")];
    assert_eq!(composed(&["agent"], &others).unwrap(), ["agent"]);
}

#[test]
fn each_part_of_the_controller_takes_its_own_of_one_section() {
    let (_dir, path) = file("[controller]\nseed = 3\nstore = \"redis://a:1\"\nlisten = \"0.0.0.0:1\"\n");
    let of = |part: &[&str]| {
        let words = [&["controller"], part, &["--config", &path]].concat();
        composed(&words, &[]).unwrap()[words.len()..].to_vec()
    };
    assert_eq!(of(&[]), ["--listen=0.0.0.0:1", "--seed=3"]);
    assert_eq!(of(&["serve"]), ["--listen=0.0.0.0:1", "--store=redis://a:1"]);
    assert_eq!(of(&["decide"]), ["--seed=3", "--store=redis://a:1"]);
}

#[test]
fn what_starts_no_daemon_is_left_as_it_is() {
    for words in [&["sim", "--config", "x"][..], &["agent", "--help", "--config", "/none"], &["status"], &[]]
    {
        assert_eq!(composed(words, &[("WEIR_RELAY_TRACE", "x")]).unwrap(), words);
    }
}
