//! A real Redis for a test: on a free port of this machine, in a folder of its own, gone with the test.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_testbed::free_address;

/// How long a Redis may take to be there.
const START_LIMIT: Duration = Duration::from_secs(20);

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
        let mut server = RedisServer {
            address: free_address().unwrap(),
            folder: tempfile::tempdir().unwrap(),
            process: None,
        };
        server.resume();
        Some(server)
    }

    /// Its address as `weir controller --store` takes it.
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
