//! Renders chat templates: reads a JSON list of cases from standard input and writes the texts as a JSON list.
//!
//! A case has `template`, `messages` (each with `role` and `content`), `arguments` and `add_generation_prompt`. A result is
//! a text, or an object with `error`. `goldens/compare_templates.py` compares them with what Jinja2 writes.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use halfbyte_tokenizer::chat::{Arguments, ChatOptions, ChatTemplate, Message, Role};
use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    template: String,
    messages: Vec<Turn>,
    #[serde(default)]
    arguments: Arguments,
    add_generation_prompt: bool,
}

#[derive(Deserialize)]
struct Turn {
    role: String,
    content: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cases: Vec<Case> = serde_json::from_reader(io::stdin().lock())?;
    // Every byte is a token, and there are two control tokens.
    let mut tokens: Vec<String> = ["<s>", "</s>"].map(String::from).into();
    let own = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    tokens.extend((0..=255_u8).filter(own).map(|b| char::from(b).to_string()));
    tokens.extend(('\u{100}'..='\u{143}').map(String::from));
    let tokenizer = Tokenizer::new(&TokenizerSpec {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        token_types: (0..tokens.len()).map(|id| if id < 2 { 3 } else { 1 }).collect(),
        tokens,
        bos_id: Some(0),
        eos_id: Some(1),
        ..TokenizerSpec::default()
    })?;
    let render = |case: Case| -> Result<String, Box<dyn std::error::Error>> {
        let role = |name: &str| match name {
            "system" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => Role::Tool,
        };
        let messages: Vec<Message> =
            case.messages.iter().map(|turn| Message::new(role(&turn.role), turn.content.as_str())).collect();
        let options = ChatOptions {
            add_generation_prompt: case.add_generation_prompt,
            now: UNIX_EPOCH + Duration::from_secs(1_709_208_000),
            arguments: case.arguments,
        };
        let template = ChatTemplate::from_source(&case.template, &tokenizer)?;
        Ok(template.prompt(&tokenizer, &messages, &options)?.text)
    };
    let results: Vec<Value> = cases
        .into_iter()
        .map(|case| render(case).map_or_else(|error| json!({ "error": error.to_string() }), Value::from))
        .collect();
    serde_json::to_writer(io::stdout().lock(), &results)?;
    Ok(())
}
