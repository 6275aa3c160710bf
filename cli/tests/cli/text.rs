//! `halfbyte tokenize` and `halfbyte logits`.

use crate::support::{chat_model, ids, keys, run, run_with_stdin, temp_dir};
use halfbyte_tokenizer as tokenizer;

#[test]
fn every_byte_of_stdin_counts() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    let tokenize = |more: &[&str], stdin: &[u8]| {
        let mut args = vec!["tokenize", "--model", model.to_str().unwrap(), "--json"];
        args.extend(more);
        let json = run_with_stdin(&args, stdin).json();
        assert_eq!(keys(&json), ["ids"]);
        ids(&json["ids"])
    };
    // The model's tokens are the bytes.
    assert_eq!(tokenize(&[], b"ab\r\n\n"), b"ab\r\n\n".map(u64::from));
    assert_eq!(tokenize(&[], "ü\0".as_bytes()), [0xc3, 0xbc, 0]);
    assert!(tokenize(&[], b"").is_empty());
    assert_eq!(tokenize(&[], b"<s>"), b"<s>".map(u64::from));
    assert_eq!(tokenize(&["--special"], b"<s>x"), [256, u64::from(b'x')]);
}

#[test]
fn ids_for_people_are_a_line() {
    let text = run_with_stdin(&["tokenize"], b"The sea").ok();
    let json = run_with_stdin(&["tokenize", "--json"], b"The sea").json();
    let words: Vec<u64> = text.trim().split(' ').map(|id| id.parse().unwrap()).collect();
    assert_eq!(words, ids(&json["ids"]));
    let spec = tokenizer::TokenizerSpec::from_metadata(
        halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap().metadata(),
    )
    .unwrap();
    let tokenizer = tokenizer::Tokenizer::new(&spec).unwrap();
    let words: Vec<u32> = words.iter().map(|&id| u32::try_from(id).unwrap()).collect();
    assert_eq!(tokenizer.decode(&words, tokenizer::Special::Off).unwrap(), "The sea");
}

#[test]
fn text_that_is_not_utf8_is_an_error() {
    let error = run_with_stdin(&["tokenize", "--json"], b"ab\xff").error();
    assert!(error.starts_with("the text on stdin is not UTF-8: "), "{error}");
    assert!(error.contains("index 2"), "{error}");
}

#[test]
fn logits_of_ids_and_of_their_text_are_the_same() {
    let from_text = run(&["logits", "--prompt", "The sea was", "--json", "--activations", "f32"]).json();
    assert_eq!(keys(&from_text), ["ids", "positions"]);
    let list = ids(&from_text["ids"]).iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let from_ids = run(&["logits", "--ids", &list, "--json", "--activations", "f32"]).json();
    assert_eq!(from_text, from_ids);
    let positions = from_text["positions"].as_array().unwrap();
    assert_eq!(positions.len(), ids(&from_text["ids"]).len());
    for position in positions {
        assert_eq!(keys(position), ["logsumexp", "top_ids", "top_logits"]);
        let top: Vec<f64> =
            position["top_logits"].as_array().unwrap().iter().map(|l| l.as_f64().unwrap()).collect();
        assert_eq!((top.len(), ids(&position["top_ids"]).len()), (10, 10));
        assert!(top.is_sorted_by(|a, b| a >= b), "{top:?}");
        let sum: f64 = top.iter().map(|l| (l - position["logsumexp"].as_f64().unwrap()).exp()).sum();
        // The likeliest are likelier than the average of the vocabulary.
        assert!(sum > 10.0 / 2048.0 && sum < 1.0, "the ten likeliest have probability {sum}");
    }
}

/// The greedy reply is what the logits say.
#[test]
fn logits_and_run_agree() {
    let reply = run(&["run", "--prompt", "The sea was", "-n", "4", "--temperature", "0", "--json"]).json();
    let mut all = ids(&reply["prompt_ids"]);
    let n_prompt = all.len();
    all.extend(ids(&reply["ids"]));
    let list = all.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let logits = run(&["logits", "--ids", &list, "--top", "1", "--json"]).json();
    let top: Vec<u64> =
        logits["positions"].as_array().unwrap().iter().flat_map(|p| ids(&p["top_ids"])).collect();
    assert_eq!(top[n_prompt - 1..all.len() - 1], all[n_prompt..]);
}

#[test]
fn all_logits_can_be_had() {
    let json = run(&["logits", "--ids", "5", "--top", "1000000", "--json"]).json();
    let position = &json["positions"][0];
    assert_eq!(ids(&position["top_ids"]).len(), 2048);
    let sum: f64 = position["top_logits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| (l.as_f64().unwrap() - position["logsumexp"].as_f64().unwrap()).exp())
        .sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
}

#[test]
fn logits_for_people() {
    let text = run(&["logits", "--prompt", "The sea", "--top", "2"]).ok();
    assert!(text.starts_with("0: after "), "{text}");
    assert!(text.contains('%') && text.contains("logsumexp"), "{text}");
}

#[test]
fn wrong_ids_are_errors() {
    assert_eq!(
        run(&["logits", "--ids", "2048", "--json"]).error(),
        "token id 2048 is outside the vocabulary of 2048"
    );
    let error = run(&["logits", "--ids", "1,2,3", "--ctx", "2"]).error();
    assert_eq!(error, "the text is 3 tokens long, the context holds 2; --ctx can be raised to 512");
    for usage in [
        &["logits"][..],
        &["logits", "--ids", ""],
        &["logits", "--ids", "1,x"],
        &["logits", "--ids=-1"],
        &["logits", "--ids", "4294967296"],
        &["logits", "--ids", "1", "--prompt", "a"],
    ] {
        assert_eq!(run(usage).code, Some(2), "{usage:?}");
    }
}
