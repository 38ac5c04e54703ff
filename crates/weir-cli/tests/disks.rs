//! An agent whose disks hang or are full, or whose files may not grow: whoever needs that disk waits or is refused, and
//! nobody else.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::hanging_disk::{FreezingDisk, HangingDisk};
use support::process::{Process, weir};
use support::small_disk::SmallDisk;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir_client::{Client, ClientConfig, CoflowOptions, Error, GetOptions};
use weir_proto::data::{Identity, RESPONSE_BYTES, Request, Response, Status};
use weir_testbed::free_address;

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// A coordinator, and one agent, which receives what it serves itself.
struct Bed {
    dir: tempfile::TempDir,
    coordinator: SocketAddr,
    address: SocketAddr,
    spool: PathBuf,
    processes: Vec<Process>,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let (coordinator, address) = (free_address().unwrap(), free_address().unwrap());
        let spool = dir.path().join("spool");
        Bed { dir, coordinator, address, spool, processes: Vec::new() }
    }

    /// Starts both. `before` goes before the agent's program, in a shell.
    fn start(&mut self, before: &str, allow: &[&Path]) {
        let listen = self.coordinator.to_string();
        let coordinator = ["coordinator", "--hosts", "1", "--link-rate", "10gbit", "--listen", &listen];
        self.processes.push(Process::spawn(&mut weir(&coordinator)));
        let mut agent = Command::new("sh");
        agent.args(["-c", &format!("{before} exec \"$@\""), "sh", env!("CARGO_BIN_EXE_weir"), "agent"]);
        agent.args(["--host", "0", "--listen", &self.address.to_string(), "--coordinator", &listen]);
        agent.arg("--spool").arg(&self.spool).arg("--allow").arg(self.dir.path().join("data"));
        allow.iter().for_each(|path| _ = agent.arg("--allow").arg(path));
        self.processes.push(Process::spawn(&mut agent));
        let end = Instant::now() + LIMIT;
        while !self.socket().exists() {
            assert!(Instant::now() < end, "the agent listens");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn socket(&self) -> PathBuf {
        self.spool.join("agent.sock")
    }

    fn client(&self) -> Client {
        let (coordinator, agent) = (Some(self.coordinator.into()), Some(self.socket()));
        Client::new(ClientConfig { coordinator, agent, host: 0 })
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join("data").join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    async fn get(&self, coflow: u64, block: &str) -> Vec<u8> {
        let options = GetOptions { holders: vec![self.address], time_limit: LIMIT, ..GetOptions::default() };
        self.client().get_bytes(coflow, block, options).await.unwrap()
    }

    /// What a request for a block that nobody put is answered.
    async fn refusal(&self, coflow: u64) -> Status {
        let (identity, block) = (Identity::UNKNOWN, "none of this name".to_owned());
        let request = Request { coflow, offset: 0, destination: 0, group: 0, identity, block };
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&request.encode()).await.unwrap();
        let mut answer = [0; RESPONSE_BYTES];
        stream.read_exact(&mut answer).await.unwrap();
        Response::decode(&answer).unwrap().status
    }
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(4 * LIMIT, work).await.expect("nothing hangs") });
}

