//! How evenly flows share a port of 100 Mbit/s that marks, by congestion control. Prints, and asserts nothing.
//!
//! ```sh
//! cargo run --release -p weir-ebpf --example fairness -- --control weir_dctcp --flows 2 --runs 5
//! ```
//!
//! With `--segment-bytes 65536` hosts hand down what the kernel would: a piece that is longer than the threshold is in the port's queue
//! at once, which starves one of two flows.
//!
//! Flows go from a host each to one host, all at once and without end. The first second is not counted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Socket, Type};
use weir_ebpf::{DEFAULT_DSCP, Dctcp, Marker, Marking, Marks};
use weir_model::Bytes;
use weir_testbed::{Bed, BedLinks, Place, Queues};

const PATIENCE: Duration = Duration::from_secs(20);
const WARM_UP: Duration = Duration::from_secs(1);
const CHUNK: usize = 128 << 10;

struct Options {
    control: String,
    flows: usize,
    runs: usize,
    seconds: f64,
    threshold: u64,
    rate_bps: u64,
    /// Most bytes that a host hands down in one piece.
    segment_bytes: u32,
    /// `net.ipv4.tcp_tso_rtt_log` of hosts: 0 has no larger pieces where round trips are short; the kernel's 9 if none.
    tso_rtt_log: Option<u8>,
}

fn options() -> Result<Options> {
    let mut options = Options {
        control: Dctcp::NAME.to_owned(),
        flows: 2,
        runs: 3,
        seconds: 5.0,
        threshold: 60_000,
        rate_bps: 100_000_000,
        segment_bytes: 3000,
        tso_rtt_log: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} takes a value"))?;
        match word.as_str() {
            "--control" => options.control = value,
            "--flows" => options.flows = value.parse()?,
            "--runs" => options.runs = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--threshold" => options.threshold = value.parse()?,
            "--rate" => options.rate_bps = value.parse()?,
            "--segment-bytes" => options.segment_bytes = value.parse()?,
            "--tso-rtt-log" => options.tso_rtt_log = Some(value.parse()?),
            _ => bail!(
                "{word}: there are --control, --flows, --runs, --seconds, --threshold, --rate, --segment-bytes and \
                 --tso-rtt-log"
            ),
        }
    }
    ensure!((1..=100).contains(&options.flows), "1 to 100 flows");
    Ok(options)
}

fn main() -> Result<()> {
    let options = options()?;
    let _control = (options.control == Dctcp::NAME).then(Dctcp::register).transpose()?;
    for run in 1..=options.runs {
        one_run(&options, run)?;
    }
    Ok(())
}

fn one_run(options: &Options, run: usize) -> Result<()> {
    let links = BedLinks {
        queues: Queues::ByDscp(DEFAULT_DSCP),
        segment_bytes: Some(options.segment_bytes),
        ..BedLinks::equal(options.flows + 1, options.rate_bps)
    };
    let bed = Bed::create(&links)?;
    for host in 0..bed.hosts() {
        bed.run_at(Place::Host(host), || -> Result<()> {
            std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1")?;
            if let Some(log) = options.tso_rtt_log {
                std::fs::write("/proc/sys/net/ipv4/tcp_tso_rtt_log", log.to_string())?;
            }
            Ok(())
        })??;
    }
    let marking = Marking::new(Bytes(options.threshold), std::array::from_fn(Queues::htb_class));
    let marker = bed.run_in_switch(|| Marker::attach(&bed.switch_port(0), &marking))??;
    let pairs = connect(&bed, options)?;
    let seen = measure(&bed, options, pairs)?;
    print(options, run, &seen, &marker.marks()?);
    Ok(())
}

