//! Files of blocks that are open. Opening one is work for another thread, and a shuffle asks a host for many ranges of the same
//! few files: those who ask for blocks of one file within a moment share one opening of it.
//!
//! A file stays open for a moment after its last request, where the kernel can tell without a disk that it is still what was
//! opened. It goes at once when its descriptors are needed.

use super::jobs::Open;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use weir_core::agent::BlockEntry;
use weir_core::ids::FlowNumber;
use weir_model::{Span, Time};
use weir_net::Medium;

/// How long a file stays open after it was last asked for.
const KEPT: Span = Span::from_millis(500);
/// Most files that stay open.
const MOST_KEPT: usize = 64;

/// An opening that has taken so long is joined by no other connection: a later one may be over before it.
const JOINED: Span = Span::from_millis(100);

/// A connection, and its flow.
type Waiting = (u64, FlowNumber);

/// Files that are open, or are being opened.
#[derive(Default)]
pub(super) struct Files {
    /// Those that are being opened, with who waits for each besides the connection that it is opened for.
    opening: BTreeMap<PathBuf, Opening>,
    kept: BTreeMap<PathBuf, Kept>,
}

struct Opening {
    began: Time,
    waiting: Vec<Waiting>,
}

struct Kept {
    file: Rc<Open>,
    used: Time,
}

impl Files {
    /// The open file of a block, if it is what was put.
    pub(super) fn open_now(&mut self, now: Time, block: &BlockEntry) -> Option<Rc<Open>> {
        let kept = self.kept.get_mut(Path::new(&block.path))?;
        if !(kept.file.holds(block) && kept.file.opened.is_unchanged()) {
            return None;
        }
        kept.used = now;
        Some(Rc::clone(&kept.file))
    }

    /// Waits for a file that is being opened for another connection. False if none is: then it is to be opened.
    pub(super) fn wait(&mut self, now: Time, path: &Path, waiting: Waiting) -> bool {
        match self.opening.get_mut(path) {
            Some(opening) if now.since(opening.began) < JOINED => opening.waiting.push(waiting),
            Some(opening) => {
                // The opening before goes on: those who joined it are served by whichever of the
                // two is over first.
                opening.began = now;
                return false;
            }
            None => {
                self.opening.insert(path.to_owned(), Opening { began: now, waiting: Vec::new() });
                return false;
            }
        }
        true
    }

    /// A file was opened, or could not be. Returns who waited for it.
    pub(super) fn opened(&mut self, now: Time, path: &Path, file: Option<&Rc<Open>>) -> Vec<Waiting> {
        // A file that was opened for one connection alone serves no other.
        let Some(Opening { waiting, .. }) = self.opening.remove(path) else { return Vec::new() };
        // A file of a network file system is not kept open: its closing may take long.
        if let Some(file) = file.filter(|file| file.opened.medium != Medium::Elsewhere) {
            self.kept.insert(path.to_owned(), Kept { file: Rc::clone(file), used: now });
            self.make_room();
        }
        waiting
    }

