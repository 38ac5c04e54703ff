//! Files of settings.

use crate::table::{DAEMONS, close};
use crate::{Entry, Origin, Value};
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Bytes of a file of settings, at most.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file of settings.
#[derive(Debug)]
pub struct SettingsFile {
    path: String,
    text: String,
}

impl SettingsFile {
    /// Reads it.
    ///
    /// # Errors
    /// In one line: it cannot be read, is longer than a MiB, or is no TOML.
    pub fn read(path: &Path) -> Result<SettingsFile, String> {
        use std::io::Read;
        let shown = path.display().to_string();
        let wrong = |error: std::io::Error| format!("--config {shown}: {error}");
        // Links are followed: where files are mounted for containers, they are links.
        if !std::fs::metadata(path).map_err(wrong)?.is_file() {
            return Err(format!("--config {shown}: not a regular file"));
        }
        // Only now: to open a pipe would wait until some process writes into it.
        let file = std::fs::File::open(path).map_err(wrong)?;
        let mut bytes = Vec::new();
        // One byte more, which tells a file that is too long from one that just fits.
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(wrong)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(format!("--config {shown}: longer than {MAX_FILE_BYTES} bytes"));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
            format!("{shown}:{line}: bytes that are no UTF-8")
        })?;
        SettingsFile::of_text(shown, text)
    }

    fn of_text(path: String, text: String) -> Result<SettingsFile, String> {
        // Some editors begin a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        let file = SettingsFile { path, text };
        match DeTable::parse(&file.text) {
            Ok(_) => Ok(file),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                let message = error.message().replace('\n', " ");
                Err(format!("{}: {message}", file.place(at)))
            }
        }
    }

    fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count() + 1
    }

    fn place(&self, at: usize) -> String {
        format!("{}:{}", self.path, self.line(at))
    }

    fn table(&self) -> DeTable<'_> {
        // No error can come here: the text was parsed when the file was read.
        DeTable::parse(&self.text).map(|table| table.into_inner()).unwrap_or_default()
    }

    /// Whether all there is are sections of daemons.
    ///
    /// # Errors
    /// In one line, with the place: a section that no daemon has.
    pub fn check_sections(&self) -> Result<(), String> {
        for (name, value) in &self.table() {
            let (place, word) = (self.place(name.span().start), name.get_ref().as_ref());
            let all = DAEMONS.join("], [");
            if !DAEMONS.contains(&word) {
                let meant = close(word, DAEMONS.iter().copied());
                return Err(format!("{place}: no section [{word}]{meant}; the sections are [{all}]"));
            }
            if !matches!(value.get_ref(), DeValue::Table(_)) {
                return Err(format!("{place}: {word} is a section, as in [{word}]"));
            }
        }
        Ok(())
    }

    /// What is said in a section, by line.
    pub fn section(&self, name: &str) -> Vec<Entry> {
        let table = self.table();
        let section = table.iter().find(|(key, _)| key.get_ref().as_ref() == name);
        let Some(DeValue::Table(section)) = section.map(|(_, value)| value.get_ref()) else {
            return Vec::new();
        };
        let mut entries: Vec<(Range<usize>, Entry)> = section
            .iter()
            .map(|(key, value)| {
                let line = self.line(key.span().start);
                let origin = Origin::File { path: self.path.clone(), line };
                let entry =
                    Entry { key: key.get_ref().to_string(), value: value_of(value.get_ref()), origin };
                (key.span(), entry)
            })
            .collect();
        // In the file's order, so that of several wrong settings the first one is told.
        entries.sort_by_key(|(span, _)| span.start);
        entries.into_iter().map(|(_, entry)| entry).collect()
    }
}

fn value_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Boolean(on) => Value::Switch(*on),
        DeValue::Array(values) => Value::Words(values.iter().map(|value| word(value.get_ref())).collect()),
        value => Value::Word(word(value)),
    }
}

/// As the command line has it. What can be none is refused there.
fn word(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => {
            // In decimal, as the command line takes it: 0x10 is 16.
            let digits = number.as_str();
            match i128::from_str_radix(digits, number.radix()) {
                Ok(value) => value.to_string(),
                Err(_) => digits.to_owned(),
            }
        }
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "[...]".to_owned(),
        DeValue::Table(_) => "{...}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_base_are_decimal_words() {
        let text = "[agent]\na = 0x10\nb = 1_000\nc = 2.5\nd = [1, \"x\"]\ne = true\nf = 0o17\n";
        let file = SettingsFile::of_text("f".to_owned(), text.to_owned()).unwrap();
        let values: Vec<Value> = file.section("agent").into_iter().map(|entry| entry.value).collect();
        let word = |word: &str| Value::Word(word.to_owned());
        let list = Value::Words(vec!["1".to_owned(), "x".to_owned()]);
        assert_eq!(values, [word("16"), word("1000"), word("2.5"), list, Value::Switch(true), word("15")]);
    }
}
