//! The server: every reply is what `generate` makes of the same request alone, and every refusal says why.

use std::ops::ControlFlow;

use crate::support::{Server, session, tokenizer};
use halfbyte::generate::{CachedSession, Generation, Request, generate};
use halfbyte::sampler::{Sampler, SamplerConfig};
use halfbyte_server::ServeOptions;
use halfbyte_tokenizer::Special;
use serde_json::{Value, json};

const TEXTS: [&str; 6] = [
    "The captain looked at the sea",
    "Once upon a time",
    "She opened the door and",
    "It was late when the ship came in, and the men were tired. The captain looked at the sea, and at the ship, and at \
     the men, and said nothing for a long while. Then he",
    "A",
    "\"Where have you been?\" he asked.",
];

/// What a server with the default options has where a request says nothing else.
fn sampling(seed: u64) -> SamplerConfig {
    SamplerConfig { seed, ..SamplerConfig::default() }
}

/// The reply to `text` alone.
fn alone(text: &str, config: SamplerConfig, n: usize, context: usize) -> Generation {
    let tokenizer = tokenizer();
    let mut cache = CachedSession::new(session(context));
    let prompt = tokenizer.encode_prompt(text, Special::Off).unwrap();
    let sampler = Sampler::new(config).unwrap();
    let mut request = Request { max_tokens: n, ..Request::new(prompt, sampler) };
    generate(&mut cache, &tokenizer, &mut request, |_| Ok(ControlFlow::Continue(()))).unwrap()
}

fn start(slots: usize) -> Server {
    Server::start(slots, 256, ServeOptions::new("tiny"))
}

#[test]
fn a_completion_is_the_reply_that_the_program_makes() {
    let server = start(1);
    let expected = alone(TEXTS[0], SamplerConfig::greedy(), 24, 256);
    let request = json!({ "model": "tiny", "prompt": TEXTS[0], "max_tokens": 24, "temperature": 0 });
    let reply = server.post("/v1/completions", &request).json();
    assert_eq!(reply["choices"][0]["text"], expected.text.as_str());
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["object"], "text_completion");
    let prompt = tokenizer().encode_prompt(TEXTS[0], Special::Off).unwrap();
    assert_eq!(reply["usage"]["prompt_tokens"], prompt.len());
    assert_eq!(reply["usage"]["completion_tokens"], 24);
    assert_eq!(reply["usage"]["total_tokens"], prompt.len() + 24);

    // As ids, and in the middle of other text of the prompt's own context.
    let request = json!({ "prompt": prompt, "max_tokens": 24, "temperature": 0 });
    let again = server.post("/v1/completions", &request).json();
    assert_eq!(again["choices"][0]["text"], expected.text.as_str());
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], prompt.len() - 1);
    server.join();
}

