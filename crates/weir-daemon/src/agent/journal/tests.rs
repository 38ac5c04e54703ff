use super::*;
use weir_core::agent::JOURNAL_HEADER_1;
use weir_core::agent::{AgentConfig, BlockEntry};
use weir_model::CoflowId;

fn put(coflow: u64, name: &str) -> JournalEntry {
    let identity = weir_proto::data::Identity::drawn([3; 16]);
    let whole = BlockEntry::of_file(CoflowId(coflow), name.to_owned(), format!("/spool/{name}"), 1, identity);
    JournalEntry::Put(BlockEntry { spooled: true, frame_checksums: vec![7], ..whole })
}

fn agent() -> Agent {
    Agent::new(AgentConfig { incarnation: 1, spool_identity: 1, ..AgentConfig::default() })
}

fn open(dir: &Path) -> (Journal, JournalLines, Vec<JournalEntry>) {
    let mut entries = Vec::new();
    let (journal, found) = Journal::open(dir, Durability::Process, |entry| entries.push(entry)).unwrap();
    (journal, found, entries)
}

fn entries(dir: &Path) -> Vec<JournalEntry> {
    open(dir).2
}

#[test]
fn a_torn_last_line_is_dropped_and_what_follows_stands_on_a_line_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    journal.append_put(&[put(1, "a")]).unwrap();
    journal.log.append(b"0123abcd {\"Put\":{\"cofl").unwrap();
    let (mut journal, found, heard) = open(dir.path());
    assert_eq!((heard, found.damaged), (vec![put(1, "a")], vec![]));
    journal.append(&[JournalEntry::Ended(CoflowId(2))]);
    assert_eq!(entries(dir.path()), [put(1, "a"), JournalEntry::Ended(CoflowId(2))]);
}

#[test]
fn a_damaged_line_costs_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    for name in ["a", "b", "c"] {
        journal.append_put(&[put(1, name)]).unwrap();
    }
    let path = dir.path().join(FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    // One bit of the name of the second block, on the third line: still JSON, and another block.
    let at = bytes.windows(5).position(|window| window == b"\"b\",\"").unwrap() + 1;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (_, found, heard) = open(dir.path());
    assert_eq!((heard, found.damaged), (vec![put(1, "a"), put(1, "c")], vec![3]));
    // Noise in place of a line.
    std::fs::write(
        &path,
        [JOURNAL_HEADER.as_bytes(), b"\n\xff\xfe\x00\n\n", &lines(&[put(1, "d")]).unwrap()].concat(),
    )
    .unwrap();
    let (_, found, heard) = open(dir.path());
    assert_eq!((heard, found.damaged), (vec![put(1, "d")], vec![2, 3]));
}

#[test]
fn any_bit_of_the_first_line_may_change_and_no_block_is_lost() {
    for bit in 0..8 * JOURNAL_HEADER.len() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _, _) = open(dir.path());
        journal.append_put(&[put(1, "a"), put(1, "b")]).unwrap();
        let path = dir.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        // A newline in it makes two lines of one.
        assert_eq!(open(dir.path()).2, [put(1, "a"), put(1, "b")], "bit {bit}");
    }
}

#[test]
fn a_journal_of_another_version_is_put_aside_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let other = b"{\"weir_journal\":3}\nwhatever it may be\n";
    std::fs::write(dir.path().join(FILE), other).unwrap();
    let (_, found, heard) = open(dir.path());
    assert!(found.other_version && heard.is_empty());
    assert_eq!(std::fs::read(dir.path().join("journal.other-version")).unwrap(), other);
}

#[test]
fn what_a_killed_process_was_writing_anew_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(NEW_FILE), vec![0; 1000]).unwrap();
    open(dir.path());
    assert!(!dir.path().join(NEW_FILE).exists());
}

