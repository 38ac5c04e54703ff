//! What the data-plane thread does with requests: has the block's file opened, writes frames when flows may, and says
//! no where it must.

use super::blocks::{Reading, is_of_the_file};
use super::connection::{Connection, Wrote};
use super::data_plane::Running;
use super::jobs::{Done, Gather, Job, Open};
use super::upload::Upload;
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use weir_core::agent::{OpenedGather, Pacing, Place};
use weir_core::ids::{BlockKey, FlowNumber};
use weir_core::serving::Opening;
use weir_model::CoflowId;
use weir_net::{FrameRead, Unsent};
use weir_proto::data::{Request, Status};
use weir_proto::gather::GatherRequest;
use weir_proto::relay::{FlowKey, Open as RelayOpen, RelayPath};

/// Writes between two looks at events and commands, so that neither waits long.
const WRITES_PER_TURN: usize = 8;

impl Running {
    /// A receiver asks for a block.
    pub(super) fn begin(&mut self, token: u64, request: Request, path: Option<RelayPath>) {
        let now = self.clock.now();
        let opened = self.agent.handle_request(now, &request);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let opened = match opened {
            Ok(opened) => opened,
            Err(status) => return connection.refuse(status),
        };
        let (flow, block) = (opened.flow, &opened.block);
        self.by_flow.insert(flow, token);
        let known = self.blocks.open_now(&block.key());
        // A receiver that resumes may have got a frame that its checksum did not fit: the file is looked at again.
        let known = known.filter(|served| opened.offset == 0 && served.is_unchanged());
        let is_shared = opened.offset == 0 && !block.spooled;
        let open = if is_shared && known.is_none() { self.files.open_now(now, block) } else { None };
        let file: PathBuf = block.path.clone().into();
        connection.talk.open(Opening { opened, request, path });
        if known.is_some() || open.is_some() {
            return self.serve(token, flow, open);
        }
        // The flow writes nothing before its file is open.
        self.agent.handle_blocked(now, flow);
        if !(is_shared && self.files.wait(now, &file, (token, flow))) {
            self.jobs.add(now, Job::Open { connection: token, flow, path: file });
        }
    }

    /// Takes what came of work on files.
    pub(super) fn take_jobs(&mut self) {
        self.jobs.start(self.clock.now());
        while let Some(done) = self.jobs.poll(self.clock.now()) {
            match done {
                Done::Opened { connection, flow, path, result } => {
                    let result = result.map(Rc::new);
                    let shared = result.as_ref().ok().cloned();
                    let waiting = self.files.opened(self.clock.now(), &path, shared.as_ref());
                    self.file_opened(connection, flow, result);
                    for (connection, flow) in waiting {
                        self.other_opened(connection, flow, shared.as_ref());
                    }
                }
                Done::Read { block, place, frame, result } => {
                    self.frame_read(&block, &place, frame, result);
                }
                Done::Gathered { connection, number, result } => self.gathered(connection, number, result),
                Done::StoreSeen(gone) => {
                    self.looks_at_store = false;
                    self.look_at_store();
                    if let Some(gone) = gone {
                        let (application, executor) = (&gone.application, &gone.executor);
                        tracing::info!(
                            application,
                            executor,
                            "an executor's directories are gone: its store is served no longer"
                        );
                        self.agent.handle_store_gone(&gone);
                    }
                }
                Done::Removed | Done::Nothing | Done::Mounts(_) => {}
                Done::Swept(mut paths) => {
                    let now = self.clock.now();
                    paths.retain(|path| !path.to_str().is_some_and(|path| self.agent.owns(path)));
                    for path in self.strays.see(now, paths) {
                        self.jobs.remove(now, path);
                    }
                }
            }
        }
    }

