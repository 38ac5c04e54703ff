//! Whatever holders do, and however their bytes are cut into reads.

use super::peers::{FRAME, Holder, Relay, Then, content, identity};
use super::scene::{BEGIN, Scene, config, holder, relay};
use crate::receiver::{Link, Located, Receiver, ReceiverConfig, ReceiverError, RelaysOfHost};
use proptest::prelude::*;
use proptest::sample::select;
use weir_model::{Span, Time};
use weir_proto::data::{FrameHeader, Identity, RESPONSE_BYTES, Response, Status, checksum};
use weir_proto::relay::{FlowKey, Header, MAX_DATA_BYTES};

/// Bytes of an answer with all frames: 32, and 8 before each of three frames.
const ANSWER: usize = RESPONSE_BYTES + 2 * FRAME + 1000 + 24;

/// Blocks that there are: four of one length, and two shorter ones.
fn blocks() -> Vec<Vec<u8>> {
    let mut blocks: Vec<_> = (0..4).map(content).collect();
    blocks.extend([content(3)[..FRAME].to_vec(), content(3)[..10].to_vec()]);
    blocks
}

/// Holders of which most are not what they should be.
fn holders() -> impl Strategy<Value = Vec<Holder>> {
    let place = || prop_oneof![0..60usize, FRAME - 5..FRAME + 60, 0..ANSWER];
    let accepted =
        Response { status: Status::Accepted, size: content(0).len() as u64, identity: identity(1) };
    let greeting = prop_oneof![
        8 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 0..100),
        1 => Just(accepted.encode().to_vec()),
    ];
    let noise = proptest::collection::vec(any::<u8>(), 0..40);
    let is = (0..6usize, proptest::bool::weighted(0.2), proptest::bool::weighted(0.9), any::<bool>());
    let says = (greeting, noise, proptest::option::weighted(0.1, 0..12u8));
    let fails = (proptest::option::weighted(0.3, place()), place(), 0..4u32, any::<bool>(), any::<bool>());
    let holder = (is, says, fails).prop_map(|(is, says, fails)| {
        let (block, is_nameless, is_reachable, relays) = is;
        let (greeting, extra, status) = says;
        let (damages, sends, breaks, falls_silent, is_alive) = fails;
        let mut holder = Holder::of(blocks()[block].clone(), block as u8 + 1);
        if is_nameless {
            holder.identity = Identity::UNKNOWN;
        }
        let reachable = Some(is_reachable);
        Holder {
            reachable,
            relays,
            greeting,
            extra,
            status,
            damages,
            sends,
            breaks,
            falls_silent,
            is_alive,
            ..holder
        }
    });
    proptest::collection::vec(holder, 1..4)
}

fn relays() -> impl Strategy<Value = Option<Relay>> {
    let then = select(vec![Then::Reset, Then::Close, Then::Skip, Then::FallSilent]);
    let piece = select(vec![MAX_DATA_BYTES, 100_000, 262_144, 5_000]);
    let relay = (0..9usize, then, piece, proptest::bool::weighted(0.8)).prop_map(
        |(sends, then, piece, is_reachable)| {
            let reachable = Some(is_reachable);
            Relay { sends, then, piece, reachable, ..Relay::new() }
        },
    );
    proptest::option::of(relay)
}

/// Sizes of reads. The last one is large, so that a get ends.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    let sizes = select(vec![1, 2, 7, 8, 9, 31, 32, 33, 1000, 70_001, FRAME, FRAME + 8]);
    proptest::collection::vec(sizes, 0..6).prop_map(|mut cuts| {
        cuts.push(100_000);
        cuts
    })
}

