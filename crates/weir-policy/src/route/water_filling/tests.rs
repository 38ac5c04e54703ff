use super::*;
use proptest::prelude::*;
use weir_model::{Bytes, Rate};

/// Four sites whose links carry 10 bytes a second unless said, and what has to go where.
fn demand(rates: &[(Link, f64)], bytes: &[(Link, u64)]) -> SiteDemand {
    let mut capacity = vec![vec![Rate::from_bytes_per_sec(10.0); 4]; 4];
    let mut demands = vec![vec![Bytes(0); 4]; 4];
    for &((from, to), rate) in rates {
        capacity[from][to] = Rate::from_bytes_per_sec(rate);
    }
    for &((from, to), value) in bytes {
        demands[from][to] = Bytes(value);
    }
    SiteDemand::new(&capacity, &demands).unwrap()
}

#[track_caller]
fn close(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance * expected, "{value} instead of {expected}");
}

#[test]
fn alpha_on_equal_links() {
    // D* = 100, D' = 20 on 0->2, nothing on 2->1; all B = 10. alpha = (100 * 10 - 20 * 10) / (100 * 20) = 0.4 on
    // 0->2, and (100 * 10 - 0) / (100 * 20) = 0.5 on 2->1: 40 bytes move. (100 - 40) / 10 = (20 + 40) / 10 = 6.
    // The detour over 3 has more to do: 90.
    let demand = demand(&[], &[((0, 1), 100), ((0, 2), 20), ((0, 3), 90)]);
    let routes = Rule::OneIteration.route(&demand);
    close(routes.split_bytes(0, 1, 2), 40.0, 1e-12);
    close(routes.split_bytes(0, 1, 1), 60.0, 1e-12);
    close(routes.link_time_s(0, 1), 6.0, 1e-12);
    close(routes.link_time_s(0, 2), 6.0, 1e-12);
    close(routes.link_time_s(2, 1), 4.0, 1e-12);
    assert_eq!(routes.link_bytes(0, 3), 90.0);
}

#[test]
fn alpha_on_links_of_different_capacity() {
    // D* = 100, B* = 10; detour 0->2 has D' = 60, B' = 30, and 2->1 nothing at 90.
    // 0->2: (100 * 30 - 60 * 10) / (100 * 40) = 0.6. 2->1: (100 * 90) / (100 * 100) = 0.9. 60 bytes move, and
    // (100 - 60) / 10 = (60 + 60) / 30 = 4.
    let demand =
        demand(&[((0, 2), 30.0), ((2, 1), 90.0)], &[((0, 1), 100), ((0, 2), 60), ((0, 3), 95), ((2, 1), 0)]);
    let routes = Rule::OneIteration.route(&demand);
    close(routes.split_bytes(0, 1, 2), 60.0, 1e-12);
    close(routes.link_time_s(0, 1), 4.0, 1e-12);
    close(routes.link_time_s(0, 2), 4.0, 1e-12);
}

#[test]
fn the_link_of_the_detour_that_takes_less_limits_even_if_it_is_not_the_heavier_one() {
    // 0->2 is idle but has 2 B/s, 2->1 holds 100 bytes at 100 B/s. By time, 2->1 is the heavier (1 s against 0), and
    // its alpha would be (100 * 100 - 100 * 10) / (100 * 110) = 0.818: 82 bytes over 0->2 would take 41 s.
    // 0->2 allows (100 * 2 - 0) / (10 + 2) = 16.67.
    let demand = demand(
        &[((0, 2), 2.0), ((2, 1), 100.0), ((0, 3), 20.0)],
        &[((0, 1), 100), ((2, 1), 100), ((0, 3), 180)],
    );
    let routes = Rule::OneIteration.route(&demand);
    close(routes.split_bytes(0, 1, 2), 100.0 / 6.0, 1e-12);
    close(routes.link_time_s(0, 1), routes.link_time_s(0, 2), 1e-12);
}

