//! Careless and hostile use of a real agent, over real sockets and files.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, CoflowOptions, Error, GetError, GetOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Fabric, Rate};

struct Cluster {
    dir: tempfile::TempDir,
    coordinator: String,
    agents: Vec<SocketAddr>,
    clients: Vec<Client>,
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Cluster {
    fn start(hosts: u32) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let listener = weir_net::control_listener(any_port()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let fabric = Fabric::big_switch(hosts, Rate::from_bytes_per_sec(100e6)).unwrap();
        let options = CoordinatorOptions::new(fabric, weir_policy::find("varys").unwrap());
        tokio::spawn(weir_daemon::coordinator::serve(options, listener, std::future::pending()));
        let (mut agents, mut clients) = (Vec::new(), Vec::new());
        for host in 0..hosts {
            let listener = weir_net::data_listener(any_port()).unwrap();
            agents.push(listener.local_addr().unwrap());
            let spool = dir.path().join(format!("spool-{host}"));
            let mut options = AgentOptions::new(host, spool.clone());
            // By name: it is looked up.
            options.coordinator = Some(format!("localhost:{port}").parse().unwrap());
            options.allow = vec![dir.path().join("data")];
            tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
            let coordinator = Some(format!("localhost:{port}").parse().unwrap());
            clients.push(Client::new(ClientConfig {
                coordinator,
                agent: Some(spool.join("agent.sock")),
                host,
            }));
        }
        Cluster { dir, coordinator: format!("localhost:{port}"), agents, clients }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join("data").join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// A client of its own.
    fn driver(&self) -> Client {
        let coordinator = Some(self.coordinator.parse().unwrap());
        Client::new(ClientConfig { coordinator, agent: None, host: 0 })
    }

    fn spool(&self) -> PathBuf {
        self.dir.path().join("spool-0")
    }

    async fn coflow(&self) -> u64 {
        self.clients[0].register(CoflowOptions::default()).await.unwrap()
    }

    async fn get(&self, coflow: u64, block: &str) -> Result<Vec<u8>, GetError> {
        let options = GetOptions { time_limit: Duration::from_secs(20), ..GetOptions::default() };
        self.clients[1].get_bytes(coflow, block, options).await
    }
}

fn refused(result: Result<(), Error>) -> String {
    match result {
        Err(Error::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_without_bytes_are_put_and_got_like_others() {
    let cluster = Cluster::start(2);
    let options = CoflowOptions { flows: 2, ..CoflowOptions::default() };
    let coflow = cluster.clients[0].register(options).await.unwrap();
    cluster.clients[0].put_bytes(coflow, "memory", b"").await.unwrap();
    let file = cluster.file("empty", b"");
    cluster.clients[0].put_file(coflow, "file", &file, 0, 0).await.unwrap();
    assert_eq!(cluster.get(coflow, "memory").await.unwrap(), b"");
    assert_eq!(cluster.get(coflow, "file").await.unwrap(), b"");
    let record = cluster.clients[0].unregister(coflow).await.unwrap().unwrap();
    assert_eq!((record.flows, record.bytes), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_has_every_flow_that_was_got_before_unregister() {
    let cluster = Cluster::start(2);
    for _ in 0..30 {
        let options = CoflowOptions { flows: 2, deadline_ms: 20_000, ..CoflowOptions::default() };
        let coflow = cluster.clients[0].register(options).await.unwrap();
        for block in ["a", "b"] {
            cluster.clients[0].put_bytes(coflow, block, &[7; 3000]).await.unwrap();
        }
        let (a, b) = tokio::join!(cluster.get(coflow, "a"), cluster.get(coflow, "b"));
        assert_eq!((a.unwrap().len(), b.unwrap().len()), (3000, 3000));
        let record = cluster.clients[0].unregister(coflow).await.unwrap().unwrap();
        assert_eq!((record.flows, record.bytes, record.met), (2, 6000, true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_rewritten_is_told_at_once_and_may_be_put_again() {
    let cluster = Cluster::start(2);
    let coflow = cluster.coflow().await;
    let file = cluster.file("map-0", &[1; 600_000]);
    cluster.clients[0].put_file(coflow, "b", &file, 0, 600_000).await.unwrap();
    assert_eq!(cluster.get(coflow, "b").await.unwrap(), [1; 600_000]);
    // The map task runs again and writes other bytes to the same place.
    cluster.file("map-0", &[2; 600_000]);
    let begun = Instant::now();
    let error = cluster.get(coflow, "b").await.unwrap_err();
    assert!(matches!(error, GetError::Gone { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "at once, and not at the limit of the get");
    cluster.clients[0].put_file(coflow, "b", &file, 0, 600_000).await.unwrap();
    assert_eq!(cluster.get(coflow, "b").await.unwrap(), [2; 600_000]);
    // Without anybody having asked meanwhile too.
    cluster.file("map-0", &[3; 700_000]);
    cluster.clients[0].put_file(coflow, "b", &file, 0, 700_000).await.unwrap();
    assert_eq!(cluster.get(coflow, "b").await.unwrap(), [3; 700_000]);
}

/// By then the coordinator knows no holder any more, and a get that asked nobody else would wait for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_rewritten_while_it_was_read_is_told_at_once() {
    let cluster = Cluster::start(2);
    let coflow = cluster.coflow().await;
    let file = cluster.file("map-0", &[1; 60_000_000]);
    cluster.clients[0].put_file(coflow, "b", &file, 0, 60_000_000).await.unwrap();
    let options = GetOptions { time_limit: Duration::from_secs(60), ..GetOptions::default() };
    let mut reader = cluster.clients[1].get(coflow, "b", options);
    assert!(reader.next().await.unwrap().is_some());
    cluster.file("map-0", &[2; 60_000_000]);
    let begun = Instant::now();
    let error = loop {
        match reader.next().await {
            Ok(part) => assert!(part.expect("it changed before its end").iter().all(|&byte| byte == 1)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, GetError::Gone { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(20), "at once, and not at the limit of the get");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_became_a_fifo_or_a_link_is_not_served_and_holds_up_nobody() {
    let cluster = Cluster::start(2);
    let coflow = cluster.coflow().await;
    let secret = cluster.dir.path().join("secret");
    std::fs::write(&secret, [9; 1000]).unwrap();
    cluster.clients[0].put_bytes(coflow, "other", b"still here").await.unwrap();
    for name in ["fifo", "link", "gone"] {
        let file = cluster.file(name, &[1; 1000]);
        cluster.clients[0].put_file(coflow, name, &file, 0, 1000).await.unwrap();
        std::fs::remove_file(&file).unwrap();
        match name {
            "fifo" => rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap(),
            "link" => std::os::unix::fs::symlink(&secret, &file).unwrap(),
            _ => {}
        }
        let error = cluster.get(coflow, name).await.unwrap_err();
        assert!(matches!(error, GetError::Gone { .. }), "{name}: {error}");
        assert_eq!(cluster.get(coflow, "other").await.unwrap(), b"still here");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outside_the_allowed_directories_and_none_of_the_agents_own_files_can_be_put() {
    let cluster = Cluster::start(2);
    let (coflow, client) = (cluster.coflow().await, &cluster.clients[0]);
    let secret = cluster.dir.path().join("secret");
    std::fs::write(&secret, [9; 1000]).unwrap();
    let link = cluster.dir.path().join("data/link");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    for path in
        [secret.clone(), link, cluster.spool().join("own/journal.jsonl"), cluster.spool().join("own/lock")]
    {
        let reason = refused(client.put_file(coflow, "b", &path, 0, 1).await);
        assert!(reason.contains("may serve") || reason.contains("own file"), "{reason}");
    }
    // Names in the spool, said by hand: only those that tasks give.
    let channel = weir_net::agent_channel(cluster.spool().join("agent.sock"));
    let mut agent = weir_proto::v1::agent_client::AgentClient::new(channel);
    let spooled = |path: &str| weir_proto::v1::PutRequest {
        coflow,
        block: "s".to_owned(),
        path: path.to_owned(),
        size: 1,
        spooled: true,
        ..Default::default()
    };
    for path in ["journal.jsonl", "../secret", "lock", "identity", "a/b.block", ""] {
        let status = agent.put(spooled(path)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{path}: {status}");
    }
    // A link in the spool, and a second name of a file.
    let name = format!("{}.block", "a".repeat(32));
    std::os::unix::fs::symlink(&secret, cluster.spool().join("blocks").join(&name)).unwrap();
    assert!(agent.put(spooled(&name)).await.is_err());
    std::fs::remove_file(cluster.spool().join("blocks").join(&name)).unwrap();
    std::fs::hard_link(&secret, cluster.spool().join("blocks").join(&name)).unwrap();
    assert!(agent.put(spooled(&name)).await.is_err());
    assert!(secret.exists() && cluster.spool().join("own/journal.jsonl").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_and_names_beyond_the_bounds_are_refused_with_the_bound() {
    let cluster = Cluster::start(2);
    let (coflow, client) = (cluster.coflow().await, &cluster.clients[0]);
    let file = cluster.file("sparse", b"");
    let reason = refused(client.put_file(coflow, "b", &file, 0, 1 << 62).await);
    assert!(reason.contains("8796093022208"), "{reason}");
    let reason = refused(client.put_file(coflow, &"n".repeat(256), &file, 0, 0).await);
    assert!(reason.contains("255"), "{reason}");
    let name = CoflowOptions { name: "n".repeat(400_000), ..CoflowOptions::default() };
    let error = client.register(name).await.unwrap_err();
    assert!(error.to_string().contains("1024"), "{error}");
    let parents = CoflowOptions { parents: vec![1; 500_000], ..CoflowOptions::default() };
    assert!(client.register(parents).await.unwrap_err().to_string().contains("1000"));
    // A file of eight tebibytes without a byte on the disk, where the file system has such files.
    let sparse = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    if sparse.set_len(weir_proto::limits::MAX_BLOCK_BYTES).is_ok() {
        client.put_file(coflow, "huge", &file, 0, weir_proto::limits::MAX_BLOCK_BYTES).await.unwrap();
        let mut reader = cluster.clients[1].get(coflow, "huge", GetOptions::default());
        assert_eq!(reader.next().await.unwrap().unwrap(), [0; 262_144]);
    } else {
        eprintln!("SKIPPED the sparse file of 8 TiB: this file system has no files of that length");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_goes_on_while_thousands_of_spooled_files_are_removed() {
    let cluster = Cluster::start(2);
    let (many, other) = (cluster.coflow().await, cluster.coflow().await);
    for number in 0..2_000 {
        cluster.clients[0].put_bytes(many, &number.to_string(), b"x").await.unwrap();
    }
    cluster.clients[0].put_bytes(other, "b", &[5; 100_000]).await.unwrap();
    cluster.clients[0].unregister(many).await.unwrap();
    assert_eq!(cluster.get(other, "b").await.unwrap().len(), 100_000);
    let left = || spooled(&cluster.spool().join("blocks"));
    let end = Instant::now() + Duration::from_secs(60);
    while left() > 1 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(left(), 1, "all files of the coflow that ended are gone");
}

fn spooled(spool: &Path) -> usize {
    let named = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().ends_with(".block")
    };
    std::fs::read_dir(spool).unwrap().filter_map(|entry| named(entry).then_some(())).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_never_speak_take_nobodys_place() {
    let cluster = Cluster::start(2);
    let coflow = cluster.coflow().await;
    cluster.clients[0].put_bytes(coflow, "b", b"bytes").await.unwrap();
    let silent: Vec<_> = (0..500).map(|_| std::net::TcpStream::connect(cluster.agents[0]).unwrap()).collect();
    assert_eq!(cluster.get(coflow, "b").await.unwrap(), b"bytes");
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_agent_on_a_spool_ends_and_the_first_one_loses_nothing() {
    let cluster = Cluster::start(2);
    let coflow = cluster.coflow().await;
    cluster.clients[0].put_bytes(coflow, "b", b"bytes").await.unwrap();
    let listener = weir_net::data_listener(any_port()).unwrap();
    let second = AgentOptions::new(5, cluster.spool());
    let error = weir_daemon::agent::serve(second, listener, std::future::pending()).await.unwrap_err();
    assert!(format!("{error:#}").contains("in use by another agent"), "{error:#}");
    cluster.clients[0].put_bytes(coflow, "c", b"more").await.unwrap();
    assert_eq!(cluster.get(coflow, "b").await.unwrap(), b"bytes");
    assert_eq!(cluster.get(coflow, "c").await.unwrap(), b"more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coflow_lives_as_long_as_its_driver_and_is_collected_after_it() {
    let cluster = Cluster::start(2);
    let socket = cluster.spool().join("agent.sock");
    let agent = Client::new(ClientConfig { coordinator: None, agent: Some(socket), host: 0 });
    let driver = cluster.driver();
    let options = CoflowOptions { lease_ms: 3_000, ..CoflowOptions::default() };
    let coflow = driver.register(options).await.unwrap();
    agent.put_bytes(coflow, "b", b"bytes").await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let live = || async { cluster.clients[1].status().await.unwrap().coflows.len() };
    assert_eq!((live().await, spooled(&cluster.spool().join("blocks"))), (1, 1), "its driver lives");
    drop(driver);
    let end = Instant::now() + Duration::from_secs(20);
    while (live().await > 0 || spooled(&cluster.spool().join("blocks")) > 0) && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        (live().await, spooled(&cluster.spool().join("blocks"))),
        (0, 0),
        "nobody cares for it any more"
    );
    assert!(matches!(cluster.get(coflow, "b").await, Err(GetError::CoflowEnded(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_caller_is_gone_is_forgotten_by_the_coordinator() {
    let cluster = Cluster::start(2);
    let driver = cluster.driver();
    let options = CoflowOptions { lease_ms: 3_000, ..CoflowOptions::default() };
    let coflow = driver.register(options).await.unwrap();
    let channel = weir_net::coordinator_channel(cluster.coordinator.parse::<weir_net::Address>().unwrap());
    let mut receiver = weir_proto::v1::coordinator_client::CoordinatorClient::new(channel);
    let block = "never put".to_owned();
    let request = weir_proto::v1::LocateRequest { coflow, block, wait_ms: 600_000, host: 1 };
    let get = tokio::spawn(async move { receiver.locate(request).await });
    drop(driver);
    tokio::time::sleep(Duration::from_secs(8)).await;
    let live = || async { cluster.clients[0].status().await.unwrap().coflows.len() };
    assert_eq!(live().await, 1, "its receiver waits, and so it lives on without its driver");
    get.abort();
    let end = Instant::now() + Duration::from_secs(60);
    while live().await > 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(live().await, 0, "long before the ten minutes are over that its call was to wait");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_ask_for_more_blocks_than_may_wait_hold_up_nobody_and_leave_nothing() {
    use weir_proto::limits::{MAX_LOCATES_PER_CALL, MAX_WAITING_LOCATES};
    let cluster = Cluster::start(2);
    let coflow = cluster.coflow().await;
    let address: weir_net::Address = cluster.coordinator.parse().unwrap();
    let asker = || {
        let channel = weir_net::coordinator_channel(address.clone());
        weir_proto::v1::coordinator_client::CoordinatorClient::new(channel)
    };
    let questions = |call: usize, count: usize| {
        let question = |block| weir_proto::v1::LocateRequest {
            coflow,
            block: format!("never put {call} {block}"),
            wait_ms: 600_000,
            host: 1,
        };
        weir_proto::v1::LocateAllRequest { requests: (0..count).map(question).collect() }
    };
    let refused = asker().locate_all(questions(0, MAX_LOCATES_PER_CALL + 1)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().contains(&MAX_LOCATES_PER_CALL.to_string()), "{refused}");

    // Together they fill what may wait, and the last one finds no room: it is answered at once, though nobody has put anything.
    let mut waiting = Vec::new();
    for call in 0..=MAX_WAITING_LOCATES / MAX_LOCATES_PER_CALL {
        waiting.push(asker().locate_all(questions(call, MAX_LOCATES_PER_CALL)).await.unwrap().into_inner());
    }
    let last = waiting.last_mut().unwrap();
    for _ in 0..MAX_LOCATES_PER_CALL {
        let answer = tokio::time::timeout(Duration::from_secs(60), last.message()).await.unwrap();
        assert_eq!(answer.unwrap().unwrap().reply, Some(weir_proto::v1::LocateReply::default()));
    }
    assert!(tokio::time::timeout(Duration::from_millis(100), waiting[0].message()).await.is_err());

    // Whoever asks for what is there hears so.
    let bytes = vec![7; 100_000];
    cluster.clients[0].put_bytes(coflow, "b", &bytes).await.unwrap();
    assert_eq!(cluster.get(coflow, "b").await.unwrap(), bytes);

    // They leave, and there is room again.
    drop(waiting);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let mut answers = asker().locate_all(questions(0, 1)).await.unwrap().into_inner();
        if tokio::time::timeout(Duration::from_millis(300), answers.message()).await.is_err() {
            break;
        }
        assert!(Instant::now() < end, "what waited was kept");
    }
}

#[tokio::test]
async fn who_cannot_be_reached_and_why_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = dir.path().join("agent.sock");
    let client =
        Client::new(ClientConfig { coordinator: Some(nobody.into()), agent: Some(socket.clone()), host: 0 });
    let said = client.status().await.unwrap_err().to_string();
    assert!(
        said.contains(&format!("the coordinator at {nobody}: ")) && said.contains("refused (os error"),
        "{said}"
    );
    let (put, registered) =
        tokio::join!(client.put_bytes(1, "b", b"x"), client.register(CoflowOptions::default()));
    let said = put.unwrap_err().to_string();
    assert!(said.contains(&format!("the agent at {}: No such file", socket.display())), "{said}");
    let said = registered.unwrap_err().to_string();
    assert!(said.contains(&format!("the coordinator at {nobody}: ")), "{said}");
}

/// Whoever gets a block may say that a frame was wrong; the agent believes its file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_lies_about_a_frame_takes_no_block_away() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use weir_proto::data::{Identity, RESPONSE_BYTES, Request, Response, Status, encode_nak};
    let cluster = Cluster::start(2);
    let (coflow, bytes) = (cluster.coflow().await, vec![7; 600_000]);
    cluster.clients[0].put_bytes(coflow, "b", &bytes).await.unwrap();
    for frame in [0, 1, 2, 3, u64::MAX] {
        let (identity, block) = (Identity::UNKNOWN, "b".to_owned());
        let request = Request { coflow, offset: 0, destination: 1, group: 0, identity, block };
        let mut stream = tokio::net::TcpStream::connect(cluster.agents[0]).await.unwrap();
        stream.write_all(&request.encode()).await.unwrap();
        let mut answer = [0; RESPONSE_BYTES];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(Response::decode(&answer).unwrap().status, Status::Accepted);
        stream.write_all(&encode_nak(frame)).await.unwrap();
        // The agent closes, and reads the frame again.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.len() < 700_000, "{frame}");
        assert!(cluster.get(coflow, "b").await.unwrap() == bytes, "{frame}");
    }
    assert!(cluster.clients[0].status().await.unwrap().agents.iter().any(|agent| agent.blocks == 1));
}
