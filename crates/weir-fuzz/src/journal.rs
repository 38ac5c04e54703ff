//! An agent's journal, whatever happened to its file.

use weir_core::agent::{Agent, AgentConfig, FactCursor, JournalEntry, JournalLines, journal_lines};
use weir_model::Span;

fn agent(entries: Vec<JournalEntry>) -> Agent {
    let mut agent = Agent::new(AgentConfig {
        data_address: "10.0.0.1:7071".to_owned(),
        incarnation: 1,
        spool_identity: 1,
        first_plan_wait: Span::from_millis(100),
        report_interval: Span::from_millis(20),
        batch: Span::from_millis(1),
        ..AgentConfig::default()
    });
    entries.into_iter().for_each(|entry| agent.restore(entry));
    agent
}

fn facts(agent: &Agent) -> Vec<u8> {
    let (mut cursor, mut all) = (FactCursor::default(), Vec::new());
    loop {
        let some = agent.facts(&mut cursor, 3);
        if some.is_empty() {
            return all;
        }
        all.extend(journal_lines(&some).expect("facts can be written"));
    }
}

fn read(bytes: &[u8]) -> (JournalLines, Vec<JournalEntry>) {
    let mut entries = Vec::new();
    let found = JournalLines::read(bytes, |entry| entries.push(entry)).expect("memory can be read");
    assert_eq!(found.sound, entries.len());
    (found, entries)
}

/// Reads a journal and restores an agent; what it knows then restores the same one.
pub fn run(data: &[u8]) {
    let (found, entries) = read(data);
    assert!(found.whole <= data.len() as u64);
    let once = facts(&agent(entries));
    let (again, entries) = read(&once);
    assert!(again.damaged.is_empty() && !again.torn && !again.other_version);
    assert_eq!(facts(&agent(entries)), once);
}
