//! Pre-tokenizers: where a text is cut before byte-pair encoding.
//!
//! A merge never crosses a cut, so the cuts are as much a part of a model's
//! vocabulary as the merges. GGUF files name them; [`rules`] has each name's
//! published expressions. The most common ones, tried at each position in this order:
//!
//! | name | contractions | words | numbers | punctuation | white space |
//! |---|---|---|---|---|---|
//! | `gpt-2` | `'s` `'t` `'re` `'ve` `'m` `'ll` `'d` | ` ?\p{L}+` | ` ?\p{N}+` | ` ?[^\s\p{L}\p{N}]+` | `\s+(?!\S)`, `\s+` |
//! | `smollm` | as `gpt-2`, after cutting out each `\p{N}` | | | | |
//! | `llama-bpe` | as `gpt-2`, in either case | `[^\r\n\p{L}\p{N}]?\p{L}+` | `\p{N}{1,3}` | ` ?[^\s\p{L}\p{N}]+[\r\n]*` | `\s*[\r\n]+`, `\s+(?!\S)`, `\s+` |
//! | `qwen2` | as `llama-bpe` | as `llama-bpe` | `\p{N}` | as `llama-bpe` | as `llama-bpe` |
//!
//! The one part that needs more than a finite automaton is `\s+(?!\S)`, which
//! leaves the last of several spaces to the word that follows. Here the
//! automaton takes the whole run and the last character is given back
//! afterwards: the same cuts in linear time, where a backtracking engine keeps
//! a state for each space and gives up at a limit on long runs.
//! "Either case" is ASCII case, as llama.cpp has it; the original `(?i:'s)` also folds U+017F.
//! The character classes are those of the `regex` crate's Unicode version; characters assigned later
//! than another implementation's version can be cut differently there.

mod rules;

use regex::Regex;

use super::TokenizerError;
pub(crate) use rules::Rule;
use rules::{DEFAULT, RULES, Step};

/// The pre-tokenizer names that are understood.
pub fn supported_pre() -> impl Iterator<Item = &'static str> {
    RULES.iter().flat_map(|(_, names)| names.iter().copied())
}

/// The rule that a file names. A file without a name has llama.cpp's default rule.
///
/// # Errors
/// [`TokenizerError::UnsupportedPre`].
pub(crate) fn rule(name: Option<&str>) -> Result<Rule, TokenizerError> {
    let Some(name) = name else { return Ok(DEFAULT) };
    let known = RULES.iter().find(|(_, names)| names.contains(&name));
    known.map(|&(rule, _)| rule).ok_or_else(|| TokenizerError::UnsupportedPre { got: name.to_owned() })
}

/// A rule with its expressions compiled.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    steps: Vec<Cut>,
}

#[derive(Debug)]
struct Cut {
    regex: Regex,
    /// For runs of white space that leave their last character to what follows: whether one that ends in a line break is kept
    /// whole.
    keeps_line_breaks: Option<bool>,
}

