#![doc = include_str!("../README.md")]
//!
//! Text to token ids and back, from a model file's own vocabulary.
//!
//! Five families, named as GGUF files name them:
//!
//! - `gpt2`: byte-level BPE. The text is cut into pieces by one of the
//!   [pre-tokenizers](supported_pre), the bytes of each piece are merged by rank.
//! - `gemma4`: BPE of characters, without cuts but at line breaks.
//! - `bert`: WordPiece, for models that make embeddings.
//! - `huggingface`: a `tokenizer.json`, run by the `tokenizers` crate.
//! - `llama`: SentencePiece BPE. Neighbours are merged by score, characters
//!   without a token become byte tokens, and a text starts with a space.
//!
//! Ids equal llama.cpp's for the same file, with one difference that is meant:
//! [what a user types never becomes a control token](Special::Off), not even
//! where merges would lead to one.
//!
//! ```
//! use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};
//!
//! let tokens = ["<|end|>", "h", "i", "hi", "<", "|", "e", "n", "d", ">"];
//! let spec = TokenizerSpec {
//!     model: "gpt2".into(),
//!     pre: Some("gpt-2".into()),
//!     tokens: tokens.map(String::from).into(),
//!     token_types: vec![3, 1, 1, 1, 1, 1, 1, 1, 1, 1],
//!     merges: vec!["h i".into()],
//!     ..TokenizerSpec::default()
//! };
//! let tokenizer = Tokenizer::new(&spec)?;
//! assert_eq!(tokenizer.encode("hi<|end|>", Special::On)?, [3, 0]);
//! assert_eq!(tokenizer.encode("hi<|end|>", Special::Off)?, [3, 4, 5, 6, 7, 8, 5, 9]);
//! assert_eq!(tokenizer.decode(&[3, 0], Special::Off)?, "hi");
//! # Ok::<(), halfbyte_tokenizer::TokenizerError>(())
//! ```

mod added;
mod bpe;
mod bytes;
pub mod chat;
mod error;
mod huggingface;
mod pre;
mod spec;
mod special;
mod spm;
mod stream;
mod tokens;
mod vocab;
mod wordpiece;

use std::borrow::Cow;
use std::ops::Range;

use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use added::AddedTokens;
use bpe::Bpe;
use huggingface::HuggingFace;
use special::{Fragment, SpecialTokens};
use spm::SentencePiece;
use vocab::{Alphabet, Vocab};
use wordpiece::WordPiece;

pub use error::TokenizerError;
pub use pre::supported_pre;
pub use spec::{ADDED_TOKENS_KEY, HUGGINGFACE_KEY, NFC_KEY, TokenizerSpec};
pub use stream::StreamDecoder;
pub use vocab::TokenKind;

/// The tokenizer families that are understood.
pub const SUPPORTED_MODELS: [&str; 5] = ["gpt2", "gemma4", "llama", "bert", "huggingface"];

/// Whether the names of control tokens mean the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// They are text: for everything a user wrote. User-defined tokens, which
    /// are text with a token of its own, are still matched.
    Off,
    /// They are the tokens: for text the program or the model's template wrote.
    On,
}

/// A tokenizer, immutable and shareable between threads.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    /// In place of `special` for what comes from a `tokenizer.json`.
    added: Option<AddedTokens>,
    model: Model,
    add_bos: bool,
    add_eos: bool,
    add_sep: bool,
    warnings: Vec<String>,
    /// Whether text is composed before it is cut.
    nfc: bool,
    chat_template: Option<String>,
}

#[derive(Debug)]
enum Model {
    Bpe(Box<Bpe>),
    SentencePiece(Box<SentencePiece>),
    WordPiece(WordPiece),
    HuggingFace(Box<HuggingFace>),
}