/// In the order of hosts.
fn connect(bed: &Bed, options: &Options) -> Result<Vec<(TcpStream, TcpStream)>> {
    let control = options.control.as_bytes();
    let listener = bed.run_at(Place::Host(0), || -> Result<_> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_tcp_congestion(control)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
        socket.listen(128)?;
        Ok(std::net::TcpListener::from(socket))
    })??;
    let target: SocketAddr = SocketAddrV4::new(bed.address(0), listener.local_addr()?.port()).into();
    let mut pairs = Vec::new();
    for host in 1..=options.flows {
        let sending = bed.run_at(Place::Host(host), || -> Result<_> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_tcp_congestion(control)?;
            socket.connect_timeout(&target.into(), PATIENCE)?;
            Ok(TcpStream::from(socket))
        })??;
        let (receiving, _) = listener.accept()?;
        receiving.set_read_timeout(Some(PATIENCE))?;
        pairs.push((sending, receiving));
    }
    Ok(pairs)
}

/// What was seen of one run.
struct Run {
    /// Payload bytes that each flow has received.
    bytes: Vec<u64>,
    elapsed: Duration,
    /// What the kernel says of each sender at the end.
    sockets: Vec<String>,
}

fn measure(bed: &Bed, options: &Options, pairs: Vec<(TcpStream, TcpStream)>) -> Result<Run> {
    let received: Vec<AtomicU64> = pairs.iter().map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for ((mut sending, mut receiving), received) in pairs.into_iter().zip(&received) {
            let over = &over;
            scope.spawn(move || {
                let chunk = vec![7; CHUNK];
                while !over.load(Ordering::Relaxed) && sending.write_all(&chunk).is_ok() {}
            });
            scope.spawn(move || {
                let mut room = vec![0; CHUNK];
                while !over.load(Ordering::Relaxed) {
                    match receiving.read(&mut room) {
                        Ok(count) if count > 0 => received.fetch_add(count as u64, Ordering::Relaxed),
                        _ => break,
                    };
                }
            });
        }
        let now = || received.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect::<Vec<_>>();
        std::thread::sleep(WARM_UP);
        let (start, before) = (Instant::now(), now());
        std::thread::sleep(Duration::from_secs_f64(options.seconds));
        let (elapsed, after) = (start.elapsed(), now());
        let sockets = (1..=options.flows).map(|host| state(bed, host)).collect();
        over.store(true, Ordering::Relaxed);
        let bytes = before.iter().zip(after).map(|(before, after)| after - before).collect();
        Ok(Run { bytes, elapsed, sockets })
    })
}

/// What is of interest in what `ss` says of a host's connection.
fn state(bed: &Bed, host: usize) -> String {
    let said = bed.run_at(Place::Host(host), || Command::new("ss").args(["-tinH"]).output());
    let Ok(Ok(output)) = said else { return "no ss".to_owned() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let wanted = ["cwnd:", "ssthresh:", "rtt:", "retrans:", "delivered:", "delivered_ce:", "ecn"];
    let words = text.split_ascii_whitespace();
    let words = words.filter(|word| wanted.iter().any(|name| word.starts_with(name)));
    words.collect::<Vec<_>>().join(" ")
}

fn print(options: &Options, run: usize, seen: &Run, marks: &Marks) {
    let seconds = seen.elapsed.as_secs_f64();
    let rates: Vec<f64> = seen.bytes.iter().map(|bytes| *bytes as f64 * 8e-6 / seconds).collect();
    let (sum, squares) = (rates.iter().sum::<f64>(), rates.iter().map(|rate| rate * rate).sum::<f64>());
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let class = marks.classes[7];
    println!(
        "run {run}: {} x {}, {sum:.1} Mbit/s, least {least:.2}, most {most:.2}, least / most {:.3}, Jain {:.4}, marked {:.1} %",
        options.flows,
        options.control,
        least / most,
        sum * sum / (rates.len() as f64 * squares),
        class.marked as f64 * 100.0 / class.seen.max(1) as f64,
    );
    for (rate, socket) in rates.iter().zip(&seen.sockets).take(4) {
        println!("    {rate:.2} Mbit/s {socket}");
    }
}
