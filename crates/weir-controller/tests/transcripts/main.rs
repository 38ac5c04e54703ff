//! Transcripts of relays and their controller, in the form of those of `weir-core`, whose relays and files these are.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod controller;
#[path = "../../../weir-core/tests/transcripts/files.rs"]
mod files;
#[path = "../../../weir-core/tests/transcripts/messages.rs"]
mod messages;
#[expect(dead_code, reason = "calls are made by machines here")]
#[path = "../../../weir-core/tests/transcripts/play.rs"]
mod play;
#[path = "../../../weir-core/tests/transcripts/relay_side.rs"]
mod relay_side;
#[expect(dead_code, reason = "its cases are those of weir-core")]
#[path = "../../../weir-core/tests/transcripts/relays.rs"]
mod relays;
#[path = "../../../weir-core/tests/transcripts/text.rs"]
mod text;

use controller::ControllerSide;
use play::{Case, Play, Side};
use text::{Event, Line, Who};
use weir_proto::v1;

/// Named in weir-core/tests/transcripts/main.rs, too.
fn ruled() -> Case {
    Case {
        name: "ruled",
        about: "Relays of two sites and their controller: a flow of coflow 7 enters at relay-a, moves and ends; its rules come and go. Nothing\n\
                happens for a while. A relay of another version is refused.",
        sides,
        script,
    }
}

fn sides() -> Vec<Box<dyn Side>> {
    let controller: Box<dyn Side> = Box::new(ControllerSide::new());
    std::iter::once(controller).chain(relays::relays(2, None)).collect()
}

fn script(play: &mut Play) {
    for relay in 0..2 {
        play.happens(Who::Relay(relay), Event::Attaches);
        play.wait(15);
    }
    let block_bytes = relays::FRAME + 100;
    let key = relays::key(5);
    let agent = relays::begin(play, key, block_bytes);
    play.wait(15);
    relays::subscribe(play, key);
    for number in 0..2 {
        play.say(agent, Who::Agent, &relays::frame(key, block_bytes, number));
    }
    play.wait(100);
    play.act(Line::Closes(agent, Who::Agent));
    play.wait(300);
    let hello = v1::RelayHello { version: 2, relay: "relay-d".to_owned(), ..v1::RelayHello::default() };
    let message = v1::FromRelay { kind: Some(v1::from_relay::Kind::Hello(hello)) };
    play.call(Who::Stranger, Who::Controller, "Attach", &message);
}

#[test]
fn the_machines_say_what_is_stored() {
    files::hold(ruled().name, &ruled().record());
}

#[test]
fn each_side_alone_says_its_part_of_what_is_stored() {
    let lines = files::lines(ruled().name);
    for seed in 0..20 {
        ruled().replay(&lines, &mut text::Cuts::new(seed));
    }
}
