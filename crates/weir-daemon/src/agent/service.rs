//! The agent's face to the tasks of its host: gRPC on a Unix socket.

use super::blocks::{is_of_the_file, is_unchanged};
use super::spool::Spool;
use super::{AgentOptions, Command, Commands};
use anyhow::Context;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};
use weir_core::agent::{BlockEntry, FileStamp, PutError};
use weir_net::Address;
use weir_proto::data::Identity;
use weir_proto::v1::agent_server::{Agent, AgentServer};
use weir_proto::{limits, v1};

/// How long finding the file of a put may take.
const FILE_LIMIT: Duration = Duration::from_secs(8);

struct Service {
    host: u32,
    places: Places,
    data_address: Address,
    relays: Option<v1::RelaysOfHost>,
    commands: Commands,
}

/// Serves until an error. A socket left by an earlier process is replaced.
pub(super) async fn serve(
    options: &AgentOptions,
    spool: &Spool,
    data_address: Address,
    commands: Commands,
) -> anyhow::Result<()> {
    let path = spool.socket();
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    if let Some(group) = options.group {
        super::spool::open_to(&path, group, super::SOCKET_MODE)?;
    }
    let allow: Vec<PathBuf> =
        options.allow.iter().map(|path| allowed(path)).collect::<anyhow::Result<_>>()?;
    let relays = options.relays.as_ref().map(|relays| v1::RelaysOfHost {
        site: relays.site,
        addresses: relays.addresses.iter().map(SocketAddr::to_string).collect(),
    });
    let places = Places { spool: spool.clone(), allow };
    let service = Service { host: options.host, places, data_address, relays, commands };
    let server = AgentServer::new(service).max_decoding_message_size(limits::MAX_PUT_BYTES);
    tonic::transport::Server::builder()
        .add_service(server)
        .serve_with_incoming(weir_net::incoming(listener))
        .await?;
    Ok(())
}

/// A directory below which files may be served.
fn allowed(path: &Path) -> anyhow::Result<PathBuf> {
    let found = path.canonicalize().with_context(|| format!("--allow {}", path.display()))?;
    anyhow::ensure!(found.is_dir(), "--allow {} is not a directory", path.display());
    Ok(found)
}

/// What a put may name: the spool's own blocks, and files below directories that may be served.
#[derive(Clone)]
struct Places {
    spool: Spool,
    allow: Vec<PathBuf>,
}

impl Places {
    /// The file that holds a block, if it may be served and is long enough. Waits for the disk.
    fn file_of(&self, put: &v1::PutRequest) -> Result<(PathBuf, FileStamp), Status> {
        let path = self.resolve(put)?;
        let (_, found) = weir_net::open_regular(&path).map_err(|error| unopened(&path, &error))?;
        let end = put.offset.checked_add(put.size);
        if end.is_none_or(|end| end > found.length) {
            return Err(Status::out_of_range(format!(
                "{} has {} bytes; the block would need {} from {}",
                path.display(),
                found.length,
                put.size,
                put.offset
            )));
        }
        if put.spooled && found.links != 1 {
            return Err(Status::permission_denied(format!("{} has other names too", path.display())));
        }
        let weir_net::FileStamp { inode, modified_ns, length, .. } = found;
        Ok((path, FileStamp { inode, modified_ns, length }))
    }

    /// The file a put names, if it may be served.
    fn resolve(&self, put: &v1::PutRequest) -> Result<PathBuf, Status> {
        if put.path.len() > limits::MAX_PATH_BYTES {
            let most = limits::MAX_PATH_BYTES;
            return Err(Status::invalid_argument(format!("a path has at most {most} bytes")));
        }
        if put.spooled {
            return if super::spool::is_block_name(&put.path) {
                Ok(self.spool.blocks.join(&put.path))
            } else {
                Err(Status::invalid_argument(
                    "a spooled block is named by its file name alone: 32 hexadecimal digits and `.block`",
                ))
            };
        }
        let named = Path::new(&put.path);
        let path = named.canonicalize().map_err(|error| unopened(named, &error))?;
        // Whatever else may be served: links that members of a group make there lead nowhere.
        if path.starts_with(&self.spool.top) {
            return Err(Status::permission_denied(format!("{} is the agent's own file", path.display())));
        }
        if self.allow.iter().any(|allowed| path.starts_with(allowed)) {
            Ok(path)
        } else {
            Err(Status::permission_denied(format!(
                "{} is not below a directory this agent may serve (its --allow)",
                path.display()
            )))
        }
    }
}

