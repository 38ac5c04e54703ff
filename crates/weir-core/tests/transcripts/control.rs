//! Transcripts of the control plane: what drivers, receivers and tasks ask, and what coordinator and agents say.

use crate::agent_side::AgentSide;
use crate::coordinator_side::CoordinatorSide;
use crate::play::{Case, Play, Side};
use crate::text::{Event, Who};
use weir_proto::v1;

pub(crate) fn all() -> Vec<Case> {
    vec![
        Case {
            name: "registered",
            about: "A driver registers a coflow, twice with one key; renews it, seals it and unregisters it. A weight that is none, and a\n\
                    coflow that has ended.",
            sides: || sides("varys", Vec::new()),
            script: registered,
        },
        Case {
            name: "located",
            about: "A receiver asks where blocks are: put later, put already, not put in time, of a coflow that ends, of one that was never\n\
                    registered. A block is put twice, and other bytes under its name are refused.",
            sides: || sides("varys", vec![AgentSide::new(0)]),
            script: located,
        },
        Case {
            name: "session",
            about: "The session of an agent that serves one flow: terms, Hello, plans, keepalives and clocks, progress. The driver unregisters\n\
                    the coflow before the receiver's acknowledgement is there.",
            sides: || sides("varys", vec![AgentSide::new(0)]),
            script: session,
        },
        Case {
            name: "restart",
            about: "A coordinator starts anew while a flow moves and another one is done: the agent tells what it knows.",
            sides: || sides("varys", vec![AgentSide::new(0)]),
            script: restart,
        },
        Case {
            name: "expected",
            about: "Two coflows with flows from one host: the smaller goes first. Then the driver says that more of it is to come, and the other\n\
                    one goes first; that nothing is, by a host that nobody knows; and the same of a coflow that was never registered.",
            sides: || sides("varys", vec![AgentSide::new(0)]),
            script: expected,
        },
        Case {
            name: "refused",
            about: "Two coflows with deadlines from one host, of which the first is let in and the second is refused and stops then.",
            sides: || sides("varys-deadline", vec![AgentSide::new(0)]),
            script: refused,
        },
        Case {
            name: "taken",
            about: "agent-1 was given the host of agent-0: it is refused, and agent-0 hears of it.",
            sides: || sides("varys", vec![AgentSide::new(0), AgentSide::with(1, 0)]),
            script: taken,
        },
        Case {
            name: "queues",
            about: "Where senders decide: the agent tells what it sent of each coflow, and hears queues.",
            sides: || sides("dclas:first=1MB", vec![AgentSide::new(0)]),
            script: queues,
        },
        Case {
            name: "classes",
            about: "Coflows by order alone, in two classes: a large coflow is in the first one until a smaller one comes that it meets, and again once\n\
                    that is over. A flow of a coflow that is small keeps the class that its agent gives it. One with a deadline goes first, and no faster\n\
                    than that takes.",
            sides: || sides("by-class:classes=2", vec![AgentSide::new(0)]),
            script: classes,
        },
    ]
}

fn sides(policy: &'static str, agents: Vec<AgentSide>) -> Vec<Box<dyn Side>> {
    let agents = agents.into_iter().map(|agent| -> Box<dyn Side> { Box::new(agent) });
    let coordinator: Box<dyn Side> = Box::new(CoordinatorSide::new(policy));
    std::iter::once(coordinator).chain(agents).collect()
}

const AGENT: Who = Who::AgentOf(0);

pub(crate) fn register(play: &mut Play, options: v1::CoflowOptions, request_key: u64) -> u64 {
    let request = v1::RegisterRequest { options: Some(options), request_key };
    play.call(Who::Driver, Who::Coordinator, "Register", &request);
    play.heard::<v1::RegisterReply>().coflow
}

pub(crate) fn flows(flows: u64) -> v1::CoflowOptions {
    v1::CoflowOptions { flows, ..v1::CoflowOptions::default() }
}

pub(crate) fn unregister(play: &mut Play, coflow: u64) {
    play.call(Who::Driver, Who::Coordinator, "Unregister", &v1::UnregisterRequest { coflow });
}

fn seal(play: &mut Play, coflow: u64) {
    play.call(Who::Driver, Who::Coordinator, "Seal", &v1::SealRequest { coflow });
}

fn wanted(coflow: u64, block: &str, wait_ms: u64) -> v1::LocateRequest {
    v1::LocateRequest { coflow, block: block.to_owned(), wait_ms, host: 1 }
}

fn locate(play: &mut Play, coflow: u64, block: &str, wait_ms: u64) {
    play.call(Who::Receiver, Who::Coordinator, "Locate", &wanted(coflow, block, wait_ms));
}

/// A task puts a block of so many bytes, which stand for themselves by one byte 16 times.
fn put(play: &mut Play, coflow: u64, block: &str, size: u64, identity: u8) {
    let request = v1::PutRequest {
        coflow,
        block: block.to_owned(),
        path: format!("/data/{block}{identity:x}"),
        size,
        identity: vec![identity; 16],
        ..v1::PutRequest::default()
    };
    play.call(Who::Task, AGENT, "Put", &request);
    // What the agent says of it goes with what follows within a millisecond.
    play.wait(1);
}

fn ask(play: &mut Play, coflow: u64, block: &str, host: u32) {
    play.happens(AGENT, Event::Asked { host, coflow, block: block.to_owned() });
    play.wait(5);
}

