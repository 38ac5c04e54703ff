//! Blocks that are in several files or at several hosts, of which some are gone or damaged.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::{FileTimes, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, CoflowOptions, GetError, GetOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Fabric, Rate};

const HOSTS: u32 = 3;

struct Cluster {
    dir: tempfile::TempDir,
    clients: Vec<Client>,
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Cluster {
    fn start() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let listener = weir_net::control_listener(any_port()).unwrap();
        let address = listener.local_addr().unwrap();
        let fabric = Fabric::big_switch(HOSTS, Rate::from_bytes_per_sec(100e6)).unwrap();
        let options = CoordinatorOptions::new(fabric, weir_policy::find("varys").unwrap());
        tokio::spawn(weir_daemon::coordinator::serve(options, listener, std::future::pending()));
        let mut clients = Vec::new();
        for host in 0..HOSTS {
            let listener = weir_net::data_listener(any_port()).unwrap();
            let spool = dir.path().join(format!("spool-{host}"));
            let mut options = AgentOptions::new(host, spool.clone());
            options.coordinator = Some(address.into());
            options.allow = vec![dir.path().join("data")];
            tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
            let (coordinator, agent) = (Some(address.into()), Some(spool.join("agent.sock")));
            clients.push(Client::new(ClientConfig { coordinator, agent, host }));
        }
        Cluster { dir, clients }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join("data").join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    async fn coflow(&self) -> u64 {
        self.clients[0].register(CoflowOptions::default()).await.unwrap()
    }

    async fn get(&self, coflow: u64, verify_whole: bool) -> Result<Vec<u8>, GetError> {
        let time_limit = Duration::from_secs(20);
        let options = GetOptions { time_limit, verify_whole, ..GetOptions::default() };
        self.clients[2].get_bytes(coflow, "b", options).await
    }

    /// The one file of memory in a host's spool.
    fn spooled(&self, host: u32) -> PathBuf {
        let blocks = self.dir.path().join(format!("spool-{host}/blocks"));
        let mut files = std::fs::read_dir(blocks).unwrap().map(|entry| entry.unwrap().path());
        let file = files.next().unwrap();
        assert_eq!(files.next(), None);
        file
    }

    /// Waits until a host's blocks are this many, as the coordinator has them.
    async fn holds(&self, host: u32, blocks: u64) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let agents = self.clients[0].status().await.unwrap().agents;
            if agents.iter().any(|agent| agent.host == host && agent.blocks == blocks) {
                return;
            }
            assert!(Instant::now() < end, "host {host} holds {blocks} blocks: {agents:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn content() -> Vec<u8> {
    (0..600_000_u32).map(|index| (index % 251) as u8).collect()
}

/// Changes a byte of a file, and neither its length nor its time.
fn damage(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

// Attempt 0 and attempt 1 put the same bytes, both are answered for, and the first cleans up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_was_answered_for_survives_an_earlier_attempt_that_cleans_up() {
    let cluster = Cluster::start();
    let client = &cluster.clients[0];
    let (size, bytes) = (content().len() as u64, content());
    for hashed in [true, false] {
        let coflow = cluster.coflow().await;
        let (first, second) = (cluster.file("0", &bytes), cluster.file("1", &bytes));
        if hashed {
            client.put_file_hashed(coflow, "b", &first, 0, size).await.unwrap();
            client.put_file_hashed(coflow, "b", &second, 0, size).await.unwrap();
            std::fs::remove_file(&first).unwrap();
        } else {
            client.put_file(coflow, "b", &first, 0, size).await.unwrap();
            std::fs::remove_file(&first).unwrap();
            client.put_file(coflow, "b", &second, 0, size).await.unwrap();
        }
        assert!(cluster.get(coflow, false).await.unwrap() == bytes, "hashed: {hashed}");
    }
    let coflow = cluster.coflow().await;
    let first = cluster.file("2", &bytes);
    client.put_file_hashed(coflow, "b", &first, 0, size).await.unwrap();
    client.put_bytes(coflow, "b", &bytes).await.unwrap();
    std::fs::remove_file(&first).unwrap();
    assert!(cluster.get(coflow, false).await.unwrap() == bytes, "a file, then memory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_copy_helps_against_a_bad_one_wherever_that_is_and_the_bad_one_is_held_no_more() {
    let bytes = content();
    for bad in [0, 1] {
        let cluster = Cluster::start();
        let coflow = cluster.coflow().await;
        for host in [0, 1] {
            cluster.clients[host].put_bytes(coflow, "b", &bytes).await.unwrap();
        }
        damage(&cluster.spooled(bad), 300_000);
        // The bad one may be asked second, or never: then there is nothing to find out.
        for _ in 0..4 {
            assert!(cluster.get(coflow, false).await.unwrap() == bytes);
        }
        std::fs::remove_file(cluster.spooled(1 - bad)).unwrap();
        let gone = cluster.get(coflow, false).await.unwrap_err();
        assert!(matches!(gone, GetError::Gone { .. }), "{gone}");
        cluster.holds(bad, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_whose_whole_has_another_hash_is_got_from_another_holder() {
    let bytes = content();
    for bad in [0, 1] {
        let cluster = Cluster::start();
        let coflow = cluster.coflow().await;
        for host in [0, 1] {
            let file = cluster.file(&host.to_string(), &bytes);
            let size = bytes.len() as u64;
            cluster.clients[host].put_file_hashed(coflow, "b", &file, 0, size).await.unwrap();
        }
        // Nobody has read it since, so no checksum of a frame tells.
        damage(&cluster.dir.path().join("data").join(bad.to_string()), 300_000);
        assert!(cluster.get(coflow, true).await.unwrap() == bytes);
    }
}
