//! Asking daemons over HTTP, and what their metrics are called.

use super::process::weir;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Asks once; status and body.
pub(crate) fn ask(address: &str, request: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok((status, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned()))
}

pub(crate) fn get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Names of the metrics of a text, as the page has them.
pub(crate) fn names_of_text(text: &str) -> BTreeSet<String> {
    let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let name = |line: &str| {
        let (name, kind) = line.split_once(' ').unwrap();
        if kind == "counter" { format!("{name}_total") } else { name.to_owned() }
    };
    typed.map(name).collect()
}

/// Those of a section of the page, and of all processes.
pub(crate) fn names_of_page(section: &str) -> BTreeSet<String> {
    let page = String::from_utf8(weir(&["config", "metrics"]).output().unwrap().stdout).unwrap();
    let named = |title: &str| -> Vec<String> {
        let section = page.split("\n## ").find(|section| section.starts_with(title)).unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        rows.map(|(name, _)| name.to_owned()).collect()
    };
    named(section).into_iter().chain(named("Every process")).collect()
}
