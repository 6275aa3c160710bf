//! The fields of requests in OpenAI's API, and which of them are supported.
//!
//! A field that would change the reply and is not supported is refused by name, unless its value asks for nothing, such as
//! `n: 1`. Unknown fields are ignored, because clients send new optional fields all the time.

use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use halfbyte::sampler::SamplerConfig;
use halfbyte_tokenizer::Special;
use halfbyte_tokenizer::chat::{Arguments, Message, Role};

/// The most stop strings of a request.
const MAX_STOPS: usize = 16;

/// The body of `POST /v1/chat/completions`.
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    messages: Vec<ChatMessage>,
    tools: Option<Vec<Value>>,
    functions: Option<Vec<Value>>,
    response_format: Option<ResponseFormat>,
    max_completion_tokens: Option<u32>,
    /// What the template is told by name, as in vLLM and llama.cpp.
    chat_template_kwargs: Option<Arguments>,
    /// The same as `enable_thinking` in `chat_template_kwargs`, which has precedence.
    enable_thinking: Option<bool>,
    #[serde(flatten)]
    pub(super) common: Common,
}

/// The body of `POST /v1/completions`.
#[derive(Debug, Deserialize)]
pub(super) struct TextRequest {
    prompt: TextPrompt,
    /// Whether the names of control tokens in the prompt are the tokens: for a client that has applied a chat template
    /// itself. The name is that of llama.cpp's `/tokenize`.
    parse_special: Option<bool>,
    echo: Option<bool>,
    suffix: Option<String>,
    best_of: Option<u32>,
    #[serde(flatten)]
    pub(super) common: Common,
}

/// What both kinds of request have.
#[derive(Debug, Deserialize)]
pub(super) struct Common {
    pub(super) model: Option<String>,
    max_tokens: Option<u32>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<OneOrMore<String>>,
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    logit_bias: Option<serde_json::Map<String, Value>>,
    logprobs: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
    tool_calls: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TextPrompt {
    Text(String),
    Texts(Vec<String>),
    Ids(Vec<u32>),
}

/// A prompt of `POST /v1/completions`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// To be tokenized.
    Text {
        /// The prompt.
        text: String,
        /// Whether names of control tokens are the tokens, and not text.
        special: Special,
    },
    /// Tokens as they are.
    Ids(Vec<u32>),
}

impl ChatRequest {
    /// The conversation.
    pub(super) fn messages(&self) -> Result<Vec<Message>, ApiError> {
        self.check()?;
        if self.messages.is_empty() {
            return Err(ApiError::invalid("messages", "messages is empty: expected at least one"));
        }
        self.messages.iter().enumerate().map(|(i, message)| message.read(i)).collect()
    }

    /// What the template is told by name.
    pub(super) fn arguments(&self) -> Arguments {
        let mut arguments = self.chat_template_kwargs.clone().unwrap_or_default();
        if let Some(thinking) = self.enable_thinking
            && !arguments.names().any(|name| name == "enable_thinking")
        {
            arguments.set("enable_thinking", if thinking { "true" } else { "false" });
        }
        arguments
    }

    /// The most tokens of the reply; the newer name first.
    pub(super) fn max_tokens(&self) -> Result<Option<usize>, ApiError> {
        tokens("max_completion_tokens", self.max_completion_tokens.or(self.common.max_tokens))
    }

    fn check(&self) -> Result<(), ApiError> {
        let tools = [("tools", &self.tools), ("functions", &self.functions)];
        for (name, list) in tools {
            if list.as_ref().is_some_and(|list| !list.is_empty()) {
                return Err(ApiError::unsupported(name));
            }
        }
        match &self.response_format {
            Some(format) if format.kind != "text" => Err(ApiError::invalid(
                "response_format",
                format!("response_format {:?} is not supported: expected \"text\"", format.kind),
            )),
            _ => Ok(()),
        }
    }
}

