//! `weir config`: what daemons are set to, and from where.

use super::blocks::{Peers, print_json, run, said};
use crate::{Cli, Failure};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Args, CommandFactory, Subcommand, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use weir_client::Changed;
use weir_results::printable;
use weir_settings::{Daemon, Origin, SettingsFile, arguments, compose, key, logging};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check all sections of a file of settings
    Check {
        /// The file (TOML)
        file: PathBuf,
    },
    /// Show what a daemon would be set to, and where each value is from, as a file of settings
    Show {
        /// The daemon
        daemon: DaemonArg,
        /// Options as the daemon is started with, `--config FILE` among them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        options: Vec<OsString>,
    },
    /// Change settings of a coordinator while coflows move: all of them, or none. They hold until it reads its settings again
    /// (SIGHUP), or starts anew
    Set(SetArgs),
    /// Print the page of all settings (docs/settings.md)
    #[command(hide = true)]
    Page,
    /// Print the page of all metrics (docs/metrics.md)
    #[command(hide = true)]
    Metrics,
}

#[derive(Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    peers: Peers,
    /// What it is to be, by names of docs/settings.md, as in policy=dclas:first=1MB bypass=0.1 log=info
    #[arg(required = true, value_name = "SETTING=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("no `=` in it; a setting is changed as in policy=fair")?;
    Ok((name.trim_start_matches("--").to_owned(), value.to_owned()))
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum DaemonArg {
    Coordinator,
    Agent,
    Relay,
    Controller,
}

impl DaemonArg {
    fn name(self) -> &'static str {
        match self {
            DaemonArg::Coordinator => "coordinator",
            DaemonArg::Agent => "agent",
            DaemonArg::Relay => "relay",
            DaemonArg::Controller => "controller",
        }
    }
}

pub(crate) fn config(command: ConfigCommand) -> Result<(), Failure> {
    // As the parser has it when a command line is read: with what it adds to every command.
    let mut root = Cli::command();
    root.build();
    match command {
        ConfigCommand::Check { file } => check(&root, &file),
        ConfigCommand::Show { daemon, options } => show(&root, daemon.name(), options),
        ConfigCommand::Set(args) => set(args),
        ConfigCommand::Metrics => {
            print!("{}", super::metrics::page());
            Ok(())
        }
        ConfigCommand::Page => {
            print!("{}", page(&root));
            Ok(())
        }
    }
}

fn check(root: &clap::Command, path: &std::path::Path) -> Result<(), Failure> {
    let file = SettingsFile::read(path).map_err(Failure::Input)?;
    file.check_sections().map_err(Failure::Input)?;
    let mut found = 0;
    for daemon in Daemon::all(root) {
        for entry in file.section(daemon.name) {
            daemon.check(&entry).map_err(Failure::Input)?;
            found += 1;
        }
    }
    println!("{}: {found} settings, all of which can be", path.display());
    Ok(())
}

fn show(root: &clap::Command, name: &'static str, options: Vec<OsString>) -> Result<(), Failure> {
    let words = ["weir", name].map(OsString::from).into_iter().chain(options).collect();
    let composed = compose(root, words, std::env::vars_os()).map_err(Failure::Input)?;
    let refused = |error: clap::Error| Failure::Input(arguments::one_line(&error));
    let matches = root.clone().try_get_matches_from(&composed.words).map_err(refused)?;
    let Some((_, mut matches)) = matches.subcommand() else { return Ok(()) };
    let mut part = None;
    if let Some((name, of_part)) = matches.subcommand() {
        (part, matches) = (Some(name), of_part);
    }
    let Some(daemon) = Daemon::of_name(root, name, part) else { return Ok(()) };
    println!("[{name}]");
    for arg in daemon.settings().into_iter().filter(|arg| daemon.takes(key(arg))) {
        println!("{}", line(arg, matches, &composed.origins));
    }
    composed.warnings.iter().for_each(|warning| logging::complain(warning));
    Ok(())
}

#[derive(Serialize)]
struct Changes {
    changed: Vec<Change>,
}

#[derive(Serialize)]
struct Change {
    setting: String,
    before: String,
    now: String,
}

fn set(args: SetArgs) -> Result<(), Failure> {
    run(async {
        let client = args.peers.with_coordinator().await?;
        let changed = client.change(&args.settings).await.map_err(said)?;
        if args.peers.json {
            let of = |one: Changed| Change { setting: one.name, before: one.before, now: one.now };
            return print_json(&Changes { changed: changed.into_iter().map(of).collect() });
        }
        if changed.is_empty() {
            println!("all of it is so already");
        }
        for Changed { name, before, now } in &changed {
            let shown = |value: &str| if value.is_empty() { "not set".to_owned() } else { printable(value) };
            println!("{} = {} (was {})", printable(name), shown(now), shown(before));
        }
        Ok(())
    })
}

/// A setting, its value, and where that is from.
fn line(arg: &Arg, matches: &clap::ArgMatches, origins: &BTreeMap<String, Origin>) -> String {
    let id = arg.get_id().as_str();
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let values: Vec<String> = if is_switch {
        vec![matches.get_flag(id).to_string()]
    } else {
        let raw = matches.get_raw(id).into_iter().flatten();
        raw.map(|value| quoted(&masked(&value.to_string_lossy()))).collect()
    };
    let from = match (origins.get(key(arg)), matches.value_source(id)) {
        (Some(origin), _) => origin.to_string(),
        (None, Some(ValueSource::CommandLine)) => "command line".to_owned(),
        _ => "default".to_owned(),
    };
    let is_list = matches!(arg.get_action(), ArgAction::Append);
    let value = match values.as_slice() {
        _ if is_list => format!("[{}]", values.join(", ")),
        [] => return format!("# {} is not set", key(arg)),
        [value, ..] => value.clone(),
    };
    format!("{} = {value}  # {from}", key(arg))
}

