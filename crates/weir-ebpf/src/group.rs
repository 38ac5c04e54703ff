//! Processes whose connections are hinted without their help: a control group gives their sockets a mark.

use crate::config::monotonic_ns;
use crate::error::TagError;
use crate::program::{load, map_of};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use weir_model::Hint;

/// The program, as clang has compiled it.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/group.bpf.o"));
/// What gives sockets the mark.
const MARKS: &str = "weir_group";
/// What gives them a congestion control, where one was asked for.
const CONTROLS: [&str; 3] = ["weir_connect4", "weir_connect6", "weir_listen"];
/// The kernel's names of congestion controls have so many bytes, the last one zero.
const NAME_BYTES: usize = 16;
/// Controls that sockets of this network namespace can have.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// How the folder of a group begins; the number of the process that made it follows, and when it did.
const PREFIX: &str = "weir-run-";
/// The file of a group that has its processes, and takes others.
const PROCESSES: &str = "cgroup.procs";

/// A control group (version 2) below that of this process, or beside it if that is one of these.
///
/// Each TCP socket that a process in it makes has the mark of one [`Hint`]
/// from the first packet on; accepted connections have that of the socket that listens. A tagger that reads marks goes by it
/// ([`crate::Config::marks`]). They may have a congestion control as well, those that connect and those that listen.
///
/// When this is dropped, or the process ends, new sockets are marked no more; those that are there keep their mark. Dropped, it
/// also takes its processes back to the group above and removes the group. A group whose maker was killed is removed by the next
/// that is made beside it, once it is empty.
#[derive(Debug)]
pub struct HintedGroup {
    /// Where this process was, and where the group is.
    own: PathBuf,
    above: PathBuf,
    folder: PathBuf,
    without: MapHandle,
    /// Closing them detaches the programs.
    _links: Vec<Link>,
}

/// Congestion controls that sockets of this network namespace can have now, [`crate::Karuna`] among them where it is registered.
///
/// # Errors
/// The kernel's list of them cannot be read.
pub fn available_controls() -> Result<Vec<String>, TagError> {
    let listed = fs::read_to_string(AVAILABLE).map_err(TagError::os(format!("read {AVAILABLE}")))?;
    Ok(listed.split_whitespace().map(str::to_owned).collect())
}

