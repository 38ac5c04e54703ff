//! Every reader of files that users bring.

use weir_trace::coflow_benchmark;

/// Reads the input as every kind of file.
pub fn run(data: &[u8]) {
    if let Ok(reader) = coflow_benchmark::Reader::new(data) {
        let hosts = reader.hosts();
        let coflows: Result<Vec<_>, _> = reader.collect();
        if let Ok(coflows) = coflows {
            // What was read can be written, and is the same again.
            let mut text = Vec::new();
            if coflow_benchmark::write(hosts, &coflows, &mut text).is_ok() {
                let again = coflow_benchmark::Reader::new(&text[..]).expect("what was written can be read");
                let again: Vec<_> =
                    again.map(|coflow| coflow.expect("what was written can be read")).collect();
                assert_eq!(coflows, again);
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = weir_trace::FlowSizes::from_text("fuzz", text);
        let _ = weir_trace::Scenario::parse(std::path::Path::new("fuzz"), text);
    }
    if let Ok(reader) = weir_trace::weir_format::Reader::new(data) {
        reader.take_while(Result::is_ok).for_each(drop);
    }
    let _ = weir_trace::wan::Measurements::read(data);
}
