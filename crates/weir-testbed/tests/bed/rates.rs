//! What a bed carries, and how fast.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_testbed::{Bed, BedError, BedLinks, Place, RackLinks, Rates};

use crate::rights::with_rights;
use crate::say;
use crate::traffic::{Class, Echo, Received, incast};

const RATE_BPS: u64 = 100_000_000;

/// What a link may pass beyond rate x time: its burst of 1 ms (12.5 kB at 100 Mbit/s), one segment that
/// takes the tokens below zero (66 kB), and the small rates by right of the two classes (2 kB a second and
/// twice 1.6 kB). Doubled.
pub(crate) const BURST_BYTES: f64 = 170_000.0;

fn bed(hosts: usize) -> Result<Bed> {
    Ok(Bed::create(&BedLinks::equal(hosts, RATE_BPS))?)
}

/// Fails if together the flows brought more than one link can carry; returns the share of it they used.
fn share_of_link(flows: &[Received], rate_bps: u64) -> Result<f64> {
    let bytes: u64 = flows.iter().map(|flow| flow.bytes).sum();
    let elapsed = flows.iter().map(|flow| flow.elapsed).max().context("no flow")?;
    let possible = rate_bps as f64 / 8.0 * elapsed.as_secs_f64();
    ensure!(bytes as f64 <= possible + BURST_BYTES, "{bytes} bytes passed, {possible} possible");
    Ok(bytes as f64 / possible)
}

#[test]
fn links_carry_no_more_than_their_rate() {
    with_rights("rates::links_carry_no_more_than_their_rate", || {
        let bed = bed(3)?;
        let flows = incast(&bed, &[(1, Class::Data)], 0, Duration::from_secs(1))?;
        let share = share_of_link(&flows, RATE_BPS)?;
        ensure!(share > 0.0);
        say(&format!("one flow used {:.1} % of its link (1448/1514 = 95.6 % is possible)", share * 100.0));
        Ok(())
    });
}

#[test]
fn counters_see_a_flow_at_both_ends_and_nowhere_else() {
    with_rights("rates::counters_see_a_flow_at_both_ends_and_nowhere_else", || {
        let bed = bed(3)?;
        let flows = incast(&bed, &[(1, Class::Data)], 0, Duration::from_millis(500))?;
        let bytes = flows.first().context("one flow")?.bytes;
        ensure!(bytes > 0);
        ensure!(bed.link_counters(1)?.sent_bytes >= bytes, "the sender sent all that arrived");
        ensure!(bed.link_counters(0)?.received_bytes >= bytes);
        ensure!(bed.link_counters(0)?.sent_bytes < bed.link_counters(0)?.received_bytes, "only ACKs back");
        // The switch copies nothing to a host that has not spoken.
        ensure!(bed.link_counters(2)?.received_bytes == 0, "{:?}", bed.link_counters(2)?);
        Ok(())
    });
}

#[test]
fn incast_shares_one_downlink() {
    with_rights("rates::incast_shares_one_downlink", || {
        let bed = bed(8)?;
        let senders: Vec<_> = (1..8).map(|host| (host, Class::Data)).collect();
        let flows = incast(&bed, &senders, 0, Duration::from_secs(2))?;
        let share = share_of_link(&flows, RATE_BPS)?;
        say(&format!("7 to 1 used {:.1} % of the downlink", share * 100.0));
        Ok(())
    });
}

#[test]
fn both_classes_together_stay_within_the_link_and_control_goes_first() {
    with_rights("rates::both_classes_together_stay_within_the_link_and_control_goes_first", || {
        let bed = bed(3)?;
        let flows = incast(&bed, &[(1, Class::Control), (2, Class::Data)], 0, Duration::from_secs(2))?;
        let share = share_of_link(&flows, RATE_BPS)?;
        let [control, data] = flows[..] else { anyhow::bail!("two flows") };
        say(&format!(
            "together {:.1} %; control {:.0} B/s, data {:.0} B/s",
            share * 100.0,
            control.rate(),
            data.rate()
        ));
        ensure!(control.bytes > data.bytes, "{control:?} {data:?}");
        Ok(())
    });
}

