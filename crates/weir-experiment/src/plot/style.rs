//! How series look: a colour, a marker and a dash each, so that neither colour vision nor a printer's ink decides which
//! is which.

use super::Mark;
use std::fmt::Write;

/// Of the whole drawing.
pub(super) const STYLE: &str = "text{font:13px sans-serif;fill:#222}.title{font-size:14px}.title,.name{font-weight:bold}.grid{stroke:#ddd}\
    .axis{stroke:#777}.one{stroke:#777;stroke-dasharray:2 3}.paper{fill:#fff;stroke:#111;stroke-width:1.5}\
    .read{stroke-dasharray:2 1.5}svg{max-width:100%;height:auto}";

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito), and grey.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f"];

/// Outlines of markers about their middle. Seven of them with eight colours: 56 series before two look alike.
const MARKERS: [(&str, &str); 7] = [
    ("square", "M-4 -4H4V4H-4Z"),
    ("triangle", "M0 -5L5 4H-5Z"),
    ("circle", "M-4.5 0A4.5 4.5 0 1 1 4.5 0A4.5 4.5 0 1 1 -4.5 0Z"),
    ("turned triangle", "M0 5L5 -4H-5Z"),
    ("cross", "M-5 -3L-3 -5L0 -2L3 -5L5 -3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z"),
    ("upright", "M-2 -6H2V6H-2Z"),
    ("plus", "M-1.5 -5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z"),
];

/// Lines from whole to dotted.
const DASHES: [&str; 5] = ["", "7 3", "2 2", "9 3 2 3", "12 3"];

/// The look of a series by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) colour: &'static str,
    marker: (&'static str, &'static str),
    dash: &'static str,
}

impl Look {
    pub(super) fn of(number: usize) -> Look {
        Look {
            colour: COLOURS[number % COLOURS.len()],
            marker: MARKERS[number % MARKERS.len()],
            dash: DASHES[number % DASHES.len()],
        }
    }

    /// The beginning of a group of what belongs to one series.
    pub(super) fn open(self, class: &str, name: &str, body: &mut String) {
        let (marker, _) = self.marker;
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            body,
            "<g class=\"{class}\" data-marker=\"{marker}\" data-dash=\"{}\" fill=\"{}\" stroke=\"none\"><title>{}</title>",
            self.dash,
            self.colour,
            super::escape(name)
        );
    }

    pub(super) fn marker(self, (x, y): (f64, f64), body: &mut String) {
        let (_, outline) = self.marker;
        let _ = writeln!(body, "<path d=\"{outline}\" transform=\"translate({x:.1} {y:.1})\"/>");
    }

    /// A line through points.
    pub(super) fn polyline(self, points: &[(f64, f64)], body: &mut String) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash =
            if self.dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", self.dash) };
        let _ = writeln!(
            body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dash}/>",
            points.join(" "),
            self.colour
        );
    }

    /// An interval between two places, with a stroke across each end. `across` is where these strokes go.
    pub(super) fn whisker(self, from: (f64, f64), to: (f64, f64), across: (f64, f64), body: &mut String) {
        let (dx, dy) = across;
        let stroke = |(x, y): (f64, f64)| format!("M{:.1} {:.1}L{:.1} {:.1}", x - dx, y - dy, x + dx, y + dy);
        let _ = writeln!(
            body,
            "<path class=\"whisker\" d=\"M{:.1} {:.1}L{:.1} {:.1}{}{}\" fill=\"none\" stroke=\"#222\" stroke-width=\"1.3\"/>",
            from.0,
            from.1,
            to.0,
            to.1,
            stroke(from),
            stroke(to)
        );
    }
}

/// The paper's number: a hollow diamond, with a broken edge where it is only a reading of a figure. `edge` is the colour
/// of its series.
pub(super) fn paper((x, y): (f64, f64), read: bool, edge: &str, words: &str, body: &mut String) {
    let read = if read { " read" } else { "" };
    let _ = writeln!(
        body,
        "<path class=\"paper{read}\" style=\"stroke:{edge}\" d=\"M0 -6.5L6.5 0L0 6.5L-6.5 0Z\" transform=\"translate({x:.1} {y:.1})\"><title>{}</title></path>",
        super::escape(words)
    );
}

/// The words beside a diamond.
pub(super) fn paper_words(name: &str, mark: &Mark) -> Option<(f64, bool, String)> {
    let (value, read) = mark.paper?;
    let read_words = if read { ", read from a figure" } else { "" };
    Some((value, read, format!("{name}: {value} in the paper{read_words}")))
}
