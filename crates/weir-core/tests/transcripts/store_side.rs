//! The data plane of an agent whose stores receivers gather from, without sockets: each connection with what decides on it.

use crate::outputs::Outputs;
use crate::text::{Cuts, Line, Who};
use std::collections::BTreeMap;
use weir_core::agent::Agent;
use weir_core::ids::FlowNumber;
use weir_core::serving::{Conversation, Input, Outlet, Range, Relays, Write};
use weir_model::{Span, Time};
use weir_proto::data::{Status, checksum, frame_length};
use weir_proto::gather::GatherRequest;
use weir_proto::relay::{FlowKey, RelayPath};

/// A connection, and what it serves.
struct Served {
    talk: Conversation,
    flow: Option<FlowNumber>,
    /// The block that was made for the gather.
    block: Vec<u8>,
    /// The connection to the relay that carries it; 0 until that is there.
    upload: Option<u32>,
}

/// What is said on the two connections of a flow.
#[derive(Default)]
struct Said {
    receiver: Vec<u8>,
    relay: Vec<u8>,
}

pub(crate) struct StoreSide {
    own: Who,
    pub(crate) outputs: Outputs,
    /// The checksum of the frame that is begun next is not its bytes'.
    pub(crate) spoils: bool,
    /// Of its site.
    pub(crate) relays: Option<Relays>,
    served: BTreeMap<u32, Served>,
}

impl StoreSide {
    pub(crate) fn new(own: Who) -> StoreSide {
        StoreSide { own, outputs: Outputs::default(), spoils: false, relays: None, served: BTreeMap::new() }
    }

    pub(crate) fn accept(&mut self, now: Time, number: u32) {
        let served = Served { talk: Conversation::new(now), flow: None, block: Vec::new(), upload: None };
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
        let (mut said, mut acts) = (Said::default(), Vec::new());
        let goes_on = loop {
            match served.talk.poll_input(now) {
                Input::Nothing if left.is_empty() => break true,
                Input::Nothing => {
                    let count = cuts.next(left.len());
                    served.talk.handle_input(&left[..count]);
                    left = &left[count..];
                }
                Input::Gather(request, path) => {
                    acts.extend(self.begin(now, agent, &mut served, (request, path)));
                }
                Input::Request(..) => served.talk.refuse(Status::NoSuchBlock),
                Input::Acknowledged => acts.extend(served.end(agent, true, self.own)),
                Input::Doubted(_) | Input::Ended => break false,
            }
            // The answer; payload follows as the agent writes it.
            self.write(now, agent, &mut served, 0, cuts, &mut said);
        };
        self.write(now, agent, &mut served, 0, cuts, &mut said);
        acts.extend(says(number, &served, self.own, said));
        if goes_on {
            self.served.insert(number, served);
        } else {
            acts.push(Line::Closes(number, self.own));
            acts.extend(served.end(agent, false, self.own));
        }
        acts
    }

    /// A connection to a relay is there.
    pub(crate) fn connected(
        &mut self,
        now: Time,
        agent: &mut Agent,
        upload: u32,
        cuts: &mut Cuts,
    ) -> Vec<Line> {
        let waits =
            self.served.iter().find(|(_, served)| served.upload == Some(0)).map(|(&number, _)| number);
        let Some(number) = waits else { return Vec::new() };
        let mut served = self.served.remove(&number).unwrap();
        served.upload = Some(upload);
        served.talk.handle_connected();
        let mut said = Said::default();
        self.write(now, agent, &mut served, 0, cuts, &mut said);
        let acts = says(number, &served, self.own, said);
        self.served.insert(number, served);
        acts
    }

