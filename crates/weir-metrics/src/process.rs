//! What the operating system knows of this process, under the names that the field has for it.

use super::{Metric, Sheet};

/// Metrics of the operating system that every daemon has.
pub const PROCESS: &[Metric] = &[
    Metric::counter("process_cpu_seconds", "Processor time that the process took"),
    Metric::gauge("process_resident_memory_bytes", "Memory of the process"),
    Metric::gauge("process_open_fds", "Descriptors that the process has open"),
    Metric::gauge("process_max_fds", "Descriptors that it may have open"),
];

/// What can be read is set.
pub(crate) fn fill(sheet: &mut Sheet) {
    if let Some(seconds) = cpu_seconds("self") {
        sheet.set(&PROCESS[0], seconds);
    }
    if let Some(bytes) = resident_bytes("self") {
        sheet.set(&PROCESS[1], bytes);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the folder's.
        sheet.set(&PROCESS[2], open.count().saturating_sub(1) as f64);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if let Some(most) = limit.current {
        sheet.set(&PROCESS[3], most as f64);
    }
}

/// Processor time in seconds that a process has taken so far, user and system, by its number or `self`; `None` if there is none.
pub fn cpu_seconds(process: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may have spaces in it; times are the 14th and 15th field, in clock ticks (proc(5)).
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / rustix::param::clock_ticks_per_second() as f64)
}

/// Bytes of a process that are in memory, by its number or `self`; `None` if there is none.
pub fn resident_bytes(process: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: f64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64)
}
