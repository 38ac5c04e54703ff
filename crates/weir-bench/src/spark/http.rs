//! Pages that daemons answer with.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The body of a page.
pub(super) fn http_get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    // Not 1.1, whose answers may come in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other(format!("no answer of HTTP: {answer:?}")))
}

/// What a page of metrics has for one of them; 0 where it is not there.
pub(super) fn value(text: &str, metric: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(metric));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}