fn quoted(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

/// A URL without what its user part says.
fn masked(value: &str) -> String {
    match value.split_once("://") {
        Some((scheme, rest)) if rest.contains('@') => {
            // The last `@`, as a password may have one in it.
            let host = rest.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://***@{host}")
        }
        _ => value.to_owned(),
    }
}

const HEAD: &str = "# Settings of daemons

`weir coordinator`, `weir agent`, `weir relay` and `weir controller` take their settings from, the first that says one:

1. the command line (`--link-rate 10gbit`),
2. the environment (`WEIR_COORDINATOR_LINK_RATE=10gbit`: daemon and setting in capitals, `-` as `_`),
3. a file (`--config FILE`), of which a daemon reads the section of its name,
4. defaults.

```toml
# /etc/weir.toml, the same on all machines
[coordinator]
hosts = 3
link-rate = \"10gbit\"

[agent]
coordinator = \"10.0.0.1:7070\"
spool = \"/var/lib/weir\"
allow = [\"/data\", \"/scratch\"]
```

```sh
weir coordinator --config /etc/weir.toml
weir agent --config /etc/weir.toml --host 0 --listen 10.0.0.10:7071

weir config check /etc/weir.toml                # all sections
weir config show agent --config /etc/weir.toml --host 0 --listen 10.0.0.10:7071
```

Values are text, as on the command line, or numbers; those of lists are lists, or one value; switches are true or false. A list on
the command line takes the place of the one in the file. What cannot be is refused in one line, with file, line and setting, and
nothing is started; so are settings and sections that there are not. Of other daemons' sections a daemon reads their names only.
Variables of that form that name no setting (as Kubernetes makes them for services) are told in the log, and not looked at.

## Changed while coflows move
On SIGHUP a daemon reads its settings again. Of a coordinator the policy and its times may change: `policy`, `bypass`, `ready-wait`,
`batch-window`, `sync-interval`, `deadline-margin`, `deadline-margin-ms` and `log`, and of one without `hosts` its network: `topology`,
`known-hosts-only` and `link-rate`. Of other daemons `log` may. All of it is taken over, or nothing: if one line is wrong, or another setting has another value than at the start,
the log says which, and all stays as it was.

A call changes the same settings of a coordinator that runs, all or nothing, too:

```sh
weir config set policy=dclas:first=1MB bypass=0.1 log=info
```

It is answered once that is in force, and all agents are back that had to come again (two seconds at most). It reads no file that it does not
name, and holds until the coordinator reads its settings again, or starts anew. Every client that reaches the
coordinator can do so: nothing is authenticated yet.

What moves goes on. Between two policies that the coordinator decides by, agents hear another plan; from or to one that senders
decide by (`dclas`, `dclas-strict`) their sessions end and begin again, as if the coordinator had been restarted, and sizes are known again. Until an
agent is back its flows go on at the rates that they have, a tenth of a second or so; then at TCP's share. `weir bench restart --kill
nobody --policy varys,dclas` measures that. What was let in or refused for its deadline stays so. A coflow that is planned for already is not left to TCP
when `bypass` grows; one that waits for flows waits as long as it would under the new `ready-wait`. Hosts that are of the network
stay in it, with the links that they have, where no file and no option names them or says a rate any more.

This page is printed by `weir config page`; a test holds it to the code.
";

fn page(root: &clap::Command) -> String {
    let mut page = HEAD.to_owned();
    for daemon in Daemon::all(root) {
        page.push_str(&format!(
            "\n## `[{}]`\n| setting | value | default | meaning |\n|---|---|---|---|\n",
            daemon.name
        ));
        for arg in daemon.settings() {
            page.push_str(&row(arg));
        }
    }
    page
}

fn row(arg: &Arg) -> String {
    let cell = |text: &str| text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ");
    let choices: Vec<String> =
        arg.get_possible_values().iter().map(|choice| format!("`{}`", choice.get_name())).collect();
    let value = if matches!(arg.get_action(), ArgAction::SetTrue) {
        "true or false".to_owned()
    } else if choices.is_empty() {
        arg.get_value_names().and_then(|names| names.first()).map(|name| name.to_string()).unwrap_or_default()
    } else {
        choices.join(", ")
    };
    let list = if matches!(arg.get_action(), ArgAction::Append) { ", a list" } else { "" };
    let default: Vec<String> =
        arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    let default = if arg.is_required_set() { "must be set".to_owned() } else { default.join(", ") };
    let help = arg.get_help().map(|help| cell(&help.to_string())).unwrap_or_default();
    format!("| `{}` | {}{list} | {} | {help} |\n", key(arg), cell(&value), cell(&default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        assert_eq!(masked("redis://user:p@ss@10.0.0.9:6379"), "redis://***@10.0.0.9:6379");
        assert_eq!(masked("redis://10.0.0.9:6379"), "redis://10.0.0.9:6379");
        assert_eq!(masked("a@b"), "a@b");
    }
}
