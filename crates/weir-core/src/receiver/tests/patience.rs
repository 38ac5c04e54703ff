//! Time: limits, silence, pauses.

use super::peers::{FRAME, Holder, content, frames};
use super::scene::{BEGIN, LIMIT, Scene, config, holder};
use crate::receiver::{FIRST_RETRY, LONGEST_RETRY, Link, Located, Output, ReceiverConfig, ReceiverError};
use weir_model::{Span, Time};

/// Sends a frame and a bit, and then nothing.
fn silent(is_alive: bool) -> Holder {
    Holder {
        sends: 32 + 8 + FRAME + 100,
        breaks: u32::MAX,
        falls_silent: true,
        is_alive,
        ..Holder::of(content(3), 1)
    }
}

fn after(millis: u64) -> Time {
    BEGIN + Span::from_millis(millis)
}

fn time_limit(end: Result<(), ReceiverError>) -> String {
    match end {
        Err(ReceiverError::TimeLimit(last)) => last,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_time_limit_ends_a_get_and_says_whom_it_asked_and_how_far_it_came() {
    let closed = Holder { reachable: Some(false), ..Holder::of(content(3), 1) };
    let mut scene = Scene::with(vec![closed, silent(true)]);
    let said = time_limit(scene.run());
    let (first, second) = (holder(0), holder(1));
    assert_eq!(
        said,
        format!("{first}: refused; {second} accepted the request and sent 262144 of 525288 bytes so far")
    );
    assert_eq!(scene.now, BEGIN + LIMIT);
}

#[test]
fn without_anybody_to_ask_the_time_limit_says_so() {
    let mut scene = Scene::of(config(0), Vec::new());
    scene.located = Vec::new();
    // The coordinator does not answer within 5 s, which it was to wait, and 12 s more.
    let said = time_limit(scene.run());
    assert_eq!(said, "the coordinator does not answer");
    let asked = scene.log.iter().filter(|(_, output)| matches!(output, Output::Locate { .. }));
    let asked: Vec<_> = asked.map(|(at, _)| *at).collect();
    assert_eq!(asked, [after(0), after(17_005), after(34_015), after(51_035)]);
    let short = ReceiverConfig { end: after(100), ..config(0) };
    assert_eq!(
        time_limit(Scene::of(short, Vec::new()).run()),
        "neither a coordinator nor a holder has answered yet"
    );
}

/// Bytes that are there when the caller looks again are handed out, though the limit has passed.
#[test]
fn a_time_limit_that_passed_gives_nothing_up() {
    let mut scene = Scene::with(vec![silent(true)]);
    assert_eq!(scene.next(), None);
    time_limit(scene.next().unwrap());
    time_limit(scene.next().unwrap());
    assert!(!scene.log.iter().any(|(_, output)| *output == Output::Close { link: Link::Holder }));
}

#[test]
fn a_silent_holder_is_left_if_it_does_not_answer_on_another_connection_either() {
    let mut scene = Scene::with(vec![silent(false), Holder::of(content(3), 1)]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    // Silent for 4 s, then without an answer for 2 s; asked again after 5 ms, and others first.
    assert_eq!(scene.connects(Link::Probe), [after(4_000)]);
    assert_eq!(scene.connects(Link::Holder), [after(0), after(6_005)]);
    assert_eq!((scene.holder(0).requests.len(), scene.holder(1).requests.len()), (1, 1));
}

/// Where a path loses packets, a new connection may take longer than the flow does to go on.
#[test]
fn a_byte_of_the_flow_shows_that_its_holder_is_there() {
    let mut scene = Scene::with(vec![silent(false), Holder::of(content(3), 1)]);
    assert_eq!(scene.next(), None);
    scene.receiver.handle_wanted(scene.now);
    scene.wait(after(5_999));
    assert_eq!(scene.connects(Link::Probe), [after(4_000)]);
    let unsent = frames(&content(3), 0).split_off(8 + FRAME + 100);
    let (first, rest) = unsent.split_at(1);
    scene.send(Link::Holder, first);
    // It is no more asked by then, and asked after twice as long a silence.
    scene.wait(after(5_999 + 7_999));
    assert!(!scene.links.contains_key(&Link::Probe));
    scene.send(Link::Holder, rest);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.connects(Link::Holder), [after(0)]);
}

/// What it sends before it closes is not lost, and nobody waits for an answer that cannot come.
#[test]
fn a_holder_that_closes_while_it_is_asked_whether_it_is_there_is_left_at_once() {
    let mut scene = Scene::with(vec![silent(false), Holder::of(content(3), 1)]);
    assert_eq!(scene.next(), None);
    scene.receiver.handle_wanted(scene.now);
    scene.wait(after(4_500));
    scene.close(Link::Holder);
    assert_eq!(scene.run(), Ok(()));
    assert_eq!(scene.connects(Link::Holder)[..2], [after(0), after(4_505)]);
}

#[test]
fn a_holder_whose_flow_is_paused_is_waited_for_and_asked_less_and_less_often() {
    let end = after(250_000);
    let mut scene = Scene::of(ReceiverConfig { end, ..config(1) }, vec![silent(true)]);
    time_limit(scene.run());
    // After 4 s, 8, 16, 32, 60 and 60 of silence.
    let probes = [4, 12, 28, 60, 120, 180, 240].map(|secs| after(secs * 1000));
    assert_eq!(scene.connects(Link::Probe), probes);
    assert_eq!(scene.holder(0).requests.len(), 1, "its flow goes on");
}

#[test]
fn a_holder_that_cannot_be_reached_to_ask_it_is_left_at_once() {
    let mut scene = Scene::with(vec![silent(true), Holder::of(content(3), 1)]);
    assert_eq!(scene.next(), None);
    scene.holders.get_mut(&holder(0)).unwrap().reachable = Some(false);
    assert_eq!(scene.run(), Ok(()));
    assert_eq!(scene.connects(Link::Holder), [after(0), after(4_005)]);
}

#[test]
fn time_in_which_the_caller_wanted_nothing_is_no_silence() {
    let end = after(3_600_000);
    let mut scene = Scene::of(ReceiverConfig { end, ..config(1) }, vec![silent(true)]);
    assert_eq!(scene.next(), None);
    assert_eq!(scene.receiver.next_timeout(), None);
    assert!(scene.receiver.room(Link::Holder).is_empty());
    scene.now = after(1_000_000);
    scene.receiver.handle_wanted(scene.now);
    assert_eq!(scene.receiver.next_timeout(), Some(after(1_004_000)));
    // A caller that looks again every second waits with patience.
    scene.now = after(1_001_000);
    scene.receiver.handle_wanted(scene.now);
    assert_eq!(scene.receiver.next_timeout(), Some(after(1_005_000)));
}

#[test]
fn a_holder_is_silent_since_its_last_byte() {
    let mut scene = Scene::with(vec![silent(true)]);
    assert_eq!(scene.next(), None);
    scene.receiver.handle_wanted(scene.now);
    scene.wait(after(3_000));
    scene.send(Link::Holder, &[0; 10]);
    scene.wait(after(6_999));
    assert_eq!(scene.connects(Link::Probe), []);
    scene.wait(after(7_000));
    assert_eq!(scene.connects(Link::Probe), [after(7_000)]);
}

#[test]
fn the_first_byte_is_one_of_a_payload() {
    for (sends, first) in [(32 + 8, None), (32 + 8 + 1, Some(BEGIN))] {
        let mut scene = Scene::with(vec![Holder { sends, ..silent(true) }]);
        time_limit(scene.run());
        assert_eq!(scene.receiver.first_byte(), first);
    }
}

#[test]
fn holders_are_asked_again_after_pauses_that_double_up_to_a_quarter_of_a_second() {
    let mut scene = Scene::with(vec![Holder { status: Some(1), ..Holder::of(content(3), 1) }]);
    let said = time_limit(scene.run());
    assert_eq!(said, format!("no holder sends it; {}: it does not hold the block", holder(0)));
    let connects = scene.connects(Link::Holder);
    let pauses: Vec<_> = connects.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    let doubled = [5, 10, 20, 40, 80, 160].map(Span::from_millis);
    assert_eq!(pauses[..6], doubled);
    assert_eq!((pauses[0], FIRST_RETRY), (FIRST_RETRY, Span::from_millis(5)));
    assert!(pauses[6..].iter().all(|&pause| pause == LONGEST_RETRY));
    // 60 s less 315 ms, by 250 ms: 238 more, after the first seven.
    assert_eq!(connects.len(), 7 + 238);
}

/// A caller that asks again and again for the next frame has no holder asked more often than that.
#[test]
fn a_caller_that_looks_again_cuts_no_pause_short() {
    let refusing = || vec![Holder { status: Some(1), ..Holder::of(content(3), 1) }];
    let mut patient = Scene::with(refusing());
    time_limit(patient.run());
    let mut hasty = Scene { calls: vec![2], ..Scene::with(refusing()) };
    time_limit(hasty.run());
    assert_eq!(hasty.connects(Link::Holder), patient.connects(Link::Holder));
}

/// After a frame the first pause is short again.
#[test]
fn a_frame_makes_pauses_short_again() {
    // Breaks in the first frame three times, then in the second one.
    let breaking = Holder { sends: 100, breaks: 3, ..Holder::of(content(3), 1) };
    let mut scene = Scene::with(vec![breaking]);
    assert_eq!(scene.next(), None);
    assert_eq!(scene.connects(Link::Holder), [0, 5, 15, 35].map(after));
    let again = scene.holders.get_mut(&holder(0)).unwrap();
    (again.breaks, again.sends) = (1, 100);
    assert_eq!(scene.run(), Ok(()));
}

#[test]
fn a_holder_that_does_not_connect_or_answer_is_passed_over() {
    let hangs = Holder { reachable: None, ..Holder::of(content(3), 1) };
    let mute = Holder { sends: 0, breaks: u32::MAX, falls_silent: true, ..Holder::of(content(3), 1) };
    let mut scene = Scene::with(vec![hangs, mute, Holder::of(content(3), 1)]);
    assert_eq!(scene.run(), Ok(()));
    // Connecting may take 2 s, answering 12 s.
    assert_eq!(scene.connects(Link::Holder), [after(0), after(2_000), after(14_000)]);
    let avoided = scene.receiver.take_avoided();
    assert_eq!(avoided.into_iter().collect::<Vec<_>>(), [(holder(1), after(24_000))]);
}

#[test]
fn holders_that_an_earlier_get_avoided_are_asked_last_for_a_while() {
    let avoided = [(holder(0), after(10_000)), (holder(1), after(0))].into();
    let holders = (0..3).map(|_| Holder { status: Some(1), ..Holder::of(content(3), 1) }).collect();
    let mut scene = Scene::of(ReceiverConfig { avoided, end: after(1), ..config(3) }, holders);
    time_limit(scene.run());
    let asked = scene.log.iter().filter_map(|(_, output)| match output {
        Output::Connect { address, .. } => Some(*address),
        _ => None,
    });
    assert_eq!(asked.take(3).collect::<Vec<_>>(), [holder(1), holder(2), holder(0)]);
}

#[test]
fn a_put_is_waited_for_as_long_as_there_is_time() {
    let mut scene = Scene::of(ReceiverConfig { end: after(7_000), ..config(0) }, Vec::new());
    scene.located = vec![Located::Unavailable("coordinator: away".to_owned()), Located::Holders(Vec::new())];
    assert_eq!(time_limit(scene.run()), "no host has put it yet");
    let waits = scene.log.iter().filter_map(|(_, output)| match output {
        Output::Locate { wait } => Some(wait.nanos() / 1_000_000),
        _ => None,
    });
    // After 5, 10, 20, 40, 80, 160 and then 250 ms: the fifteenth at 2,315 ms, the last at 6,815 ms.
    let waits: Vec<_> = waits.collect();
    assert_eq!((waits[0], waits[14], waits.last()), (5_000, 4_685, Some(&185)));
}
