//! Runs `ip`, `bridge` and `tc` over a batch of lines, inside a namespace.

use std::env;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::MemfdFlags;

use crate::error::BedError;
use crate::namespace::Namespace;

/// Searched after `PATH`, which for a normal user often lacks the folders where `tc` is.
const ADMIN_FOLDERS: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

/// The Debian package of all three tools.
const PACKAGE: &str = "iproute2";

/// One of the three programs, found.
#[derive(Debug)]
pub(crate) struct Tool {
    name: &'static str,
    path: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Tools {
    /// `ip`, for links, addresses and neighbours.
    pub(crate) ip: Tool,
    /// The switch's table of addresses.
    pub(crate) bridge: Tool,
    /// `tc`, for queues and their rates.
    pub(crate) tc: Tool,
}

impl Tools {
    pub(crate) fn find() -> Result<Self, BedError> {
        Ok(Self { ip: Tool::find("ip")?, bridge: Tool::find("bridge")?, tc: Tool::find("tc")? })
    }
}

impl Tool {
    fn find(name: &'static str) -> Result<Self, BedError> {
        let user_path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&user_path)
            .chain(env::split_paths(ADMIN_FOLDERS))
            .map(|folder| folder.join(name))
            // Absolute: the path is used by threads whose working directory may be another one later.
            .find(|path| path.is_absolute() && path.is_file())
            .map(|path| Self { name, path })
            .ok_or(BedError::MissingTool { tool: name, package: PACKAGE })
    }

    /// Runs the program over `lines` inside `namespace`; it stops at the first line that fails.
    pub(crate) fn batch(
        &self,
        namespace: &Namespace,
        subject: &str,
        lines: &[String],
    ) -> Result<(), BedError> {
        // A file and not a pipe: the program may stop reading, or fill its own output, at any time.
        let failed = || format!("hand lines to `{}`", self.name);
        let input =
            rustix::fs::memfd_create("weir-bed", MemfdFlags::CLOEXEC).map_err(BedError::os(failed()))?;
        let mut input = File::from(input);
        let text = lines.join("\n") + "\n";
        input.write_all(text.as_bytes()).and_then(|()| input.rewind()).map_err(BedError::os(failed()))?;

        let mut command = Command::new(&self.path);
        // `explain` reads the messages, so they have to be in English.
        command.args(["-batch", "-"]).env("LC_ALL", "C").stdin(input).stdout(Stdio::null());
        let output = namespace
            .run(move || command.output())
            .and_then(|output| output)
            .map_err(BedError::os(format!("run `{}` for {subject}", self.name)))?;
        if output.status.success() {
            return Ok(());
        }
        let message = explain(&String::from_utf8_lossy(&output.stderr), lines);
        Err(BedError::Tool { tool: self.name, subject: subject.to_owned(), message })
    }
}

/// One line: what the tool complained about, and the input line that it names ("Command failed -:12").
fn explain(stderr: &str, lines: &[String]) -> String {
    let at_fault = stderr
        .lines()
        .find_map(|line| line.strip_prefix("Command failed -:"))
        .and_then(|number| number.trim().parse::<usize>().ok())
        .and_then(|number| lines.get(number.checked_sub(1)?));
    let complaint: Vec<&str> =
        stderr.lines().filter(|line| !line.starts_with("Command failed")).map(str::trim).collect();
    match at_fault {
        Some(line) => format!("{} (in: {line})", complaint.join("; ")),
        None => complaint.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_line_at_fault() {
        let lines = ["qdisc add a".to_owned(), "qdisc add b".to_owned()];
        let stderr = "Error: Specified qdisc kind is unknown.\nCommand failed -:2\n";
        assert_eq!(explain(stderr, &lines), "Error: Specified qdisc kind is unknown. (in: qdisc add b)");
        assert_eq!(explain("Cannot open netlink socket\n", &lines), "Cannot open netlink socket");
    }

    #[test]
    fn absent_tool_names_its_package() {
        let error = Tool::find("no-such-tool").unwrap_err().to_string();
        assert_eq!(error, "`no-such-tool` is not installed (Debian and Ubuntu: apt-get install iproute2)");
    }
}
