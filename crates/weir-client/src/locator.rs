//! Asking the coordinator where blocks are. Gets of one client that ask at the same moment share a call: a call costs both sides
//! more than an answer does, and a task that gets blocks from a hundred holders begins all of them at once.

use crate::error::is_transient;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::{Code, Status};
use weir_proto::v1::coordinator_client::CoordinatorClient;
use weir_proto::{limits, v1};

/// Questions that wait for a call.
#[derive(Default)]
pub(crate) struct Locator(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    questions: Vec<Question>,
    /// Whether a task is about to take them.
    gathers: bool,
    /// The coordinator answers one question per call.
    one_by_one: bool,
}

struct Question {
    request: v1::LocateRequest,
    /// Dropped without an answer: it is to be asked alone.
    answer: oneshot::Sender<Result<v1::LocateReply, Status>>,
}

impl Locator {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks where a block is, with others that ask now or alone.
    pub(crate) async fn locate(
        self: &Arc<Locator>,
        mut coordinator: CoordinatorClient<Channel>,
        request: v1::LocateRequest,
    ) -> Result<v1::LocateReply, Status> {
        // A name that the coordinator refuses must not have others refused.
        if request.block.len() <= limits::MAX_BLOCK_NAME_BYTES
            && let Some(answered) = self.ask(&coordinator, &request)
            && let Ok(answer) = answered.await
        {
            return answer;
        }
        Ok(coordinator.locate(request).await?.into_inner())
    }

    /// Has a question asked with those that come before the tasks that are ready now have run. `None`: that cannot be done.
    fn ask(
        self: &Arc<Locator>,
        coordinator: &CoordinatorClient<Channel>,
        request: &v1::LocateRequest,
    ) -> Option<oneshot::Receiver<Result<v1::LocateReply, Status>>> {
        let (answer, answered) = oneshot::channel();
        let gathers = {
            let mut waiting = self.waiting();
            if waiting.one_by_one {
                return None;
            }
            waiting.questions.push(Question { request: request.clone(), answer });
            std::mem::replace(&mut waiting.gathers, true)
        };
        if !gathers {
            tokio::spawn(gather(Gathering(Some(Arc::clone(self))), coordinator.clone()));
        }
        Some(answered)
    }
}

/// That a task is about to take the questions. It may never run, if its runtime ends: then they are asked one by one.
struct Gathering(Option<Arc<Locator>>);

impl Gathering {
    fn take(&mut self) -> Option<(Arc<Locator>, Vec<Question>)> {
        let locator = self.0.take()?;
        let questions = {
            let mut waiting = locator.waiting();
            waiting.gathers = false;
            std::mem::take(&mut waiting.questions)
        };
        Some((locator, questions))
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        drop(self.take());
    }
}

async fn gather(mut gathering: Gathering, coordinator: CoordinatorClient<Channel>) {
    tokio::task::yield_now().await;
    let Some((locator, mut questions)) = gathering.take() else { return };
    while questions.len() > limits::MAX_LOCATES_PER_CALL {
        let rest = questions.split_off(questions.len() - limits::MAX_LOCATES_PER_CALL);
        tokio::spawn(ask_together(Arc::clone(&locator), coordinator.clone(), rest));
    }
    ask_together(locator, coordinator, questions).await;
}

async fn ask_together(
    locator: Arc<Locator>,
    mut coordinator: CoordinatorClient<Channel>,
    mut questions: Vec<Question>,
) {
    if questions.len() < 2 {
        let Some(Question { request, mut answer }) = questions.pop() else { return };
        let reply = tokio::select! {
            reply = coordinator.locate(request) => reply,
            () = answer.closed() => return,
        };
        let _ = answer.send(reply.map(tonic::Response::into_inner));
        return;
    }
    let (requests, answers) =
        questions.into_iter().map(|question| (question.request, Some(question.answer))).unzip();
    let mut answers = Answers(answers);
    let Err(status) = answers.take_from(coordinator, requests).await else { return };
    if status.code() == Code::Unimplemented {
        locator.waiting().one_by_one = true;
    }
    // What is refused for good may be so for one of them alone: each asks for itself.
    if is_transient(&status) {
        answers.0.into_iter().flatten().for_each(|answer| _ = answer.send(Err(status.clone())));
    }
}

/// Gets that wait for the answers to one call, by their places in it.
struct Answers(Vec<Option<oneshot::Sender<Result<v1::LocateReply, Status>>>>);

impl Answers {
    /// Hands out answers until all are there or no get waits any more.
    async fn take_from(
        &mut self,
        mut coordinator: CoordinatorClient<Channel>,
        requests: Vec<v1::LocateRequest>,
    ) -> Result<(), Status> {
        let call = coordinator.locate_all(v1::LocateAllRequest { requests });
        let mut replies = tokio::select! {
            replies = call => replies?.into_inner(),
            () = self.all_left() => return Ok(()),
        };
        loop {
            let reply = tokio::select! {
                reply = replies.message() => reply?,
                () = self.all_left() => return Ok(()),
            };
            // Gets whose answers did not come see their channels dropped, and ask alone.
            let Some(v1::LocateAllReply { index, reply: Some(reply) }) = reply else { return Ok(()) };
            if let Some(answer) = self.0.get_mut(index as usize).and_then(Option::take) {
                let _ = answer.send(Ok(reply));
            }
        }
    }

    /// Until no get waits any more for an answer that did not come. A call whose answers all came ends by itself.
    async fn all_left(&mut self) {
        std::future::poll_fn(|context| {
            let (mut waits, mut left) = (0, 0);
            for answer in self.0.iter_mut().flatten() {
                let count = if answer.poll_closed(context).is_ready() { &mut left } else { &mut waits };
                *count += 1;
            }
            if waits == 0 && left > 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
