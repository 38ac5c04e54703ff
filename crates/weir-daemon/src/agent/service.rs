//! The agent's face to the tasks of its host: gRPC on a Unix socket.

use super::blocks::is_of_the_file;
use super::jobs::is_unchanged;
use super::naming::Naming;
use super::places::Places;
use super::spool::Spool;
use super::{AgentOptions, Command, Commands};
use anyhow::Context;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};
use weir_core::agent::{BlockEntry, PutError, StoreEntry, StoreError};
use weir_model::CoflowId;
use weir_net::{Address, Peer};
use weir_proto::data::Identity;
use weir_proto::gather::Token;
use weir_proto::v1::agent_server::{Agent, AgentServer};
use weir_proto::{limits, v1};

/// How often it is looked whether the socket is still there.
const SOCKET_INTERVAL: Duration = Duration::from_secs(1);

struct Service {
    naming: Arc<Naming>,
    places: Arc<Places>,
    /// Of files that are put for receivers elsewhere. Their file systems hold up no task of this host.
    shared: Arc<Places>,
    data_address: Address,
    /// Address of the coordinator; empty without one.
    coordinator: String,
    relays: Option<v1::RelaysOfHost>,
    commands: Commands,
}

/// Serves until an error. A socket left by an earlier process is replaced, and one that was removed meanwhile is made again.
pub(super) async fn serve(
    options: &AgentOptions,
    spool: &Spool,
    (naming, data_address): (Arc<Naming>, Address),
    commands: Commands,
    offers: mpsc::Receiver<v1::Offer>,
) -> anyhow::Result<()> {
    let relays = options.relays.as_ref().map(|relays| v1::RelaysOfHost {
        site: relays.site,
        addresses: relays.addresses.iter().map(SocketAddr::to_string).collect(),
    });
    let places = Places::new(spool, "--allow", &options.allow, options.durability)?;
    let shared = Places::new(spool, "--share", &options.share, options.durability)?;
    let coordinator = options.coordinator.as_ref().map(ToString::to_string).unwrap_or_default();
    let service = Arc::new(Service { naming, places, shared, data_address, coordinator, relays, commands });
    let mut serving = JoinSet::new();
    serving.spawn(Arc::clone(&service).answer_offers(offers));
    let server = AgentServer::from_arc(service).max_decoding_message_size(limits::MAX_PUT_BYTES);
    let path = spool.socket();
    loop {
        let listener = bind(&path, options.group)?;
        let inode = inode_of(&path).await;
        let (removed, is_removed) = oneshot::channel::<()>();
        let router = tonic::transport::Server::builder().add_service(server.clone());
        // Tasks that are connected to a socket that was removed are served to the end of their calls, and connect again.
        serving.spawn(router.serve_with_incoming_shutdown(weir_net::incoming(listener), async {
            let _ = is_removed.await;
        }));
        loop {
            tokio::select! {
                Some(ended) = serving.join_next() => ended??,
                () = tokio::time::sleep(SOCKET_INTERVAL) => {}
            }
            if inode_of(&path).await != inode {
                break;
            }
        }
        tracing::warn!(path = %path.display(), "the agent's socket was removed; making it again");
        drop(removed);
    }
}

/// A new socket at a path.
fn bind(path: &Path, group: Option<u32>) -> anyhow::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    if let Some(group) = group {
        super::spool::open_to(path, group, super::SOCKET_MODE)?;
    }
    Ok(listener)
}

/// What is at a path, if anything is.
async fn inode_of(path: &Path) -> Option<u64> {
    tokio::fs::symlink_metadata(path).await.ok().map(|found| found.ino())
}

