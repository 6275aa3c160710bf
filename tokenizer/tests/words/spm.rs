//! The SentencePiece-style tokenizer against ids and bytes that llama.cpp gives for a small vocabulary.
#![allow(clippy::unwrap_used, reason = "an error or a missing value is what fails a test")]

use halfbyte_tokenizer::chat::{ChatOptions, ChatTemplate, Message};
use halfbyte_tokenizer::{Special, TokenKind, Tokenizer, TokenizerSpec};
use serde_json::Value;

fn spec(golden: &Value) -> TokenizerSpec {
    let spec = &golden["spec"];
    let array = |name: &str| spec[name].as_array().unwrap().iter();
    TokenizerSpec {
        model: "llama".into(),
        tokens: array("tokens").map(|v| v.as_str().unwrap().to_owned()).collect(),
        scores: array("scores").map(|v| v.as_f64().unwrap() as f32).collect(),
        token_types: array("token_types").map(|v| v.as_i64().unwrap() as i32).collect(),
        ..TokenizerSpec::default()
    }
}

fn tied(golden: &Value) -> TokenizerSpec {
    let scores = golden["tied_scores"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32);
    TokenizerSpec { scores: scores.collect(), add_space_prefix: Some(false), ..spec(golden) }
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

fn assert_cases(tokenizer: &Tokenizer, cases: &Value) {
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 150);
    for case in cases {
        let text = case[0].as_str().unwrap();
        let special = if case[1].as_bool().unwrap() { Special::On } else { Special::Off };
        let got = tokenizer.encode(text, special).unwrap();
        assert_eq!(got, ids(&case[2]), "{text:?} {special:?}");
        // Only with a control or user-defined token inside does the text get more spaces than one.
        if !got
            .iter()
            .any(|&id| tokenizer.is_control(id) || tokenizer.kind(id) == Some(TokenKind::UserDefined))
        {
            // U+2581 is how this family writes a space, so a text's own comes back as one.
            assert_eq!(tokenizer.decode(&got, Special::On).unwrap(), text.replace('\u{2581}', " "));
        }
    }
}

#[test]
fn llama_cpp_agrees() {
    let golden = halfbyte_testing::golden("spm_tokenize.json");
    let tokenizer = Tokenizer::new(&spec(&golden)).unwrap();
    assert_cases(&tokenizer, &golden["cases"]);
    assert_eq!(tokenizer.eog_ids(), ids(&golden["end_of_generation"]));
    let got = tokenizer.encode(&crate::support::golden_text("eval_text.txt"), Special::Off).unwrap();
    assert_eq!(got.len() as u64, golden["eval_text"]["n"]);
    assert_eq!(crate::support::fnv1a(&got), golden["eval_text"]["fnv1a"]);
}

#[test]
fn llama_cpp_agrees_on_equal_scores_and_without_a_leading_space() {
    let golden = halfbyte_testing::golden("spm_tokenize.json");
    assert_cases(&Tokenizer::new(&tied(&golden)).unwrap(), &golden["tied_cases"]);
}

#[test]
fn bytes_of_every_token() {
    let golden = halfbyte_testing::golden("spm_tokenize.json");
    let tokenizer = Tokenizer::new(&spec(&golden)).unwrap();
    let pieces = golden["pieces"].as_array().unwrap();
    assert_eq!(pieces.len(), tokenizer.n_vocab());
    for (id, piece) in (0..).zip(pieces) {
        let bytes = tokenizer.piece_bytes(id, Special::On).unwrap();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, piece.as_str().unwrap(), "token {id}");
    }
}

#[test]
fn spaces_in_front() {
    let golden = halfbyte_testing::golden("spm_tokenize.json");
    let tokenizer = Tokenizer::new(&spec(&golden)).unwrap();
    for text in ["the", " the", "  the", "", " ", "日本", "\u{2764}"] {
        let ids = tokenizer.encode(text, Special::Off).unwrap();
        assert_eq!(tokenizer.decode(&ids, Special::Off).unwrap(), text);
        // The beginning token is not shown and does not count as the start of the text.
        let prompt = tokenizer.encode_prompt(text, Special::Off).unwrap();
        assert_eq!(prompt[0], 1);
        assert_eq!(prompt[1..], ids);
        assert_eq!(tokenizer.decode(&prompt, Special::Off).unwrap(), text);
    }
    let the = tokenizer.encode("the", Special::Off).unwrap();
    let mut continued = tokenizer.continuation_decoder();
    assert_eq!(continued.push(the[0]).unwrap(), " the");
    let mut fresh = tokenizer.text_decoder();
    assert_eq!(fresh.push(the[0]).unwrap(), "the");
    assert_eq!(fresh.push(the[0]).unwrap(), " the");
    // A control token gets no second beginning.
    assert_eq!(tokenizer.encode_prompt("<s>", Special::On).unwrap(), [1]);
}

