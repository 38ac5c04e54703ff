//! The log, on standard error: which lines (`WEIR_LOG`, and of a daemon its setting `log`, which may change while it runs), and in which form (`WEIR_LOG_FORMAT`). A setting that would silence
//! everything by a slip is refused.

use clap::Args;
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::EnvFilter;
use weir_console::Failure;

const FILTER: &str = "WEIR_LOG";
const FORMAT: &str = "WEIR_LOG_FORMAT";
/// Under it daemons say that they begin and end, which is shown unless `WEIR_LOG` says otherwise.
pub const PROCESS: &str = "weir::process";
/// What is shown unless `WEIR_LOG` says otherwise.
const USUAL: &str = "warn,weir::process=info";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Modules of Weir that write to the log.
const MODULES: [&str; 4] = ["weir", "weir_controller", "weir_daemon", "weir_net"];

static IN_JSON: AtomicBool = AtomicBool::new(false);
/// Puts another filter in the place of the one in force.
static REPLACE: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// Which lines of its log a daemon shows.
#[derive(Args, Clone)]
pub struct LogArgs {
    /// Lines of the log to show: off, error, warn, info, debug or trace, or of modules, as in warn,weir_daemon=debug. Without it
    /// as WEIR_LOG says
    #[arg(long = "log", value_name = "LINES", value_parser = lines)]
    pub lines: Option<String>,
}

fn lines(text: &str) -> Result<String, String> {
    filter(text).map(|_| text.to_owned())
}

/// Starts the log, with these lines of it or those that `WEIR_LOG` says. Colours are for terminals.
///
/// # Errors
/// `WEIR_LOG`, `WEIR_LOG_FORMAT` or the lines make no sense.
pub fn start(lines: Option<&str>) -> Result<(), Failure> {
    let (from, said) = match lines {
        Some(lines) => ("--log", lines.to_owned()),
        None => (FILTER, variable(FILTER)?),
    };
    let filter = filter(&said).map_err(|reason| Failure::Input(format!("{from}: {reason}")))?;
    let json = match variable(FORMAT)?.as_str() {
        "" | "text" => false,
        "json" => true,
        other => {
            return Err(Failure::Input(format!("{FORMAT}: `{other}` is neither text nor json")));
        }
    };
    IN_JSON.store(json, Ordering::Relaxed);
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter);
    // The two formats are subscribers of different types, each with a handle of its own by which its filter is replaced.
    if json {
        let log = log.json().with_filter_reloading();
        let handle = log.reload_handle();
        let _ = REPLACE.set(Box::new(move |filter| _ = handle.reload(filter)));
        log.init()
    } else {
        let log = log.with_filter_reloading();
        let handle = log.reload_handle();
        let _ = REPLACE.set(Box::new(move |filter| _ = handle.reload(filter)));
        log.init()
    }
    Ok(())
}

/// What shows other lines from now on; empty: as `WEIR_LOG` says.
///
/// # Errors
/// In one line: they cannot be shown.
pub fn showing(lines: &str) -> Result<impl FnOnce() + Send + use<>, String> {
    let (from, said) = match lines {
        "" => (FILTER, variable(FILTER).map_err(|_| format!("{FILTER} is no text"))?),
        lines => ("log", lines.to_owned()),
    };
    let filter = filter(&said).map_err(|reason| format!("{from}: {reason}"))?;
    Ok(move || REPLACE.get().into_iter().for_each(|replace| replace(filter.clone())))
}

/// A text for people of which so long a middle is left out that it fits into a message, or a line of the log.
pub fn shortened(text: &str) -> String {
    const HEAD: usize = 400;
    const TAIL: usize = 1_200;
    // Letters are counted, not bytes: a text that is cut inside a letter is no text any more.
    let count = text.chars().count();
    if count <= HEAD + TAIL {
        return text.to_owned();
    }
    let (head, tail): (String, String) =
        (text.chars().take(HEAD).collect(), text.chars().skip(count - TAIL).collect());
    format!("{head} [...] {tail}")
}

/// Text in one line, fit for a terminal: it may have names in it that strangers gave.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for part in text.chars() {
        if part.is_control() { line.extend(part.escape_default()) } else { line.push(part) }
    }
    line
}

/// What ends a daemon: an object as all lines of a log in JSON, or a line for people.
pub fn complain(message: &str) {
    let message = &one_line(message);
    if IN_JSON.load(Ordering::Relaxed) && tracing::enabled!(target: PROCESS, tracing::Level::ERROR) {
        tracing::error!(target: PROCESS, "{message}");
    } else {
        eprintln!("weir: {message}");
    }
}

/// A variable's value; nothing where it is not set.
fn variable(name: &str) -> Result<String, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(value),
        Err(std::env::VarError::NotPresent) => Ok(String::new()),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::Input(format!("{name} is no text"))),
    }
}

/// The filter that a text describes. A word that is no level is a module to the parser, of which all is shown and nothing
/// of others: `infoo` would silence everything.
fn filter(text: &str) -> Result<EnvFilter, String> {
    let text = if text.trim().is_empty() { USUAL } else { text };
    let unknown = text.split(',').map(str::trim).find(|part| {
        let (module, level) =
            part.split_once('=').map_or((*part, None), |(module, level)| (module, Some(level)));
        let is_level = LEVELS.contains(&part.to_ascii_lowercase().as_str());
        // Modules of other crates are believed to exist if a level is behind them; parts that name spans are left to the parser.
        let named = module.split("::").next().unwrap_or_default();
        let is_module = MODULES.contains(&named) || (level.is_some() && !named.starts_with("weir"));
        !(is_level || is_module || part.contains(['[', ']', '{', '}']))
    });
    if let Some(part) = unknown {
        return Err(format!(
            "`{part}` is neither a level ({}) nor of a module ({}), as in weir_daemon=debug",
            LEVELS.join(", "),
            MODULES.join(", ")
        ));
    }
    EnvFilter::builder().parse(text).map_err(|error| format!("`{text}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_silence_the_log_by_a_slip_is_no_filter() {
        for good in
            ["", "info", "WARN", "weir_daemon=debug", "warn,weir_daemon=debug,h2=off", "weir_net", "off"]
        {
            assert!(filter(good).is_ok(), "{good}");
        }
        for slip in ["infoo", "inf", "warn,weir_deamon=debug", "weir_daemon=infoo", "info,", "verbose"] {
            assert!(filter(slip).is_err(), "{slip}");
        }
    }
}
