//! What breaks is resumed with the same bytes, or begun anew.

use super::peers::{FRAME, Holder, content, identity};
use super::scene::{BEGIN, LIMIT, Scene, config, holder};
use crate::receiver::{Link, Located, Output, Receiver, ReceiverConfig, ReceiverError};
use proptest::prelude::*;
use weir_model::Span;
use weir_proto::data::{FRAME_BYTES, Identity, RESPONSE_BYTES};

/// One that closes after so many bytes of its first answer.
fn breaking(sends: usize) -> Holder {
    Holder { sends, breaks: 1, ..Holder::of(content(3), 1) }
}

/// Answers, with frames: where each frame ends.
const ENDS: [usize; 3] = [32 + 8 + FRAME, 32 + 2 * (8 + FRAME), 32 + 2 * (8 + FRAME) + 1008];

fn check_break(sends: usize) {
    let mut scene = Scene::with(vec![breaking(sends)]);
    assert_eq!(scene.run(), Ok(()), "{sends}");
    assert!(scene.got == content(3), "{sends}");
    let frames = ENDS.iter().filter(|&&end| end <= sends).count();
    let resumed = (frames as u64 * FRAME_BYTES, if frames > 0 { identity(1) } else { Identity::UNKNOWN });
    let asked = if frames == 3 { vec![] } else { vec![resumed] };
    assert_eq!(scene.holder(0).asked(), [vec![(0, Identity::UNKNOWN)], asked].concat(), "{sends}");
}

