//! Two agents that say they are one host.

use super::*;
use crate::coordinator::HelloError;
use weir_proto::v1::agent_event::Kind;
use weir_proto::v1::coordinator_message::Kind as Said;

/// An agent of host 0.
struct Rival {
    agent: Agent,
    session: SessionId,
}

impl Rival {
    fn new(spool_identity: u64, incarnation: u64) -> Rival {
        let agent = Agent::new(AgentConfig {
            host: HostNumber(0),
            data_address: format!("10.0.0.{spool_identity}:{incarnation}"),
            incarnation,
            spool_identity,
            first_plan_wait: Span::from_millis(100),
            report_interval: Span::from_millis(20),
            batch: Span::ZERO,
            ..AgentConfig::default()
        });
        Rival { agent, session: SessionId(spool_identity * 1_000_000 + incarnation * 1_000) }
    }

    /// Comes to a coordinator, in a new session, and hears what that says.
    fn come(&mut self, now: Time, coordinator: &mut Coordinator) -> Result<(), HelloError> {
        self.session.0 += 1;
        self.agent.handle_session_up(now);
        let message = self.agent.poll_message(now).unwrap();
        let Some(Kind::Hello(hello)) = message.events.into_iter().next().unwrap().kind else {
            panic!("no Hello")
        };
        let taken = coordinator.handle_hello(now, self.session, hello);
        if let Err(HelloError::Taken { .. } | HelloError::Awaited { .. }) = &taken {
            self.agent.handle_refused();
        }
        taken
    }

    /// Hears what was said to it; true if it was told that its session is over.
    fn hear(&mut self, now: Time, said: &[(SessionId, v1::CoordinatorMessage)]) -> bool {
        let mut over = false;
        for (_, message) in said.iter().filter(|(session, _)| *session == self.session) {
            over |= matches!(message.kind, Some(Said::Refused(_)));
            self.agent.handle_coordinator(now, message.clone());
        }
        over
    }

    fn leave(&mut self, now: Time, coordinator: &mut Coordinator) {
        self.agent.handle_session_lost();
        coordinator.handle_session_lost(now, self.session);
    }
}

fn said(coordinator: &mut Coordinator) -> Vec<(SessionId, v1::CoordinatorMessage)> {
    std::iter::from_fn(|| coordinator.poll_message()).collect()
}

/// The coordinator began anew, and heard of no agent yet.
fn anew(now: Time) -> Coordinator {
    let mut coordinator = coordinator(2, 1 << 40);
    coordinator.handle_timeout(now);
    coordinator
}

/// The right agent, which was attached, and another one that was refused.
fn right_and_wrong() -> (Rival, Rival, Time) {
    let mut coordinator = coordinator(2, 1);
    let now = Time::from_millis(1_000_000);
    let (mut right, mut wrong) = (Rival::new(7, 1), Rival::new(8, 1));
    right.come(now, &mut coordinator).unwrap();
    right.hear(now, &said(&mut coordinator));
    assert!(matches!(wrong.come(now, &mut coordinator), Err(HelloError::Taken { .. })));
    (right, wrong, now + Span::from_millis(1_000))
}

#[test]
fn after_a_restart_the_agent_that_was_attached_before_wins_whichever_comes_first() {
    let (mut right, mut wrong, now) = right_and_wrong();
    for round in 0..6u64 {
        let now = now + Span::from_millis(round * 100_000);
        let mut coordinator = anew(now);
        if round % 2 == 0 {
            assert!(matches!(wrong.come(now, &mut coordinator), Err(HelloError::Awaited { .. })));
        }
        right.come(now, &mut coordinator).unwrap();
        assert!(wrong.come(now, &mut coordinator).is_err());
        assert!(!right.hear(now, &said(&mut coordinator)));
        assert_eq!(coordinator.hosts.get(&HostNumber(0)), Some(&right.session));
    }
}

#[test]
fn an_agent_that_was_refused_is_taken_if_the_other_does_not_come_back_and_gives_way_if_it_comes_late() {
    let (mut right, mut wrong, mut now) = right_and_wrong();
    let mut coordinator = anew(now);
    assert!(wrong.come(now, &mut coordinator).is_err());
    for _ in 0..10 {
        now = now + Span::from_millis(1_000);
        coordinator.handle_timeout(now);
    }
    wrong.come(now, &mut coordinator).unwrap();
    wrong.hear(now, &said(&mut coordinator));
    // The right one took 20 s to come back.
    for _ in 0..10 {
        now = now + Span::from_millis(1_000);
        coordinator.handle_timeout(now);
    }
    right.come(now, &mut coordinator).unwrap();
    let said_now = said(&mut coordinator);
    assert!(wrong.hear(now, &said_now), "it is told");
    assert!(wrong.agent.poll_notice().unwrap().contains("10.0.0.7"), "by whom it was replaced");
    assert_eq!(coordinator.poll_closed(), Some(wrong.session));
    assert!(matches!(wrong.come(now, &mut coordinator), Err(HelloError::Taken { .. })));
    assert_eq!(coordinator.hosts.get(&HostNumber(0)), Some(&right.session));
}