fn scene(holders: &[Holder], relay: &Option<Relay>) -> Scene {
    let end = BEGIN + Span::from_millis(10_000);
    let config = ReceiverConfig { end, ..config(holders.len()) };
    Scene { relay: relay.clone(), ..Scene::of(config, holders.to_vec()) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::noise_cases() / 3))]

    #[test]
    fn how_the_input_is_cut_and_who_looks_when_changes_nothing(
        holders in holders(), relay in relays(), cuts in cuts(), calls in proptest::collection::vec(0..3u8, 1..8),
    ) {
        let mut whole = scene(&holders, &relay);
        let end = whole.run();
        let mut cut = Scene { cuts, calls, ..scene(&holders, &relay) };
        prop_assert_eq!(cut.run(), end);
        prop_assert!(cut.got == whole.got);
        prop_assert!(cut.log == whole.log, "{:?}\n\n{:?}", cut.log, whole.log);
    }

    #[test]
    fn whatever_holders_do_only_the_bytes_of_one_block_are_handed_out_and_each_once(
        holders in holders(), relay in relays(), cuts in cuts(),
    ) {
        let mut scene = Scene { cuts, ..scene(&holders, &relay) };
        let end = scene.run();
        let blocks = blocks();
        prop_assert!(blocks.iter().any(|block| block.starts_with(&scene.got)), "{:?}", scene.log);
        match end {
            Ok(()) => {
                prop_assert!(blocks.contains(&scene.got), "{} bytes", scene.got.len());
                let acknowledged: usize = scene.holders.values().map(|holder| holder.acknowledged).sum();
                prop_assert_eq!(acknowledged, 1);
            }
            Err(ReceiverError::Changed { read }) => prop_assert_eq!(read, scene.got.len() as u64),
            Err(_) => {}
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Wanted,
    Timeout(u64),
    Connected(Link, bool),
    Written(Link),
    Closed(Link, Option<String>),
    /// Fills the room with these bytes, again and again, and tells of so many of them.
    Read(Link, Vec<u8>, usize),
    Located(Located),
    Described(bool),
    Explained,
}

fn event() -> impl Strategy<Value = Event> {
    let link = || select(vec![Link::Holder, Link::Relay, Link::Probe]);
    let accepted = |status, size| Response { status, size, identity: identity(1) }.encode().to_vec();
    let data = Header::data(FlowKey { coflow: 7, reducer: 0, mapper: 0 }, 1, 0, 40).encode().to_vec();
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..50),
        select(vec![0, 1, 8, 300_000, u64::MAX]).prop_map(move |size| accepted(Status::Accepted, size)),
        Just(accepted(Status::Relayed, 8)),
        Just(data),
        // A frame of which the checksum is right, whatever the block is.
        Just([&FrameHeader { length: 1, checksum: checksum(&[5]) }.encode()[..], &[5]].concat()),
    ];
    let located = select(vec![
        Located::Holders(vec![holder(0), holder(1), holder(0)]),
        Located::Holders(Vec::new()),
        Located::Unavailable(String::new()),
    ]);
    prop_oneof![
        Just(Event::Wanted),
        (0..20_000u64).prop_map(Event::Timeout),
        (link(), any::<bool>()).prop_map(|(link, pooled)| Event::Connected(link, pooled)),
        link().prop_map(Event::Written),
        (link(), proptest::option::of("[a-z]{0,3}")).prop_map(|(link, why)| Event::Closed(link, why)),
        (link(), bytes, any::<usize>()).prop_map(|(link, bytes, count)| Event::Read(link, bytes, count)),
        located.prop_map(Event::Located),
        any::<bool>().prop_map(Event::Described),
        Just(Event::Explained),
    ]
}

