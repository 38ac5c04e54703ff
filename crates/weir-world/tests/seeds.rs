//! What `make test` looks at of the world; `weir-world --seeds N` goes on from there.

use weir_world::Settings;

/// How many seeds the test runs, if not the usual.
fn seeds() -> u64 {
    std::env::var("WEIR_WORLD_SEEDS").map_or(500, |seeds| seeds.parse().expect("a number of seeds"))
}

#[test]
#[cfg(not(feature = "planted"))]
fn five_hundred_seeds_find_nothing() {
    let outcome = weir_world::run_seeds(0..seeds(), Settings::of_seed, |seed, violation| {
        println!("cargo run --release -p weir-world -- --seed {seed} --trace\n{violation}");
    });
    assert!(
        outcome.failed.is_empty(),
        "seeds {:?}",
        outcome.failed.iter().map(|(seed, _)| seed).collect::<Vec<_>>()
    );
    let done = outcome.done;
    // A world in which nothing happens finds nothing either.
    assert!(
        done.faults > 10 * seeds() && done.transfers > done.gets && done.gets > 100 * seeds(),
        "{done:?}"
    );
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [1, 2, 7] {
        let once = || weir_world::run(seed, &Settings::of_seed(seed)).expect("a seed that finds nothing");
        assert_eq!(once(), once(), "seed {seed}");
    }
    let other =
        |seed| weir_world::run(seed, &Settings::of_seed(1)).expect("a seed that finds nothing").digest;
    assert_ne!(other(1), other(2));
}

#[test]
#[cfg(feature = "planted")]
fn a_failing_run_is_made_smaller_and_fails_in_the_same_way() {
    use weir_core::planted::{Defect, plant};
    for defect in [Defect::OffsetForgotten, Defect::EndNotTold, Defect::UncertainHeld] {
        let (tried, violation) = weir_world::find(defect, 0..200).expect("it is found");
        plant(Some(defect));
        let seed = tried - 1;
        let failing = weir_world::Failing { seed, settings: Settings::of_seed(seed), violation };
        let smaller = weir_world::shrink(failing.clone());
        let again = weir_world::run(smaller.seed, &smaller.settings).expect_err("it fails");
        plant(None);
        assert_eq!(again.what, smaller.violation.what);
        let events = |failing: &weir_world::Failing| failing.violation.report.events;
        assert!(
            events(&smaller) < events(&failing),
            "{defect:?}: {} of {}",
            events(&smaller),
            events(&failing)
        );
        println!("{defect:?}: {} of {} events: {}", events(&smaller), events(&failing), smaller.arguments());
    }
}

#[test]
#[cfg(feature = "planted")]
fn what_is_planted_is_found() {
    let lost: Vec<_> = weir_core::planted::ALL
        .into_iter()
        .filter(|defect| !weir_core::planted::RARE.contains(defect))
        .filter(|&defect| weir_world::find(defect, 0..seeds().min(200)).is_none())
        .collect();
    assert!(lost.is_empty(), "{lost:?} are not found");
}
