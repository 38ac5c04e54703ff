//! What commands give back: one schema of results for `weir sim` and `weir live`, tables, and files
//! written whole or not at all.

mod csv;
mod cut;
mod files;
mod flows;
mod place;
mod provenance;
mod results;
mod tables;

pub(crate) use csv::{CsvFiles, cell};
pub(crate) use cut::Cut;
pub(crate) use files::{Files, OutputFile};
pub(crate) use flows::{FlowRecorder, FlowRow};
pub(crate) use provenance::Provenance;
pub(crate) use results::{CoflowRow, Mode, Results, Run};
pub(crate) use tables::{BINS, bin_average, bins_table, fixed, number, ratio, summary_table, table, text};

/// Arithmetic mean; not a number of nothing, which tables show as `-` and JSON as null.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { f64::NAN } else { weir_sim::mean(values) }
}

/// As [`weir_sim::percentile`]; not a number of nothing.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() { f64::NAN } else { weir_sim::percentile(sorted, share) }
}

/// The middle one, or the mean of the two in the middle; not a number of nothing.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) =
        (values.get(values.len().saturating_sub(1) / 2), values.get(values.len() / 2))
    else {
        return f64::NAN;
    };
    (low + high) / 2.0
}

/// Longest name that tables show, in characters.
const SHOWN_CHARS: usize = 60;

/// A name that a stranger gave, fit for a terminal: control characters are escaped, and what is too long is cut.
pub(crate) fn printable(name: &str) -> String {
    let mut shown = String::new();
    for (at, part) in name.chars().enumerate() {
        if at == SHOWN_CHARS {
            shown.push('…');
            break;
        }
        // Escape codes, line ends, and what turns the direction of writing.
        let hidden = part.is_control()
            || matches!(part, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if hidden { shown.extend(part.escape_unicode()) } else { shown.push(part) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_escape_codes_and_newlines_are_harmless_on_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\u{a}c");
        assert_eq!(printable("shuffle 7 µ"), "shuffle 7 µ");
        assert_eq!(printable(&"x".repeat(100)).chars().count(), 61);
    }
}
