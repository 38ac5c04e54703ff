//! A member of the agents' group, run as a user of its own: it plants files where it may, takes its blocks' files away
//! under the agent's feet, and tries what it must not be able to do.

use crate::support::chance::{Chance, fill};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::sleep;
use weir_client::{Client, ClientConfig, GetOptions};
use weir_proto::data::FRAME_BYTES;
use weir_proto::v1;
use weir_proto::v1::agent_client::AgentClient;

/// Environment variable that holds the member's [`Orders`].
pub(crate) const ORDERS: &str = "WEIR_CHAOS_MEMBER_ORDERS";
/// Name of the test that is the member's entry.
pub(crate) const ENTRY: &str = "member_process";
/// A group that exists nowhere else, and a user that is nobody.
pub(crate) const GROUP: u32 = 64_133;
const USER: u32 = 64_134;
/// What files of the agent are called.
const NAMES: [&str; 7] =
    ["journal.jsonl", "journal.jsonl.new", "lock", "identity", "agent.sock", "own", "blocks"];
/// How long it waits for a block whose file it took away.
const GET_LIMIT: Duration = Duration::from_secs(5);
/// How long it waits for anything else.
const LIMIT: Duration = Duration::from_secs(40);

/// What a member is to do, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) seed: u64,
    pub(crate) coordinator: SocketAddr,
    /// The agent's socket and spool.
    pub(crate) spool: PathBuf,
    /// A directory that the agent may serve, and the member may write to.
    pub(crate) shared: PathBuf,
    /// A file of the agent's user, for nobody else.
    pub(crate) precious: PathBuf,
    /// One that everybody may read and write, but nobody put.
    pub(crate) common: PathBuf,
    pub(crate) coflow: u64,
}

/// What a member says in the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Most blocks that it can have put.
    pub(crate) put: u64,
    /// Gets of them that returned all bytes, and how many bytes these were.
    pub(crate) gets: u64,
    pub(crate) bytes: u64,
    /// What must not happen, and did.
    pub(crate) wrong: Vec<String>,
}

