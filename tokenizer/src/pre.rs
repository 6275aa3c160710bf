//! Pre-tokenizers: where a text is cut before byte-pair encoding.
//!
//! A merge never crosses a cut, so the cuts are as much a part of a model's
//! vocabulary as the merges. GGUF files name them; each name stands for one
//! published expression, tried at each position in this order:
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

use regex::Regex;

use super::TokenizerError;

/// The pre-tokenizer names that are understood.
pub const SUPPORTED_PRE: [&str; 4] = ["gpt-2", "llama-bpe", "qwen2", "smollm"];

const GPT2: &str = r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA: &str = concat!(
    r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const QWEN2: &str = concat!(
    r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);

/// One of the pre-tokenizers of the table above.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    /// Cut out, one by one, before `words` sees what is between.
    isolated: Option<Regex>,
    words: Regex,
    /// Whether a run of white space that ends in a line break is kept whole.
    keeps_line_breaks: bool,
}

impl PreTokenizer {
    /// The pre-tokenizer a file names.
    ///
    /// # Errors
    /// [`TokenizerError::UnsupportedPre`].
    pub(crate) fn new(name: Option<&str>) -> Result<Self, TokenizerError> {
        let (isolated, words, keeps_line_breaks) = match name {
            Some("gpt-2") => (None, GPT2, false),
            Some("smollm") => (Some(r"\p{N}"), GPT2, false),
            Some("llama-bpe") => (None, LLAMA, true),
            Some("qwen2") => (None, QWEN2, true),
            other => return Err(TokenizerError::UnsupportedPre { got: other.map(str::to_owned) }),
        };
        // The expressions are the constants above, each compiled by a test.
        let compile = |e: &str| Regex::new(e).map_err(|e| TokenizerError::Bpe { message: e.to_string() });
        Ok(Self { isolated: isolated.map(compile).transpose()?, words: compile(words)?, keeps_line_breaks })
    }

    /// Calls `piece` with the pieces of `text` in order; end to end they are `text`.
    pub(crate) fn split<E>(&self, text: &str, mut piece: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let Some(isolated) = &self.isolated else { return self.split_words(text, &mut piece) };
        let mut at = 0;
        for m in isolated.find_iter(text) {
            self.split_words(&text[at..m.start()], &mut piece)?;
            piece(m.as_str())?;
            at = m.end();
        }
        self.split_words(&text[at..], &mut piece)
    }

    fn split_words<E>(&self, text: &str, piece: &mut impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let mut at = 0;
        while let Some(m) = self.words.find_at(text, at) {
            // The expressions match any character; a gap would still be a piece.
            if at < m.start() {
                piece(&text[at..m.start()])?;
            }
            at = m.end() - self.given_back(m.as_str(), m.end() == text.len());
            piece(&text[m.start()..at])?;
        }
        if at < text.len() { piece(&text[at..]) } else { Ok(()) }
    }

    /// The length of the last character of a run of white space that belongs to the next word.
    fn given_back(&self, matched: &str, is_last: bool) -> usize {
        // Only the white-space alternatives end in white space, line breaks apart.
        match matched.chars().next_back() {
            Some('\r' | '\n') if self.keeps_line_breaks => 0,
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
        let pre = PreTokenizer::new(Some(pre)).unwrap();
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
        for name in SUPPORTED_PRE {
            assert!(PreTokenizer::new(Some(name)).is_ok(), "{name}");
        }
        let error = PreTokenizer::new(Some("tekken")).unwrap_err().to_string();
        assert_eq!(
            error,
            r#"pre-tokenizer "tekken" is not supported: expected one of gpt-2, llama-bpe, qwen2, smollm"#
        );
        assert!(PreTokenizer::new(None).unwrap_err().to_string().contains("(none named)"));
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
