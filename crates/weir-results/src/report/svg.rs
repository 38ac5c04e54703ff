//! The few shapes charts are made of, as SVG text. Colours come from classes in style.css, so that one
//! drawing serves light and dark pages.

use super::scale::{Scale, label};
use std::fmt::Write;
pub(super) use weir_experiment::escape;

/// Width of a drawing that fills the page.
pub(super) const WIDTH: f64 = 640.0;
/// Width of one of several drawings that stand side by side, or below each other on a narrow page.
pub(super) const PANEL: f64 = 360.0;

/// Outlines of markers about their middle, so that colour alone decides nothing.
const MARKERS: [&str; 7] = [
    "M-4 -4H4V4H-4Z",
    "M0 -5L5 4H-5Z",
    "M-4.5 0A4.5 4.5 0 1 1 4.5 0A4.5 4.5 0 1 1 -4.5 0Z",
    "M0 5L5 -4H-5Z",
    "M-5 -3L-3 -5L0 -2L3 -5L5 -3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
    "M-2 -6H2V6H-2Z",
    "M-1.5 -5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z",
];
/// Markers on a line that has more points than these.
const MARKED: usize = 7;
const COLOURS: usize = 8;
const DASHES: usize = 5;

/// How a series is told from others: 56 of them before two look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Number of the series, from 0.
    number: usize,
    /// Whether it is the simulation beside a measured run of the same colour and marker.
    twin: bool,
    /// Whether a dash tells series apart; where there are twins it tells them.
    dashed: bool,
}

impl Look {
    /// Of a series among others.
    pub(super) fn of(number: usize) -> Look {
        Look { number, twin: false, dashed: true }
    }

    /// Of a measured run (or its simulation, the `twin`) where there are both.
    pub(super) fn of_pair(number: usize, twin: bool) -> Look {
        Look { number, twin, dashed: false }
    }

    /// CSS classes that style.css has rules for.
    pub(super) fn class(self) -> String {
        let dash = if self.dashed { format!(" d{}", self.number % DASHES) } else { String::new() };
        let twin = if self.twin { " twin" } else { "" };
        format!("c{}{dash}{twin}", self.number % COLOURS)
    }

    fn marker(self) -> &'static str {
        MARKERS[self.number % MARKERS.len()]
    }

    /// A sample for a legend, as a line or as a bar.
    pub(super) fn sample(self, bar: bool) -> String {
        let class = self.class();
        let shape = if bar {
            format!("<rect class=\"bar {class}\" x=\"6\" width=\"18\" height=\"12\"/>")
        } else {
            let marker = self.marker();
            format!(
                "<path class=\"line {class}\" d=\"M0 6L30 6\"/>\
                 <path class=\"dot {class}\" d=\"{marker}\" transform=\"translate(15 6)\"/>"
            )
        };
        format!("<svg class=\"sample\" viewBox=\"0 0 30 12\">{shape}</svg>")
    }
}

/// A drawing under construction.
pub(super) struct Drawing {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text's own place is.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

impl Drawing {
    pub(super) fn new(width: f64, height: f64) -> Drawing {
        Drawing { width, height, body: String::new() }
    }

    /// The finished drawing, with words for those who cannot see it. A wide one is as wide as the page, and its text grows
    /// where the page is narrow; a panel has others beside it where there is room.
    pub(super) fn finish(self, description: &str) -> String {
        let class = if self.width > PANEL { "wide" } else { "panel" };
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
            self.width,
            self.height,
            escape(description),
            self.body
        )
    }

    // Writing to a String cannot fail.
    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(arguments);
        self.body.push('\n');
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), title: &str) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\">{}</rect>",
            corner.0,
            corner.1,
            // SVG takes a size below 0, as rounding may give, for an error.
            size.0.max(0.0),
            size.1.max(0.0),
            tooltip(title)
        ));
    }

    /// The marker of a series.
    pub(super) fn marker(&mut self, look: Look, (x, y): (f64, f64), title: &str) {
        let (class, outline, title) = (look.class(), look.marker(), tooltip(title));
        self.push(format_args!(
            "<path class=\"dot {class}\" d=\"{outline}\" transform=\"translate({x:.1} {y:.1})\">{title}</path>"
        ));
    }

    /// A line of a series with a few of its markers, which begin elsewhere on every line.
    pub(super) fn series(&mut self, look: Look, points: &[(f64, f64)]) {
        self.path(&format!("line {}", look.class()), points.iter().copied());
        let marked = points.len().min(MARKED);
        for at in 0..marked {
            let shift = (look.number % MARKED) * points.len() / (MARKED * MARKED);
            self.marker(look, points[(at * points.len() / marked + shift).min(points.len() - 1)], "");
        }
    }

    /// An interval along a horizontal bar.
    pub(super) fn whisker(&mut self, (low, high): (f64, f64), y: f64, title: &str) {
        let title = tooltip(title);
        self.push(format_args!(
            "<path class=\"whisker\" d=\"M{low:.1} {y:.1}L{high:.1} {y:.1}M{low:.1} {:.1}V{:.1}M{high:.1} {:.1}V{:.1}\">{title}</path>",
            y - 4.0, y + 4.0, y - 4.0, y + 4.0
        ));
    }

    pub(super) fn circle(&mut self, class: &str, centre: (f64, f64), radius: f64, title: &str) {
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\">{}</circle>",
            centre.0,
            centre.1,
            tooltip(title)
        ));
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
            at.0,
            at.1,
            anchor.name(),
            escape(text)
        ));
    }

    /// A line through points; places closer than a tenth of a pixel are left out.
    pub(super) fn path(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let mut data = String::new();
        let mut last: Option<(f64, f64)> = None;
        for (x, y) in points {
            if last.is_some_and(|(a, b)| (a - x).abs() < 0.1 && (b - y).abs() < 0.1) {
                continue;
            }
            let _ = write!(data, "{}{x:.1} {y:.1}", if last.is_none() { "M" } else { "L" });
            last = Some((x, y));
        }
        self.push(format_args!("<path class=\"{class}\" d=\"{data}\"/>"));
    }

    /// Ticks, numbers and name of a horizontal axis below `top`..`bottom`.
    pub(super) fn x_axis(&mut self, scale: &Scale, top: f64, bottom: f64, name: &str) {
        for (value, named) in scale.ticks(8) {
            let x = scale.at(value);
            if named {
                self.line("grid", (x, top), (x, bottom));
                self.text("tick", (x, bottom + 16.0), Anchor::Middle, &label(value));
            } else {
                self.line("axis", (x, bottom), (x, bottom + 3.0));
            }
        }
        let (left, right) = (scale.at(scale.low()), scale.at(scale.high()));
        self.line("axis", (left, bottom), (right, bottom));
        self.text("name", ((left + right) / 2.0, bottom + 36.0), Anchor::Middle, name);
    }

    /// Ticks and numbers of a vertical axis left of `left`..`right`; its name stands above it.
    pub(super) fn y_axis(&mut self, scale: &Scale, left: f64, right: f64, name: &str) {
        for (value, _) in scale.ticks(5).into_iter().filter(|tick| tick.1) {
            let y = scale.at(value);
            self.line("grid", (left, y), (right, y));
            self.text("tick", (left - 6.0, y + 4.0), Anchor::End, &label(value));
        }
        let (bottom, top) = (scale.at(scale.low()), scale.at(scale.high()));
        self.line("axis", (left, bottom), (left, top));
        self.text("name", (left - 44.0, top - 12.0), Anchor::Start, name);
    }
}

fn tooltip(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}
