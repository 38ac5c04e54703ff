//! Options of the two kinds of sockets: data (cubic, short unsent queue when scheduled) and control
//! (marked so that switches that honour DSCP send it first).

use linux_raw_sys::net::tcp_info;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use weir_model::{Hint, Span};

/// DSCP class selector 6, the class of network control traffic.
pub const CONTROL_DSCP: u32 = 48;
/// Congestion control of data sockets, set per socket: a machine's default may differ.
pub const CONGESTION_CONTROL: &str = "cubic";
/// Unsent bytes the kernel may hold for a scheduled flow, so that a pause takes effect at once and that
/// what counts as sent has really left.
const SCHEDULED_UNSENT_BYTES: u32 = 16 << 10;
/// Of a flow for whose end others wait. The kernel asks for more once half of it has gone, which on a share of a slow link is to be often.
const IN_TURN_UNSENT_BYTES: u32 = 64 << 10;
/// A peer that leaves bytes unacknowledged, or its window closed, for this long is given up; a receiver that
/// was only slow comes back and resumes.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(60);
/// Of linux/tcp.h, from Linux 6.15 on; libc does not have it yet.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// The least that the kernel takes for the longest time between tries.
const LONGEST_RETRY: Duration = Duration::from_secs(1);
/// Backlog of listening sockets.
const BACKLOG: i32 = 4096;

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A process that starts again may find connections of the one before in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Sets the congestion control, best before a socket connects or listens: where the machine's default is one
/// that paces (BBR), a socket that began with it stays paced after a change. A kernel without this module
/// keeps its default, and data still moves.
fn set_congestion_control(socket: &SockRef<'_>) {
    let _ = socket.set_tcp_congestion(CONGESTION_CONTROL.as_bytes());
}

/// A non-blocking listener for data connections. What it answers to those who connect is marked as control;
/// [`tune_served`] takes the mark off a connection again.
///
/// # Errors
/// The address cannot be bound, as where another process listens at it, or the kernel refuses an option.
pub fn data_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bound(address)?;
    set_congestion_control(&SockRef::from(&socket));
    mark_control(&socket)?;
    listen(socket)
}

/// A non-blocking listener for control connections; accepted ones inherit the mark.
///
/// # Errors
/// The address cannot be bound, as where another process listens at it, or the kernel refuses an option.
pub fn control_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bound(address)?;
    mark_control(&socket)?;
    listen(socket)
}

/// Says what a TCP socket sends from its next packet on, by its mark (`SO_MARK`): a tagger of this host that reads marks (`weir tag`) goes by it.
///
/// # Errors
///
/// The process has neither `CAP_NET_RAW` nor `CAP_NET_ADMIN`.
pub fn hint<'s>(socket: impl Into<SockRef<'s>>, hint: Hint) -> io::Result<()> {
    let socket = socket.into();
    socket.set_mark(hint.mark_after(socket.mark()?))
}

/// Marks a control connection and turns coalescing of small writes off.
///
/// # Errors
/// The kernel refuses an option, as where the socket is not of TCP.
pub fn mark_control<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    if socket.domain()? == Domain::IPV4 {
        // The class is the upper six bits of this byte; the lower two are of ECN.
        socket.set_tos_v4(CONTROL_DSCP << 2)?;
    }
    Ok(())
}

/// Prepares a data connection at its receiver, best before it connects. A receiver sends requests and
/// acknowledgements alone: marked as control they do not wait behind other hosts' data.
///
/// # Errors
/// The kernel refuses an option, as where the socket is not of TCP.
pub fn tune_receiver<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    tune_data(&socket)?;
    mark_control(socket)
}

/// Prepares a data connection at the host that serves it.
///
/// # Errors
/// The kernel refuses an option, as where the socket is not of TCP.
pub fn tune_served<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    tune_data(&socket)?;
    unmark(socket)
}

