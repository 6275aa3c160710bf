//! `tokenizer.json` and its companions as GGUF metadata, which [`halfbyte_tokenizer`] reads.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::Deserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::Error;
use super::json::{self, Object};
use super::limits::{MAX_CONFIG_BYTES, MAX_TOKENIZER_BYTES, MAX_TOKENIZER_CONFIG_BYTES};
use super::pieces::{Family, Merge, TokenizerJson};
use halfbyte_gguf::{Metadata, StringTable, quote};
use halfbyte_tokenizer::chat::MAX_TEMPLATE_BYTES;
use halfbyte_tokenizer::{ADDED_TOKENS_KEY, HUGGINGFACE_KEY, NFC_KEY};

/// GGUF's numbers of token types.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Adds the tokenizer in `directory`, if there is one, for a model of `n_vocab` tokens. The two objects are `config.json` and
/// its part about text.
///
/// # Errors
/// A tokenizer that is not one of those that are supported, or whose tables do not fit the model.
pub(super) fn set(
    directory: &Path,
    configs: [&Object; 2],
    n_vocab: usize,
    m: &mut Metadata,
) -> Result<(), Error> {
    let path = directory.join("tokenizer.json");
    let Some(bytes) = json::read(&path, MAX_TOKENIZER_BYTES)? else { return Ok(()) };
    let wrong = |error: serde_json::Error| Error::Json { path: path.clone(), message: error.to_string() };
    let tokenizer: TokenizerJson = serde_json::from_slice(&bytes).map_err(wrong)?;
    let whole = match tokenizer.is_bpe() {
        true => tokenizer.without_tables().to_string(),
        false => serde_json::from_slice::<Value>(&bytes).map_err(wrong)?.to_string(),
    };
    drop(bytes);
    let options = Object::read(&directory.join("tokenizer_config.json"), MAX_TOKENIZER_CONFIG_BYTES)?;
    let generation = Object::read(&directory.join("generation_config.json"), MAX_CONFIG_BYTES)?;
    let table = Table::new(&path, &tokenizer, n_vocab)?;
    let id = |name: &str| table.ids.get(name).copied();

    if tokenizer.is_bpe() {
        m.set("tokenizer.ggml.merges", merges(&tokenizer.model.merges));
    }
    match tokenizer.family() {
        Ok(Family::ByteLevel(pre)) => {
            m.set("tokenizer.ggml.model", "gpt2");
            m.set("tokenizer.ggml.pre", pre);
            m.set(ADDED_TOKENS_KEY, tokenizer.added().to_string());
            if tokenizer.is_composed() {
                m.set(NFC_KEY, true);
            }
        }
        Ok(Family::SentencePiece { add_space_prefix }) => {
            // The tables of this family are for other programs.
            m.set(HUGGINGFACE_KEY, whole);
            m.set("tokenizer.ggml.model", "llama");
            m.set("tokenizer.ggml.add_space_prefix", add_space_prefix);
            m.set("tokenizer.ggml.scores", scores(&tokenizer.model.merges, &table));
        }
        Err(_) => {
            m.set("tokenizer.ggml.model", "huggingface");
            m.set(HUGGINGFACE_KEY, whole);
        }
    }
    let unknown = tokenizer.model.unk_token.as_deref().and_then(id);
    let mut eog = generation.as_ref().map_or(Ok(Vec::new()), |o| o.ids("eos_token_id"))?;
    for config in configs {
        eog.extend(config.ids("eos_token_id")?);
    }
    let named = |field| named_token(options.as_ref(), field);
    let (bos, eos) = (named("bos_token")?, named("eos_token")?);
    let frame = tokenizer.frame(bos.as_deref(), eos.as_deref());
    let bos_id = bos.as_deref().and_then(id).or(configs[1].opt_u32("bos_token_id")?);
    let eos_id = eos.as_deref().and_then(id).or(eog.first().copied());
    let pad_id = named("pad_token")?.as_deref().and_then(id);
    for (key, id) in [
        ("bos_token_id", bos_id),
        ("eos_token_id", eos_id),
        ("unknown_token_id", unknown),
        ("padding_token_id", pad_id),
    ] {
        if let Some(id) = id {
            m.set(format!("tokenizer.ggml.{key}"), id);
        }
    }
    let flag = |field: &str| options.as_ref().map_or(Ok(None), |o| o.opt_bool(field));
    let [add_bos, add_eos] = match frame {
        Some(frame) => frame,
        None => [flag("add_bos_token")?, flag("add_eos_token")?].map(|flag| flag == Some(true)),
    };
    m.set("tokenizer.ggml.add_bos_token", add_bos);
    m.set("tokenizer.ggml.add_eos_token", add_eos);
    eog.sort_unstable();
    eog.dedup();
    if !eog.is_empty() {
        // These ids are checked with the others when the tokenizer is made.
        let eog: Vec<i32> = eog.into_iter().map(|id| i32::try_from(id).unwrap_or(i32::MAX)).collect();
        m.set("halfbyte.eog_token_ids", eog);
    }
    if let Some(template) = template(directory, options.as_ref())? {
        m.set("tokenizer.chat_template", template);
    }
    m.set("tokenizer.ggml.tokens", table.texts);
    m.set("tokenizer.ggml.token_type", table.types);
    Ok(())
}

