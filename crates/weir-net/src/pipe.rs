//! Bytes on their way from one socket to another, held in a pipe: the kernel moves references to pages, and nothing is
//! copied through the process.
//!
//! A pipe has places for pages, not for bytes, so small segments can fill it early. What a pipe does not take, and
//! what comes while there is none to be had, is copied into memory instead.

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// Places for pages in one pipe, in bytes of whole pages: four times the longest message, for segments are shorter
/// than pages.
const PIPE_BYTES: usize = 1 << 20;
/// Most pipes of one pool.
const MAX_PIPES: usize = 1024;
/// A pool leaves half of the process's descriptors to connections; a pipe has two.
const DESCRIPTORS_PER_PIPE: u64 = 4;

/// Pipes that are empty and wait for bytes. Clones share them.
#[derive(Clone, Debug)]
pub struct PipePool(Rc<RefCell<Pool>>);

#[derive(Debug)]
struct Pool {
    idle: Vec<Pipe>,
    made: usize,
    most: usize,
}

impl Default for PipePool {
    fn default() -> PipePool {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most =
            descriptors.map_or(MAX_PIPES, |limit| MAX_PIPES.min((limit / DESCRIPTORS_PER_PIPE) as usize));
        PipePool(Rc::new(RefCell::new(Pool { idle: Vec::new(), made: 0, most })))
    }
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// A pipe of [`PIPE_BYTES`]. Fails where the kernel gives no user more of them.
    fn make() -> io::Result<Pipe> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES)?;
        Ok(Pipe { read, write })
    }
}

impl PipePool {
    /// Room for bytes: a pipe, or memory where there is none.
    pub fn payload(&self) -> Payload {
        Payload { pool: self.clone(), pipe: self.take(), in_pipe: 0, filled: 0, spill: None, spill_sent: 0 }
    }

    fn take(&self) -> Option<Pipe> {
        let mut pool = self.0.borrow_mut();
        if let Some(pipe) = pool.idle.pop() {
            return Some(pipe);
        }
        let pipe = (pool.made < pool.most).then(Pipe::make)?.ok()?;
        pool.made += 1;
        Some(pipe)
    }

    fn give_back(&self, pipe: Pipe, empty: bool) {
        let mut pool = self.0.borrow_mut();
        if empty {
            // It counts on as made: its descriptors stay open.
            pool.idle.push(pipe);
        } else {
            // Dropped here, and so closed: what is left in it would come before the bytes of the next message.
            pool.made -= 1;
        }
    }
}

/// How far filling came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// All that was wanted is here.
    All,
    /// The socket has no more for now.
    Waits,
    /// The socket ended before.
    Ended,
}

/// Bytes of one message.
#[derive(Debug)]
pub struct Payload {
    pool: PipePool,
    pipe: Option<Pipe>,
    in_pipe: usize,
    filled: usize,
    /// What came after the pipe was full, or without one.
    spill: Option<Vec<u8>>,
    spill_sent: usize,
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.pool.give_back(pipe, self.in_pipe == 0);
        }
    }
}

impl Payload {
    /// Takes bytes from a non-blocking socket until `length` of them are here in all.
    ///
    /// # Errors
    /// The connection is broken. A socket that has nothing to read is no error, nor is one whose peer has ended it.
    pub fn fill(&mut self, socket: impl AsFd, length: usize) -> io::Result<Filled> {
        while self.filled < length {
            let wanted = length - self.filled;
            let came = match &self.spill {
                None => self.splice_in(&socket, wanted)?,
                // Once bytes are in memory, all later ones are: the pipe's are sent first.
                Some(_) => self.copy_in(&socket, wanted)?,
            };
            match came {
                Some(0) => return Ok(Filled::Ended),
                Some(bytes) => self.filled += bytes,
                None if self.spill.is_none() && self.pipe_is_full(&socket) => self.spill = Some(Vec::new()),
                None => return Ok(Filled::Waits),
            }
        }
        Ok(Filled::All)
    }

    /// Whether it is the pipe that takes no more, rather than the socket that has none.
    fn pipe_is_full(&self, socket: impl AsFd) -> bool {
        self.pipe.is_none()
            || (self.in_pipe > 0 && rustix::io::ioctl_fionread(socket).is_ok_and(|bytes| bytes > 0))
    }

    fn splice_in(&mut self, socket: impl AsFd, wanted: usize) -> io::Result<Option<usize>> {
        let Some(pipe) = &self.pipe else { return Ok(None) };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let came = unless_again(|| rustix::pipe::splice(&socket, None, &pipe.write, None, wanted, flags))?;
        self.in_pipe += came.unwrap_or(0);
        Ok(came)
    }

