//! Ranges of an executor's shuffle files, gathered from a real agent by a receiver that is played by hand.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Channel;
use weir_client::{Client, ClientConfig, CoflowOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Fabric, Rate};
use weir_proto::data::{
    ACK, FRAME_BYTES, FRAME_HEADER_BYTES, FrameHeader, Identity, RESPONSE_BYTES, Response, Status, checksum,
    frame_length,
};
use weir_proto::gather::{GatherRange, GatherRequest};
use weir_proto::v1;
use weir_proto::v1::agent_client::AgentClient;

const TOKEN: [u8; 16] = [5; 16];
const LIMIT: Duration = Duration::from_secs(30);

/// A coordinator and an agent; dropping the runtime ends them.
struct Cluster {
    coordinator: SocketAddr,
    dir: tempfile::TempDir,
    agent: SocketAddr,
}

impl Cluster {
    async fn start() -> Cluster {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let dir = tempfile::tempdir().unwrap();
        let listener = weir_net::control_listener(any_port).unwrap();
        let coordinator = listener.local_addr().unwrap();
        let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(20e6)).unwrap();
        let mut options = CoordinatorOptions::new(fabric, weir_policy::find("varys").unwrap());
        options.tuning.bypass = weir_model::Span::ZERO;
        tokio::spawn(weir_daemon::coordinator::serve(options, listener, std::future::pending()));
        let listener = weir_net::data_listener(any_port).unwrap();
        let agent = listener.local_addr().unwrap();
        let mut options = AgentOptions::new(0, dir.path().join("spool"));
        options.coordinator = Some(coordinator.into());
        let allowed = dir.path().join("allowed");
        std::fs::create_dir(&allowed).unwrap();
        options.allow = vec![allowed];
        tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
        let cluster = Cluster { coordinator, dir, agent };
        while !cluster.dir.path().join("spool/agent.sock").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cluster
    }

    fn agent_calls(&self) -> AgentClient<Channel> {
        AgentClient::new(weir_net::agent_channel(self.dir.path().join("spool/agent.sock")))
    }

    fn local_dir(&self) -> PathBuf {
        self.dir.path().join("allowed/blockmgr").canonicalize().unwrap()
    }

    fn store(&self) -> v1::AttachStoreRequest {
        v1::AttachStoreRequest {
            application: "app-1".to_owned(),
            executor: "0".to_owned(),
            token: TOKEN.to_vec(),
            directories: vec![self.local_dir().display().to_string()],
            subdirectories: 64,
        }
    }

    async fn attach(&self) {
        std::fs::create_dir_all(self.dir.path().join("allowed/blockmgr")).unwrap();
        let reply = self.agent_calls().attach_store(self.store()).await.unwrap().into_inner();
        assert_eq!((reply.host, reply.data_address), (0, self.agent.to_string()));
    }

    async fn register(&self) -> u64 {
        let config = ClientConfig { coordinator: Some(self.coordinator.into()), agent: None, host: 1 };
        Client::new(config).register(CoflowOptions::default()).await.unwrap()
    }
}

/// Where Spark puts a file of this name in one directory with 64 subdirectories.
fn place(dir: &Path, name: &str) -> PathBuf {
    let hash = name.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    dir.join(format!("{:02x}", hash.unsigned_abs() % 64)).join(name)
}

fn byte(map: u64, at: u64) -> u8 {
    ((at * 31 + map * 7 + at / 1_000) % 251) as u8
}

