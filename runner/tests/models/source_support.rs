//! Model directories made for a test.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// Tokens of the model's vocabulary: more than any tokenizer here has.
pub(crate) const N_VOCAB: usize = 600;

/// A small model's directory, gone when dropped.
pub(crate) struct Directory(tempfile::TempDir);

impl Directory {
    /// A llama of zeros.
    pub(crate) fn new() -> Self {
        Self::new_in(tempfile::tempdir().unwrap())
    }

    /// The same in a folder that is there.
    pub(crate) fn new_in(folder: tempfile::TempDir) -> Self {
        let directory = Self(folder);
        directory.write("config.json", config().to_string());
        directory.write("model.safetensors", safetensors(&tensors()));
        directory
    }

    pub(crate) fn with_tokenizer(tokenizer: &Value) -> Self {
        let directory = Self::new();
        directory.write("tokenizer.json", tokenizer.to_string());
        directory
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.file(name), content).unwrap();
    }
}

pub(crate) fn config() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": N_VOCAB, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"
    })
}

/// Name to type and shape.
pub(crate) type Tensors = BTreeMap<String, (&'static str, Vec<usize>)>;

pub(crate) fn tensors() -> Tensors {
    let mut all = Tensors::new();
    all.insert("model.embed_tokens.weight".into(), ("F16", vec![N_VOCAB, 32]));
    all.insert("model.norm.weight".into(), ("F16", vec![32]));
    for (name, shape) in [
        ("input_layernorm", vec![32]),
        ("post_attention_layernorm", vec![32]),
        ("self_attn.q_proj", vec![32, 32]),
        ("self_attn.k_proj", vec![16, 32]),
        ("self_attn.v_proj", vec![16, 32]),
        ("self_attn.o_proj", vec![32, 32]),
        ("mlp.gate_proj", vec![32, 32]),
        ("mlp.up_proj", vec![32, 32]),
        ("mlp.down_proj", vec![32, 32]),
    ] {
        all.insert(format!("model.layers.0.{name}.weight"), ("F16", shape));
    }
    all
}

/// A safetensors file of zeros.
pub(crate) fn safetensors(tensors: &Tensors) -> Vec<u8> {
    let mut header = Map::new();
    let mut at = 0;
    for (name, (ty, shape)) in tensors {
        let size = match *ty {
            "F64" | "I64" => 8,
            "F32" | "U32" => 4,
            "U8" => 1,
            _ => 2,
        };
        let end = at + size * shape.iter().product::<usize>();
        header.insert(name.clone(), json!({"dtype": ty, "shape": shape, "data_offsets": [at, end]}));
        at = end;
    }
    let mut file = with_header(&Value::Object(header).to_string());
    file.resize(file.len() + at, 0);
    file
}

/// A file with this header and no data.
pub(crate) fn with_header(header: &str) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file
}

/// Merges of the pairs that are most frequent in a text, one after the other.
fn learn(mut words: Vec<Vec<String>>, n: usize) -> Vec<(String, String)> {
    let mut merges = Vec::new();
    while merges.len() < n {
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for word in &words {
            for pair in word.windows(2) {
                *counts.entry((pair[0].clone(), pair[1].clone())).or_default() += 1;
            }
        }
        let best = counts.into_iter().max_by_key(|(pair, count)| (*count, pair.clone())).unwrap().0;
        for word in &mut words {
            let mut i = 0;
            while i + 1 < word.len() {
                if word[i] == best.0 && word[i + 1] == best.1 {
                    let right = word.remove(i + 1);
                    word[i].push_str(&right);
                }
                i += 1;
            }
        }
        merges.push(best);
    }
    merges
}

/// The beginning of the evaluation text.
fn text() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens/eval_text.txt");
    fs::read_to_string(path).unwrap().chars().take(2500).collect()
}

fn added(first: usize, names: &[&str]) -> Value {
    let token = |(i, name): (usize, &&str)| {
        json!({"id": first + i, "content": name, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
    };
    names.iter().enumerate().map(token).collect()
}

/// A byte-level `tokenizer.json` with a few hundred merges.
pub(crate) fn byte_level(pre_tokenizer: Value) -> Value {
    let visible = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut hidden = 256;
    let letters: Vec<String> = (0..256)
        .map(|b| {
            let code = if visible(b) { b } else { hidden };
            hidden += u32::from(!visible(b));
            char::from_u32(code).unwrap().to_string()
        })
        .collect();
    let text = text();
    let words = text.split_inclusive(' ').map(|word| {
        // The space stands before its word.
        let word = format!(" {}", word.trim_end());
        word.bytes().map(|b| letters[usize::from(b)].clone()).collect()
    });
    let merges = learn(words.collect(), 80);
    let mut vocab: Vec<String> = letters;
    for (left, right) in &merges {
        let token = format!("{left}{right}");
        if !vocab.contains(&token) {
            vocab.push(token);
        }
    }
    let n = vocab.len();
    file(vocab, &merges, added(n, &["<s>", "<end>", "<stop>"]), Value::Null, pre_tokenizer, false)
}

/// A SentencePiece-like `tokenizer.json`, as Llama 2 has.
pub(crate) fn sentence_piece() -> Value {
    let text = format!(" {}", text()).replace(' ', "\u{2581}").replace('\n', "");
    let words = text
        .split_inclusive(|c: char| !c.is_alphanumeric())
        .map(|word| word.chars().map(String::from).collect::<Vec<_>>());
    let merges = learn(words.collect(), 80);
    let mut vocab: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).into();
    vocab.extend((0..256).map(|b| format!("<0x{b:02X}>")));
    for (left, right) in &merges {
        for token in [left.clone(), right.clone(), format!("{left}{right}")] {
            if !vocab.contains(&token) {
                vocab.push(token);
            }
        }
    }
    // As the conversion of such models does: every way to make a token, in the order of the tokens.
    let mut pairs = Vec::new();
    for (left, right) in &merges {
        let token = format!("{left}{right}");
        for at in token.char_indices().skip(1).map(|(at, _)| at) {
            let pair = (token[..at].to_owned(), token[at..].to_owned());
            if vocab.contains(&pair.0) && vocab.contains(&pair.1) && !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
    }
    let merges = pairs;
    let normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u{2581}"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}]});
    let mut file = file(vocab, &merges, added(0, &["<unk>", "<s>", "</s>"]), normalizer, Value::Null, true);
    file["model"]["unk_token"] = "<unk>".into();
    file["model"]["fuse_unk"] = true.into();
    file["decoder"] = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    file
}

fn file(
    vocab: Vec<String>,
    merges: &[(String, String)],
    added: Value,
    normalizer: Value,
    pre: Value,
    byte_fallback: bool,
) -> Value {
    let vocab: Map<String, Value> = vocab.into_iter().enumerate().map(|(i, t)| (t, i.into())).collect();
    let merges: Vec<String> = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": byte_fallback, "ignore_merges": false,
            "vocab": vocab, "merges": merges}
    })
}