/// Waits until something holds.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn files_that_cannot_be_opened_hold_up_nobody_who_needs_another_disk() {
    const HANGING: u64 = 70;
    let mut bed = Bed::new();
    let Some(disk) = HangingDisk::mount(&bed.dir.path().join("disk"), 1000) else { return };
    bed.start("", &[&bed.dir.path().join("disk")]);
    run(async {
        let client = bed.client();
        let coflow = client.register(CoflowOptions::default()).await.unwrap();
        for number in 0..HANGING {
            client.put_file(coflow, &number.to_string(), &disk.file(number), 0, 1000).await.unwrap();
        }
        let good = bed.file("good", &[5; 300_000]);
        client.put_file(coflow, "good", &good, 0, 300_000).await.unwrap();
        disk.hang();
        let mut waiting = JoinSet::new();
        for number in 0..HANGING {
            let (client, holders) = (client.clone(), vec![bed.address]);
            let options = GetOptions { holders, time_limit: LIMIT, ..GetOptions::default() };
            waiting.spawn(async move {
                let got = client.get_bytes(coflow, &number.to_string(), options).await.unwrap();
                assert_eq!(got, vec![number as u8; 1000]);
            });
        }
        eventually("files are being opened", || disk.waiting() >= 4).await;
        // More than would hold up all there is, if places were shared.
        for number in 0..30 {
            assert_eq!(bed.refusal(coflow).await, Status::NoSuchBlock);
            assert_eq!(bed.get(coflow, "good").await, [5; 300_000]);
            client.put_file(coflow, &format!("more {number}"), &good, 0, 1000).await.unwrap();
            client.put_bytes(coflow, &format!("memory {number}"), &[6; 1000]).await.unwrap();
        }
        assert!(disk.waiting() >= 4, "all that while nothing was opened there");
        disk.go_on();
        waiting.join_all().await;
    });
}

#[test]
fn a_block_whose_disk_stops_in_mid_read_holds_up_no_other_and_goes_on_with_it() {
    const SIZE: u64 = 3_000_000;
    let mut bed = Bed::new();
    let Some(disk) = HangingDisk::mount(&bed.dir.path().join("disk"), SIZE) else { return };
    bed.start("", &[&bed.dir.path().join("disk")]);
    run(async {
        let client = bed.client();
        let coflow = client.register(CoflowOptions::default()).await.unwrap();
        client.put_file(coflow, "slow", &disk.file(7), 0, SIZE).await.unwrap();
        client.put_file(coflow, "part", &disk.file(9), 300_000, 1_000_000).await.unwrap();
        client.put_bytes(coflow, "good", &[5; 300_000]).await.unwrap();
        assert_eq!(bed.get(coflow, "part").await, vec![9; 1_000_000]);
        let options = GetOptions { holders: vec![bed.address], time_limit: LIMIT, ..GetOptions::default() };
        let mut reader = client.get(coflow, "slow", options);
        let mut got = reader.next().await.unwrap().unwrap().to_vec();
        disk.hang();
        let rest = async {
            while let Some(part) = reader.next().await.unwrap() {
                got.extend_from_slice(part);
            }
        };
        let others = async {
            for _ in 0..30 {
                assert_eq!(bed.refusal(coflow).await, Status::NoSuchBlock);
                assert_eq!(bed.get(coflow, "good").await, [5; 300_000]);
            }
            disk.go_on();
        };
        tokio::join!(rest, others);
        assert_eq!(got, vec![7; SIZE as usize]);
    });
}

#[test]
fn a_journal_whose_disk_stops_holds_up_puts_and_nothing_else() {
    let mut bed = Bed::new();
    let Some(disk) = FreezingDisk::mount(&bed.dir.path().join("disk")) else { return };
    bed.spool = disk.path().join("spool");
    bed.start("", &[]);
    run(async {
        let client = bed.client();
        let coflow = client.register(CoflowOptions::default()).await.unwrap();
        let good = bed.file("good", &[5; 300_000]);
        client.put_file(coflow, "good", &good, 0, 300_000).await.unwrap();
        disk.freeze();
        let put = client.put_file(coflow, "late", &good, 0, 1000);
        tokio::pin!(put);
        let others = async {
            // What was got is written down too.
            for _ in 0..30 {
                assert_eq!(bed.get(coflow, "good").await, [5; 300_000]);
                assert_eq!(bed.refusal(coflow).await, Status::NoSuchBlock);
            }
        };
        tokio::select! {
            put = &mut put => panic!("answered, and nothing can be written: {put:?}"),
            () = others => {}
        }
        disk.thaw();
        put.await.unwrap();
        assert_eq!(bed.get(coflow, "late").await, [5; 1000]);
    });
    // What was answered for survives.
    bed.processes[1].kill();
    bed.processes.truncate(0);
    std::fs::remove_file(bed.socket()).unwrap();
    bed.start("", &[]);
}

