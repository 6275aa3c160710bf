//! `tokenizer.json` files through our loader, against the `tokenizers` crate reading the same files.

use crate::source_support::{Directory, byte_level, config, sentence_piece};
use halfbyte::source;
use halfbyte_gguf::{Gguf, GgufWriter};
use halfbyte_tokenizer::chat::{ChatOptions, ChatTemplate, Message};
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};
use serde_json::{Value, json};

const TEXTS: [&str; 8] = [
    "The hacker said: it's 1234567 bytes, isn't it?",
    "  leading, trailing   \n\n and \t tabs ",
    "Größe, naïve, Ελληνικά, 日本語, 👩‍👩‍👧",
    "don't DON'T we'll WE'LL 's",
    "a\r\n\r\nb!!!\n\n",
    "x = {\"key\": [1, 2.50, -3]}",
    "",
    " ",
];

/// Our tokenizer of a directory's files.
fn ours(directory: &Directory) -> Tokenizer {
    let file = source::open(directory.path()).unwrap();
    Tokenizer::new(&TokenizerSpec::from_metadata(file.metadata()).unwrap()).unwrap()
}

#[track_caller]
fn same_ids(tokenizer_json: &Value) {
    let directory = Directory::with_tokenizer(tokenizer_json);
    let ours = ours(&directory);
    let theirs = tokenizers::Tokenizer::from_bytes(tokenizer_json.to_string()).unwrap();
    for text in TEXTS {
        let want = theirs.encode(text, false).unwrap().get_ids().to_vec();
        assert_eq!(ours.encode(text, Special::Off).unwrap(), want, "{text:?}");
        assert_eq!(ours.decode(&want, Special::Off).unwrap(), text);
    }
}

#[test]
fn byte_level_families() {
    let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let qwen2 = llama3.replace(r"\p{N}{1,3}", r"\p{N}");
    let last = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
    let split = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    let sequence =
        |first: Value, regex: bool| json!({"type": "Sequence", "pretokenizers": [first, last(regex)]});
    let digits = json!({"type": "Digits", "individual_digits": true});
    for (pre, ignore_merges) in [
        (last(true), false),
        (sequence(digits, true), false),
        (sequence(split(llama3), false), true),
        (sequence(split(&qwen2), false), false),
    ] {
        let mut file = byte_level(pre);
        file["model"]["ignore_merges"] = ignore_merges.into();
        same_ids(&file);
        // Newer files have merges as pairs.
        for merge in file["model"]["merges"].as_array_mut().unwrap() {
            let (left, right) = merge.as_str().unwrap().split_once(' ').unwrap();
            *merge = json!([left, right]);
        }
        same_ids(&file);
    }
}

/// The same letters written in two ways.
#[test]
fn text_is_composed_where_the_file_says_so() {
    let mut file = byte_level(
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
    );
    let (composed, decomposed) =
        ("<s>é ç Ö 각 K;", "<s>e\u{301} c\u{327} O\u{308} \u{1100}\u{1161}\u{11a8} \u{212a}\u{37e}");
    let plain = ours(&Directory::with_tokenizer(&file));
    let ids = |tokenizer: &Tokenizer, text: &str| tokenizer.encode(text, Special::On).unwrap();
    assert_ne!(ids(&plain, composed), ids(&plain, decomposed));

    file["normalizer"] = json!({"type": "NFC"});
    same_ids(&file);
    let directory = Directory::with_tokenizer(&file);
    let tokenizer = ours(&directory);
    assert_eq!(ids(&tokenizer, composed), ids(&plain, composed));
    assert_eq!(ids(&tokenizer, decomposed), ids(&plain, composed));
    let theirs = tokenizers::Tokenizer::from_bytes(file.to_string()).unwrap();
    for text in [composed, decomposed, "a\u{301}\u{323}\u{301} \u{1f62}\u{300}", "\u{301}"] {
        let want = theirs.encode(text, false).unwrap().get_ids().to_vec();
        assert_eq!(ids(&tokenizer, text), want, "{text:?}");
    }
    // A GGUF file that is made of the directory says it, too.
    let source = source::open(directory.path()).unwrap();
    let bytes = GgufWriter::new(Vec::new(), source.metadata(), &[]).unwrap().finish().unwrap();
    let gguf = Gguf::from_vec(bytes).unwrap();
    let again = Tokenizer::new(&TokenizerSpec::from_metadata(gguf.metadata()).unwrap()).unwrap();
    assert_eq!(ids(&again, decomposed), ids(&plain, composed));
    // No character becomes part of a control token by being composed.
    file["added_tokens"][0]["content"] = "K<".into();
    let tokenizer = ours(&Directory::with_tokenizer(&file));
    let control = |text: &str| ids(&tokenizer, text).iter().any(|&id| tokenizer.is_control(id));
    assert!(control("K<") && !control("\u{212a}<"));
}

#[test]
fn sentence_piece_family() {
    same_ids(&sentence_piece());
}

