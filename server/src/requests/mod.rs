//! What clients of OpenAI's API ask for: bodies of requests, read and checked up to the point where a model is needed.
//!
//! ```text
//! body -> fields -> chat template -> tokens -> length, sampler, stop strings -> ApiRequest
//!   '-------'-----------'--------------'-----------'-> ApiError, which says what was expected
//! ```
//!
//! This needs no socket.

mod body;
mod error;

pub use error::{ApiError, ErrorBody, ErrorFields};

use std::sync::Arc;

use serde::de::DeserializeOwned;

use body::{ChatRequest, Common, Prompt, TextRequest};
use halfbyte::generate::{Beginning, Request, StopStrings};
use halfbyte::sampler::{Sampler, SamplerConfig};
use halfbyte_tokenizer::chat::{Arguments, ChatError, ChatOptions, ChatTemplate, Message};
use halfbyte_tokenizer::{Special, Tokenizer};

/// The two kinds of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `POST /v1/chat/completions`: the next turn of a conversation.
    Chat,
    /// `POST /v1/completions`: more of a text.
    Text,
}

/// A request that can be answered.
#[derive(Debug)]
pub struct ApiRequest {
    /// What kind it is.
    pub form: Form,
    /// What the scheduler makes the reply from. The prompt has at least one token and no more than a context holds, all of
    /// them the model's; at least one token is to be made.
    pub request: Request,
    /// Whether the reply comes in pieces.
    pub stream: bool,
    /// Whether these end with the numbers of tokens.
    pub include_usage: bool,
}

/// Reads requests to one model.
#[derive(Debug)]
pub struct Reader {
    tokenizer: Arc<Tokenizer>,
    /// Or the answer to every conversation.
    template: Result<ChatTemplate, ApiError>,
    model_name: String,
    sampling: SamplerConfig,
    context: usize,
    /// The most bytes of text that are tokenized: as many as a context of the vocabulary's longest token stands for.
    max_text: usize,
}

