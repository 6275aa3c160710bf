//! What a tokenizer knows about its tokens.

use super::{TokenKind, Tokenizer};

impl Tokenizer {
    /// What is odd about the vocabulary and what was made of it, each in a sentence that begins in lower case: texts that
    /// stand twice, control tokens that the file calls normal, a pre-tokenizer that is not named.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The number of tokens; ids are below it.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a text.
    pub fn bos_id(&self) -> Option<u32> {
        self.vocab.special.bos
    }

    /// The token that ends a text.
    pub fn eos_id(&self) -> Option<u32> {
        self.vocab.special.eos
    }

    /// The token for what cannot be written.
    pub fn unk_id(&self) -> Option<u32> {
        self.vocab.special.unk
    }

    /// The padding token.
    pub fn pad_id(&self) -> Option<u32> {
        self.vocab.special.pad
    }

    /// Whether a prompt starts with [`Tokenizer::bos_id`].
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether a prompt ends with [`Tokenizer::eos_id`].
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether a reply ends with this token: the end of the text, of the turn or of the message.
    pub fn is_eog(&self, id: u32) -> bool {
        self.vocab.end_of_generation().binary_search(&id).is_ok()
    }

    /// The tokens that end a reply, in order.
    pub fn eog_ids(&self) -> &[u32] {
        self.vocab.end_of_generation()
    }

    /// Whether the token is a control or unknown token, which a user's text never contains by name.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(TokenKind::Control | TokenKind::Unknown))
    }

    /// The control and unknown tokens with their names, in order of id.
    pub fn control_tokens(&self) -> impl Iterator<Item = (u32, &str)> {
        self.vocab.iter().filter(|&(id, _)| self.is_control(id))
    }

    /// What a token is for, or `None` for an id out of range.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.kind(id)
    }

    /// A token's text as the vocabulary stores it, or `None` for an id out of range.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// The token stored with this text, of whatever kind.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocab.id(text)
    }

    /// The model's chat template, if it has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }
}
