//! Replies in the form of OpenAI's API.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::requests::{ApiError, Form};
use halfbyte::generate::{Finish, FinishReason};

/// The fields that all objects of one reply have in common.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub(crate) form: Form,
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
}

/// Numbers of tokens.
#[derive(Debug, Serialize)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
}

#[derive(Debug, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

fn usage(end: &Finish) -> Usage {
    let usage = end.usage;
    Usage {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.reply_tokens,
        total_tokens: usage.prompt_tokens + usage.reply_tokens,
        prompt_tokens_details: PromptDetails { cached_tokens: usage.reused_tokens },
    }
}

fn reason(end: &Finish) -> &'static str {
    match end.reason {
        FinishReason::MaxTokens | FinishReason::ContextFull => "length",
        _ => "stop",
    }
}

impl Envelope {
    fn object(&self, streamed: bool, choices: &Value) -> Value {
        let object = match (self.form, streamed) {
            (Form::Chat, false) => "chat.completion",
            (Form::Chat, true) => "chat.completion.chunk",
            (Form::Text, _) => "text_completion",
        };
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": concat!("halfbyte-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        })
    }

    /// The whole reply.
    pub(crate) fn whole(&self, text: &str, end: &Finish) -> Value {
        let mut choice = json!({ "index": 0, "logprobs": null, "finish_reason": reason(end) });
        match self.form {
            Form::Chat => {
                choice["message"] = json!({ "role": "assistant", "content": text, "refusal": null });
            }
            Form::Text => choice["text"] = text.into(),
        }
        let mut object = self.object(false, &json!([choice]));
        object["usage"] = json!(usage(end));
        object
    }

    /// The first object of a stream, for those forms that have one without text.
    pub(crate) fn opening(&self) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "" });
        (self.form == Form::Chat).then(|| self.chunk(&delta, "", None))
    }

    /// An object with a part of the reply's text.
    pub(crate) fn text(&self, text: &str) -> Value {
        self.chunk(&json!({ "content": text }), text, None)
    }

    /// The object that ends the reply.
    pub(crate) fn closing(&self, end: &Finish) -> Value {
        self.chunk(&json!({}), "", Some(reason(end)))
    }

    /// The numbers of tokens, in an object without choices.
    pub(crate) fn usage(&self, end: &Finish) -> Value {
        let mut object = self.object(true, &json!([]));
        object["usage"] = json!(usage(end));
        object
    }

    fn chunk(&self, delta: &Value, text: &str, reason: Option<&str>) -> Value {
        let mut choice = json!({ "index": 0, "logprobs": null, "finish_reason": reason });
        match self.form {
            Form::Chat => choice["delta"] = delta.clone(),
            Form::Text => choice["text"] = text.into(),
        }
        self.object(true, &json!([choice]))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.body)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
