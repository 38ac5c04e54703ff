//! `weir policies`: names, one line each, and the paper; then what can be set.

use crate::Failure;
use crate::output::{table, text};
use weir_policy::Chosen;

/// The policy that `--policy` names, for links of any kind.
pub(crate) fn find(name: &str) -> Result<Chosen, Failure> {
    weir_policy::find(name).map_err(|error| Failure::Input(format!("--policy: {error}")))
}

/// As [`find`], for hosts that send to each other: those for links between sites need relays.
pub(crate) fn find_for_hosts(name: &str) -> Result<Chosen, Failure> {
    let chosen = find(name)?;
    if chosen.info.between_sites {
        return Err(Failure::Input(format!(
            "--policy {name} is for links between sites, whose relays follow `weir controller --policy`; hosts that send \
             to each other need another one (see `weir policies`)"
        )));
    }
    let most = weir_endhost::tagging::CLASSES as u32;
    if let Some(classes) = chosen.create().classes().filter(|classes| *classes > most) {
        return Err(Failure::Input(format!(
            "--policy {name} has {classes} classes, and switches have {most} at most; `weir sim` takes more"
        )));
    }
    Ok(chosen)
}

/// As [`find`], for relays between sites.
pub(crate) fn find_between_sites(name: &str) -> Result<Chosen, Failure> {
    let chosen = find(name)?;
    if !chosen.info.between_sites {
        let of_sites = weir_policy::registry().iter().filter(|info| info.between_sites);
        let names: Vec<&str> = of_sites.map(|info| info.name).collect();
        return Err(Failure::Input(format!(
            "--policy {name} is not for links between sites; {} are",
            names.join(", ")
        )));
    }
    Ok(chosen)
}

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
