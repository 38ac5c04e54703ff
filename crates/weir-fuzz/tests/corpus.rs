//! The sequences in `fuzz/corpus`, and others near them, run through what `make fuzz` runs. There coverage leads to inputs; here they
//! are drawn, which takes no build of its own.

use proptest::prelude::*;
use proptest::sample::Index;
use std::fs;
use std::path::Path;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<_> = files.map(|file| file.expect("a file of the corpus").path()).collect();
    names.sort();
    names.iter().map(|name| fs::read(name).expect("a file of the corpus")).collect()
}

/// A change of an input, as fuzzers make them.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
    End(Index),
    /// Goes on as another sequence does, from some place of it.
    Splice(Index, Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (at(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (at(), prop_oneof![Just(0_u8), Just(255)]).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (at(), prop::collection::vec(any::<u8>(), 1..12)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), 1..40_usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        (at(), 1..200_usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
        at().prop_map(Edit::End),
        (at(), at(), at()).prop_map(|(at, other, from)| Edit::Splice(at, other, from)),
    ]
}

fn changed(seeds: &[Vec<u8>], first: Index, edits: &[Edit]) -> Vec<u8> {
    let mut input = first.get(seeds).clone();
    for edit in edits {
        let length = input.len();
        let place = |at: &Index| at.index(length.max(1)).min(length);
        match edit {
            Edit::Set(at, byte) => input.iter_mut().skip(place(at)).take(1).for_each(|old| *old = *byte),
            Edit::Flip(at, bit) => input.iter_mut().skip(place(at)).take(1).for_each(|old| *old ^= 1 << bit),
            Edit::Insert(at, bytes) => drop(input.splice(place(at)..place(at), bytes.iter().copied())),
            Edit::Remove(at, count) => drop(input.drain(place(at)..length.min(place(at) + count))),
            Edit::Repeat(at, count) => {
                let part = input[place(at)..length.min(place(at) + count)].to_vec();
                drop(input.splice(place(at)..place(at), part));
            }
            Edit::End(at) => input.truncate(place(at)),
            Edit::Splice(at, other, from) => {
                let other = other.get(seeds);
                input.truncate(place(at));
                input.extend_from_slice(&other[from.index(other.len().max(1)).min(other.len())..]);
            }
        }
    }
    input
}

fn near(target: &str, first: Index, edits: &[Edit], run: fn(&[u8])) {
    let seeds = corpus(target);
    run(&changed(&seeds, first, edits));
}

macro_rules! targets {
    ($($target:ident),*) => {
        $(mod $target {
            use super::*;

            #[test]
            fn sequences_that_are_kept_break_nothing() {
                let seeds = corpus(stringify!($target));
                assert!(!seeds.is_empty());
                seeds.iter().for_each(|seed| weir_fuzz::$target::run(seed));
            }

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(20_000))]

                #[test]
                fn sequences_near_them_break_nothing(
                    first in any::<Index>(),
                    edits in prop::collection::vec(edit(), 1..20),
                ) {
                    near(stringify!($target), first, &edits, weir_fuzz::$target::run);
                }
            }
        })*
    };
}

targets!(decoders, traces, journal, coordinator, agent, relay, controller);
