//! A machine whose power goes while tasks put blocks: what a put was answered for is there afterwards where that was asked for,
//! and no receiver is ever handed bytes that were never put.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::lost_disk::LostDisk;
use support::process::{Process, weir};
use tokio::task::JoinSet;
use weir_client::{Client, ClientConfig, GetError, GetOptions};
use weir_core::agent::{JournalEntry, JournalLines, journal_lines};
use weir_model::CoflowId;
use weir_testbed::free_address;

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// A coflow that no coordinator need know.
const COFLOW: u64 = 1;

/// An agent, whose spool is on a disk that may be lost.
struct Bed {
    disk: LostDisk,
    address: SocketAddr,
    durable: &'static str,
    agent: Option<Process>,
    _dir: tempfile::TempDir,
}

impl Bed {
    fn new(durable: &'static str) -> Option<Bed> {
        let dir = tempfile::tempdir().unwrap();
        let disk = LostDisk::mount(&dir.path().join("disk"))?;
        let mut bed = Bed { disk, address: free_address().unwrap(), durable, agent: None, _dir: dir };
        std::fs::create_dir(bed.data()).unwrap();
        bed.start();
        Some(bed)
    }

    fn start(&mut self) {
        let (listen, data, spool) = (self.address.to_string(), self.data(), self.spool());
        let _ = std::fs::remove_file(spool.join("agent.sock"));
        let mut agent = weir(&["agent", "--host", "0", "--listen", &listen, "--durable", self.durable]);
        agent.arg("--allow").arg(data).arg("--spool").arg(&spool);
        self.agent = Some(Process::spawn(&mut agent));
        let end = Instant::now() + LIMIT;
        while !spool.join("agent.sock").exists() {
            assert!(Instant::now() < end, "the agent listens");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn spool(&self) -> PathBuf {
        self.disk.path().join("spool")
    }

    fn data(&self) -> PathBuf {
        self.disk.path().join("data")
    }

    fn journal(&self) -> PathBuf {
        self.spool().join("own/journal.jsonl")
    }

    fn client(&self) -> Client {
        let agent = Some(self.spool().join("agent.sock"));
        Client::new(ClientConfig { coordinator: None, agent, host: 0 })
    }

    async fn get(&self, block: &str) -> Result<Vec<u8>, GetError> {
        let time_limit = Duration::from_secs(5);
        let options = GetOptions { holders: vec![self.address], time_limit, ..GetOptions::default() };
        self.client().get_bytes(COFLOW, block, options).await
    }

    /// The agent, and everything that it starts, stands still from now on: nothing is written any more.
    fn stop(&self) {
        let agent = self.agent.as_ref().unwrap();
        kill_process(Pid::from_child(&agent.0), Signal::STOP).unwrap();
    }

    fn go_on(&self) {
        let agent = self.agent.as_ref().unwrap();
        kill_process(Pid::from_child(&agent.0), Signal::CONT).unwrap();
    }

    /// The machine comes back with what `copy` has. `meanwhile`: something happens to the disk before the agent starts.
    fn come_back(&mut self, copy: PathBuf, meanwhile: impl FnOnce(&Bed)) {
        self.agent = None;
        self.disk.come_back(copy);
        meanwhile(self);
        self.start();
    }
}

/// The bytes of a block that only it has.
fn bytes_of(number: u32) -> Vec<u8> {
    let size = [1, 5_000, 70_000, 300_000][number as usize % 4];
    (0..size).map(|at| (number.wrapping_mul(31) as usize + at / 7) as u8 | 1).collect()
}

/// Puts the next blocks, every other from memory and from a file, until told to stop. Returns those that were answered for.
async fn put_on(
    client: Client,
    data: PathBuf,
    first: u32,
    ends: Arc<AtomicBool>,
    answered: Arc<Mutex<Vec<u32>>>,
) {
    for number in (first..first + 400).step_by(4) {
        let (block, bytes) = (number.to_string(), bytes_of(number));
        let put = if number / 4 % 2 == 0 {
            client.put_bytes(COFLOW, &block, &bytes).await
        } else {
            let path = data.join(&block);
            std::fs::write(&path, &bytes).unwrap();
            client.put_file(COFLOW, &block, &path, 0, bytes.len() as u64).await
        };
        if ends.load(Ordering::SeqCst) {
            return;
        }
        put.unwrap();
        answered.lock().unwrap().push(number);
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(4 * LIMIT, work).await.expect("nothing hangs") })
}

/// Blocks that were answered for when the power went, and what is left of the disk.
async fn lose(bed: &mut Bed, first: u32) -> (Vec<u32>, PathBuf) {
    let (ends, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let (client, data) = (bed.client(), bed.data());
        tasks.spawn(put_on(client, data, first + task, Arc::clone(&ends), Arc::clone(&answered)));
    }
    while answered.lock().unwrap().len() < 60 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let numbers = answered.lock().unwrap().clone();
    bed.stop();
    ends.store(true, Ordering::SeqCst);
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    (numbers, bed.disk.copy())
}

#[test]
fn what_a_durable_put_was_answered_for_outlives_the_machine() {
    let Some(mut bed) = Bed::new("machine") else { return };
    let mut all = Vec::new();
    for round in 0..3 {
        let (answered, copy) = run(lose(&mut bed, round * 400));
        all.extend(answered);
        bed.come_back(copy, |_| {});
        run(async {
            for number in &all {
                let got = bed.get(&number.to_string()).await;
                assert!(got.as_ref().is_ok_and(|got| *got == bytes_of(*number)), "{number}: {got:?}");
            }
        });
    }
}

#[test]
fn a_journal_that_was_written_anew_outlives_the_machine() {
    let Some(mut bed) = Bed::new("machine") else { return };
    let (first, copy) = run(lose(&mut bed, 0));
    // Most of the journal is dead when the agent starts.
    bed.come_back(copy, |bed| {
        let dead: Vec<_> = (1000..4000).map(CoflowId).map(JournalEntry::Ended).collect();
        let mut journal = std::fs::read(bed.journal()).unwrap();
        journal.extend(journal_lines(&dead).unwrap());
        std::fs::write(bed.journal(), journal).unwrap();
    });
    let lines = std::fs::read_to_string(bed.journal()).unwrap().lines().count();
    assert!(lines < 2000, "written anew, and {lines} lines are left");
    let (second, copy) = run(lose(&mut bed, 400));
    bed.come_back(copy, |_| {});
    run(async {
        for number in first.iter().chain(&second) {
            assert_eq!(bed.get(&number.to_string()).await.unwrap(), bytes_of(*number), "{number}");
        }
    });
}

#[test]
fn of_puts_that_are_not_durable_the_last_are_lost_and_no_other_bytes_are_handed_out() {
    let Some(mut bed) = Bed::new("process") else { return };
    let (early, _) = run(lose(&mut bed, 0));
    bed.go_on();
    // The journal follows by itself.
    let end = Instant::now() + LIMIT;
    let (late, copy) = loop {
        let (late, copy) = run(lose(&mut bed, 400));
        let seen = std::fs::read(&copy).unwrap();
        let name = format!("\"block\":\"{}\"", early[0]);
        if seen.windows(name.len()).any(|window| window == name.as_bytes()) {
            break (late, copy);
        }
        assert!(Instant::now() < end, "the journal is synced within a second");
        std::fs::remove_file(&copy).unwrap();
        bed.go_on();
        std::thread::sleep(Duration::from_millis(500));
    };
    bed.come_back(copy, |bed| {
        // As another start of the machine finds it.
        let mut entries = Vec::new();
        let journal = std::fs::read(bed.journal()).unwrap();
        let found = JournalLines::read(journal.as_slice(), |entry| entries.push(entry)).unwrap();
        let boots = entries.iter().filter(|entry| matches!(entry, JournalEntry::Boot(_))).count();
        assert_eq!((boots, found.damaged.len()), (1, 0));
        let other = |entry| match entry {
            JournalEntry::Boot(_) => JournalEntry::Boot("another".to_owned()),
            entry => entry,
        };
        let entries: Vec<_> = entries.into_iter().map(other).collect();
        std::fs::write(bed.journal(), journal_lines(&entries).unwrap()).unwrap();
    });
    run(async {
        let mut right = 0;
        for number in early.iter().chain(&late) {
            // Of what is lost a receiver is told at once, or hears that nobody has it until its time is over.
            let options = GetOptions {
                holders: vec![bed.address],
                time_limit: Duration::from_millis(100),
                ..GetOptions::default()
            };
            if let Ok(got) = bed.client().get_bytes(COFLOW, &number.to_string(), options).await {
                assert_eq!(got, bytes_of(*number), "{number}");
                right += 1;
            }
        }
        assert!(
            right < early.len() + late.len(),
            "a kernel that writes everything at once would prove nothing"
        );
    });
}