#[test]
fn the_detour_is_the_one_whose_slower_link_has_least_to_do() {
    // Over 2: 5 s and 0 s, over 3: 4 s and 4 s. The sums would choose 2.
    let demand = demand(&[], &[((0, 1), 100), ((0, 2), 50), ((0, 3), 40), ((3, 1), 40)]);
    let routes = Rule::OneIteration.route(&demand);
    // (100 * 10 - 40 * 10) / 20 = 30.
    close(routes.split_bytes(0, 1, 3), 30.0, 1e-12);
    assert_eq!(routes.split_bytes(0, 1, 2), 0.0);
}

#[test]
fn what_was_moved_to_a_detour_stays_there_as_published_and_may_come_back_when_converged() {
    // 120 bytes over three paths of equal links. First 60 go over relay 2; then 30 of the other 60 over relay 3. Now
    // 0->2 and 2->1 are the bottleneck with 6 s, and have no direct traffic. Even is 40 on each path: 4 s.
    let demand = demand(&[], &[((0, 1), 120)]);
    for (rule, paths) in [(Rule::OneIteration, [60.0, 60.0, 0.0]), (Rule::Published, [30.0, 60.0, 30.0])] {
        let routes = rule.route(&demand);
        assert_eq!([1, 2, 3].map(|hop| routes.split_bytes(0, 1, hop)), paths, "{rule:?}");
        close(routes.makespan_s(), 6.0, 1e-12);
    }
    let routes = Rule::Converged.route(&demand);
    close(routes.makespan_s(), 4.0, 1e-3);
    close(routes.relayed_bytes(), 80.0, 1e-3);
}

#[test]
fn a_link_that_is_in_the_way_is_relieved_too_when_converged() {
    // All paths of 0 -> 1 begin with 0->1 (10 s), 0->2 (10 s) or 0->3 (10 s); the traffic on 0->2 can itself go over
    // 3, but that is as full. 0->3 alone gets more capacity: 0->1 can move there, by 3->1, and so can 0 -> 2, by 3->2.
    // All 300 bytes leave site 0 at 10 + 10 + 40 B/s: 5 s. Of these 50, 50 and 200 on the three links.
    let demand = demand(&[((0, 3), 40.0)], &[((0, 1), 100), ((0, 2), 100), ((0, 3), 100)]);
    let routes = Rule::Converged.route(&demand);
    close(routes.makespan_s(), 5.0, 1e-3);
    close(routes.link_bytes(0, 3), 200.0, 1e-3);
}

#[test]
fn a_bottleneck_that_no_detour_helps_is_left_as_it_is() {
    // Every link out of site 0 takes 10 s.
    let demand = demand(&[], &[((0, 1), 100), ((0, 2), 100), ((0, 3), 100)]);
    for rule in Rule::ALL {
        assert_eq!(rule.route(&demand), Routes::direct(&demand), "{rule:?}");
    }
}

#[test]
fn two_sites_have_no_detour() {
    let rates = vec![vec![Rate::from_bytes_per_sec(1.0); 2]; 2];
    let demand = SiteDemand::new(&rates, &[vec![Bytes(0), Bytes(7)], vec![Bytes(0); 2]]).unwrap();
    for rule in Rule::ALL {
        let routes = rule.route(&demand);
        assert_eq!(routes.makespan_s(), 7.0);
        // A sum of nothing is -0 in floating point, and would be printed so.
        assert!(routes.relayed_bytes().is_sign_positive());
    }
}

fn any_demand() -> impl Strategy<Value = SiteDemand> {
    (2..7usize).prop_flat_map(|sites| {
        let table =
            |value: BoxedStrategy<u64>| prop::collection::vec(prop::collection::vec(value, sites), sites);
        let bytes = prop_oneof![Just(0), 1..100u64, 0..1_000_000_000_000u64].boxed();
        (table((1..10_000u64).boxed()), table(bytes)).prop_map(|(rates, bytes)| {
            let rate = |&value: &u64| Rate::from_bytes_per_sec(value as f64);
            let rates: Vec<Vec<Rate>> = rates.iter().map(|row| row.iter().map(rate).collect()).collect();
            let bytes: Vec<Vec<Bytes>> =
                bytes.iter().map(|row| row.iter().copied().map(Bytes).collect()).collect();
            SiteDemand::new(&rates, &bytes).unwrap()
        })
    })
}

