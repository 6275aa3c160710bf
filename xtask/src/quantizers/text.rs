//! One text in two parts: what is evaluated, and what calibrates.

use anyhow::{Context, Result};

/// Cuts `text` at the last line end within its first 60%, or else at the first one after: the part to evaluate, then
/// the part to calibrate on. Together they are the text.
///
/// # Errors
/// If there is no line end to cut at that leaves something on both sides.
pub(super) fn split(text: &str) -> Result<(&str, &str)> {
    let target = text.len() * 3 / 5;
    let bytes = text.as_bytes();
    let is_end = |&i: &usize| bytes[i] == b'\n';
    let end = (0..target).rev().find(is_end).or_else(|| (target..bytes.len()).find(is_end));
    // A line end is a byte of its own in UTF-8, so the cut is between characters.
    end.map(|end| text.split_at(end + 1))
        .filter(|(_, rest)| !rest.is_empty())
        .context("the text has no line end to cut it at: expected several lines")
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn parts_are_whole_lines_and_together_the_text() {
        // Twenty bytes: the cut comes after the last line end of the first twelve.
        assert_eq!(split("aaaa\nbbbb\ncccc\ndddd\n").unwrap(), ("aaaa\nbbbb\n", "cccc\ndddd\n"));
        // A first line longer than that is taken whole.
        assert_eq!(split("aaaaaaaaaaaaaaa\nb").unwrap(), ("aaaaaaaaaaaaaaa\n", "b"));
        assert_eq!(split("ä\nöü\néééé").unwrap(), ("ä\nöü\n", "éééé"));
    }

    #[test]
    fn a_text_that_cannot_be_cut_is_refused() {
        for text in ["", "one line", "one line\n"] {
            assert!(split(text).unwrap_err().to_string().contains("no line end"), "{text:?}");
        }
    }
}