    fn copy_in(&mut self, socket: impl AsFd, wanted: usize) -> io::Result<Option<usize>> {
        let spill = self.spill.get_or_insert_default();
        let before = spill.len();
        spill.resize(before + wanted, 0);
        let recv = || Ok(rustix::net::recv(&socket, &mut spill[before..], RecvFlags::DONTWAIT)?.1);
        let came = unless_again(recv);
        spill.truncate(before + came.as_ref().map_or(0, |bytes| bytes.unwrap_or(0)));
        came
    }

    /// Hands the bytes to a non-blocking socket, as many as it takes: how many, and whether none are left. `more`:
    /// other bytes follow at once.
    ///
    /// # Errors
    /// The connection is broken. A socket that takes no more now is no error.
    pub fn drain(&mut self, socket: impl AsFd, more: bool) -> io::Result<(u64, bool)> {
        let mut gone = 0;
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more || self.copied() > self.spill_sent);
        while self.in_pipe > 0 {
            let Some(pipe) = &self.pipe else { break };
            let went = || rustix::pipe::splice(&pipe.read, None, &socket, None, self.in_pipe, flags);
            match unless_again(went)? {
                None => return Ok((gone, false)),
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(bytes) => {
                    self.in_pipe -= bytes;
                    gone += bytes as u64;
                }
            }
        }
        while let Some(left) = self.spill.as_deref().and_then(|spill| spill.get(self.spill_sent..)) {
            if left.is_empty() {
                break;
            }
            match crate::send(&socket, left, more)? {
                None => return Ok((gone, false)),
                Some(bytes) => {
                    self.spill_sent += bytes;
                    gone += bytes as u64;
                }
            }
        }
        Ok((gone, true))
    }

    /// Bytes that are here and were not handed on.
    pub fn left(&self) -> usize {
        self.in_pipe + self.copied() - self.spill_sent
    }

    /// Bytes that were copied because no pipe took them.
    pub fn copied(&self) -> usize {
        self.spill.as_ref().map_or(0, Vec::len)
    }
}

/// `None` if the call would have had to wait.
fn unless_again(call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match rustix::io::retry_on_intr(call) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_nonblocking(true).unwrap();
        (near, far)
    }

    /// Moves `length` bytes through a payload of `pool`, in writes of `step`; says how many were copied.
    fn moves(pool: &PipePool, length: usize, step: usize) -> usize {
        let (mut source, middle) = pair();
        let (mut sink, onward) = pair();
        source.set_nodelay(true).unwrap();
        let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
        let mut payload = pool.payload();
        let mut ahead = 0;
        for part in bytes.chunks(step) {
            source.write_all(part).unwrap();
            ahead += part.len();
            // All that was written comes, if not at once: loopback delivers before the write returns.
            while payload.filled < ahead {
                assert!(payload.fill(&middle, ahead).unwrap() != Filled::Ended);
            }
        }
        assert_eq!(payload.fill(&middle, length).unwrap(), Filled::All);
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; length];
            sink.read_exact(&mut got).unwrap();
            got
        });
        while !payload.drain(&onward, false).unwrap().1 {}
        assert_eq!(reader.join().unwrap(), bytes);
        payload.copied()
    }

    #[test]
    fn bytes_pass_without_a_copy_and_the_pipe_is_used_again() {
        let pool = PipePool::default();
        for _ in 0..3 {
            assert_eq!(moves(&pool, 128 << 10, 128 << 10), 0);
        }
        assert_eq!(pool.0.borrow().made, 1);
    }

    /// A segment takes a whole place, however short it is. 1000 segments of 100 bytes are more than the 256 places of
    /// a pipe: the rest is copied, and nothing is lost.
    #[test]
    fn what_a_pipe_does_not_take_is_copied() {
        let copied = moves(&PipePool::default(), 100_000, 100);
        assert!(copied > 0 && copied < 100_000, "{copied}");
    }

    #[test]
    fn without_a_pipe_all_is_copied() {
        let pool = PipePool::default();
        pool.0.borrow_mut().most = 0;
        assert_eq!(moves(&pool, 100_000, 100_000), 100_000);
    }

    #[test]
    fn a_payload_that_is_dropped_full_leaves_no_bytes_to_the_next() {
        let pool = PipePool::default();
        let (mut source, middle) = pair();
        source.write_all(&[7; 1000]).unwrap();
        let mut payload = pool.payload();
        while payload.fill(&middle, 1000).unwrap() != Filled::All {}
        drop(payload);
        assert_eq!((pool.0.borrow().made, pool.0.borrow().idle.len()), (0, 0));
    }
}
