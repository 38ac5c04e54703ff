//! Two hosts in namespaces of their own, and flows between them.

use std::env;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use weir_ebpf::{Config, ControlError, MarkError, TagError, Tagger};
use weir_endhost::thresholds::Thresholds;
use weir_model::Bytes;
use weir_testbed::{Bed, BedError, BedLinks, Place};

use crate::capture::Capture;

pub(crate) const SENDER: Place = Place::Host(0);
pub(crate) const RECEIVER: Place = Place::Host(1);
/// Slow, so that a capture keeps up with it.
const LINK_BPS: u64 = 100_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// One bed at a time: they share the processors, and count the machine's programs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `body` on two hosts, or says why not; where everything is to be tested that is a failure.
pub(crate) fn on_two_hosts(name: &str, body: impl FnOnce(&Hosts) -> Result<()>) {
    or_skip(name, || Hosts::new().and_then(|hosts| body(&hosts)));
}

/// Runs `body` on a bed, likewise.
pub(crate) fn on_bed(name: &str, links: &BedLinks, body: impl FnOnce(&Bed) -> Result<()>) {
    or_skip(name, || body(&Bed::create(links)?));
}

fn or_skip(name: &str, body: impl FnOnce() -> Result<()>) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poison| poison.into_inner());
    let result = body();
    let lack = |error: &anyhow::Error| {
        let of_bed =
            matches!(error.downcast_ref(), Some(BedError::NoRights { .. } | BedError::MissingTool { .. }));
        let of_marker = matches!(error.downcast_ref(), Some(MarkError::Program(TagError::NoRights)));
        let of_control = matches!(error.downcast_ref(), Some(ControlError::Program(TagError::NoRights)));
        of_bed || of_marker || of_control || matches!(error.downcast_ref(), Some(TagError::NoRights))
    };
    match result {
        Err(error) if lack(&error) && env::var("CI").as_deref() != Ok("true") => {
            let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {error:#}");
        }
        Err(error) => panic!("{error:?}"),
        Ok(()) => {}
    }
}

pub(crate) struct Hosts {
    bed: Bed,
}

/// A connection from the sender to the receiver.
pub(crate) struct Pair {
    pub(crate) sending: TcpStream,
    pub(crate) receiving: TcpStream,
}

impl Hosts {
    fn new() -> Result<Hosts> {
        let bed = Bed::create(&BedLinks::equal(2, LINK_BPS))?;
        let ends = [(SENDER, "fd00::1", RECEIVER, "fd00::2"), (RECEIVER, "fd00::2", SENDER, "fd00::1")];
        for (place, address, other, of_other) in ends {
            bed.run_at(place, || -> std::io::Result<()> {
                std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1")?;
                std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0")
            })??;
            run(&bed, place, "ip", &format!("-6 address add {address}/64 dev eth0 nodad"))?;
            // The bed's switches flood nothing, so hosts cannot ask for each other.
            let hardware = hardware_address(&bed, other)?;
            run(
                &bed,
                place,
                "ip",
                &format!("neighbour add {of_other} lladdr {hardware} dev eth0 nud permanent"),
            )?;
        }
        Ok(Hosts { bed })
    }

    pub(crate) fn bed(&self) -> &Bed {
        &self.bed
    }

    pub(crate) fn at<T: Send>(&self, place: Place, work: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.bed.run_at(place, work)?)
    }

    pub(crate) fn run(&self, place: Place, program: &str, arguments: &str) -> Result<String> {
        run(&self.bed, place, program, arguments)
    }

    pub(crate) fn tagger(&self, config: &Config) -> Result<Tagger> {
        Ok(self.at(SENDER, || Tagger::attach("eth0", config))??)
    }

    /// What arrives at the receiver from now on.
    pub(crate) fn capture(&self) -> Result<Capture> {
        self.at(RECEIVER, Capture::start)?
    }

    /// Segments that the sender lost or thought lost, of all its connections.
    pub(crate) fn sent_again(&self) -> Result<u64> {
        let counters = self.at(SENDER, || std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
        let mut of_tcp = counters.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = (of_tcp.next().unwrap_or_default(), of_tcp.next().unwrap_or_default());
        let mut pairs = names.split(' ').zip(values.split(' '));
        let (_, value) = pairs.find(|(name, _)| *name == "RetransSegs").context("no RetransSegs")?;
        Ok(value.parse()?)
    }

    pub(crate) fn v4(&self) -> IpAddr {
        self.bed.address(1).into()
    }

    pub(crate) fn v6() -> IpAddr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into()
    }

    /// The receiver listens, and the sender connects.
    pub(crate) fn connect(&self, to: IpAddr) -> Result<Pair> {
        let listener = self.at(RECEIVER, || TcpListener::bind((to, 0)))??;
        let port = listener.local_addr()?.port();
        let target = SocketAddr::new(to, port);
        let sending = self.at(SENDER, || TcpStream::connect_timeout(&target, PATIENCE))??;
        let receiving = accept(&listener)?;
        for stream in [&sending, &receiving] {
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
        }
        Ok(Pair { sending, receiving })
    }
}

/// Takes a connection, if one comes within the time limit.
pub(crate) fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error).context("accept"),
        }
    }
}

impl Pair {
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.sending.local_addr()?.port())
    }

    /// Sends so many bytes and waits until they were read.
    pub(crate) fn send(&mut self, bytes: usize) -> Result<()> {
        transfer(&mut self.sending, &mut self.receiving, bytes)
    }

    /// The same in the other direction.
    pub(crate) fn answer(&mut self, bytes: usize) -> Result<()> {
        transfer(&mut self.receiving, &mut self.sending, bytes)
    }
}

fn transfer(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) -> Result<()> {
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || to.read_exact(&mut vec![0; bytes]));
        from.write_all(&vec![7; bytes]).context("send")?;
        reader.join().map_err(|_| anyhow!("the reader panicked"))?.context("receive")
    })
}

/// Of a host's interface.
pub(crate) fn hardware_address(bed: &Bed, place: Place) -> Result<String> {
    let said = run(bed, place, "ip", "-o link show dev eth0")?;
    let after = said.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
    Ok(after.context("no hardware address")?.to_owned())
}

fn run(bed: &Bed, place: Place, program: &str, arguments: &str) -> Result<String> {
    let output = bed.command(place, program)?.args(arguments.split(' ')).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {arguments}: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The same thresholds for both kinds.
pub(crate) fn thresholds(bytes: &[u64]) -> Thresholds {
    Thresholds::same(bytes.iter().copied().map(Bytes).collect())
}
