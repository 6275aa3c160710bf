//! `tokenizer.json` files against the `tokenizers` crate itself.
#![allow(clippy::unwrap_used, reason = "an error or a missing value is what fails a test")]

use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};
use serde_json::{Value, json};

/// A BPE vocabulary of characters with three control tokens.
fn file(pre_tokenizer: Value) -> Value {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).into();
    tokens.extend((0..256).map(|b| format!("<0x{b:02X}>")));
    tokens.extend("abcdefghijklmnopqrstuvwxyz<>/|▁!".chars().map(String::from));
    let merges =
        ["h e", "l l", "he ll", "hell o", "▁ hello", "u s", "us e", "use r", "▁ user", "▁ ▁", "< s", "</ s"];
    tokens.extend(
        ["he", "ll", "hell", "hello", "▁hello", "us", "use", "user", "▁user", "▁▁", "<s", "</", "</s"]
            .map(String::from),
    );
    let vocab: serde_json::Map<String, Value> =
        tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
    let added = |id: usize| {
        json!({"id": id, "content": tokens[id], "special": true, "normalized": false,
        "single_word": false, "lstrip": false, "rstrip": false})
    };
    json!({"version": "1.0", "added_tokens": [added(0), added(1), added(2)], "normalizer": null,
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null, "truncation": null, "padding": null,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>", "fuse_unk": true,
            "byte_fallback": true, "dropout": null, "continuing_subword_prefix": null, "end_of_word_suffix": null}})
}

/// Our tokenizer of a file, and the crate's.
fn both(file: &Value) -> (Tokenizer, tokenizers::Tokenizer) {
    let mut tokens: Vec<(u64, String)> = file["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(t, id)| (id.as_u64().unwrap(), t.clone()))
        .collect();
    let mut types = vec![1; tokens.len()];
    for token in file["added_tokens"].as_array().unwrap() {
        let (id, text) = (token["id"].as_u64().unwrap(), token["content"].as_str().unwrap().to_owned());
        if id as usize >= types.len() {
            tokens.push((id, text));
            types.push(1);
        }
        types[id as usize] = if token["special"] == true { 3 } else { 4 };
    }
    tokens.sort();
    let spec = TokenizerSpec {
        model: "huggingface".into(),
        tokens: tokens.into_iter().map(|(_, token)| token).collect(),
        token_types: types,
        huggingface: Some(file.to_string()),
        ..TokenizerSpec::default()
    };
    (Tokenizer::new(&spec).unwrap(), tokenizers::Tokenizer::from_bytes(file.to_string()).unwrap())
}

#[track_caller]
fn same_ids(file: &Value, texts: &[&str]) {
    let (ours, theirs) = both(file);
    for text in texts {
        let want = theirs.encode(*text, false).unwrap().get_ids().to_vec();
        assert_eq!(ours.encode(text, Special::On).unwrap(), want, "{text:?}");
    }
}

fn metaspace(scheme: &str, split: bool) -> Value {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split})
}

#[test]
fn metaspace_in_all_its_ways() {
    let texts = [
        "<s>hello",
        "hello</s>user",
        "hello</s> user",
        "hello user",
        " hello",
        "  hello  user ",
        "",
        " ",
        "<s> hello",
        "hello<s><s>user",
        "</s>",
        "a▁b",
        "日本 é",
    ];
    for scheme in ["first", "never", "always"] {
        for split in [true, false] {
            same_ids(&file(metaspace(scheme, split)), &texts);
        }
    }
    // As case 2 has it: no mark in front of what follows a token at the start.
    let (ours, _) = both(&file(metaspace("first", false)));
    let ids = ours.encode("<s>hello", Special::On).unwrap();
    assert_eq!(ids.iter().map(|&id| ours.token_text(id).unwrap()).collect::<Vec<_>>(), ["<s>", "hello"]);
    let (ours, _) = both(&file(metaspace("always", false)));
    let ids = ours.encode("<s>hello", Special::On).unwrap();
    assert_eq!(ids.iter().map(|&id| ours.token_text(id).unwrap()).collect::<Vec<_>>(), ["<s>", "▁hello"]);
}