#[test]
fn a_break_in_an_answer_or_a_header_is_resumed_at_the_frame_that_broke() {
    let near = |at: usize| at.saturating_sub(9)..(at + 10).min(ENDS[2] + 1);
    for sends in (0..41).chain(near(ENDS[0])).chain(near(ENDS[1])).chain(near(ENDS[2])) {
        check_break(sends);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_break_at_any_byte_is_resumed_at_the_frame_that_broke(sends in 0..=ENDS[2]) {
        check_break(sends);
    }
}

/// A driver that sleeps until all of the room is filled would miss an answer that comes alone.
#[test]
fn an_answer_is_looked_at_at_once_though_bytes_came_before() {
    let mut receiver = Receiver::new(config(1), Vec::new());
    receiver.first_byte = Some(BEGIN);
    receiver.handle_wanted(BEGIN);
    receiver.handle_described(BEGIN, None, 0);
    receiver.handle_connected(BEGIN, Link::Holder, false);
    assert!(receiver.room(Link::Holder).len() > RESPONSE_BYTES && !receiver.is_filling(Link::Holder));
}

#[test]
fn where_nobody_has_the_block_that_was_begun_it_is_compared_from_its_start() {
    for version in [3, 1] {
        // The first has sent one frame; the other's first frame is the same, and it has the whole of another put.
        let other = Holder::of(content(version), 2);
        let gone = Holder { reachable: Some(true), ..breaking(ENDS[0] + 100) };
        let mut scene = Scene::with(vec![gone, other]);
        assert_eq!(scene.next(), None);
        scene.holders.get_mut(&holder(0)).unwrap().reachable = Some(false);
        assert_eq!(scene.run(), Ok(()));
        assert!(scene.got == content(version));
        // It refused to go on, and was asked for all of it on the same connection.
        let asked = [(FRAME_BYTES, identity(1)), (0, Identity::UNKNOWN)];
        assert_eq!(scene.holder(1).asked(), asked);
        assert_eq!(scene.holder(1).acknowledged, 1);
    }
}

#[test]
fn what_was_compared_is_gone_on_with_under_the_identity_that_it_was_compared_with() {
    let mut scene = Scene::with(vec![breaking(ENDS[0] + 100), breaking(ENDS[1] + 100)]);
    let other = scene.holders.get_mut(&holder(1)).unwrap();
    // Its first answer is that it has other bytes.
    (other.identity, other.breaks) = (identity(2), 2);
    assert_eq!(scene.next(), None);
    scene.holders.get_mut(&holder(0)).unwrap().reachable = Some(false);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    let asked = [(FRAME_BYTES, identity(1)), (0, Identity::UNKNOWN), (2 * FRAME_BYTES, identity(2))];
    assert_eq!(scene.holder(1).asked(), asked);
}

#[test]
fn a_frame_that_differs_from_what_was_handed_out_ends_the_get_as_changed() {
    let mut scene = Scene::with(vec![breaking(ENDS[1] + 100), Holder::of(content(1), 2)]);
    assert_eq!((scene.next(), scene.next()), (None, None));
    scene.holders.get_mut(&holder(0)).unwrap().reachable = Some(false);
    let changed = Err(ReceiverError::Changed { read: 2 * FRAME_BYTES });
    assert_eq!(scene.run(), changed);
    assert!(scene.got == content(3)[..2 * FRAME]);
    // It stays so.
    assert_eq!(scene.run(), changed);
}

#[test]
fn a_block_of_another_size_is_another_block() {
    let shorter = Holder::of(content(3)[..2 * FRAME].to_vec(), 2);
    let mut scene = Scene::with(vec![breaking(ENDS[0] + 100), shorter]);
    assert_eq!(scene.next(), None);
    scene.holders.get_mut(&holder(0)).unwrap().reachable = Some(false);
    assert_eq!(scene.run(), Err(ReceiverError::Changed { read: FRAME_BYTES }));
}

#[test]
fn a_block_without_an_identity_is_begun_anew_and_compared() {
    let mut scene = Scene::with(vec![Holder { identity: Identity::UNKNOWN, ..breaking(ENDS[0] + 100) }]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.holder(0).asked(), [(0, Identity::UNKNOWN); 2]);
}

#[test]
fn a_holder_that_broke_off_is_asked_again_though_nobody_names_it_and_without_waiting_for_others() {
    let mut scene = Scene::coordinated(vec![breaking(ENDS[0] + 100)]);
    scene.located = vec![Located::Holders(vec![holder(0)]), Located::Holders(Vec::new())];
    assert_eq!(scene.next(), None);
    scene.holders.get_mut(&holder(0)).unwrap().status = Some(8);
    assert_eq!(scene.run(), Err(ReceiverError::Gone));
    let waits = scene.log.iter().filter_map(|(_, output)| match output {
        Output::Locate { wait } => Some(*wait),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [Span::from_millis(5_000), Span::ZERO, Span::ZERO]);
}

#[test]
fn a_holder_that_broke_off_is_asked_again_though_the_coordinator_was_away_meanwhile() {
    let mut scene = Scene::coordinated(vec![breaking(ENDS[0] + 100)]);
    let away = || Located::Unavailable("coordinator: away".to_owned());
    let (first, nobody) = (Located::Holders(vec![holder(0)]), Located::Holders(Vec::new()));
    scene.located = vec![first, away(), away(), nobody];
    assert_eq!(scene.next(), None);
    scene.holders.get_mut(&holder(0)).unwrap().status = Some(8);
    assert_eq!(scene.run(), Err(ReceiverError::Gone));
}

#[test]
fn a_frame_without_its_checksum_is_told_to_its_holder_and_asked_for_elsewhere() {
    // A byte of the second frame, at the holder that is asked first.
    let damaged = Holder { damages: Some(ENDS[0] + 1000), ..Holder::of(content(3), 1) };
    let mut scene = Scene::with(vec![damaged, Holder::of(content(3), 1)]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.holder(0).doubted, [1]);
    assert_eq!(scene.holder(1).asked(), [(FRAME_BYTES, identity(1))]);
    assert!(scene.receiver.take_avoided().contains_key(&holder(0)));
}

/// Its checksum may be right: a frame of another length would lie in another place.
#[test]
fn a_frame_of_another_length_than_its_place_has_is_asked_for_again() {
    // The first byte of the length of the last frame: 0x17 instead of 0xe8, so 791 bytes instead of 1,000.
    let damaged = Holder { damages: Some(ENDS[1]), ..Holder::of(content(3), 1) };
    let mut scene = Scene::with(vec![damaged]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.holder(0).asked(), [(0, Identity::UNKNOWN), (2 * FRAME_BYTES, identity(1))]);
}

#[test]
fn a_holder_that_dies_after_its_last_byte_needs_no_acknowledgement() {
    let mut scene = Scene::with(vec![Holder { dies_at_the_end: true, ..Holder::of(content(3), 1) }]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert!(scene.pool.is_empty());
}

#[test]
fn a_wrong_hash_over_the_whole_is_noticed_before_the_last_frame_is_handed_out() {
    let lying = Holder { identity: Identity::of_content(7), ..Holder::of(content(3), 1) };
    let whole = ReceiverConfig { verify_whole: true, end: BEGIN + LIMIT, ..config(1) };
    let mut scene = Scene::of(whole, vec![lying]);
    assert_eq!(scene.run(), Err(ReceiverError::WrongHash));
    assert!(scene.got == content(3)[..2 * FRAME]);
    assert!(scene.receiver.take_avoided().contains_key(&holder(0)), "the next attempt asks others first");
    assert_eq!(scene.holder(0).acknowledged, 0);
}

#[test]
fn an_empty_block_is_acknowledged_at_once() {
    let mut scene = Scene::with(vec![Holder::of(Vec::new(), 1)]);
    assert_eq!(scene.run(), Ok(()));
    assert_eq!((scene.holder(0).acknowledged, scene.receiver.size()), (1, Some(0)));
    assert_eq!(scene.connects(Link::Holder).len(), 1);
}
