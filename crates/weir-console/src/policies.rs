//! Policies that the command line names.

use crate::Failure;
use weir_policy::Chosen;

/// The policy that `--policy` names, for links of any kind.
///
/// # Errors
/// There is no such policy, or it has no such setting.
pub fn find(name: &str) -> Result<Chosen, Failure> {
    weir_policy::find(name).map_err(|error| Failure::Input(format!("--policy: {error}")))
}

/// As [`find`], for hosts that send to each other: those for links between sites need relays.
///
/// # Errors
/// As of [`find`], and where it is for links between sites, has more classes than switches, or has a setting that hosts
/// cannot follow.
pub fn find_for_hosts(name: &str) -> Result<Chosen, Failure> {
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
    if let Some(interval) = chosen.sync_interval() {
        if chosen.info.local.is_none() {
            return Err(Failure::Input(format!(
                "--policy {name}: `sync` is of `weir sim`; on hosts the coordinator decides under {}, by all that it has heard",
                chosen.info.name
            )));
        }
        // As `--sync-interval`.
        if !(0.001..=1.0).contains(&interval.as_secs()) {
            return Err(Failure::Input(format!(
                "--policy {name}: on hosts `sync` is from 1ms to 1s, or 0 for `--sync-interval`; `weir sim` takes others"
            )));
        }
    }
    Ok(chosen)
}

/// As [`find`], for relays between sites.
///
/// # Errors
/// As of [`find`], and where it is not for links between sites.
pub fn find_between_sites(name: &str) -> Result<Chosen, Failure> {
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

/// What `weir controller` is told so that relays follow a policy; none: there is no controller.
///
/// # Errors
/// The policy has a setting that relays cannot follow.
pub fn controller_options(policy: &str) -> Result<Option<Vec<String>>, Failure> {
    let (name, settings) = policy.split_once(':').unwrap_or((policy, ""));
    let mut options = Vec::new();
    match name {
        "fair" => return Ok(None),
        "siphon" => {}
        "monte-carlo" => options.extend(["--routes", "direct"].map(str::to_owned)),
        _ => return Ok(Some(vec!["--policy".to_owned(), policy.to_owned()])),
    }
    for (key, value) in settings.split(':').filter_map(|setting| setting.split_once('=')) {
        let value = match (key, value) {
            ("groups", "largest") => "largest-first",
            ("groups", "off") => "together",
            ("depth" | "breadth" | "rounds" | "decide" | "seed" | "routes", value) => value,
            _ => return Err(Failure::Input(format!("live: {policy}: relays cannot follow {key}={value}"))),
        };
        options.extend([format!("--{key}"), value.to_owned()]);
    }
    Ok(Some(options))
}
