//! The agents of a case, without sockets: each connection with what decides on it.

use crate::cases::{self, AGENTS_RELAY, Case, Fault, Held};
use crate::play::NOW;
use crate::relay_side;
use crate::text::{Cuts, bytes};
use weir_core::agent::{Agent, AgentConfig, BlockEntry, JournalEntry};
use weir_core::ids::HostNumber;
use weir_core::serving::{Conversation, Input, Opening, Outlet, Range, Relays, Write};
use weir_model::CoflowId;
use weir_proto::data::{Status, checksum, frame_length};
use weir_proto::relay::FlowKey;

/// The coflow of all blocks.
pub(crate) const COFLOW: u64 = 7;

pub(crate) struct Side {
    agent: Agent,
    holds: Vec<Held>,
    fault: Fault,
    relays: Option<Relays>,
    pub(crate) is_dead: bool,
}

/// A connection that an agent serves.
pub(crate) struct Served {
    talk: Conversation,
    held: Option<Held>,
    sent: u64,
    has_relay: bool,
}

/// What an agent does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Says(Outlet, Vec<u8>),
    /// To the relay that carries the flow.
    Dials(std::net::SocketAddr),
    /// That relay's connection is closed: its flow is over.
    HangsUp,
    Closes,
}

pub(crate) fn sides(case: &Case) -> Vec<Side> {
    case.agents.iter().enumerate().map(|(number, of)| Side::new(case, number, &of.holds, of.fault)).collect()
}

impl Side {
    fn new(case: &Case, number: usize, holds: &[Held], fault: Fault) -> Side {
        let mut agent = Agent::new(AgentConfig {
            host: HostNumber(number as u32),
            data_address: cases::agent(number).to_string(),
            incarnation: 1,
            spool_identity: 1,
            ..AgentConfig::default()
        });
        for held in holds {
            let entry = BlockEntry::of_file(
                CoflowId(COFLOW),
                held.name.to_owned(),
                format!("/{}", held.name),
                held.size,
                held.identity,
            );
            let place = entry.place();
            agent.handle_put(entry).unwrap();
            if fault == Fault::Changed {
                agent.handle_changed(CoflowId(COFLOW), held.name, &place);
            }
        }
        if fault == Fault::Ended {
            agent.restore(JournalEntry::Ended(CoflowId(COFLOW)));
        }
        let relays = case
            .relays
            .then(|| Relays::new(relay_side::site(AGENTS_RELAY), vec![relay_side::address(AGENTS_RELAY)]));
        Side { agent, holds: holds.to_vec(), fault, relays, is_dead: false }
    }

    pub(crate) fn accept(&self) -> Served {
        Served { talk: Conversation::new(NOW), held: None, sent: 0, has_relay: false }
    }

    /// The receiver says something, or closes; what the agent does.
    pub(crate) fn hear(
        &mut self,
        served: &mut Served,
        said: &[u8],
        closes: bool,
        cuts: &mut Cuts,
    ) -> Vec<Act> {
        let (mut acts, mut left) = (Vec::new(), said);
        if closes {
            served.talk.handle_end();
        }
        loop {
            match served.talk.poll_input(NOW) {
                Input::Nothing if left.is_empty() => return acts,
                Input::Nothing => {
                    let count = cuts.next(left.len().min(512));
                    served.talk.handle_input(&left[..count]);
                    left = &left[count..];
                    continue;
                }
                Input::Request(request, path) => match self.agent.handle_request(NOW, &request) {
                    Ok(opened) => {
                        served.talk.open(Opening { opened, request, path });
                        self.serve(served, &mut acts);
                    }
                    Err(status) => served.talk.refuse(status),
                },
                Input::Gather(request, _) => {
                    let status = self.agent.store_of(&request).err().unwrap_or(Status::NoSuchBlock);
                    served.talk.refuse(status);
                }
                Input::Acknowledged => {
                    served.held = None;
                    acts.extend(std::mem::take(&mut served.has_relay).then_some(Act::HangsUp));
                }
                Input::Doubted(_) | Input::Ended => {
                    acts.push(Act::Closes);
                    return acts;
                }
            }
            self.write(served, &mut acts, cuts);
            if acts.last() == Some(&Act::Closes) {
                return acts;
            }
        }
    }

    fn serve(&mut self, served: &mut Served, acts: &mut Vec<Act>) {
        let flow = served.talk.flow().unwrap();
        let Opening { opened, request, path } = served.talk.take_opening(flow).unwrap();
        let held = self.holds.iter().find(|held| held.name == request.block).unwrap().clone();
        let chosen = path.and_then(|path| {
            let (address, open) = self.relays.as_mut()?.choose(NOW, &path)?;
            acts.push(Act::Dials(address));
            Some((FlowKey::of(&request, &path), open))
        });
        served.has_relay = chosen.is_some();
        let ranges = vec![Range { offset: opened.offset, size: held.size }];
        served.talk.serve(NOW, flow, ranges, (held.size, held.identity), chosen);
        served.talk.handle_connected();
        (served.held, served.sent) = (Some(held), 0);
    }

    fn write(&mut self, served: &mut Served, acts: &mut Vec<Act>, cuts: &mut Cuts) {
        let held = served.held.clone();
        loop {
            let most = match self.fault {
                Fault::Dies(after) => after - served.sent,
                _ => u64::MAX,
            };
            if most == 0 {
                self.is_dead = true;
                return acts.push(Act::Closes);
            }
            match (served.talk.poll_write(most), &held) {
                (Write::Bytes { to, bytes, .. }, _) => {
                    let count = cuts.next(bytes.len());
                    say(acts, to, &bytes[..count]);
                    served.talk.handle_written(to, count);
                }
                (Write::Frame { offset, .. }, Some(held)) => {
                    let sound = checksum(&bytes(held.seed, offset, frame_length(held.size, offset)));
                    let spoiled = u32::from(self.fault == Fault::Spoils);
                    served.talk.handle_frame(sound ^ spoiled);
                }
                (Write::Payload { to, offset, count, .. }, Some(held)) => {
                    let count = cuts.next(count as usize) as u64;
                    say(acts, to, &bytes(held.seed, offset, count));
                    served.talk.handle_sent(NOW, count);
                    served.sent += count;
                }
                _ => return,
            }
        }
    }
}

fn say(acts: &mut Vec<Act>, to: Outlet, said: &[u8]) {
    match acts.last_mut() {
        Some(Act::Says(outlet, before)) if *outlet == to => before.extend_from_slice(said),
        _ => acts.push(Act::Says(to, said.to_vec())),
    }
}
