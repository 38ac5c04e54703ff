//! Asking where blocks are: what gets of one client that ask at the same moment share, and what they do not.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weir_client::{Client, ClientConfig, GetError, GetOptions};
use weir_proto::v1::coordinator_server::{Coordinator, CoordinatorServer};
use weir_proto::{limits, v1};

/// Answers each question with the block's name, as the reason of a refusal; those for `late` once it is told to.
#[derive(Clone, Default)]
struct Fake {
    /// Whether it answers one question per call, as version 0.1 did at first.
    is_old: bool,
    alone: Arc<AtomicUsize>,
    together: Arc<AtomicUsize>,
    /// Questions whether a coflow was let in; the answer is always, and at once, that nothing is decided.
    admissions: Arc<AtomicUsize>,
    release: Arc<Notify>,
    /// A caller left before all was answered.
    left: Arc<Notify>,
}

impl Fake {
    /// Calls for one block, and for many.
    fn calls(&self) -> (usize, usize) {
        (self.alone.load(Ordering::SeqCst), self.together.load(Ordering::SeqCst))
    }
}

fn named(request: &v1::LocateRequest) -> v1::LocateReply {
    v1::LocateReply { refused: request.block.clone(), ..v1::LocateReply::default() }
}

fn unknown<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not here"))
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Coordinator for Fake {
    async fn locate(&self, request: Request<v1::LocateRequest>) -> Result<Response<v1::LocateReply>, Status> {
        self.alone.fetch_add(1, Ordering::SeqCst);
        let request = request.into_inner();
        if request.block.len() > limits::MAX_BLOCK_NAME_BYTES {
            return Err(Status::invalid_argument("too long"));
        }
        Ok(Response::new(named(&request)))
    }

    type LocateAllStream = Answers<v1::LocateAllReply>;

    async fn locate_all(
        &self,
        request: Request<v1::LocateAllRequest>,
    ) -> Result<Response<Self::LocateAllStream>, Status> {
        self.together.fetch_add(1, Ordering::SeqCst);
        if self.is_old {
            return unknown();
        }
        let (sender, answers) = mpsc::channel(64);
        let (release, left) = (self.release.clone(), self.left.clone());
        tokio::spawn(async move {
            let requests = request.into_inner().requests;
            let (late, others): (Vec<_>, Vec<_>) =
                (0..).zip(&requests).partition(|(_, request)| request.block == "late");
            // In another order than they were asked in.
            for (index, request) in others.into_iter().rev() {
                let _ = sender.send(Ok(v1::LocateAllReply { index, reply: Some(named(request)) })).await;
            }
            for (index, request) in late {
                tokio::select! {
                    () = sender.closed() => return left.notify_one(),
                    () = release.notified() => {}
                }
                let _ = sender.send(Ok(v1::LocateAllReply { index, reply: Some(named(request)) })).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn register(&self, _: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterReply>, Status> {
        unknown()
    }
    async fn seal(&self, _: Request<v1::SealRequest>) -> Result<Response<v1::SealReply>, Status> {
        unknown()
    }
    async fn expect(&self, _: Request<v1::ExpectRequest>) -> Result<Response<v1::ExpectReply>, Status> {
        unknown()
    }
    async fn unregister(
        &self,
        _: Request<v1::UnregisterRequest>,
    ) -> Result<Response<v1::UnregisterReply>, Status> {
        unknown()
    }
    async fn renew(&self, _: Request<v1::RenewRequest>) -> Result<Response<v1::RenewReply>, Status> {
        unknown()
    }
    async fn await_admission(
        &self,
        _: Request<v1::AdmissionRequest>,
    ) -> Result<Response<v1::AdmissionReply>, Status> {
        self.admissions.fetch_add(1, Ordering::SeqCst);
        let admission = v1::Admission::Undecided.into();
        Ok(Response::new(v1::AdmissionReply { admission, ..v1::AdmissionReply::default() }))
    }
    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        unknown()
    }
    async fn forget(&self, _: Request<v1::ForgetRequest>) -> Result<Response<v1::ForgetReply>, Status> {
        unknown()
    }
    async fn drain(&self, _: Request<v1::DrainRequest>) -> Result<Response<v1::DrainReply>, Status> {
        Err(Status::unimplemented("of an older version"))
    }

    async fn change(&self, _: Request<v1::ChangeRequest>) -> Result<Response<v1::ChangeReply>, Status> {
        Err(Status::unimplemented("of an older version"))
    }

    async fn offer(&self, _: Request<v1::OfferRequest>) -> Result<Response<v1::OfferReply>, Status> {
        unknown()
    }
    async fn list_blocks(
        &self,
        request: Request<v1::ListBlocksRequest>,
    ) -> Result<Response<v1::ListBlocksReply>, Status> {
        // It never gets on.
        let blocks = vec![v1::BlockHolders { block: "b".to_owned(), ..v1::BlockHolders::default() }];
        let more_after = if request.into_inner().coflow == 1 { "b" } else { "" }.to_owned();
        Ok(Response::new(v1::ListBlocksReply { blocks, more_after, ended: false }))
    }
    async fn terms(&self, _: Request<v1::TermsRequest>) -> Result<Response<v1::TermsReply>, Status> {
        unknown()
    }
    type AttachStream = Answers<v1::CoordinatorMessage>;
    async fn attach(
        &self,
        _: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        unknown()
    }
}

async fn client(fake: &Fake) -> anyhow::Result<Client> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let served = tonic::transport::Server::builder().add_service(CoordinatorServer::new(fake.clone()));
    tokio::spawn(served.serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)));
    Ok(Client::new(ClientConfig { coordinator: Some(address.into()), agent: None, host: 0 }))
}

/// Begins to get blocks of these names, all at once. Each ends with its name and the coordinator's answer.
fn get(client: &Client, names: impl IntoIterator<Item = String>) -> JoinSet<(String, String)> {
    let mut gets = JoinSet::new();
    for name in names {
        let client = client.clone();
        gets.spawn(async move {
            let options = GetOptions { time_limit: Duration::from_secs(60), ..GetOptions::default() };
            match client.get(1, &name, options).next().await {
                Err(GetError::CoflowRefused { reason, .. } | GetError::NotLocated(reason)) => (name, reason),
                other => panic!("{other:?}"),
            }
        });
    }
    gets
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|block| format!("block {block}"))
}