impl HintedGroup {
    /// Makes a group for a hint, without processes. Its sockets have the system's congestion control unless one is given.
    ///
    /// # Errors
    /// [`TagError`] says what is missing. Nothing remains then.
    pub fn create(hint: Hint, control: Option<&str>) -> Result<HintedGroup, TagError> {
        let control = control.map(name_of).transpose()?;
        let own = own_group().map_err(TagError::os("find the own control group of version 2"))?;
        let above = outermost(&own);
        remove_empty(&above);
        let object = load(PROGRAM)?;
        let mark = hint.mark_after(0).to_ne_bytes();
        let written = map_of(&object, "weir_mark")?.update(&0_u32.to_ne_bytes(), &mark, MapFlags::ANY);
        written.map_err(TagError::bpf("write the mark"))?;
        if let Some(name) = control {
            let written = map_of(&object, "weir_control")?.update(&0_u32.to_ne_bytes(), &name, MapFlags::ANY);
            written.map_err(TagError::bpf("write the name of a control"))?;
        }
        let wanted = [MARKS].into_iter().chain(CONTROLS.into_iter().filter(|_| control.is_some()));
        let without = map_of(&object, "weir_without")?;
        let folder = above.join(format!("{PREFIX}{}-{}", std::process::id(), monotonic_ns()));
        fs::create_dir(&folder)
            .map_err(TagError::os(format!("make the control group {}", folder.display())))?;
        let attached = File::open(&folder)
            .map_err(TagError::os("open the control group"))
            .and_then(|group| wanted.map(|name| attach(&object, name, &group)).collect());
        match attached {
            Ok(links) => Ok(HintedGroup { own, above, folder, without, _links: links }),
            Err(error) => {
                // The error to tell is the first. A group that stays is removed by the next that is
                // made after this process ended.
                let _ = fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    /// Takes this process into the group; those that it starts afterwards begin there.
    ///
    /// # Errors
    /// The kernel refuses: a group above is of threads, or may not be left.
    pub fn enter(&self) -> io::Result<()> {
        move_process(std::process::id(), &self.folder)
    }

    /// How many sockets so far did not get the control that was asked for: it was taken away meanwhile.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn without_control(&self) -> Result<u64, TagError> {
        let counted = self.without.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let counted = counted.map_err(TagError::bpf("read a count"))?.unwrap_or_default();
        Ok(counted.try_into().map_or(0, u64::from_ne_bytes))
    }
}

fn attach(object: &Object, name: &str, group: &File) -> Result<Link, TagError> {
    let program = object.progs_mut().find(|program| program.name() == name);
    let program =
        program.ok_or_else(|| TagError::os("find the own program")(io::ErrorKind::NotFound.into()))?;
    program.attach_cgroup(group.as_raw_fd()).map_err(TagError::bpf("attach to a group"))
}

/// The name of a control as the kernel has it, if there is such a control.
fn name_of(control: &str) -> Result<[u8; NAME_BYTES], TagError> {
    let available = available_controls()?;
    let mut bytes = [0; NAME_BYTES];
    match bytes.get_mut(..control.len()) {
        Some(room) if available.iter().any(|one| one == control) => room.copy_from_slice(control.as_bytes()),
        _ => return Err(TagError::NoControl { name: control.to_owned(), available: available.join(", ") }),
    }
    Ok(bytes)
}

impl Drop for HintedGroup {
    fn drop(&mut self) {
        let inside = fs::read_to_string(self.folder.join(PROCESSES)).unwrap_or_default();
        for process in inside.lines().filter_map(|line| line.parse().ok()) {
            // One that ended meanwhile needs no other group. A group that this one was made in may be gone.
            let _ = move_process(process, &self.own).or_else(|_| move_process(process, &self.above));
        }
        if let Err(error) = fs::remove_dir(&self.folder) {
            tracing::warn!(%error, group = %self.folder.display(), "a control group stays");
        }
    }
}

fn move_process(process: u32, group: &Path) -> io::Result<()> {
    fs::write(group.join(PROCESSES), process.to_string())
}

/// Removes groups whose makers are gone. One that has processes stays: the kernel refuses.
fn remove_empty(above: &Path) {
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // `weir-run-<number>-<time>`. If another process has the number by now, an empty group
        // stays for longer, and that is all.
        let maker = name.split('-').nth(2).unwrap_or_default();
        if !Path::new("/proc").join(maker).exists() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The group that is above all of this kind. Of groups in each other the kernel runs the outer one's program last, so that what was
/// said first would hold for what the inner one is for; so they are beside each other.
fn outermost(own: &Path) -> PathBuf {
    let made =
        |group: &Path| group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    own.ancestors().find(|group| !made(group)).unwrap_or(own).to_owned()
}

/// Where the group of this process is in the file system.
fn own_group() -> io::Result<PathBuf> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "no file system cgroup2 is mounted");
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = mounts.lines().find_map(mount_of_line).ok_or_else(none)?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(none)?;
    // `own` has lost its slash with the prefix: joining an absolute path would drop the mount.
    Ok(mount.join(own))
}

/// Where a line of `mountinfo` has cgroup2, if it does.
fn mount_of_line(line: &str) -> Option<PathBuf> {
    let (mount, kind) = line.split_once(" - ")?;
    kind.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4).map(PathBuf::from))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_within_such_a_group_is_made_beside_it() {
        let path = |path: &str| PathBuf::from(format!("/sys/fs/cgroup/{path}"));
        assert_eq!(outermost(&path("a.slice/weir-run-1-2")), path("a.slice"));
        assert_eq!(outermost(&path("weir-run-1-2/weir-run-3-4")), path(""));
        assert_eq!(outermost(&path("weir-run-1-2/b.scope")), path("weir-run-1-2/b.scope"));
    }

    #[test]
    fn version_2_is_found_where_it_is_mounted_beside_others() {
        let line = "42 32 0:36 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        assert_eq!(mount_of_line(line), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_of_line("33 32 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"), None);
        assert_eq!(mount_of_line(""), None);
    }
}
