//! Stores of executors: files that a framework keeps, of which receivers gather ranges.
//!
//! The agent keeps no list of what is in a store. A gather names ranges, the driver looks for them in the store's files, and
//! what is found becomes a block that lives as long as its flow.

use super::facts::{Gathered, JournalEntry, OpenedGather, StoreEntry, StoreError};
use super::state::{Agent, Wanted};
use super::turns::NEAR;
use crate::ids::HostNumber;
use weir_model::{CoflowId, Span, Time};
use weir_proto::data::Status;
use weir_proto::gather::{GatherRequest, Token};
use weir_proto::limits;

/// What blocks that are made for gathers are called begins so; no put may have such a name, and no receiver ask for one.
pub(super) const GATHER_PREFIX: &str = "//gather/";
/// Most subdirectories of a directory: their names are numbers.
const MAX_SUBDIRECTORIES: u32 = 65_536;

impl Agent {
    /// Serves the files of an executor from now on. The same store again is not an error.
    ///
    /// # Errors
    /// It cannot be, another one has its name, or there are too many.
    pub fn handle_attach(&mut self, store: StoreEntry) -> Result<(), StoreError> {
        let is_name = |name: &str| (1..=limits::MAX_STORE_NAME_BYTES).contains(&name.len());
        if !is_name(&store.application) || !is_name(&store.executor) {
            return Err(StoreError::Name);
        }
        let directories = &store.directories;
        let sound = (1..=limits::MAX_STORE_DIRECTORIES).contains(&directories.len())
            && directories.iter().map(String::len).sum::<usize>() <= limits::MAX_PATH_BYTES
            && (1..=MAX_SUBDIRECTORIES).contains(&store.subdirectories);
        if !sound {
            return Err(StoreError::Directories);
        }
        let StoreEntry { application, executor, .. } = store.clone();
        match self.stores.get(&(application.clone(), executor.clone())) {
            Some(known) if *known == store => return Ok(()),
            // The executor itself may attach anew, with other directories; its token shows that it
            // is the same one.
            Some(known) if known.token != store.token => {
                return Err(StoreError::Taken { application, executor });
            }
            None if self.draining => return Err(StoreError::Draining),
            None if self.stores.len() >= limits::MAX_STORES_PER_AGENT => return Err(StoreError::Full),
            _ => {}
        }
        self.write_down(JournalEntry::Store(store.clone()));
        self.stores.insert((application, executor), store);
        Ok(())
    }

    /// The executor is done with its store.
    ///
    /// # Errors
    /// There is none of that name and token.
    pub fn handle_detach(
        &mut self,
        application: &str,
        executor: &str,
        token: &Token,
    ) -> Result<(), StoreError> {
        let key = (application.to_owned(), executor.to_owned());
        if !self.stores.get(&key).is_some_and(|store| is_token(store, token)) {
            let (application, executor) = key;
            return Err(StoreError::Unknown { application, executor });
        }
        self.drop_store(key);
        Ok(())
    }

    /// The directories of a store are gone, and its executor with them. One that was attached anew meanwhile, with others, stays.
    pub fn handle_store_gone(&mut self, gone: &StoreEntry) {
        let key = (gone.application.clone(), gone.executor.clone());
        if self.stores.get(&key) == Some(gone) {
            self.drop_store(key);
        }
    }

    fn drop_store(&mut self, key: (String, String)) {
        self.stores.remove(&key);
        let (application, executor) = key;
        self.write_down(JournalEntry::StoreGone { application, executor });
    }

    /// A journal says that there is this store.
    pub(super) fn restore_store(&mut self, store: StoreEntry) {
        self.stores.insert((store.application.clone(), store.executor.clone()), store);
    }

    /// All stores, for the driver, which looks whether their directories are still there.
    pub fn stores(&self) -> impl Iterator<Item = &StoreEntry> {
        self.stores.values()
    }

    /// A receiver asks for ranges of a store: where they are to be looked for.
    ///
    /// # Errors
    /// What the receiver is told.
    pub fn store_of(&self, request: &GatherRequest) -> Result<&StoreEntry, Status> {
        self.may_move(CoflowId(request.coflow))?;
        let key = (request.application.clone(), request.executor.clone());
        let store = self.stores.get(&key).ok_or(Status::NoSuchBlock)?;
        if is_token(store, &request.token) { Ok(store) } else { Err(Status::Forbidden) }
    }

