//! Progress on long work: a bar on standard error, only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// How often a bar is drawn again though nothing moved it: one coflow can take minutes.
const TICK: Duration = Duration::from_millis(500);

/// A bar over `total` steps of what `unit` names.
pub fn bar(total: u64, label: impl Into<String>, unit: &str) -> ProgressBar {
    // indicatif draws nothing where standard error is no terminal.
    let bar = ProgressBar::new(total);
    let template =
        format!("{{prefix:12}} {{bar:40}} {{pos}}/{{len}} {unit}, {{elapsed}}, {{eta}} left{{msg}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    ticking(bar.with_prefix(label.into()))
}

/// Draws it from time to time, so that its clock goes on. Where nothing is drawn no thread is needed.
fn ticking(bar: ProgressBar) -> ProgressBar {
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// A counter for work whose length is not known.
pub fn counter(label: impl Into<String>, unit: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) =
        ProgressStyle::with_template(&format!("{{prefix:12}} {{human_pos}} {unit}, {{elapsed}}"))
    {
        bar.set_style(style);
    }
    ticking(bar.with_prefix(label.into()))
}

/// A bar over `total` bytes.
pub fn bytes(total: u64, label: impl Into<String>) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let template = "{prefix:12} {bar:40} {bytes}/{total_bytes}, {elapsed}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_prefix(label.into())
}