impl Service {
    /// Has a block noted, and its note written down.
    async fn note(&self, entry: &BlockEntry) -> Result<Result<(), PutError>, Status> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Put(Box::new(entry.clone()), reply)).await;
        answer.await.map_err(|_| Status::unavailable("the agent is shutting down"))
    }

    /// Looks whether the files of the block that has this one's name are what was put, and drops those that are not. True if
    /// there were any.
    async fn lost_places(&self, entry: &BlockEntry) -> bool {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Places(entry.key(), reply)).await;
        let places = answer.await.unwrap_or_default();
        let mut any = false;
        for place in places {
            let path = PathBuf::from(&place.path);
            let looked = self.places.slots.run(&path, move || {
                let is_lost = match weir_net::open_regular(Path::new(&place.path)) {
                    Ok(opened) => !is_unchanged(&place, opened.stamp),
                    Err(error) => is_of_the_file(&error),
                };
                (place, is_lost)
            });
            if let Ok((place, true)) = looked.await {
                tracing::warn!(
                    path = place.path,
                    coflow = place.coflow.0,
                    "a block's file is not what was put"
                );
                let gone = Command::PlaceGone(place.key(), place.place());
                self.commands.send(gone).await;
                any = true;
            }
        }
        any
    }

    async fn has_ended(&self, coflow: CoflowId) -> bool {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::HasEnded(coflow, reply)).await;
        answer.await.unwrap_or(false)
    }

    /// Puts a file that lies at one of these places.
    async fn put_file(&self, places: &Arc<Places>, put: v1::PutRequest) -> Result<(), Status> {
        if put.block.len() > limits::MAX_BLOCK_NAME_BYTES {
            return Err(Status::invalid_argument(PutError::Name.to_string()));
        }
        if put.size > limits::MAX_BLOCK_BYTES {
            return Err(Status::invalid_argument(PutError::TooLarge(put.size).to_string()));
        }
        let (path, stamp) = match places.file_of(&put).await {
            Ok(found) => found,
            // The file may be gone because its coflow is: then that is the reason to give.
            Err(_) if self.has_ended(CoflowId(put.coflow)).await => {
                return Err(Status::invalid_argument(PutError::Ended(CoflowId(put.coflow)).to_string()));
            }
            Err(status) => return Err(status),
        };
        let path = path
            .into_os_string()
            .into_string()
            .map_err(|_| Status::invalid_argument("a path must be UTF-8"))?;
        let entry = BlockEntry {
            coflow: CoflowId(put.coflow),
            block: put.block,
            path,
            offset: put.offset,
            size: put.size,
            spooled: put.spooled,
            frame_checksums: put.frame_checksums,
            stamp: Some(stamp),
            identity: Some(Identity::from_wire(&put.identity))
                .filter(Identity::is_known)
                .unwrap_or_else(|| Identity::drawn(rand::random())),
            durable: places.are_durable(),
        };
        let mut answer = self.note(&entry).await?;
        if matches!(answer, Err(PutError::Taken { .. })) && self.lost_places(&entry).await {
            // The block's files are gone or changed, as after an earlier attempt of the task that has cleaned up: its name is free now.
            answer = self.note(&entry).await?;
        }
        match answer {
            Ok(()) => Ok(()),
            Err(error @ PutError::Taken { .. }) => Err(Status::already_exists(error.to_string())),
            Err(error @ PutError::Draining) => Err(Status::failed_precondition(error.to_string())),
            Err(error @ (PutError::Full | PutError::NoSpace(_))) => {
                Err(Status::resource_exhausted(error.to_string()))
            }
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        }
    }

    /// Answers receivers elsewhere that name a file of this host.
    async fn answer_offers(
        self: Arc<Self>,
        mut offers: mpsc::Receiver<v1::Offer>,
    ) -> Result<(), tonic::transport::Error> {
        // Those that are looked at are bounded here; as many more wait, and others are told to ask again.
        let looks = Arc::new(Semaphore::new(limits::MAX_OFFERS_PER_AGENT));
        while let Ok(look) = Arc::clone(&looks).acquire_owned().await {
            let Some(offer) = offers.recv().await else { break };
            let service = Arc::clone(&self);
            tokio::spawn(async move {
                let token = offer.token;
                let answer = match service.offer(offer).await {
                    Ok(size) => v1::OfferAnswer { token, size, ..v1::OfferAnswer::default() },
                    Err(status) => v1::OfferAnswer {
                        token,
                        size: 0,
                        refused: status.message().to_owned(),
                        again: matches!(
                            status.code(),
                            tonic::Code::Unavailable | tonic::Code::ResourceExhausted
                        ),
                    },
                };
                service.commands.send(Command::Offered(answer)).await;
                drop(look);
            });
        }
        std::future::pending().await
    }

    async fn offer(&self, offer: v1::Offer) -> Result<u64, Status> {
        let v1::Offer { coflow, block, path, identity, .. } = offer;
        let size = self.shared.length_of(&path).await?;
        let put = v1::PutRequest { coflow, block, path, size, identity, ..v1::PutRequest::default() };
        self.put_file(&self.shared, put).await?;
        Ok(size)
    }
}