#[test]
fn long_runs_of_one_character() {
    let golden = halfbyte_testing::golden("spm_tokenize.json");
    let tokenizer = Tokenizer::new(&spec(&golden)).unwrap();
    for run in ["a", " ", "\n", "日", "\u{2764}", "th"] {
        let text = run.repeat(200_000 / run.len());
        let ids = tokenizer.encode(&text, Special::Off).unwrap();
        assert!(tokenizer.decode(&ids, Special::Off).unwrap() == text, "{run:?}");
    }
}

#[test]
fn names_of_control_unknown_and_byte_tokens_are_text() {
    let golden = halfbyte_testing::golden("spm_tokenize.json");
    let mut spec = spec(&golden);
    // Pieces that lead up to each name, so that merging alone would get there.
    for (piece, score) in [
        ("<s", -1.0),
        ("</", -1.0),
        ("</s", -1.0),
        ("<0", -1.0),
        ("<0x", -1.0),
        ("<0x4", -1.0),
        ("<0x41", -1.0),
    ] {
        if !spec.tokens.iter().any(|t| t == piece) {
            spec.tokens.push(piece.into());
            spec.scores.push(score);
            spec.token_types.push(1);
        }
    }
    let tokenizer = Tokenizer::new(&spec).unwrap();
    for text in ["<s>", "</s>", "<0x41>", "a</s>b"] {
        let ids = tokenizer.encode(text, Special::Off).unwrap();
        assert!(!ids.iter().any(|&id| tokenizer.is_control(id)), "{text}: {ids:?}");
        assert_eq!(tokenizer.decode(&ids, Special::Off).unwrap(), text);
    }
}

#[test]
fn without_byte_tokens_the_unknown_token_stands_in() {
    let spec = TokenizerSpec {
        model: "llama".into(),
        tokens: ["<unk>", "a", "\u{2581}", "\u{2581}a"].map(String::from).into(),
        scores: vec![0.0, -2.0, -3.0, -1.0],
        token_types: vec![2, 1, 1, 1],
        add_bos: Some(false),
        ..TokenizerSpec::default()
    };
    let tokenizer = Tokenizer::new(&spec).unwrap();
    assert_eq!(tokenizer.encode("a日a", Special::Off).unwrap(), [3, 0, 1]);
    // SentencePiece numbers the unknown token 0; where 0 is an ordinary token, it does not stand in unless named.
    let none = TokenizerSpec { token_types: vec![1, 1, 1, 1], ..spec };
    let tokenizer = Tokenizer::new(&none).unwrap();
    let error = tokenizer.encode("a日a", Special::Off).unwrap_err().to_string();
    assert_eq!(error, "the vocabulary has no token for '日', no byte tokens for it and no unknown token");
}

/// A vocabulary of gemma's kind: bytes, and the tokens of its turns as control tokens.
fn gemma() -> TokenizerSpec {
    let named = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"];
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let tokens: Vec<String> = named.into_iter().map(String::from).chain(bytes).collect();
    let token_type = |i: usize| match i {
        3 => 2,
        0..6 => 3,
        _ => 6,
    };
    TokenizerSpec {
        model: "llama".into(),
        scores: vec![0.0; tokens.len()],
        token_types: (0..tokens.len()).map(token_type).collect(),
        bos_id: Some(2),
        eos_id: Some(1),
        add_bos: Some(true),
        add_space_prefix: Some(false),
        tokens,
        ..TokenizerSpec::default()
    }
}

#[test]
fn gemmas_turns_begin_with_bos_and_end_a_reply() {
    let tokenizer = Tokenizer::new(&gemma()).unwrap();
    // The end of a turn is known by its text: files name only `<eos>`.
    assert_eq!(tokenizer.eog_ids(), [1, 5]);
    let template = "{{ bos_token }}{% for message in messages %}\
                    {% set role = 'model' if message.role == 'assistant' else message.role %}\
                    {{ '<start_of_turn>' + role + '\n' + message.content | trim + '<end_of_turn>\n' }}{% endfor %}\
                    {% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";
    let template = ChatTemplate::from_source(template, &tokenizer).unwrap();
    let messages = [Message::user("user "), Message::assistant("model"), Message::user("<end_of_turn>")];
    let prompt = template.prompt(&tokenizer, &messages, &ChatOptions::default()).unwrap();
    let expected = "<bos><start_of_turn>user\nuser<end_of_turn>\n<start_of_turn>model\nmodel<end_of_turn>\n\
                    <start_of_turn>user\n<end_of_turn><end_of_turn>\n<start_of_turn>model\n";
    assert_eq!(prompt.text, expected);
    let count = |id: u32| prompt.ids.iter().filter(|&&known| known == id).count();
    // What a person writes is no end of a turn, and there is one beginning of a text.
    assert_eq!((prompt.ids[0], count(2), count(4), count(5), count(1)), (2, 1, 4, 3, 0));
}