/// Runs a copy of this program as a member, and returns what it says.
pub(crate) fn send(program: &Path, orders: &Orders) -> Result<Report, String> {
    let mut command = Command::new(program);
    command.args([ENTRY, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ORDERS, serde_json::to_string(orders).unwrap()).uid(USER).gid(GROUP).current_dir("/");
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let report = said.lines().find_map(|line| serde_json::from_str(&line[line.find('{')?..]).ok());
    report.ok_or_else(|| format!("a member ended early: {said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Serves the orders that come on standard input.
pub(crate) fn run(orders: &str) {
    let orders: Orders = serde_json::from_str(orders).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(async {
        let config = ClientConfig {
            coordinator: Some(orders.coordinator.into()),
            agent: Some(orders.spool.join("agent.sock")),
            host: 0,
        };
        let (chance, client) = (Chance::new(orders.seed), Client::new(config));
        let report = Report { put: 0, gets: 0, bytes: 0, wrong: Vec::new() };
        Member { orders, chance, client, report }.misbehave().await
    });
    println!("{}", serde_json::to_string(&report).unwrap());
}

struct Member {
    orders: Orders,
    chance: Chance,
    client: Client,
    report: Report,
}

impl Member {
    async fn misbehave(mut self) -> Report {
        self.reach_out();
        self.plant().await;
        for index in 0..self.chance.between(1, 3) {
            self.lose(index).await;
        }
        self.reach_out();
        self.report
    }

    fn blocks(&self) -> PathBuf {
        self.orders.spool.join("blocks")
    }

    fn block_name(&mut self) -> String {
        format!("{:016x}{:016x}.block", self.chance.next(), self.chance.next())
    }

    /// What must fail: to write anywhere but in `blocks/`, and to read what is the agent's alone.
    fn reach_out(&mut self) {
        let (spool, precious) = (self.orders.spool.clone(), self.orders.precious.clone());
        let mut tried = vec![
            ("reading precious".to_owned(), std::fs::read(&precious).map(drop)),
            ("writing precious".to_owned(), std::fs::write(&precious, "mine")),
            ("linking precious".to_owned(), std::fs::hard_link(&precious, self.blocks().join("precious"))),
            ("removing the socket".to_owned(), std::fs::remove_file(spool.join("agent.sock"))),
            ("looking at what is the agent's".to_owned(), std::fs::read_dir(spool.join("own")).map(drop)),
            ("moving blocks".to_owned(), std::fs::rename(self.blocks(), spool.join("elsewhere"))),
            ("moving own".to_owned(), std::fs::rename(spool.join("own"), self.blocks().join("moved"))),
        ];
        for directory in [spool.clone(), spool.join("own")] {
            for name in NAMES.into_iter().chain(["x"]) {
                let path = directory.join(name);
                tried.push((format!("linking at {}", path.display()), symlink(&precious, &path)));
                tried.push((format!("a FIFO at {}", path.display()), fifo(&path)));
                tried.push((
                    format!("a file at {}", path.display()),
                    std::fs::File::create_new(&path).map(drop),
                ));
            }
        }
        let done = tried.into_iter().filter(|(_, tried)| tried.is_ok());
        self.report.wrong.extend(done.map(|(what, _)| format!("a member could do this: {what}")));
    }

    /// Plants what is no block at names of the agent's own files and of blocks, and has the agent look at some.
    async fn plant(&mut self) {
        for _ in 0..self.chance.between(5, 30) {
            let spooled = self.chance.percent(60);
            let name = if spooled { self.block_name() } else { self.chance.of(&NAMES).to_owned() };
            let path = self.blocks().join(&name);
            let kind = self.chance.below(7);
            let target = self.chance.of(&["../own/journal.jsonl", "../own/identity", ".", "nothing"]);
            // What is there already may not be replaced: it is another seed's.
            let planted = match kind {
                0 => symlink(&self.orders.precious, &path),
                1 => symlink(target, &path),
                2 => fifo(&path),
                3 => std::fs::create_dir(&path).and_then(|()| std::fs::write(path.join("x"), "x")),
                4 => std::fs::hard_link(&self.orders.common, &path),
                5 => std::fs::File::create_new(&path)
                    .and_then(|file| file.set_len(self.chance.below(1 << 40)))
                    .or(Ok(())),
                _ => std::fs::create_dir(&path),
            };
            // A sparse file is junk, but the member's own: it may put it.
            if planted.is_ok() && kind != 5 {
                let put = self.put_named(&name, 1, true).await;
                self.refused(&name, put);
                let put = self.put_named(path.to_str().unwrap(), 1, false).await;
                self.refused(&name, put);
            }
        }
        let link = self.orders.shared.join(format!("link-{}", self.orders.seed));
        if symlink(&self.orders.precious, &link).is_ok() {
            let put = self.put_named(link.to_str().unwrap(), 1, false).await;
            self.refused("a link where files may be served", put);
        }
        for path in ["../own/journal.jsonl", "own/identity", "agent.sock", "../../precious"] {
            let put = self.put_named(path, 1, true).await;
            self.refused(path, put);
            let path = self.blocks().join(path);
            let put = self.put_named(path.to_str().unwrap(), 1, false).await;
            self.refused("a way out of blocks/", put);
        }
    }

    fn refused(&mut self, what: &str, put: bool) {
        if put {
            self.report.wrong.push(format!("a block was put from {what}"));
        }
    }

    /// Whether a file could be put; an agent that is away takes nothing.
    async fn put_named(&self, path: &str, size: u64, spooled: bool) -> bool {
        let mut client = AgentClient::new(weir_net::agent_channel(self.orders.spool.join("agent.sock")));
        let put = v1::PutRequest {
            coflow: self.orders.coflow,
            block: format!("member-{path}"),
            path: path.to_owned(),
            offset: 0,
            size,
            spooled,
            frame_checksums: Vec::new(),
            identity: Vec::new(),
        };
        matches!(tokio::time::timeout(LIMIT, client.put(put)).await, Ok(Ok(_)))
    }

    /// Puts a block, and takes its file away while it is read: what is read is what was put, or an error.
    async fn lose(&mut self, index: u64) {
        let (name, spooled) = (self.block_name(), self.chance.percent(70));
        let folder = if spooled { self.blocks() } else { self.orders.shared.clone() };
        let path = folder.join(&name);
        let size = self.chance.of(&[1, 5_000, FRAME_BYTES, 5 * FRAME_BYTES + 7, 3_000_000]);
        let (content, mut bytes) = (self.orders.seed ^ index, vec![0; size as usize]);
        fill(content, 0, &mut bytes);
        if std::fs::write(&path, &bytes).is_err() {
            let _ = std::fs::remove_file(&path);
            return;
        }
        // Even a put that was not answered may have been made.
        self.report.put += 1;
        let named = if spooled { name.clone() } else { path.to_str().unwrap().to_owned() };
        if !self.put_named(&named, size, spooled).await {
            let _ = std::fs::remove_file(&path);
            return;
        }
        let (how, wait) = (self.chance.below(8), self.chance.below(60));
        let spare = self.blocks().join(self.block_name());
        let (precious, common) = (self.orders.precious.clone(), self.orders.common.clone());
        let sabotage = async {
            sleep(Duration::from_millis(wait)).await;
            let _ = take_away(&path, &spare, how, &precious, &common);
        };
        let block = format!("member-{named}");
        let options = || GetOptions { time_limit: GET_LIMIT, ..GetOptions::default() };
        let (first, ()) =
            tokio::join!(self.client.get_bytes(self.orders.coflow, &block, options()), sabotage);
        let second = self.client.get_bytes(self.orders.coflow, &block, options()).await;
        for got in [first, second].into_iter().flatten() {
            if got == bytes {
                self.report.gets += 1;
                self.report.bytes += size;
            } else {
                let wrong = format!("a block of a member ({size} B, {how}) came with other bytes");
                self.report.wrong.push(wrong);
            }
        }
    }
}

/// Something else at the path of a block's file.
fn take_away(path: &Path, spare: &Path, how: u64, precious: &Path, common: &Path) -> io::Result<()> {
    let write = std::fs::OpenOptions::new().write(true).open(path)?;
    match how {
        0 => std::fs::remove_file(path),
        1 => write.set_len(0),
        2 => std::fs::rename(path, spare),
        3 => std::fs::hard_link(path, spare),
        _ => {
            std::fs::remove_file(path)?;
            match how {
                4 => symlink(precious, path),
                5 => fifo(path),
                6 => std::fs::create_dir(path),
                _ => std::fs::hard_link(common, path),
            }
        }
    }
}

fn fifo(path: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o660), 0)?)
}
