//! What the line-oriented formats share: lines of bounded length, their words, and errors that say where.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::path::Path;
use weir_model::{Bytes, HostId};

/// Longest line that is read, in bytes; a longer one is an error.
pub const MAX_LINE_BYTES: usize = 64 << 20;
/// Most hosts a workload may have.
pub const MAX_HOSTS: u32 = 1 << 24;
/// Most flows a coflow may have.
pub const MAX_FLOWS_PER_COFLOW: usize = 1 << 24;
/// Most bytes that all flows of a file may have together, so that no sum overflows.
pub const MAX_TOTAL_BYTES: u64 = 1 << 62;

/// What some editors write at the beginning of a file of UTF-8: U+FEFF, three bytes.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The beginning of a text, or all of it, without a byte-order mark.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Longest text that is read whole, in bytes.
pub(crate) const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Text of a file, without the byte-order mark that some editors write at its beginning.
///
/// # Errors
/// The operating system's reason, that it is not UTF-8, or longer than 64 MiB.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_TEXT_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        let reason = format!("longer than {MAX_TEXT_BYTES} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, reason));
    }
    // Without a mark, which is one character, it is UTF-8 as before.
    let mark = text.len() - without_mark(text.as_bytes()).len();
    Ok(if mark == 0 { text } else { text[mark..].to_owned() })
}

/// Most characters of a reason: a file may have a key of megabytes in a line.
const MAX_REASON_CHARS: usize = 400;

/// The line of a text that has this byte, counted from 1; the last line, if the text ends before.
pub fn line_of(text: &str, byte: usize) -> usize {
    1 + text.as_bytes()[..byte.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

/// The line of a text of TOML that is at fault, counted from 1, and what is wrong with it, in a line of a length for people.
pub fn toml_fault(text: &str, error: &toml::de::Error) -> (usize, String) {
    let line = line_of(text, error.span().map_or(0, |span| span.start));
    let reason = error.message().lines().collect::<Vec<_>>().join("; ");
    match reason.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => (line, format!("{} [...]", &reason[..end])),
        None => (line, reason),
    }
}

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A token is missing or not what the format asks for.
    #[error("line {line}, column {column}: {reason}")]
    Malformed {
        /// Line at fault, counted from 1.
        line: usize,
        /// Byte within the line, from 1.
        column: usize,
        /// What was found and what is expected.
        reason: String,
    },
    /// The file could not be read.
    #[error("line {line}: {source}")]
    Io {
        /// Line that was to be read, counted from 1.
        line: usize,
        /// The operating system's reason.
        source: std::io::Error,
    },
}

/// Lines of a file, one in memory at a time, without the byte-order mark that may stand before the first.
pub(crate) struct Lines<R> {
    input: R,
    line: usize,
    buffer: Vec<u8>,
    again: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Lines<R> {
        Lines { input, line: 0, buffer: Vec::new(), again: false }
    }

    /// Line last read, from 1.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// Lets [`Lines::next`] give the line last read once more.
    pub(crate) fn unread(&mut self) {
        self.again = true;
    }

    /// The words of the next line that is neither blank nor a comment.
    pub(crate) fn next(&mut self, comment: Option<char>) -> Result<Option<Words<'_>>, ReadError> {
        // After `unread` the loop is passed over: the buffer still has the line.
        while !std::mem::take(&mut self.again) {
            self.line += 1;
            let line = self.line;
            self.buffer.clear();
            // One byte more than is allowed tells a line that is too long from one that just fits.
            let mut limited = std::io::Read::take(&mut self.input, MAX_LINE_BYTES as u64 + 1);
            let count = limited
                .read_until(b'\n', &mut self.buffer)
                .map_err(|source| ReadError::Io { line, source })?;
            if count == 0 {
                return Ok(None);
            }
            if count > MAX_LINE_BYTES {
                let reason = format!("the line is longer than {MAX_LINE_BYTES} bytes");
                return Err(ReadError::Malformed { line, column: MAX_LINE_BYTES, reason });
            }
            if let Err(error) = std::str::from_utf8(&self.buffer) {
                let reason = "not UTF-8 text".to_owned();
                return Err(ReadError::Malformed { line, column: error.valid_up_to() + 1, reason });
            }
            if line == 1 {
                let mark = self.buffer.len() - without_mark(&self.buffer).len();
                self.buffer.drain(..mark);
            }
            let text = self.text().trim();
            if !text.is_empty() && !comment.is_some_and(|mark| text.starts_with(mark)) {
                break;
            }
        }
        let line = self.line;
        Ok(Some(Words { text: self.text().trim_end(), at: 0, line }))
    }

    /// The line last read; it was checked to be UTF-8.
    fn text(&self) -> &str {
        std::str::from_utf8(&self.buffer).unwrap_or_default()
    }
}

/// The words of a line with their columns.
pub(crate) struct Words<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

/// At most this many characters of a file are quoted in a message.
const QUOTED: usize = 60;

/// A word of the file as it appears in a message: on one line, and short.
pub(crate) fn quote(word: &str) -> String {
    let short: String = word.chars().take(QUOTED).flat_map(char::escape_debug).collect();
    if word.chars().nth(QUOTED).is_some() { format!("`{short}..`") } else { format!("`{short}`") }
}

impl<'a> Words<'a> {
    pub(crate) fn next(&mut self) -> Option<(usize, &'a str)> {
        let rest = &self.text[self.at..];
        let start = self.at + rest.find(|c: char| !c.is_whitespace())?;
        let length = self.text[start..].find(char::is_whitespace).unwrap_or(self.text.len() - start);
        self.at = start + length;
        Some((start + 1, &self.text[start..self.at]))
    }

