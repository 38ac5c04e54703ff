//! The few shapes charts are made of, as SVG text. Colours come from classes in style.css, so that one
//! drawing serves light and dark pages.

use super::scale::{Scale, label};
use std::fmt::Write;
pub(super) use weir_experiment::escape;

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

    /// The finished drawing, with words for those who cannot see it.
    pub(super) fn finish(self, description: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
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
            size.0.max(0.0),
            size.1.max(0.0),
            tooltip(title)
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