/// Files that GGUF has no family for, and added tokens with flags, in directories and in GGUF files that are made of them.
#[test]
fn tokenizers_run_as_they_are() {
    let mut lowered = byte_level(
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
    );
    lowered["normalizer"] = json!({"type": "Lowercase"});
    let mut spaced = byte_level(
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
    );
    spaced["model"]["ignore_merges"] = true.into();
    let mut first = sentence_piece();
    first["normalizer"] = Value::Null;
    first["pre_tokenizer"] =
        json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first", "split": false});
    let mut flags = byte_level(
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
    );
    flags["added_tokens"][0]["rstrip"] = true.into();
    flags["added_tokens"][1]["lstrip"] = true.into();
    for file in [lowered, spaced, first, flags] {
        let directory = Directory::with_tokenizer(&file);
        let source = source::open(directory.path()).unwrap();
        let bytes = GgufWriter::new(Vec::new(), source.metadata(), &[]).unwrap().finish().unwrap();
        let gguf = Gguf::from_vec(bytes).unwrap();
        let again = Tokenizer::new(&TokenizerSpec::from_metadata(gguf.metadata()).unwrap()).unwrap();
        let theirs = tokenizers::Tokenizer::from_bytes(file.to_string()).unwrap();
        let token = file["added_tokens"][0]["content"].as_str().unwrap();
        let other = file["added_tokens"][1]["content"].as_str().unwrap();
        let with_tokens = format!("{token}\n\n the  {other}The {token} {other}");
        for text in TEXTS.into_iter().chain([with_tokens.as_str()]) {
            let want = theirs.encode(text, false).unwrap().get_ids().to_vec();
            assert_eq!(ours(&directory).encode(text, Special::On).unwrap(), want, "{text:?}");
            assert_eq!(again.encode(text, Special::On).unwrap(), want, "{text:?}");
        }
        let typed = ours(&directory).encode(&with_tokens, Special::Off).unwrap();
        assert!(!typed.iter().any(|&id| again.is_control(id)), "{typed:?}");
    }
}

/// Where the base of the rotations may stand, and what a directory called `mistral` is.
#[test]
fn rotations_are_read_wherever_they_stand() {
    for (fields, base) in [
        (json!({"rope_theta": 5e5}), 5e5_f32),
        (json!({"rope_theta": null, "rope_scaling": {"rope_type": "default", "rope_theta": 1e6}}), 1e6),
        (json!({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 2e6}}), 2e6),
        (json!({"rope_theta": null, "rope_parameters": {"full_attention": {"rope_theta": 3e6}}}), 3e6),
        (json!({"rope_theta": null}), 1e4),
        (json!({"model_type": "mistral", "sliding_window": null, "rope_theta": 4e6}), 4e6),
    ] {
        let directory = Directory::new();
        let mut changed = config();
        for (name, value) in fields.as_object().unwrap() {
            changed[name] = value.clone();
        }
        directory.write("config.json", changed.to_string());
        let source = source::open(directory.path()).unwrap();
        assert_eq!(source.metadata().f32("llama.rope.freq_base").unwrap(), base, "{fields}");
        assert_eq!(source.metadata().str("general.architecture").unwrap(), "llama");
    }
}

#[test]
fn special_tokens_templates_and_ends() {
    let mut file = byte_level(
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
    );
    file["post_processor"] = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {}});
    let directory = Directory::with_tokenizer(&file);
    directory.write(
        "tokenizer_config.json",
        json!({
        "bos_token": {"content": "<s>"}, "eos_token": "<end>",
        "chat_template": [{"name": "tool_use", "template": "no"},
            {"name": "default", "template": "{% for m in messages %}<s>{{ m.content }}<end>{% endfor %}"}]})
        .to_string(),
    );
    let id = |text: &str| ours(&directory).token_id(text).unwrap();
    directory
        .write("generation_config.json", json!({"eos_token_id": [id("<end>"), id("<stop>")]}).to_string());
    let tokenizer = ours(&directory);
    assert!(tokenizer.add_bos() && !tokenizer.add_eos());
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(id("<s>")), Some(id("<end>"))));
    let mut ends = [id("<end>"), id("<stop>")];
    ends.sort_unstable();
    assert_eq!(tokenizer.eog_ids(), ends);
    assert!(tokenizer.is_control(id("<stop>")));
    let options = ChatOptions::default();
    let messages = [Message::user("hi<end>")];
    let prompt = ChatTemplate::new(&tokenizer).unwrap().prompt(&tokenizer, &messages, &options).unwrap();
    assert_eq!(prompt.text, "<s>hi<end><end>");
    assert_eq!(prompt.ids.iter().filter(|&&i| i == id("<end>")).count(), 1);
    // A file of its own comes before what the configuration says.
    directory.write("chat_template.jinja", "{{ messages[0].content }}!");
    let tokenizer = ours(&directory);
    assert_eq!(tokenizer.chat_template(), Some("{{ messages[0].content }}!"));
}
