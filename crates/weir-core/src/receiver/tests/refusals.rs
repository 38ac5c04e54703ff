//! What holders and the coordinator may say instead of sending.

use super::peers::{Connection, Holder, content};
use super::scene::{BEGIN, Scene, config, holder};
use crate::receiver::{Link, Located, Output, ReceiverConfig, ReceiverError};
use weir_model::Span;

/// How a get of a holder that answers with this status ends, within a second.
fn end_of(status: u8) -> Result<(), ReceiverError> {
    let short = ReceiverConfig { end: BEGIN + Span::from_millis(1_000), ..config(1) };
    Scene::of(short, vec![Holder { status: Some(status), ..Holder::of(content(3), 1) }]).run()
}

#[test]
fn each_status_is_believed_or_asked_again() {
    let again = |why: &str| {
        let said = format!("no holder sends it; {}: {why}", holder(0));
        Err(ReceiverError::TimeLimit(said))
    };
    assert_eq!(end_of(1), again("it does not hold the block"));
    assert_eq!(end_of(2), Err(ReceiverError::Refused("bad request")));
    assert_eq!(end_of(3), Err(ReceiverError::CoflowEnded));
    assert_eq!(end_of(4), again("it serves as many connections as it may"));
    assert_eq!(end_of(5), again("it cannot read the block's file"));
    assert_eq!(end_of(6), Err(ReceiverError::CoflowRefused("too late".to_owned())));
    assert_eq!(end_of(7), again("it answered by relays, unasked"));
    assert_eq!(end_of(8), Err(ReceiverError::Gone));
    assert_eq!(end_of(9), again("it has other bytes by now"));
    assert_eq!(end_of(10), again("it wants a token, for a block"));
    assert_eq!(end_of(11), again("bad status"));
    assert_eq!(end_of(255), again("bad status"));
}

#[test]
fn what_the_coordinator_says_for_good_ends_the_get() {
    let end_of = |located| {
        let mut scene = Scene::coordinated(Vec::new());
        scene.located = vec![located];
        scene.run()
    };
    assert_eq!(end_of(Located::Ended), Err(ReceiverError::CoflowEnded));
    let why = || "link 3".to_owned();
    assert_eq!(end_of(Located::Refused(why())), Err(ReceiverError::CoflowRefused(why())));
    assert_eq!(end_of(Located::Denied(why())), Err(ReceiverError::NotLocated(why())));
    let nobody = Err(ReceiverError::Refused("no coordinator to ask and no holder given"));
    assert_eq!(end_of(Located::NoCoordinator), nobody);
}

/// The first is the best holder, and says a length that a frame cannot have, each time.
#[test]
fn who_sends_a_frame_of_a_wrong_length_is_asked_after_all_others() {
    for damaged in [32, 34, 35] {
        let wrong = Holder { damages: Some(damaged), ..Holder::of(content(3), 1) };
        let mut scene = Scene::with(vec![wrong, Holder::of(content(3), 1)]);
        assert_eq!(scene.run(), Ok(()));
        assert!(scene.got == content(3));
        assert_eq!(
            (scene.holder(0).requests.len(), scene.holder(1).requests.len()),
            (1, 1),
            "byte {damaged}"
        );
    }
}

#[test]
fn a_block_that_changed_at_one_holder_is_got_from_another() {
    let changed = Holder { status: Some(8), ..Holder::of(content(3), 1) };
    let mut scene = Scene::with(vec![changed, Holder::of(content(3), 1)]);
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
}

/// Among others that cannot say, one that says so is not believed yet.
#[test]
fn a_block_is_gone_only_if_every_holder_says_so() {
    let changed = || Holder { status: Some(8), ..Holder::of(content(3), 1) };
    let busy = Holder { status: Some(4), ..Holder::of(content(3), 1) };
    let mut scene = Scene::with(vec![changed(), busy]);
    assert!(matches!(scene.run(), Err(ReceiverError::TimeLimit(_))));
    assert_eq!(Scene::with(vec![changed(), changed()]).run(), Err(ReceiverError::Gone));
}

/// It may have been put a second time after the coordinator was asked.
#[test]
fn a_block_is_gone_only_if_nobody_is_named_anew() {
    let changed = || Holder { status: Some(8), ..Holder::of(content(3), 1) };
    let mut scene = Scene::coordinated(vec![changed(), Holder::of(content(3), 1)]);
    let named = |numbers: &[u16]| Located::Holders(numbers.iter().map(|&number| holder(number)).collect());
    scene.located = vec![named(&[0]), named(&[0, 1])];
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));

    for again in [named(&[0]), named(&[])] {
        let mut scene = Scene::coordinated(vec![changed()]);
        scene.located = vec![named(&[0]), again, named(&[9])];
        assert_eq!(scene.run(), Err(ReceiverError::Gone));
        assert_eq!(scene.located.len(), 1);
    }
}

fn with_pooled(connection: Connection) -> Scene {
    let mut scene = Scene::with(vec![Holder::of(content(3), 1)]);
    scene.pool.insert(holder(0), connection);
    scene
}

#[test]
fn a_pooled_connection_that_died_costs_no_pause() {
    let mut scene = with_pooled(Connection { closes: true, ..Connection::default() });
    // The holder's answer never comes on it.
    scene.pool.get_mut(&holder(0)).unwrap().sent = vec![1; 3];
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    assert_eq!(scene.connects(Link::Holder), [BEGIN; 2]);
}

#[test]
fn a_pooled_connection_is_used_and_left_for_the_next_get() {
    let mut scene = with_pooled(Connection::default());
    assert_eq!(scene.run(), Ok(()));
    assert!(scene.got == content(3));
    let pooled = |(_, output): &(_, Output)| matches!(output, Output::Connect { pooled: true, .. });
    assert_eq!(scene.log.iter().filter(|entry| pooled(entry)).count(), 1);
    assert_eq!(scene.connects(Link::Holder).len(), 1);
    assert!(scene.pool.contains_key(&holder(0)));
}
