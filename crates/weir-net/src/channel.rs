//! gRPC channels: to a coordinator over TCP marked as control traffic, to an agent over its Unix socket.

use crate::Address;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A silent connection is probed this often, and given up after as long again.
const KEEPALIVE: Duration = Duration::from_secs(5);

fn endpoint(uri: &'static str) -> Endpoint {
    Endpoint::from_static(uri)
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
}

/// A channel to the coordinator at `address`; it connects when first used and again after failures.
pub fn coordinator_channel(address: impl Into<Address>) -> Channel {
    let address = address.into();
    endpoint("http://coordinator").connect_with_connector_lazy(service_fn(move |_| {
        let address = address.clone();
        async move {
            let stream = tokio::net::TcpStream::connect(address.as_str()).await?;
            crate::mark_control(&stream)?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    }))
}

/// A channel to the agent that listens on the Unix socket at `path`.
pub fn agent_channel(path: PathBuf) -> Channel {
    endpoint("http://agent").connect_with_connector_lazy(service_fn(move |_| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(tokio::net::UnixStream::connect(path).await?)) }
    }))
}
