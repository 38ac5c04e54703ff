//! An agent whose socket is open to a group: tasks run as users of their own. Takes root, to be other users.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::process::{Process, refused, weir};
use support::redis::free_address;
use weir_client::{Client, ClientConfig, GetOptions};

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

#[test]
fn tasks_of_a_group_put_and_others_do_not() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped for want of rights");
        return eprintln!("SKIPPED: being another user takes root");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // Others may not come by where this program is.
    let program = dir.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let (spool, address) = (dir.path().join("spool"), free_address());
    let mut command = weir(&["agent", "--host", "0", "--listen", &address.to_string()]);
    command.args(["--group", &GROUP.to_string()]).arg("--spool").arg(&spool);
    let agent = Process::spawn(&mut command);
    let socket = spool.join("agent.sock");
    let open = || std::fs::metadata(&socket).is_ok_and(|found| found.permissions().mode() & 0o777 == 0o660);
    let end = Instant::now() + Duration::from_secs(20);
    while !open() {
        assert!(Instant::now() < end, "the socket is the group's");
        std::thread::sleep(Duration::from_millis(10));
    }
    for user in USERS {
        let done = task_as(&program, user, GROUP, &socket);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        let name = format!("by {user}");
        let options = GetOptions { holders: vec![address], ..GetOptions::default() };
        let got = run(async { client(&socket).get_bytes(COFLOW, &name, options).await }).unwrap();
        assert_eq!(got, name.as_bytes());
    }
    assert!(
        !task_as(&program, USERS[0], USERS[0], &socket).status.success(),
        "who is not of the group cannot"
    );
    // A task cannot remove what another one's memory is in.
    let blocks = std::fs::read_dir(&spool).unwrap().flatten().map(|entry| entry.path());
    let block =
        blocks.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "block")).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&block).unwrap());
    let other = USERS.into_iter().find(|&user| user != owner).unwrap();
    let removed = Command::new("rm").arg("-f").arg(&block).uid(other).gid(GROUP).output().unwrap();
    assert!(!removed.status.success() && block.exists());
    agent.end(Some(rustix::process::Signal::TERM)).unwrap();
}

#[test]
fn a_group_that_is_none_is_refused() {
    let said = refused(&["agent", "--host", "0", "--spool", "/nonexistent", "--group", "no-such-group-here"]);
    assert!(said.contains("--group") && said.contains("there is no such group"), "{said}");
}
