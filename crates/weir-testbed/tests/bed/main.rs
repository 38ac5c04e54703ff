//! Beds made for real: they need the right to make network namespaces, and `ip`, `bridge` and `tc`.
//!
//! Rates are asserted from above only (a link must never exceed its rate); what a busy machine may make
//! slower is printed.

mod cleanup;
mod queues;
mod rates;
mod rights;
mod sites;
mod traffic;

use std::io::Write;

/// Prints past the test harness, which hides the output of tests that succeed.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