/// Bytes on a link as the splits of all pairs say.
fn bytes_by_splits(routes: &Routes, link: Link) -> f64 {
    let paths = crossing(link, routes.demand().sites());
    paths.map(|((from, to), hop)| routes.split_bytes(from, to, hop)).sum()
}

proptest! {
    #[test]
    fn every_rule_keeps_all_bytes_and_each_is_at_least_as_fast_as_the_one_before(demand in any_demand()) {
        let scale = demand.total_bytes();
        let mut before_s = Routes::direct(&demand).makespan_s();
        for rule in Rule::ALL {
            let routes = rule.route(&demand);
            for (from, to) in demand.pairs() {
                let paths = (0..demand.sites()).map(|hop| routes.split_bytes(from, to, hop));
                prop_assert!(paths.clone().all(|bytes| bytes >= 0.0));
                let (sum, bytes) = (paths.sum::<f64>(), demand.bytes(from, to).0 as f64);
                prop_assert!((sum - bytes).abs() <= 1e-9 * bytes, "{rule:?} {from}->{to}: {sum} of {bytes}");
                let load = routes.link_bytes(from, to);
                prop_assert!((load - bytes_by_splits(&routes, (from, to))).abs() <= 1e-9 * scale);
            }
            let makespan_s = routes.makespan_s();
            prop_assert!(makespan_s <= before_s * (1.0 + 1e-9), "{rule:?}: {makespan_s} after {before_s}");
            before_s = makespan_s;
        }
    }

    #[test]
    fn one_iteration_touches_the_bottleneck_and_the_links_of_one_detour_alone(demand in any_demand()) {
        let (direct, routes) = (Routes::direct(&demand), Rule::OneIteration.route(&demand));
        let change = |(from, to)| routes.link_bytes(from, to) - direct.link_bytes(from, to);
        let lighter: Vec<Link> = demand.pairs().filter(|&link| change(link) < 0.0).collect();
        let heavier: Vec<Link> = demand.pairs().filter(|&link| change(link) > 0.0).collect();
        prop_assert!((lighter.len(), heavier.len()) == (1, 2) || (lighter.len(), heavier.len()) == (0, 0));
        if let (&[bottleneck], &[first, second]) = (&lighter[..], &heavier[..]) {
            prop_assert_eq!(time_s(&direct, bottleneck), direct.makespan_s());
            let chained = |one: Link, other: Link| one == (bottleneck.0, other.0) && other.1 == bottleneck.1;
            prop_assert!(chained(first, second) || chained(second, first));
        }
    }

    #[test]
    fn the_unit_of_bytes_does_not_matter(demand in any_demand()) {
        // Twice the bytes and twice the capacity: a power of two, so floating-point numbers agree exactly.
        let sites = demand.sites();
        let table = |value: &dyn Fn(usize, usize) -> u64| -> Vec<Vec<u64>> {
            let row = |from| (0..sites).map(|to| if from == to { 0 } else { value(from, to) }).collect();
            (0..sites).map(row).collect()
        };
        let bytes = table(&|from, to| 2 * demand.bytes(from, to).0);
        let bytes: Vec<Vec<Bytes>> =
            bytes.into_iter().map(|row| row.into_iter().map(Bytes).collect()).collect();
        let rates: Vec<Vec<Rate>> = (0..sites)
            .map(|from| (0..sites).map(|to| demand.capacity(from, to).scaled(2.0)).collect())
            .collect();
        let doubled = SiteDemand::new(&rates, &bytes).unwrap();
        for rule in Rule::ALL {
            prop_assert_eq!(rule.route(&demand).makespan_s(), rule.route(&doubled).makespan_s());
        }
    }
}
