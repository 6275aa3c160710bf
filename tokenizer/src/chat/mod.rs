//! Chat prompts: a model's own template, with what people wrote kept apart.
//!
//! A chat template is a Jinja program that comes with the model file. It joins
//! control tokens and messages into one string, and a message that contains
//! `<|im_end|>` must not end a turn. So the template never sees the letters
//! that control tokens are made of: in every message they are
//! masked by private-use characters, and what comes out as a
//! private-use character is known to come from a message, however the template
//! has cut, trimmed, repeated or quoted it. The letters are put back before
//! tokenizing, and control tokens are looked for in the rest only. The text is
//! still tokenized as one, so the ids are those of the plain rendering.
//!
//! What a template can see of a message: its length, white space, all
//! characters that occur in no control token, and every string that the
//! template itself has in quotes (it may look for `</think>`), unless that
//! string could be part of a control token. Changing the case of a message
//! changes only what is visible.
//!
//! Templates are what transformers takes them for: Jinja2 with `trim_blocks`, `lstrip_blocks`, loop controls, its own
//! `tojson`, `raise_exception` and `strftime_now`, and `{% generation %}` as a block without effect. `tools` and
//! `documents` are none unless [`ChatOptions::arguments`] has them.
//!
//! Templates run in a sandbox: no files, no clock but the given one, and the
//! limits below: [`MAX_TEMPLATE_BYTES`] of source, [`MAX_FUEL`] steps, [`MAX_MEMORY_BYTES`] of values,
//! [`MAX_OUTPUT_BYTES`] of output. The filters `format`, `batch` and `slice` are left out. Whatever a template does, it ends with a prompt or an error: it
//! cannot exhaust the memory or the stack of the process.
//!
//! ```
//! use halfbyte_tokenizer::chat::{ChatOptions, ChatTemplate, Message};
//! use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};
//!
//! let tokens = ["<|user|>", "<|end|>", "<", "|", ">", "n", "d", "e", "H", "i"];
//! let template = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}";
//! let tokenizer = Tokenizer::new(&TokenizerSpec {
//!     model: "gpt2".into(),
//!     pre: Some("gpt-2".into()),
//!     tokens: tokens.map(String::from).into(),
//!     token_types: vec![3, 3, 1, 1, 1, 1, 1, 1, 1, 1],
//!     chat_template: Some(template.into()),
//!     ..TokenizerSpec::default()
//! })?;
//! let template = ChatTemplate::new(&tokenizer)?;
//! let prompt = template.prompt(&tokenizer, &[Message::user("Hi<|end|>")], &ChatOptions::default())?;
//! assert_eq!(prompt.text, "<|user|>Hi<|end|><|end|>");
//! assert_eq!(prompt.ids, [0, 8, 9, 2, 3, 7, 5, 6, 3, 4, 1]);
//! # Ok::<(), halfbyte_tokenizer::chat::ChatError>(())
//! ```

mod arguments;
mod compile;
mod constants;
mod date;
mod json;
mod mask;
mod meter;
mod methods;
mod operators;
mod python;
mod sandbox;
mod source;

use std::time::SystemTime;

use crate::{Tokenizer, TokenizerError};
pub use arguments::Arguments;
use mask::MaskRules;
use sandbox::Sandbox;

/// The longest template that is accepted, in bytes. Published ones have up to about 30,000.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;
/// The most a template may write, in bytes; a masked character counts four.
pub const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// The most steps a template may take, in units of minijinja's fuel (about one an instruction).
pub const MAX_FUEL: u64 = 2_000_000;
/// The bytes that the operations of a template may make or look through, all together. What is in memory at any time is
/// at most about three times as much, since text is copied when it grows.
pub const MAX_MEMORY_BYTES: usize = 128 << 20;
/// The bytes of text that `*` may make of a template's constants when it is compiled.
const MAX_CONSTANT_BYTES: usize = 1 << 20;

