//! Transcripts of gathers: what executors and receivers say, and what the agent at the executors' host does.

use crate::agent_side::AgentSide;
use crate::control::{flows, register, unregister};
use crate::coordinator_side::CoordinatorSide;
use crate::gatherer::{self, Gatherer};
use crate::play::{Case, Play, Side};
use crate::relay_side::{address, site};
use crate::relays::relays;
use crate::text::{Event, Who};
use weir_proto::data::{FRAME_BYTES, Identity};
use weir_proto::gather::{GatherRange, GatherRequest};
use weir_proto::relay::RelayPath;
use weir_proto::v1;

const AGENT: Who = Who::AgentOf(0);
const SHUFFLE: u32 = 3;
const TOKEN: u8 = 0x55;

pub(crate) fn all() -> Vec<Case> {
    vec![
        Case {
            name: "gathered",
            about: "An executor attaches its store, twice. A receiver gathers five ranges of three map tasks, of which two run on and one is\n\
                    empty: one flow of two frames, of which the agent tells. It gathers once more on the same connection. The coflow ends\n\
                    in a third gather, and the next is refused.",
            sides: || {
                let coordinator: Box<dyn Side> = Box::new(CoordinatorSide::new("varys"));
                std::iter::once(coordinator).chain(sides()).collect()
            },
            script: gathered,
        },
        Case {
            name: "broken",
            about: "The agent starts anew in the second frame of a gather: the receiver has two whole ranges. The agent knows the store from\n\
                    its journal, and the gather is resumed at the frame. Once a file is another one it is not: all is gathered from the\n\
                    start. Then a second frame does not have its checksum.",
            sides,
            script: broken,
        },
        Case {
            name: "detoured",
            about: "A gather whose receiver is at another site, and offers a way: the agent sends by its relay, and the receiver has all from the\n\
                    relay of its own. In a second one the agent starts anew, and the receiver sees its connection close.",
            sides: || {
                let agent: Box<dyn Side> = Box::new(AgentSide::with_relay(0, 0));
                let gatherer: Box<dyn Side> = Box::<Gatherer>::default();
                [agent, gatherer].into_iter().chain(relays(2, None)).collect()
            },
            script: detoured,
        },
        Case {
            name: "forbidden",
            about: "What an agent refuses: stores that cannot be, one of another token, gathers of no store, of another token, of an executor or\n\
                    a map task that there is not, of reducers that the index does not have, and one of no reducers. The store is detached.",
            sides,
            script: forbidden,
        },
    ]
}

fn sides() -> Vec<Box<dyn Side>> {
    vec![Box::new(AgentSide::new(0)), Box::<Gatherer>::default()]
}

/// An executor writes the output of a map task: so many bytes for each reducer.
fn write(play: &mut Play, map: u64, seed: u8, lengths: &[u64]) {
    let lengths = lengths.to_vec();
    play.happens(Who::Executor, Event::Writes { shuffle: SHUFFLE, map, seed, lengths });
}

fn store() -> v1::AttachStoreRequest {
    v1::AttachStoreRequest {
        application: "app-1".to_owned(),
        executor: "0".to_owned(),
        token: vec![TOKEN; 16],
        directories: vec!["/data/blockmgr-1".to_owned()],
        subdirectories: 64,
    }
}

fn attach(play: &mut Play, store: &v1::AttachStoreRequest) {
    play.call(Who::Executor, AGENT, "AttachStore", store);
}

fn detach(play: &mut Play, token: u8) {
    let v1::AttachStoreRequest { application, executor, .. } = store();
    let request = v1::DetachStoreRequest { application, executor, token: vec![token; 16] };
    play.call(Who::Executor, AGENT, "DetachStore", &request);
}

/// A gather of map tasks, first reducers, and those after the last.
fn of(coflow: u64, ranges: &[(u64, u32, u32)]) -> GatherRequest {
    GatherRequest {
        coflow,
        offset: 0,
        destination: 1,
        group: 4,
        identity: Identity::UNKNOWN,
        token: [TOKEN; 16],
        shuffle: SHUFFLE,
        application: "app-1".to_owned(),
        executor: "0".to_owned(),
        ranges: ranges.iter().map(|&(map, first, end)| GatherRange { map, first, end }).collect(),
    }
}

fn gather(play: &mut Play, request: &GatherRequest) {
    play.act(gatherer::line(request, None));
}

fn sends(play: &mut Play, flow: u64, bytes: u64) {
    play.happens(AGENT, Event::Sent { flow, bytes });
}

