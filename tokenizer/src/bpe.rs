//! BPE: the merges of the `tokenizers` crate behind the pre-tokenizers of [`super::pre`].
//!
//! Two alphabets: bytes (`gpt2`), and characters with U+2581 for a space (`gemma4`), where a character without a token is
//! written as byte tokens.

use std::collections::HashSet;

use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Vocab as BpeVocab};

use super::pre::{PreTokenizer, Rule};
use super::vocab::{Alphabet, TokenKind, Vocab};
use super::{TokenizerError, TokenizerSpec, bytes};

/// A BPE model.
#[derive(Debug)]
pub(crate) struct Bpe {
    pre: PreTokenizer,
    model: BPE,
    alphabet: Alphabet,
    /// Whether each byte's character is a token. A vocabulary learnt from text
    /// need not have them all: SmolLM2 lacks eight that UTF-8 text can contain.
    has_byte: [bool; 256],
    /// Whether a piece that is a token is that token, whatever the merges say.
    whole_pieces: bool,
}

impl Bpe {
    /// Checks the merges and builds the model.
    ///
    /// Only tokens that a user's text may contain take part. A merge into
    /// another kind of token is left out: it could never apply.
    ///
    /// # Errors
    /// [`TokenizerError::MergeSyntax`], [`TokenizerError::MergeToken`].
    pub(crate) fn new(
        spec: &TokenizerSpec,
        rule: &Rule,
        vocab: &Vocab,
        alphabet: Alphabet,
    ) -> Result<Self, TokenizerError> {
        let pre = PreTokenizer::new(rule)?;
        let whole_pieces = rule.whole_pieces;
        let mut merges = Vec::with_capacity(spec.merges.len());
        let mut seen = HashSet::with_capacity(spec.merges.len());
        for (index, merge) in spec.merges.iter().enumerate() {
            let (left, right) = split_merge(merge)
                .ok_or_else(|| TokenizerError::MergeSyntax { index, got: merge.clone() })?;
            let mut plain = true;
            for token in [left, right, &format!("{left}{right}")] {
                let missing = || TokenizerError::MergeToken { index, token: token.to_owned() };
                plain &= vocab.is_plain(vocab.id(token).ok_or_else(missing)?);
            }
            // The first rank of a pair counts.
            if plain && seen.insert((left, right)) {
                merges.push((left.to_owned(), right.to_owned()));
            }
        }
        let falls_back = alphabet == Alphabet::Plain;
        // The byte tokens are names here, which no merge leads to.
        let is_used = |id| vocab.is_plain(id) || (falls_back && vocab.kind(id) == Some(TokenKind::Byte));
        let plain: BpeVocab = vocab
            .iter()
            // Of a text that stands twice, the first id is the one that texts get.
            .filter(|&(id, text)| vocab.id(text) == Some(id) && is_used(id))
            .map(|(id, text)| (text.to_owned(), id))
            .collect();
        let has_byte = std::array::from_fn(|b| {
            let mut buffer = [0; 4];
            plain.contains_key(&*bytes::encode(b as u8).encode_utf8(&mut buffer))
        });
        let model = BPE::builder()
            .vocab_and_merges(plain, merges)
            .ignore_merges(whole_pieces)
            .byte_fallback(falls_back)
            .build()
            .map_err(|e| TokenizerError::Bpe { message: e.to_string() })?;
        Ok(Self { pre, model, alphabet, has_byte, whole_pieces })
    }

    /// Appends the tokens of a text in which no whole-string tokens are looked for.
    ///
    /// A byte without a token is left out, and what is on its two sides is not
    /// merged.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if self.alphabet == Alphabet::Plain {
            let marked = text.replace(' ', bytes::SPACE_MARK.encode_utf8(&mut [0; 4]));
            return self.pre.split(&marked, |piece| self.merge(piece, out));
        }
        let mut chars = String::new();
        self.pre.split(text, |piece| {
            let complete = piece.bytes().all(|b| self.has_byte[usize::from(b)]);
            if complete || self.whole_pieces {
                chars.clear();
                chars.extend(piece.bytes().map(bytes::encode));
                if complete || self.model.token_to_id(&chars).is_some() {
                    return self.merge(&chars, out);
                }
            }
            for run in piece.as_bytes().split(|&b| !self.has_byte[usize::from(b)]) {
                chars.clear();
                chars.extend(run.iter().copied().map(bytes::encode));
                self.merge(&chars, out)?;
            }
            Ok(())
        })
    }

    fn merge(&self, chars: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let tokens =
            self.model.tokenize(chars).map_err(|e| TokenizerError::Bpe { message: e.to_string() })?;
        out.extend(tokens.iter().map(|t| t.id));
        Ok(())
    }
}

/// The two sides of a merge. The left one is not empty and may itself start with a space.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let (left, right) = merge[first..].split_once(' ')?;
    let left = &merge[..first + left.len()];
    (!right.is_empty()).then_some((left, right))
}