#[test]
fn control_packets_do_not_wait_behind_data() {
    with_rights("rates::control_packets_do_not_wait_behind_data", || {
        let bed = bed(4)?;
        let senders: Vec<_> = (1..4).map(|host| (host, Class::Data)).collect();
        let (control, data) = (
            Echo::start(&bed, Place::Host(0), Class::Control)?,
            Echo::start(&bed, Place::Host(0), Class::Data)?,
        );
        std::thread::scope(|scope| {
            let load = scope.spawn(|| incast(&bed, &senders, 0, Duration::from_secs(4)));
            std::thread::sleep(Duration::from_millis(500));
            let median = |echo: &Echo, from| -> Result<Duration> {
                let trips = echo.round_trips(&bed, from, Duration::from_secs(1))?;
                trips.get(trips.len() / 2).copied().context("no datagram came back")
            };
            let steering = median(&control, Place::Control)?;
            let marked = median(&control, Place::Host(1))?;
            let unmarked = median(&data, Place::Host(1))?;
            say(&format!(
                "round trips under load: control host {steering:?}, CS6 {marked:?}, data {unmarked:?}"
            ));
            // Behind the queue of up to 80 ms, or past it: measured in one run, so no matter how busy the machine.
            ensure!(steering < unmarked && marked < unmarked);
            load.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
            Ok(())
        })
    });
}

#[test]
fn new_link_rate_holds_for_that_host_alone() {
    with_rights("rates::new_link_rate_holds_for_that_host_alone", || {
        const SLOW_BPS: u64 = 20_000_000;
        let bed = bed(3)?;
        bed.set_link_rate(0, SLOW_BPS)?;
        let span = Duration::from_secs(1);
        share_of_link(&incast(&bed, &[(1, Class::Data)], 0, span)?, SLOW_BPS)
            .context("towards the slow host")?;
        share_of_link(&incast(&bed, &[(0, Class::Data)], 1, span)?, SLOW_BPS)
            .context("from the slow host")?;
        let other = share_of_link(&incast(&bed, &[(1, Class::Data)], 2, span)?, RATE_BPS)?;
        say(&format!("the others still use {:.1} % of theirs", other * 100.0));
        bed.set_link_rate(0, RATE_BPS)?;
        let restored = share_of_link(&incast(&bed, &[(1, Class::Data)], 0, span)?, RATE_BPS)?;
        say(&format!("and so does the slow host when restored: {:.1} %", restored * 100.0));
        Ok(())
    });
}

#[test]
fn sixty_four_hosts_come_up() {
    with_rights("rates::sixty_four_hosts_come_up", || {
        let start = std::time::Instant::now();
        let bed = bed(64)?;
        say(&format!("64 hosts came up in {:?}", start.elapsed()));
        let echo = Echo::start(&bed, Place::Host(63), Class::Data)?;
        for place in [Place::Host(0), Place::Host(62), Place::Control] {
            let trips = echo.round_trips(&bed, place, Duration::from_millis(50))?;
            ensure!(!trips.is_empty(), "{place} does not reach host 63");
        }
        Ok(())
    });
}

#[test]
fn commands_run_inside_and_nothing_shows_outside() {
    with_rights("rates::commands_run_inside_and_nothing_shows_outside", || {
        let bed = bed(2)?;
        let output = bed.command(Place::Host(1), "cat")?.arg("/proc/self/net/fib_trie").output()?;
        let inside = String::from_utf8(output.stdout)?;
        ensure!(inside.contains("10.77.1.2") && !inside.contains("10.77.1.1\n"), "{inside}");
        let outside = std::fs::read_to_string("/proc/self/net/dev")?;
        ensure!(!outside.contains("sw0:") && !outside.contains("pc:"), "{outside}");
        Ok(())
    });
}

#[test]
fn unknown_host_and_rate_are_refused() {
    with_rights("rates::unknown_host_and_rate_are_refused", || {
        let bed = bed(2)?;
        ensure!(matches!(bed.link_counters(2), Err(BedError::NoSuchHost { host: 2, hosts: 2 })));
        ensure!(matches!(bed.command(Place::Host(9), "true"), Err(BedError::NoSuchHost { .. })));
        ensure!(matches!(bed.set_link_rate(0, 0), Err(BedError::Config(_))));
        Ok(())
    });
}

