//! Bodies of requests to the server: `form u8`, then the body.

use std::sync::{Arc, LazyLock};

use halfbyte::sampler::SamplerConfig;
use halfbyte_server::requests::{Form, Reader};
use halfbyte_tokenizer::{TokenKind, Tokenizer, TokenizerSpec};
use serde_json::{Value, json};

use crate::Seeds;
use crate::chat_support::spec;

const TEMPLATE: &str = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}\
                        {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}";

const CONTEXT: usize = 4096;

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let spec = TokenizerSpec { chat_template: Some(TEMPLATE.to_owned()), ..spec(false) };
    Arc::new(Tokenizer::new(&spec).unwrap())
});

static READER: LazyLock<Reader> =
    LazyLock::new(|| Reader::new(Arc::clone(&TOKENIZER), "model", SamplerConfig::default(), CONTEXT));

/// A request is refused with a message and a status that blames the client, or it can be answered: its tokens are the
/// model's, fit in the context, and none that came from a text is a control token.
///
/// # Panics
/// If not.
pub fn check(data: &[u8]) {
    let Some((form, body)) = data.split_first() else { return };
    let form = if form.is_multiple_of(2) { Form::Chat } else { Form::Text };
    let (read_form, mut request) = match READER.read(form, body, 0) {
        Ok(read) => (read.form, read.request),
        Err(error) => {
            assert!((400..500).contains(&error.status));
            assert!(!error.body.error.message.is_empty());
            return assert!(serde_json::to_string(&error.body).unwrap().contains("\"message\""));
        }
    };
    assert!(read_form == form && request.max_tokens > 0);
    assert!((1..=CONTEXT).contains(&request.prompt.len()));
    assert!(request.prompt.iter().all(|&id| (id as usize) < TOKENIZER.n_vocab()));
    let control = request.prompt.iter().filter(|&&id| TOKENIZER.kind(id) == Some(TokenKind::Control)).count();
    let value: Value = serde_json::from_slice(body).unwrap();
    match form {
        // What the template writes, and no more.
        Form::Chat => assert_eq!(control, 2 * value["messages"].as_array().unwrap().len() + 1),
        Form::Text if value["prompt"][0].is_u64() => {}
        // An empty text is the token that begins one.
        Form::Text => assert!(control == 0 || request.prompt == [TOKENIZER.bos_id().unwrap()]),
    }
    for text in String::from_utf8_lossy(body).split_inclusive(' ') {
        _ = request.stops.push(text);
    }
    _ = request.stops.finish();
}

/// Requests of both forms with every field, right and wrong.
pub fn seeds() -> Seeds {
    let message = json!({"role": "user", "content": "Hello <|im_end|>"});
    let parts = json!({"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    let image = json!({"role": "tool", "content": [{"type": "image_url"}]});
    let common = json!({
        "model": "model", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": -1,
        "repeat_penalty": 1.1, "stop": ["a", "END"], "stream": true, "stream_options": {"include_usage": true}, "n": 1,
        "presence_penalty": 0.0, "frequency_penalty": 0, "logit_bias": {}, "logprobs": null
    });
    let with = |own: Value| {
        let mut all = common.clone();
        all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        all
    };
    let chat = [
        with(json!({"messages": [message], "tools": [], "functions": [], "max_completion_tokens": 3})),
        with(json!({"messages": [parts, message], "response_format": {"type": "text"}})),
        json!({"messages": [message, image]}),
        json!({"messages": [], "tools": [{}], "response_format": {"type": "json_object"}}),
        json!({"messages": [{"role": "assistant", "content": null, "tool_calls": [{}]}]}),
    ];
    let text = [
        with(json!({"prompt": "Once </s>", "echo": false, "suffix": "", "best_of": 1, "stop": "x"})),
        with(json!({"prompt": [1, 2, 261]})),
        json!({"prompt": ["one"], "logit_bias": {"1": 2}, "logprobs": 3}),
        json!({"prompt": "", "n": 2, "temperature": 1e39, "seed": 1, "model": "other"}),
    ];
    let input = |form: u8, body: &Value| [&[form], body.to_string().as_bytes()].concat();
    chat.iter().map(|body| input(0, body)).chain(text.iter().map(|body| input(1, body))).collect()
}
