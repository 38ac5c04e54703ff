//! Tests run as root, as a normal user by way of a user namespace, or not at all; never silently.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::{env, io};

use anyhow::{Result, anyhow, ensure};
use weir_testbed::{BedError, give_user_namespace, has_rights};

/// Set in the process as which a test without rights runs itself again.
const IN_CHILD: &str = "WEIR_TEST_IN_USER_NAMESPACE";

/// One bed at a time: they share the processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `body` with rights; `name` is the full name of the test that calls. Without rights the test runs
/// itself again in another process, as root of a user namespace.
pub(crate) fn with_rights(name: &str, body: impl FnOnce() -> Result<()>) {
    let guard: MutexGuard<'_, ()> = ONE_AT_A_TIME.lock().unwrap_or_else(|poison| poison.into_inner());
    let result = if has_rights() {
        body()
    } else if env::var_os(IN_CHILD).is_some() {
        cannot_run(name, "root of a user namespace has no rights here")
    } else {
        let mut again = this_binary(name, env::current_exe());
        give_user_namespace(again.env(IN_CHILD, "1"));
        match again.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(anyhow!("{name} failed in a user namespace: {status}")),
            Err(error) => cannot_run(name, &format!("no user namespaces for this user ({error})")),
        }
    };
    drop(guard);
    let result = result.or_else(|error| match error.downcast_ref() {
        Some(lack @ (BedError::NoRights { .. } | BedError::MissingTool { .. })) => {
            cannot_run(name, &lack.to_string())
        }
        _ => Err(error),
    });
    if let Err(error) = result {
        panic!("{error:?}");
    }
}

/// A skip, or where everything has to be tested a failure.
fn cannot_run(name: &str, reason: &str) -> Result<()> {
    ensure!(env::var("CI").as_deref() != Ok("true"), "cannot run: {reason}");
    crate::say(&format!("SKIPPED {name}: {reason}"));
    Ok(())
}

/// A command that runs the one test called `name`.
fn this_binary(name: &str, path: io::Result<PathBuf>) -> Command {
    let mut command = Command::new(path.expect("path of the test binary"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// Root tries what a normal user does: another test, as the user "nobody".
#[test]
fn normal_user_gets_a_bed_in_a_user_namespace() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65534;
    let Some(folder) = copy_of_this_binary().expect("copy the test binary") else {
        // Not a lack: then every other test has gone by way of a user namespace.
        return crate::say("not the machine's root: nobody else to become");
    };
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open.clone()).expect("open the folder");
    let binary = folder.path().join("bed");
    std::fs::set_permissions(&binary, open).expect("open the binary");
    let mut command = this_binary("rates::links_carry_no_more_than_their_rate", Ok(binary));
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    let status = once_nobody_writes_to_it(&mut command).expect("start as nobody");
    assert!(status.success(), "as nobody: {status}");
}

/// Runs a command whose binary was just written: a test beside this one that started a process at that moment has let
/// it inherit the open file, until it is a process of its own.
fn once_nobody_writes_to_it(command: &mut Command) -> std::io::Result<std::process::ExitStatus> {
    for _ in 0..100 {
        match command.status() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            other => return other,
        }
    }
    command.status()
}

/// `None` if the process is not the machine's root.
fn copy_of_this_binary() -> Result<Option<tempfile::TempDir>> {
    // Root of a user namespace of one user has no other user to become.
    let map = std::fs::read_to_string("/proc/self/uid_map")?;
    let ids: Vec<u64> = map.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
    if !has_rights() || ids.get(2).is_none_or(|count| *count <= 65534) {
        return Ok(None);
    }
    let folder = tempfile::tempdir()?;
    std::fs::copy(env::current_exe()?, folder.path().join("bed"))?;
    Ok(Some(folder))
}
