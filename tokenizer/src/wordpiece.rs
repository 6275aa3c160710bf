//! WordPiece (`bert`): words cut from the left into the longest tokens.
//!
//! GGUF files write the token at the start of a word with U+2581 in front, and the others without the `##` of BERT's own
//! files. The text is taken without accents and in lower case, as the uncased models have it; white space, punctuation and
//! Chinese characters end words. A word that cannot be cut to its end is one unknown token.

use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization_alignments::UnicodeNormalization;

use super::bytes::SPACE_MARK;
use super::vocab::Vocab;
use super::{TokenizerError, TokenizerSpec};

/// Characters that are words of their own.
static ALONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^[\p{P}$+<=>^`|~",
        r"\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}",
        r"\u{2b920}-\u{2ceaf}\u{f900}-\u{faff}\u{2f800}-\u{2fa1f}]$"
    ))
    .ok()
});

/// Characters that are left out: accents and control characters.
static DROPPED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{Mn}\p{C}\u{fffd}]$").ok());

/// A WordPiece model.
#[derive(Debug)]
pub(crate) struct WordPiece {
    unknown: u32,
    /// Bytes of the longest token.
    longest: usize,
}

impl WordPiece {
    /// Finds the unknown token.
    ///
    /// # Errors
    /// [`TokenizerError::NoSpecialId`].
    pub(crate) fn new(_: &TokenizerSpec, vocab: &Vocab) -> Result<Self, TokenizerError> {
        let unknown = vocab.special.unk.ok_or(TokenizerError::NoSpecialId { what: "unknown" })?;
        Ok(Self { unknown, longest: vocab.iter().map(|(_, text)| text.len()).max().unwrap_or(0) })
    }

    /// Appends the tokens of a text in which no whole-string tokens are looked for.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) {
        let mut word = String::new();
        for (c, _) in text.nfd() {
            if c.is_whitespace() {
                self.word(vocab, &mut word, out);
            } else if is(&DROPPED, c) {
            } else if is(&ALONE, c) {
                self.word(vocab, &mut word, out);
                word.push(c);
                self.word(vocab, &mut word, out);
            } else {
                word.extend(c.to_lowercase());
            }
        }
        self.word(vocab, &mut word, out);
    }

    /// Appends the tokens of one word and empties it.
    fn word(&self, vocab: &Vocab, word: &mut String, out: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        word.insert(0, SPACE_MARK);
        let (start, mut at) = (out.len(), 0);
        while at < word.len() {
            let mut end = word.len().min(at + self.longest);
            let id = loop {
                if end <= at {
                    break None;
                }
                if word.is_char_boundary(end)
                    && let Some(id) = vocab.plain_id(&word[at..end])
                {
                    break Some(id);
                }
                end -= 1;
            };
            let Some(id) = id else {
                out.truncate(start);
                out.push(self.unknown);
                break;
            };
            out.push(id);
            at = end;
        }
        word.clear();
    }
}

fn is(class: &Option<Regex>, c: char) -> bool {
    class.as_ref().is_some_and(|class| class.is_match(c.encode_utf8(&mut [0; 4])))
}
