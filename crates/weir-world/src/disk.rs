//! A host's disk, and what is left of it when its machine is lost.

use crate::events::Event;
use crate::world::World;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::agent::JOURNAL_HEADER;
use weir_model::{Span, Time};

/// The journal is synced so long after something was written to it, as the agent's process has it.
const SYNC_INTERVAL: Span = Span::from_millis(1_000);
/// How long syncing takes at most.
const SYNC: Span = Span::from_millis(300);

/// What a host has on its disk, and what its kernel has of that in memory.
pub(crate) struct Disk {
    /// The journal, as it is written.
    pub(crate) journal: Vec<u8>,
    /// So much of it outlives the machine.
    synced: usize,
    syncs: bool,
    /// A page of the journal was lost, and a later one was not: lines are damaged.
    pub(crate) has_hole: bool,
    /// How often the machine was started.
    pub(crate) boot: u64,
    /// When it was lost last.
    pub(crate) lost: Time,
    /// Files in the spool, with the job of each.
    pub(crate) files: BTreeMap<String, usize>,
    /// Those that have their length back, and not their bytes.
    pub(crate) hollow: BTreeSet<String>,
    /// Until when there is no room.
    pub(crate) full_until: Time,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        let journal = format!("{JOURNAL_HEADER}\n").into_bytes();
        Disk {
            synced: journal.len(),
            journal,
            syncs: false,
            has_hole: false,
            boot: 0,
            lost: Time::ZERO,
            files: BTreeMap::new(),
            hollow: BTreeSet::new(),
            full_until: Time::ZERO,
        }
    }
}

impl Disk {
    pub(crate) fn sync(&mut self) {
        self.synced = self.journal.len();
    }
}

impl World {
    /// What is written waits to be synced.
    pub(crate) fn sync_later(&mut self, host: u32) {
        let disk = &mut self.hosts[host as usize].disk;
        if !self.settings.loses_machines || disk.syncs || disk.synced == disk.journal.len() {
            return;
        }
        disk.syncs = true;
        let boot = disk.boot;
        self.later(SYNC_INTERVAL, Event::Syncs { host, boot });
    }

    /// The kernel begins to sync.
    pub(crate) fn sync(&mut self, host: u32, boot: u64) {
        let disk = &self.hosts[host as usize].disk;
        // Noted as the sync begins: what is written while it lasts need not be on the disk after
        // it.
        let bytes = disk.journal.len();
        if disk.boot == boot {
            let after = self.span(SYNC);
            self.later(after, Event::Synced { host, boot, bytes });
        }
    }

    pub(crate) fn synced(&mut self, host: u32, boot: u64, bytes: usize) {
        let disk = &mut self.hosts[host as usize].disk;
        if disk.boot == boot {
            disk.syncs = false;
            // A torn line may have been taken back meanwhile.
            disk.synced = disk.synced.max(bytes.min(disk.journal.len()));
            self.sync_later(host);
        }
    }

    /// A batch that puts wait for is on the disk before they are answered, where puts are durable.
    pub(crate) fn sync_for_puts(&mut self, host: u32) {
        if self.settings.durable {
            self.hosts[host as usize].disk.sync();
        }
    }

    /// The machine of a host is lost, with what its kernel had in memory, and will be started again.
    pub(crate) fn lose_machine(&mut self, host: u32) {
        self.hosts[host as usize].is_down = true;
        self.kill_agent(host);
        self.report.machines_lost += 1;
        let durable = self.settings.durable;
        let disk = &mut self.hosts[host as usize].disk;
        let unsynced = disk.synced.min(disk.journal.len())..disk.journal.len();
        // Of pages that were not synced the kernel may have written any.
        let kept = self.rng.random_range(unsynced.start..=unsynced.end);
        disk.journal.truncate(kept);
        if kept > unsynced.start && self.rng.random_range(0..4) == 0 {
            let hole = self.rng.random_range(unsynced.start..kept);
            // What was not written reads as zeros where something behind it was written.
            disk.journal[unsynced.start..hole].fill(0);
            disk.has_hole |= hole > unsynced.start;
        }
        let whole = kept == unsynced.end && !disk.has_hole;
        (disk.synced, disk.syncs, disk.lost) = (kept, false, self.now);
        disk.boot += 1;
        if !durable {
            // A file system may write a file's length before its bytes, which then read as zeros.
            for path in disk.files.keys() {
                if self.rng.random_range(0..2) == 0 {
                    disk.hollow.insert(path.clone());
                }
            }
        }
        if !whole {
            // What the journal forgot may be nowhere else: how a coflow was registered, and what was served of it.
            self.forgot_done = true;
            self.noted.clear();
            self.jobs.iter_mut().for_each(crate::jobs::Job::forget_note);
        }
    }
}
