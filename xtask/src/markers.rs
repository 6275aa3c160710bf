//! Generated text between hand-written lines.

use anyhow::{Result, bail};

/// `document` with `block` between the lines `<!-- NAME:begin -->` and `<!-- NAME:end -->`, whatever was there before.
///
/// # Errors
/// Unless each marker is on a line of its own, once, in order.
pub(crate) fn replace(document: &str, name: &str, block: &str) -> Result<String> {
    let (first, last) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let lines: Vec<&str> = document.lines().collect();
    let places =
        |marker: &str| -> Vec<usize> { (0..lines.len()).filter(|&i| lines[i].trim() == marker).collect() };
    let (&[begin], &[end]) = (places(&first).as_slice(), places(&last).as_slice()) else {
        bail!("expected one line {first} and one line {last}");
    };
    if begin > end {
        bail!("expected {first} before {last}");
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
        let before = "a\n<!-- table:begin -->\nold\n\nold\n<!-- table:end -->\nb\n";
        let after = "a\n<!-- table:begin -->\n\nnew\n\n<!-- table:end -->\nb\n";
        assert_eq!(replace(before, "table", "new\n").unwrap(), after);
        assert_eq!(replace(after, "table", "new").unwrap(), after);
    }

    #[test]
    fn markers_have_to_be_there_once_and_in_order() {
        let (begin, end) = ("<!-- table:begin -->\n", "<!-- table:end -->\n");
        for document in ["", begin, end, &[begin, begin, end].concat(), &[end, begin].concat()] {
            assert!(
                replace(document, "table", "new").unwrap_err().to_string().contains("expected"),
                "{document:?}"
            );
        }
    }
}