fn token_of(token: &[u8]) -> Result<Token, Status> {
    token
        .try_into()
        .map_err(|_| Status::invalid_argument(format!("a token has 16 bytes, not {}", token.len())))
}

fn refused_store(error: &StoreError) -> Status {
    let reason = error.to_string();
    match error {
        StoreError::Name | StoreError::Directories => Status::invalid_argument(reason),
        StoreError::Taken { .. } => Status::already_exists(reason),
        StoreError::Full => Status::resource_exhausted(reason),
        StoreError::Draining => Status::failed_precondition(reason),
        StoreError::Unknown { .. } => Status::not_found(reason),
    }
}

#[tonic::async_trait]
impl Agent for Service {
    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutReply>, Status> {
        self.put_file(&self.places, request.into_inner()).await?;
        Ok(Response::new(v1::PutReply {}))
    }

    async fn attach_store(
        &self,
        request: Request<v1::AttachStoreRequest>,
    ) -> Result<Response<v1::AttachStoreReply>, Status> {
        let user = request.extensions().get::<Peer>().and_then(|peer| peer.user);
        let user =
            user.ok_or_else(|| Status::permission_denied("the kernel does not say whose process asks"))?;
        let v1::AttachStoreRequest { application, executor, token, directories, subdirectories } =
            request.into_inner();
        // Counted first, so that no call has the agent look at thousands of directories.
        if directories.len() > limits::MAX_STORE_DIRECTORIES {
            return Err(refused_store(&StoreError::Directories));
        }
        let token = token_of(&token)?;
        let directories = self.places.directories_of(&directories, user).await?;
        let store = StoreEntry { application, executor, token, directories, subdirectories };
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Attach(Box::new(store), reply)).await;
        let ended = |_| Status::unavailable("the agent is shutting down");
        answer.await.map_err(ended)?.map_err(|error| refused_store(&error))?;
        let (host, data_address) = (self.naming.number().0, self.data_address.to_string());
        Ok(Response::new(v1::AttachStoreReply { host, data_address, relays: self.relays.clone() }))
    }

    async fn detach_store(
        &self,
        request: Request<v1::DetachStoreRequest>,
    ) -> Result<Response<v1::DetachStoreReply>, Status> {
        let v1::DetachStoreRequest { application, executor, token } = request.into_inner();
        let (reply, answer) = oneshot::channel();
        let token = token_of(&token)?;
        self.commands.send(Command::Detach(application, executor, token, reply)).await;
        let ended = |_| Status::unavailable("the agent is shutting down");
        answer.await.map_err(ended)?.map_err(|error| refused_store(&error))?;
        Ok(Response::new(v1::DetachStoreReply {}))
    }

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeReply>, Status> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Latencies(reply)).await;
        let latencies = answer.await.map_err(|_| Status::unavailable("the agent is shutting down"))?;
        Ok(Response::new(v1::DescribeReply {
            host: self.naming.number().0,
            spool: self.places.spool.blocks.display().to_string(),
            data_address: self.data_address.to_string(),
            first_bytes: latencies
                .first_bytes
                .into_iter()
                .map(|(coflow, at)| v1::FirstByte { coflow: coflow.0, at_ns: at.nanos() })
                .collect(),
            replan_us: latencies.replan_us.into(),
            coordinator: self.coordinator.clone(),
            relays: self.relays.clone(),
        }))
    }
}
