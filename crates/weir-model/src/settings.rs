//! Settings behind a name, as in `dclas:first=250kB:sync=10ms`: how they are written, whatever they mean.

use std::fmt;

/// Why words are no settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsForm {
    /// A word has no `=`.
    NoValue {
        /// As it was given.
        word: String,
    },
    /// A name is set twice: which value holds would be a guess.
    Twice {
        /// The name that was set more than once.
        name: String,
    },
}

impl fmt::Display for SettingsForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsForm::NoValue { word } => write!(f, "`{word}` has no value; a setting is NAME=VALUE"),
            SettingsForm::Twice { name } => write!(f, "`{name}` is set twice"),
        }
    }
}

impl std::error::Error for SettingsForm {}

/// The names and values of words such as `first=250kB`, each name once.
///
/// # Errors
/// A word has no `=`, or a name comes twice.
pub fn settings<'t>(
    words: impl IntoIterator<Item = &'t str>,
) -> Result<Vec<(&'t str, &'t str)>, SettingsForm> {
    let mut read: Vec<(&str, &str)> = Vec::new();
    for word in words {
        let setting = word.split_once('=').ok_or_else(|| SettingsForm::NoValue { word: word.to_owned() })?;
        if read.iter().any(|(name, _)| *name == setting.0) {
            return Err(SettingsForm::Twice { name: setting.0.to_owned() });
        }
        read.push(setting);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_value_which_may_be_empty_or_hold_the_sign() {
        assert_eq!(settings("a=1:b=:c=x=y".split(':')), Ok(vec![("a", "1"), ("b", ""), ("c", "x=y")]));
        assert_eq!(settings([]), Ok(Vec::new()));
        let error = |text: &str| settings(text.split(':')).expect_err("no settings").to_string();
        assert_eq!(error("a=1:b"), "`b` has no value; a setting is NAME=VALUE");
        assert_eq!(error("a=1:a=1"), "`a` is set twice");
        assert_eq!(error(""), "`` has no value; a setting is NAME=VALUE");
    }
}