fn tell(receiver: &mut Receiver, now: &mut Time, event: Event) {
    match event {
        Event::Wanted => receiver.handle_wanted(*now),
        Event::Timeout(millis) => {
            *now = *now + Span::from_millis(millis);
            receiver.handle_timeout(*now);
        }
        Event::Connected(link, pooled) => receiver.handle_connected(*now, link, pooled),
        Event::Written(link) => receiver.handle_written(*now, link),
        Event::Closed(link, why) => receiver.handle_closed(*now, link, why),
        Event::Read(link, bytes, count) => {
            receiver.room(link).iter_mut().zip(bytes.iter().cycle()).for_each(|(to, byte)| *to = *byte);
            receiver.handle_read(*now, link, count);
        }
        Event::Located(located) => receiver.handle_located(*now, located),
        Event::Described(some) => {
            let addresses = if some { vec![relay()] } else { Vec::new() };
            receiver.handle_described(*now, Some(&RelaysOfHost { site: 1, addresses }), 9);
        }
        Event::Explained => receiver.handle_explained(*now, String::new()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::noise_cases()))]

    /// A driver may err too, or be late.
    #[test]
    fn events_in_any_order_never_panic_and_have_bounded_outputs(
        events in proptest::collection::vec(event(), 0..200), is_coordinated: bool,
    ) {
        let mut receiver = Receiver::new(config(if is_coordinated { 0 } else { 2 }), Vec::new());
        let mut now = BEGIN;
        for event in events {
            tell(&mut receiver, &mut now, event.clone());
            let outputs = std::iter::from_fn(|| receiver.poll_output()).count();
            prop_assert!(outputs <= 8, "{outputs} after {event:?}");
            for link in [Link::Holder, Link::Relay, Link::Probe] {
                prop_assert!(receiver.room(link).len() <= FRAME + 8);
            }
        }
    }
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut scene = Scene { cuts: vec![1], ..Scene::with(vec![Holder::of(content(3), 1)]) };
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
}

/// They stay where they are, and the next get finds them on the connection.
#[test]
fn bytes_beyond_the_end_are_not_read_and_cost_the_next_get_a_connection() {
    let mut scene = Scene::with(vec![Holder { extra: vec![0; 50], ..Holder::of(content(3), 1) }]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    let left = &scene.pool[&holder(0)];
    assert_eq!(left.sent.len() - left.read, 50);
    let mut next = Scene::with(vec![Holder::of(content(3), 1)]);
    next.pool = std::mem::take(&mut scene.pool);
    assert_eq!(next.run(), Ok(()));
    assert!(next.got == content(3));
    // At once, and not after a pause.
    assert_eq!(next.connects(Link::Holder), [BEGIN; 2]);
    assert_eq!(next.holder(0).requests.len(), 2);
}

/// A block of one small frame is one read, if all of it is there; and a holder that says more has nothing taken for it.
#[test]
fn an_answer_and_the_frame_that_comes_with_it_are_one_read() {
    let block = vec![7; 4_096];
    for extra in [0, 50, 20_000] {
        let mut scene = Scene::with(vec![Holder { extra: vec![9; extra], ..Holder::of(block.clone(), 1) }]);
        assert_eq!(scene.run(), Ok(()));
        assert!(scene.got == block);
        assert_eq!(scene.reads, 1, "{extra}");
    }
    // Of a large frame a part comes with the answer, and the rest where it is missing.
    let mut scene = Scene::with(vec![Holder::of(content(3), 1)]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
}

#[test]
fn what_was_not_asked_for_is_not_taken() {
    // A frame that would be right, before the request.
    let mut scene = Scene::with(vec![Holder::of(content(3), 1)]);
    assert_eq!(scene.run(), Ok(()));
    let mut receiver = Receiver::new(config(1), Vec::new());
    assert!(receiver.room(Link::Holder).is_empty());
    receiver.handle_read(BEGIN, Link::Holder, 1000);
    receiver.handle_connected(BEGIN, Link::Holder, false);
    receiver.handle_written(BEGIN, Link::Relay);
    receiver.handle_closed(BEGIN, Link::Probe, None);
    receiver.handle_located(BEGIN, Located::Ended);
    receiver.handle_explained(BEGIN, String::new());
    receiver.handle_timeout(Time::MAX);
    assert_eq!((receiver.poll_output(), receiver.next_timeout()), (None, None));
}
