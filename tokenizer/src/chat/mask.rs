//! Masks the text of messages, so that no control token in a rendered template can come from a message.
//!
//! Let K be the set of the control tokens' texts. A character of a message is masked if it occurs in a text of K, or if it
//! is itself a private-use character of plane 15 or 16: it is replaced by a private-use character of those planes, always
//! the same one for the same character. No text of K contains a masked character, so no control token that is found in the
//! output can contain a character of a message. After rendering, the characters are put back.
//!
//! Strings that the template itself has in quotes are not masked, so that the template can test for them, unless an
//! occurrence of such a string could overlap a text of K. It cannot if neither contains the other, and if no end of one is
//! a beginning of the other.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use memchr::memmem;

/// The private-use characters of planes 15 and 16.
const PRIVATE: [std::ops::RangeInclusive<char>; 2] = ['\u{f0000}'..='\u{ffffd}', '\u{100000}'..='\u{10fffd}'];

/// Which characters are masked, for one template and vocabulary.
#[derive(Debug)]
pub(super) struct MaskRules {
    /// The characters of the control tokens' texts.
    control: HashSet<char>,
    /// Quoted strings of the template, which are not masked.
    visible: Vec<memmem::Finder<'static>>,
}

impl MaskRules {
    /// The rules for the template `source` and the texts of the control tokens.
    pub(super) fn new(texts: &[&str], source: &str) -> Self {
        let control: HashSet<char> = texts.iter().flat_map(|text| text.chars()).collect();
        let stays_visible = |s: &String| {
            s.chars().any(|c| control.contains(&c))
                && !s.chars().any(is_private)
                && !texts.iter().any(|k| can_overlap(k, s))
        };
        let strings: HashSet<String> = quoted(source).into_iter().filter(stays_visible).collect();
        let visible = strings.iter().map(|s| memmem::Finder::new(s.as_bytes()).into_owned()).collect();
        Self { control, visible }
    }

    /// A mask for all the messages of one prompt.
    pub(super) fn mask(&self) -> Mask<'_> {
        Mask { rules: self, to: HashMap::new(), from: HashMap::new(), unused: PRIVATE }
    }
}

/// The private-use characters that stand for others in one prompt.
#[derive(Debug)]
pub(super) struct Mask<'a> {
    rules: &'a MaskRules,
    to: HashMap<char, char>,
    from: HashMap<char, char>,
    unused: [std::ops::RangeInclusive<char>; 2],
}

impl Mask<'_> {
    /// Masks a message, character by character. Returns `None` when the messages have more characters to mask than there
    /// are private-use characters.
    pub(super) fn mask(&mut self, content: &str) -> Option<String> {
        let mut visible = vec![false; content.len()];
        for finder in &self.rules.visible {
            for at in finder.find_iter(content.as_bytes()) {
                visible[at..at + finder.needle().len()].fill(true);
            }
        }
        content
            .char_indices()
            .map(|(at, c)| {
                let masked = is_private(c) || (self.rules.control.contains(&c) && !visible[at]);
                if masked { self.private(c) } else { Some(c) }
            })
            .collect()
    }

    /// The private-use character that stands for `c`.
    fn private(&mut self, c: char) -> Option<char> {
        if let Some(&p) = self.to.get(&c) {
            return Some(p);
        }
        let p = self.unused.iter_mut().find_map(Iterator::next)?;
        self.to.insert(c, p);
        self.from.insert(p, c);
        Some(p)
    }

    /// Puts the characters back into what a template has written. Returns the text and the byte ranges that do not come
    /// from a message, in which control tokens may be looked for.
    pub(super) fn unmask(&self, rendered: &str) -> (String, Vec<Range<usize>>) {
        let mut text = String::with_capacity(rendered.len());
        let mut trusted: Vec<Range<usize>> = Vec::new();
        for c in rendered.chars() {
            let start = text.len();
            if is_private(c) {
                text.push(self.from.get(&c).copied().unwrap_or(c));
                continue;
            }
            text.push(c);
            match trusted.last_mut() {
                Some(last) if last.end == start => last.end = text.len(),
                _ => trusted.push(start..text.len()),
            }
        }
        (text, trusted)
    }
}

fn is_private(c: char) -> bool {
    PRIVATE.iter().any(|r| r.contains(&c))
}

/// Whether an occurrence of `control` can share a character with one of `s`.
fn can_overlap(control: &str, s: &str) -> bool {
    let shares = |end: &str, beginning: &str| {
        beginning.char_indices().skip(1).any(|(at, _)| end.ends_with(&beginning[..at]))
    };
    control.contains(s) || s.contains(control) || shares(control, s) || shares(s, control)
}

/// The quoted strings of a template without white space at their ends.
///
/// It returns more strings than the template has, because text between statements is read like statements. That does no
/// harm: [`can_overlap`] decides which strings are not masked.
fn quoted(source: &str) -> Vec<String> {
    let mut strings = Vec::new();
    for quote in ['\'', '"'] {
        let at: Vec<usize> = source.match_indices(quote).map(|(at, _)| at).collect();
        for (start, end) in at.iter().zip(at.iter().skip(1)) {
            let string = source[start + 1..*end].replace("\\n", "\n").replace("\\t", "\t");
            strings.push(string.trim().to_owned());
        }
    }
    strings
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: [&str; 3] = ["<|im_start|>", "<|im_end|>", "</s>"];

    #[test]
    fn control_texts_are_masked_and_come_back() {
        let rules = MaskRules::new(&CONTROL, "");
        let mut mask = rules.mask();
        let content = "a<|im_end|> \u{f0000}\u{10fffd} </s> é";
        let masked = mask.mask(content).unwrap();
        assert_eq!(masked.chars().count(), content.chars().count());
        assert!(masked.ends_with(" é") && masked.matches(' ').count() == 3, "{masked:?}");
        assert!(!masked.contains('<') && !masked.contains("im"));
        let (text, trusted) = mask.unmask(&format!("<|im_start|>{masked}<|im_end|>"));
        assert_eq!(text, format!("<|im_start|>{content}<|im_end|>"));
        assert_eq!(&text[trusted[0].clone()], "<|im_start|>");
        assert_eq!(&text[trusted.last().unwrap().clone()], " é<|im_end|>");
    }

    #[test]
    fn quoted_strings_stay_visible_if_no_control_token_can_overlap_them() {
        let source =
            r#"{% if "</think>\n" in c or '<|im_end|>' in c or '|' in c or '>' in c or 's><' in c %}"#;
        let rules = MaskRules::new(&CONTROL, source);
        let mut mask = rules.mask();
        let masked = mask.mask("x</think>y</s><|im_end|>").unwrap();
        assert!(masked.starts_with("x</think>"), "{masked:?}");
        assert!(!masked.contains('|') && !masked[9..].contains('<'));
    }

    #[test]
    fn overlaps() {
        for (control, s, overlap) in [
            ("<|end|>", "</think>", false),
            ("<|end|>", "end", true),
            ("<|end|>", "x<|end|>y", true),
            ("<|end|>", ">x", true),
            ("<|end|>", "x<|", true),
            ("<|end|>", "<x>", false),
            ("aXa", "a", true),
        ] {
            assert_eq!(can_overlap(control, s), overlap, "{control} {s}");
        }
    }

    #[test]
    fn a_message_of_all_private_characters() {
        let rules = MaskRules::new(&CONTROL, "");
        let mut mask = rules.mask();
        let all: String = PRIVATE.into_iter().flatten().collect();
        let masked = mask.mask(&all).unwrap();
        assert_eq!(mask.unmask(&masked).0, all);
        assert_eq!(mask.mask("<|"), None);
    }
}
