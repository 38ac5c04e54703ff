//! The command line. Like any other bad input, a bad one gets one line and exit 2.

use crate::{compose, logging};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};

/// Reads the command line, with settings from elsewhere where it starts a daemon, or says in one line what is wrong with it and
/// exits. Besides, what is to be told in the log.
pub fn parse<C: Parser>() -> (C, Vec<String>) {
    let mut root = C::command();
    root.build();
    let composed = compose(&root, std::env::args_os().collect(), std::env::vars_os());
    let composed = composed.unwrap_or_else(|line| {
        eprintln!("weir: {}", logging::one_line(&line));
        std::process::exit(2);
    });
    let parsed = C::try_parse_from(composed.words).unwrap_or_else(|error| {
        use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
        if [DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion].contains(&error.kind()) {
            error.exit()
        }
        let given: Vec<String> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let line = negative(&error, &given, &C::command()).unwrap_or_else(|| one_line(&error));
        eprintln!("weir: {}", logging::one_line(&line));
        std::process::exit(2);
    });
    (parsed, composed.warnings)
}

/// What is wrong and what was meant, in one line.
pub fn one_line(error: &clap::Error) -> String {
    paragraph(error) + &meant(error)
}

/// The paragraph of an error that says what is wrong; usage and hints follow it.
pub(crate) fn paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    // Behind an empty line the parser has its tips and the usage, for which one line has no room.
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
    words.join(" ")
}

/// What the parser takes for what was meant, if anything is close.
fn meant(error: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let close = kinds.iter().find_map(|kind| match error.get(*kind)? {
        // The parser has the closest one last.
        ContextValue::Strings(words) => words.last().cloned(),
        ContextValue::String(word) => Some(word.clone()),
        _ => None,
    });
    close.map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

/// A negative number behind an option is an "unexpected argument" to the parser, which takes it for an option of its own.
/// This names the option that it was meant for, and what that takes.
fn negative(error: &clap::Error, given: &[String], command: &Command) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let word = error.get(ContextKind::InvalidArg)?.to_string();
    let digits = word.strip_prefix('-')?;
    // Of `-10` the parser names the `-1` only.
    let at = given.iter().position(|given| given.starts_with(&word))?;
    digits.starts_with(|first: char| first.is_ascii_digit()).then_some(())?;
    let option = given.get(at.checked_sub(1)?)?.strip_prefix("--")?;
    let chosen = given[..at].iter().filter(|word| !word.starts_with('-'));
    let command = chosen.fold(command, |command, word| command.find_subcommand(word).unwrap_or(command));
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(option))?;
    let value = argument.get_value_names().and_then(|names| names.first())?;
    let help = argument.get_help()?.to_string();
    Some(format!("--{option} {}: it takes {value}, not a negative number. {help}", given[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Cut {
        /// Number of coflows to take
        #[arg(long, value_name = "N")]
        count: Option<u32>,
    }

    fn said(words: &[&str]) -> Option<String> {
        let error = Cut::try_parse_from([&["weir"], words].concat()).expect_err("refused");
        let given: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let command = <Cut as clap::CommandFactory>::command();
        negative(&error, &given, &command)
    }

    #[test]
    fn a_mistyped_option_is_answered_with_the_one_that_is_close() {
        let error = |word: &str| Cut::try_parse_from(["weir", word, "1"]).expect_err("refused");
        assert_eq!(meant(&error("--cuont")), "; did you mean `--count`?");
        assert_eq!(meant(&error("--xyz")), "");
    }

    #[test]
    fn a_negative_number_is_answered_with_the_option_it_was_meant_for() {
        let line = said(&["--count", "-10"]).expect("a line");
        assert_eq!(line, "--count -10: it takes N, not a negative number. Number of coflows to take");
        assert_eq!(said(&["--cuont", "10"]), None);
        assert_eq!(said(&["-x"]), None);
    }
}
