//! Values of options that several commands take.

use weir_model::Span;

/// A time in milliseconds, a second at most.
pub(crate) fn millis(text: &str) -> Result<Span, String> {
    span(text, 1e-3, 1e3)
}

/// A time in milliseconds, from one to a thousand.
pub(crate) fn sync_millis(text: &str) -> Result<Span, String> {
    let span = millis(text)?;
    if span < Span::from_millis(1) { Err("below 1".to_owned()) } else { Ok(span) }
}

/// A time in milliseconds, a minute at most.
pub(crate) fn minute_of_millis(text: &str) -> Result<Span, String> {
    span(text, 1e-3, 60e3)
}

/// A time in seconds, an hour at most.
pub(crate) fn seconds(text: &str) -> Result<Span, String> {
    span(text, 1.0, 3600.0)
}

fn span(text: &str, unit_secs: f64, most: f64) -> Result<Span, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.0..=most).contains(&value) {
        return Err(format!("not between 0 and {most}"));
    }
    Ok(Span::from_secs_ceil(value * unit_secs))
}

/// The share of links' capacity that is planned with.
pub(crate) fn plan_share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value > 0.0 && value <= 1.0 { Ok(value) } else { Err("not above 0 and at most 1".to_owned()) }
}
