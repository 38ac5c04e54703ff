//! Settings behind a transport's name: `dctcp:marking=30kB:init=10`.

use std::cell::Cell;
use std::str::FromStr;
use thiserror::Error;
use weir_model::{ParseUnitError, SettingsForm};

/// Why settings cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SettingsError {
    /// What stands behind the name are no settings.
    #[error(transparent)]
    Form(#[from] SettingsForm),
    /// The transport has no such setting.
    #[error("there is no setting `{key}`; there are: {known}")]
    Unknown {
        /// Name of the setting asked for.
        key: String,
        /// Those that it has.
        known: String,
    },
    /// The value cannot be read, or makes no sense.
    #[error("{key}: {problem}")]
    Value {
        /// Name of the setting at fault.
        key: String,
        /// What is wrong with its value.
        problem: String,
    },
}

/// Settings that were given, each of which has to be asked for.
pub(super) struct Settings<'a> {
    given: Vec<(&'a str, &'a str, Cell<bool>)>,
    asked: Vec<&'static str>,
}

impl<'a> Settings<'a> {
    pub(super) fn read(parts: impl Iterator<Item = &'a str>) -> Result<Settings<'a>, SettingsError> {
        let given = weir_model::settings(parts)?.into_iter();
        let given = given.map(|(key, value)| (key, value, Cell::new(false))).collect();
        Ok(Settings { given, asked: Vec::new() })
    }

    fn raw(&mut self, key: &'static str) -> Option<&'a str> {
        self.asked.push(key);
        let (_, value, used) = self.given.iter().find(|(given, ..)| *given == key)?;
        used.set(true);
        Some(value)
    }

    /// A number that has to be in a range.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<Option<f64>, SettingsError> {
        let Some(text) = self.raw(key) else { return Ok(None) };
        let wrong = |problem| SettingsError::Value { key: key.to_owned(), problem };
        let number: f64 = text.parse().map_err(|_| wrong(format!("`{text}` is not a number")))?;
        if !range.contains(&number) {
            return Err(wrong(format!("{number} is not from {} to {}", range.start(), range.end())));
        }
        Ok(Some(number))
    }

    /// A quantity with its unit, not zero.
    pub(super) fn quantity<T: FromStr<Err = ParseUnitError> + Default + PartialEq>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, SettingsError> {
        let value = self.quantity_or_none(key)?;
        if value.as_ref().is_some_and(|value| *value == T::default()) {
            let problem = "0 is not allowed".to_owned();
            return Err(SettingsError::Value { key: key.to_owned(), problem });
        }
        Ok(value)
    }

    /// A quantity with its unit, or `0`.
    pub(super) fn quantity_or_none<T: FromStr<Err = ParseUnitError>>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, SettingsError> {
        let Some(text) = self.raw(key) else { return Ok(None) };
        let wrong =
            |error: ParseUnitError| SettingsError::Value { key: key.to_owned(), problem: error.to_string() };
        text.parse().map(Some).map_err(wrong)
    }

    /// One of some words; the first is the default.
    pub(super) fn word(
        &mut self,
        key: &'static str,
        words: &[&'static str],
    ) -> Result<&'static str, SettingsError> {
        let Some(text) = self.raw(key) else { return Ok(words[0]) };
        words.iter().find(|word| **word == text).copied().ok_or_else(|| SettingsError::Value {
            key: key.to_owned(),
            problem: format!("`{text}` is none of {}", words.join(", ")),
        })
    }

    /// Ascending sizes with `+` between them.
    pub(super) fn sizes(
        &mut self,
        key: &'static str,
    ) -> Result<Option<Vec<weir_model::Bytes>>, SettingsError> {
        let Some(text) = self.raw(key) else { return Ok(None) };
        let wrong = |problem| SettingsError::Value { key: key.to_owned(), problem };
        let sizes: Vec<weir_model::Bytes> = text
            .split('+')
            .map(|size| size.parse().map_err(|error: ParseUnitError| wrong(error.to_string())))
            .collect::<Result<_, _>>()?;
        if sizes.is_sorted() { Ok(Some(sizes)) } else { Err(wrong("sizes have to ascend".to_owned())) }
    }

    /// Whether all that was given was asked for.
    pub(super) fn end(&self) -> Result<(), SettingsError> {
        match self.given.iter().find(|(.., used)| !used.get()) {
            None => Ok(()),
            Some((key, ..)) => {
                Err(SettingsError::Unknown { key: (*key).to_owned(), known: self.asked.join(", ") })
            }
        }
    }
}