/// Why a put has no file: for good, or because of the machine, which the task may try again.
fn unopened(path: &Path, error: &std::io::Error) -> Status {
    let reason = format!("{}: {error}", path.display());
    if is_of_the_file(error) { Status::not_found(reason) } else { Status::unavailable(reason) }
}

impl Service {
    /// Finds the file of a put on a thread that may wait for it.
    async fn file_of(&self, put: &v1::PutRequest) -> Result<(PathBuf, FileStamp), Status> {
        let (places, named) =
            (self.places.clone(), v1::PutRequest { frame_checksums: Vec::new(), ..put.clone() });
        let found = tokio::task::spawn_blocking(move || places.file_of(&named));
        match tokio::time::timeout(FILE_LIMIT, found).await {
            Ok(found) => found.map_err(|error| Status::internal(error.to_string()))?,
            Err(_) => Err(Status::unavailable(format!("{} could not be opened in time", put.path))),
        }
    }

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
        self.commands.send(Command::Places(entry.coflow, entry.block.clone(), reply)).await;
        let places = answer.await.unwrap_or_default();
        let looked = tokio::task::spawn_blocking(move || {
            let is_lost = |place: &BlockEntry| match weir_net::open_regular(Path::new(&place.path)) {
                Ok((_, found)) => !is_unchanged(place, found),
                Err(error) => is_of_the_file(&error),
            };
            places.into_iter().filter(is_lost).collect::<Vec<_>>()
        });
        let Ok(Ok(lost)) = tokio::time::timeout(FILE_LIMIT, looked).await else { return false };
        for place in &lost {
            tracing::warn!(path = place.path, coflow = place.coflow, "a block's file is not what was put");
            let gone = Command::PlaceGone(place.coflow, place.block.clone(), place.place());
            self.commands.send(gone).await;
        }
        !lost.is_empty()
    }

    async fn has_ended(&self, coflow: u64) -> bool {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::HasEnded(coflow, reply)).await;
        answer.await.unwrap_or(false)
    }
}

#[tonic::async_trait]
impl Agent for Service {
    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutReply>, Status> {
        let put = request.into_inner();
        if put.block.len() > limits::MAX_BLOCK_NAME_BYTES {
            return Err(Status::invalid_argument(PutError::Name.to_string()));
        }
        if put.size > limits::MAX_BLOCK_BYTES {
            return Err(Status::invalid_argument(PutError::TooLarge(put.size).to_string()));
        }
        let (path, stamp) = match self.file_of(&put).await {
            Ok(found) => found,
            // The file may be gone because its coflow is: then that is the reason to give.
            Err(_) if self.has_ended(put.coflow).await => {
                return Err(Status::invalid_argument(PutError::Ended(put.coflow).to_string()));
            }
            Err(status) => return Err(status),
        };
        let path = path
            .into_os_string()
            .into_string()
            .map_err(|_| Status::invalid_argument("a path must be UTF-8"))?;
        let entry = BlockEntry {
            coflow: put.coflow,
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
        };
        let mut answer = self.note(&entry).await?;
        if matches!(answer, Err(PutError::Taken { .. })) && self.lost_places(&entry).await {
            // An earlier attempt of the task has cleaned up.
            answer = self.note(&entry).await?;
        }
        match answer {
            Ok(()) => Ok(Response::new(v1::PutReply {})),
            Err(error @ PutError::Taken { .. }) => Err(Status::already_exists(error.to_string())),
            Err(error @ (PutError::Full | PutError::NoSpace(_))) => {
                Err(Status::resource_exhausted(error.to_string()))
            }
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        }
    }

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeReply>, Status> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Latencies(reply)).await;
        let latencies = answer.await.map_err(|_| Status::unavailable("the agent is shutting down"))?;
        Ok(Response::new(v1::DescribeReply {
            host: self.host,
            spool: self.places.spool.blocks.display().to_string(),
            data_address: self.data_address.to_string(),
            first_bytes: latencies
                .first_bytes
                .into_iter()
                .map(|(coflow, at)| v1::FirstByte { coflow, at_ns: at.nanos() })
                .collect(),
            replan_us: latencies.replan_us.into(),
            relays: self.relays.clone(),
        }))
    }
}