#[test]
fn racks_share_their_links_to_the_core_and_nothing_inside() {
    with_rights("rates::racks_share_their_links_to_the_core_and_nothing_inside", || {
        const UP: u64 = 50_000_000;
        const DOWN: u64 = 30_000_000;
        // 0 and 1 in the first rack, 2 and 3 in the second, 4 attached to the core.
        let mut links = BedLinks::equal(5, RATE_BPS);
        links.racks = vec![RackLinks { rates: Rates { up_bps: UP, down_bps: DOWN }, site: None }; 2];
        for (host, rack) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
            links.hosts[host].rack = Some(rack);
        }
        let bed = Bed::create(&links)?;
        let span = Duration::from_secs(1);
        let inside = incast(&bed, &[(0, Class::Data)], 1, span)?;
        say(&format!("inside a rack: {:.1} % of a host's link", share_of_link(&inside, RATE_BPS)? * 100.0));
        let limit = UP as f64 / 8.0 * inside[0].elapsed.as_secs_f64() + BURST_BYTES;
        ensure!(inside[0].bytes as f64 > limit, "traffic inside a rack waits for the rack's link");
        ensure!(bed.rack_counters(0)?.sent_bytes == 0, "what stays in a rack does not leave it");

        let out = incast(&bed, &[(0, Class::Data), (1, Class::Data)], 4, span)?;
        say(&format!("out of a rack: {:.1} % of its uplink", share_of_link(&out, UP)? * 100.0));
        let sent: u64 = out.iter().map(|flow| flow.bytes).sum();
        ensure!(bed.rack_counters(0)?.sent_bytes >= sent, "all of it went by the rack's link");
        ensure!(bed.rack_counters(1)?.received_bytes == 0, "and none to the other rack");

        let into = incast(&bed, &[(1, Class::Data), (4, Class::Data)], 2, span)?;
        say(&format!("into a rack: {:.1} % of its downlink", share_of_link(&into, DOWN)? * 100.0));
        let received: u64 = into.iter().map(|flow| flow.bytes).sum();
        ensure!(bed.rack_counters(1)?.received_bytes >= received);
        ensure!(matches!(bed.rack_counters(2), Err(BedError::Config(_))));
        Ok(())
    });
}

#[test]
fn sites_share_the_links_between_them_and_nothing_inside() {
    with_rights("rates::sites_share_the_links_between_them_and_nothing_inside", || {
        const THERE: u64 = 40_000_000;
        const BACK: u64 = 20_000_000;
        // 0 and 1 in the first site, 2 in the second, 3 below a rack of the second, 4 in none.
        let mut links = BedLinks::equal(5, RATE_BPS);
        links.between = vec![vec![0, THERE], vec![BACK, 0]];
        links.racks = vec![RackLinks { rates: Rates::both(RATE_BPS), site: Some(1) }];
        for (host, site) in [(0, 0), (1, 0), (2, 1)] {
            links.hosts[host].site = Some(site);
        }
        links.hosts[3].rack = Some(0);
        let bed = Bed::create(&links)?;
        let span = Duration::from_secs(1);
        let beyond = |flows: &[Received], limit: u64| {
            let sent: u64 = flows.iter().map(|flow| flow.bytes).sum();
            sent as f64 > limit as f64 / 8.0 * flows[0].elapsed.as_secs_f64() + BURST_BYTES
        };
        ensure!(beyond(&incast(&bed, &[(0, Class::Data)], 1, span)?, THERE), "inside a site");
        ensure!(beyond(&incast(&bed, &[(2, Class::Data)], 3, span)?, THERE), "into a rack of the same site");
        ensure!(beyond(&incast(&bed, &[(0, Class::Data)], 4, span)?, THERE), "to a host without a site");
        let there = incast(&bed, &[(0, Class::Data), (1, Class::Data)], 3, span)?;
        say(&format!("from site to site: {:.1} % of the link", share_of_link(&there, THERE)? * 100.0));
        let back = incast(&bed, &[(2, Class::Data), (3, Class::Data)], 0, span)?;
        say(&format!("and back: {:.1} %", share_of_link(&back, BACK)? * 100.0));
        Ok(())
    });
}