/// As [`tune_served`], where a tagger gives the packets of each flow a class. What is sent before that acknowledges requests: it stays
/// control. A class may wait long behind others, and what it lost then is sent again within a second.
///
/// # Errors
/// The kernel refuses an option, as where the socket is not of TCP.
pub fn tune_tagged(socket: impl AsFd) -> io::Result<()> {
    tune_data(&SockRef::from(&socket))?;
    retry_steadily(socket)
}

/// Takes the mark of control off a connection.
///
/// # Errors
/// The kernel refuses the option, as where the descriptor is no socket.
pub fn unmark<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    if socket.domain()? == Domain::IPV4 { socket.set_tos_v4(0) } else { Ok(()) }
}

/// A blocking connection for data, on which this end serves.
///
/// # Errors
/// The kernel gives no socket or refuses an option, or the peer cannot be reached or refuses the connection.
pub fn connect_to_send(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    tune_served(&socket)?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

fn tune_data(socket: &SockRef<'_>) -> io::Result<()> {
    // The end of a frame is not to wait until what went before it is acknowledged, as Nagle's
    // algorithm has it.
    socket.set_tcp_nodelay(true)?;
    set_congestion_control(socket);
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT))?;
    // On an idle connection the user timeout takes the place of the retries (tcp(7)), where it is
    // not taken off again.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)
}

/// How much of a flow the kernel holds unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// As much as the kernel lets it hold.
    Free,
    /// So much that the flow after it can begin before this one has ended.
    InTurn,
    /// Little: a new rate counts from the next chunk on.
    Scheduled,
}

/// Bounds what the kernel holds unsent of what is written to a connection.
///
/// # Errors
/// The kernel refuses the option, as where the socket is not of TCP.
pub fn tune_unsent<'s>(socket: impl Into<SockRef<'s>>, unsent: Unsent) -> io::Result<()> {
    let bytes = match unsent {
        Unsent::Free => u32::MAX,
        Unsent::InTurn => IN_TURN_UNSENT_BYTES,
        Unsent::Scheduled => SCHEDULED_UNSENT_BYTES,
    };
    socket.into().set_tcp_notsent_lowat(bytes)
}

/// Wakes the reader of a connection only once `bytes` can be read, or it ended. A paced flow arrives a
/// few segments at a time; without this every one of them would wake its reader.
///
/// # Errors
/// The kernel refuses the option, as where the descriptor is no socket.
pub fn wake_at(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes as libc::c_int)
}

/// Sets an option that has no safe wrapper in the libraries used here.
fn set_int(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call, and the pointer and length describe the
    // local integer.
    #[expect(unsafe_code, reason = "the libraries used here have no safe wrapper for any option")]
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has a connection whose packets may wait long in switches, behind those of a class before, send again what was lost within a second
/// of the end of that wait. The kernel doubles the time to its next try with each that is not answered, up to two minutes, for it takes
/// silence for congestion; of a class that is not served it says nothing. Kernels before Linux 6.15 do so after six tries.
fn retry_steadily(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    SockRef::from(&socket).set_tcp_thin_linear_timeouts(true)?;
    match set_int(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, LONGEST_RETRY.as_millis() as libc::c_int) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        set => set,
    }
}

/// Bytes written to a connection that its peer's kernel has not acknowledged, sent or not.
///
/// # Errors
/// The kernel does not say, as where the descriptor is no socket.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u64> {
    queued(socket, libc::TIOCOUTQ)
}

/// Bytes written to a connection that its own kernel has not sent.
///
/// # Errors
/// The kernel does not say, as where the descriptor is no socket.
pub fn unsent(socket: impl AsFd) -> io::Result<u64> {
    queued(socket, libc::SIOCOUTQNSD)
}

fn queued(socket: impl AsFd, which: libc::c_ulong) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for the length of the call, and both requests write one int.
    #[expect(unsafe_code, reason = "neither request has a safe wrapper in the libraries used here")]
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), which, &raw mut bytes) };
    if result == 0 { Ok(bytes as u64) } else { Err(io::Error::last_os_error()) }
}

