//! A coordinator, agents and clients in one process, over real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use weir_client::{Client, ClientConfig, CoflowOptions, GetError, GetOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Fabric, Rate};

/// Everything of a test; dropping the runtime ends it.
struct Cluster {
    coordinator: SocketAddr,
    dir: tempfile::TempDir,
    agents: Vec<SocketAddr>,
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Cluster {
    fn start(hosts: u32, rate: Rate) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let listener = weir_net::control_listener(any_port()).unwrap();
        let coordinator = listener.local_addr().unwrap();
        let fabric = Fabric::big_switch(hosts, rate).unwrap();
        let options = CoordinatorOptions::new(fabric, weir_policy::find("varys").unwrap());
        tokio::spawn(weir_daemon::coordinator::serve(options, listener, std::future::pending()));
        let mut agents = Vec::new();
        for host in 0..hosts {
            let listener = weir_net::data_listener(any_port()).unwrap();
            agents.push(listener.local_addr().unwrap());
            let mut options = AgentOptions::new(host, spool(dir.path(), host));
            options.coordinator = Some(coordinator.into());
            options.allow = vec![dir.path().to_owned()];
            tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
        }
        Cluster { coordinator, dir, agents }
    }

    fn client(&self, host: u32) -> Client {
        Client::new(ClientConfig {
            coordinator: Some(self.coordinator.into()),
            agent: Some(spool(self.dir.path(), host).join("agent.sock")),
            host,
        })
    }
}

