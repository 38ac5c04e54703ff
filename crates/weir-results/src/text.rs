//! Tables, numbers and names for people.

use comfy_table::{CellAlignment, Table, presets};

/// A table with a header, numbers to the right: columns from `first_number` on.
pub fn table(header: &[&str], first_number: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header);
    for column in first_number..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table as text, without spaces at the ends of lines.
pub fn text(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Numbers below are written with an exponent: a reader would have to count the zeros of a plain one.
const SMALLEST_PLAIN: f64 = 1e-4;

/// A number with about four significant digits.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let digits = match value.abs() {
        value if value >= 1000.0 => 0,
        value if value >= 100.0 => 1,
        value if value >= 10.0 => 2,
        value if value >= 1.0 => 3,
        0.0 => return "0".to_owned(),
        // 0.0123 has the logarithm -1.9: 3 + 2 decimals show four digits of it.
        value if value >= SMALLEST_PLAIN => 3 + value.log10().floor().abs() as usize,
        _ => return format!("{value:.3e}"),
    };
    format!("{value:.digits$}")
}

/// A number with so many decimals and what stands behind it; `-` if it is none.
pub fn fixed(value: f64, digits: usize, unit: &str) -> String {
    if value.is_finite() { format!("{value:.digits$}{unit}") } else { "-".to_owned() }
}

/// How many times as large `base` is.
pub fn ratio(base: f64, value: f64) -> String {
    if value > 0.0 { fixed(base / value, 2, "x") } else { "-".to_owned() }
}

/// Longest name that tables show, in characters.
const SHOWN_CHARS: usize = 60;

/// A name that a stranger gave, fit for a terminal: control characters are escaped, and what is too long is cut.
pub fn printable(name: &str) -> String {
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
    fn small_numbers_keep_four_significant_digits() {
        let shown = [1234.6, 12.345, 0.5, 0.0123456, 0.000123456, 1.23456e-6, 0.0, f64::NAN].map(number);
        assert_eq!(shown, ["1235", "12.35", "0.5000", "0.01235", "0.0001235", "1.235e-6", "0", "-"]);
        assert_eq!(number(-0.0123456), "-0.01235");
    }

    #[test]
    fn names_with_escape_codes_and_newlines_are_harmless_on_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\u{a}c");
        assert_eq!(printable("shuffle 7 µ"), "shuffle 7 µ");
        assert_eq!(printable(&"x".repeat(100)).chars().count(), 61);
    }
}
