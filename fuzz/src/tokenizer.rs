//! Tokenizers: `n u16`, a text of n bytes, then the metadata of a GGUF file, or `tokenizer.json`, and behind a zero byte
//! each `tokenizer_config.json` and `generation_config.json`.

use halfbyte::source;
use halfbyte_gguf::{Gguf, GgufWriter, Metadata, StringTable};
use halfbyte_tokenizer::{Special, TokenKind, Tokenizer, TokenizerSpec};
use serde_json::json;

use crate::chat_support::spec;
use crate::source_support::{Directory, byte_level, sentence_piece};
use crate::{Seeds, take, take_u16};

thread_local! {
    static DIRECTORY: Directory = Directory::new_in(crate::checkpoint::in_memory());
}

/// A tokenizer that can be built gives ids of its own vocabulary, no control token for a user's text, and text for all
/// of its ids.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let (n, data) = take_u16(data);
    let (text, data) = take(data, n);
    let tokenizer = if data.starts_with(b"GGUF") {
        let Ok(gguf) = Gguf::from_vec(data.to_vec()) else { return };
        build(gguf.metadata())
    } else {
        let mut files = data.split(|&b| b == 0);
        DIRECTORY.with(|directory| {
            for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
                match files.next() {
                    Some(file) => directory.write(name, file),
                    None => _ = std::fs::remove_file(directory.file(name)),
                }
            }
            source::open(directory.path()).ok().and_then(|file| build(file.metadata()))
        })
    };
    if let Some(tokenizer) = tokenizer {
        use_it(&tokenizer, &String::from_utf8_lossy(text));
    }
}

fn build(metadata: &Metadata) -> Option<Tokenizer> {
    TokenizerSpec::from_metadata(metadata).and_then(|spec| Tokenizer::new(&spec)).ok()
}

fn use_it(tokenizer: &Tokenizer, text: &str) {
    for special in [Special::Off, Special::On] {
        let Ok(ids) = tokenizer.encode(text, special) else { continue };
        for &id in &ids {
            assert!((id as usize) < tokenizer.n_vocab());
            assert!(special == Special::On || tokenizer.kind(id) != Some(TokenKind::Control));
        }
        let whole = tokenizer.decode(&ids, Special::On).unwrap();
        let mut decoder = tokenizer.text_decoder().with_control_tokens();
        let mut streamed: String = ids.iter().map(|&id| decoder.push(id).unwrap().to_owned()).collect();
        streamed.push_str(decoder.finish());
        assert_eq!(streamed, whole);
    }
    _ = tokenizer.encode_prompt(text, Special::Off);
    for id in
        tokenizer.bos_id().into_iter().chain(tokenizer.eos_id()).chain(tokenizer.eog_ids().iter().copied())
    {
        assert!(tokenizer.token_text(id).is_some());
    }
}

/// Both families, as GGUF files and as directories have them.
pub fn seeds() -> Seeds {
    let text = "Größe don't <s>\n 123 e\u{301}\u{1F469}";
    let mut seeds = Seeds::new();
    let mut add = |body: &[u8]| {
        let mut input = (text.len() as u16).to_le_bytes().to_vec();
        input.extend(text.as_bytes());
        input.extend(body);
        seeds.push(input);
    };
    let byte_level = byte_level(json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}));
    let options = json!({"bos_token": {"content": "<s>"}, "eos_token": "<end>", "add_bos_token": true});
    let generation = json!({"eos_token_id": [3, 4]});
    for file in [byte_level, sentence_piece()] {
        add(file.to_string().as_bytes());
        add(format!("{file}\0{options}\0{generation}").as_bytes());
        let directory = Directory::with_tokenizer(&file);
        let source = source::open(directory.path()).unwrap();
        add(&GgufWriter::new(Vec::new(), source.metadata(), &[]).unwrap().finish().unwrap());
    }
    let spec = spec(true);
    let mut metadata = Metadata::new();
    metadata.set("tokenizer.ggml.model", spec.model);
    metadata.set("tokenizer.ggml.pre", "llama-bpe");
    metadata.set("tokenizer.ggml.tokens", spec.tokens.iter().map(String::as_str).collect::<StringTable>());
    metadata.set("tokenizer.ggml.token_type", spec.token_types);
    metadata.set("tokenizer.ggml.merges", ["a b", "h i"].into_iter().collect::<StringTable>());
    add(&GgufWriter::new(Vec::new(), &metadata, &[]).unwrap().finish().unwrap());
    seeds
}
