//! The Jinja dialect that chat templates are written in, with limits.

use std::collections::BTreeMap;
use std::fmt;

use minijinja::machinery::{Vm, make_string_output};
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, context};

use super::compile::{Program, compile};
use super::meter::Exhausted;
use super::{ChatError, ChatOptions, MAX_FUEL, MAX_MEMORY_BYTES, MAX_OUTPUT_BYTES};
use super::{date, json, operators};

/// The name in messages: `... (in chat_template:3)`.
const NAME: &str = "chat_template";

/// The longest text of `raise_exception` that is passed on, in characters.
const MAX_REFUSAL: usize = 1000;

/// A template that compiles, and the environment that it runs in.
pub(super) struct Sandbox {
    environment: Environment<'static>,
    source: String,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").finish_non_exhaustive()
    }
}

/// The cause in an error of `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Sandbox {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`ChatError::Syntax`].
    pub(super) fn new(source: &str) -> Result<Self, ChatError> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(MAX_FUEL));
        operators::install(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", json::to_json);
        compile(NAME, source).map_err(|e| ChatError::Syntax { message: e.to_string() })?;
        Ok(Self { environment, source: source.to_owned() })
    }

    /// Runs the template on roles and contents. `tokens`: names and texts of special tokens.
    ///
    /// # Errors
    /// [`ChatError::Refused`], [`ChatError::OutOfFuel`], [`ChatError::OutOfMemory`],
    /// [`ChatError::OutputSize`], [`ChatError::Render`].
    pub(super) fn render(
        &self,
        messages: &[(&str, String)],
        tokens: &[(&'static str, &str)],
        arguments: Vec<(String, Value)>,
        options: &ChatOptions,
    ) -> Result<String, ChatError> {
        let messages: Vec<Value> =
            messages.iter().map(|(role, content)| context! { role => *role, content => content }).collect();
        let now = options.now;
        let strftime_now = move |format: &str| {
            date::format(now, format).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
        };
        // What transformers defines, the later ones in place of the earlier ones.
        let mut context: BTreeMap<String, Value> =
            tokens.iter().map(|&(name, text)| (name.to_owned(), Value::from(text))).collect();
        context.extend(arguments);
        for (name, value) in [
            ("messages", Value::from(messages)),
            ("add_generation_prompt", Value::from(options.add_generation_prompt)),
            ("strftime_now", Value::from_function(strftime_now)),
        ] {
            context.insert(name.to_owned(), value);
        }
        for name in ["tools", "documents"] {
            context.entry(name.to_owned()).or_insert_with(|| Value::from(()));
        }
        let context = Value::from(context);
        // The instructions borrow the source, so they cannot be kept beside it. Compiling takes less than a millisecond
        // for the longest published templates.
        let Program { main, blocks } = compile(NAME, &self.source).map_err(|error| explain(&error))?;
        let mut text = String::new();
        let mut output = make_string_output(&mut text);
        let ran = Vm::new(&self.environment).eval(&main, context, &blocks, &mut output, AutoEscape::None);
        ran.map(drop).map_err(|error| explain(&error))?;
        if text.len() > MAX_OUTPUT_BYTES {
            return Err(ChatError::OutputSize { limit: MAX_OUTPUT_BYTES });
        }
        Ok(text)
    }
}

/// What went wrong, by the innermost cause that says so.
fn explain(error: &Error) -> ChatError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = cause {
        if let Some(Raised(message)) = e.downcast_ref() {
            return ChatError::Refused { message: message.clone() };
        }
        if e.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return ChatError::OutOfFuel { limit: MAX_FUEL };
        }
        if e.downcast_ref::<Exhausted>().is_some() {
            return ChatError::OutOfMemory { limit: MAX_MEMORY_BYTES };
        }
        cause = e.source();
    }
    ChatError::Render { message: error.to_string() }
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    let message = message.chars().take(MAX_REFUSAL).collect();
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
}
