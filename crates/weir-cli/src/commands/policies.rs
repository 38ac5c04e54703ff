//! `weir policies`: names, one line each, and the paper.

use crate::Failure;
use crate::output::{table, text};

pub(crate) fn policies() -> Result<(), Failure> {
    let mut table = table(&["policy", "what it does", "paper"], 3);
    for info in weir_policy::registry() {
        table.add_row([info.name, info.summary, info.paper]);
    }
    println!("{}", text(&table));
    Ok(())
}