fn spool(dir: &Path, host: u32) -> std::path::PathBuf {
    dir.join(format!("spool-{host}"))
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_tells_its_tasks_which_host_they_are_on_and_where_the_coordinator_is() {
    let cluster = Cluster::start(3, Rate::from_bytes_per_sec(50e6));
    let socket = spool(cluster.dir.path(), 2).join("agent.sock");
    let config = ClientConfig::of_agent(socket.clone()).await.unwrap();
    let coordinator: weir_client::Address = cluster.coordinator.into();
    assert_eq!(
        (config.host, config.coordinator.clone(), &config.agent),
        (2, Some(coordinator), &Some(socket))
    );
    // What it says is enough to work with.
    let client = Client::new(config);
    let coflow = client.register(CoflowOptions { flows: 1, ..CoflowOptions::default() }).await.unwrap();
    client.put_bytes(coflow, "b", b"bytes").await.unwrap();
    assert_eq!(client.get_bytes(coflow, "b", GetOptions::default()).await.unwrap(), b"bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coflow_goes_from_register_to_its_last_byte() {
    let cluster = Cluster::start(3, Rate::from_bytes_per_sec(50e6));
    let (sender, receiver) = (cluster.client(0), cluster.client(2));
    let options = CoflowOptions { name: "shuffle".to_owned(), flows: 2, ..CoflowOptions::default() };
    let coflow = sender.register(options).await.unwrap();

    // One get waits for its put; the other block is a range of a file.
    let waiting = tokio::spawn({
        let receiver = receiver.clone();
        async move { receiver.get_bytes(coflow, "in-memory", GetOptions::default()).await }
    });
    let memory = pattern(700_001, 1);
    sender.put_bytes(coflow, "in-memory", &memory).await.unwrap();
    assert!(waiting.await.unwrap().unwrap() == memory);

    let file = pattern(900_000, 2);
    let path = cluster.dir.path().join("map-output");
    std::fs::write(&path, &file).unwrap();
    sender.put_file(coflow, "range", &path, 1000, 600_000).await.unwrap();
    let got = receiver.get_bytes(coflow, "range", GetOptions::default()).await.unwrap();
    assert!(got == file[1000..601_000]);

    // Complete by numFlows; the record counts both flows and their bytes.
    let record = tokio::time::timeout(Duration::from_secs(5), async {
        loop {
            let status = receiver.status().await.unwrap();
            if let Some(record) = status.completed.first() {
                return record.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!((record.coflow, record.flows, record.bytes), (coflow, 2, 1_300_001));
    sender.unregister(coflow).await.unwrap().unwrap();
    // The agent hears of the end a moment after the driver does; a small block may still slip through.
    let late = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Err(error) = receiver.get_bytes(coflow, "range", holders(&cluster, 0)).await {
                return error;
            }
        }
    });
    let late = late.await.unwrap();
    assert!(matches!(late, GetError::CoflowEnded(_)), "{late}");
}

fn holders(cluster: &Cluster, host: usize) -> GetOptions {
    GetOptions {
        holders: vec![cluster.agents[host]],
        time_limit: Duration::from_secs(20),
        ..GetOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_without_a_put_ends_at_its_limit_and_says_why() {
    let cluster = Cluster::start(1, Rate::from_bytes_per_sec(1e9));
    let client = cluster.client(0);
    let coflow = client.register(CoflowOptions::default()).await.unwrap();
    let options = GetOptions { time_limit: Duration::from_millis(300), ..GetOptions::default() };
    let error = client.get_bytes(coflow, "never", options).await.unwrap_err();
    assert!(error.to_string().contains("`never`"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_outside_the_allowed_directories_are_refused() {
    let cluster = Cluster::start(1, Rate::from_bytes_per_sec(1e9));
    let client = cluster.client(0);
    let coflow = client.register(CoflowOptions::default()).await.unwrap();
    let error = client.put_file(coflow, "hosts", Path::new("/etc/hosts"), 0, 1).await.unwrap_err();
    assert!(error.to_string().contains("--allow"), "{error}");
}

/// Larger than all that two sockets may hold.
const LONG_BLOCK: u64 = 128 << 20;

/// Until two looks at what the coordinator knows to be left agree: the sender has come to a stop.
async fn bytes_left_once_still(client: &Client) -> u64 {
    let mut before = u64::MAX;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let coflow = client.status().await.unwrap().coflows[0].clone();
        // So that no plan is taken for progress.
        assert!(coflow.bypassed);
        let left = coflow.bytes_left;
        if left == before {
            return left;
        }
        before = left;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_a_stream_stops_its_sender() {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt};
    let cluster = Cluster::start(2, Rate::from_bytes_per_sec(1e9));
    let client = cluster.client(1);
    let coflow = client.register(CoflowOptions { flows: 1, ..CoflowOptions::default() }).await.unwrap();
    let path = cluster.dir.path().join("long");
    std::fs::File::create(&path).unwrap().set_len(LONG_BLOCK).unwrap();
    cluster.client(0).put_file(coflow, "long", &path, 0, LONG_BLOCK).await.unwrap();
    let mut stream = client.get_stream(coflow, "long", GetOptions::default());
    let mut first = [1; 100];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(first, [0; 100]);
    // What the agent reports is what it handed to its socket. Half of the block is far beyond the buffers of
    // both ends.
    let left = bytes_left_once_still(&client).await;
    assert!(left > LONG_BLOCK / 2, "{left} bytes left of {LONG_BLOCK}");
    let mut total = first.len() as u64;
    loop {
        let held = stream.fill_buf().await.unwrap();
        if held.is_empty() {
            break;
        }
        assert!(held.len() <= 256 << 10 && held.iter().all(|&byte| byte == 0));
        let count = held.len();
        total += count as u64;
        stream.consume(count);
    }
    assert_eq!(total, LONG_BLOCK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_read_never_leaves_zeros() {
    let cluster = Cluster::start(2, Rate::from_bytes_per_sec(1e9));
    let client = cluster.client(1);
    let coflow = client.register(CoflowOptions { flows: 1, ..CoflowOptions::default() }).await.unwrap();
    let bytes = pattern(1 << 20, 3);
    let path = cluster.dir.path().join("short");
    std::fs::write(&path, &bytes).unwrap();
    cluster.client(0).put_file(coflow, "short", &path, 0, bytes.len() as u64).await.unwrap();
    // The file loses its second half after it was put.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 / 2).unwrap();
    let options = GetOptions { time_limit: Duration::from_secs(2), ..GetOptions::default() };
    let mut reader = client.get(coflow, "short", options);
    let mut got = Vec::new();
    let end = loop {
        match reader.next().await {
            Ok(Some(part)) => got.extend_from_slice(part),
            end => break end.map(|_| ()),
        }
    };
    assert!(end.is_err(), "half of the block is gone, and its get ended well");
    assert!(bytes.starts_with(&got));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_is_sent_to_the_holder_that_is_free() {
    let cluster = Cluster::start(3, Rate::from_bytes_per_sec(50e6));
    let clients = [cluster.client(0), cluster.client(1), cluster.client(2)];
    let coflow = clients[0].register(CoflowOptions::default()).await.unwrap();
    // Replicas would hold the same bytes; here they tell who sent them.
    for (client, byte) in clients.iter().zip([0, 1]) {
        client.put_bytes(coflow, "block", &[byte; 1000]).await.unwrap();
    }
    // A put may be answered before the coordinator hears of it.
    while clients[2].status().await.unwrap().agents.iter().map(|agent| agent.blocks).sum::<u64>() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let sent_by = async |receiver: &Client| {
        receiver.get_bytes(coflow, "block", GetOptions::default()).await.unwrap()[0]
    };
    assert_eq!(sent_by(&clients[1]).await, 1, "its own host");
    assert_eq!(sent_by(&clients[2]).await, 0, "both are free");
    let path = cluster.dir.path().join("long");
    std::fs::File::create(&path).unwrap().set_len(LONG_BLOCK).unwrap();
    clients[0].put_file(coflow, "long", &path, 0, LONG_BLOCK).await.unwrap();
    let mut long = clients[2].get(coflow, "long", GetOptions::default());
    assert!(long.next().await.unwrap().is_some());
    // Bytes may be here before the coordinator hears of them.
    while clients[2].status().await.unwrap().agents[0].flows == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(sent_by(&clients[2]).await, 1, "host 0 has a long block to send");
}
