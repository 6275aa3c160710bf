//! The checked vocabulary: texts, kinds, raw bytes and the ids that mean something.

use std::collections::HashMap;
use std::sync::Arc;

use super::{TokenizerError, TokenizerSpec, bytes};

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for what the vocabulary cannot write.
    Unknown,
    /// Steers the model: never comes from a user's text and is not shown.
    Control,
    /// A fixed string that is always one token, in a user's text too.
    UserDefined,
    /// Reserved.
    Unused,
    /// One byte of a character that has no token.
    Byte,
}

/// How the texts of normal tokens stand for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// One character for each byte (GPT-2).
    ByteLevel,
    /// The text itself, U+2581 for a space (SentencePiece).
    Plain,
}

/// Texts that end a reply in some model family, whatever type the file gives them.
const END_OF_GENERATION: [&str; 23] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "[e~[",
    "<|fim_pad|>",
];

/// The remaining texts of the fill-in-the-middle tokens that end a reply: padding, the
/// next repository, the next file.
const END_OF_FILL: [&str; 10] = [
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// The ids a model names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpecialIds {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) unk: Option<u32>,
    pub(crate) pad: Option<u32>,
    pub(crate) sep: Option<u32>,
}

/// A vocabulary whose tables have been checked against each other.
#[derive(Debug)]
pub(crate) struct Vocab {
    texts: Vec<Arc<str>>,
    kinds: Vec<TokenKind>,
    ids: HashMap<Arc<str>, u32>,
    /// The bytes of all tokens end to end, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    end_of_generation: Vec<u32>,
    /// What is odd about the tables, in sentences for the user.
    pub(crate) warnings: Vec<String>,
    pub(crate) special: SpecialIds,
}

impl Vocab {
    /// Checks the tables of `spec` and computes each token's bytes.
    ///
    /// # Errors
    /// All but the pre-tokenizer, score and merge errors of [`TokenizerError`].
    pub(crate) fn new(spec: &TokenizerSpec, alphabet: Alphabet) -> Result<Self, TokenizerError> {
        let n = spec.tokens.len();
        // Ids travel as i32 in the file formats around us.
        let limit = i32::MAX as usize;
        if n == 0 || n > limit {
            return Err(TokenizerError::VocabularySize { got: n, limit });
        }
        let mut kinds = token_kinds(&spec.token_types, n)?;
        let texts: Vec<Arc<str>> = spec.tokens.iter().map(|t| Arc::from(t.as_str())).collect();
        let mut warnings = Vec::new();
        let ids = index(&texts, &mut warnings);
        if let Some(template) = &spec.chat_template {
            warnings.extend(retype(&texts, &mut kinds, template));
        }
        let (special, mut end_of_generation) = special_ids(spec, kinds[0])?;
        for &text in END_OF_GENERATION.iter().chain(&END_OF_FILL) {
            if let Some(&id) = ids.get(text) {
                end_of_generation.push(id);
                // Files exist that call these normal; then a user could type the end of a turn.
                kinds[id as usize] = TokenKind::Control;
            }
        }
        end_of_generation.sort_unstable();
        end_of_generation.dedup();

        let (mut all, mut ends) = (Vec::new(), Vec::with_capacity(n));
        for (id, text) in (0_u32..).zip(&texts) {
            match (kinds[id as usize], alphabet) {
                (TokenKind::Byte, _) => {
                    let byte = bytes::parse_byte_token(text);
                    let bad = || TokenizerError::ByteToken { id, got: text.to_string() };
                    all.push(byte.ok_or_else(bad)?);
                }
                (TokenKind::Normal | TokenKind::Unused, Alphabet::ByteLevel) => {
                    bytes::decode_into(text, &mut all);
                }
                (TokenKind::Normal | TokenKind::Unused, Alphabet::Plain) => {
                    all.extend_from_slice(text.replace(bytes::SPACE_MARK, " ").as_bytes());
                }
                (TokenKind::Unknown | TokenKind::Control | TokenKind::UserDefined, _) => {
                    all.extend_from_slice(text.as_bytes());
                }
            }
            ends.push(all.len());
        }
        Ok(Self { texts, kinds, ids, bytes: all, ends, end_of_generation, warnings, special })
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(|t| &**t)
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// The bytes that `id` writes.
    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let i = id as usize;
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.bytes[start..end])
    }

    /// The token with exactly this text.
    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The token with this text if a user's text may contain it.
    ///
    /// Control, unknown and byte tokens are out of reach: a user who types
    /// `</s>` or `<0x0A>` has typed those characters.
    pub(crate) fn plain_id(&self, text: &str) -> Option<u32> {
        self.id(text).filter(|&id| self.is_plain(id))
    }

    /// Whether a user's text may contain the token.
    pub(crate) fn is_plain(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused))
    }

    pub(crate) fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Ids and texts in order of id.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &str)> {
        self.texts.iter().enumerate().map(|(i, t)| (i as u32, &**t))
    }
}

