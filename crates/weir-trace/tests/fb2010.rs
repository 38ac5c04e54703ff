//! The synthetic Facebook workload has what the Varys paper publishes of its trace.

use weir_trace::statistics::{Share, Statistics, published};
use weir_trace::synthetic::Fb2010;
use weir_trace::weir_format::Writer;

const SEEDS: [u64; 8] = [1, 2, 3, 42, 1000, 123_456_789, 1 << 40, u64::MAX];

fn statistics(parameters: Fb2010) -> Statistics {
    let mut statistics = Statistics::new(parameters.hosts);
    parameters.generate().into_coflows().iter().for_each(|coflow| statistics.add(coflow));
    statistics
}

#[track_caller]
fn assert_near(actual: Share, expected: Share, coflows: f64, bytes: f64, what: &str) {
    let near = (actual.coflows - expected.coflows).abs() <= coflows
        && (actual.bytes - expected.bytes).abs() <= bytes;
    assert!(near, "{what}: {actual:?}, published {expected:?}");
}

#[test]
fn every_seed_has_the_published_bins_and_tails() {
    for seed in SEEDS {
        let found = statistics(Fb2010 { seed, ..Fb2010::default() });
        for (bin, expected) in (1..).zip(published::BINS) {
            assert_near(found.bin(bin), expected, 0.02, 0.005, &format!("seed {seed}, bin {bin}"));
        }
        // Small shares of the bytes are worth more than half a point: within a factor of two.
        for bin in 1..=3 {
            let ratio = found.bin(bin).bytes / published::BINS[usize::from(bin) - 1].bytes;
            assert!((0.5..2.0).contains(&ratio), "seed {seed}, bin {bin}: {ratio} of the published bytes");
        }
        assert_near(found.over_10_gb(), published::OVER_10_GB, 0.005, 0.005, &format!("seed {seed}, 10 GB"));
        assert_near(found.over_1_gb(), published::OVER_1_GB, 0.005, 0.001, &format!("seed {seed}, 1 GB"));
        assert!(found.length_up_to_1_mb() > published::LENGTH_UP_TO_1_MB, "{}", found.length_up_to_1_mb());
        assert!(found.narrow() > published::NARROW, "{}", found.narrow());
    }
}

#[test]
fn every_seed_has_senders_as_bottleneck_in_almost_a_third() {
    for seed in SEEDS {
        let share = statistics(Fb2010 { seed, ..Fb2010::default() }).sender_bound();
        assert!((0.30..1.0 / 3.0).contains(&share), "seed {seed}: {share}");
    }
}

#[test]
fn skew_within_a_coflow_rises_with_its_width() {
    for seed in SEEDS {
        let skews = statistics(Fb2010 { seed, ..Fb2010::default() }).skew_by_width().map(Option::unwrap);
        assert!(skews.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {skews:?}");
    }
}

#[test]
fn the_default_is_a_workload_for_150_links_of_1_gbit() {
    for seed in SEEDS {
        let found = statistics(Fb2010 { seed, ..Fb2010::default() });
        assert_eq!((found.coflows(), found.hosts()), (526, 150));
        let terabytes = found.bytes().0 as f64 / 1e12;
        assert!((18.0..22.0).contains(&terabytes), "seed {seed}: {terabytes} TB");
        assert!(found.last_arrival_s() < 3600.0);
    }
}

#[test]
fn other_sizes_keep_the_bins() {
    for (hosts, coflows) in [(16, 200), (1, 100), (40, 5000)] {
        let found = statistics(Fb2010 { hosts, coflows, ..Fb2010::default() });
        assert_eq!(found.coflows(), coflows);
        for (bin, expected) in (1..).zip(published::BINS) {
            let actual = found.bin(bin).coflows;
            assert!((actual - expected.coflows).abs() <= 0.02, "{hosts} hosts, bin {bin}: {actual}");
        }
    }
    assert_eq!(statistics(Fb2010 { coflows: 0, ..Fb2010::default() }).coflows(), 0);
}

#[test]
fn a_seed_gives_the_same_bytes_for_ever() {
    let workload = Fb2010 { hosts: 20, coflows: 60, seconds: 60, seed: 7 }.generate();
    let mut writer = Writer::new(Vec::new(), workload.hosts, None).unwrap();
    workload.jobs.iter().for_each(|job| writer.write(job).unwrap());
    let text = writer.finish().unwrap();
    // FNV-1a, 64 bits, of the file.
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!((text.len(), hash), (84_115, 4_507_500_050_280_859_126));
}