impl PreTokenizer {
    /// Compiles a rule.
    ///
    /// # Errors
    /// [`TokenizerError::Bpe`], which no rule leads to: a test compiles all of them.
    pub(crate) fn new(rule: &Rule) -> Result<Self, TokenizerError> {
        let compile = |step: &Step| {
            let (expression, keeps_line_breaks) = match *step {
                Step::Matches(expression) => (expression, None),
                Step::Words(expression, keep) => (expression, Some(keep)),
            };
            match Regex::new(expression) {
                Ok(regex) => Ok(Cut { regex, keeps_line_breaks }),
                Err(error) => Err(TokenizerError::Bpe { message: error.to_string() }),
            }
        };
        Ok(Self { steps: rule.steps.iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// Calls `piece` with the pieces of `text` in order; end to end they are `text`.
    pub(crate) fn split<E>(&self, text: &str, mut piece: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        if text.is_empty() { Ok(()) } else { cut(&self.steps, text, &mut piece) }
    }
}

/// Cuts `text`, which is not empty, by the first step and what comes of it by the others.
fn cut<E>(steps: &[Cut], text: &str, piece: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    let Some((step, steps)) = steps.split_first() else { return piece(text) };
    let mut at = 0;
    while let Some(m) = step.regex.find_at(text, at) {
        if at < m.start() {
            cut(steps, &text[at..m.start()], piece)?;
        }
        at = m.end() - step.given_back(m.as_str(), m.end() == text.len());
        cut(steps, &text[m.start()..at], piece)?;
    }
    if at < text.len() { cut(steps, &text[at..], piece) } else { Ok(()) }
}

impl Cut {
    /// The length of the last character of a run of white space that belongs to the next word.
    fn given_back(&self, matched: &str, is_last: bool) -> usize {
        let Some(keeps_line_breaks) = self.keeps_line_breaks else { return 0 };
        // Only the white-space alternatives end in white space, line breaks apart.
        match matched.chars().next_back() {
            Some('\r' | '\n') if keeps_line_breaks => 0,
            Some(c) if c.is_whitespace() && !is_last && matched.len() > c.len_utf8() => c.len_utf8(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn pieces<'a>(pre: &str, text: &'a str) -> Vec<&'a str> {
        let mut at = 0;
        let mut out = Vec::new();
        let pre = PreTokenizer::new(&rule(Some(pre)).unwrap()).unwrap();
        let Ok(()) = pre.split(text, |p| {
            out.push(&text[at..at + p.len()]);
            assert_eq!(*out.last().unwrap(), p);
            at += p.len();
            Ok::<(), Infallible>(())
        });
        assert_eq!(at, text.len());
        out
    }

    #[test]
    fn every_name_compiles_and_others_are_named() {
        let mut names: Vec<&str> = supported_pre().collect();
        for name in &names {
            assert!(PreTokenizer::new(&rule(Some(name)).unwrap()).is_ok(), "{name}");
        }
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
        let error = rule(Some("superbpe")).unwrap_err().to_string();
        assert!(
            error.starts_with(
                r#"pre-tokenizer "superbpe" is not supported: expected one of default, gpt-2, "#
            )
        );
        assert_eq!(rule(None).unwrap().steps, rule(Some("default")).unwrap().steps);
    }

    /// What Python's module `regex` makes of the published expressions, look-aheads included.
    #[test]
    fn published_expressions_agree() {
        let golden = halfbyte_testing::golden("pre_splits.json");
        let texts: Vec<&str> =
            golden["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let rules = golden["rules"].as_object().unwrap();
        assert!(texts.len() > 40 && rules.len() > 15);
        for (name, expected) in rules {
            for (text, expected) in texts.iter().zip(expected.as_array().unwrap()) {
                let expected: Vec<&str> =
                    expected.as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
                assert_eq!(pieces(name, text), expected, "{name}: {text:?}");
            }
        }
    }

    #[test]
    fn the_last_space_goes_to_the_word() {
        assert_eq!(pieces("gpt-2", "a   b  "), ["a", "  ", " b", "  "]);
        assert_eq!(pieces("gpt-2", "a \n b"), ["a", " \n", " b"]);
        assert_eq!(pieces("gpt-2", "a\n\nb"), ["a", "\n", "\n", "b"]);
        assert_eq!(pieces("gpt-2", "a\u{a0}\u{3000}b"), ["a", "\u{a0}", "\u{3000}", "b"]);
        assert_eq!(pieces("llama-bpe", "a   b"), ["a", "  ", " b"]);
        assert_eq!(pieces("llama-bpe", "a \t b"), ["a", " \t", " b"]);
    }

    #[test]
    fn line_breaks() {
        assert_eq!(pieces("llama-bpe", "a \n\n  b"), ["a", " \n\n", " ", " b"]);
        assert_eq!(pieces("qwen2", "a!\r\n\nb"), ["a", "!\r\n\n", "b"]);
        assert_eq!(pieces("gpt-2", "a!\r\n\nb"), ["a", "!", "\r\n", "\n", "b"]);
        assert_eq!(pieces("llama-bpe", "\n \n "), ["\n \n", " "]);
    }

    #[test]
    fn numbers() {
        assert_eq!(pieces("gpt-2", "x 1234"), ["x", " 1234"]);
        assert_eq!(pieces("smollm", "x  12"), ["x", "  ", "1", "2"]);
        assert_eq!(pieces("llama-bpe", "x 1234567"), ["x", " ", "123", "456", "7"]);
        assert_eq!(pieces("qwen2", "x 12\u{b2}"), ["x", " ", "1", "2", "\u{b2}"]);
    }

    #[test]
    fn contractions() {
        assert_eq!(pieces("gpt-2", "it's I'LL"), ["it", "'s", " I", "'", "LL"]);
        assert_eq!(pieces("llama-bpe", "it's I'LL o'clock"), ["it", "'s", " I", "'LL", " o", "'clock"]);
        // U+017F folds to s in Unicode, not here.
        assert_eq!(pieces("llama-bpe", "a'\u{17f}x"), ["a", "'\u{17f}x"]);
    }
}
