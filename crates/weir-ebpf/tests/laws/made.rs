//! Windows that a sender could see, and worse, made by chance.

use proptest::prelude::*;
use weir_ebpf::McpConfig;
use weir_model::{Rate, Span};

use crate::kernel::{Facts, compare, load};

/// Some link that both count alike: the program has it in 256ths of a segment per second.
fn links() -> impl Strategy<Value = Option<Rate>> {
    prop_oneof![
        Just(None),
        (1u64..2_000_000).prop_map(|segments| Some(Rate::from_bytes_per_sec(segments as f64 * 1500.0)))
    ]
}

/// A flow as its sender could see it, and worse. Its segments are no more than the largest window, a million.
fn flows() -> impl Strategy<Value = (McpConfig, Vec<Facts>)> {
    let windows = proptest::collection::vec((0u64..20_000, 0u32..200, 0.0f64..1.0, 0.5f64..30.0), 1..300);
    (20_000u64..20_000_000, links(), 1u64..1_400_000_000, 1u64..30_000, windows).prop_map(
        |(base_rtt, link, size, rtts, windows)| {
            let mut facts =
                Facts { remaining: size, left_ns: rtts * base_rtt, rtt_ns: 0, acked: 0, marked: 0 };
            let mut all = vec![facts];
            for (sent, acked, share, longer) in windows {
                facts.rtt_ns = (base_rtt as f64 * longer) as u64;
                facts.remaining = facts.remaining.saturating_sub(sent).max(1);
                facts.left_ns = facts.left_ns.saturating_sub(facts.rtt_ns);
                (facts.acked, facts.marked) =
                    (acked, (f64::from(acked) * (2.0 * share - 1.0).max(0.0)) as u32);
                all.push(facts);
            }
            (McpConfig::new(Span::from_nanos(base_rtt), link), all)
        },
    )
}

#[test]
fn both_laws_decide_alike_whatever_a_sender_sees() {
    let Some(kernel) = load().expect("the programs load") else { return };
    let kernel = std::cell::RefCell::new(kernel);
    let config = ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((config, windows) in flows())| {
        let mut kernel = kernel.borrow_mut();
        kernel.begin(&config);
        let compared = compare(&mut kernel, &config, &windows);
        prop_assert!(compared.is_ok(), "{:#}", compared.unwrap_err());
    });
}

/// What is left of the horizon is a 500th then, and its square 4 in a million: of so small a number few bits are left.
#[test]
fn both_laws_decide_alike_for_a_flow_that_yields_just_before_its_deadline() {
    let Some(mut kernel) = load().expect("the programs load") else { return };
    let base_rtt = 94_885;
    let config = McpConfig::new(Span::from_nanos(base_rtt), None);
    kernel.begin(&config);
    let begins = Facts { remaining: 1_138_609, left_ns: 170_982_770, rtt_ns: 0, acked: 0, marked: 0 };
    let full = Facts { left_ns: 60_000_000, rtt_ns: 25 * base_rtt, acked: 40, marked: 40, ..begins };
    for more in [0, 100, 1_000, 3_000] {
        let last = Facts { left_ns: base_rtt + more, ..full };
        // Prices from 1.25 to 28.
        for marked in 1..16 {
            let windows: Vec<Facts> = [begins].into_iter().chain(vec![full; marked]).chain([last]).collect();
            compare(&mut kernel, &config, &windows).expect("alike");
        }
    }
}
