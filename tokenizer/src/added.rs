//! Added tokens as the `tokenizers` crate matches them: leftmost, then longest, with their flags.
//!
//! Unlike there, a control token is matched only where the text is trusted. A match that is not trusted takes no part, as if
//! the token did not exist.

use std::ops::Range;

use aho_corasick::AhoCorasick;
use serde::Deserialize;

use super::TokenizerError;

/// An entry of `added_tokens` in `tokenizer.json`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) content: String,
    /// Takes the white space on its left.
    #[serde(default)]
    lstrip: bool,
    /// Takes the white space on its right.
    #[serde(default)]
    rstrip: bool,
    /// Is no part of a longer word.
    #[serde(default)]
    single_word: bool,
    /// Is looked for in normalized text.
    #[serde(default)]
    pub(crate) normalized: bool,
}

/// The tokens to look for in one pass over a text.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    tokens: Vec<AddedToken>,
    automaton: AhoCorasick,
}

/// A stretch of a text, and the token that it is.
pub(crate) type Span = (Range<usize>, Option<u32>);

impl AddedTokens {
    /// Builds the automaton. Tokens without text are left out.
    ///
    /// # Errors
    /// [`TokenizerError::HuggingFace`] if the texts are too long.
    pub(crate) fn new(mut tokens: Vec<AddedToken>) -> Result<Self, TokenizerError> {
        tokens.retain(|token| !token.content.is_empty());
        let automaton = AhoCorasick::new(tokens.iter().map(|token| token.content.as_bytes()));
        let automaton = automaton.map_err(|e| TokenizerError::HuggingFace { message: e.to_string() })?;
        Ok(Self { tokens, automaton })
    }

    /// Cuts `text` into spans that are the text end to end. `allowed`: whether a token may be matched in a range.
    pub(crate) fn cut(&self, text: &str, allowed: impl Fn(u32, &Range<usize>) -> bool) -> Vec<Span> {
        // For each byte, one more than the number of the longest token that starts there.
        let mut longest: Vec<u32> = Vec::new();
        for found in self.automaton.find_overlapping_iter(text) {
            let (range, number) = (found.range(), found.pattern().as_usize());
            if !allowed(self.tokens[number].id, &range) {
                continue;
            }
            longest.resize(text.len(), 0);
            let best = &mut longest[range.start];
            let is_longer = |other: u32| self.tokens[other as usize - 1].content.len() < range.len();
            if *best == 0 || is_longer(*best) {
                *best = number as u32 + 1;
            }
        }
        let mut spans: Vec<Span> = Vec::new();
        let (mut written, mut at) = (0, 0);
        while at < longest.len() {
            let Some(number) = longest[at].checked_sub(1) else {
                at += 1;
                continue;
            };
            let token = &self.tokens[number as usize];
            let end = at + token.content.len();
            let is_part = token.single_word
                && (text[..at].chars().next_back().is_some_and(is_word)
                    || text[end..].chars().next().is_some_and(is_word));
            if !is_part {
                let start = if token.lstrip { text[..at].trim_end().len() } else { at };
                let rest = &text[end..];
                let stop = if token.rstrip { end + rest.len() - rest.trim_start().len() } else { end };
                // The token before may have taken the space between the two.
                let start = start.max(written);
                if written < start {
                    spans.push((written..start, None));
                }
                spans.push((start..stop.max(start), Some(token.id)));
                written = stop.max(start);
            }
            at = end;
        }
        if written < text.len() {
            spans.push((written..text.len(), None));
        }
        spans
    }
}

/// Whether a regular expression's `\w` matches the character.
fn is_word(c: char) -> bool {
    c.is_alphanumeric()
        || c == '_'
        || ('\u{300}'..='\u{36f}').contains(&c)
        || matches!(c, '\u{200c}' | '\u{200d}')
}
