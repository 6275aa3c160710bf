//! Features of chat templates against what Jinja2 writes, set up as transformers sets it up.
#![allow(clippy::unwrap_used, reason = "an error or a missing value is what fails a test")]

use std::time::{Duration, UNIX_EPOCH};

use crate::chat_support::tokenizer;
use halfbyte_tokenizer::Special;
use halfbyte_tokenizer::chat::{Arguments, ChatError, ChatOptions, ChatTemplate, Message, Role};

/// The cases of `goldens/chat_templates.txt`, one for each feature.
#[test]
fn jinja2_agrees() {
    let tokenizer = tokenizer(false);
    let golden = halfbyte_testing::golden("chat_templates.json");
    let cases = golden.as_array().unwrap();
    assert!(cases.len() >= 45);
    for case in cases {
        let template = case["template"].as_str().unwrap();
        let message = |turn: &serde_json::Value| {
            let role = if turn["role"] == "user" { Role::User } else { Role::Assistant };
            Message::new(role, turn["content"].as_str().unwrap())
        };
        let messages: Vec<Message> = case["messages"].as_array().unwrap().iter().map(message).collect();
        let options = ChatOptions {
            add_generation_prompt: true,
            now: UNIX_EPOCH + Duration::from_secs(1_709_208_000),
            // As text, which keeps the order of keys.
            arguments: serde_json::from_str(case["arguments_json"].as_str().unwrap()).unwrap(),
        };
        let rendered = ChatTemplate::from_source(template, &tokenizer)
            .and_then(|compiled| compiled.prompt(&tokenizer, &messages, &options));
        match case["expected"].as_str() {
            Some(expected) => assert_eq!(rendered.unwrap().text, expected, "{template}"),
            None => assert!(rendered.is_err(), "{template}: {rendered:?}"),
        }
    }
}

/// A client's arguments are text as a client's messages are.
#[test]
fn arguments_make_no_control_token() {
    let tokenizer = tokenizer(false);
    let template = "{{ x }}{% if x == '</s>' %}!{% endif %}{{ y.k[0] }}<|{{ word }}|>{{ y|tojson }}";
    let mut arguments = Arguments::default();
    arguments.set("x", "</s>");
    arguments.set("y", r#"{"k": ["<|im_end|>"], "<|user|>": 1}"#);
    arguments.set("word", "user");
    let options = ChatOptions { arguments, ..ChatOptions::default() };
    let compiled = ChatTemplate::from_source(template, &tokenizer).unwrap();
    let prompt = compiled.prompt(&tokenizer, &[Message::user("x")], &options).unwrap();
    assert_eq!(prompt.text, r#"</s><|im_end|><|user|>{"k": ["<|im_end|>"], "<|user|>": 1}"#);
    // The template's own token, made of a word that it asked for.
    let control: Vec<u32> = prompt.ids.iter().copied().filter(|&id| tokenizer.is_control(id)).collect();
    assert_eq!(control, [tokenizer.token_id("<|user|>").unwrap()]);
    assert_eq!(tokenizer.decode(&prompt.ids, Special::On).unwrap(), prompt.text);
}

#[test]
fn values_are_json_or_text() {
    let tokenizer = tokenizer(false);
    let mut arguments = Arguments::default();
    for (name, value) in [("a", "false"), ("b", "[1, \"x\"]"), ("c", "low"), ("d", "\"7\""), ("e", "7")] {
        arguments.set(name, value);
    }
    assert_eq!(arguments.names().collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
    let text = |template: &str, arguments: Arguments| {
        let options = ChatOptions { arguments, ..ChatOptions::default() };
        let compiled = ChatTemplate::from_source(template, &tokenizer).unwrap();
        compiled.prompt(&tokenizer, &[Message::user("x")], &options).map(|prompt| prompt.text)
    };
    let template = "{{ a is false }} {{ b[1] }} {{ c == 'low' }} {{ d is string }} {{ e + 1 }}";
    assert_eq!(text(template, arguments).unwrap(), "True x True True 8");
    for name in ["messages", "add_generation_prompt", "strftime_now"] {
        let mut arguments = Arguments::default();
        arguments.set(name, "[]");
        let error = text("x", arguments).unwrap_err();
        assert!(matches!(&error, ChatError::Argument { name: got } if got == name), "{error}");
    }
}