impl Tokenizer {
    /// Checks a description and builds its tokenizer.
    ///
    /// # Errors
    /// Any [`TokenizerError`] but those about texts and ids: an unsupported
    /// family or pre-tokenizer, tables that do not fit each other, merges of tokens that are not there, ids out of range.
    pub fn new(spec: &TokenizerSpec) -> Result<Self, TokenizerError> {
        let alphabet = match spec.model.as_str() {
            "gpt2" => Alphabet::ByteLevel,
            "huggingface" => huggingface_alphabet(spec.huggingface.as_deref().unwrap_or_default()),
            "gemma4" | "llama" | "bert" => Alphabet::Plain,
            _ => return Err(TokenizerError::UnsupportedModel { got: spec.model.clone() }),
        };
        let mut vocab = Vocab::new(spec, alphabet)?;
        let mut warnings = std::mem::take(&mut vocab.warnings);
        let (bos, sep);
        let model = match (spec.model.as_str(), &spec.huggingface) {
            (_, Some(json)) => {
                (bos, sep) = (spec.model == "llama", false);
                Model::HuggingFace(Box::new(HuggingFace::new(json, spec, &vocab)?))
            }
            ("huggingface", None) => {
                return Err(TokenizerError::HuggingFace { message: format!("{HUGGINGFACE_KEY} is missing") });
            }
            ("llama", None) => {
                (bos, sep) = (true, false);
                Model::SentencePiece(Box::new(SentencePiece::new(spec, &vocab)?))
            }
            ("bert", None) => {
                (bos, sep) = (true, true);
                Model::WordPiece(WordPiece::new(spec, &vocab)?)
            }
            (model, None) => {
                // The family `gemma4` has one rule, which its files need not name.
                let name = spec.pre.as_deref().or((model == "gemma4").then_some("gemma4"));
                let rule = pre::rule(name)?;
                if name.is_none() {
                    warnings.push(
                        "the file does not name its pre-tokenizer (tokenizer.ggml.pre): llama.cpp's default rule is \
                         taken, which may cut words in other places than the model learnt"
                            .to_owned(),
                    );
                }
                (bos, sep) = (rule.add_bos, rule.add_sep);
                Model::Bpe(Box::new(Bpe::new(spec, &rule, &vocab, alphabet)?))
            }
        };
        let (add_bos, add_eos) = (spec.add_bos.unwrap_or(bos), spec.add_eos.unwrap_or(false));
        let add_sep = spec.add_sep.unwrap_or(sep);
        let ids = vocab.special;
        for (add, id, what) in
            [(add_bos, ids.bos, "bos"), (add_eos, ids.eos, "eos"), (add_sep, ids.sep, "seperator")]
        {
            if add && id.is_none() {
                return Err(TokenizerError::NoSpecialId { what });
            }
        }
        let special = SpecialTokens::new(&vocab);
        let added = match &spec.added_tokens {
            None => None,
            Some(json) => {
                let tokens: Vec<added::AddedToken> = serde_json::from_str(json)
                    .map_err(|error| TokenizerError::HuggingFace { message: error.to_string() })?;
                let n_vocab = vocab.len();
                if let Some(token) = tokens.iter().find(|token| token.id as usize >= n_vocab) {
                    return Err(TokenizerError::SpecialId { key: "added_tokens", got: token.id, n_vocab });
                }
                Some(AddedTokens::new(tokens)?)
            }
        };
        let (nfc, chat_template) = (spec.nfc, spec.chat_template.clone());
        Ok(Self { vocab, special, added, model, add_bos, add_eos, add_sep, warnings, nfc, chat_template })
    }

