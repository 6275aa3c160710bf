//! Where words go: results to stdout, everything else to stderr.

use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;

/// Writes a line to stderr; that nobody listens there is no reason to stop.
macro_rules! note {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}
pub(crate) use note;

/// Writes text to stdout, to be seen at once.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes `value` to stdout as one JSON object on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    Ok(text(&line)?)
}

/// Whether `error` only says that the reader of stdout has gone, as `head` does when it has seen enough.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// `text` on one line of a terminal: control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    format!("{text:?}")
}
