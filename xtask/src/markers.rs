//! Generated text between hand-written lines.

use anyhow::{Result, bail};

const BEGIN: &str = "<!-- quantizers:begin -->";
const END: &str = "<!-- quantizers:end -->";

/// `document` with `block` between its two marker lines, whatever was there before.
///
/// # Errors
/// Unless each marker is on a line of its own, once, in order.
pub(super) fn replace(document: &str, block: &str) -> Result<String> {
    let lines: Vec<&str> = document.lines().collect();
    let places = |marker| -> Vec<usize> { (0..lines.len()).filter(|&i| lines[i].trim() == marker).collect() };
    let (&[begin], &[end]) = (places(BEGIN).as_slice(), places(END).as_slice()) else {
        bail!("expected one line {BEGIN} and one line {END}");
    };
    if begin > end {
        bail!("expected {BEGIN} before {END}");
    }
    let mut text = String::new();
    for line in &lines[..=begin] {
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(block.trim());
    text.push_str("\n\n");
    for line in &lines[end..] {
        text.push_str(line);
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::replace;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let before = "a\n<!-- quantizers:begin -->\nold\n\nold\n<!-- quantizers:end -->\nb\n";
        let after = "a\n<!-- quantizers:begin -->\n\nnew\n\n<!-- quantizers:end -->\nb\n";
        assert_eq!(replace(before, "new\n").unwrap(), after);
        assert_eq!(replace(after, "new").unwrap(), after);
    }

    #[test]
    fn markers_have_to_be_there_once_and_in_order() {
        let (begin, end) = ("<!-- quantizers:begin -->\n", "<!-- quantizers:end -->\n");
        for document in ["", begin, end, &[begin, begin, end].concat(), &[end, begin].concat()] {
            assert!(replace(document, "new").unwrap_err().to_string().contains("expected"), "{document:?}");
        }
    }
}
