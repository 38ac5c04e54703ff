//! A real Redis for a test: on a free port of this machine, in a folder of its own, gone with the test.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long a Redis may take to be there.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Ports below those the kernel gives to outgoing connections: a Redis that comes back finds its own free.
const PORTS: (u16, u16) = (12_000, 32_000);

pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.1 - PORTS.0;
    // Tests that run at the same time have numbers next to each other, and need some ports each: far apart.
    let start = (std::process::id().wrapping_mul(7_919) % u32::from(span)) as u16;
    let port = |_| PORTS.0 + (start + NEXT.fetch_add(1, Ordering::Relaxed) % span) % span;
    let mut addresses = (0..span).map(port).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    addresses.find(|&address| TcpListener::bind(address).is_ok()).expect("a free port")
}

/// A Redis server that keeps nothing when it ends.
pub(crate) struct RedisServer {
    address: SocketAddr,
    folder: tempfile::TempDir,
    process: Option<Child>,
}

impl RedisServer {
    /// A running one; none, and a word why, where Redis is not installed. Continuous integration has to have it.
    pub(crate) fn start() -> Option<RedisServer> {
        if Command::new("redis-server").arg("--version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "redis-server is not installed");
            eprintln!("SKIPPED: redis-server is not installed; scripts/install-deps.sh does that");
            return None;
        }
        let mut server =
            RedisServer { address: free_address(), folder: tempfile::tempdir().unwrap(), process: None };
        server.resume();
        Some(server)
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Ends it at once, with all that it knew.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it, empty, where it was.
    pub(crate) fn resume(&mut self) {
        let port = self.address.port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let process = self.process.insert(command.spawn().unwrap());
        let limit = Instant::now() + START_LIMIT;
        while TcpStream::connect(self.address).is_err() {
            assert!(process.try_wait().unwrap().is_none(), "redis-server ended: is {} taken?", self.address);
            assert!(Instant::now() < limit, "redis-server does not listen on {}", self.address);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