#[test]
fn an_agent_that_has_the_host_for_longer_than_a_minute_gives_way_to_nobody() {
    let (mut right, mut wrong, mut now) = right_and_wrong();
    let mut coordinator = anew(now);
    assert!(wrong.come(now, &mut coordinator).is_err());
    for _ in 0..70 {
        now = now + Span::from_millis(1_000);
        coordinator.handle_timeout(now);
    }
    wrong.come(now, &mut coordinator).unwrap();
    assert!(matches!(right.come(now, &mut coordinator), Err(HelloError::Taken { .. })));
}

#[test]
fn two_agents_of_one_spools_copies_do_not_throw_each_other_out() {
    let mut coordinator = coordinator(2, 1);
    let now = Time::from_millis(1_000_000);
    let (mut first, mut copy) = (Rival::new(7, 1), Rival::new(7, 2));
    first.come(now, &mut coordinator).unwrap();
    for _ in 0..5 {
        assert!(matches!(copy.come(now, &mut coordinator), Err(HelloError::Taken { .. })));
    }
    let told = said(&mut coordinator);
    assert!(!first.hear(now, &told));
    assert!(first.agent.poll_notice().unwrap().contains("10.0.0.7:2"), "the first one is told");
    assert_eq!(coordinator.poll_closed(), None);
    // The first one's own new session replaces its old one at once.
    let old = first.session;
    first.come(now, &mut coordinator).unwrap();
    assert_eq!(coordinator.poll_closed(), Some(old));
    // A new process of it comes in once the session of the one before is over.
    first.leave(now, &mut coordinator);
    Rival::new(7, 3).come(now, &mut coordinator).unwrap();
}

#[test]
fn a_hello_that_comes_late_replaces_no_newer_session() {
    let mut coordinator = coordinator(2, 1);
    let now = Time::from_millis(1_000_000);
    let mut agent = Rival::new(7, 1);
    agent.agent.handle_session_up(now);
    let message = agent.agent.poll_message(now).unwrap();
    let Some(Kind::Hello(early)) = message.events.into_iter().next().unwrap().kind else {
        panic!("no Hello")
    };
    agent.agent.handle_session_lost();
    agent.come(now, &mut coordinator).unwrap();
    // The coordinator was stopped, and reads the Hello of a connection that was given up after that of the next one.
    assert_eq!(coordinator.handle_hello(now, SessionId(1), early), Err(HelloError::Late("0".to_owned())));
    assert_eq!(coordinator.hosts.get(&HostNumber(0)), Some(&agent.session));
}

/// A Hello of a stranger for host 0, of which the rest is to follow.
fn unfinished() -> v1::Hello {
    v1::Hello {
        version: 1,
        more: true,
        spool_identity: 9,
        data_address: "stranger".to_owned(),
        ..v1::Hello::default()
    }
}

#[test]
fn a_hello_that_does_not_end_keeps_the_host_for_ten_seconds_and_not_from_the_agent_that_had_it() {
    let mut coordinator = coordinator(2, 1);
    let mut now = Time::from_millis(1_000_000);
    let stranger = SessionId(5);
    coordinator.handle_hello(now, stranger, unfinished()).unwrap();
    let mut right = Rival::new(7, 1);
    assert!(right.come(now, &mut coordinator).is_err(), "nobody knows better");
    for _ in 0..11 {
        now = now + Span::from_millis(1_000);
        coordinator.handle_timeout(now);
    }
    assert_eq!(coordinator.poll_closed(), Some(stranger));
    right.come(now, &mut coordinator).unwrap();
    right.hear(now, &said(&mut coordinator));
    // It loses its connection, and the stranger comes in between.
    right.leave(now, &mut coordinator);
    for _ in 0..100 {
        now = now + Span::from_millis(1_000);
        coordinator.handle_timeout(now);
    }
    coordinator.handle_hello(now, stranger, unfinished()).unwrap();
    right.come(now, &mut coordinator).unwrap();
    assert_eq!(coordinator.poll_closed(), Some(stranger));
}

#[test]
fn a_hello_that_trickles_in_is_over_after_five_minutes() {
    let mut coordinator = coordinator(2, 1);
    let mut now = Time::from_millis(1_000_000);
    let stranger = SessionId(5);
    coordinator.handle_hello(now, stranger, unfinished()).unwrap();
    for second in 0..301 {
        assert_eq!(coordinator.poll_closed(), None, "after {second} s");
        now = now + Span::from_millis(1_000);
        let kind = Some(Kind::HelloPart(v1::HelloPart::default()));
        coordinator.handle_agent(now, stranger, v1::AgentMessage { events: vec![v1::AgentEvent { kind }] });
        coordinator.handle_timeout(now);
        if second == 299 {
            break;
        }
    }
    assert_eq!(coordinator.poll_closed(), Some(stranger));
}
