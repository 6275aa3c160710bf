//! What the program writes: results to stdout, everything else to stderr.
//!
//! Names, templates and texts of a model file can hold anything, such as sequences that a terminal obeys. So all that is
//! for people goes through [`escaped`]. A model's reply does so on a terminal only: in a pipe it stays as it is.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use serde::Serialize;

/// Writes a line to stderr, escaped. Where stderr is closed the line is lost, which is no reason to stop.
macro_rules! note {
    () => { $crate::output::write_note("") };
    ($($arg:tt)*) => { $crate::output::write_note(&format!($($arg)*)) };
}
pub(crate) use note;

/// The line of [`note!`].
pub(crate) fn write_note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", escaped(line));
}

/// Whether a terminal might obey a character instead of showing it: control characters other than the ends of lines and
/// tabs, and characters that change the order in which others are shown.
fn is_unsafe(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

/// `text` with the characters that a terminal might obey as escapes, such as `\u{1b}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Writes text for people to stdout at once, escaped.
pub(crate) fn text(text: &str) -> io::Result<()> {
    raw(&escaped(text))
}

/// Writes a part of a model's reply to stdout at once: escaped on a terminal, as it is elsewhere.
pub(crate) fn reply(part: &str) -> io::Result<()> {
    if io::stdout().is_terminal() { text(part) } else { raw(part) }
}

fn raw(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes `value` to stdout as one JSON object on one line. What a terminal might obey is escaped as JSON escapes it.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string(value)?;
    let mut line = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // Outside of strings JSON is ASCII without control characters.
        if is_unsafe(c) {
            write!(line, "\\u{:04x}", u32::from(c))?;
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    Ok(raw(&line)?)
}

/// Whether `error` only says that the reader of stdout has gone, as `head` does when it has seen enough.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// `text` on one line of a terminal: in quotes, with ends of lines and all control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(escaped("a\x1b[31m\u{9b}b\r\x07\x7f"), "a\\u{1b}[31m\\u{9b}b\\u{d}\\u{7}\\u{7f}");
        assert_eq!(escaped("\u{202e}x\u{2066}\u{200f}\u{2028}"), "\\u{202e}x\\u{2066}\\u{200f}\\u{2028}");
        for plain in ["", "line\n\tü 日本 👩\u{200d}💻", "\\u{1b}"] {
            assert!(matches!(escaped(plain), Cow::Borrowed(text) if text == plain));
        }
        for c in ('\0'..=char::MAX).filter(|&c| is_unsafe(c)) {
            // In JSON four digits are enough.
            assert!(u32::from(c) <= 0xffff, "{c:?}");
        }
    }
}
