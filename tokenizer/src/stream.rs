//! Tokens to text, a token at a time and in whole characters.

use super::{Special, Tokenizer, TokenizerError};

/// Turns ids into text as they come.
///
/// A token may end inside a character; its bytes wait for the rest. Bytes that
/// can no longer become a character are written as U+FFFD, so that all the
/// pieces end to end, [`StreamDecoder::finish`]'s included, are what
/// [`String::from_utf8_lossy`] makes of all the bytes.
///
/// Control tokens write nothing, unless made by
/// [`StreamDecoder::with_control_tokens`].
#[derive(Clone, Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    special: Special,
    /// Whether the next visible token is the first of a text whose leading space is not part of it.
    strip_space: bool,
    /// The start of a character: at most three bytes between calls.
    pending: Vec<u8>,
    out: String,
}

impl<'a> StreamDecoder<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer, strip_space: bool) -> Self {
        Self { tokenizer, special: Special::Off, strip_space, pending: Vec::new(), out: String::new() }
    }

    /// Writes control tokens by name.
    #[must_use]
    pub fn with_control_tokens(mut self) -> Self {
        self.special = Special::On;
        self
    }

    /// Takes a token and gives the text that is complete with it, often one word, sometimes nothing.
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`]; the decoder is as before.
    pub fn push(&mut self, id: u32) -> Result<&str, TokenizerError> {
        let mut bytes = self.tokenizer.piece_bytes(id, self.special)?;
        if self.strip_space && !bytes.is_empty() {
            self.strip_space = self.tokenizer.is_control(id);
            if !self.strip_space {
                bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            }
        }
        self.pending.extend_from_slice(bytes);
        self.out.clear();
        let mut used = 0;
        for chunk in self.pending.utf8_chunks() {
            let (valid, invalid) = (chunk.valid(), chunk.invalid());
            self.out.push_str(valid);
            used += valid.len();
            // At the end of the bytes, an incomplete character is not yet a wrong one.
            let at_end = used + invalid.len() == self.pending.len();
            if invalid.is_empty() || (at_end && is_incomplete(invalid)) {
                break;
            }
            self.out.push(char::REPLACEMENT_CHARACTER);
            used += invalid.len();
        }
        self.pending.drain(..used);
        Ok(&self.out)
    }

    /// Ends the text: U+FFFD if it ends inside a character, else nothing.
    pub fn finish(self) -> &'static str {
        if self.pending.is_empty() { "" } else { "\u{fffd}" }
    }
}

/// Whether more bytes could make this a character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}
