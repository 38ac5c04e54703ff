//! Where those listen who serve metrics.

use anyhow::Context;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Listens there, if anywhere.
pub(crate) async fn listen(address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address} for metrics"))?;
    tracing::info!(target: "weir::process", "metrics at http://{}/metrics", listener.local_addr()?);
    Ok(Some(listener))
}
