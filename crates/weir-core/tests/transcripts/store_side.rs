//! The data plane of an agent whose stores receivers gather from, without sockets: each connection with what decides on it.

use crate::outputs::Outputs;
use crate::text::{Cuts, Line, Who};
use std::collections::BTreeMap;
use weir_core::agent::Agent;
use weir_core::ids::FlowNumber;
use weir_core::serving::{Conversation, Input, Range, Write};
use weir_model::Time;
use weir_proto::data::{Status, checksum, frame_length};
use weir_proto::gather::GatherRequest;

/// A connection, and what it serves.
struct Served {
    talk: Conversation,
    flow: Option<FlowNumber>,
    /// The block that was made for the gather.
    block: Vec<u8>,
}

pub(crate) struct StoreSide {
    own: Who,
    pub(crate) outputs: Outputs,
    /// The checksum of the frame that is begun next is not its bytes'.
    pub(crate) spoils: bool,
    served: BTreeMap<u32, Served>,
}

impl StoreSide {
    pub(crate) fn new(own: Who) -> StoreSide {
        StoreSide { own, outputs: Outputs::default(), spoils: false, served: BTreeMap::new() }
    }

    pub(crate) fn accept(&mut self, now: Time, number: u32) {
        let served = Served { talk: Conversation::new(now), flow: None, block: Vec::new() };
        self.served.insert(number, served);
    }

    /// A receiver says something; what the agent does.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        agent: &mut Agent,
        (number, mut left): (u32, &[u8]),
        cuts: &mut Cuts,
    ) -> Vec<Line> {
        let Some(mut served) = self.served.remove(&number) else { return Vec::new() };
        let mut said = Vec::new();
        let goes_on = loop {
            match served.talk.poll_input(now) {
                Input::Nothing if left.is_empty() => break true,
                Input::Nothing => {
                    let count = cuts.next(left.len());
                    served.talk.handle_input(&left[..count]);
                    left = &left[count..];
                }
                Input::Gather(request, _) => self.begin(now, agent, &mut served, request),
                Input::Request(..) => served.talk.refuse(Status::NoSuchBlock),
                Input::Acknowledged => served.end(agent, true),
                Input::Doubted(_) | Input::Ended => break false,
            }
            // The answer; payload follows as the agent writes it.
            self.write(now, agent, &mut served, 0, cuts, &mut said);
        };
        self.write(now, agent, &mut served, 0, cuts, &mut said);
        let mut acts = says(number, self.own, said);
        if goes_on {
            self.served.insert(number, served);
        } else {
            served.end(agent, false);
            acts.push(Line::Closes(number, self.own));
        }
        acts
    }

    /// A receiver closes a connection.
    pub(crate) fn lose(&mut self, agent: &mut Agent, number: u32) {
        if let Some(mut served) = self.served.remove(&number) {
            served.end(agent, false);
        }
    }

    /// Writes so many bytes of a flow; what it says, if the flow is of a gather.
    pub(crate) fn send(
        &mut self,
        now: Time,
        agent: &mut Agent,
        (flow, count): (FlowNumber, u64),
        cuts: &mut Cuts,
    ) -> Option<Vec<Line>> {
        let number = self.of(flow)?;
        let mut served = self.served.remove(&number)?;
        let mut said = Vec::new();
        let left = self.write(now, agent, &mut served, count, cuts, &mut said);
        assert_eq!(left, 0, "{flow} does not have so many bytes");
        self.served.insert(number, served);
        Some(says(number, self.own, said))
    }

    /// Closes the connection of a flow, if it is of a gather.
    pub(crate) fn abort(&mut self, flow: FlowNumber) -> Option<Line> {
        let number = self.of(flow)?;
        self.served.remove(&number);
        Some(Line::Closes(number, self.own))
    }

    /// The agent's process ends, and its connections with it.
    pub(crate) fn die(&mut self) -> Vec<Line> {
        let own = self.own;
        std::mem::take(&mut self.served).into_keys().map(|number| Line::Closes(number, own)).collect()
    }

    /// The connection of a flow.
    fn of(&self, flow: FlowNumber) -> Option<u32> {
        self.served.iter().find(|(_, served)| served.flow == Some(flow)).map(|(&number, _)| number)
    }

    fn begin(&mut self, now: Time, agent: &mut Agent, served: &mut Served, request: GatherRequest) {
        if let Err(status) = agent.store_of(&request) {
            return served.talk.refuse(status);
        }
        let number = served.talk.gather(request, None);
        let (request, _) = served.talk.take_gather(Some(number)).unwrap();
        let begun = self
            .outputs
            .find(&request)
            .and_then(|(found, block)| Ok((found, block, agent.handle_gather(now, &request, found)?.flow)));
        match begun {
            Ok((found, block, flow)) => {
                let range = Range { offset: request.offset, size: found.size };
                served.talk.serve(now, flow, vec![range], (found.size, found.identity), None);
                (served.flow, served.block) = (Some(flow), block);
            }
            Err(status) => served.talk.refuse(status),
        }
    }

    /// Writes what there is, with at most so many bytes of payload. How many of them are left.
    fn write(
        &mut self,
        now: Time,
        agent: &mut Agent,
        served: &mut Served,
        mut most: u64,
        cuts: &mut Cuts,
        said: &mut Vec<u8>,
    ) -> u64 {
        let Served { talk, flow, block } = served;
        loop {
            match talk.poll_write(most) {
                Write::Bytes { to, bytes, .. } => {
                    let count = cuts.next(bytes.len());
                    said.extend(&bytes[..count]);
                    talk.handle_written(to, count);
                }
                Write::Frame { offset, .. } => {
                    let length = frame_length(block.len() as u64, offset) as usize;
                    let sound = checksum(&block[offset as usize..][..length]);
                    talk.handle_frame(sound ^ u32::from(std::mem::take(&mut self.spoils)));
                }
                Write::Payload { offset, count, .. } => {
                    let count = cuts.next(count as usize);
                    said.extend(&block[offset as usize..][..count]);
                    talk.handle_sent(now, count as u64);
                    agent.handle_sent(now, flow.unwrap(), count as u64);
                    most -= count as u64;
                }
                Write::Nothing | Write::Waits => return most,
            }
        }
    }
}

impl Served {
    /// Its flow, if there is one, is over.
    fn end(&mut self, agent: &mut Agent, acknowledged: bool) {
        if let Some(flow) = self.flow.take() {
            agent.handle_closed(flow, acknowledged);
        }
    }
}

fn says(number: u32, who: Who, said: Vec<u8>) -> Vec<Line> {
    if said.is_empty() { Vec::new() } else { vec![Line::Says(number, who, said)] }
}