async fn each_hears_its_own(gets: &mut JoinSet<(String, String)>, count: usize) {
    for _ in 0..count {
        let Some(Ok((name, reason))) = gets.join_next().await else { panic!("a get did not end") };
        assert_eq!(name, reason);
    }
}

#[tokio::test]
async fn gets_that_ask_at_once_share_a_call_and_none_waits_for_another_s_block() {
    let fake = Fake::default();
    let client = client(&fake).await.unwrap();
    let mut gets = get(&client, names(20).chain(["late".to_owned()]));
    each_hears_its_own(&mut gets, 20).await;
    assert_eq!((gets.len(), fake.calls()), (1, (0, 1)));
    // While one waits, others ask anew.
    let mut more = get(&client, names(3));
    each_hears_its_own(&mut more, 3).await;
    fake.release.notify_one();
    each_hears_its_own(&mut gets, 1).await;
    assert_eq!(fake.calls(), (0, 2));
}

#[tokio::test]
async fn a_get_alone_asks_as_ever() {
    let fake = Fake::default();
    let client = client(&fake).await.unwrap();
    each_hears_its_own(&mut get(&client, names(1)), 1).await;
    assert_eq!(fake.calls(), (1, 0));
}

#[tokio::test]
async fn a_coordinator_that_takes_one_question_per_call_is_asked_one_by_one() {
    let fake = Fake { is_old: true, ..Fake::default() };
    let client = client(&fake).await.unwrap();
    for round in 1..3 {
        each_hears_its_own(&mut get(&client, names(5)), 5).await;
        assert_eq!(fake.calls(), (5 * round, 1), "it is tried once");
    }
}

#[tokio::test]
async fn a_name_that_is_refused_has_no_other_get_refused() {
    let fake = Fake::default();
    let client = client(&fake).await.unwrap();
    let long = "x".repeat(limits::MAX_BLOCK_NAME_BYTES + 1);
    let mut gets = get(&client, names(5).chain([long.clone()]));
    let mut refused = Vec::new();
    while let Some(ended) = gets.join_next().await {
        let (name, reason) = ended.unwrap();
        if name != reason {
            refused.push((name, reason));
        }
    }
    assert_eq!(refused, [(long, "too long".to_owned())]);
    assert_eq!(fake.calls(), (1, 1));
}

#[tokio::test]
async fn a_call_is_given_up_once_nobody_waits_for_it() {
    let fake = Fake::default();
    let client = client(&fake).await.unwrap();
    let mut gets = get(&client, names(5).chain(["late".to_owned()]));
    each_hears_its_own(&mut gets, 5).await;
    drop(gets);
    tokio::time::timeout(Duration::from_secs(20), fake.left.notified()).await.expect("the call goes on");
}

#[tokio::test]
async fn a_list_of_blocks_that_does_not_go_on_ends_in_an_error() -> anyhow::Result<()> {
    let client = client(&Fake::default()).await?;
    assert_eq!(client.blocks(2).await?.map(|blocks| blocks.len()), Some(1));
    let error = client.blocks(1).await.expect_err("it asks for ever");
    assert!(error.to_string().contains("does not go on"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_coordinator_that_answers_at_once_that_nothing_is_decided_is_asked_a_few_times_a_second()
-> anyhow::Result<()> {
    let fake = Fake::default();
    let client = client(&fake).await?;
    assert_eq!(client.admission(1, Duration::from_secs(1)).await?, None);
    // One at the beginning, one each 200 ms, and one at the end.
    let asked = fake.admissions.load(Ordering::SeqCst);
    assert!((1..=7).contains(&asked), "{asked} calls within a second");
    Ok(())
}
