//! Connections between relays, and from hosts to relays.

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use weir_model::Rate;

/// A relay that leaves bytes unacknowledged, or takes none, for this long is given up: relays always read on, so
/// it or the way to it has failed.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(5);
/// Unsent bytes the kernel may hold for one connection, so that what goes first is decided late.
const UNSENT_BYTES: u32 = 128 << 10;

/// Begins a connection to a relay. It is there once it is writable and [`connected`] says so. A relay that takes
/// nothing for a long time is waited for, as long as its kernel answers.
///
/// # Errors
/// The kernel gives no socket, refuses an option, or knows at once that the address cannot be reached.
pub fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    crate::tune_served(&socket)?;
    socket.set_tcp_user_timeout(None)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Prepares a connection that carries many flows between relays, at either end.
///
/// # Errors
/// The kernel refuses an option, as where the socket is not of TCP.
pub fn tune_relay<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT))?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)
}

/// Has the kernel pace what a connection sends: this much at most, headers included.
///
/// # Errors
/// The kernel refuses the option, as where the descriptor is no socket.
pub fn limit_rate(socket: impl AsFd, rate: Rate) -> io::Result<()> {
    // 0 would be no limit, and so would the greatest value.
    let rate = (rate.bytes_per_sec() as u64).clamp(1, u64::MAX - 1);
    // SAFETY: `rate` is valid for reads of the length given, for the whole call.
    #[expect(unsafe_code, reason = "SO_MAX_PACING_RATE has no safe wrapper in the libraries used here")]
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a connection that was begun is there: `Ok(false)` while that is not known yet.
///
/// # Errors
/// The connection could not be made, or broke since.
pub fn connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes what a non-blocking socket takes of one part and the next, as if they were one. `None`: it takes nothing now.
///
/// # Errors
/// The connection is broken. A socket that takes nothing now is no error.
pub fn send_both(socket: impl AsFd, first: &[u8], second: &[u8]) -> io::Result<Option<usize>> {
    let parts = [IoSlice::new(first), IoSlice::new(second)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    match rustix::io::retry_on_intr(|| rustix::net::sendmsg(&socket, &parts, &mut control, flags)) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes what a non-blocking socket takes; `more`: other bytes follow at once. `None`: it takes nothing now.
///
/// # Errors
/// The connection is broken. A socket that takes nothing now is no error.
pub fn send(socket: impl AsFd, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    match rustix::io::retry_on_intr(|| rustix::net::send(&socket, bytes, flags)) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn two_parts_go_as_one_and_as_far_as_the_socket_takes_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!(send_both(&near, b"ab", b"cde").unwrap(), Some(5));
        let mut got = [0; 5];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"abcde");
        // The far end does not read: a part is taken, and then nothing.
        let large = vec![7; 64 << 20];
        let taken = send_both(&near, b"ab", &large).unwrap().unwrap();
        assert!(taken > 2 && taken < large.len());
        let mut left = 0;
        while let Some(count) = send_both(&near, &large, b"ab").unwrap() {
            left += count;
        }
        assert!(left < large.len());
    }
}