    /// The file of a block was opened for another connection. Where it is not what was put, it may have become that since: it is
    /// opened once more, for this one alone.
    fn other_opened(&mut self, token: u64, flow: FlowNumber, file: Option<&Rc<Open>>) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some(opening) = connection.talk.take_opening(flow) else { return };
        let file = file.filter(|file| file.holds(&opening.opened.block)).cloned();
        let path = PathBuf::from(&opening.opened.block.path);
        connection.talk.open(opening);
        match file {
            Some(file) => self.file_opened(token, flow, Ok(file)),
            None => self.jobs.add(self.clock.now(), Job::Open { connection: token, flow, path }),
        }
    }

    fn file_opened(&mut self, token: u64, flow: FlowNumber, result: io::Result<Rc<Open>>) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some(opening) = connection.talk.take_opening(flow) else { return };
        let block = opening.opened.block.clone();
        // Put back for `serve` or `give_up_opening`, which take it out again.
        connection.talk.open(opening);
        if !self.agent.holds(block.coflow, &block.block, &block.place()) {
            // What the file was opened for is over: its receiver asks again, and hears what holds now.
            return self.close(token);
        }
        match result {
            Ok(open) if open.holds(&block) => self.serve(token, flow, Some(open)),
            Err(error) if is_out_of_descriptors(&error) => {
                // Idle connections make room, and the receiver asks again.
                self.files.clear();
                self.close_idle();
                self.give_up_opening(token, flow, Status::Busy);
            }
            // Too many wait for that disk: the receiver asks again.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                self.give_up_opening(token, flow, Status::Busy);
            }
            Err(error) if !is_of_the_file(&error) => {
                tracing::warn!(path = block.path, coflow = block.coflow.0, %error, "a block's file cannot be opened now");
                self.give_up_opening(token, flow, Status::Unreadable);
            }
            changed => {
                let error =
                    changed.err().map_or_else(|| "it was changed".to_owned(), |error| error.to_string());
                tracing::warn!(
                    path = block.path,
                    coflow = block.coflow.0,
                    error,
                    "a block's file is not what was put"
                );
                if self.agent.handle_changed(block.coflow, &block.block, &block.place()) {
                    // It is in another file too, or was put again while this one was opened: its receiver asks again.
                    self.close(token);
                } else {
                    self.give_up_opening(token, flow, Status::Changed);
                }
            }
        }
    }

    /// Begins to send, from a file that was just opened or that others read already.
    fn serve(&mut self, token: u64, flow: FlowNumber, file: Option<Rc<Open>>) {
        let now = self.clock.now();
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some(opening) = connection.talk.take_opening(flow) else { return };
        let block = &opening.opened.block;
        let key = block.key();
        let served = match file {
            Some(file) => Some(self.blocks.opened(block, file)),
            None => self.blocks.open_now(&key),
        };
        let Some(served) = served else { return };
        let relay = self.upload(token, opening.way(), |path| FlowKey::of(&opening.request, path));
        let from = (flow, opening.opened.offset);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        connection.serve(now, from, opening.opened.block.identity, served, relay);
        self.tag(token, from);
        self.answer_soon(token);
        self.agent.handle_writable(now, flow);
    }

    /// Begins a connection to a relay for the flow of connection `token`, if its receiver offered a way and the host has one.
    fn upload(
        &mut self,
        token: u64,
        path: Option<RelayPath>,
        key: impl FnOnce(&RelayPath) -> FlowKey,
    ) -> Option<(Upload, FlowKey, RelayOpen)> {
        let path = path?;
        let (upload, open) = self.uploads.begin(self.clock.now(), token, &mut self.next_token, &path)?;
        if self.poller.add(&upload.stream, upload.token).is_err() {
            // The flow goes straight to its receiver then.
            self.uploads.forget(token);
            return None;
        }
        Some((upload, key(&path), open))
    }

    /// The answer waits a moment for the first frame, if one follows.
    fn answer_soon(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.talk.owes_answer() {
            self.answers.add(self.clock.now(), token);
        } else {
            connection.answer();
        }
    }

    /// A receiver asks for ranges of an executor's store.
    pub(super) fn begin_gather(&mut self, token: u64, request: GatherRequest, path: Option<RelayPath>) {
        let store = self.agent.store_of(&request).cloned();
        let Some(connection) = self.connections.get_mut(&token) else { return };
        match store {
            Ok(store) => {
                let number = connection.talk.gather(request.clone(), path);
                let files = self.gathering.clone();
                self.jobs
                    .add(self.clock.now(), Job::Gather { connection: token, number, store, request, files });
            }
            Err(status) => self.refuse_gather(token, status),
        }
    }

    fn refuse_gather(&mut self, token: u64, status: Status) {
        self.gathers.note(Err(status));
        self.connections.get_mut(&token).into_iter().for_each(|connection| connection.refuse(status));
    }

    /// The ranges of a gather were found, or not.
    fn gathered(&mut self, token: u64, number: u64, result: Result<Gather, Status>) {
        let now = self.clock.now();
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some((request, path)) = connection.talk.take_gather(Some(number)) else { return };
        let opened = result.and_then(|found| {
            let round_trip = self.round_trips.least(connection.stream());
            let opened = self.agent.handle_gather(now, &request, found.gathered, round_trip)?;
            Ok((found, opened))
        });
        match opened {
            Ok((found, OpenedGather { flow, block })) => {
                self.gathers.note(Ok(()));
                let identity = found.gathered.identity;
                let served =
                    self.blocks.gathered(BlockKey { coflow: CoflowId(request.coflow), name: block }, found);
                self.by_flow.insert(flow, token);
                // As for a block, a way is not taken where no bytes are left.
                let path = path.filter(|_| request.offset < served.file.size());
                let relay = self.upload(token, path, |path| FlowKey::of_gather(&request, path));
                let Some(connection) = self.connections.get_mut(&token) else { return };
                connection.serve(now, (flow, request.offset), identity, served, relay);
                self.tag(token, (flow, request.offset));
                self.answer_soon(token);
            }
            Err(status) => self.refuse_gather(token, status),
        }
    }

    /// Looks whether the next store is there still. One at a time: one that hangs takes one place of its disk, and no more.
    pub(super) fn look_at_store(&mut self) {
        if !self.looks_at_store
            && let Some(store) = self.stores_left.pop()
        {
            self.looks_at_store = true;
            self.jobs.add(self.clock.now(), Job::Store(store));
        }
    }

    /// A gather whose files were not found in time.
    pub(super) fn give_up_gather(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.talk.take_gather(None).is_some() {
            self.refuse_gather(token, Status::Unreadable);
        }
    }

    /// A request cannot be served.
    pub(super) fn give_up_opening(&mut self, token: u64, flow: FlowNumber, status: Status) {
        self.by_flow.remove(&flow);
        self.agent.handle_closed(flow, false);
        if let Some(connection) = self.connections.get_mut(&token)
            && connection.talk.take_opening(flow).is_some()
        {
            connection.refuse(status);
        }
    }

    /// A receiver got a frame that does not have its checksum: the file is looked at. What came of it is in `frame_read`.
    pub(super) fn doubt(&mut self, token: u64, frame: u64) {
        let Some(served) = self.connections.get(&token).and_then(Connection::block) else { return };
        let BlockKey { coflow, name: block } = &served.key;
        tracing::warn!(
            coflow = coflow.0,
            block,
            frame,
            path = served.place.path,
            "a receiver got a frame without its checksum"
        );
        let now = self.clock.now();
        let mut reading =
            Reading { now, jobs: &mut self.jobs, connection: token, buffer: &mut self.frame_buffer };
        served.doubt(&mut reading, frame);
    }

    /// A frame's checksum is known: the connections that waited for it go on.
    fn frame_read(&mut self, key: &BlockKey, place: &Place, frame: u64, result: io::Result<FrameRead>) {
        // What was read of a file that counts no more says nothing of the one that does.
        let Some(known) = self.blocks.checksums(key, place) else { return };
        // No connection reads the block any more if its receiver left because of this frame.
        let served = self.blocks.open_now(key).filter(|served| served.place == *place);
        let changed = match &result {
            Ok(read) => !known.note(frame, read.checksum),
            Err(error) => {
                tracing::warn!(coflow = key.coflow.0, block = key.name, %error, "a block's file cannot be read now");
                // A file that became shorter was changed; other errors of a disk may pass.
                error.kind() == io::ErrorKind::UnexpectedEof
            }
        };
        let sound = result.is_ok() && !changed;
        let read = result.ok().filter(|_| sound);
        let waiting = served.map(|served| served.settle(frame, read)).unwrap_or_default();
        if changed {
            tracing::warn!(
                coflow = key.coflow.0,
                block = key.name,
                "the file of a block changed while it was read"
            );
            self.agent.handle_changed(key.coflow, &key.name, place);
        }
        let now = self.clock.now();
        for token in waiting {
            match self.connections.get(&token).and_then(|connection| connection.talk.flow()) {
                Some(flow) if sound => self.agent.handle_writable(now, flow),
                // Its receiver asks again, and hears that the block changed.
                Some(_) => self.close(token),
                None => {}
            }
        }
    }

    /// Something happened to the connection to a relay that carries the flow of connection `token`.
    pub(super) fn handle_upload(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        match (connection.check_upload(), connection.talk.flow()) {
            (Ok(()), Some(flow)) => self.agent.handle_writable(self.clock.now(), flow),
            (Ok(()), None) => {}
            // Its receiver sees the connection close, and asks again.
            (Err(error), _) => {
                tracing::debug!(token, %error, "a relay gave a flow up");
                self.close(token);
            }
        }
    }

    /// Answers receivers whose first frame did not go out soon.
    pub(super) fn answer(&mut self) {
        let now = self.clock.now();
        while let Some(token) = self.answers.poll(now) {
            self.connections.get_mut(&token).into_iter().for_each(Connection::answer);
        }
    }

    /// Writes what is due.
    pub(super) fn transmit(&mut self) {
        for _ in 0..WRITES_PER_TURN {
            let now = self.clock.now();
            let Some(transmit) = self.agent.poll_transmit(now) else { return };
            let flow = transmit.flow;
            let token = self.by_flow.get(&flow).copied();
            let Some((token, connection)) =
                token.and_then(|token| Some((token, self.connections.get_mut(&token)?)))
            else {
                self.agent.handle_closed(flow, false);
                continue;
            };
            connection.set_unsent(match self.agent.pacing(flow) {
                Some(Pacing::Unscheduled) if self.agent.others_wait(flow) => Unsent::InTurn,
                Some(Pacing::Unscheduled) => Unsent::Free,
                _ => Unsent::Scheduled,
            });
            if let Some(crowd) = connection.crowd(transmit.in_flight_limit) {
                self.agent.handle_crowded(now, flow, crowd);
                continue;
            }
            // There is nothing to send before its file is open; `serve` tells the agent when it is.
            if connection.talk.is_opening() {
                self.agent.handle_blocked(now, flow);
                self.agent.handle_sent(now, flow, 0);
                continue;
            }
            let mut reading =
                Reading { now, jobs: &mut self.jobs, connection: token, buffer: &mut self.frame_buffer };
            match connection.write(transmit.bytes, &mut reading) {
                Ok(Wrote::Bytes(bytes)) => self.agent.handle_sent(now, flow, bytes),
                Ok(Wrote::Blocked(bytes)) => {
                    self.agent.handle_blocked(now, flow);
                    self.agent.handle_sent(now, flow, bytes);
                }
                Err(error) => {
                    tracing::debug!(flow = flow.0, %error, "a data connection ended");
                    self.close(token);
                }
            }
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}