impl Reader {
    /// For a model that clients call `model_name`, in contexts of so many tokens; `sampling` is for what requests do not say.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        model_name: impl Into<String>,
        sampling: SamplerConfig,
        context: usize,
    ) -> Self {
        let template = ChatTemplate::new(&tokenizer).map_err(|error| no_chat(&error));
        let bytes = |id| tokenizer.piece_bytes(id, Special::On).map_or(0, <[u8]>::len);
        let longest = (0..tokenizer.n_vocab() as u32).map(bytes).max().unwrap_or(0);
        let max_text = context.saturating_mul(longest);
        Self { tokenizer, template, model_name: model_name.into(), sampling, context, max_text }
    }

    /// The answer to every conversation, if the model has no chat template or an invalid one.
    pub fn chat_error(&self) -> Option<&ApiError> {
        self.template.as_ref().err()
    }

    /// What `body` asks for. `seed` is for requests that have none.
    ///
    /// # Errors
    /// What is wrong with it, with a status from 400 to 499.
    pub fn read(&self, form: Form, body: &[u8], seed: u64) -> Result<ApiRequest, ApiError> {
        match form {
            Form::Chat => {
                let request: ChatRequest = parse(body)?;
                self.check_model(&request.common)?;
                let (messages, max_tokens) = (request.messages()?, request.max_tokens()?);
                self.checked(
                    form,
                    self.render(&messages, request.arguments())?,
                    &request.common,
                    max_tokens,
                    seed,
                )
            }
            Form::Text => {
                let request: TextRequest = parse(body)?;
                self.check_model(&request.common)?;
                let (prompt, max_tokens) = (request.prompt()?, request.max_tokens()?);
                self.checked(form, self.encode(prompt)?, &request.common, max_tokens, seed)
            }
        }
    }

    fn check_model(&self, common: &Common) -> Result<(), ApiError> {
        common.model.as_deref().map_or(Ok(()), |name| self.check_model_name(name))
    }

    /// Refuses another name than the model's.
    ///
    /// # Errors
    /// Status 404.
    pub fn check_model_name(&self, name: &str) -> Result<(), ApiError> {
        let served = &self.model_name;
        if name == served {
            return Ok(());
        }
        let name: String = name.chars().take(100).collect();
        let message = format!("there is no model {name:?} here: expected {served:?}, or none to be named");
        let mut error = ApiError::new(404, Some("model_not_found"), message);
        error.body.error.param = Some("model".to_owned());
        Err(error)
    }

    /// The conversation as the model's template writes it.
    fn render(&self, messages: &[Message], arguments: Arguments) -> Result<Vec<u32>, ApiError> {
        let template = self.template.as_ref().map_err(ApiError::clone)?;
        self.check_text("messages", messages.iter().map(|message| message.content.len()).sum())?;
        let options = ChatOptions { arguments, ..ChatOptions::default() };
        let prompt = template.prompt(&self.tokenizer, messages, &options);
        prompt.map(|prompt| prompt.ids).map_err(|error| {
            let field = match error {
                ChatError::Argument { .. } => "chat_template_kwargs",
                _ => "messages",
            };
            ApiError::invalid(field, error.to_string())
        })
    }

    /// Refuses a text that is too long for any context, before time and memory are spent on its tokens.
    fn check_text(&self, field: &str, bytes: usize) -> Result<(), ApiError> {
        let (max, context) = (self.max_text, self.context);
        if bytes <= max {
            return Ok(());
        }
        let message =
            format!("{field} is {bytes} bytes long, a context of {context} tokens takes {max} at most");
        Err(context_length_exceeded(field, message))
    }

    fn encode(&self, prompt: Prompt) -> Result<Vec<u32>, ApiError> {
        let ids = match prompt {
            Prompt::Text { text, special } => {
                self.check_text("prompt", text.len())?;
                let ids = self.tokenizer.encode_prompt(&text, special);
                ids.map_err(|error| ApiError::invalid("prompt", error.to_string()))?
            }
            Prompt::Ids(ids) => ids,
        };
        let n_vocab = self.tokenizer.n_vocab();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
            let message = format!("prompt has the token {id}: expected ids below {n_vocab}");
            return Err(ApiError::invalid("prompt", message));
        }
        Ok(ids)
    }

    fn checked(
        &self,
        form: Form,
        mut prompt: Vec<u32>,
        common: &Common,
        max_tokens: Option<usize>,
        seed: u64,
    ) -> Result<ApiRequest, ApiError> {
        let field = if form == Form::Chat { "messages" } else { "prompt" };
        if prompt.is_empty() {
            // An empty text is the token that begins one.
            let bos = self.tokenizer.bos_id().ok_or_else(|| {
                ApiError::invalid(field, format!("{field} has no tokens: expected some text"))
            })?;
            prompt.push(bos);
        }
        if prompt.len() > self.context {
            let (got, context) = (prompt.len(), self.context);
            let message = format!("{field} is {got} tokens long, the context holds {context}");
            return Err(context_length_exceeded(field, message));
        }
        let config = common.sampling(self.sampling, seed)?;
        let sampler = Sampler::new(config).map_err(|error| ApiError::new(400, None, error.to_string()))?;
        let beginning = match form {
            Form::Chat => Beginning::Turn,
            Form::Text => Beginning::Continuation,
        };
        let max_tokens = max_tokens.unwrap_or(usize::MAX);
        let stops = StopStrings::new(common.stops()?);
        Ok(ApiRequest {
            form,
            request: Request { prompt, sampler, max_tokens, stops, beginning },
            stream: common.stream == Some(true),
            include_usage: common.include_usage(),
        })
    }
}

fn no_chat(error: &ChatError) -> ApiError {
    let message = format!("{error}; POST /v1/completions continues a text");
    let mut error = ApiError::invalid("messages", message);
    error.body.error.code = Some("no_chat_template");
    error
}

fn context_length_exceeded(field: &str, message: String) -> ApiError {
    let mut error = ApiError::invalid(field, message);
    error.body.error.code = Some("context_length_exceeded");
    error
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::new(400, None, format!("the body is not what it should be: {error}")))
}