    /// Number of the line, from 1.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// Column of the next word, or where it should be.
    pub(crate) fn column(&self) -> usize {
        let rest = &self.text[self.at..];
        self.at + rest.len() - rest.trim_start().len() + 1
    }

    /// Everything from a column (the start of a character) on.
    pub(crate) fn rest_from(&mut self, column: usize) -> (usize, &'a str) {
        self.at = column - 1;
        self.rest()
    }

    /// Everything after the words read so far.
    pub(crate) fn rest(&mut self) -> (usize, &'a str) {
        let rest = self.text[self.at..].trim();
        let column = self.text.len() - self.text[self.at..].trim_start().len() + 1;
        self.at = self.text.len();
        (column, rest)
    }

    pub(crate) fn malformed(&self, column: usize, reason: impl Into<String>) -> ReadError {
        ReadError::Malformed { line: self.line, column, reason: reason.into() }
    }

    pub(crate) fn word(&mut self, what: &str) -> Result<(usize, &'a str), ReadError> {
        match self.next() {
            Some(word) => Ok(word),
            None => Err(self.malformed(self.text.len() + 1, format!("the line ends where {what} should be"))),
        }
    }

    pub(crate) fn whole(&mut self, what: &str, limit: u64) -> Result<u64, ReadError> {
        let (column, word) = self.word(what)?;
        self.whole_of(column, word, what, limit)
    }

    /// A word (or part of one) at a column as a whole number of at most `limit`.
    pub(crate) fn whole_of(
        &self,
        column: usize,
        word: &str,
        what: &str,
        limit: u64,
    ) -> Result<u64, ReadError> {
        // `parse` would accept a sign.
        match word.parse() {
            Ok(value) if value <= limit && !word.starts_with('+') => Ok(value),
            Ok(value) if value > limit => {
                Err(self.malformed(column, format!("{what} is {}, more than {limit}", quote(word))))
            }
            _ => Err(self.malformed(column, format!("{what} is {}, not a whole number", quote(word)))),
        }
    }

    pub(crate) fn end(&mut self) -> Result<(), ReadError> {
        match self.next() {
            None => Ok(()),
            Some((column, word)) => {
                Err(self.malformed(column, format!("unexpected {} after the end", quote(word))))
            }
        }
    }
}

/// Bytes of a file so far; refuses what no sum could hold.
#[derive(Default)]
pub(crate) struct Total(u64);

impl Total {
    /// Adds `count` flows of `size`.
    pub(crate) fn add(&mut self, size: Bytes, count: usize) -> Result<(), String> {
        let sum = size.0.checked_mul(count as u64).and_then(|bytes| self.0.checked_add(bytes));
        match sum {
            Some(sum) if sum <= MAX_TOTAL_BYTES => {
                self.0 = sum;
                Ok(())
            }
            _ => Err(format!("all flows up to here have more than {MAX_TOTAL_BYTES} bytes together")),
        }
    }
}

/// Ids met so far. Ids that rise one by one take no memory.
#[derive(Default)]
pub(crate) struct SeenIds {
    /// First of a run of consecutive ids -> last.
    runs: BTreeMap<u64, u64>,
}

impl SeenIds {
    /// Whether an id was met.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.runs.range(..=id).next_back().is_some_and(|(_, &last)| id <= last)
    }

    /// Notes an id; `false` if it was met before.
    pub(crate) fn insert(&mut self, id: u64) -> bool {
        if self.contains(id) {
            return false;
        }
        let before = self.runs.range(..=id).next_back().map(|(&first, &last)| (first, last));
        // No overflow: an id equal to MAX has no successor, and `last < id` has one.
        let joins_after = id.checked_add(1).and_then(|next| self.runs.remove(&next));
        let last = joins_after.unwrap_or(id);
        match before {
            Some((first, end)) if end + 1 == id => self.runs.insert(first, last),
            _ => self.runs.insert(id, last),
        };
        true
    }
}

/// A host of the workload.
pub(crate) fn host(
    words: &Words<'_>,
    column: usize,
    word: &str,
    what: &str,
    hosts: u32,
) -> Result<HostId, ReadError> {
    Ok(HostId(words.whole_of(column, word, what, u64::from(hosts) - 1)? as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a key of megabytes no more is shown than a person reads, also where a character of several bytes is cut at.
    #[test]
    fn what_is_wrong_with_toml_has_its_line_and_a_length() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        for name in ["k".repeat(2_000_000), format!("\"{}\"", "\u{e9}".repeat(1_000_000))] {
            let text = format!("# none\n\n{name} = 1\n");
            let (line, reason) = toml_fault(&text, &toml::from_str::<Nothing>(&text).unwrap_err());
            assert_eq!(line, 3);
            assert!(reason.starts_with("unknown field") && reason.ends_with(" [...]"), "{reason}");
            assert!(reason.chars().count() <= MAX_REASON_CHARS + 6);
        }
        assert_eq!((line_of("a\nb", 0), line_of("a\nb", 2), line_of("a\nb", 99)), (1, 2, 2));
    }

    #[test]
    fn an_id_is_new_once() {
        let mut seen = SeenIds::default();
        for id in [5, 7, 6, 0, u64::MAX, u64::MAX - 1, 1] {
            assert!(seen.insert(id), "{id}");
        }
        for id in [5, 7, 6, 0, u64::MAX, u64::MAX - 1, 1] {
            assert!(!seen.insert(id), "{id}");
        }
        // 0-1, 5-7 and the last two.
        assert_eq!(seen.runs.len(), 3);
    }

    #[test]
    fn sums_that_would_overflow_are_refused() {
        let mut total = Total::default();
        assert!(total.add(Bytes(MAX_TOTAL_BYTES / 2), 2).is_ok());
        assert!(total.add(Bytes(1), 1).is_err());
        assert!(Total::default().add(Bytes(u64::MAX), 3).is_err());
    }
}
