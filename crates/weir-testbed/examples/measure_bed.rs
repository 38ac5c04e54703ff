//! Measures what a bed gives on this machine and prints it: set-up and removal time, the goodput of one
//! flow, fairness of an incast, round trips of the control class under load.
//!
//! `cargo run --release -p weir-testbed --example measure_bed -- [hosts [link rate in Mbit/s [seconds]]]`;
//! with 0 seconds only the set-up and removal

use std::fs::File;
use std::io::{Read, Seek};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weir_testbed::{Bed, BedLinks, Place, enter_user_namespace};

#[expect(dead_code, reason = "only tests use classes by DSCP")]
#[path = "../tests/bed/traffic.rs"]
mod traffic;

use traffic::{Class, Echo, Received, incast};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (hosts, rate_mbit, seconds) = (number(16)?, number(100)?, number(5)?);
    println!("rights: {:?}", enter_user_namespace()?);

    let config = BedLinks::equal(usize::try_from(hosts)?, rate_mbit * 1_000_000);
    let start = Instant::now();
    let bed = Bed::create(&config)?;
    println!("{hosts} hosts at {rate_mbit} Mbit/s came up in {:.3} s", start.elapsed().as_secs_f64());
    if hosts >= 2 && seconds > 0 {
        let span = Duration::from_secs(seconds);
        one_flow(&bed, span)?;
        fan_in(&bed, span)?;
        round_trips(&bed, span)?;
    }
    // An open table of links keeps the control host's namespace, but not the switch it is connected to.
    let mut table = bed.run_at(Place::Control, || File::open("/proc/thread-self/net/dev"))??;
    let start = Instant::now();
    drop(bed);
    let dropped = start.elapsed();
    while text_of(&mut table)?.contains("eth0:") && start.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!(
        "dropped in {:.3} s, links gone after {:.3} s",
        dropped.as_secs_f64(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn text_of(table: &mut File) -> Result<String> {
    let mut text = String::new();
    table.rewind()?;
    table.read_to_string(&mut text)?;
    Ok(text)
}

fn one_flow(bed: &Bed, span: Duration) -> Result<()> {
    let before = bed.link_counters(0)?;
    let received = incast(bed, &[(1, Class::Data)], 0, span)?;
    let wire = bed.link_counters(0)?.received_bytes - before.received_bytes;
    let flow = received.first().context("one flow")?;
    println!("one cubic flow: {:.0} bytes/s of payload; {wire} bytes on the link", flow.rate());
    Ok(())
}

fn fan_in(bed: &Bed, span: Duration) -> Result<()> {
    let senders: Vec<_> = (1..bed.hosts()).map(|host| (host, Class::Data)).collect();
    let received = incast(bed, &senders, 0, span)?;
    let rates: Vec<f64> = received.iter().map(Received::rate).collect();
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), r| (sum + r, squares + r * r));
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    println!(
        "incast {} to 1: {sum:.0} bytes/s in total, Jain {:.3}, slowest {least:.0}, fastest {most:.0}",
        rates.len(),
        sum * sum / (rates.len() as f64 * squares),
    );
    Ok(())
}

/// Both links of host 0 saturated: everyone sends to it, and it sends to host 1.
fn round_trips(bed: &Bed, span: Duration) -> Result<()> {
    let echo_data = Echo::start(bed, Place::Host(0), Class::Data)?;
    let echo_control = Echo::start(bed, Place::Host(0), Class::Control)?;
    let idle = echo_control.round_trips(bed, Place::Control, Duration::from_secs(1))?;
    print_trips("idle, from the control host", &idle);
    let senders: Vec<_> = (1..bed.hosts()).map(|host| (host, Class::Data)).collect();
    std::thread::scope(|scope| -> Result<()> {
        let down = scope.spawn(|| incast(bed, &senders, 0, span));
        let up = scope.spawn(|| incast(bed, &[(0, Class::Data)], 1, span));
        std::thread::sleep(span / 5);
        let third = span / 5;
        print_trips("loaded, from the control host", &echo_control.round_trips(bed, Place::Control, third)?);
        print_trips("loaded, host 1, DSCP CS6", &echo_control.round_trips(bed, Place::Host(1), third)?);
        print_trips("loaded, host 1, data class", &echo_data.round_trips(bed, Place::Host(1), third)?);
        for load in [down, up] {
            load.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
        }
        Ok(())
    })?;
    Ok(())
}

fn print_trips(what: &str, sorted: &[Duration]) {
    let at = |share: f64| {
        let index = (sorted.len() as f64 * share) as usize;
        sorted
            .get(index.min(sorted.len().saturating_sub(1)))
            .map_or(f64::NAN, |trip| trip.as_secs_f64() * 1e3)
    };
    println!(
        "round trip, {what}: median {:.2} ms, p99 {:.2} ms, longest {:.2} ms ({} trips)",
        at(0.5),
        at(0.99),
        at(1.0),
        sorted.len()
    );
}