#[test]
fn a_stream_is_the_whole_reply_in_pieces() {
    let server = start(1);
    let mut request =
        json!({ "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 12, "seed": 5 });
    let whole = server.post("/v1/chat/completions", &request).json();
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["choices"][0]["message"]["role"], "assistant");
    request["stream"] = true.into();
    request["stream_options"] = json!({ "include_usage": true });
    let answer = server.post("/v1/chat/completions", &request);
    assert!(answer.headers.iter().any(|header| header == "content-type: text/event-stream"), "{answer:?}");
    let events = answer.events();
    let (usage, rest) = events.split_last().unwrap();
    let (end, texts) = rest.split_last().unwrap();
    assert_eq!(texts[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = texts.iter().map(|e| e["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text.as_str());
    assert!(texts.len() > 2, "{texts:?}");
    assert_eq!(end["choices"][0]["finish_reason"], "length");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 12);
    assert!(events.iter().all(|e| e["id"] == events[0]["id"] && e["object"] == "chat.completion.chunk"));
    server.join();
}

#[test]
fn replies_made_together_are_what_they_are_alone() {
    let server = start(3);
    let expected: Vec<Generation> = TEXTS
        .iter()
        .zip(0..)
        .map(|(text, seed)| alone(text, sampling(seed), 20 + seed as usize, 256))
        .collect();
    // Twice as many as slots, so that some start beside others that are half-way.
    let replies: Vec<Value> = std::thread::scope(|scope| {
        let ask = |(text, seed): (&&str, u64)| {
            let request = json!({ "prompt": text, "max_tokens": 20 + seed, "seed": seed });
            let server = &server;
            scope.spawn(move || server.post("/v1/completions", &request).json())
        };
        let asked: Vec<_> = TEXTS.iter().zip(0..).map(ask).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (reply, expected) in replies.iter().zip(&expected) {
        assert_eq!(reply["choices"][0]["text"], expected.text.as_str());
    }
    let tokens: usize = expected.iter().map(|reply| reply.ids.len()).sum();
    assert_eq!(server.metric("halfbyte_reply_tokens_total"), tokens as f64);
    // They did share passes.
    assert!(server.metric("halfbyte_passes_total") < tokens as f64);
    assert_eq!(server.metric("halfbyte_replies_completed_total"), 6.0);
    server.join();
}

#[test]
fn stop_strings_end_a_reply_and_are_not_in_it() {
    let server = start(1);
    let full = alone(TEXTS[1], SamplerConfig::greedy(), 40, 256).text;
    let words: Vec<&str> = full.split_inclusive(' ').collect();
    let stop = words[4..6].concat();
    let (before, _) = full.split_once(&stop).unwrap();
    for stop in [json!(stop), json!(["never in there", stop])] {
        let request = json!({ "prompt": TEXTS[1], "max_tokens": 40, "temperature": 0, "stop": stop });
        let reply = server.post("/v1/completions", &request).json();
        assert_eq!(reply["choices"][0]["text"], before);
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    }
    server.join();
}

#[test]
fn a_reply_ends_where_the_context_does() {
    let server = Server::start(1, 32, ServeOptions::new("tiny"));
    let expected = alone(TEXTS[0], SamplerConfig::greedy(), 1000, 32);
    let request = json!({ "prompt": TEXTS[0], "max_tokens": 1000, "temperature": 0 });
    let reply = server.post("/v1/completions", &request).json();
    assert_eq!(reply["choices"][0]["text"], expected.text.as_str());
    assert_eq!(reply["usage"]["completion_tokens"], expected.ids.len());
    let error = server.post("/v1/completions", &json!({ "prompt": TEXTS[3].repeat(2) })).error(400);
    assert!(
        error.starts_with("prompt is ") && error.ends_with("tokens long, the context holds 32"),
        "{error}"
    );
    server.join();
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let server = start(1);
    let refuse = |path: &str, fields: Value, status: u16, expected: &str| {
        let mut request = match path {
            "/v1/completions" => json!({ "prompt": "A" }),
            _ => json!({ "messages": [{ "role": "user", "content": "A" }] }),
        };
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let error = server.post(path, &request).error(status);
        assert!(error.contains(expected), "{fields}: {error}");
    };
    let text = "/v1/completions";
    refuse(text, json!({ "model": "gpt" }), 404, "no model \"gpt\" here: expected \"tiny\"");
    refuse(text, json!({ "max_tokens": 0 }), 400, "max_tokens is 0: expected at least 1");
    refuse(text, json!({ "temperature": -1 }), 400, "temperature is -1: expected 0 or more, finite");
    refuse(text, json!({ "top_p": 2 }), 400, "top_p is 2");
    refuse(text, json!({ "n": 2 }), 400, "n is not supported");
    refuse(text, json!({ "echo": true }), 400, "echo is not supported");
    refuse(text, json!({ "logprobs": 3 }), 400, "logprobs is not supported");
    refuse(text, json!({ "presence_penalty": 0.5 }), 400, "presence_penalty is not supported");
    refuse(text, json!({ "logit_bias": { "1": 2 } }), 400, "logit_bias is not supported");
    refuse(text, json!({ "stop": vec!["a"; 17] }), 400, "stop has 17 texts: expected at most 16");
    refuse(text, json!({ "prompt": [1, 2, 99_999_999] }), 400, "the token 99999999: expected ids below");
    refuse(text, json!({ "prompt": ["a", "b"] }), 400, "a list of 2 texts");
    refuse(text, json!({ "prompt": 3 }), 400, "the body is not what it should be");
    let chat = "/v1/chat/completions";
    refuse(chat, json!({ "messages": [] }), 400, "messages is empty");
    refuse(chat, json!({ "tools": [{}] }), 400, "tools is not supported");
    refuse(chat, json!({ "response_format": { "type": "json_object" } }), 400, "expected \"text\"");
    refuse(
        chat,
        json!({ "messages": [{ "role": "king", "content": "" }] }),
        400,
        "messages[0].role is \"king\"",
    );
    refuse(chat, json!({ "messages": [{ "role": "user" }] }), 400, "messages[0].content is missing");
    let image = json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] });
    refuse(chat, image, 400, "a part of type \"image_url\"");
    // What stands for nothing is no reason.
    let nothing = json!({ "prompt": "A", "max_tokens": 1, "n": 1, "logit_bias": {}, "logprobs": null,
                          "presence_penalty": 0, "user": "someone", "unheard_of": [1] });
    server.post(text, &nothing).json();
    assert_eq!(server.metric("halfbyte_requests_refused_total"), 19.0);
    server.join();
}

/// A prompt that a client has templated itself, and what a template is told by name.
#[test]
fn control_tokens_are_read_where_a_client_asks_for_it() {
    let server = start(1);
    let tokenizer = tokenizer();
    let (id, name) = tokenizer.control_tokens().last().unwrap();
    let text = format!("A{name}B");
    for (fields, special) in [
        (json!({}), Special::Off),
        (json!({ "parse_special": false }), Special::Off),
        (json!({ "parse_special": true }), Special::On),
    ] {
        let expected = tokenizer.encode_prompt(&text, special).unwrap();
        assert_eq!(expected.contains(&id), special == Special::On);
        let mut request = json!({ "prompt": text, "max_tokens": 1 });
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let reply = server.post("/v1/completions", &request).json();
        assert_eq!(reply["usage"]["prompt_tokens"], expected.len(), "{fields}");
    }
    let chat = |fields: Value| {
        let mut request = json!({ "messages": [{ "role": "user", "content": "A" }], "max_tokens": 1 });
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.post("/v1/chat/completions", &request)
    };
    let tokens = |fields: Value| chat(fields).json()["usage"]["prompt_tokens"].as_u64().unwrap();
    let plain = tokens(json!({ "enable_thinking": true }));
    assert_eq!(tokens(json!({})), plain);
    // The template writes a word more.
    assert!(tokens(json!({ "enable_thinking": false })) > plain);
    assert!(tokens(json!({ "chat_template_kwargs": { "enable_thinking": false, "x": [1] } })) > plain);
    let both = json!({ "chat_template_kwargs": { "enable_thinking": true }, "enable_thinking": false });
    assert_eq!(tokens(both), plain);
    let error = chat(json!({ "chat_template_kwargs": { "messages": [] } })).error(400);
    assert!(error.contains("\"messages\" stands for what every prompt has"), "{error}");
    server.join();
}

#[test]
fn requests_of_the_wrong_kind_are_refused() {
    let options =
        ServeOptions { max_body: 1000, api_key: Some("secret".into()), ..ServeOptions::new("tiny") };
    let server = Server::start(1, 64, options);
    let body = r#"{"prompt":"A","max_tokens":1}"#;
    let json = "Content-Type: application/json";
    let key = "Authorization: Bearer secret";
    let send = |headers: &[&str], body: &str| server.send("POST", "/v1/completions", headers, body).read();
    assert_eq!(send(&[json, key], body).status, 200);
    for headers in [&[json][..], &[json, "Authorization: Bearer secre"], &[json, "Authorization: secret"]] {
        let answer = send(headers, body);
        assert!(answer.error(401).contains("Authorization: Bearer KEY"));
        assert!(answer.headers.iter().any(|header| header == "www-authenticate: bearer"), "{answer:?}");
    }
    assert!(send(&[key, "Content-Type: text/plain"], body).error(415).contains("expected application/json"));
    assert!(send(&[json, key], &" ".repeat(1001)).error(413).contains("larger than 1000 bytes"));
    assert!(send(&[json, key], "{").error(400).contains("the body is not what it should be"));
    // A page of another site can take a name for this address, but not the name of this machine.
    assert!(send(&[json, key, "Host: evil.example:8080"], body).error(403).contains("localhost only"));
    for host in ["Host: localhost:1", "Host: [::1]:8080", "Host: 127.0.0.1"] {
        assert_eq!(send(&[json, key, host], body).status, 200, "{host}");
    }
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.get("/health").json(), json!({ "status": "ok" }));
    let get = |path: &str| server.send("GET", path, &[key], "").read();
    assert_eq!(get("/v1/models").json()["data"][0]["id"], "tiny");
    assert_eq!(get("/v1/models/tiny").json()["object"], "model");
    assert!(get("/v1/models/other/name").error(404).contains("\"other/name\""));
    assert_eq!(get("/v1/engines").error(404), "there is nothing at /v1/engines");
    assert_eq!(get("/v1/completions").error(405), "/v1/completions does not take GET");
    for (path, kind) in [("/", "text/html"), ("/chat.js", "text/javascript"), ("/chat.css", "text/css")] {
        let page = server.get(path);
        assert_eq!(page.status, 200);
        assert!(page.headers.contains(&format!("content-type: {kind}; charset=utf-8")), "{page:?}");
        assert!(page.headers.iter().any(|h| h.starts_with("content-security-policy: default-src 'none'")));
    }
    server.join();
}
