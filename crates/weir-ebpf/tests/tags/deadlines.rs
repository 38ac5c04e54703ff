//! Flows with deadlines on connections of real hosts, by MCP.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weir_ebpf::{Config, ControlError, Karuna, McpConfig, Tagger};
use weir_endhost::mcp::ParamsError;
use weir_model::{Bytes, Hint, Rate, Span};
use weir_testbed::{Bed, Place};

use crate::control::{LINK_BPS, THRESHOLD, connect, links, listen, marker, transfer};
use crate::hosts::{accept, on_bed, thresholds};

const RECEIVER: Place = Place::Host(0);
const SENDER: Place = Place::Host(1);
/// Of a full segment over two links of 100 Mbit/s, with what two busy processors take for it.
const BASE_RTT: Span = Span::from_nanos(1_000_000);

fn config() -> McpConfig {
    McpConfig::new(BASE_RTT, Some(Rate::from_bytes_per_sec(LINK_BPS as f64 / 8.0)))
}

fn tagger(bed: &Bed) -> Result<Tagger> {
    Ok(bed.run_at(SENDER, || Tagger::attach("eth0", &Config::new(thresholds(&[100_000]))))??)
}

fn pair(bed: &Bed) -> Result<(TcpStream, TcpStream)> {
    let listener = listen(bed, RECEIVER, Ipv4Addr::UNSPECIFIED.into(), Karuna::NAME)?;
    let target = SocketAddr::from((bed.address(0), listener.local_addr()?.port()));
    let pair = (connect(bed, SENDER, target, Karuna::NAME)?, accept(&listener)?);
    pair.0.set_nodelay(true)?;
    Ok(pair)
}

/// Hints and sends, and says how long it took until all had been read.
fn send(
    tagger: &Tagger,
    pair: &mut (TcpStream, TcpStream),
    bytes: usize,
    within: Option<u64>,
) -> Result<Duration> {
    let size = Bytes(bytes as u64);
    let hint = match within {
        Some(millis) => Hint::Deadline { size, within: Span::from_nanos(millis * 1_000_000) },
        None => Hint::Known(size),
    };
    tagger.hint(&pair.0, hint)?;
    let begun = Instant::now();
    transfer(pair, bytes)?;
    Ok(begun.elapsed())
}

/// Alone on its link it would take 90 ms.
#[test]
fn a_flow_takes_the_time_that_its_deadline_leaves() {
    on_bed("deadlines", &links(1), |bed| {
        let (tagger, _marker) = (tagger(bed)?, marker(bed, THRESHOLD)?);
        let _control = Karuna::register(&tagger, &config())?;
        let mut pair = pair(bed)?;
        for within in [600, 400] {
            let took = send(&tagger, &mut pair, 1_000_000, Some(within))?;
            println!("1 MB within {within} ms: {took:?}");
            ensure!(took > Duration::from_millis(within / 2), "{took:?} of {within} ms");
        }
        // Without one it goes as fast as it can.
        let took = send(&tagger, &mut pair, 1_000_000, None)?;
        println!("1 MB: {took:?}");
        ensure!(tagger.counters()?.classes[0].bytes > 1_900_000, "{:?}", tagger.counters()?);
        Ok(())
    });
}

#[test]
fn a_flow_whose_deadline_is_out_of_reach_goes_on_and_arrives() {
    on_bed("late", &links(1), |bed| {
        let (tagger, _marker) = (tagger(bed)?, marker(bed, THRESHOLD)?);
        let control = Karuna::register(&tagger, &config())?;
        // From its start; and after its deadline, which no link is known to put out of reach.
        for config in [config(), McpConfig { link: None, ..config() }] {
            control.set(&config)?;
            let mut pair = pair(bed)?;
            let took = send(&tagger, &mut pair, 5_000_000, Some(100))?;
            println!("5 MB within 100 ms: {took:?}");
        }
        // The first is in the class of its size from its start, where it is in no other flow's way, the second after 100 ms.
        let classes = tagger.counters()?.classes;
        ensure!(classes[0].bytes < 2_500_000 && classes[2].bytes > 7_000_000, "{classes:?}");
        Ok(())
    });
}

/// At the pace of 6 kB within 5 s it would take more than a minute.
#[test]
fn what_follows_a_flow_without_a_hint_does_not_keep_its_pace() {
    on_bed("no hint", &links(1), |bed| {
        let (tagger, _marker) = (tagger(bed)?, marker(bed, THRESHOLD)?);
        let _control = Karuna::register(&tagger, &config())?;
        let mut pair = pair(bed)?;
        // The first ten segments of a connection are not paced.
        send(&tagger, &mut pair, 100_000, None)?;
        send(&tagger, &mut pair, 6_000, Some(5_000))?;
        let begun = Instant::now();
        transfer(&mut pair, 100_000)?;
        ensure!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        Ok(())
    });
}

#[test]
fn a_control_goes_on_without_its_tagger_and_numbers_that_make_no_sense_are_refused() {
    on_bed("numbers", &links(1), |bed| {
        let tagger = tagger(bed)?;
        let wrong = McpConfig::new(Span::ZERO, None);
        let refused = Karuna::register(&tagger, &wrong);
        ensure!(matches!(refused, Err(ControlError::Params(ParamsError::NotPositive { .. }))), "{refused:?}");
        let control = Karuna::register(&tagger, &config())?;
        ensure!(control.set(&wrong).is_err());
        let second = Karuna::register(&tagger, &config());
        ensure!(matches!(second, Err(ControlError::Taken { name: Karuna::NAME })), "{second:?}");
        let mut pair = pair(bed)?;
        send(&tagger, &mut pair, 100_000, Some(100))?;
        drop(tagger);
        transfer(&mut pair, 1_000_000)
    });
}
