//! How people call a host.

use crate::limits::{MAX_HOST_NAME_BYTES, MAX_HOST_NUMBER};
use std::str::FromStr;

/// Numbers from here on are made from names; those below are given.
pub const FIRST_MADE: u32 = MAX_HOST_NUMBER / 2;

/// A host, by its name or by the number that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// By a number below 16,777,216.
    Number(u32),
    /// By the name that its agent says.
    Name(String),
}

impl From<u32> for Host {
    fn from(number: u32) -> Host {
        Host::Number(number)
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = text.parse().ok().filter(|&number| number < MAX_HOST_NUMBER);
            return number.map(Host::Number).ok_or_else(|| format!("a number is below {MAX_HOST_NUMBER}"));
        }
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric())
            || text.len() > MAX_HOST_NAME_BYTES
            || !text.chars().all(sound)
        {
            return Err(format!(
                "a name has letters, digits, `.`, `-` and `_`, begins with one of the first two, and has at most \
                 {MAX_HOST_NAME_BYTES} bytes"
            ));
        }
        Ok(Host::Name(text.to_owned()))
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Host::Number(number) => number.fmt(f),
            Host::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_number_and_what_is_neither_is_refused() {
        for (text, host) in [
            ("0", Host::Number(0)),
            ("16777215", Host::Number(16_777_215)),
            ("a.b-c_9", Host::Name("a.b-c_9".to_owned())),
        ] {
            assert_eq!(text.parse(), Ok(host));
        }
        for text in [
            "",
            "16777216",
            "99999999999",
            "a b",
            "a/b",
            "é",
            "a\n",
            "-1 ",
            "-1",
            ".a",
            "_",
            &"x".repeat(256),
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
    }
}