#[test]
fn added_tokens_with_flags() {
    for flag in ["lstrip", "rstrip", "single_word", "normalized"] {
        let mut file = file(metaspace("never", false));
        let n = file["model"]["vocab"].as_object().unwrap().len();
        for (i, (content, special)) in [("<|user|>", true), ("foo", false)].into_iter().enumerate() {
            let mut token = json!({"id": n + i, "content": content, "special": special, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false});
            token[flag] = true.into();
            file["added_tokens"].as_array_mut().unwrap().push(token);
        }
        let texts = [
            "<|user|>\n\nhi",
            "hi  <|user|>  hi",
            "foobar",
            "foo bar",
            "bar foo",
            "barfoo",
            " foo ",
            "foo,foo",
            "foo_",
            "foo foo",
            "  <|user|><|user|>  ",
            "éfoo",
            "foo!",
        ];
        same_ids(&file, &texts);
    }
}

#[test]
fn overlapping_added_tokens_are_leftmost_then_longest() {
    let mut file = file(metaspace("never", false));
    let n = file["model"]["vocab"].as_object().unwrap().len();
    for (i, content) in ["ab", "bcd", "abx", "xy", "xyz"].into_iter().enumerate() {
        let token = json!({"id": n + i, "content": content, "special": false, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false});
        file["added_tokens"].as_array_mut().unwrap().push(token);
    }
    same_ids(&file, &["abcd", "abxyz", "axyzab", "bcdab", "bcabxy"]);
    let (ours, _) = both(&file);
    let ids = ours.encode("abcd", Special::Off).unwrap();
    assert_eq!(ids.iter().map(|&id| ours.token_text(id).unwrap()).collect::<Vec<_>>(), ["ab", "c", "d"]);
}

/// What a user types is text, in every part of a text that is not trusted.
#[test]
fn control_tokens_in_text_stay_text() {
    let (ours, theirs) = both(&file(metaspace("first", false)));
    for text in ["</s>", "hello</s>user", "<s><s>", "<unk>"] {
        let ids = ours.encode(text, Special::Off).unwrap();
        assert!(ids.iter().all(|&id| id > 2), "{text}: {ids:?}");
        assert_eq!(ours.decode(&ids, Special::Off).unwrap().trim_start(), text);
    }
    let text = "<s>hello</s>";
    let ids = ours.encode_trusted(text, std::slice::from_ref(&(0..3))).unwrap();
    assert_eq!(ids[0], 1);
    assert!(!ids.contains(&2));
    let all = ours.encode_trusted(text, std::slice::from_ref(&(0..text.len()))).unwrap();
    assert_eq!(all, theirs.encode(text, false).unwrap().get_ids());
}

/// A Unigram vocabulary holds its control tokens, and the model itself would write them.
#[test]
fn a_unigram_model_writes_no_control_token() {
    let vocab: Vec<(&str, f64)> =
        [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁", -2.0), ("▁hello", -3.0)]
            .into_iter()
            .chain(["<", ">", "/", "s", "h", "e", "l", "o"].map(|token| (token, -5.0)))
            .collect();
    let mut file = file(metaspace("always", true));
    file["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false});
    let spec = TokenizerSpec {
        model: "huggingface".into(),
        tokens: vocab.iter().map(|(token, _)| (*token).to_owned()).collect(),
        token_types: [vec![2, 3, 3], vec![1; vocab.len() - 3]].concat(),
        huggingface: Some(file.to_string()),
        ..TokenizerSpec::default()
    };
    let ours = Tokenizer::new(&spec).unwrap();
    let theirs = tokenizers::Tokenizer::from_bytes(file.to_string()).unwrap();
    for text in ["hello", "hello hell", "<s>hello</s>"] {
        assert_eq!(
            ours.encode(text, Special::On).unwrap(),
            theirs.encode(text, false).unwrap().get_ids(),
            "{text}"
        );
    }
    let text = |ids: Vec<u32>| ids.iter().map(|&id| ours.token_text(id).unwrap()).collect::<Vec<_>>();
    assert_eq!(text(ours.encode("</s>", Special::Off).unwrap()), ["▁", "<", "/", "s", ">"]);
}

#[test]
fn files_that_are_wrong_are_errors() {
    let spec = |json: &str| TokenizerSpec {
        model: "huggingface".into(),
        tokens: vec!["a".into()],
        huggingface: Some(json.into()),
        ..TokenizerSpec::default()
    };
    for json in ["", "{", "[]", "{}", r#"{"model": {"type": "Nothing"}}"#, r#"{"added_tokens": 3}"#] {
        let error = Tokenizer::new(&spec(json)).unwrap_err().to_string();
        assert!(error.starts_with("tokenizer.json: "), "{json}: {error}");
    }
    let far = r#"{"added_tokens": [{"id": 9, "content": "x"}]}"#;
    assert_eq!(
        Tokenizer::new(&spec(far)).unwrap_err().to_string(),
        "added_tokens is 9: expected less than 1, the number of tokens"
    );
}