/// What the kernel knows of the path of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPath {
    /// The shortest round trip of the last minutes: what it takes while no queue stands on the path. Zero if
    /// there was none yet.
    pub round_trip: Span,
    /// Payload bytes of a full segment.
    pub segment_bytes: u32,
    /// How long, in all, there was something to send and the receiver had no room for it.
    pub receiver_limited: Span,
    /// Segments that were sent again so far.
    pub retransmitted: u32,
}

/// Asks the kernel for the path of a connection.
///
/// # Errors
/// The kernel does not say, as where the socket is not of TCP.
pub fn tcp_path(socket: impl AsFd) -> io::Result<TcpPath> {
    // Zeroed, as older kernels know fewer fields and leave the others as they are.
    let mut info = MaybeUninit::<tcp_info>::zeroed();
    let mut length = size_of::<tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the call, which writes at most `length` bytes of
    // `info`, and every value of every byte is a `tcp_info`.
    #[expect(unsafe_code, reason = "TCP_INFO has no safe wrapper in the libraries used here")]
    let (result, info) = unsafe {
        let (fd, into) = (socket.as_fd().as_raw_fd(), info.as_mut_ptr().cast());
        let result = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length);
        (result, info.assume_init())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel's word for "none yet" is the largest value.
    let micros = if info.tcpi_min_rtt == u32::MAX { 0 } else { info.tcpi_min_rtt };
    let round_trip = Span::from_nanos(u64::from(micros) * 1000);
    let receiver_limited = Span::from_nanos(info.tcpi_rwnd_limited.saturating_mul(1000));
    let (segment_bytes, retransmitted) = (info.tcpi_snd_mss, info.tcpi_total_retrans);
    Ok(TcpPath { round_trip, segment_bytes, receiver_limited, retransmitted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn longest_retry_ms(socket: &TcpStream) -> io::Result<libc::c_int> {
        let (mut value, mut length) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the descriptor is open for the length of the call, and the pointers are of local integers.
        #[expect(unsafe_code, reason = "the libraries used here have no safe wrapper for this option")]
        let result = unsafe {
            let into = (&raw mut value).cast();
            libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_RTO_MAX_MS, into, &raw mut length)
        };
        if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
    }

    #[test]
    fn a_connection_that_is_tagged_tries_again_within_a_second_and_stays_control_until_it_has_a_class() {
        let listener = data_listener(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        tune_tagged(&far).unwrap();
        let said = SockRef::from(&far);
        assert!(said.tcp_thin_linear_timeouts().unwrap());
        match longest_retry_ms(&far) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                eprintln!("SKIPPED: the longest time between tries; it takes Linux 6.15");
            }
            said => assert_eq!(said.unwrap(), 1000),
        }
        assert_eq!(said.tos_v4().unwrap(), CONTROL_DSCP << 2);
        unmark(&far).unwrap();
        assert_eq!(said.tos_v4().unwrap(), 0);
    }

    #[test]
    fn the_kernel_tells_what_is_under_way_and_how_long_a_round_trip_takes() {
        let listener = data_listener(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listener.set_nonblocking(false).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        let path = tcp_path(&near).unwrap();
        assert!(path.round_trip > Span::ZERO && path.round_trip < Span::from_millis(1000), "{path:?}");
        assert!((500..1 << 16).contains(&path.segment_bytes), "{path:?}");
        // A receiver that reads nothing and a sender that writes all it can: the rest stays unacknowledged.
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[7; 65_536]) {
            written += count as u64;
        }
        let waiting = unacknowledged(&near).unwrap();
        assert!(waiting > 0 && waiting <= written, "{waiting} of {written}");
        let unsent = unsent(&near).unwrap();
        assert!(unsent > 0 && unsent <= waiting, "{unsent} of {waiting}");
        // And the kernel counts how long it waits for the receiver.
        let before = tcp_path(&near).unwrap().receiver_limited;
        std::thread::sleep(std::time::Duration::from_millis(50));
        let after = tcp_path(&near).unwrap().receiver_limited;
        assert!(after.nanos() >= before.nanos() + 20_000_000, "{before:?}, then {after:?}");
    }
}
