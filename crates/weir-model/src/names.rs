//! Names that were mistyped.

/// Most letters that may be wrong, missing, too many or swapped with their neighbour.
const MOST_SLIPS: usize = 2;

/// `did you mean `NAME`? `, with a space behind it, where one of the known names is close to the given one; else nothing.
pub fn meant<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let close = known.into_iter().map(|name| (slips(given, name), name));
    // Of a short name too much would be wrong.
    let close = close.filter(|(slips, name)| *slips <= MOST_SLIPS && 2 * slips < name.chars().count());
    close.min().map_or_else(String::new, |(_, name)| format!("did you mean `{name}`? "))
}

/// Slips between two words: the distance of optimal string alignment.
fn slips(one: &str, other: &str) -> usize {
    let [one, other] = [one, other].map(|word| word.chars().collect::<Vec<_>>());
    if one.len().abs_diff(other.len()) > MOST_SLIPS {
        return usize::MAX;
    }
    // Row of the letter before the last, of the last, and of this one.
    let (mut before, mut last) = (Vec::new(), (0..=other.len()).collect::<Vec<usize>>());
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in other.iter().enumerate() {
            let changed = last[j] + usize::from(letter != wanted);
            let mut least = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && one[i - 1] == *wanted && *letter == other[j - 1] {
                let swapped: usize = before[j - 1];
                least = least.min(swapped + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_known_name_is_offered_and_none_that_is_far() {
        let offered = |given| meant(given, ["fair", "fifo", "varys", "varys-madd"]);
        assert_eq!(offered("varis"), "did you mean `varys`? ");
        assert_eq!(offered("vayrs"), "did you mean `varys`? ");
        assert_eq!(offered("varys-mad"), "did you mean `varys-madd`? ");
        assert_eq!(offered("fiar"), "did you mean `fair`? ");
        assert_eq!(["", "x", "zzzz", "siphon"].map(offered), [""; 4]);
        assert_eq!((slips("abc", "abc"), slips("abc", "acb"), slips("abc", "")), (0, 1, usize::MAX));
    }
}
