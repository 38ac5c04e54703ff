//! A relay, its hosts, receivers, neighbours and controller.

use crate::input::Input;
use std::net::SocketAddr;
use weir_core::relay::{HopId, Relay, RelayConfig, SubscriberId, UpstreamId, UpstreamKind, WINDOW_BYTES};
use weir_model::{Span, Time};
use weir_proto::relay::{FlowKey, Header, Kind, MAX_DATA_BYTES, Open};

fn address(at: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, (at % 4) as u8], 7072))
}

/// Plays a sequence.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (name, address, window_bytes) = ("r0".to_owned(), address(0), WINDOW_BYTES);
    let config = RelayConfig { name, site: 0, address, started_ms: 1, window_bytes };
    let mut relay: Relay<()> = Relay::new(config);
    let mut now = Time::from_millis(1_000);
    while step(&mut relay, &mut input, &mut now).is_some() {
        while relay.poll_output().is_some() {}
        assert!(relay.held() <= weir_proto::limits::MAX_RELAY_HELD_BYTES);
        relay.next_timeout();
    }
    // Once everybody is gone, so is what was held.
    for id in 0..16 {
        relay.handle_upstream_closed(UpstreamId(id));
        relay.handle_subscriber_closed(SubscriberId(id));
    }
    for _ in 0..4 {
        now = now + Span::from_millis(20_000);
        relay.handle_timeout(now);
        while relay.poll_output().is_some() {}
    }
}

fn key(input: &mut Input<'_>) -> Option<FlowKey> {
    let byte = u32::from(input.byte()?);
    Some(FlowKey { coflow: u64::from(byte & 1), reducer: byte >> 1 & 3, mapper: byte >> 3 & 1 })
}

fn step(relay: &mut Relay<()>, input: &mut Input<'_>, now: &mut Time) -> Option<()> {
    match input.byte()? % 16 {
        0 | 1 => {
            let (from, key, choice, number) =
                (input.number()? % 16, key(input)?, input.byte()?, input.number()?);
            let kind = if choice & 1 == 1 { UpstreamKind::Host } else { UpstreamKind::Relay };
            let destination = address(u64::from(choice >> 1));
            let open = Open { source_site: 0, destination_site: u32::from(choice >> 1 & 3), destination };
            let header = Header { kind: Kind::Open, hop_limit: choice >> 4, length: 0, key, number };
            relay.handle_open(*now, UpstreamId(from), kind, &header, open);
        }
        2..=4 => {
            let (from, key, number) = (input.number()? % 16, key(input)?, input.number()?);
            let length = input.number()?.saturating_mul(2048).min(MAX_DATA_BYTES as u64) as u32;
            let header = Header { kind: Kind::Data, hop_limit: input.byte()?, length, key, number };
            relay.handle_data(*now, UpstreamId(from), &header, ());
        }
        5 => relay.handle_alive(*now, UpstreamId(input.number()? % 16), key(input)?),
        6 => relay.handle_end(UpstreamId(input.number()? % 16), key(input)?, input.number()?),
        7 => relay.handle_upstream_reset(UpstreamId(input.number()? % 16), key(input)?),
        8 => relay.handle_upstream_closed(UpstreamId(input.number()? % 16)),
        9 => relay.handle_subscribe(*now, SubscriberId(input.number()? % 16), key(input)?),
        10 => relay.handle_subscriber_closed(SubscriberId(input.number()? % 16)),
        11 => {
            let hop = HopId(input.number()? % 16);
            match input.byte()? % 4 {
                0 => relay.handle_hop_up(*now, hop),
                1 => relay.handle_hop_down(*now, hop),
                2 => relay.handle_credit(hop, key(input)?, input.number()?),
                _ => relay.handle_hop_reset(hop, key(input)?),
            }
        }
        12 => {
            let peer = input.number()? % 16;
            let bytes = relay.poll_message(HopId(peer)).map_or(0, |message| u64::from(message.length));
            relay.handle_written(*now, HopId(peer), bytes, bytes == 0);
            relay.poll_delivery(SubscriberId(peer));
        }
        13 => match input.byte()? % 2 {
            0 => relay.handle_session_up(),
            _ => relay.handle_session_lost(),
        },
        14 => relay.handle_controller(*now, &input.message()?),
        _ => {
            *now = *now + Span::from_nanos(input.number()?.saturating_mul(1_000_000) % (1 << 40));
            relay.handle_timeout(*now);
        }
    }
    Some(())
}
