//! `weir policies`: names, one line each, and the paper; then what can be set.

use weir_console::Failure;
use weir_results::{table, text};

pub(crate) fn policies() -> Result<(), Failure> {
    let mut policies = table(&["policy", "what it does", "paper"], 3);
    let mut settings = table(&["policy", "setting", "default", "what it does"], 4);
    for info in weir_policy::registry() {
        policies.add_row([info.name, info.summary, info.paper]);
        for parameter in info.parameters {
            settings.add_row([info.name, parameter.name, parameter.default, parameter.about]);
        }
    }
    println!("{}\n", text(&policies));
    let mut transports = table(&["transport", "what it does"], 2);
    for (name, summary) in weir_packet::transport::summaries() {
        transports.add_row([name, summary]);
    }
    println!("Settings follow the name, as in dclas:first=250kB:sync=10ms\n\n{}", text(&settings));
    let mut settings = table(&["transports", "setting", "default", "what it does"], 4);
    for setting in weir_packet::transport::SETTINGS {
        let of = setting.transports.join(", ");
        settings.add_row([of.as_str(), setting.name, setting.default, setting.about]);
    }
    println!("\nTransports of `weir packet`\n\n{}", text(&transports));
    println!("\nTheir settings, as in dctcp:init=70:acks=delayed\n\n{}", text(&settings));
    Ok(())
}
