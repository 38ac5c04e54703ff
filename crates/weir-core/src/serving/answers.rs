//! Answers that wait for the first frame, so that both go in one write.

use std::collections::VecDeque;
use weir_model::{Span, Time};

/// How long an answer waits. On a busy host a plan that lets a flow begin takes about as long; a receiver waits for seconds.
const GATHER: Span = Span::from_millis(20);

/// Connections whose receivers are to be answered soon. Which of them still are, their conversations know
/// ([`Conversation::owes_answer`](super::Conversation::owes_answer)).
#[derive(Debug, Default)]
pub struct Answers(VecDeque<(Time, u64)>);

impl Answers {
    /// A connection begins to serve, and nothing was said yet.
    pub fn add(&mut self, now: Time, connection: u64) {
        self.0.push_back((now + GATHER, connection));
    }

    /// The next connection whose answer waits no longer.
    pub fn poll(&mut self, now: Time) -> Option<u64> {
        let &(due, connection) = self.0.front()?;
        (due <= now).then(|| {
            self.0.pop_front();
            connection
        })
    }

    /// When to poll. `owes`: whether a connection still owes an answer.
    pub fn next_timeout(&mut self, owes: impl Fn(u64) -> bool) -> Option<Time> {
        while self.0.front().is_some_and(|&(_, connection)| !owes(connection)) {
            self.0.pop_front();
        }
        self.0.front().map(|&(due, _)| due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_waits_for_its_frame_for_a_while_and_nobody_is_woken_for_one_that_went_before() {
        let ms = Time::from_millis;
        let mut answers = Answers::default();
        answers.add(ms(10), 1);
        answers.add(ms(11), 2);
        assert_eq!((answers.poll(ms(29)), answers.next_timeout(|_| true)), (None, Some(ms(30))));
        assert_eq!(answers.next_timeout(|connection| connection != 1), Some(ms(31)));
        assert_eq!((answers.poll(ms(31)), answers.poll(ms(31))), (Some(2), None));
        assert_eq!(answers.next_timeout(|_| true), None);
    }
}
