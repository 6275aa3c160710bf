//! Recognises which of GGUF's tokenizers a `tokenizer.json` describes.
//!
//! The file lists the steps of a tokenizer: normalizer, pre-tokenizer, model. A file is recognised as a whole. A byte-level one
//! that is recognised is cut by `halfbyte_tokenizer`'s own rules, which take linear time: the `tokenizers` crate's engine for
//! the same expressions gives up on long runs of spaces. All others are run by the `tokenizers` crate as they are.

use serde::Deserialize;
use serde_json::{Value, json};

/// The parts of `tokenizer.json` that decide about ids.
#[derive(Debug, Deserialize)]
pub(super) struct TokenizerJson {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    pub(super) normalizer: Value,
    #[serde(default)]
    pub(super) pre_tokenizer: Value,
    #[serde(default)]
    pub(super) decoder: Value,
    #[serde(default)]
    pub(super) post_processor: Value,
    pub(super) model: BpeModel,
}

/// A token that is matched as a whole.
#[derive(Debug, Deserialize)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    pub(super) special: bool,
    #[serde(flatten)]
    pub(super) flags: serde_json::Map<String, Value>,
}

/// The model of a BPE tokenizer.
#[derive(Debug, Deserialize)]
pub(super) struct BpeModel {
    #[serde(rename = "type", default)]
    pub(super) kind: Option<String>,
    /// Kept as pairs in file order: a map would hide what occurs twice.
    #[serde(default, deserialize_with = "super::tokenizer::pairs")]
    pub(super) vocab: Vec<(String, u32)>,
    #[serde(default)]
    pub(super) merges: Vec<Merge>,
    #[serde(default)]
    pub(super) unk_token: Option<String>,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) fuse_unk: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    #[serde(default)]
    pub(super) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(super) end_of_word_suffix: Option<String>,
}

/// A merge as old and as new files write it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Merge {
    Joined(String),
    Pair(String, String),
}

/// A family of tokenizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// With GGUF's name of the pre-tokenizer.
    ByteLevel(&'static str),
    SentencePiece {
        add_space_prefix: bool,
    },
}

const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

impl TokenizerJson {
    /// The added tokens with their flags, as the file has them.
    pub(super) fn added(&self) -> Value {
        let token = |token: &AddedToken| {
            let mut fields = token.flags.clone();
            fields.insert("id".to_owned(), token.id.into());
            fields.insert("content".to_owned(), token.content.clone().into());
            fields.insert("special".to_owned(), token.special.into());
            Value::Object(fields)
        };
        self.added_tokens.iter().map(token).collect()
    }

    /// Whether the model is BPE, whose vocabulary and merges GGUF has tables for.
    pub(super) fn is_bpe(&self) -> bool {
        self.model.kind.as_deref().is_none_or(|kind| kind == "BPE")
    }

    /// The file without the vocabulary and the merges of its BPE model.
    pub(super) fn without_tables(&self) -> Value {
        let model = &self.model;
        json!({
            "version": "1.0",
            "added_tokens": self.added(),
            "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer,
            "decoder": self.decoder,
            "model": {
                "type": "BPE",
                "unk_token": model.unk_token,
                "byte_fallback": model.byte_fallback,
                "fuse_unk": model.fuse_unk,
                "ignore_merges": model.ignore_merges,
                "continuing_subword_prefix": model.continuing_subword_prefix,
                "end_of_word_suffix": model.end_of_word_suffix,
            },
        })
    }

