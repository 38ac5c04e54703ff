use super::*;
use proptest::prelude::*;
use weir_model::{Bytes, Rate};
use weir_policy::route::Rule;
use weir_trace::wan::{Measurements, Skew, SkewedDemands};

fn demand(capacity: &[&[f64]], bytes: &[&[u64]]) -> SiteDemand {
    let capacity: Vec<Vec<Rate>> =
        capacity.iter().map(|row| row.iter().copied().map(Rate::from_bytes_per_sec).collect()).collect();
    let bytes: Vec<Vec<Bytes>> = bytes.iter().map(|row| row.iter().copied().map(Bytes).collect()).collect();
    SiteDemand::new(&capacity, &bytes).unwrap()
}

#[track_caller]
fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 1e-6 * expected.max(1.0), "{value} instead of {expected}");
}

#[test]
fn one_pair_uses_both_its_ways_in_proportion_to_what_they_carry() {
    // Direct 10 B/s, detour 30 and 60 B/s, so 30: 1200 bytes at 40 B/s take 30 s, 300 of them directly.
    let demand = demand(
        &[&[0.0, 10.0, 30.0], &[1.0, 0.0, 1.0], &[1.0, 60.0, 0.0]],
        &[&[0, 1200, 0], &[0; 3], &[0; 3]],
    );
    let routes = least_makespan(&demand).unwrap();
    close(routes.makespan_s(), 30.0);
    close(routes.split_bytes(0, 1, 1), 300.0);
    close(routes.split_bytes(0, 1, 2), 900.0);
}

#[test]
fn two_pairs_into_one_site_share_what_goes_into_it() {
    // Everything for site 1 comes over 0->1 (10 B/s) or 2->1 (20 B/s): 900 + 0 bytes over 30 B/s take 30 s, if 0->2
    // (40 B/s) carries the 600 that are relayed: it does in 15 s. With 300 more from site 2, 1200 / 30 = 40 s.
    let capacity: [&[f64]; 3] = [&[0.0, 10.0, 40.0], &[1.0, 0.0, 1.0], &[1.0, 20.0, 0.0]];
    close(least_makespan(&demand(&capacity, &[&[0, 900, 0], &[0; 3], &[0; 3]])).unwrap().makespan_s(), 30.0);
    let both = demand(&capacity, &[&[0, 900, 0], &[0; 3], &[0, 300, 0]]);
    close(least_makespan(&both).unwrap().makespan_s(), 40.0);
}

#[test]
fn nothing_to_move_takes_no_time() {
    let demand = demand(&[&[0.0, 1.0], &[1.0, 0.0]], &[&[0; 2], &[0; 2]]);
    assert_eq!(least_makespan(&demand).unwrap().makespan_s(), 0.0);
}

fn any_demand() -> impl Strategy<Value = SiteDemand> {
    (2..6usize).prop_flat_map(|sites| {
        let row = |value| prop::collection::vec(value, sites);
        let capacities = prop::collection::vec(row((1u64..1000).boxed()), sites);
        let demands = prop::collection::vec(row(prop_oneof![Just(0), 0..1_000_000u64].boxed()), sites);
        (capacities, demands).prop_map(|(capacities, demands)| {
            let floats: Vec<Vec<f64>> =
                capacities.iter().map(|row| row.iter().map(|&value| value as f64).collect()).collect();
            let rows: Vec<&[f64]> = floats.iter().map(Vec::as_slice).collect();
            demand(&rows, &demands.iter().map(Vec::as_slice).collect::<Vec<_>>())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_rule_beats_the_bound_and_no_bound_beats_a_cut(demand in any_demand()) {
        let bound_s = least_makespan(&demand).unwrap().makespan_s();
        let direct_s = Routes::direct(&demand).makespan_s();
        prop_assert!(bound_s <= direct_s);
        for rule in Rule::ALL {
            let makespan_s = rule.route(&demand).makespan_s();
            prop_assert!(bound_s <= makespan_s + 1e-5 * direct_s, "{rule:?}: {makespan_s} below {bound_s}");
        }
        // All that leaves a site does so over its links, relayed or not.
        let sites = demand.sites();
        for site in 0..sites {
            let others = || (0..sites).filter(move |&other| other != site);
            let bytes: f64 = others().map(|other| demand.bytes(site, other).0 as f64).sum();
            let capacity: f64 = others().map(|other| demand.capacity(site, other).bytes_per_sec()).sum();
            prop_assert!(bound_s >= bytes / capacity - 1e-5 * direct_s);
        }
    }
}

/// Mean of the makespans of a rule over the bound, on 60 demands over every grid that comes along.
fn means_over_bound(rule: Rule) -> Vec<f64> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/wan/skyplane-gcp5.csv");
    let measured = Measurements::open(path.as_ref()).unwrap();
    let over_bound = |snapshot: &str| {
        let grid = measured.grid(snapshot, &[]).unwrap();
        let mut demands = SkewedDemands::new(grid.regions.len(), Skew { zipf: 1.0, noise: 1.0 }, 5).unwrap();
        let ratios = (0..60).map(|_| {
            let demand = SiteDemand::new(&grid.rates, &demands.draw()).unwrap();
            rule.route(&demand).makespan_s() / least_makespan(&demand).unwrap().makespan_s()
        });
        ratios.sum::<f64>() / 60.0
    };
    measured.snapshots().map(over_bound).collect()
}

#[test]
fn the_converged_rule_is_within_1_percent_of_the_bound_on_measured_bandwidths() {
    let means = means_over_bound(Rule::Converged);
    assert!(means.iter().all(|&mean| mean < 1.01), "{means:?}");
}