fn token_kinds(types: &[i32], n: usize) -> Result<Vec<TokenKind>, TokenizerError> {
    if types.is_empty() {
        return Ok(vec![TokenKind::Normal; n]);
    }
    if types.len() != n {
        return Err(TokenizerError::TableLength { table: "token_type", expected: n, got: types.len() });
    }
    let kind = |(id, &ty): (usize, &i32)| {
        Ok(match ty {
            0 | 1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            got => return Err(TokenizerError::TokenType { id: id as u32, got }),
        })
    };
    types.iter().enumerate().map(kind).collect()
}

/// The id of each text, empty ones left out: they cannot occur in a text.
///
/// A text that stands twice has its first id.
fn index(texts: &[Arc<str>], warnings: &mut Vec<String>) -> HashMap<Arc<str>, u32> {
    let mut ids = HashMap::with_capacity(texts.len());
    let mut twice = Vec::new();
    for (id, text) in (0_u32..).zip(texts).filter(|(_, text)| !text.is_empty()) {
        let first = *ids.entry(Arc::clone(text)).or_insert(id);
        if first != id {
            twice.push((first, id));
        }
    }
    if let Some(&(first, id)) = twice.first() {
        let text = &texts[id as usize];
        let others = match twice.len() {
            1 => String::new(),
            n => format!(", and so do {} more", n - 1),
        };
        warnings.push(format!(
            "the token {text:?} stands twice in the vocabulary, as {first} and as {id}{others}; texts get the first id"
        ));
    }
    ids
}

/// Makes control tokens of those that the file calls normal although its template writes them: texts in `<|` and `|>`.
/// Returns a warning if there are any.
fn retype(texts: &[Arc<str>], kinds: &mut [TokenKind], template: &str) -> Option<String> {
    let is_name = |text: &str| {
        [("<|", "|>"), ("<\u{ff5c}", "\u{ff5c}>")].iter().any(|(start, end)| {
            text.len() > start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        })
    };
    let mut names = Vec::new();
    for (text, kind) in texts.iter().zip(kinds) {
        if *kind == TokenKind::Normal && is_name(text) && template.contains(&**text) {
            *kind = TokenKind::Control;
            names.push(format!("{text:?}"));
        }
    }
    (!names.is_empty()).then(|| {
        names.truncate(5);
        let names = names.join(", ");
        format!("the chat template writes {names}, which the file calls normal text; it is taken as a control token")
    })
}

/// The named ids, checked, and those among them that end a reply. `kind_of_0`: of the token with id 0.
fn special_ids(spec: &TokenizerSpec, kind_of_0: TokenKind) -> Result<(SpecialIds, Vec<u32>), TokenizerError> {
    let n_vocab = spec.tokens.len();
    let check = |key, id: Option<u32>| match id {
        Some(got) if got as usize >= n_vocab => Err(TokenizerError::SpecialId { key, got, n_vocab }),
        id => Ok(id),
    };
    // SentencePiece's own numbering, which old `llama` files rely on.
    let of = |model: &str, id: u32| (spec.model == model && (id as usize) < n_vocab).then_some(id);
    let default = |id| of("llama", id);
    // BERT's numbering.
    let bert = |id| of("bert", id);
    let special = SpecialIds {
        bos: check("bos_token_id", spec.bos_id)?.or(default(1)).or(bert(101)),
        eos: check("eos_token_id", spec.eos_id)?.or(default(2)),
        unk: check("unknown_token_id", spec.unk_id)?
            .or(default(0).filter(|_| kind_of_0 == TokenKind::Unknown))
            .or(bert(100)),
        pad: check("padding_token_id", spec.pad_id)?.or(bert(0)),
        sep: check("seperator_token_id", spec.sep_id)?.or(bert(102)),
    };
    let eot = check("eot_token_id", spec.eot_id)?;
    let eom = check("eom_token_id", spec.eom_id)?;
    let mut end_of_generation: Vec<u32> = [special.eos, eot, eom].into_iter().flatten().collect();
    for &id in &spec.eog_ids {
        end_of_generation.extend(check("eog_token_ids", Some(id))?);
    }
    Ok((special, end_of_generation))
}
