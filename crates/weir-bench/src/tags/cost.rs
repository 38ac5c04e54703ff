//! Throughput of one stream, and the machine's processor time for it, by what is loaded.

use super::TagsArgs;
use anyhow::Result;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_console::Failure;
use weir_ebpf::{Config, DEFAULT_DSCP, Dctcp, Marker, Marking, Tagger, Unhinted};
use weir_endhost::thresholds::{Thresholds, pias};
use weir_experiment::half_width;
use weir_model::Bytes;
use weir_results::{mean, table, text};
use weir_testbed::{Bed, BedLinks, HOST_LINK, Place, Queues, busy_seconds};

const SENDER: Place = Place::Host(0);
const RECEIVER: Place = Place::Host(1);
const CHUNK: usize = 256 << 10;
/// What is sent before a measurement begins, so that the window is open.
const WARM_UP: Duration = Duration::from_millis(500);
/// No queue becomes as long as this.
const NEVER: Bytes = Bytes(u32::MAX as u64);

/// Which programs are loaded while bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nothing,
    Tagger,
    TaggerAndMarker,
    /// Of the kernel, to compare the next one with.
    Reno,
    Dctcp,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Nothing, Kind::Tagger, Kind::TaggerAndMarker, Kind::Reno, Kind::Dctcp];

    fn name(self) -> &'static str {
        match self {
            Kind::Nothing => "nothing (cubic)",
            Kind::Tagger => "tagger at the sender",
            Kind::TaggerAndMarker => "and marker at the switch",
            Kind::Reno => "nothing (reno)",
            Kind::Dctcp => "weir_dctcp at both ends",
        }
    }

    fn control(self) -> &'static [u8] {
        match self {
            Kind::Reno => b"reno",
            Kind::Dctcp => Dctcp::NAME.as_bytes(),
            _ => b"cubic",
        }
    }

    /// What it is compared with.
    fn base(self) -> Kind {
        if matches!(self, Kind::Reno | Kind::Dctcp) { Kind::Reno } else { Kind::Nothing }
    }
}

/// What one stream took with one set of programs.
#[derive(Clone, Copy, Debug)]
struct Seen {
    gbit_per_s: f64,
    cpu_s_per_gb: f64,
}

pub(super) fn print(args: &TagsArgs) -> Result<(), Failure> {
    let links = BedLinks {
        queues: Queues::ByDscp(DEFAULT_DSCP),
        ..BedLinks::equal(2, args.link_rate.bits_per_sec() as u64)
    };
    let bed = Bed::create(&links)?;
    let mut seen = Kind::ALL.map(|_| Vec::new());
    for run in 0..args.runs {
        // What grows or shrinks meanwhile hits each as early as late.
        let forward = run % 2 == 0;
        for at in 0..Kind::ALL.len() {
            let at = if forward { at } else { Kind::ALL.len() - 1 - at };
            seen[at].push(measure(&bed, Kind::ALL[at], Duration::from_secs(args.seconds.into()))?);
        }
    }
    let mut rows =
        table(&["one stream", "Gbit/s", "of the same without", "CPU s/GB", "of the same without"], 1);
    for (kind, own) in Kind::ALL.into_iter().zip(&seen) {
        let base = &seen[Kind::ALL.iter().position(|other| *other == kind.base()).unwrap_or(0)];
        let cells = |of: fn(&Seen) -> f64| {
            let ratios: Vec<f64> = own.iter().zip(base).map(|(own, base)| of(own) / of(base)).collect();
            let spread = half_width(&ratios).map_or(String::new(), |half| format!(" ± {half:.3}"));
            let ratio =
                if kind == kind.base() { "1".to_owned() } else { format!("{:.3}{spread}", mean(&ratios)) };
            [format!("{:.3}", mean(&own.iter().map(of).collect::<Vec<_>>())), ratio]
        };
        let [rate, rate_ratio] = cells(|seen| seen.gbit_per_s);
        let [cpu, cpu_ratio] = cells(|seen| seen.cpu_s_per_gb);
        rows.add_row([kind.name().to_owned(), rate, rate_ratio, cpu, cpu_ratio]);
    }
    println!(
        "links of {}, {} measurements of {} s each in turn\n{}",
        args.link_rate,
        args.runs,
        args.seconds,
        text(&rows)
    );
    Ok(())
}

fn measure(bed: &Bed, kind: Kind, lasts: Duration) -> Result<Seen> {
    let thresholds = pias("web-search", 0.8).unwrap_or_else(Thresholds::none);
    let config = Config { unhinted: Unhinted::Unknown, best: 0, ..Config::new(thresholds) };
    let attach = || bed.run_at(SENDER, || Tagger::attach(HOST_LINK, &config));
    let has_tagger = matches!(kind, Kind::Tagger | Kind::TaggerAndMarker);
    let tagger = has_tagger.then(attach).transpose()?.transpose()?;
    let marking = Marking::new(NEVER, std::array::from_fn(Queues::htb_class));
    let attach = || bed.run_in_switch(|| Marker::attach(&bed.switch_port(1), &marking));
    let marker = (kind == Kind::TaggerAndMarker).then(attach).transpose()?.transpose()?;
    let control = (kind == Kind::Dctcp).then(Dctcp::register).transpose()?;
    let seen = stream(bed, kind.control(), lasts);
    drop((tagger, marker, control));
    seen
}

fn stream(bed: &Bed, control: &[u8], lasts: Duration) -> Result<Seen> {
    let socket = || -> std::io::Result<socket2::Socket> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_tcp_congestion(control)?;
        Ok(socket)
    };
    let listener = bed.run_at(RECEIVER, || -> std::io::Result<TcpListener> {
        let socket = socket()?;
        socket.bind(&SocketAddr::from((bed.address(1), 0)).into())?;
        socket.listen(1)?;
        Ok(socket.into())
    })??;
    let target = listener.local_addr()?;
    let mut sending: TcpStream = bed.run_at(SENDER, || -> std::io::Result<TcpStream> {
        let socket = socket()?;
        socket.connect(&target.into())?;
        Ok(socket.into())
    })??;
    let (mut receiving, _) = listener.accept()?;
    let patience = lasts + Duration::from_secs(20);
    sending.set_write_timeout(Some(patience))?;
    receiving.set_read_timeout(Some(patience))?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<Seen> {
        let sender = scope.spawn(|| -> std::io::Result<()> {
            let chunk = vec![7; CHUNK];
            while !is_over.load(Ordering::Relaxed) {
                sending.write_all(&chunk)?;
            }
            sending.shutdown(std::net::Shutdown::Write)
        });
        let mut buffer = vec![0; CHUNK];
        let mut receive = |until: Instant| -> std::io::Result<u64> {
            let mut bytes = 0;
            while Instant::now() < until {
                match receiving.read(&mut buffer) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(count) => bytes += count as u64,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(bytes)
        };
        let counted = receive(Instant::now() + WARM_UP).and_then(|_| {
            let (begun, before) = (Instant::now(), busy_seconds()?);
            let bytes = receive(begun + lasts)?;
            Ok((bytes as f64, begun.elapsed().as_secs_f64(), busy_seconds()? - before))
        });
        is_over.store(true, Ordering::Relaxed);
        // A sender that waits for room is woken by the end of the connection.
        drop(receiving);
        let (bytes, seconds, cpu_s) = counted?;
        match sender.join() {
            Ok(_) => Ok(Seen { gbit_per_s: bytes * 8e-9 / seconds, cpu_s_per_gb: cpu_s / (bytes * 1e-9) }),
            Err(_) => anyhow::bail!("the sender panicked"),
        }
    })
}
