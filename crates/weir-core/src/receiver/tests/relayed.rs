//! Frames that come by way of relays.

use super::peers::{FRAME, Holder, Relay, Then, content, identity};
use super::scene::{BEGIN, Scene, holder, relay};
use crate::receiver::{Link, Output};
use weir_model::{Span, Time};
use weir_proto::data::{FRAME_BYTES, Identity};
use weir_proto::relay::{FlowKey, Header, Kind, MAX_DATA_BYTES};

fn after(millis: u64) -> Time {
    BEGIN + Span::from_millis(millis)
}

/// A holder that sends by relays, and the relay of the receiver's site.
fn sites(by: Relay) -> Scene {
    let sends = Holder { relays: true, ..Holder::of(content(3), 1) };
    Scene { relay: Some(by), ..Scene::with(vec![sends]) }
}

fn relay_of(scene: &Scene) -> &Relay {
    scene.relay.as_ref().unwrap()
}

#[test]
fn a_block_comes_by_the_relay_and_is_acknowledged_to_its_holder() {
    for piece in [MAX_DATA_BYTES, 100_000, 7_777] {
        let mut scene = sites(Relay { piece, ..Relay::new() });
        assert_eq!(scene.run(), Ok(()));
        assert!(scene.got == content(3));
        assert_eq!((relay_of(&scene).greeted, relay_of(&scene).subscribed.len()), (1, 1));
        let (request, way) = &scene.holder(0).requests[0];
        let way = way.unwrap();
        assert_eq!((way.site, way.relay), (1, relay()));
        assert_eq!(relay_of(&scene).subscribed, [FlowKey::of(request, &way)]);
        assert_eq!(scene.holder(0).acknowledged, 1);
        // Both connections are left for the next get.
        assert_eq!(scene.pool.keys().copied().collect::<Vec<_>>(), [holder(0), relay()]);
    }
}

#[test]
fn a_flow_that_relays_give_up_midway_comes_straight_from_its_holder_from_there() {
    for then in [Then::Reset, Then::Close, Then::Skip] {
        let mut scene = sites(Relay { sends: 1, then, ..Relay::new() });
        assert_eq!(scene.run(), Ok(()), "{then:?}");
        assert!(scene.got == content(3), "{then:?}");
        let asked = [(0, Identity::UNKNOWN), (FRAME_BYTES, identity(1))];
        assert_eq!(scene.holder(0).asked(), asked, "{then:?}");
        let ways: Vec<_> = scene.holder(0).requests.iter().map(|(_, way)| way.is_some()).collect();
        assert_eq!(ways, [true, false], "{then:?}");
        assert!(scene.holder(0).doubted.is_empty(), "{then:?}");
        // At once, and not because nothing came.
        assert_eq!(scene.connects(Link::Holder), [after(0), after(5)], "{then:?}");
        assert_eq!(scene.connects(Link::Relay).len(), 1, "{then:?}: relays are done without to the end");
    }
}

/// After 4 s without a frame the holder is asked, which is there; the relay has 5 s more to say something.
#[test]
fn a_relay_that_says_nothing_is_done_without() {
    let mut scene = sites(Relay { sends: 1, then: Then::FallSilent, ..Relay::new() });
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.connects(Link::Probe), [after(4_000)]);
    assert_eq!(scene.connects(Link::Holder), [after(0), after(9_005)]);
}

#[test]
fn a_relay_that_says_that_the_flow_goes_on_is_waited_for() {
    let mut scene = sites(Relay { sends: 1, then: Then::FallSilent, ..Relay::new() });
    assert_eq!(scene.next(), None);
    scene.receiver.handle_wanted(scene.now);
    let alive = Header::about(relay_of(&scene).subscribed[0], Kind::Alive, 0).encode();
    for second in 1..=20 {
        scene.wait(after(second * 1_000));
        scene.send(Link::Relay, &alive);
    }
    // Its holder is asked all the same: after 4 s, and 8 s more.
    assert_eq!(scene.connects(Link::Probe), [after(4_000), after(12_000)]);
    assert_eq!(scene.connects(Link::Holder), [after(0)]);
}

/// That a relay is there shows nothing of the holder behind it.
#[test]
fn a_holder_that_does_not_answer_is_left_though_its_relay_says_that_the_flow_goes_on() {
    let mut scene = sites(Relay { sends: 1, then: Then::FallSilent, ..Relay::new() });
    assert_eq!(scene.next(), None);
    scene.holders.get_mut(&holder(0)).unwrap().is_alive = false;
    scene.receiver.handle_wanted(scene.now);
    let alive = Header::about(relay_of(&scene).subscribed[0], Kind::Alive, 0).encode();
    for second in 1..=5 {
        scene.wait(after(second * 1_000));
        scene.send(Link::Relay, &alive);
    }
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.connects(Link::Probe), [after(4_000)]);
    // 2 s after the caller looked again.
    assert_eq!(scene.connects(Link::Holder), [after(0), after(7_005)]);
}

#[test]
fn a_holder_that_gives_a_relayed_flow_up_is_asked_again() {
    let mut scene = sites(Relay { sends: 1, then: Then::FallSilent, ..Relay::new() });
    assert_eq!(scene.next(), None);
    scene.close(Link::Holder);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.connects(Link::Holder), [after(0), after(5)]);
}

#[test]
fn a_holder_that_sends_what_was_to_come_by_relays_is_not_believed() {
    let mut scene = sites(Relay { sends: 1, then: Then::FallSilent, ..Relay::new() });
    assert_eq!(scene.next(), None);
    scene.send(Link::Holder, &content(3)[..FRAME]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.connects(Link::Holder), [after(0), after(5)]);
}

#[test]
fn without_a_relay_that_can_be_reached_no_way_is_offered() {
    for (reachable, later) in [(Some(false), 0), (None, 1_000)] {
        let mut scene = sites(Relay { reachable, ..Relay::new() });
        assert_eq!(scene.run(), Ok(()));
        assert!(scene.got == content(3));
        assert_eq!(scene.holder(0).requests[0].1, None);
        // Connecting to a relay may take a second.
        assert_eq!(scene.connects(Link::Holder), [after(later)]);
    }
}

#[test]
fn an_agent_that_knows_no_relays_is_asked_without() {
    let old = Holder { knows_ways: false, ..Holder::of(content(3), 1) };
    let mut scene = Scene { relay: Some(Relay::new()), ..Scene::with(vec![old]) };
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    let ways: Vec<_> = scene.holder(0).requests.iter().map(|(_, way)| way.is_some()).collect();
    assert_eq!(ways, [true, false]);
    assert_eq!(scene.connects(Link::Holder), [after(0), after(5)]);
}

#[test]
fn a_way_that_was_not_taken_is_left_for_a_later_get() {
    let mut scene = Scene { relay: Some(Relay::new()), ..Scene::with(vec![Holder::of(content(3), 1)]) };
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    let left = scene.log.iter().filter(|(_, output)| *output == Output::GiveBack { link: Link::Relay });
    assert_eq!((left.count(), relay_of(&scene).subscribed.len()), (1, 0));
}
