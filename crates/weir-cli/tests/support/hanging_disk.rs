//! Disks that do not answer: one of which files cannot be opened, read or closed, and one that nothing can be written to.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    Request,
};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);
/// The number of a file is its inode less this.
const FIRST_FILE: u64 = 100;

/// A file system of files named by numbers, each of as many bytes as was said, all of them its number. While it hangs, no
/// file is opened, read or closed.
pub(crate) struct HangingDisk {
    path: PathBuf,
    state: Arc<State>,
    _session: BackgroundSession,
}

struct State {
    size: u64,
    hangs: AtomicBool,
    waiting: Mutex<Vec<Waiting>>,
}

enum Waiting {
    Open(ReplyOpen),
    Read(ReplyData, Vec<u8>),
    Flush(ReplyEmpty),
}

impl Waiting {
    fn answer(self) {
        match self {
            Waiting::Open(reply) => reply.opened(FileHandle(1), FopenFlags::empty()),
            Waiting::Read(reply, bytes) => reply.data(&bytes),
            Waiting::Flush(reply) => reply.ok(),
        }
    }
}

impl HangingDisk {
    /// Mounts one; none, and a word why, where that takes rights which this process does not have.
    pub(crate) fn mount(path: &Path, size: u64) -> Option<HangingDisk> {
        std::fs::create_dir(path).unwrap();
        let state = Arc::new(State { size, hangs: AtomicBool::new(false), waiting: Mutex::default() });
        let mut config = Config::default();
        config.mount_options.extend([MountOption::RO, MountOption::FSName("hanging".to_owned())]);
        match fuser::spawn_mount(Files(Arc::clone(&state)), path, &config) {
            Ok(session) => Some(HangingDisk { path: path.to_owned(), state, _session: session }),
            Err(error) => {
                eprintln!("SKIPPED: a FUSE file system cannot be mounted here ({error}); it takes root");
                assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped for want of rights");
                None
            }
        }
    }

    pub(crate) fn file(&self, number: u64) -> PathBuf {
        self.path.join(number.to_string())
    }

    pub(crate) fn hang(&self) {
        self.state.hangs.store(true, Ordering::SeqCst);
    }

    /// Calls that wait for an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.state.waiting.lock().unwrap().len()
    }

    pub(crate) fn go_on(&self) {
        self.state.hangs.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.state.waiting.lock().unwrap()).into_iter().for_each(Waiting::answer);
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        self.go_on();
        // An agent may still have a file open there.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

struct Files(Arc<State>);

impl Files {
    fn attributes(&self, inode: u64) -> FileAttr {
        let is_root = inode == 1;
        FileAttr {
            ino: INodeNo(inode),
            size: if is_root { 0 } else { self.0.size },
            blocks: 1,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 512,
        }
    }

    fn answer(&self, call: Waiting) {
        let mut waiting = self.0.waiting.lock().unwrap();
        if self.0.hangs.load(Ordering::SeqCst) {
            return waiting.push(call);
        }
        call.answer();
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str().and_then(|name| name.parse::<u64>().ok()) {
            Some(number) => reply.entry(&LONG, &self.attributes(FIRST_FILE + number), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&LONG, &self.attributes(inode.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.answer(Waiting::Open(reply));
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = u64::from(size).min(self.0.size.saturating_sub(offset));
        self.answer(Waiting::Read(reply, vec![(inode.0 - FIRST_FILE) as u8; length as usize]));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.answer(Waiting::Flush(reply));
    }
}

/// A file system on a file, on which every write waits while it is frozen.
pub(crate) struct FreezingDisk(PathBuf);

impl FreezingDisk {
    /// Mounts a small one at a new folder; none, and a word why, where that takes rights or programs that are not there.
    pub(crate) fn mount(path: &Path) -> Option<FreezingDisk> {
        std::fs::create_dir(path).unwrap();
        let image = path.with_extension("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(32 << 20)).unwrap();
        let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
        let made = run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))
            && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(path));
        if made {
            return Some(FreezingDisk(path.to_owned()));
        }
        eprintln!(
            "SKIPPED: a file cannot be mounted here; it takes root, loop devices, mkfs.ext4 and fsfreeze"
        );
        assert!(std::env::var_os("CI").is_none(), "on CI nothing is skipped for want of rights");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn freeze(&self) {
        assert!(Command::new("fsfreeze").arg("-f").arg(&self.0).status().unwrap().success());
    }

    pub(crate) fn thaw(&self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).stderr(std::process::Stdio::null()).status();
    }
}

impl Drop for FreezingDisk {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