    /// A receiver, or a relay, closes a connection.
    pub(crate) fn lose(&mut self, agent: &mut Agent, number: u32) -> Vec<Line> {
        let of_relay =
            self.served.iter().find(|(_, served)| served.upload == Some(number)).map(|(&own, _)| own);
        let Some(mut served) = self.served.remove(&of_relay.unwrap_or(number)) else { return Vec::new() };
        if of_relay.is_some() {
            served.upload = None;
        }
        let closes = of_relay.map(|own| Line::Closes(own, self.own));
        closes.into_iter().chain(served.end(agent, false, self.own)).collect()
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
        let mut said = Said::default();
        let left = self.write(now, agent, &mut served, count, cuts, &mut said);
        assert_eq!(left, 0, "{flow} does not have so many bytes");
        let acts = says(number, &served, self.own, said);
        self.served.insert(number, served);
        Some(acts)
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
        let served = std::mem::take(&mut self.served).into_iter();
        let numbers = served.flat_map(|(number, served)| std::iter::once(number).chain(served.upload));
        numbers.map(|number| Line::Closes(number, own)).collect()
    }

    /// The connection of a flow.
    fn of(&self, flow: FlowNumber) -> Option<u32> {
        self.served.iter().find(|(_, served)| served.flow == Some(flow)).map(|(&number, _)| number)
    }

    fn begin(
        &mut self,
        now: Time,
        agent: &mut Agent,
        served: &mut Served,
        (request, path): (GatherRequest, Option<RelayPath>),
    ) -> Option<Line> {
        if let Err(status) = agent.store_of(&request) {
            served.talk.refuse(status);
            return None;
        }
        let number = served.talk.gather(request, path);
        let (request, path) = served.talk.take_gather(Some(number)).unwrap();
        let begun = self.outputs.find(&request).and_then(|(found, block)| {
            Ok((found, block, agent.handle_gather(now, &request, found, Span::ZERO)?.flow))
        });
        match begun {
            Ok((found, block, flow)) => {
                let range = Range { offset: request.offset, size: found.size };
                let chosen = path.and_then(|path| Some((path, self.relays.as_mut()?.choose(now, &path)?)));
                let relay = chosen.map(|(path, (_, open))| (FlowKey::of_gather(&request, &path), open));
                served.talk.serve(now, flow, vec![range], (found.size, found.identity), relay);
                (served.flow, served.block, served.upload) = (Some(flow), block, chosen.map(|_| 0));
                chosen.map(|(_, (address, _))| Line::Connects(0, self.own, address))
            }
            Err(status) => {
                served.talk.refuse(status);
                None
            }
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
        said: &mut Said,
    ) -> u64 {
        let Served { talk, flow, block, .. } = served;
        loop {
            match talk.poll_write(most) {
                Write::Bytes { to, bytes, .. } => {
                    let count = cuts.next(bytes.len());
                    said.of(to).extend(&bytes[..count]);
                    talk.handle_written(to, count);
                }
                Write::Frame { offset, .. } => {
                    let length = frame_length(block.len() as u64, offset) as usize;
                    let sound = checksum(&block[offset as usize..][..length]);
                    talk.handle_frame(sound ^ u32::from(std::mem::take(&mut self.spoils)));
                }
                Write::Payload { to, offset, count, .. } => {
                    let count = cuts.next(count as usize);
                    said.of(to).extend(&block[offset as usize..][..count]);
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
    /// Its flow, if there is one, is over; the relay's connection is closed.
    fn end(&mut self, agent: &mut Agent, acknowledged: bool, own: Who) -> Option<Line> {
        if let Some(flow) = self.flow.take() {
            agent.handle_closed(flow, acknowledged);
        }
        self.upload.take().map(|upload| Line::Closes(upload, own))
    }
}

impl Said {
    fn of(&mut self, to: Outlet) -> &mut Vec<u8> {
        match to {
            Outlet::Receiver => &mut self.receiver,
            Outlet::Relay => &mut self.relay,
        }
    }
}

fn says(number: u32, served: &Served, who: Who, said: Said) -> Vec<Line> {
    let to_relay = served.upload.map(|upload| (upload, said.relay));
    let all = std::iter::once((number, said.receiver)).chain(to_relay);
    all.filter(|(_, said)| !said.is_empty()).map(|(number, said)| Line::Says(number, who, said)).collect()
}
