//! The four flows with deadlines of Karuna's slide 21 on real connections, a tenth of each over 100 Mbit/s, beside a flow without
//! an end. Prints when each ended, and asserts nothing.
//!
//! ```sh
//! cargo run --release -p weir-ebpf --example deadlines -- --control weir_karuna --runs 10
//! ```
//!
//! By `weir_dctcp` all share the link alike, in the same class of the switch. `--alone 1` leaves the endless flow out.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use socket2::{Domain, Socket, Type};
use weir_ebpf::{Config, DEFAULT_DSCP, Dctcp, Karuna, Marker, Marking, McpConfig, Tagger};
use weir_endhost::thresholds::Thresholds;
use weir_model::{Bytes, Hint, Rate, Span};
use weir_testbed::{Bed, BedLinks, Place, Queues};

/// Sent before on each connection: the kernel paces none of a connection's first ten segments.
const WARM_UP: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(20);
const RATE_BPS: u64 = 100_000_000;
/// From which on the queues of flows without a deadline mark.
const OTHERS_THRESHOLD: u64 = 60_000;

/// A flow: when it begins, its bytes, and the time it has; milliseconds.
struct Flow {
    at: u64,
    bytes: usize,
    within: u64,
}

/// Megabits of the slide: 14.4 by 20 ms, 48 by 120 ms, 3 from 50 ms by 5 ms, 0.5 from 80 ms by 10 ms.
const FLOWS: [Flow; 4] = [
    Flow { at: 0, bytes: 180_000, within: 20 },
    Flow { at: 0, bytes: 600_000, within: 120 },
    Flow { at: 50, bytes: 37_500, within: 5 },
    Flow { at: 80, bytes: 6_250, within: 10 },
];

struct Options {
    control: String,
    runs: usize,
    threshold: u64,
    base_rtt: f64,
    /// How much longer each time is than the slide's, so that it has more round trips of this network.
    slower: u64,
    alone: bool,
    /// Most bytes that a host hands down in one piece.
    segment_bytes: u32,
}

fn options() -> Result<Options> {
    let mut options = Options {
        control: Karuna::NAME.to_owned(),
        runs: 3,
        threshold: 7_500,
        base_rtt: 600e-6,
        slower: 1,
        alone: false,
        segment_bytes: 3000,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} takes a value"))?;
        match word.as_str() {
            "--control" => options.control = value,
            "--runs" => options.runs = value.parse()?,
            "--threshold" => options.threshold = value.parse()?,
            "--base-rtt" => options.base_rtt = value.parse()?,
            "--slower" => options.slower = value.parse()?,
            "--segment-bytes" => options.segment_bytes = value.parse()?,
            "--alone" => options.alone = value == "1",
            _ => bail!(
                "{word}: there are --control, --runs, --threshold, --base-rtt (s), --slower, --segment-bytes and --alone (0 or 1)"
            ),
        }
    }
    Ok(options)
}

fn main() -> Result<()> {
    let options = options()?;
    let mut met = [0; FLOWS.len()];
    let mut late_in_window = [0; FLOWS.len()];
    for run in 1..=options.runs {
        for (at, share) in one_run(&options, run)?.into_iter().enumerate() {
            met[at] += usize::from(share <= 1.0);
            late_in_window[at] += usize::from((0.9..=1.0).contains(&share));
        }
    }
    println!(
        "met, by flow: {met:?} of {} runs; in the last tenth of their time: {late_in_window:?}",
        options.runs
    );
    Ok(())
}

fn link() -> Option<Rate> {
    Some(Rate::from_bytes_per_sec(RATE_BPS as f64 / 8.0))
}

