//! `--csv`: a row for each complete flow of each run, with the fields that it has in JSON.

use super::Run;
use crate::cell;
use std::io::Write;

/// Fields of a flow, in this order.
const COLUMNS: [&str; 12] = [
    "id",
    "arrival_s",
    "source",
    "destination",
    "bytes",
    "kind",
    "fct_s",
    "ideal_s",
    "deadline_s",
    "met",
    "retransmitted",
    "timeouts",
];

/// Writes the table.
///
/// # Errors
/// `output` takes no more.
pub fn write_csv(output: &mut dyn Write, runs: &[Run]) -> std::io::Result<()> {
    let mut writer = ::csv::Writer::from_writer(output);
    writer.write_record(["run", "transport"].iter().chain(&COLUMNS))?;
    for (number, run) in (1..).zip(runs) {
        let start = [number.to_string(), run.transport.clone()];
        for row in &run.flows {
            // By way of JSON, so that every number has the digits that it has there.
            let row = serde_json::to_value(row)?;
            writer.write_record(
                start.iter().cloned().chain(COLUMNS.iter().map(|column| cell(&row[*column]))),
            )?;
        }
    }
    writer.flush()
}