    /// The family, or the name of the part that GGUF has no family for.
    pub(super) fn family(&self) -> Result<Family, &'static str> {
        let model = &self.model;
        if model.kind.as_deref().is_some_and(|kind| kind != "BPE") {
            return Err("model.type");
        }
        for (affix, name) in [
            (&model.continuing_subword_prefix, "model.continuing_subword_prefix"),
            (&model.end_of_word_suffix, "model.end_of_word_suffix"),
        ] {
            if affix.as_deref().is_some_and(|affix| !affix.is_empty()) {
                return Err(name);
            }
        }
        if model.byte_fallback {
            let add_space_prefix = self.sentence_piece()?;
            return Ok(Family::SentencePiece { add_space_prefix });
        }
        if !(self.normalizer.is_null() || self.is_composed()) {
            return Err("normalizer");
        }
        let pre = byte_level(&self.pre_tokenizer).ok_or("pre_tokenizer")?;
        if model.ignore_merges != (pre == "llama-bpe") {
            return Err("model.ignore_merges");
        }
        Ok(Family::ByteLevel(pre))
    }

    /// Whether the model takes text in Unicode's form NFC.
    pub(super) fn is_composed(&self) -> bool {
        self.normalizer["type"] == "NFC"
    }

    /// Whether texts get a space in front: from the normalizer in old files, the pre-tokenizer in new ones.
    fn sentence_piece(&self) -> Result<bool, &'static str> {
        let (normalizer, pre) = (&self.normalizer, &self.pre_tokenizer);
        let replaces =
            |v: &Value| v["type"] == "Replace" && v["pattern"]["String"] == " " && v["content"] == "\u{2581}";
        if normalizer.is_null() && pre["type"] == "Metaspace" && pre["replacement"] == "\u{2581}" {
            return match (pre["prepend_scheme"].as_str(), pre["add_prefix_space"].as_bool()) {
                (Some("always" | "first"), _) | (None, Some(true)) => Ok(true),
                (Some("never"), _) | (None, Some(false)) => Ok(false),
                _ => Err("pre_tokenizer"),
            };
        }
        if !pre.is_null() {
            return Err("pre_tokenizer");
        }
        if replaces(normalizer) {
            return Ok(false);
        }
        match normalizer["normalizers"].as_array().map(Vec::as_slice) {
            Some([replace]) if replaces(replace) => Ok(false),
            Some([prepend, replace])
                if prepend["type"] == "Prepend" && prepend["prepend"] == "\u{2581}" && replaces(replace) =>
            {
                Ok(true)
            }
            _ => Err("normalizer"),
        }
    }

    /// Whether the text is put between the tokens called `bos` and `eos`, where the file says.
    pub(super) fn frame(&self, bos: Option<&str>, eos: Option<&str>) -> Option<[bool; 2]> {
        let processors = match self.post_processor["processors"].as_array() {
            Some(list) => list.as_slice(),
            None => std::slice::from_ref(&self.post_processor),
        };
        let template = processors.iter().find(|p| p["type"] == "TemplateProcessing")?;
        let single = template["single"].as_array()?;
        let is = |piece: Option<&Value>, token: Option<&str>| {
            token.is_some() && piece.and_then(|p| p["SpecialToken"]["id"].as_str()) == token
        };
        Some([is(single.first(), bos), is(single.last(), eos)])
    }
}

/// GGUF's name of a byte-level pre-tokenizer.
fn byte_level(pre: &Value) -> Option<&'static str> {
    let bytes = |v: &Value, regex: bool| {
        v["type"] == "ByteLevel"
            && v["add_prefix_space"] == false
            && v["use_regex"].as_bool().unwrap_or(true) == regex
    };
    let list = match pre["pretokenizers"].as_array() {
        Some(list) => list.as_slice(),
        None => std::slice::from_ref(pre),
    };
    match list {
        [only] if bytes(only, true) => Some("gpt-2"),
        [digits, last]
            if digits["type"] == "Digits" && digits["individual_digits"] == true && bytes(last, true) =>
        {
            Some("smollm")
        }
        [split, last]
            if split["type"] == "Split"
                && split["behavior"] == "Isolated"
                && split["invert"] != true
                && bytes(last, false) =>
        {
            match split["pattern"]["Regex"].as_str()? {
                LLAMA3 => Some("llama-bpe"),
                QWEN2 => Some("qwen2"),
                _ => None,
            }
        }
        _ => None,
    }
}