fn gathered(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    let coflow = register(play, flows(0), 5);
    play.wait(5);
    write(play, 0, 7, &[300, 0, 262_144, 40]);
    write(play, 1, 8, &[0, 500, 0, 60]);
    write(play, 1 << 40, 7, &[0, 0, 0, 0]);
    attach(play, &store());
    attach(play, &store());
    // A table of 5 x 8 bytes, then 300, 262,144, 500, 0 and 40: a frame, and one of 880.
    gather(play, &of(coflow, &[(0, 0, 1), (0, 1, 3), (1, 0, 2), (1 << 40, 2, 4), (0, 3, 4)]));
    play.wait(5);
    sends(play, 1, FRAME_BYTES);
    play.wait(5);
    sends(play, 1, 880);
    play.wait(5);
    gather(play, &of(coflow, &[(1, 3, 4)]));
    sends(play, 2, 8 + 60);
    play.wait(5);
    gather(play, &of(coflow, &[(0, 0, 4)]));
    sends(play, 3, 100);
    unregister(play, coflow);
    play.wait(10);
    gather(play, &of(coflow, &[(0, 0, 4)]));
}

fn broken(play: &mut Play) {
    write(play, 0, 7, &[100, 50, 300_000]);
    attach(play, &store());
    // A table of 3 x 8 bytes, then 100, 50 and 300,000: the second frame is in the last range, and has 38,030.
    let whole = of(7, &[(0, 0, 1), (0, 1, 2), (0, 2, 3)]);
    gather(play, &whole);
    sends(play, 1, FRAME_BYTES + 2);
    play.happens(AGENT, Event::StartsAnew);
    let resumed = GatherRequest { offset: FRAME_BYTES, identity: Identity([0x11; 16]), ..whole.clone() };
    gather(play, &resumed);
    sends(play, 1, 38_030);
    write(play, 0, 8, &[100, 50, 300_000]);
    gather(play, &resumed);
    gather(play, &whole);
    sends(play, 2, FRAME_BYTES + 38_030);
    gather(play, &whole);
    sends(play, 3, FRAME_BYTES);
    play.happens(AGENT, Event::Spoils);
    sends(play, 3, 38_030);
}

fn detoured(play: &mut Play) {
    write(play, 0, 7, &[100, 50, 300_000]);
    attach(play, &store());
    let whole = of(7, &[(0, 0, 1), (0, 1, 2), (0, 2, 3)]);
    let way = |mapper| RelayPath { site: site(1), mapper, relay: address(1) };
    play.act(gatherer::line(&whole, Some(&way(77))));
    sends(play, 1, FRAME_BYTES);
    play.wait(5);
    sends(play, 1, 38_030);
    play.wait(5);
    play.act(gatherer::line(&whole, Some(&way(78))));
    sends(play, 2, FRAME_BYTES);
    play.wait(5);
    play.happens(AGENT, Event::StartsAnew);
    play.wait(5);
}

fn forbidden(play: &mut Play) {
    write(play, 0, 7, &[10, 20]);
    let one = of(7, &[(0, 0, 1)]);
    gather(play, &one);
    attach(play, &v1::AttachStoreRequest { token: vec![TOKEN; 15], ..store() });
    attach(play, &v1::AttachStoreRequest { executor: String::new(), ..store() });
    attach(play, &v1::AttachStoreRequest { directories: Vec::new(), ..store() });
    attach(play, &v1::AttachStoreRequest { subdirectories: 0, ..store() });
    attach(play, &store());
    attach(play, &v1::AttachStoreRequest { token: vec![TOKEN + 1; 16], ..store() });
    gather(play, &GatherRequest { token: [TOKEN + 1; 16], ..one.clone() });
    gather(play, &GatherRequest { executor: "1".to_owned(), ..one.clone() });
    gather(play, &GatherRequest { shuffle: SHUFFLE + 1, ..one.clone() });
    gather(play, &of(7, &[(0, 0, 1), (1, 0, 1)]));
    gather(play, &of(7, &[(0, 0, 1), (0, 1, 3)]));
    let stranger = play.connect(Who::Stranger, crate::cases::agent(0));
    play.say(stranger, Who::Stranger, &of(7, &[(0, 1, 1)]).encode());
    detach(play, TOKEN + 1);
    gather(play, &one);
    sends(play, 1, 8 + 10);
    detach(play, TOKEN);
    detach(play, TOKEN);
    gather(play, &one);
}
