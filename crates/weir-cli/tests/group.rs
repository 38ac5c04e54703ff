//! An agent whose socket is open to a group: tasks run as users of their own. Takes root, to be other users.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::process::{Process, refused, weir};
use weir_client::{Client, ClientConfig, GetOptions};
use weir_testbed::free_address;

/// Tells the test's own process, run as somebody else, which agent's socket to put at.
const SOCKET: &str = "WEIR_GROUP_SOCKET";
/// A group that exists nowhere else, and two users that are nobody.
const GROUP: u32 = 64_123;
const USERS: [u32; 2] = [64_124, 64_125];
const COFLOW: u64 = 7;

fn client(socket: &Path) -> Client {
    Client::new(ClientConfig { coordinator: None, agent: Some(socket.to_owned()), host: 0 })
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
#[ignore = "a task of the test below, which starts it"]
fn task() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        let name = format!("by {}", rustix::process::getuid().as_raw());
        run(async { client(Path::new(&socket)).put_bytes(COFLOW, &name, name.as_bytes()).await }).unwrap();
    }
}

fn task_as(program: &Path, user: u32, group: u32, socket: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(["task", "--exact", "--ignored"]).env(SOCKET, socket).uid(user).gid(group).output().unwrap()
}

/// An agent of the group, its spool, and a copy of this program that tasks can run.
struct Bed {
    dir: tempfile::TempDir,
    program: PathBuf,
    spool: PathBuf,
    address: SocketAddr,
    agent: Process,
}

impl Bed {
    /// None, and a word why, where that takes rights which this process does not have.
    fn start() -> Option<Bed> {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped for want of rights");
            eprintln!("SKIPPED: being another user takes root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        // Others may not come by where this program is.
        let program = dir.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let (spool, address) = (dir.path().join("spool"), free_address().unwrap());
        let agent = Bed::agent(dir.path(), address);
        let bed = Bed { dir, program, spool, address, agent };
        bed.wait();
        Some(bed)
    }

    fn agent(dir: &Path, address: SocketAddr) -> Process {
        let mut command = weir(&["agent", "--host", "0", "--listen", &address.to_string()]);
        command.args(["--group", &GROUP.to_string()]).arg("--spool").arg(dir.join("spool"));
        Process::spawn(command.arg("--allow").arg(dir.join("data")))
    }

    fn socket(&self) -> PathBuf {
        self.spool.join("agent.sock")
    }

    fn wait(&self) {
        let open = || {
            std::fs::metadata(self.socket()).is_ok_and(|found| found.permissions().mode() & 0o777 == 0o660)
        };
        let end = Instant::now() + Duration::from_secs(20);
        while !open() {
            assert!(Instant::now() < end, "the socket is the group's");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn restart(&mut self) {
        self.agent.kill();
        std::fs::remove_file(self.socket()).unwrap();
        self.agent = Bed::agent(self.dir.path(), self.address);
        self.wait();
    }

    fn get(&self, block: &str) -> Vec<u8> {
        let options = GetOptions {
            holders: vec![self.address],
            time_limit: Duration::from_secs(20),
            ..GetOptions::default()
        };
        run(async { client(&self.socket()).get_bytes(COFLOW, block, options).await }).unwrap()
    }

    /// What a shell says to a command of a member.
    fn member_does(&self, user: u32, words: &str) -> bool {
        let mut shell = Command::new("sh");
        shell.args(["-c", words]).current_dir(&self.spool).uid(user).gid(GROUP);
        shell.output().unwrap().status.success()
    }
}

#[test]
fn tasks_of_a_group_put_and_others_do_not() {
    let Some(bed) = Bed::start() else { return };
    let (program, socket, spool) = (&bed.program, bed.socket(), &bed.spool);
    for user in USERS {
        let done = task_as(program, user, GROUP, &socket);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        let name = format!("by {user}");
        assert_eq!(bed.get(&name), name.as_bytes());
    }
    assert!(
        !task_as(program, USERS[0], USERS[0], &socket).status.success(),
        "who is not of the group cannot"
    );
    // A task cannot remove what another one's memory is in.
    let blocks = std::fs::read_dir(spool.join("blocks")).unwrap().flatten().map(|entry| entry.path());
    let block =
        blocks.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "block")).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&block).unwrap());
    let other = USERS.into_iter().find(|&user| user != owner).unwrap();
    let removed = Command::new("rm").arg("-f").arg(&block).uid(other).gid(GROUP).output().unwrap();
    assert!(!removed.status.success() && block.exists());
    bed.agent.end(Some(rustix::process::Signal::TERM)).unwrap();
}

#[test]
fn a_task_whose_umask_hides_its_files_puts_all_the_same() {
    let Some(bed) = Bed::start() else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$0\" task --exact --ignored"]).arg(&bed.program);
    let done = shell.env(SOCKET, bed.socket()).uid(USERS[0]).gid(GROUP).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let name = format!("by {}", USERS[0]);
    assert_eq!(bed.get(&name), name.as_bytes());
}

// The agent wrote its journal through a link of that name, and the member's file became the journal.
#[test]
fn a_member_of_the_group_cannot_get_between_the_agent_and_its_own_files() {
    let Some(mut bed) = Bed::start() else { return };
    let precious = bed.dir.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    let member = |words: &str| bed.member_does(USERS[0], words);
    for place in [".", "own"] {
        for planted in ["ln -s ../precious", "ln -s ../../precious", "mkfifo"] {
            for name in ["journal.jsonl.new", "journal.jsonl", "lock", "identity", "x"] {
                assert!(!member(&format!("{planted} {place}/{name}")), "{planted} {place}/{name}");
            }
        }
    }
    assert!(!member("mv own elsewhere") && !member("rm -f agent.sock") && !member("cat own/journal.jsonl"));
    // Where members may write nothing is the agent's.
    for name in ["journal.jsonl.new", "journal.jsonl", "lock", "identity"] {
        assert!(member(&format!("ln -s ../../precious blocks/{name}")));
    }
    assert!(member(&format!("mkfifo blocks/{:032x}.block", 1)));
    // A file that is put again and again leaves a journal that is written anew by the next process.
    let file = bed.dir.path().join("data/file");
    for length in 1..9 {
        std::fs::write(&file, vec![7; length]).unwrap();
        run(async { client(&bed.socket()).put_file(COFLOW, "file", &file, 0, length as u64).await }).unwrap();
    }
    bed.restart();
    assert_eq!(bed.get("file"), [7; 8]);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    bed.agent.end(Some(rustix::process::Signal::TERM)).unwrap();
}

#[test]
fn a_group_that_is_none_is_refused() {
    let said = refused(&["agent", "--host", "0", "--spool", "/nonexistent", "--group", "no-such-group-here"]);
    assert!(said.contains("--group") && said.contains("there is no such group"), "{said}");
}
