//! What a bed of sites carries, between which sites, and how fast.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weir_testbed::{BedError, Place, SiteBed, SiteBedConfig};

use crate::rates::BURST_BYTES;
use crate::rights::with_rights;
use crate::say;
use crate::traffic::{Class, Received, connect, listen, receive, send};

const FAST_BPS: u64 = 100_000_000;
const SLOW_BPS: u64 = 20_000_000;

/// Site 0 has hosts 0 and 1, sites 1 and 2 have one each. From site 0 to site 2 it is slow.
fn bed() -> Result<SiteBed> {
    let mut rates_bps = vec![vec![FAST_BPS; 3]; 3];
    rates_bps[0][2] = SLOW_BPS;
    Ok(SiteBed::create(&SiteBedConfig { hosts_per_site: vec![2, 1, 1], rates_bps })?)
}

/// Flows between hosts at the same time.
fn flows(bed: &SiteBed, pairs: &[(usize, usize)], span: Duration) -> Result<Vec<Received>> {
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let mut ends = Vec::new();
    for &(from, to) in pairs {
        let listener = bed.run_at(Place::Host(to), || listen(any))??;
        let target = SocketAddrV4::new(bed.address(Place::Host(to)), listener.local_addr()?.port());
        let out = bed.run_at(Place::Host(from), || connect(target, Class::Data))??;
        ends.push((out, listener.accept()?.0));
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        let running: Vec<_> = ends
            .into_iter()
            .map(|(out, inward)| {
                scope.spawn(move || send(out, start + span));
                scope.spawn(move || receive(inward, start, start + span))
            })
            .collect();
        let ended = running.into_iter().map(|flow| flow.join());
        ended.map(|flow| flow.map_err(|_| anyhow::anyhow!("a receiver panicked"))?).collect()
    })
}

fn at_most(flow: &Received, rate_bps: u64) -> Result<()> {
    let possible = rate_bps as f64 / 8.0 * flow.elapsed.as_secs_f64();
    ensure!(flow.bytes as f64 <= possible + BURST_BYTES, "{} bytes passed, {possible} possible", flow.bytes);
    ensure!(flow.bytes > 0, "nothing passed");
    Ok(())
}

#[test]
fn every_direction_between_sites_has_its_own_rate_and_insides_have_none() {
    with_rights("sites::every_direction_between_sites_has_its_own_rate_and_insides_have_none", || {
        let bed = bed()?;
        let seen = flows(&bed, &[(0, 3), (3, 1), (0, 1)], Duration::from_secs(1))?;
        at_most(&seen[0], SLOW_BPS)?;
        at_most(&seen[1], FAST_BPS)?;
        // A slow machine may be slow here too; but a link between sites would not let so much through.
        say(&format!("inside a site {:.0} Mbit/s", seen[2].rate() * 8e-6));
        ensure!(bed.sent_bytes(0, 2)? >= seen[0].bytes && bed.sent_bytes(2, 0)? >= seen[1].bytes);
        let (idle, inside) = (bed.sent_bytes(0, 1)?, bed.sent_bytes(1, 2)?);
        ensure!(idle == 0 && inside == 0, "links of sites that nothing concerns carried {idle} and {inside}");
        Ok(())
    });
}

#[test]
fn rates_between_sites_change_while_a_flow_is_under_way() {
    with_rights("sites::rates_between_sites_change_while_a_flow_is_under_way", || {
        let bed = bed()?;
        bed.set_rate(0, 1, SLOW_BPS)?;
        at_most(&flows(&bed, &[(1, 2)], Duration::from_secs(1))?[0], SLOW_BPS)?;
        let refused = bed.set_rate(1, 1, SLOW_BPS);
        ensure!(matches!(refused, Err(BedError::Config(_))), "{refused:?}");
        ensure!(matches!(bed.set_rate(0, 3, SLOW_BPS), Err(BedError::Config(_))));
        Ok(())
    });
}

#[test]
fn the_control_host_reaches_every_host_and_takes_no_link_between_sites() {
    with_rights("sites::the_control_host_reaches_every_host_and_takes_no_link_between_sites", || {
        let bed = bed()?;
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        for host in 0..bed.hosts() {
            let listener = bed.run_at(Place::Host(host), || listen(any))??;
            let target = SocketAddrV4::new(bed.address(Place::Host(host)), listener.local_addr()?.port());
            bed.run_at(Place::Control, || connect(target, Class::Control))??;
        }
        for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)] {
            ensure!(bed.sent_bytes(from, to)? == 0);
        }
        Ok(())
    });
}
