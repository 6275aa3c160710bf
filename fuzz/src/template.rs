//! Chat templates: `n u16`, a message of n bytes, the template.

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use halfbyte_tokenizer::chat::{ChatOptions, ChatTemplate, MAX_OUTPUT_BYTES, Message};
use halfbyte_tokenizer::{Special, Tokenizer};

use crate::chat_support::{PUBLISHED, TRANSFORMS, tokenizer};
use crate::{Seeds, take, take_u16};

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| tokenizer(false));

/// A template that runs ends within its limits, and what it wrote is what its tokens say.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let (n, data) = take_u16(data);
    let (content, template) = take(data, n);
    let Ok(template) = std::str::from_utf8(template) else { return };
    let content = String::from_utf8_lossy(content).into_owned();
    let messages = [Message::system("s"), Message::user(content.clone()), Message::assistant(content)];
    let options =
        ChatOptions { now: UNIX_EPOCH + Duration::from_secs(1_709_208_000), ..ChatOptions::default() };
    let prompt = ChatTemplate::from_source(template, &TOKENIZER)
        .and_then(|template| template.prompt(&TOKENIZER, &messages, &options));
    match prompt {
        Ok(prompt) => {
            assert!(prompt.text.len() <= MAX_OUTPUT_BYTES);
            assert_eq!(TOKENIZER.decode(&prompt.ids, Special::On).unwrap(), prompt.text);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What the tests run.
pub fn seeds() -> Seeds {
    let published = PUBLISHED.iter().chain(&TRANSFORMS).map(|(template, _)| *template);
    let chat = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}\
                {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    let loops = "{% for i in range(9) %}{% for j in range(i) %}{{ loop.index }}{% endfor %}{% endfor %}";
    published.chain([chat, loops]).map(|template| input(" a</s>\"b ", template)).collect()
}

fn input(content: &str, template: &str) -> Vec<u8> {
    let mut input = (content.len() as u16).to_le_bytes().to_vec();
    input.extend(content.as_bytes());
    input.extend(template.as_bytes());
    input
}