#[test]
fn a_file_that_is_overwritten_while_somebody_reads_it_is_served_to_nobody_else() {
    let mut bed = Bed::new();
    bed.start("", &[]);
    run(async {
        let client = bed.client();
        let coflow = client.register(CoflowOptions::default()).await.unwrap();
        let size = 16 << 20;
        let file = bed.file("file", &vec![5; size]);
        client.put_file(coflow, "b", &file, 0, size as u64).await.unwrap();
        let options =
            || GetOptions { holders: vec![bed.address], time_limit: LIMIT, ..GetOptions::default() };
        let mut slow = client.get(coflow, "b", options());
        assert!(slow.next().await.unwrap().is_some());
        let writer = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&writer, &[6; 4096], size as u64 - 4096).unwrap();
        let got = client.get_bytes(coflow, "b", options()).await;
        assert!(got.is_err(), "the bytes of two files in one block");
        drop(slow);
    });
}

#[test]
fn a_disk_that_was_full_of_what_is_gone_takes_puts_again() {
    let mut bed = Bed::new();
    let Some(disk) = SmallDisk::mount(&bed.dir.path().join("disk"), "6m") else { return };
    bed.spool = disk.path().join("spool");
    bed.start("", &[]);
    run(async {
        let client = bed.client();
        let file = bed.file("file", &[5; 1000]);
        for round in 0..3 {
            let coflow = client.register(CoflowOptions::default()).await.unwrap();
            let mut puts = 0_u32;
            let refusal = loop {
                match client.put_file(coflow, &format!("{puts:0>250}"), &file, 0, 1000).await {
                    Ok(()) => puts += 1,
                    Err(Error::Refused(reason)) => break reason,
                    Err(other) => panic!("{other}"),
                }
            };
            assert!(
                refusal.contains("no room") && puts > 1_000,
                "round {round}: {puts} puts, then {refusal}"
            );
            client.unregister(coflow).await.unwrap();
            let end = Instant::now() + LIMIT;
            let next = client.register(CoflowOptions::default()).await.unwrap();
            while let Err(error) = client.put_file(next, "b", &file, 0, 1000).await {
                assert!(Instant::now() < end, "round {round}: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    });
}

#[test]
fn an_agent_whose_files_may_not_grow_refuses_puts_and_goes_on() {
    let mut bed = Bed::new();
    // In blocks of 512 or 1,024 bytes, as the shell has it.
    bed.start("ulimit -f 500;", &[]);
    run(async {
        let client = bed.client();
        let coflow = client.register(CoflowOptions::default()).await.unwrap();
        let file = bed.file("file", &[5; 1000]);
        let mut refused = None;
        for number in 0..4_000 {
            match client.put_file(coflow, &format!("{number:0>250}"), &file, 0, 1000).await {
                Ok(()) => {}
                Err(error) => {
                    refused = Some((number, error));
                    break;
                }
            }
        }
        let (number, error) = refused.expect("there is no room for so many");
        assert!(number > 100 && matches!(error, Error::Refused(_)), "after {number}: {error}");
        assert_eq!(bed.get(coflow, &format!("{:0>250}", 7)).await, [5; 1000]);
        assert_eq!(bed.refusal(coflow).await, Status::NoSuchBlock);
    });
    assert_eq!(bed.processes[1].0.try_wait().unwrap(), None, "it lives");
}

#[test]
fn a_socket_that_was_removed_is_made_again() {
    let mut bed = Bed::new();
    bed.start("", &[]);
    run(async {
        let (before, coflow) = (bed.client(), 7);
        before.put_bytes(coflow, "a", &[5; 1000]).await.unwrap();
        std::fs::remove_file(bed.socket()).unwrap();
        eventually("the socket is there again", || bed.socket().exists()).await;
        bed.client().put_bytes(coflow, "b", &[6; 1000]).await.unwrap();
        before.put_bytes(coflow, "c", &[7; 1000]).await.unwrap();
        for (block, byte) in [("a", 5), ("b", 6), ("c", 7)] {
            assert_eq!(bed.get(coflow, block).await, [byte; 1000]);
        }
    });
}