#[test]
fn a_journal_that_is_mostly_dead_and_large_is_written_anew_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    let path = "x".repeat(4_000);
    let long = |number: u32| match put(1, &number.to_string()) {
        JournalEntry::Put(block) => JournalEntry::Put(BlockEntry { path: path.clone(), ..block }),
        other => other,
    };
    let puts: Vec<_> = (0..5_000).map(long).collect();
    journal.append_put(&puts).unwrap();
    journal.look_after(5_000);
    assert_eq!(journal.wants_facts(), None, "all of it lives");
    journal.look_after(1_500);
    assert_eq!(journal.wants_facts(), Some(true));
    journal.go_on(&puts[..1]);
    assert_eq!(journal.wants_facts(), Some(false));
    journal.go_on(&[]);
    settle(&mut journal);
    assert_eq!(entries(dir.path()), puts[..1]);
}

#[test]
fn a_journal_of_version_1_is_read_and_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let old = r#"{"Put":{"coflow":1,"block":"a","path":"/p","offset":0,"size":1,"spooled":false,"frame_checksums":[]}}"#;
    let done = r#"{"Done":{"coflow":1,"bytes":5}}"#;
    std::fs::write(dir.path().join(FILE), format!("{JOURNAL_HEADER_1}\n{old}\n{done}\n")).unwrap();
    let (mut journal, found, heard) = open(dir.path());
    assert_eq!((heard.len(), found.damaged.len()), (2, 0));
    assert_eq!(heard[1], JournalEntry::Done { coflow: CoflowId(1), bytes: 5, mark: 0 });
    journal.append_put(&[put(1, "b")]).unwrap();
    assert_eq!(entries(dir.path()).len(), 3);
}

#[test]
fn a_journal_that_is_written_anew_restores_the_same_agent() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    let mut agent = agent();
    let done = |coflow, mark| JournalEntry::Done { coflow, bytes: 10, mark };
    for entry in [
        put(1, "a"),
        put(2, "b"),
        put(3, "c"),
        done(CoflowId(1), 7),
        done(CoflowId(1), 8),
        done(CoflowId(1), 7),
        JournalEntry::EndedRange(CoflowId(2), CoflowId(2)),
    ] {
        journal.append(std::slice::from_ref(&entry));
        agent.restore(entry);
    }
    journal.begin_anew();
    let mut cursor = FactCursor::default();
    while journal.wants_facts().is_some() {
        journal.go_on(&agent.facts(&mut cursor, 2));
        // What happens meanwhile is in both.
        let more = done(CoflowId(1), 9);
        journal.append(std::slice::from_ref(&more));
        agent.restore(more);
    }
    settle(&mut journal);
    let served = JournalEntry::Served { coflow: CoflowId(1), flows: 3, bytes: 30, marks: vec![7, 8, 9] };
    let expected = [JournalEntry::EndedRange(CoflowId(2), CoflowId(2)), served, put(1, "a"), put(3, "c")];
    let mut again = self::agent();
    entries(dir.path()).into_iter().for_each(|entry| again.restore(entry));
    assert_eq!(again.facts(&mut FactCursor::default(), 100), expected[..1]);
    let all = |agent: &Agent| {
        let (mut cursor, mut all) = (FactCursor::default(), Vec::new());
        loop {
            let some = agent.facts(&mut cursor, 100);
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    };
    assert_eq!((all(&agent), all(&again)), (expected.to_vec(), expected.to_vec()));
}

/// Lets what is to be synced be synced, and says so.
fn settle(journal: &mut Journal) {
    while let Some(file) = journal.poll_sync() {
        journal.handle_synced(file.run());
    }
}

#[test]
fn a_durable_put_is_synced_when_it_returns_and_others_when_their_time_has_come() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path(), Durability::Machine, |_| {}).unwrap();
    journal.sync_first().unwrap();
    assert!(journal.next_sync().is_none(), "there is nothing to sync");
    journal.append_put(&[put(1, "a")]).unwrap();
    assert!(journal.log.is_synced());
    journal.append(&[JournalEntry::Ended(CoflowId(1))]);
    assert!(!journal.log.is_synced() && journal.next_sync().is_some());
    settle(&mut journal);
    assert!(journal.log.is_synced() && journal.next_sync().is_none());
    journal.append(&[JournalEntry::Ended(CoflowId(2))]);
    assert!(journal.poll_sync().is_none(), "once in a second is enough");
    let (mut journal, _, _) = open(dir.path());
    journal.append_put(&[put(2, "a")]).unwrap();
    assert!(!journal.log.is_synced(), "nobody asked for that");
}

