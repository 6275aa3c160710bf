//! What a model file says about its tokenizer, as plain data.

use super::TokenizerError;
use halfbyte_gguf::{Metadata, StringTable};

/// The key of [`TokenizerSpec::nfc`].
pub const NFC_KEY: &str = "halfbyte.tokenizer.nfc";

/// The key of [`TokenizerSpec::huggingface`].
pub const HUGGINGFACE_KEY: &str = "tokenizer.huggingface.json";

/// The key of [`TokenizerSpec::added_tokens`].
pub const ADDED_TOKENS_KEY: &str = "halfbyte.tokenizer.added_tokens";

/// A tokenizer as a GGUF file describes it, not yet checked.
///
/// Each field is one `tokenizer.ggml.*` key (`chat_template`: the key
/// `tokenizer.chat_template`). [`Tokenizer::new`](super::Tokenizer::new) checks
/// them and says which combinations it takes; a description can also be built
/// by hand, for tests or for a vocabulary from elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerSpec {
    /// `model`: the family, `gpt2` (byte-level BPE), `gemma4` (BPE of characters), `llama` (SentencePiece) or `bert`
    /// (WordPiece).
    pub model: String,
    /// `pre`: the pre-tokenizer of a `gpt2` or `gemma4` model. Absent: llama.cpp's default rule, with a
    /// [warning](super::Tokenizer::warnings).
    pub pre: Option<String>,
    /// `tokens`: the text of each id. Byte-level for `gpt2`, with U+2581 for a
    /// space for the others. An empty text marks an id that is never used.
    pub tokens: Vec<String>,
    /// `scores`: one for each token, needed by `llama` and ignored by `gpt2`.
    pub scores: Vec<f32>,
    /// `token_type`: one for each token, or none at all for all normal. 1 normal, 2 unknown,
    /// 3 control, 4 user-defined, 5 unused, 6 byte, 0 undefined (taken as normal).
    pub token_types: Vec<i32>,
    /// `merges`: for `gpt2`, pairs `left right` in order of rank.
    pub merges: Vec<String>,
    /// `bos_token_id`: the beginning of a text.
    pub bos_id: Option<u32>,
    /// `eos_token_id`: the end of a text.
    pub eos_id: Option<u32>,
    /// `eot_token_id`: the end of a turn.
    pub eot_id: Option<u32>,
    /// `eom_token_id`: the end of a message, before a tool's reply.
    pub eom_id: Option<u32>,
    /// More tokens that end a reply: `halfbyte.eog_token_ids`, which keeps the list that other formats have.
    pub eog_ids: Vec<u32>,
    /// `unknown_token_id`.
    pub unk_id: Option<u32>,
    /// `seperator_token_id`, as GGUF spells it: ends the prompts of models that ask for a separator.
    pub sep_id: Option<u32>,
    /// `padding_token_id`.
    pub pad_id: Option<u32>,
    /// `add_bos_token`. Absent: yes for `llama`, `bert`, and the rules of Llama 3 and Tekken, else no.
    pub add_bos: Option<bool>,
    /// `add_eos_token`. Absent: no.
    pub add_eos: Option<bool>,
    /// `add_sep_token`. Absent: yes for `bert` and RoBERTa's rule, else no.
    pub add_sep: Option<bool>,
    /// `add_space_prefix`, used by `llama`. Absent: yes.
    pub add_space_prefix: Option<bool>,
    /// Whether text is composed first (Unicode's NFC), used by `gpt2`: `halfbyte.tokenizer.nfc`, which keeps what
    /// `tokenizer.json` says of Qwen's models. GGUF has no key of its own for it. Absent: no.
    pub nfc: bool,
    /// `tokenizer.huggingface.json`: a whole `tokenizer.json`, which is run as it is, whatever the other tables say of cuts and
    /// merges. A BPE model in it may leave out `vocab` and `merges`, which are then `tokens` and `merges` of this description.
    pub huggingface: Option<String>,
    /// `halfbyte.tokenizer.added_tokens`: the list `added_tokens` of a `tokenizer.json`, as JSON. With it, tokens that are
    /// matched as a whole are found as the `tokenizers` crate finds them, instead of as llama.cpp does.
    pub added_tokens: Option<String>,
    /// The chat template, a Jinja source.
    pub chat_template: Option<String>,
}

impl TokenizerSpec {
    /// Reads the keys of a GGUF file.
    ///
    /// # Errors
    /// [`TokenizerError::Metadata`] for a missing `model` or `tokens`, missing
    /// `merges` of a `gpt2` or `gemma4` model, and any key of the wrong type.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let strings = |table: &StringTable| table.iter().map(str::to_owned).collect::<Vec<_>>();
        let model = metadata.str("tokenizer.ggml.model")?.to_owned();
        // Without its merges a BPE text would quietly fall apart into bytes.
        let merges = match model.as_str() {
            "gpt2" | "gemma4" => Some(metadata.strings("tokenizer.ggml.merges")?),
            _ => metadata.opt_strings("tokenizer.ggml.merges")?,
        };
        Ok(Self {
            model,
            pre: metadata.opt_str("tokenizer.ggml.pre")?.map(str::to_owned),
            tokens: strings(metadata.strings("tokenizer.ggml.tokens")?),
            scores: metadata.opt_f32s("tokenizer.ggml.scores")?.map(<[f32]>::to_vec).unwrap_or_default(),
            token_types: metadata
                .opt_i32s("tokenizer.ggml.token_type")?
                .map(|v| v.to_vec())
                .unwrap_or_default(),
            merges: merges.map(strings).unwrap_or_default(),
            bos_id: metadata.opt_u32("tokenizer.ggml.bos_token_id")?,
            eos_id: metadata.opt_u32("tokenizer.ggml.eos_token_id")?,
            eot_id: metadata.opt_u32("tokenizer.ggml.eot_token_id")?,
            eom_id: metadata.opt_u32("tokenizer.ggml.eom_token_id")?,
            eog_ids: eog_ids(metadata)?,
            unk_id: metadata.opt_u32("tokenizer.ggml.unknown_token_id")?,
            sep_id: metadata.opt_u32("tokenizer.ggml.seperator_token_id")?,
            pad_id: metadata.opt_u32("tokenizer.ggml.padding_token_id")?,
            add_bos: metadata.opt_bool("tokenizer.ggml.add_bos_token")?,
            add_eos: metadata.opt_bool("tokenizer.ggml.add_eos_token")?,
            add_sep: metadata.opt_bool("tokenizer.ggml.add_sep_token")?,
            add_space_prefix: metadata.opt_bool("tokenizer.ggml.add_space_prefix")?,
            nfc: metadata.opt_bool(NFC_KEY)?.unwrap_or(false),
            huggingface: metadata.opt_str(HUGGINGFACE_KEY)?.map(str::to_owned),
            added_tokens: metadata.opt_str(ADDED_TOKENS_KEY)?.map(str::to_owned),
            chat_template: metadata.opt_str("tokenizer.chat_template")?.map(str::to_owned),
        })
    }
}

/// The list, which GGUF can hold as any type of integers.
fn eog_ids(metadata: &Metadata) -> Result<Vec<u32>, TokenizerError> {
    let ids = metadata.opt_i32s("halfbyte.eog_token_ids")?.unwrap_or_default();
    // A negative one becomes one that no token has, and is refused with its key.
    Ok(ids.iter().map(|&id| u32::try_from(id).unwrap_or(u32::MAX)).collect())
}