    /// The ranges of a gather were found: a flow begins. `round_trip`: of an empty path to its receiver, the least that was
    /// seen; 0 where none was.
    ///
    /// # Errors
    /// What the receiver is told.
    pub fn handle_gather(
        &mut self,
        now: Time,
        request: &GatherRequest,
        found: Gathered,
        round_trip: Span,
    ) -> Result<OpenedGather, Status> {
        let coflow = CoflowId(request.coflow);
        self.may_move(coflow)?;
        if request.identity.is_known() && request.identity != found.identity {
            return Err(Status::OtherBytes);
        }
        // One name for one list of ranges, so that a receiver that gets it again counts once.
        let block = format!("{GATHER_PREFIX}{:032x}", u128::from_be_bytes(found.identity.0));
        let wanted = Wanted {
            coflow,
            block: &block,
            receiver: (HostNumber(request.destination), request.group),
            size: found.size,
            offset: request.offset,
            takes_turns: round_trip <= NEAR,
        };
        let flow = self.open_flow(now, &wanted)?;
        Ok(OpenedGather { flow, block })
    }
}

/// Whether a token is the store's, in a time that says nothing of where they differ.
fn is_token(store: &StoreEntry, token: &Token) -> bool {
    store.token.iter().zip(token).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::super::{AgentConfig, FactCursor};
    use super::*;
    use crate::agent::{BlockEntry, PutError};
    use weir_model::CoflowId;
    use weir_proto::data::{Identity, Request};
    use weir_proto::gather::GatherRange;

    fn store(executor: &str) -> StoreEntry {
        StoreEntry {
            application: "app".to_owned(),
            executor: executor.to_owned(),
            token: [7; 16],
            directories: vec!["/data/blockmgr".to_owned()],
            subdirectories: 64,
        }
    }

    fn gather(executor: &str) -> GatherRequest {
        GatherRequest {
            coflow: 9,
            offset: 0,
            destination: 2,
            group: 1,
            identity: Identity::UNKNOWN,
            token: [7; 16],
            shuffle: 0,
            application: "app".to_owned(),
            executor: executor.to_owned(),
            ranges: vec![GatherRange { map: 0, first: 0, end: 1 }],
        }
    }

    fn journal(agent: &mut Agent) -> Vec<JournalEntry> {
        let outputs = std::iter::from_fn(|| agent.poll_output(Time::ZERO));
        outputs
            .filter_map(|output| match output {
                super::super::Output::Journal(entry) => Some(entry),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn stores_are_kept_over_the_process_and_given_to_those_with_their_token_alone() {
        let mut agent = Agent::new(AgentConfig::default());
        assert_eq!(agent.handle_attach(store("1")), Ok(()));
        assert_eq!(agent.handle_attach(store("1")), Ok(()));
        assert_eq!(agent.handle_attach(store("2")), Ok(()));
        let other = StoreEntry { token: [8; 16], ..store("1") };
        assert!(matches!(agent.handle_attach(other), Err(StoreError::Taken { .. })));
        let moved = StoreEntry { directories: vec!["/data/other".to_owned()], ..store("2") };
        assert_eq!(agent.handle_attach(moved.clone()), Ok(()));
        assert!(
            agent.handle_detach("app", "1", &[8; 16]).is_err()
                && agent.handle_detach("app", "3", &[7; 16]).is_err()
        );
        let entries = journal(&mut agent);
        assert_eq!(entries.len(), 3, "{entries:?}");
        let mut again = Agent::new(AgentConfig::default());
        entries.into_iter().for_each(|entry| again.restore(entry));
        let mut facts = Agent::new(AgentConfig::default());
        again.facts(&mut FactCursor::default(), 10).into_iter().for_each(|entry| facts.restore(entry));
        for agent in [&agent, &again, &facts] {
            assert_eq!(agent.store_of(&gather("1")), Ok(&store("1")));
            assert_eq!(agent.store_of(&gather("2")), Ok(&moved));
            assert_eq!(agent.store_of(&gather("3")), Err(Status::NoSuchBlock));
            let guess = GatherRequest { token: [0; 16], ..gather("1") };
            assert_eq!(agent.store_of(&guess), Err(Status::Forbidden));
        }
        assert_eq!(again.handle_detach("app", "1", &[7; 16]), Ok(()));
        again.handle_store_gone(&store("2"));
        assert_eq!(again.stores().count(), 1, "it was attached anew with another directory");
        again.handle_store_gone(&moved);
        again.handle_store_gone(&moved);
        assert_eq!(journal(&mut again).len(), 2);
        assert_eq!(again.stores().count(), 0);
    }

    #[test]
    fn what_cannot_be_a_store_is_refused() {
        let mut agent = Agent::new(AgentConfig::default());
        let long = "x".repeat(limits::MAX_STORE_NAME_BYTES + 1);
        for (wrong, error) in [
            (StoreEntry { application: String::new(), ..store("1") }, StoreError::Name),
            (store(&long), StoreError::Name),
            (StoreEntry { directories: Vec::new(), ..store("1") }, StoreError::Directories),
            (StoreEntry { directories: vec!["/a".to_owned(); 65], ..store("1") }, StoreError::Directories),
            (StoreEntry { directories: vec!["/".repeat(5_000)], ..store("1") }, StoreError::Directories),
            (StoreEntry { directories: vec!["/".repeat(100); 60], ..store("1") }, StoreError::Directories),
            (StoreEntry { subdirectories: 0, ..store("1") }, StoreError::Directories),
            (StoreEntry { subdirectories: u32::MAX, ..store("1") }, StoreError::Directories),
        ] {
            assert_eq!(agent.handle_attach(wrong), Err(error));
        }
        for executor in 0..limits::MAX_STORES_PER_AGENT {
            assert_eq!(agent.handle_attach(store(&executor.to_string())), Ok(()));
        }
        assert_eq!(agent.handle_attach(store("more")), Err(StoreError::Full));
    }

    /// Else who can put would forge what others gather, and who can get would read it without a token.
    #[test]
    fn no_put_has_the_name_of_a_gather_and_no_get_asks_for_one() {
        let mut agent = Agent::new(AgentConfig::default());
        let found = Gathered { size: 600_000, identity: Identity([1; 16]) };
        let opened = agent.handle_gather(Time::ZERO, &gather("1"), found, Span::ZERO).unwrap();
        let put = BlockEntry::of_file(
            CoflowId(9),
            opened.block.clone(),
            "/data/forged".to_owned(),
            600_000,
            Identity([1; 16]),
        );
        assert_eq!(agent.handle_put(put.clone()), Err(PutError::Name));
        let request = Request {
            coflow: 9,
            offset: 0,
            destination: 2,
            group: 0,
            identity: Identity::UNKNOWN,
            block: opened.block,
        };
        assert_eq!(agent.handle_request(Time::ZERO, &request), Err(Status::NoSuchBlock));
        assert_eq!(agent.handle_put(BlockEntry { block: "gather".to_owned(), ..put }), Ok(()));
    }

    /// A gather resumes like a block, is one flow, and counts once for a receiver that gets it twice.
    #[test]
    fn a_gather_is_a_flow_of_its_coflow() {
        let mut agent = Agent::new(AgentConfig::default());
        let found = Gathered { size: 600_000, identity: Identity([1; 16]) };
        let opened = agent.handle_gather(Time::ZERO, &gather("1"), found, Span::ZERO).unwrap();
        let other = GatherRequest { identity: Identity([2; 16]), ..gather("1") };
        assert_eq!(agent.handle_gather(Time::ZERO, &other, found, Span::ZERO), Err(Status::OtherBytes));
        for offset in [1, 600_000, 786_432] {
            let beyond = GatherRequest { offset, ..gather("1") };
            assert_eq!(agent.handle_gather(Time::ZERO, &beyond, found, Span::ZERO), Err(Status::BadRequest));
        }
        let resumed = GatherRequest { offset: 262_144, identity: Identity([1; 16]), ..gather("1") };
        let again = agent.handle_gather(Time::ZERO, &resumed, found, Span::ZERO).unwrap();
        assert_eq!((again.block == opened.block, again.flow > opened.flow), (true, true));
        for flow in [opened.flow, again.flow] {
            agent.handle_sent(Time::ZERO, flow, 600_000);
            agent.handle_closed(flow, true);
        }
        let done = journal(&mut agent).into_iter().filter(|entry| matches!(entry, JournalEntry::Done { .. }));
        assert_eq!(done.count(), 1);
        agent.restore(JournalEntry::Ended(CoflowId(9)));
        assert_eq!(agent.store_of(&gather("1")), Err(Status::CoflowEnded));
        assert_eq!(
            agent.handle_gather(Time::ZERO, &gather("1"), found, Span::ZERO),
            Err(Status::CoflowEnded)
        );
    }
}
