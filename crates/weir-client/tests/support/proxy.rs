//! A link that a test can cut: all connections to a relay pass it.

use std::net::SocketAddr;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    /// Counts the cuts.
    cuts: watch::Sender<u64>,
}

impl Link {
    /// Leads to `target`, whoever listens there at the time.
    pub(crate) async fn to(target: SocketAddr) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cuts, cut) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let mut cut = cut.clone();
                cut.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        () = carry(near, target) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Link { address, cuts }
    }

    /// Ends all connections; new ones can be made.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn carry(mut near: TcpStream, target: SocketAddr) {
    if let Ok(mut far) = TcpStream::connect(target).await {
        let _ = copy_bidirectional(&mut near, &mut far).await;
    }
}