    fn make_room(&mut self) {
        while self.kept.len() > MOST_KEPT {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(path, _)| path.clone());
            oldest.and_then(|path| self.kept.remove(&path));
        }
    }

    /// Closes files that no connection asked for within [`KEPT`]; to be called now and then.
    pub(super) fn look(&mut self, now: Time) {
        self.kept.retain(|_, kept| now.since(kept.used) < KEPT);
    }

    /// Whether some stay open.
    pub(super) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Closes all files but those that connections read.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::Job;
    use super::*;
    use std::sync::mpsc;
    use weir_core::agent::FileStamp;
    use weir_model::CoflowId;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn open(path: &Path) -> Rc<Open> {
        let (closing, _) = mpsc::channel::<Job>();
        let opened = weir_net::open_regular(path).unwrap();
        Rc::new(Open::new(opened, path.to_owned(), closing))
    }

    fn stamp(file: &Open) -> FileStamp {
        let weir_net::FileStamp { inode, modified_ns, length, .. } = file.opened.stamp;
        FileStamp { inode, modified_ns, length }
    }

    fn block(path: &Path, stamp: FileStamp) -> BlockEntry {
        BlockEntry {
            coflow: CoflowId(1),
            block: "b".to_owned(),
            path: path.to_str().unwrap().to_owned(),
            offset: 0,
            size: 4,
            spooled: false,
            frame_checksums: Vec::new(),
            stamp: Some(stamp),
            identity: weir_proto::data::Identity::drawn([3; 16]),
            durable: false,
        }
    }

    #[test]
    fn those_who_ask_for_a_file_while_it_is_opened_wait_for_that() {
        let mut files = Files::default();
        let path = Path::new("/a");
        assert!(!files.wait(ms(0), path, (1, FlowNumber(10))));
        assert!(files.wait(ms(0), path, (2, FlowNumber(20))) && files.wait(ms(0), path, (3, FlowNumber(30))));
        assert!(!files.wait(ms(0), Path::new("/b"), (4, FlowNumber(40))));
        // The first takes long. Another one is begun, and whichever is over first serves all.
        assert!(
            !files.wait(ms(100), path, (6, FlowNumber(60))) && files.wait(ms(101), path, (7, FlowNumber(70)))
        );
        assert_eq!(
            files.opened(ms(102), path, None),
            [(2, 20), (3, 30), (7, 70)].map(|(connection, flow)| (connection, FlowNumber(flow)))
        );
        assert!(
            !files.wait(ms(0), path, (5, FlowNumber(50))),
            "it was opened, and is to be opened once more"
        );
    }

    #[test]
    fn a_kept_file_serves_what_was_put_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, b"1234").unwrap();
        let file = open(&path);
        if file.opened.medium == Medium::Elsewhere {
            return;
        }
        let put = block(&path, stamp(&file));
        let mut files = Files::default();
        files.opened(ms(0), &path, Some(&file));
        assert!(!files.keeps(), "nobody is to share it");
        files.wait(ms(0), &path, (1, FlowNumber(10)));
        files.opened(ms(0), &path, Some(&file));
        assert!(files.open_now(ms(1), &put).is_some());
        // Put anew from another file of that name: what is kept is not it.
        let other = FileStamp { inode: file.opened.stamp.inode + 1, ..stamp(&file) };
        assert!(files.open_now(ms(1), &block(&path, other)).is_none());
        // Another file took its name, so that it has none any more.
        std::fs::write(path.with_extension("new"), b"5678").unwrap();
        std::fs::rename(path.with_extension("new"), &path).unwrap();
        assert!(files.open_now(ms(1), &put).is_none());
        // Written to where it is, and longer.
        let file = open(&path);
        let put = block(&path, stamp(&file));
        files.wait(ms(0), &path, (1, FlowNumber(10)));
        files.opened(ms(1), &path, Some(&file));
        assert!(files.open_now(ms(2), &put).is_some());
        std::fs::write(&path, b"56789").unwrap();
        assert!(files.open_now(ms(2), &put).is_none());
    }

    #[test]
    fn files_are_closed_once_nobody_asks_and_are_few() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let mut files = Files::default();
        for count in 0..=MOST_KEPT as u64 {
            let path = dir.join(count.to_string());
            std::fs::write(&path, b"1234").unwrap();
            let file = open(&path);
            if file.opened.medium == Medium::Elsewhere {
                return;
            }
            files.wait(ms(0), &path, (1, FlowNumber(10)));
            files.opened(ms(count), &path, Some(&file));
        }
        // The first one made room for the last.
        assert_eq!(files.kept.len(), MOST_KEPT);
        assert!(!files.kept.contains_key(&dir.join("0")));
        // Those of 1 to 64 ms; KEPT later those up to 10 ms are too old.
        files.look(ms(510));
        assert_eq!(files.kept.len(), MOST_KEPT - 10);
        files.look(ms(1000));
        assert!(!files.keeps());
    }
}