/// When each flow ended, as a share of the time that it had.
fn one_run(options: &Options, run: usize) -> Result<Vec<f64>> {
    let senders = FLOWS.len() + 1;
    let links = BedLinks {
        queues: Queues::ByDscp(DEFAULT_DSCP),
        segment_bytes: Some(options.segment_bytes),
        ..BedLinks::equal(senders + 1, RATE_BPS)
    };
    let bed = Bed::create(&links)?;
    let mut marking = Marking::new(Bytes(OTHERS_THRESHOLD), std::array::from_fn(Queues::htb_class));
    marking.thresholds[0] = Bytes(options.threshold);
    let _marker = bed.run_in_switch(|| Marker::attach(&bed.switch_port(0), &marking))??;
    // Types 2 and 3 below the first class; nothing of them is large here but the endless one, which is in the last.
    let config = Config::new(Thresholds::same(vec![Bytes(1)]));
    // One for the machine: hints are of sockets, and the congestion control goes by them.
    let mut tagger = bed.run_at(Place::Host(1), || Tagger::attach("eth0", &config))??;
    for host in 2..=senders {
        bed.run_at(Place::Host(host), || tagger.attach_also("eth0"))??;
    }
    let base_rtt = Span::from_secs_ceil(options.base_rtt);
    let dctcp = (options.control == Dctcp::NAME).then(Dctcp::register).transpose()?;
    let mut shares = Vec::new();
    let karuna = match dctcp {
        Some(_) => None,
        None => Some(Karuna::register(&tagger, &McpConfig::new(base_rtt, link()))?),
    };
    let listener = listen(&bed, &options.control)?;
    let target = SocketAddr::from((bed.address(0), listener.local_addr()?.port()));
    let mut pairs = Vec::new();
    for host in 1..=senders {
        let mut pair = (connect(&bed, host, target, &options.control)?, listener.accept()?.0);
        tagger.hint(&pair.0, Hint::Known(Bytes(WARM_UP as u64)))?;
        pair.0.write_all(&[7; WARM_UP])?;
        pair.1.read_exact(&mut [0; WARM_UP])?;
        pairs.push(pair);
    }
    let (over, others) = (AtomicBool::new(false), AtomicU64::new(0));
    let elapsed = std::thread::scope(|scope| -> Result<Duration> {
        let (endless, read) = pairs.pop().context("a pair")?;
        if !options.alone {
            let (over, others) = (&over, &others);
            tagger.hint(&endless, Hint::Unknown)?;
            let mut sending = endless.try_clone()?;
            scope.spawn(
                move || while !over.load(Ordering::Relaxed) && sending.write_all(&[7; 65536]).is_ok() {},
            );
            let mut reading = read.try_clone()?;
            scope.spawn(move || {
                let mut room = vec![0; 65536];
                while let Ok(count @ 1..) = reading.read(&mut room) {
                    others.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
            std::thread::sleep(Duration::from_millis(300));
        }
        others.store(0, Ordering::Relaxed);
        let begun = Instant::now();
        let tagger = &tagger;
        let running: Vec<_> = FLOWS
            .iter()
            .zip(pairs.drain(..))
            .map(|(flow, (sending, receiving))| {
                scope.spawn(move || one_flow(options, flow, tagger, begun, sending, receiving))
            })
            .collect();
        for flow in running {
            shares.push(flow.join().map_err(|_| anyhow::anyhow!("a flow panicked"))??);
        }
        let elapsed = begun.elapsed();
        over.store(true, Ordering::Relaxed);
        let _ = (endless.shutdown(std::net::Shutdown::Both), read.shutdown(std::net::Shutdown::Both));
        Ok(elapsed)
    })?;
    drop(karuna);
    let words: Vec<String> = shares.iter().map(|share| format!("{:.1} %", share * 100.0)).collect();
    println!(
        "run {run}: ended after {} of their time; the endless flow had {:.1} Mbit/s meanwhile",
        words.join(", "),
        others.load(Ordering::Relaxed) as f64 * 8e-6 / elapsed.as_secs_f64(),
    );
    Ok(shares)
}

fn one_flow(
    options: &Options,
    flow: &Flow,
    tagger: &Tagger,
    begun: Instant,
    mut sending: TcpStream,
    mut receiving: TcpStream,
) -> Result<f64> {
    let (at, within) = (flow.at * options.slower, flow.within * options.slower);
    let bytes = flow.bytes * options.slower as usize;
    std::thread::sleep((begun + Duration::from_millis(at)).saturating_duration_since(Instant::now()));
    let size = Bytes(bytes as u64);
    tagger.hint(&sending, Hint::Deadline { size, within: Span::from_nanos(within * 1_000_000) })?;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || receiving.read_exact(&mut vec![0; bytes]).map(|()| Instant::now()));
        sending.write_all(&vec![7; bytes])?;
        let ended = reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        Ok((ended - started).as_secs_f64() * 1e3 / within as f64)
    })
}

fn listen(bed: &Bed, control: &str) -> Result<TcpListener> {
    bed.run_at(Place::Host(0), || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_tcp_congestion(control.as_bytes())?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
        socket.listen(64)?;
        Ok(socket.into())
    })?
}

fn connect(bed: &Bed, host: usize, target: SocketAddr, control: &str) -> Result<TcpStream> {
    bed.run_at(Place::Host(host), || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_tcp_congestion(control.as_bytes())?;
        socket.connect_timeout(&target.into(), PATIENCE)?;
        socket.set_tcp_nodelay(true)?;
        Ok(socket.into())
    })?
}
