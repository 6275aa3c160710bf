//! `tokenizer.json` as the `tokenizers` crate runs it, but for control tokens in text that is not trusted.
//!
//! The steps are the crate's own: added tokens, normalizer, pre-tokenizer, model. Two things are done here: finding the added
//! tokens, which know no trust there, and a check that the model itself writes no control token, as Unigram vocabularies would
//! for a text such as `</s>`.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Value, json};
use tokenizers::{
    Model as _, ModelWrapper, NormalizedString, Normalizer as _, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer as _, Split, Token, normalizer::Range as Part,
};

use super::added::{AddedToken, AddedTokens};
use super::special::covered;
use super::vocab::{TokenKind, Vocab};
use super::{TokenizerError, TokenizerSpec};

/// A tokenizer of the `tokenizers` crate.
#[derive(Debug)]
pub(crate) struct HuggingFace {
    tokenizer: tokenizers::Tokenizer,
    /// Looked for in the text as it is.
    raw: AddedTokens,
    /// Looked for in normalized text.
    normalized: AddedTokens,
    strips_space: bool,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

fn wrong(error: impl std::fmt::Display) -> TokenizerError {
    TokenizerError::HuggingFace { message: error.to_string() }
}

impl HuggingFace {
    /// Builds the tokenizer of `json`. A BPE model whose vocabulary is left out there has the tokens and merges of `spec`.
    ///
    /// # Errors
    /// [`TokenizerError::HuggingFace`].
    pub(crate) fn new(json: &str, spec: &TokenizerSpec, vocab: &Vocab) -> Result<Self, TokenizerError> {
        let mut file: Value = serde_json::from_str(json).map_err(wrong)?;
        if !file.is_object() {
            return Err(wrong("expected an object"));
        }
        let Fields { added_tokens } = Fields::deserialize(&file).map_err(wrong)?;
        let n_vocab = vocab.len();
        if let Some(token) = added_tokens.iter().find(|token| token.id as usize >= n_vocab) {
            return Err(TokenizerError::SpecialId { key: "added_tokens", got: token.id, n_vocab });
        }
        let model = &mut file["model"];
        if model["type"] == "BPE" && model["vocab"].is_null() {
            let all = vocab.iter().filter(|&(id, text)| vocab.id(text) == Some(id));
            let all = all.filter(|&(id, _)| vocab.kind(id) != Some(TokenKind::Unused));
            model["vocab"] = all.map(|(id, text)| (text.to_owned(), json!(id))).collect();
            model["merges"] = spec.merges.iter().map(|merge| json!(merge)).collect();
        }
        let strips_space = strips_space(&file["decoder"]);
        // Found here instead.
        file["added_tokens"] = json!([]);
        let tokenizer: tokenizers::Tokenizer = serde_json::from_value(file).map_err(wrong)?;
        let (mut normalized, raw): (Vec<_>, Vec<_>) =
            added_tokens.into_iter().partition(|token| token.normalized);
        if let Some(normalizer) = tokenizer.get_normalizer() {
            for token in &mut normalized {
                let mut text = NormalizedString::from(token.content.as_str());
                normalizer.normalize(&mut text).map_err(wrong)?;
                token.content = text.get().to_owned();
            }
        }
        Ok(Self {
            tokenizer,
            raw: AddedTokens::new(raw)?,
            normalized: AddedTokens::new(normalized)?,
            strips_space,
        })
    }

    /// Whether the first space of a text is not part of it.
    pub(crate) fn strips_space(&self) -> bool {
        self.strips_space
    }

    /// Appends the tokens of a text. `trusted`: where control tokens may be, as sorted ranges that do not touch.
    ///
    /// # Errors
    /// [`TokenizerError::HuggingFace`].
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        trusted: &[Range<usize>],
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, part| split(&self.raw, &part, vocab, trusted)).map_err(wrong)?;
        let normalizer = self.tokenizer.get_normalizer();
        let normalize = |_, mut part: NormalizedString| {
            if let Some(normalizer) = normalizer {
                normalizer.normalize(&mut part)?;
            }
            split(&self.normalized, &part, vocab, trusted)
        };
        pieces.split(normalize).map_err(wrong)?;
        if let Some(cutter) = self.tokenizer.get_pre_tokenizer() {
            cutter.pre_tokenize(&mut pieces).map_err(wrong)?;
        }
        let model = self.tokenizer.get_model();
        pieces.tokenize(|part| plain_tokens(model, part.get(), vocab)).map_err(wrong)?;
        for (_, _, tokens) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            out.extend(tokens.iter().flatten().map(|token| token.id));
        }
        Ok(())
    }
}

/// Cuts a part of the text at added tokens.
fn split(
    tokens: &AddedTokens,
    part: &NormalizedString,
    vocab: &Vocab,
    trusted: &[Range<usize>],
) -> tokenizers::Result<Vec<Split>> {
    let start = part.offsets_original().0;
    let allowed = |id: u32, range: &Range<usize>| {
        let needs_trust = matches!(vocab.kind(id), Some(TokenKind::Control | TokenKind::Unknown));
        let original = || part.convert_offsets(Part::Normalized(range.clone()));
        !needs_trust
            || original().is_some_and(|range| covered(&(start + range.start..start + range.end), trusted))
    };
    let spans = tokens.cut(part.get(), allowed).into_iter();
    let splits = spans.filter_map(|(range, id)| {
        let len = range.len();
        let slice = part.slice(Part::Normalized(range))?;
        Some(match id {
            None => Split::from(slice),
            Some(id) => {
                let text = slice.get().to_owned();
                Split::from((slice, Some(vec![Token::new(id, text, (0, len))])))
            }
        })
    });
    Ok(splits.collect())
}

/// The model's tokens for a piece of text, none of them a control token: where the model would write one, the piece is cut
/// inside it.
fn plain_tokens(model: &ModelWrapper, text: &str, vocab: &Vocab) -> tokenizers::Result<Vec<Token>> {
    let mut tokens = model.tokenize(text)?;
    let is_control = |token: &Token| vocab.kind(token.id) == Some(TokenKind::Control);
    let Some(at) = tokens.iter().position(is_control) else { return Ok(tokens) };
    let first =
        text.get(tokens[at].offsets.0..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
    let cut = tokens[at].offsets.0 + first;
    match text.split_at_checked(cut) {
        Some((left, right)) if !right.is_empty() => {
            let mut all = plain_tokens(model, left, vocab)?;
            all.extend(plain_tokens(model, right, vocab)?);
            Ok(all)
        }
        // A control token of one character, which no text may have.
        _ => {
            tokens.remove(at);
            Ok(tokens)
        }
    }
}

/// Whether a decoder takes a space off the start of a text.
fn strips_space(decoder: &Value) -> bool {
    match decoder["type"].as_str() {
        Some("Sequence") => decoder["decoders"].as_array().is_some_and(|all| all.iter().any(strips_space)),
        Some("Strip") => decoder["content"] == " " && decoder["start"] == 1,
        Some("Metaspace") => {
            decoder["prepend_scheme"].as_str().map_or(decoder["add_prefix_space"] != false, |s| s != "never")
        }
        Some("WordPiece") => true,
        _ => false,
    }
}
