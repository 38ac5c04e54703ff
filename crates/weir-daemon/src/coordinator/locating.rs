//! Where answers of `Locate` and `LocateAll` go.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tonic::Status;
use weir_proto::v1;

/// The caller of one of them.
pub(super) enum Locating {
    Alone(oneshot::Sender<v1::LocateReply>),
    /// Its place in a call for many blocks, whose queue has room for all answers.
    Among(u32, mpsc::Sender<v1::LocateAllReply>),
}

impl Locating {
    /// Whether the caller is gone.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Locating::Alone(reply) => reply.is_closed(),
            Locating::Among(_, replies) => replies.is_closed(),
        }
    }

    pub(super) fn answer(self, reply: v1::LocateReply) {
        match self {
            Locating::Alone(sender) => _ = sender.send(reply),
            Locating::Among(index, replies) => {
                let _ = replies.try_send(v1::LocateAllReply { index, reply: Some(reply) });
            }
        }
    }
}

/// Answers to a call for many blocks, as they come. A caller that goes away gives up all that were not answered.
pub(super) struct Answers {
    replies: mpsc::Receiver<v1::LocateAllReply>,
    /// Those that are still to come.
    left: u64,
    tokens: Range<u64>,
    given_up: mpsc::UnboundedSender<u64>,
}

impl Answers {
    /// Of calls with these numbers, and where they go.
    pub(super) fn new(
        tokens: Range<u64>,
        given_up: mpsc::UnboundedSender<u64>,
    ) -> (Answers, mpsc::Sender<v1::LocateAllReply>) {
        let left = tokens.end - tokens.start;
        let (sender, replies) = mpsc::channel((left as usize).max(1));
        (Answers { replies, left, tokens, given_up }, sender)
    }
}

impl Stream for Answers {
    type Item = Result<v1::LocateAllReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reply = ready!(self.replies.poll_recv(context));
        if reply.is_none() && std::mem::take(&mut self.left) > 0 {
            return Poll::Ready(Some(Err(Status::unavailable("the coordinator is shutting down"))));
        }
        self.left = self.left.saturating_sub(1);
        Poll::Ready(reply.map(Ok))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if self.left > 0 {
            self.tokens.clone().for_each(|token| _ = self.given_up.send(token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;

    #[tokio::test]
    async fn answers_come_as_they_are_known_and_the_call_ends_with_the_last() {
        let (given_up, mut gone) = mpsc::unbounded_channel();
        let (mut answers, sender) = Answers::new(5..7, given_up);
        let waiting: Vec<_> = (0..2).map(|index| Locating::Among(index, sender.clone())).collect();
        drop(sender);
        for locating in waiting.into_iter().rev() {
            locating.answer(v1::LocateReply::default());
        }
        let mut order = Vec::new();
        while let Some(reply) = answers.next().await {
            order.push(reply.unwrap().index);
        }
        assert_eq!(order, [1, 0]);
        drop(answers);
        assert!(gone.recv().await.is_none(), "nothing was given up");
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_gives_up_what_was_not_answered() {
        let (given_up, mut gone) = mpsc::unbounded_channel();
        let (mut answers, sender) = Answers::new(5..7, given_up);
        let waits = Locating::Among(0, sender.clone());
        Locating::Among(1, sender).answer(v1::LocateReply::default());
        assert_eq!(answers.next().await.unwrap().unwrap().index, 1);
        drop(answers);
        assert!(waits.is_closed());
        assert_eq!((gone.recv().await, gone.recv().await), (Some(5), Some(6)));
    }

    #[tokio::test]
    async fn a_coordinator_that_ends_says_so() {
        let (mut answers, sender) = Answers::new(5..6, mpsc::unbounded_channel().0);
        drop(Locating::Among(0, sender));
        let ended = answers.next().await.unwrap();
        assert_eq!(ended.unwrap_err().code(), tonic::Code::Unavailable);
        assert!(answers.next().await.is_none());
    }
}