/// The text and the type of each id.
struct Table {
    texts: StringTable,
    types: Vec<i32>,
    ids: HashMap<String, u32>,
}

impl Table {
    fn new(path: &Path, tokenizer: &TokenizerJson, n_vocab: usize) -> Result<Self, Error> {
        let mut texts: Vec<Option<&str>> = vec![None; n_vocab];
        let mut types = vec![UNUSED; n_vocab];
        let wrong = |field: &str, token: &str, expected: String| {
            let (path, got) = (path.to_owned(), quote(token));
            Err(Error::Field { path, field: field.to_owned(), got, expected })
        };
        let mut put = |field: &str, text, id: u32, ty| {
            let Some(place) = texts.get_mut(id as usize) else {
                return wrong(
                    field,
                    text,
                    format!("an id below {n_vocab}, the model's vocabulary, and not {id}"),
                );
            };
            match place {
                Some(other) if *other != text => {
                    return wrong(field, text, format!("another id than {id}, which {} has", quote(other)));
                }
                _ => *place = Some(text),
            }
            types[id as usize] = ty;
            Ok(())
        };
        let unknown = tokenizer.model.unk_token.as_deref();
        let is_byte = |text: &str| {
            tokenizer.model.byte_fallback
                && text.len() == 6
                && text
                    .strip_prefix("<0x")
                    .and_then(|t| t.strip_suffix('>'))
                    .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
        };
        for (text, id) in &tokenizer.model.vocab {
            let ty = match text {
                text if Some(text.as_str()) == unknown => UNKNOWN,
                text if is_byte(text) => BYTE,
                _ => NORMAL,
            };
            put("model.vocab", text.as_str(), *id, ty)?;
        }
        for token in &tokenizer.added_tokens {
            let ty = match token {
                token if Some(token.content.as_str()) == unknown => UNKNOWN,
                token if token.special => CONTROL,
                _ => USER_DEFINED,
            };
            put("added_tokens", token.content.as_str(), token.id, ty)?;
        }
        let mut ids = HashMap::with_capacity(n_vocab);
        let mut table = StringTable::with_capacity(n_vocab);
        for (id, text) in (0_u32..).zip(&texts) {
            match text {
                Some(text) => {
                    table.push(text);
                    // A text that occurs twice is found when the tokenizer is made.
                    ids.entry((*text).to_owned()).or_insert(id);
                }
                // The embedding has more rows than there are tokens, to make their number round.
                None => table.push(&format!("[PAD{id}]")),
            }
        }
        Ok(Self { texts: table, types, ids })
    }
}

/// Merges as GGUF has them.
fn merges(merges: &[Merge]) -> StringTable {
    let joined = |merge: &Merge| match merge {
        Merge::Joined(text) => text.clone(),
        Merge::Pair(left, right) => format!("{left} {right}"),
    };
    merges.iter().map(joined).collect()
}

/// Scores that lead to the same merges. The file's list is in the order of falling scores, so the score of a token is the
/// negative place of the first merge that makes it.
fn scores(merges: &[Merge], table: &Table) -> Vec<f32> {
    let mut scores = vec![-1e9_f32; table.types.len()];
    for (rank, merge) in merges.iter().enumerate().rev() {
        let token = match merge {
            Merge::Joined(text) => text.replacen(' ', "", 1),
            Merge::Pair(left, right) => format!("{left}{right}"),
        };
        if let Some(&id) = table.ids.get(&token) {
            scores[id as usize] = -(rank as f32);
        }
    }
    scores
}

/// A token's text in `tokenizer_config.json`: a string, or an object with `content`.
fn named_token(options: Option<&Object>, field: &str) -> Result<Option<String>, Error> {
    let Some(options) = options else { return Ok(None) };
    match options.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value) => match value["content"].as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(options.wrong(field, "a string or an object with a string `content`")),
        },
    }
}

/// The chat template: a file of its own, or in `tokenizer_config.json`, where of several the one called `default`.
fn template(directory: &Path, options: Option<&Object>) -> Result<Option<String>, Error> {
    let path = directory.join("chat_template.jinja");
    if let Some(bytes) = json::read(&path, MAX_TEMPLATE_BYTES as u64)? {
        return match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(Error::Json { path, message: error.to_string() }),
        };
    }
    let Some(options) = options else { return Ok(None) };
    let expected =
        "a string, or a list of objects with `name` and `template`, one of them called \"default\"";
    match options.get("chat_template") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value) => value
            .as_array()
            .and_then(|list| list.iter().find(|one| one["name"] == "default")?["template"].as_str())
            .map(|text| Some(text.to_owned()))
            .ok_or_else(|| options.wrong("chat_template", expected)),
    }
}

/// Reads an object of numbers as pairs. A Unigram model's list of texts with scores has the places as numbers.
pub(super) fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, u32)>, D::Error> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, u32)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of token ids")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some((text, _)) = seq.next_element::<(String, f64)>()? {
                pairs.push((text, u32::try_from(pairs.len()).unwrap_or(u32::MAX)));
            }
            Ok(pairs)
        }
    }
    deserializer.deserialize_any(Pairs)
}
