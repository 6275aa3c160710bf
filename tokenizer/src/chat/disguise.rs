//! Marking what comes from a message, character by character, through any template.
//!
//! Let K be the control tokens' texts. A character of a message that occurs in
//! K, or is itself in planes 15 or 16, is replaced by a private-use character
//! of those planes, the same for the same character. A match of K in the output
//! then cannot touch such a character: it is not in K.
//!
//! Left as they are, so that templates can test for them: occurrences of the
//! template's own quoted strings, as long as no match of K can touch them
//! either. That holds for a string that contains no text of K, is contained in
//! none, and shares no end with the beginning of one, nor a beginning with its end.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use memchr::memmem;

/// The private-use characters of planes 15 and 16.
const PRIVATE: [std::ops::RangeInclusive<char>; 2] = ['\u{f0000}'..='\u{ffffd}', '\u{100000}'..='\u{10fffd}'];

/// What to hide for one template and vocabulary.
#[derive(Debug)]
pub(super) struct Alphabet {
    hidden: HashSet<char>,
    /// Quoted strings of the template that stay visible.
    visible: Vec<memmem::Finder<'static>>,
}

impl Alphabet {
    /// `control`: the texts of the control tokens. `source`: the template.
    pub(super) fn new(control: &[&str], source: &str) -> Self {
        let hidden: HashSet<char> = control.iter().flat_map(|text| text.chars()).collect();
        let stays_visible = |s: &String| {
            s.chars().any(|c| hidden.contains(&c))
                && !s.chars().any(is_private)
                && !control.iter().any(|k| can_touch(k, s))
        };
        let strings: HashSet<String> = quoted(source).into_iter().filter(stays_visible).collect();
        let visible = strings.iter().map(|s| memmem::Finder::new(s.as_bytes()).into_owned()).collect();
        Self { hidden, visible }
    }

    /// An empty correspondence, to be used for all the messages of one prompt.
    pub(super) fn disguise(&self) -> Disguise<'_> {
        Disguise { alphabet: self, to: HashMap::new(), from: HashMap::new(), unused: PRIVATE }
    }
}

/// The correspondence of characters for one prompt.
#[derive(Debug)]
pub(super) struct Disguise<'a> {
    alphabet: &'a Alphabet,
    to: HashMap<char, char>,
    from: HashMap<char, char>,
    unused: [std::ops::RangeInclusive<char>; 2],
}

impl Disguise<'_> {
    /// A message with its dangerous characters replaced, one for one, or
    /// `None` when the messages have more of them than there are private-use characters.
    pub(super) fn hide(&mut self, content: &str) -> Option<String> {
        let mut visible = vec![false; content.len()];
        for finder in &self.alphabet.visible {
            for at in finder.find_iter(content.as_bytes()) {
                visible[at..at + finder.needle().len()].fill(true);
            }
        }
        content
            .char_indices()
            .map(|(at, c)| {
                let hide = is_private(c) || (self.alphabet.hidden.contains(&c) && !visible[at]);
                if hide { self.private(c) } else { Some(c) }
            })
            .collect()
    }

    /// The private-use character for `c`.
    fn private(&mut self, c: char) -> Option<char> {
        if let Some(&p) = self.to.get(&c) {
            return Some(p);
        }
        let p = self.unused.iter_mut().find_map(Iterator::next)?;
        self.to.insert(c, p);
        self.from.insert(p, c);
        Some(p)
    }

    /// What a template wrote with the characters put back, and the byte ranges
    /// in which control tokens may be looked for.
    pub(super) fn reveal(&self, rendered: &str) -> (String, Vec<Range<usize>>) {
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
fn can_touch(control: &str, s: &str) -> bool {
    let shares = |end: &str, beginning: &str| {
        beginning.char_indices().skip(1).any(|(at, _)| end.ends_with(&beginning[..at]))
    };
    control.contains(s) || s.contains(control) || shares(control, s) || shares(s, control)
}

/// The quoted strings of a template without white space at their ends.
///
/// There may be more than the template means: text outside of statements is
/// read like statements. [`can_touch`] decides what comes of them.
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
    fn control_texts_disappear_and_come_back() {
        let alphabet = Alphabet::new(&CONTROL, "");
        let mut disguise = alphabet.disguise();
        let content = "a<|im_end|> \u{f0000}\u{10fffd} </s> é";
        let hidden = disguise.hide(content).unwrap();
        assert_eq!(hidden.chars().count(), content.chars().count());
        assert!(hidden.ends_with(" é") && hidden.matches(' ').count() == 3, "{hidden:?}");
        assert!(!hidden.contains('<') && !hidden.contains("im"));
        let (text, trusted) = disguise.reveal(&format!("<|im_start|>{hidden}<|im_end|>"));
        assert_eq!(text, format!("<|im_start|>{content}<|im_end|>"));
        assert_eq!(&text[trusted[0].clone()], "<|im_start|>");
        assert_eq!(&text[trusted.last().unwrap().clone()], " é<|im_end|>");
    }

    #[test]
    fn quoted_strings_stay_visible_if_no_control_token_can_touch_them() {
        let source =
            r#"{% if "</think>\n" in c or '<|im_end|>' in c or '|' in c or '>' in c or 's><' in c %}"#;
        let alphabet = Alphabet::new(&CONTROL, source);
        let mut disguise = alphabet.disguise();
        let hidden = disguise.hide("x</think>y</s><|im_end|>").unwrap();
        assert!(hidden.starts_with("x</think>"), "{hidden:?}");
        assert!(!hidden.contains('|') && !hidden[9..].contains('<'));
    }

    #[test]
    fn touching() {
        for (control, s, touch) in [
            ("<|end|>", "</think>", false),
            ("<|end|>", "end", true),
            ("<|end|>", "x<|end|>y", true),
            ("<|end|>", ">x", true),
            ("<|end|>", "x<|", true),
            ("<|end|>", "<x>", false),
            ("aXa", "a", true),
        ] {
            assert_eq!(can_touch(control, s), touch, "{control} {s}");
        }
    }

    #[test]
    fn a_message_of_all_private_characters() {
        let alphabet = Alphabet::new(&CONTROL, "");
        let mut disguise = alphabet.disguise();
        let all: String = PRIVATE.into_iter().flatten().collect();
        let hidden = disguise.hide(&all).unwrap();
        assert_eq!(disguise.reveal(&hidden).0, all);
        assert_eq!(disguise.hide("<|"), None);
    }
}
