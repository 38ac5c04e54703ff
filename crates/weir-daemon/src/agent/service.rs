//! The agent's face to the tasks of its host: gRPC on a Unix socket.

use super::{AgentOptions, Command, Commands};
use anyhow::Context;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};
use weir_core::agent::{BlockEntry, PutError};
use weir_net::Address;
use weir_proto::data::Identity;
use weir_proto::v1::agent_server::{Agent, AgentServer};
use weir_proto::{limits, v1};

struct Service {
    host: u32,
    spool: PathBuf,
    allow: Vec<PathBuf>,
    data_address: Address,
    relays: Option<v1::RelaysOfHost>,
    commands: Commands,
}

/// Serves until an error. A socket left by an earlier process is replaced.
pub(super) async fn serve(
    options: &AgentOptions,
    data_address: Address,
    commands: Commands,
) -> anyhow::Result<()> {
    let path = options.socket_path();
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    let spool = options.spool.canonicalize()?;
    let allow: Vec<PathBuf> =
        options.allow.iter().map(|path| allowed(path)).collect::<anyhow::Result<_>>()?;
    let relays = options.relays.as_ref().map(|relays| v1::RelaysOfHost {
        site: relays.site,
        addresses: relays.addresses.iter().map(SocketAddr::to_string).collect(),
    });
    let service = Service { host: options.host, spool, allow, data_address, relays, commands };
    let server = AgentServer::new(service).max_decoding_message_size(limits::MAX_CONTROL_MESSAGE_BYTES);
    tonic::transport::Server::builder()
        .add_service(server)
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await?;
    Ok(())
}

/// A directory below which files may be served.
fn allowed(path: &Path) -> anyhow::Result<PathBuf> {
    let found = path.canonicalize().with_context(|| format!("--allow {}", path.display()))?;
    anyhow::ensure!(found.is_dir(), "--allow {} is not a directory", path.display());
    Ok(found)
}

impl Service {
    /// The file that holds a block, if it may be served and is long enough.
    fn file_of(&self, put: &v1::PutRequest) -> Result<PathBuf, Status> {
        let path = self.resolve(put)?;
        let found = std::fs::metadata(&path)
            .map_err(|error| Status::not_found(format!("{}: {error}", path.display())))?;
        let end = put.offset.checked_add(put.size);
        if !found.is_file() || end.is_none_or(|end| end > found.len()) {
            return Err(Status::out_of_range(format!(
                "{} has {} bytes; the block would need {} from {}",
                path.display(),
                found.len(),
                put.size,
                put.offset
            )));
        }
        Ok(path)
    }

    async fn has_ended(&self, coflow: u64) -> bool {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::HasEnded(coflow, reply));
        answer.await.unwrap_or(false)
    }

    /// The file a put names, if it may be served.
    fn resolve(&self, put: &v1::PutRequest) -> Result<PathBuf, Status> {
        let named = Path::new(&put.path);
        if put.spooled {
            let mut parts = named.components();
            return match (parts.next(), parts.next()) {
                (Some(Component::Normal(name)), None) => Ok(self.spool.join(name)),
                _ => Err(Status::invalid_argument("a spooled block is named by its file name alone")),
            };
        }
        let path = named
            .canonicalize()
            .map_err(|error| Status::not_found(format!("{}: {error}", named.display())))?;
        if path.starts_with(&self.spool) || self.allow.iter().any(|allowed| path.starts_with(allowed)) {
            Ok(path)
        } else {
            Err(Status::permission_denied(format!(
                "{} is not below a directory this agent may serve (its --allow)",
                path.display()
            )))
        }
    }
}

#[tonic::async_trait]
impl Agent for Service {
    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutReply>, Status> {
        let put = request.into_inner();
        let path = match self.file_of(&put) {
            Ok(path) => path,
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
            identity: Some(Identity::from_wire(&put.identity))
                .filter(Identity::is_known)
                .unwrap_or_else(|| Identity::drawn(rand::random())),
        };
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Put(Box::new(entry), reply));
        match answer.await {
            Ok(Ok(())) => Ok(Response::new(v1::PutReply {})),
            Ok(Err(error @ PutError::Taken { .. })) => Err(Status::already_exists(error.to_string())),
            Ok(Err(error @ PutError::Full)) => Err(Status::resource_exhausted(error.to_string())),
            Ok(Err(error)) => Err(Status::invalid_argument(error.to_string())),
            Err(_) => Err(Status::unavailable("the agent is shutting down")),
        }
    }

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeReply>, Status> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Latencies(reply));
        let latencies = answer.await.map_err(|_| Status::unavailable("the agent is shutting down"))?;
        Ok(Response::new(v1::DescribeReply {
            host: self.host,
            spool: self.spool.display().to_string(),
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