/// Writes the output of a map task of shuffle 3.
fn write(dir: &Path, map: u64, lengths: &[u64]) {
    let (mut index, mut at) = (0u64.to_be_bytes().to_vec(), 0);
    for length in lengths {
        at += length;
        index.extend_from_slice(&at.to_be_bytes());
    }
    let data: Vec<u8> = (0..at).map(|at| byte(map, at)).collect();
    for (suffix, bytes) in [("index", index), ("data", data)] {
        let path = place(dir, &format!("shuffle_3_{map}_0.{suffix}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

fn gather(coflow: u64, ranges: &[(u64, u32, u32)]) -> GatherRequest {
    GatherRequest {
        coflow,
        offset: 0,
        destination: 1,
        group: 0,
        identity: Identity::UNKNOWN,
        token: TOKEN,
        shuffle: 3,
        application: "app-1".to_owned(),
        executor: "0".to_owned(),
        ranges: ranges.iter().map(|&(map, first, end)| GatherRange { map, first, end }).collect(),
    }
}

/// Asks; the answer, and what frames said until the end, or until the connection ended.
async fn ask(stream: &mut TcpStream, request: &GatherRequest) -> (Response, Vec<u8>) {
    let asked = async {
        stream.write_all(&request.encode()).await.unwrap();
        let mut head = [0; RESPONSE_BYTES];
        stream.read_exact(&mut head).await.unwrap();
        let response = Response::decode(&head).unwrap();
        let (mut got, mut at) = (Vec::new(), request.offset);
        while response.status == Status::Accepted && at < response.size {
            let mut lead = [0; FRAME_HEADER_BYTES];
            if stream.read_exact(&mut lead).await.is_err() {
                return (response, got);
            }
            let header = FrameHeader::decode(&lead).unwrap();
            assert_eq!(u64::from(header.length), frame_length(response.size, at));
            let mut frame = vec![0; header.length as usize];
            stream.read_exact(&mut frame).await.unwrap();
            assert_eq!(header.checksum, checksum(&frame), "frame at {at}");
            at += frame.len() as u64;
            got.extend(frame);
        }
        (response, got)
    };
    tokio::time::timeout(LIMIT, asked).await.unwrap()
}

/// What a gather should bring: the obvious way.
fn expected(outputs: &[(u64, &[u64])], ranges: &[(u64, u32, u32)]) -> Vec<u8> {
    let (mut table, mut bytes) = (Vec::new(), Vec::new());
    for &(map, first, end) in ranges {
        let lengths = outputs.iter().find(|(number, _)| *number == map).unwrap().1;
        let sum = |until: u32| lengths[..until as usize].iter().sum::<u64>();
        table.extend((sum(end) - sum(first)).to_le_bytes());
        bytes.extend((sum(first)..sum(end)).map(|at| byte(map, at)));
    }
    [table, bytes].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_of_many_files_come_as_one_flow_and_resume() {
    let cluster = Cluster::start().await;
    cluster.attach().await;
    let outputs: [(u64, &[u64]); 3] =
        [(0, &[100_000, 0, 300_000, 7]), (12, &[1, 2, 3, 4]), (1 << 40, &[0, 0, 0, 900_000])];
    for (map, lengths) in outputs {
        write(&cluster.local_dir(), map, lengths);
    }
    let coflow = cluster.register().await;
    let ranges = [(1 << 40, 3, 4), (0, 0, 1), (12, 1, 3), (0, 1, 4), (1 << 40, 0, 3), (12, 3, 4)];
    let whole = expected(&outputs, &ranges);
    let mut stream = TcpStream::connect(cluster.agent).await.unwrap();
    let wanted = gather(coflow, &ranges);
    let (response, got) = ask(&mut stream, &wanted).await;
    assert_eq!((response.status, response.size), (Status::Accepted, whole.len() as u64));
    assert!(got == whole, "the bytes of the files");
    stream.write_all(&[ACK]).await.unwrap();
    // On the same connection, and from its third frame on.
    let resumed = GatherRequest { offset: 2 * FRAME_BYTES, identity: response.identity, ..wanted.clone() };
    let (again, rest) = ask(&mut stream, &resumed).await;
    assert_eq!(again.identity, response.identity);
    assert!(rest == whole[2 * FRAME_BYTES as usize..]);
    stream.write_all(&[ACK]).await.unwrap();
    // The coordinator counted one flow of this receiver, whatever came twice.
    let client =
        Client::new(ClientConfig { coordinator: Some(cluster.coordinator.into()), agent: None, host: 1 });
    let record = client.unregister(coflow).await.unwrap().unwrap();
    assert_eq!((record.flows, record.bytes), (1, whole.len() as u64));
    // The agent hears of the end a moment later; a gather that it is about to answer then is closed without a word.
    for _ in 0..500 {
        let mut late = TcpStream::connect(cluster.agent).await.unwrap();
        late.write_all(&wanted.encode()).await.unwrap();
        let mut head = [0; RESPONSE_BYTES];
        let answered = tokio::time::timeout(LIMIT, late.read_exact(&mut head)).await.unwrap().is_ok();
        if answered && Response::decode(&head).unwrap().status == Status::CoflowEnded {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("an ended coflow goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_has_the_token_is_served_and_from_the_owners_own_directories_alone() {
    let cluster = Cluster::start().await;
    cluster.attach().await;
    write(&cluster.local_dir(), 0, &[10, 20]);
    let coflow = cluster.register().await;
    let status = async |request: GatherRequest| {
        let mut stream = TcpStream::connect(cluster.agent).await.unwrap();
        ask(&mut stream, &request).await.0.status
    };
    let good = gather(coflow, &[(0, 0, 2)]);
    assert_eq!(status(good.clone()).await, Status::Accepted);
    assert_eq!(status(GatherRequest { token: [6; 16], ..good.clone() }).await, Status::Forbidden);
    assert_eq!(
        status(GatherRequest { application: "app-2".to_owned(), ..good.clone() }).await,
        Status::NoSuchBlock
    );
    assert_eq!(status(GatherRequest { executor: "1".to_owned(), ..good.clone() }).await, Status::NoSuchBlock);
    assert_eq!(status(GatherRequest { shuffle: 4, ..good.clone() }).await, Status::NoSuchBlock);
    assert_eq!(status(gather(coflow, &[(0, 0, 3)])).await, Status::Unreadable);
    assert_eq!(status(GatherRequest { offset: 7, ..good.clone() }).await, Status::BadRequest);
    assert_eq!(
        status(GatherRequest { identity: Identity([9; 16]), ..good.clone() }).await,
        Status::OtherBytes
    );

    let refused = async |request: v1::AttachStoreRequest| {
        cluster.agent_calls().attach_store(request).await.map(drop).map_err(|status| status.code())
    };
    let dirs = |paths: &[&Path]| v1::AttachStoreRequest {
        executor: "9".to_owned(),
        directories: paths.iter().map(|path| path.display().to_string()).collect(),
        ..cluster.store()
    };
    let outside = tempfile::tempdir().unwrap();
    let link = cluster.dir.path().join("allowed/link");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let spool = cluster.dir.path().join("spool");
    let within = cluster.local_dir();
    assert_eq!(refused(dirs(&[&within, outside.path()])).await, Err(Code::PermissionDenied));
    assert_eq!(refused(dirs(&[&link])).await, Err(Code::PermissionDenied));
    assert_eq!(refused(dirs(&[&spool])).await, Err(Code::PermissionDenied));
    assert_eq!(refused(dirs(&[Path::new("allowed")])).await, Err(Code::InvalidArgument));
    assert_eq!(refused(dirs(&[&within.join("nothing")])).await, Err(Code::NotFound));
    assert_eq!(refused(dirs(&vec![&*within; 65])).await, Err(Code::InvalidArgument));
    assert_eq!(refused(dirs(&[])).await, Err(Code::InvalidArgument));
    let short = v1::AttachStoreRequest { token: vec![1; 15], ..cluster.store() };
    assert_eq!(refused(short).await, Err(Code::InvalidArgument));
    let other = v1::AttachStoreRequest { token: vec![6; 16], ..cluster.store() };
    assert_eq!(refused(other).await, Err(Code::AlreadyExists));
    // A directory of another user; only root can give one away.
    let theirs = cluster.dir.path().join("allowed/theirs");
    std::fs::create_dir(&theirs).unwrap();
    if std::os::unix::fs::chown(&theirs, Some(12_345), None).is_ok() {
        assert_eq!(refused(dirs(&[&theirs])).await, Err(Code::PermissionDenied));
    }
    let detach = |token: [u8; 16]| v1::DetachStoreRequest {
        application: "app-1".to_owned(),
        executor: "0".to_owned(),
        token: token.to_vec(),
    };
    let wrong = cluster.agent_calls().detach_store(detach([6; 16])).await.unwrap_err();
    assert_eq!(wrong.code(), Code::NotFound);
    assert_eq!(status(good.clone()).await, Status::Accepted);
    cluster.agent_calls().detach_store(detach(TOKEN)).await.unwrap();
    assert_eq!(status(good).await, Status::NoSuchBlock);
}

/// The task's file is cut short, or goes, while it is sent: the receiver hears no wrong byte, and others are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changes_while_it_is_gathered_ends_the_connection_and_nothing_else() {
    let cluster = Cluster::start().await;
    cluster.attach().await;
    let outputs: [(u64, &[u64]); 1] = [(0, &[20_000_000, 1_000])];
    write(&cluster.local_dir(), 0, outputs[0].1);
    let coflow = cluster.register().await;
    let mut stream = TcpStream::connect(cluster.agent).await.unwrap();
    let cut = tokio::spawn({
        let data = place(&cluster.local_dir(), "shuffle_3_0_0.data");
        async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            std::fs::File::options().write(true).open(data).unwrap().set_len(5_000_000).unwrap();
        }
    });
    let (response, got) = ask(&mut stream, &gather(coflow, &[(0, 0, 1)])).await;
    cut.await.unwrap();
    assert_eq!(response.status, Status::Accepted);
    let whole = expected(&outputs, &[(0, 0, 1)]);
    assert!(got.len() < whole.len() && whole.starts_with(&got), "{} bytes", got.len());
    let mut stream = TcpStream::connect(cluster.agent).await.unwrap();
    let wrong = ask(&mut stream, &gather(coflow, &[(0, 0, 1)])).await.0;
    assert_eq!(wrong.status, Status::Unreadable, "its index says more than there is");
    write(&cluster.local_dir(), 1, &[5]);
    let mut stream = TcpStream::connect(cluster.agent).await.unwrap();
    assert_eq!(ask(&mut stream, &gather(coflow, &[(1, 0, 1)])).await.0.size, 13);
}