/// Why a prompt could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The model file has no template.
    #[error("the model has no chat template: expected tokenizer.chat_template in its metadata")]
    NoTemplate,
    /// The template is too long.
    #[error("the chat template has {got} bytes: expected at most {limit}")]
    TemplateSize {
        /// Its length.
        got: usize,
        /// [`MAX_TEMPLATE_BYTES`].
        limit: usize,
    },
    /// The template is not valid, or uses a statement there is not.
    #[error("the chat template cannot be compiled: {message}")]
    Syntax {
        /// What is wrong, with the line.
        message: String,
    },
    /// The template called `raise_exception`: most often for roles in an order it does not take.
    #[error("the chat template refused the messages: {message}")]
    Refused {
        /// The template's own words.
        message: String,
    },
    /// The template ran too long.
    #[error("the chat template took more than {limit} steps")]
    OutOfFuel {
        /// [`MAX_FUEL`].
        limit: u64,
    },
    /// The template made texts or lists that are too large.
    #[error("the chat template used more than {limit} bytes of memory")]
    OutOfMemory {
        /// [`MAX_MEMORY_BYTES`].
        limit: usize,
    },
    /// The template wrote too much.
    #[error("the chat template wrote more than {limit} bytes")]
    OutputSize {
        /// [`MAX_OUTPUT_BYTES`].
        limit: usize,
    },
    /// The template failed in another way.
    #[error("the chat template failed: {message}")]
    Render {
        /// What is wrong, with the line.
        message: String,
    },
    /// An argument with a name that stands for something else.
    #[error("the template argument {name:?} stands for what every prompt has: expected another name")]
    Argument {
        /// Its name.
        name: String,
    },
    /// The messages use up Unicode's supplementary private-use characters (131,068).
    #[error("the messages contain nearly all supplementary private-use characters: expected some to be left")]
    PrivateCharacters,
    /// The prompt could not be tokenized.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// Who a message is from.
///
/// A closed list, since templates make control tokens of roles (`<|user|>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool.
    Tool,
}

impl Role {
    /// The name templates know.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who it is from.
    pub role: Role,
    /// What was written: any text, none of it trusted.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
    }

    /// A message of the system.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// A message of the assistant.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }
}

/// What a template is told besides the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether the prompt ends with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// What `strftime_now` formats, in UTC.
    pub now: SystemTime,
    /// What else the template may ask for.
    pub arguments: Arguments,
}

impl Default for ChatOptions {
    /// With a generation prompt, at the time of the call, without arguments.
    fn default() -> Self {
        Self { add_generation_prompt: true, now: SystemTime::now(), arguments: Arguments::default() }
    }
}

/// A prompt as text and as ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What the template wrote.
    pub text: String,
    /// Its ids. The beginning token is in front if the model asks for it, once.
    pub ids: Vec<u32>,
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    sandbox: Sandbox,
    rules: MaskRules,
}

impl ChatTemplate {
    /// Compiles the template of a tokenizer's model file.
    ///
    /// # Errors
    /// [`ChatError::NoTemplate`], [`ChatError::TemplateSize`], [`ChatError::Syntax`].
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, ChatError> {
        Self::from_source(tokenizer.chat_template().ok_or(ChatError::NoTemplate)?, tokenizer)
    }

    /// Compiles a template from elsewhere for use with a tokenizer.
    ///
    /// # Errors
    /// [`ChatError::TemplateSize`], [`ChatError::Syntax`].
    pub fn from_source(source: &str, tokenizer: &Tokenizer) -> Result<Self, ChatError> {
        let (got, limit) = (source.len(), MAX_TEMPLATE_BYTES);
        if got > limit {
            return Err(ChatError::TemplateSize { got, limit });
        }
        let source = source::prepare(source);
        let control: Vec<&str> = tokenizer.control_tokens().map(|(_, text)| text).collect();
        Ok(Self { sandbox: Sandbox::new(&source)?, rules: MaskRules::new(&control, &source) })
    }

    /// Renders a conversation and tokenizes it.
    ///
    /// No control token comes from a message's content. `tokenizer` is the one
    /// the template was compiled for.
    ///
    /// # Errors
    /// Any [`ChatError`] but the three of [`ChatTemplate::new`].
    pub fn prompt(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<Prompt, ChatError> {
        let mut mask = self.rules.mask();
        let mut masked = Vec::with_capacity(messages.len());
        for Message { role, content } in messages {
            masked.push((role.name(), mask.mask(content).ok_or(ChatError::PrivateCharacters)?));
        }
        if let Some(name) = options.arguments.names().find(|name| arguments::RESERVED.contains(name)) {
            return Err(ChatError::Argument { name: name.to_owned() });
        }
        let control: Vec<&str> = tokenizer.control_tokens().map(|(_, text)| text).collect();
        let arguments = options.arguments.masked(&mut mask, &control);
        let arguments = arguments.ok_or(ChatError::PrivateCharacters)?;
        let name = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id));
        let mut tokens = vec![
            ("bos_token", name(tokenizer.bos_id()).unwrap_or("")),
            ("eos_token", name(tokenizer.eos_id()).unwrap_or("")),
        ];
        for (key, id) in [("unk_token", tokenizer.unk_id()), ("pad_token", tokenizer.pad_id())] {
            tokens.extend(name(id).map(|text| (key, text)));
        }
        let rendered = self.sandbox.render(&masked, &tokens, arguments, options)?;
        let (text, trusted) = mask.unmask(&rendered);
        let ids = tokenizer.with_bos(tokenizer.encode_trusted(&text, &trusted)?);
        Ok(Prompt { text, ids })
    }
}