#[test]
fn a_journal_takes_the_place_of_the_old_one_when_it_is_synced_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    journal.append_put(&[put(1, "a")]).unwrap();
    settle(&mut journal);
    journal.begin_anew();
    journal.go_on(&[put(2, "b")]);
    journal.go_on(&[]);
    assert_eq!(journal.wants_facts(), None);
    let file = journal.poll_sync().unwrap();
    assert!(journal.poll_sync().is_none(), "one at a time");
    // What happens meanwhile is in both.
    journal.append_put(&[put(3, "c")]).unwrap();
    let beside = |name| JournalLines::read(std::fs::read(dir.path().join(name)).unwrap().as_slice(), |_| {});
    assert_eq!((beside(FILE).unwrap().sound, beside(NEW_FILE).unwrap().sound), (2, 2));
    journal.handle_synced(file.run());
    assert!(!dir.path().join(NEW_FILE).exists() && journal.is_renamed);
    settle(&mut journal);
    assert!(!journal.is_renamed, "the directory was synced");
    assert_eq!(entries(dir.path()), [put(2, "b"), put(3, "c")]);
}

#[test]
fn a_directory_that_could_not_be_synced_is_not_taken_for_one_that_was() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    journal.append_put(&[put(1, "a")]).unwrap();
    settle(&mut journal);
    journal.begin_anew();
    journal.go_on(&[]);
    let file = journal.poll_sync().unwrap();
    journal.handle_synced(file.run());
    let directory = journal.poll_sync().unwrap();
    journal.handle_synced(Err(io::Error::from(io::ErrorKind::StorageFull)));
    drop(directory);
    // A put that has to be on the disk syncs it first; the journal does not try again and again meanwhile.
    assert!(journal.is_renamed && journal.poll_sync().is_none());
    journal.durability = Durability::Machine;
    journal.append_put(&[put(2, "b")]).unwrap();
    assert!(!journal.is_renamed);
}

#[test]
fn a_disk_that_did_not_write_has_the_journal_written_anew_and_a_new_one_that_fails_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    journal.sync_first().unwrap();
    let failed = || Err(io::Error::from(rustix::io::Errno::IO));
    journal.append(&[put(1, "a")]);
    journal.poll_sync().unwrap();
    journal.handle_synced(failed());
    assert!(!journal.log.is_synced());
    journal.look_after(1);
    assert_eq!(journal.wants_facts(), Some(true));
    journal.go_on(&[put(1, "a")]);
    journal.go_on(&[]);
    journal.poll_sync().unwrap();
    journal.handle_synced(failed());
    assert!(journal.rewriting.is_none() && !dir.path().join(NEW_FILE).exists());
    // Not at once again.
    journal.look_after(1);
    assert_eq!(journal.wants_facts(), None);
    journal.failed = None;
    journal.look_after(1);
    journal.go_on(&[put(1, "a")]);
    journal.go_on(&[]);
    settle(&mut journal);
    assert!(!journal.is_damaged);
    assert_eq!(entries(dir.path()), [put(1, "a")]);
}

#[test]
fn a_file_system_that_knows_nothing_of_syncing_is_asked_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    journal.append(&[put(1, "a")]);
    journal.poll_sync().unwrap();
    journal.handle_synced(Err(io::Error::from(rustix::io::Errno::INVAL)));
    assert!(journal.next_sync().is_none() && journal.poll_sync().is_none() && !journal.is_damaged);
    journal.begin_anew();
    journal.go_on(&[put(2, "b")]);
    journal.go_on(&[]);
    assert_eq!(entries(dir.path()), [put(2, "b")]);
}

#[test]
fn what_was_taken_back_while_it_was_synced_does_not_count_as_synced() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _, _) = open(dir.path());
    let before = journal.log.length();
    journal.append(&[put(1, "a")]);
    let file = journal.poll_sync().unwrap();
    journal.log.take_back(before).unwrap();
    journal.append(&[put(2, "bb")]);
    journal.handle_synced(file.run());
    assert!(!journal.log.is_synced());
}