impl ChatMessage {
    fn read(&self, i: usize) -> Result<Message, ApiError> {
        let at = |field: &str| format!("messages[{i}].{field}");
        let role = match self.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            other => {
                let message = format!(
                    "{} is {other:?}: expected system, developer, user, assistant or tool",
                    at("role")
                );
                return Err(ApiError::invalid(&at("role"), message));
            }
        };
        if self.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty()) {
            return Err(ApiError::unsupported(&at("tool_calls")));
        }
        let content = match &self.content {
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let text = |part: &ContentPart| match (part.kind.as_str(), &part.text) {
                    ("text", Some(text)) => Ok(text.clone()),
                    (kind, _) => Err(ApiError::invalid(
                        &at("content"),
                        format!("{} has a part of type {kind:?}: expected text", at("content")),
                    )),
                };
                parts.iter().map(text).collect::<Result<String, _>>()?
            }
            None => {
                let message = format!("{} is missing: expected a text", at("content"));
                return Err(ApiError::invalid(&at("content"), message));
            }
        };
        Ok(Message::new(role, content))
    }
}

impl TextRequest {
    /// The text to continue.
    pub(super) fn prompt(&self) -> Result<Prompt, ApiError> {
        if self.echo == Some(true) {
            return Err(ApiError::unsupported("echo"));
        }
        if self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            return Err(ApiError::unsupported("suffix"));
        }
        if self.best_of.is_some_and(|n| n > 1) {
            return Err(ApiError::unsupported("best_of"));
        }
        let special = if self.parse_special == Some(true) { Special::On } else { Special::Off };
        match &self.prompt {
            TextPrompt::Text(text) => Ok(Prompt::Text { text: text.clone(), special }),
            TextPrompt::Texts(texts) => match texts.as_slice() {
                [text] => Ok(Prompt::Text { text: text.clone(), special }),
                texts => Err(ApiError::invalid(
                    "prompt",
                    format!("prompt is a list of {} texts: expected one text in a request", texts.len()),
                )),
            },
            TextPrompt::Ids(ids) => Ok(Prompt::Ids(ids.clone())),
        }
    }

    /// The most tokens of the reply; without the field it is 16, as in the API.
    pub(super) fn max_tokens(&self) -> Result<Option<usize>, ApiError> {
        tokens("max_tokens", Some(self.common.max_tokens.unwrap_or(16)))
    }
}

impl Common {
    /// The sampler's settings: those of the request, and `defaults` for the rest. `seed` is used if the request has none.
    pub(super) fn sampling(&self, defaults: SamplerConfig, seed: u64) -> Result<SamplerConfig, ApiError> {
        for (name, penalty) in
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)]
        {
            if penalty.is_some_and(|p| p != 0.0) {
                return Err(ApiError::unsupported(name));
            }
        }
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::unsupported("n"));
        }
        if self.logit_bias.as_ref().is_some_and(|bias| !bias.is_empty()) {
            return Err(ApiError::unsupported("logit_bias"));
        }
        if !matches!(self.logprobs, None | Some(Value::Null | Value::Bool(false))) {
            return Err(ApiError::unsupported("logprobs"));
        }
        Ok(SamplerConfig {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repeat_penalty: self.repeat_penalty.unwrap_or(defaults.repeat_penalty),
            seed: self.seed.map_or(seed, i64::cast_unsigned),
            ..defaults
        })
    }

    /// The texts that end the reply.
    pub(super) fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(OneOrMore::One(stop)) => vec![stop.clone()],
            Some(OneOrMore::More(stops)) => stops.clone(),
        };
        if stops.len() > MAX_STOPS {
            let message = format!("stop has {} texts: expected at most {MAX_STOPS}", stops.len());
            return Err(ApiError::invalid("stop", message));
        }
        Ok(stops)
    }

    /// Whether a stream ends with the numbers of tokens.
    pub(super) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage == Some(true))
    }
}

fn tokens(name: &str, got: Option<u32>) -> Result<Option<usize>, ApiError> {
    match got {
        Some(0) => Err(ApiError::invalid(name, format!("{name} is 0: expected at least 1"))),
        got => Ok(got.map(|n| n as usize)),
    }
}
