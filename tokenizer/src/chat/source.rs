//! Changes to a template's text before it is compiled.

/// The template with line feeds for all line ends, as Jinja2 has it, and with `{% generation %}` as a block without effect.
///
/// The block marks what the assistant wrote, for training. As in Jinja2, a variable that is set in it ends with it, so
/// it becomes a `with` block.
pub(super) fn prepare(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let (written, len) = generation(tag).unwrap_or_else(|| ("{%".to_owned(), 2));
        out.push_str(&written);
        rest = &tag[len..];
    }
    out + rest
}

/// What stands for the tag at the start of `text` and the length of the tag, if it is one of the two.
fn generation(text: &str) -> Option<(String, usize)> {
    let end = text.find("%}")?;
    let inner = &text[2..end];
    let sign = |c: char| matches!(c, '-' | '+');
    let name = inner.strip_prefix(sign).unwrap_or(inner);
    let name = name.strip_suffix(sign).unwrap_or(name);
    let word = match name.trim() {
        "generation" => "with",
        "endgeneration" => "endwith",
        _ => return None,
    };
    Some((format!("{{%{}%}}", inner.replace(name.trim(), word)), end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_tags_change() {
        let source =
            "a\r\n{%- generation -%}\r{% if generation %}{{ generation }}{% endif %}{%endgeneration+%} {% x";
        let expected = "a\n{%- with -%}\n{% if generation %}{{ generation }}{% endif %}{%endwith+%} {% x";
        assert_eq!(prepare(source), expected);
    }
}
