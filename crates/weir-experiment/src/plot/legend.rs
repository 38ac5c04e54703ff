//! Below the drawing: which series is which, what diamonds and whiskers are.

use super::style::{Look, paper};
use super::{Chart, EDGE, LETTER, LINE, WIDTH, text, text_lines, width, wrapped};

/// Room for the sample of a series.
const SAMPLE: f64 = 34.0;

/// Draws from `bottom` on downwards, and moves it. Names stand in as many columns as the longest of them leaves room for;
/// one that is wider than the drawing gets several lines.
pub(super) fn draw(chart: &Chart, body: &mut String, bottom: &mut f64) {
    let room = WIDTH - 2.0 * EDGE;
    // A single series has its name in the rows.
    let several = chart.series.len() > 1;
    let names: Vec<Vec<String>> = if several {
        chart.series.iter().map(|series| wrapped(&series.name, room - SAMPLE, LETTER)).collect()
    } else {
        Vec::new()
    };
    let widest = names.iter().map(|name| width(name) + SAMPLE + 12.0).fold(1.0, f64::max);
    let columns = ((room / widest) as usize).clamp(1, names.len().max(1));
    *bottom += 4.0;
    for (row, group) in names.chunks(columns).enumerate() {
        let lines = group.iter().map(Vec::len).max().unwrap_or(1);
        for (column, name) in group.iter().enumerate() {
            let number = row * columns + column;
            let look = Look::of(number);
            let left = EDGE + column as f64 * room / columns as f64;
            let y = *bottom + LINE / 2.0;
            look.open("key", &name.concat(), body);
            if chart.places.is_some() {
                look.polyline(&[(left, y), (left + 26.0, y)], body);
            }
            look.marker((left + 13.0, y), body);
            body.push_str("</g>\n");
            for (at, part) in name.iter().enumerate() {
                text(body, "", (left + SAMPLE, y + 4.5 + at as f64 * LINE), "start", part);
            }
        }
        *bottom += lines as f64 * LINE + 2.0;
    }
    let reads = |wanted: bool| chart.marks().filter_map(|mark| mark.paper).any(|(_, read)| read == wanted);
    let kinds = [(false, "the paper's value"), (true, "the paper's value, read from a figure")];
    for (read, words) in kinds.into_iter().filter(|(read, _)| reads(*read)) {
        let y = *bottom + LINE / 2.0;
        paper((EDGE + 13.0, y), read, "#111", words, body);
        text(body, "", (EDGE + SAMPLE, y + 4.5), "start", words);
        *bottom += LINE + 2.0;
    }
    if !chart.note.is_empty() {
        text_lines(body, "", EDGE, bottom, &wrapped(&chart.note, room, LETTER));
    }
}
