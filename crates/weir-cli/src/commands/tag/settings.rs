//! The file of tags.

use serde::Deserialize;
use std::path::Path;
use std::str::FromStr;
use weir_console::Failure;
use weir_ebpf::{Config, DEFAULT_DSCP, Unhinted};
use weir_endhost::tagging::CLASSES;
use weir_endhost::thresholds::{Thresholds, pias};
use weir_model::{Bytes, Span};
use weir_trace::toml_fault;

/// Karuna's: timeouts in a row after which a flow begins anew.
const AGES_AFTER: u32 = 3;
/// Whose published thresholds are taken where the file says none.
const PUBLISHED_FOR: (&str, f64) = ("web-search", 0.8);
/// Of a line with an error.
const SHOWN_CHARS: usize = 60;
/// What the file says of a time that there is not.
const NONE: &str = "none";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TagsFile {
    thresholds: Option<Vec<String>>,
    dscp: Option<[u8; CLASSES]>,
    idle: Option<String>,
    ageing: Option<u32>,
    marks: Option<bool>,
    #[serde(default)]
    deadlines: bool,
}

/// What the file says, or what holds without one.
pub(crate) fn read(path: Option<&Path>, unhinted: Unhinted) -> Result<Config, Failure> {
    let Some(path) = path else { return parse("", unhinted).map_err(Failure::Input) };
    let refuse = |error: String| Failure::Input(format!("--tags {}: {error}", path.display()));
    let text = weir_trace::read_text(path).map_err(|error| refuse(error.to_string()))?;
    parse(&text, unhinted).map_err(refuse)
}

fn parse(text: &str, unhinted: Unhinted) -> Result<Config, String> {
    let file: TagsFile = toml::from_str(text).map_err(|error| {
        let (line, reason) = toml_fault(text, &error);
        // What is wrong with a value does not say of which key it is.
        let shown: String =
            text.lines().nth(line - 1).unwrap_or_default().chars().take(SHOWN_CHARS).collect();
        format!("line {line}, `{}`: {reason}", shown.trim())
    })?;
    let idle = match file.idle.as_deref() {
        None | Some(NONE) => None,
        Some(text) => Some(value::<Span>("idle", text)?),
    };
    if idle == Some(Span::ZERO) {
        return Err(format!("idle: 0s; give a time above that, or \"{NONE}\""));
    }
    let best = u8::from(file.deadlines);
    let config = Config {
        thresholds: thresholds(file.thresholds.as_deref(), usize::from(best))?,
        best,
        dscp: file.dscp.unwrap_or(DEFAULT_DSCP),
        // Where sockets without a hint are tagged, marks by which programs say more are read too.
        marks: file.marks.unwrap_or(unhinted == Unhinted::Unknown),
        unhinted,
        idle,
        ages_after: Some(file.ageing.unwrap_or(AGES_AFTER)).filter(|&timeouts| timeouts > 0),
    };
    config.check().map_err(|error| error.to_string())?;
    Ok(config)
}

/// Those of the file; else the published ones, without the last where so many classes are for deadlines.
fn thresholds(said: Option<&[String]>, taken: usize) -> Result<Thresholds, String> {
    let Some(said) = said else {
        let published = pias(PUBLISHED_FOR.0, PUBLISHED_FOR.1).unwrap_or_else(Thresholds::none);
        // So many classes have one threshold less, and what deadlines take has none: the largest
        // thresholds are left out.
        let most = CLASSES - 1 - taken;
        return Ok(Thresholds::same(published.demotion().iter().copied().take(most).collect()));
    };
    let sizes: Vec<Bytes> = said.iter().map(|text| value("thresholds", text)).collect::<Result<_, _>>()?;
    if let Some(pair) = sizes.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(format!("thresholds: {} stands before {}; give them rising", pair[0], pair[1]));
    }
    Ok(Thresholds::same(sizes))
}

fn value<T: FromStr<Err: std::fmt::Display>>(key: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Config, String> {
        parse(text, Unhinted::Unknown)
    }

    #[test]
    fn an_empty_file_has_pias_s_thresholds_and_eight_classes() {
        let config = parsed("").unwrap();
        assert_eq!(config.thresholds.levels(), 8);
        assert_eq!((config.best, config.idle, config.ages_after), (0, None, Some(3)));
        assert!(config.marks && !parse("", Unhinted::Untouched).unwrap().marks);
    }

    #[test]
    fn all_of_it_can_be_said() {
        let text = "thresholds = [\"100kB\", \"1MB\"]\ndscp = [1, 2, 3, 4, 5, 6, 7, 8]\nidle = \"500ms\"\nageing = 0";
        let config = parsed(text).unwrap();
        assert_eq!(config.thresholds.demotion(), [Bytes(100_000), Bytes(1_000_000)]);
        assert_eq!(config.dscp, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((config.idle, config.ages_after), (Some(Span::from_millis(500)), None));
    }

    #[test]
    fn a_class_for_deadlines_leaves_seven_for_the_others() {
        let config = parsed("deadlines = true\nmarks = false").unwrap();
        assert_eq!((config.best, config.thresholds.levels(), config.marks), (1, 7, false));
        let seven = format!(
            "thresholds = {:?}\ndeadlines = true",
            (1..8).map(|n| format!("{n}kB")).collect::<Vec<_>>()
        );
        assert!(parsed(&seven).unwrap_err().contains("at most 6 thresholds"));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let eight = format!("thresholds = {:?}", (1..9).map(|n| format!("{n}kB")).collect::<Vec<_>>());
        for (text, said) in [
            ("thresholds = [\"1MB\", \"1MB\"]", "rising"),
            ("thresholds = [\"x\"]", "thresholds: "),
            (eight.as_str(), "at most 7 thresholds"),
            ("dscp = [64, 0, 0, 0, 0, 0, 0, 0]", "class 0: DSCP 64"),
            ("dscp = [1]", "dscp"),
            ("idle = \"long\"", "idle: "),
            ("zzz = 1", "unknown field"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