    /// The ids of a text, with no token added at either end.
    ///
    /// # Errors
    /// [`TokenizerError::Unencodable`], only from a `llama` vocabulary with neither
    /// byte tokens nor an unknown token.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        match special {
            Special::Off => self.encode_trusted(text, &[]),
            Special::On => self.encode_trusted(text, std::slice::from_ref(&(0..text.len()))),
        }
    }

    /// [`Tokenizer::encode`] for a whole prompt: with the beginning and end tokens that the
    /// model asks for, the first not doubled.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.with_bos(self.encode(text, special)?);
        if let (true, Some(eos)) = (self.add_eos, self.vocab.special.eos) {
            ids.push(eos);
        }
        if let (true, Some(sep)) = (self.add_sep, self.vocab.special.sep) {
            ids.push(sep);
        }
        Ok(ids)
    }

    /// The ids of a text of which only some parts may contain control tokens.
    ///
    /// The rest is text to the last character: a name that reaches out of the
    /// trusted parts is not matched. Where no control token stands between,
    /// trusted and other parts are tokenized together, as one text, so the ids
    /// are those of the whole text with [`Special::On`] as long as the other
    /// parts do not spell a control token.
    ///
    /// `trusted`: byte ranges, sorted and disjoint.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_trusted(&self, text: &str, trusted: &[Range<usize>]) -> Result<Vec<u32>, TokenizerError> {
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(trusted.len());
        for range in trusted.iter().filter(|r| !r.is_empty()) {
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => joined.push(range.clone()),
            }
        }
        let mut ids = Vec::new();
        if let Model::HuggingFace(model) = &self.model {
            model.encode(&self.vocab, text, &joined, &mut ids)?;
            return Ok(ids);
        }
        let fragments = match &self.added {
            None => self.special.partition(text, &joined),
            Some(added) => {
                let allowed =
                    |id, range: &Range<usize>| !self.is_control(id) || special::covered(range, &joined);
                let fragment = |(range, id): added::Span| id.map_or(Fragment::Text(range), Fragment::Token);
                added.cut(text, allowed).into_iter().map(fragment).collect()
            }
        };
        let mut after_token = true;
        for fragment in fragments {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(ref range) => {
                    let part = &text[range.clone()];
                    match &self.model {
                        // After control tokens were found: what is composed here is text.
                        Model::Bpe(model) if self.nfc => model.encode(&composed(part), &mut ids)?,
                        Model::Bpe(model) => model.encode(part, &mut ids)?,
                        Model::SentencePiece(model) => {
                            model.encode(&self.vocab, part, after_token, &mut ids)?;
                        }
                        // Returned from above.
                        Model::HuggingFace(_) => {}
                        Model::WordPiece(model) => model.encode(&self.vocab, part, &mut ids),
                    }
                }
            }
            after_token = matches!(fragment, Fragment::Token(_));
        }
        Ok(ids)
    }

    /// Puts the beginning token in front if the model asks for it and it is not there.
    pub(crate) fn with_bos(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let (true, Some(bos)) = (self.add_bos, self.vocab.special.bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// The text of ids: the start of a text, so a leading space that encoding added is taken off.
    ///
    /// Bytes that are not UTF-8 become U+FFFD. Control tokens are written by
    /// name with [`Special::On`] and left out with [`Special::Off`].
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`].
    pub fn decode(&self, ids: &[u32], special: Special) -> Result<String, TokenizerError> {
        let mut decoder = self.text_decoder();
        if special == Special::On {
            decoder = decoder.with_control_tokens();
        }
        let mut text = String::new();
        for &id in ids {
            text.push_str(decoder.push(id)?);
        }
        text.push_str(decoder.finish());
        Ok(text)
    }

    /// A decoder for a text from its start: takes off a leading space that encoding added.
    pub fn text_decoder(&self) -> StreamDecoder<'_> {
        let strip = match &self.model {
            Model::SentencePiece(model) => model.add_space_prefix(),
            // A space stands in front of every word.
            Model::WordPiece(_) => true,
            Model::HuggingFace(model) => model.strips_space(),
            Model::Bpe(_) => false,
        };
        StreamDecoder::new(self, strip)
    }

    /// A decoder for what follows other text, such as a continuation of a prompt: keeps every space.
    pub fn continuation_decoder(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self, false)
    }

    /// The bytes a token writes, which need not be whole characters.
    ///
    /// Control and unknown tokens write their name with [`Special::On`] and
    /// nothing with [`Special::Off`].
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`].
    pub fn piece_bytes(&self, id: u32, special: Special) -> Result<&[u8], TokenizerError> {
        let bytes = self.vocab.bytes(id);
        let bytes = bytes.ok_or(TokenizerError::IdOutOfRange { got: id, n_vocab: self.n_vocab() })?;
        Ok(if special == Special::Off && self.is_control(id) { &[] } else { bytes })
    }
}

/// How the tokens of a `tokenizer.json` stand for bytes.
fn huggingface_alphabet(json: &str) -> Alphabet {
    let file: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let is = |part: &serde_json::Value| part["type"] == "ByteLevel";
    let holds = |part: &serde_json::Value, list: &str| {
        is(part) || part[list].as_array().is_some_and(|all| all.iter().any(is))
    };
    if holds(&file["decoder"], "decoders") || holds(&file["pre_tokenizer"], "pretokenizers") {
        Alphabet::ByteLevel
    } else {
        Alphabet::Plain
    }
}

/// `text` in Unicode's form NFC, by the tables that the `tokenizers` crate has.
fn composed(text: &str) -> Cow<'_, str> {
    match is_nfc_quick(text.chars()) {
        IsNormalized::Yes => Cow::Borrowed(text),
        _ => Cow::Owned(text.nfc().map(|(c, _)| c).collect()),
    }
}
