//! `weir bench sites`: how well links between sites of the test bed follow a sequence of rates.

use anyhow::Context;
use clap::Args;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_console::Failure;
use weir_model::Rate;
use weir_results::{table, text};
use weir_testbed::{Place, SiteBed, SiteBedConfig};
use weir_trace::synthetic::Draw;
use weir_trace::wan::Excerpt;

/// Makes sites out of network namespaces, one host each, with a shaped link from each to each whose rate changes over
/// and over, and sends over all of them at once, one TCP connection a link. Rates are drawn from those that were measured
/// between regions of AWS (data/wan), and scaled.
///
/// asked: the mean rate that the link had, in Mbit/s.
///
/// seen: what arrived, as a share of what TCP can use of that.
///
/// worst: the interval between two changes in which least of it arrived.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SitesArgs {
    /// Regions whose names begin with one of these
    #[arg(
        long,
        value_name = "PREFIX,..",
        value_delimiter = ',',
        default_value = "us-east-1,us-west-1,eu-west-1"
    )]
    regions: Vec<String>,
    /// The mean rate of the fastest link
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    fastest: Rate,
    /// Seconds between changes
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Number of changes of the links' rates
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    changes: u64,
    /// Seed of the draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

type Link = (usize, usize);

/// What is known of one link.
struct Track {
    link: Link,
    /// Bits per second, interval by interval.
    asked: Vec<u64>,
    /// Payload bytes that arrived, interval by interval.
    seen: Vec<u64>,
}

/// The rate of every link in every interval.
fn sequence(args: &SitesArgs) -> Result<(usize, Vec<Track>), Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::Input(error.to_string());
    let grids = Excerpt::WanifyAws8.read().map_err(|error| input(&error))?.grids(&args.regions);
    let first =
        grids.first().ok_or_else(|| input(&"--regions: fewer than two of the regions are measured"))?;
    let sites = first.regions.len();
    let mean = |(from, to): Link| {
        grids.iter().map(|grid| grid.rates[from][to].bytes_per_sec()).sum::<f64>() / grids.len() as f64
    };
    let links: Vec<Link> = (0..sites)
        .flat_map(|from| (0..sites).filter(move |&to| to != from).map(move |to| (from, to)))
        .collect();
    let fastest = links.iter().map(|&link| mean(link)).fold(0.0, f64::max);
    // Times 8: recorded rates are in bytes a second here, and those of the bed's links in bits.
    let scale = args.fastest.bytes_per_sec() / fastest * 8.0;
    let mut draw = Draw::new(args.seed);
    let tracks = links.into_iter().map(|link| {
        let mut rate = || {
            let grid = &grids[draw.below(grids.len() as u64) as usize];
            let rate = grid.rates[link.0][link.1].bytes_per_sec() * scale;
            (rate as u64).clamp(weir_testbed::MIN_LINK_RATE_BPS, weir_testbed::MAX_LINK_RATE_BPS)
        };
        Track { link, asked: (0..args.changes).map(|_| rate()).collect(), seen: Vec::new() }
    });
    Ok((sites, tracks.collect()))
}

/// A connection over every link: its sending end, and the receiving one.
fn connections(bed: &SiteBed, tracks: &[Track]) -> anyhow::Result<Vec<(TcpStream, TcpStream)>> {
    let mut all = Vec::new();
    for Track { link: (from, to), .. } in tracks {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let listener: TcpListener = bed.run_at(Place::Host(*to), || weir_net::data_listener(any))??;
        // Agents poll this kind of listener; here `accept` has to wait for the connection.
        listener.set_nonblocking(false)?;
        let target = SocketAddr::from((bed.address(Place::Host(*to)), listener.local_addr()?.port()));
        let out = bed.run_at(Place::Host(*from), || weir_net::connect_to_send(target))??;
        let (inward, _) = listener.accept().context("accept a connection")?;
        all.push((out, inward));
    }
    Ok(all)
}

fn send(mut out: TcpStream, stop: &AtomicBool) {
    let block = vec![0x5a; 128 << 10];
    while !stop.load(Ordering::Relaxed) && out.write_all(&block).is_ok() {}
    let _ = out.shutdown(std::net::Shutdown::Both);
}

/// Bytes that arrive in each interval, until the sender ends.
fn receive(mut inward: TcpStream, start: Instant, every: Duration, intervals: usize) -> Vec<u64> {
    let mut block = vec![0; 256 << 10];
    let mut seen = vec![0; intervals];
    while let Ok(count @ 1..) = inward.read(&mut block) {
        let interval = (start.elapsed().as_nanos() / every.as_nanos()) as usize;
        // What queues still held when the last interval ended belongs to no interval.
        if let Some(bytes) = seen.get_mut(interval) {
            *bytes += count as u64;
        }
    }
    seen
}

pub(crate) fn sites(args: &SitesArgs) -> Result<(), Failure> {
    let (sites, mut tracks) = sequence(args)?;
    let mut rates_bps = vec![vec![0; sites]; sites];
    for track in &tracks {
        rates_bps[track.link.0][track.link.1] = track.asked[0];
    }
    let bed = SiteBed::create(&SiteBedConfig { hosts_per_site: vec![1; sites], rates_bps })?;
    let connections = connections(&bed, &tracks)?;
    let every = Duration::from_secs(args.every);
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let intervals = args.changes as usize;
    let changed = std::thread::scope(|scope| {
        let receivers: Vec<_> = connections
            .into_iter()
            .map(|(out, inward)| {
                scope.spawn(|| send(out, &stop));
                scope.spawn(move || receive(inward, start, every, intervals))
            })
            .collect();
        let changed = follow(&bed, &tracks, start, every);
        stop.store(true, Ordering::Relaxed);
        for (track, receiver) in tracks.iter_mut().zip(receivers) {
            track.seen = receiver.join().unwrap_or_default();
        }
        changed
    });
    changed?;
    print(&tracks, every);
    Ok(())
}

/// Changes rates when their time comes, until the last interval is over.
fn follow(bed: &SiteBed, tracks: &[Track], start: Instant, every: Duration) -> anyhow::Result<()> {
    for interval in 1..=tracks[0].asked.len() {
        std::thread::sleep((start + every * interval as u32).saturating_duration_since(Instant::now()));
        for track in tracks {
            if let Some(&rate) = track.asked.get(interval) {
                bed.set_rate(track.link.0, track.link.1, rate)?;
            }
        }
    }
    Ok(())
}

fn print(tracks: &[Track], every: Duration) {
    let mut rows = table(&["from", "to", "asked", "seen", "worst"], 2);
    for Track { link, asked, seen } in tracks {
        // The bed's rates count headers, and what was received is payload.
        let possible = |rate: u64| rate as f64 / 8.0 * Rate::PAYLOAD_SHARE * every.as_secs_f64();
        let shares = asked.iter().zip(seen).map(|(&rate, &bytes)| bytes as f64 / possible(rate));
        let worst = shares.fold(f64::INFINITY, f64::min);
        let sum = |values: &[u64]| values.iter().sum::<u64>() as f64;
        let whole = sum(seen) / asked.iter().map(|&rate| possible(rate)).sum::<f64>();
        rows.add_row([
            link.0.to_string(),
            link.1.to_string(),
            format!("{:.1}", sum(asked) / asked.len() as f64 / 1e6),
            format!("{whole:.3}"),
            format!("{worst:.3}"),
        ]);
    }
    println!("{}", text(&rows));
}
