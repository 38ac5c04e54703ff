//! `weir mark`: ECN marks at a port of this machine, while it runs.

use super::MarkArgs;
use crate::commands::process::{run, stop_signal};
use std::pin::pin;
use std::time::Duration;
use weir_console::Failure;
use weir_console::terminal::say;
use weir_ebpf::{ClassMarks, MarkError, Marker, Marking, Marks};
use weir_endhost::tagging::CLASSES;
use weir_results::{table, text};

fn failure(error: MarkError) -> Failure {
    match error {
        MarkError::Program(error) => super::running::failure(error),
        error => Failure::Input(error.to_string()),
    }
}

/// A leaf of HTB as `tc` writes it: two hexadecimal numbers.
pub(super) fn leaf(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    let [major, minor] = [major, minor].map(|part| u16::from_str_radix(part, 16).ok());
    Some(u32::from(major?) << 16 | u32::from(minor?))
}

pub(super) fn mark(args: &MarkArgs) -> Result<(), Failure> {
    let wrong = || Failure::Input(format!("--leaves: {CLASSES} of the form 1:20, one for each class"));
    let leaves: Option<Vec<u32>> = args.leaves.iter().map(|text| leaf(text)).collect();
    let leaves = leaves.and_then(|leaves| leaves.try_into().ok()).ok_or_else(wrong)?;
    let marking = Marking { control: args.spare, ..Marking::new(args.threshold, leaves) };
    run(async {
        let mut stop = pin!(stop_signal());
        let marker = Marker::attach(&args.interface, &marking).map_err(failure)?;
        say(format_args!(
            "weir mark: marks what leaves {} from {} in a queue on\n",
            args.interface, args.threshold
        ));
        let period = args.every.map_or(super::SELDOM, |seconds| Duration::from_secs(seconds.into()));
        // The first tick after a period: `interval` ticks at once, when nothing is counted yet.
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = ticks.tick() => print(&marker.marks().map_err(failure)?, &marking),
            }
        }
        print(&marker.marks().map_err(failure)?, &marking);
        Ok(())
    })
}

fn print(marks: &Marks, marking: &Marking) {
    let mut rows = table(&["class", "DSCP", "frames", "marked"], 0);
    for (class, (ClassMarks { seen, marked }, dscp)) in marks.classes.iter().zip(marking.dscp).enumerate() {
        rows.add_row([class.to_string(), dscp.to_string(), seen.to_string(), marked.to_string()]);
    }
    for (what, frames) in [("none", marks.others), ("no queue", marks.not_found)] {
        if frames > 0 {
            rows.add_row([what.to_owned(), "-".to_owned(), frames.to_string(), "0".to_owned()]);
        }
    }
    say(format_args!("{}\n", text(&rows)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_written_as_tc_writes_them() {
        assert_eq!(
            [leaf("1:20"), leaf("1:2a"), leaf("ffff:1")],
            [Some(0x1_0020), Some(0x1_002a), Some(0xffff_0001)]
        );
        assert_eq!([leaf("1"), leaf("1:"), leaf("1:10000"), leaf(":20")], [None; 4]);
    }
}
