//! `--csv`: the rows of the results as tables, for programs that read tables. Columns have the names and units of the
//! fields in JSON, which docs/json.md describes; what is null there is empty here.

use crate::{CoflowRow, Cut, FlowRow, Provenance, Results, Run};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};

/// What every table begins with: number of the run from 1, and what was run.
const RUN_COLUMNS: [&str; 3] = ["run", "policy", "mode"];
const COFLOW_COLUMNS: [&str; 10] =
    ["id", "arrival_s", "cct_s", "isolation_s", "width", "bytes", "bin", "admitted", "deadline_s", "met"];
const JOB_COLUMNS: [&str; 4] = ["id", "arrival_s", "jct_s", "coflows"];
const FLOW_COLUMNS: [&str; 8] =
    ["id", "coflow", "source", "destination", "bytes", "start_s", "finish_s", "deadline_s"];

/// What `OUT.made_by.json` has: what JSON has of the results beside their runs.
#[derive(Serialize)]
struct Made<'a> {
    schema: u32,
    made_by: &'a Provenance,
    trace: &'a str,
    link_rate_bps: u64,
    cut: &'a Option<Cut>,
}

impl Results {
    /// Writes a table with a row for each coflow of each run.
    ///
    /// # Errors
    /// The output takes no more.
    pub fn write_coflows(&self, output: &mut dyn Write) -> io::Result<()> {
        let rows: fn(&Run) -> &[CoflowRow] = |run| &run.coflows;
        table(output, self, &COFLOW_COLUMNS, rows)
    }

    /// Whether any run has jobs that are more than bare coflows.
    pub fn has_jobs(&self) -> bool {
        self.runs.iter().any(|run| !run.jobs.is_empty())
    }

    /// Writes a table with a row for each job of each run.
    ///
    /// # Errors
    /// The output takes no more.
    pub fn write_jobs(&self, output: &mut dyn Write) -> io::Result<()> {
        table(output, self, &JOB_COLUMNS, |run| &run.jobs)
    }

    /// Writes a table with a row for each flow of each run that recorded its flows.
    ///
    /// # Errors
    /// The output takes no more.
    pub fn write_flows(&self, output: &mut dyn Write) -> io::Result<()> {
        let rows: fn(&Run) -> &[FlowRow] = |run| &run.flows;
        table(output, self, &FLOW_COLUMNS, rows)
    }

    /// Writes what JSON has of the results beside their runs.
    ///
    /// # Errors
    /// The output takes no more.
    pub fn write_made_by(&self, output: &mut dyn Write) -> io::Result<()> {
        let Results { schema, made_by, trace, link_rate_bps, cut, .. } = self;
        let made = Made { schema: *schema, made_by, trace, link_rate_bps: *link_rate_bps, cut };
        serde_json::to_writer_pretty(&mut *output, &made)?;
        writeln!(output)
    }
}

/// A table with a row for each row of each run.
fn table<R: Serialize>(
    output: &mut dyn Write,
    results: &Results,
    columns: &[&str],
    rows: impl Fn(&Run) -> &[R],
) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(RUN_COLUMNS.iter().chain(columns))?;
    for (number, run) in (1..).zip(&results.runs) {
        let start = [number.to_string(), run.policy.clone(), run.mode.to_string()];
        for row in rows(run) {
            // By way of JSON, so that every number has the digits that it has there.
            let row = serde_json::to_value(row)?;
            let cells = columns.iter().map(|column| cell(&row[*column]));
            writer.write_record(start.iter().cloned().chain(cells))?;
        }
    }
    writer.flush()
}

/// A value of JSON as a cell of a table.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobRow, Mode};

    fn results() -> Results {
        let coflow = CoflowRow {
            id: 3,
            arrival_s: 0.5,
            cct_s: f64::NAN,
            isolation_s: 1.0,
            width: 2,
            bytes: 10,
            bin: 1,
            admitted: false,
            deadline_s: Some(2.5),
            met: Some(false),
        };
        let flow = FlowRow {
            id: 0,
            coflow: 3,
            source: 1,
            destination: 2,
            bytes: 10,
            start_s: None,
            finish_s: None,
            deadline_s: Some(2.5),
        };
        let mut run = Run::new("varys:delta=1s,\"x\"", Mode::Simulated, vec![coflow], 0.0);
        run.flows = vec![flow];
        run.jobs = vec![JobRow { id: 9, arrival_s: 0.0, jct_s: None, coflows: 1 }];
        let mut results = Results::new("t.txt", "1gbit".parse().expect("a rate"), None);
        results.runs.push(run);
        results
    }

    #[test]
    fn tables_have_the_fields_of_json_and_quote_what_has_commas_and_quotes() {
        let results = results();
        let written = |write: fn(&Results, &mut dyn Write) -> io::Result<()>| {
            let mut output = Vec::new();
            write(&results, &mut output).expect("memory takes all");
            String::from_utf8(output).expect("UTF-8")
        };
        let policy = r#""varys:delta=1s,""x""""#;
        assert_eq!(
            written(Results::write_coflows),
            format!(
                "run,policy,mode,id,arrival_s,cct_s,isolation_s,width,bytes,bin,admitted,deadline_s,met\n\
                 1,{policy},simulated,3,0.5,,1.0,2,10,1,false,2.5,false\n"
            )
        );
        assert_eq!(
            written(Results::write_flows),
            format!(
                "run,policy,mode,id,coflow,source,destination,bytes,start_s,finish_s,deadline_s\n\
                 1,{policy},simulated,0,3,1,2,10,,,2.5\n"
            )
        );
        assert!(written(Results::write_jobs).ends_with("simulated,9,0.0,,1\n"));
        let made: Value = serde_json::from_str(&written(Results::write_made_by)).expect("JSON");
        assert_eq!((&made["schema"], &made["trace"]), (&1.into(), &"t.txt".into()));
        assert!(made["made_by"]["command"].is_array());
    }

    #[test]
    fn every_field_of_json_has_its_column() {
        let value = serde_json::to_value(results()).expect("JSON");
        let run = &value["runs"][0];
        for (rows, columns) in
            [("coflows", &COFLOW_COLUMNS[..]), ("jobs", &JOB_COLUMNS[..]), ("flows", &FLOW_COLUMNS[..])]
        {
            let mut fields: Vec<&str> =
                run[rows][0].as_object().expect("a row").keys().map(String::as_str).collect();
            let mut columns = columns.to_vec();
            fields.sort_unstable();
            columns.sort_unstable();
            assert_eq!(fields, columns, "{rows}");
        }
    }
}