fn registered(play: &mut Play) {
    let options = v1::CoflowOptions { name: "sort".to_owned(), ..flows(2) };
    let coflow = register(play, options.clone(), 5);
    register(play, options, 5);
    register(play, v1::CoflowOptions { weight: -1.0, ..flows(2) }, 6);
    let coflows = vec![coflow, 77];
    play.call(Who::Driver, Who::Coordinator, "Renew", &v1::RenewRequest { coflows });
    seal(play, coflow);
    unregister(play, coflow);
    play.call(Who::Driver, Who::Coordinator, "Renew", &v1::RenewRequest { coflows: vec![coflow] });
    seal(play, coflow);
}

fn located(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    let coflow = register(play, flows(0), 5);
    play.wait(5);
    locate(play, coflow, "b", 1_000);
    put(play, coflow, "b", 10, 0x11);
    let requests = [("c", 1_000), ("b", 1_000), ("d", 50)].map(|(block, wait)| wanted(coflow, block, wait));
    let request = v1::LocateAllRequest { requests: requests.to_vec() };
    play.call(Who::Receiver, Who::Coordinator, "LocateAll", &request);
    play.wait(60);
    put(play, coflow, "c", 20, 0x12);
    put(play, coflow, "b", 10, 0x11);
    put(play, coflow, "b", 10, 0x13);
    locate(play, coflow, "e", 1_000);
    unregister(play, coflow);
    locate(play, 77, "b", 1_000);
}

fn session(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    play.wait(5);
    let coflow = register(play, flows(1), 5);
    play.wait(5);
    put(play, coflow, "b", 1_000_000, 0x11);
    ask(play, coflow, "b", 1);
    play.happens(AGENT, Event::Sent { flow: 1, bytes: 500_000 });
    play.wait(500);
    play.happens(AGENT, Event::Sent { flow: 1, bytes: 500_000 });
    play.wait(5);
    unregister(play, coflow);
    play.wait(10);
    play.happens(AGENT, Event::Acknowledged { flow: 1 });
    play.wait(5);
}

fn restart(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    play.wait(5);
    let coflow = register(play, flows(3), 5);
    play.wait(5);
    put(play, coflow, "a", 10, 0x11);
    put(play, coflow, "b", 1_000_000, 0x12);
    ask(play, coflow, "a", 1);
    play.happens(AGENT, Event::Sent { flow: 1, bytes: 10 });
    play.happens(AGENT, Event::Acknowledged { flow: 1 });
    ask(play, coflow, "b", 2);
    play.happens(AGENT, Event::Sent { flow: 2, bytes: 400_000 });
    play.wait(20);
    play.happens(Who::Coordinator, Event::StartsAnew);
    seal(play, coflow);
    play.wait(100);
    play.happens(AGENT, Event::Attaches);
    play.wait(5);
    seal(play, coflow);
    play.wait(5);
}

fn expect(play: &mut Play, coflow: u64, host: u32, bytes: u64) {
    let from = v1::ExpectedFrom { host, bytes, ..v1::ExpectedFrom::default() };
    let request = v1::ExpectRequest { coflow, sources: vec![from] };
    play.call(Who::Driver, Who::Coordinator, "Expect", &request);
    play.wait(5);
}

fn expected(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    play.wait(5);
    let (first, second) = (register(play, flows(0), 5), register(play, flows(0), 6));
    play.wait(5);
    put(play, first, "a", 1_000_000, 0x11);
    put(play, second, "b", 2_000_000, 0x12);
    ask(play, first, "a", 1);
    ask(play, second, "b", 2);
    expect(play, first, 0, 5_000_000);
    expect(play, first, 9, 5_000_000);
    expect(play, 77, 0, 1);
}

fn refused(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    play.wait(5);
    let due = v1::CoflowOptions { deadline_ms: 1_000, ..flows(1) };
    let first = register(play, due.clone(), 5);
    let second = register(play, v1::CoflowOptions { stop_if_refused: true, ..due }, 6);
    play.wait(5);
    put(play, first, "a", 800_000, 0x11);
    put(play, second, "b", 400_000, 0x12);
    for coflow in [first, second] {
        let request = v1::AdmissionRequest { coflow, wait_ms: 60_000 };
        play.call(Who::Driver, Who::Coordinator, "AwaitAdmission", &request);
    }
    ask(play, first, "a", 1);
    ask(play, second, "b", 2);
    locate(play, second, "b", 1_000);
    ask(play, second, "b", 2);
}

fn taken(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    play.wait(5);
    play.happens(Who::AgentOf(1), Event::Attaches);
}

fn queues(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    play.wait(5);
    let (first, second) = (register(play, flows(1), 5), register(play, flows(1), 6));
    play.wait(5);
    put(play, first, "a", 5_000_000, 0x11);
    put(play, second, "b", 5_000_000, 0x12);
    ask(play, first, "a", 1);
    ask(play, second, "b", 1);
    play.happens(AGENT, Event::Sent { flow: 1, bytes: 2_000_000 });
    play.wait(40);
}

fn classes(play: &mut Play) {
    play.happens(AGENT, Event::Attaches);
    play.wait(5);
    let [large, smaller, small] = [5, 6, 7].map(|key| register(play, flows(1), key));
    play.wait(5);
    put(play, large, "a", 5_000_000, 0x11);
    put(play, smaller, "b", 1_000_000, 0x12);
    put(play, small, "c", 10_000, 0x13);
    ask(play, large, "a", 1);
    ask(play, smaller, "b", 1);
    ask(play, small, "c", 1);
    play.happens(AGENT, Event::Sent { flow: 2, bytes: 1_000_000 });
    play.happens(AGENT, Event::Acknowledged { flow: 2 });
    play.wait(5);
    unregister(play, smaller);
    play.wait(10);
    let due = register(play, v1::CoflowOptions { deadline_ms: 20_000, ..flows(1) }, 8);
    play.wait(5);
    put(play, due, "d", 2_000_000, 0x14);
    ask(play, due, "d", 1);
}
