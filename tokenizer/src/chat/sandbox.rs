//! The Jinja dialect that chat templates are written in, with limits.

use std::fmt;
use std::io;

use minijinja::machinery::{Vm, make_string_output};
use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, context};
use serde::Serialize as _;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::compile::{Program, compile};
use super::meter::{Exhausted, Meter};
use super::{ChatError, ChatOptions, MAX_FUEL, MAX_MEMORY_BYTES, MAX_OUTPUT_BYTES};
use super::{date, operators};

/// The name in messages: `... (in chat_template:3)`.
const NAME: &str = "chat_template";

/// The widest indentation `tojson` makes.
const MAX_INDENT: usize = 16;

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
        environment.add_filter("tojson", to_json);
        compile(NAME, source).map_err(|e| ChatError::Syntax { message: e.to_string() })?;
        Ok(Self { environment, source: source.to_owned() })
    }

    /// Runs the template on roles and contents.
    ///
    /// # Errors
    /// [`ChatError::Refused`], [`ChatError::OutOfFuel`], [`ChatError::OutOfMemory`],
    /// [`ChatError::OutputSize`], [`ChatError::Render`].
    pub(super) fn render(
        &self,
        messages: &[(&str, String)],
        bos: Option<&str>,
        eos: Option<&str>,
        options: &ChatOptions,
    ) -> Result<String, ChatError> {
        let messages: Vec<Value> =
            messages.iter().map(|(role, content)| context! { role => *role, content => content }).collect();
        let now = options.now;
        let strftime_now = move |format: &str| {
            date::format(now, format).map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
        };
        let context = context! {
            messages,
            bos_token => bos.unwrap_or(""),
            eos_token => eos.unwrap_or(""),
            add_generation_prompt => options.add_generation_prompt,
            strftime_now => Value::from_function(strftime_now),
        };
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

/// JSON as Python's `json.dumps` writes it: `, ` and `: ` between, no escapes beyond JSON's.
fn to_json(state: &State<'_, '_>, value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let wrong = |message| Error::new(ErrorKind::InvalidOperation, message);
    if ascii == Some(true) {
        return Err(wrong("tojson: ensure_ascii=true is not available"));
    }
    let meter = Meter::of(state);
    let mut out = Charged { bytes: Vec::new(), meter: &meter, error: None };
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut out, PythonStyle)),
        Some(n) if n <= MAX_INDENT => {
            let formatter = PrettyFormatter::with_indent(&b"                "[..n]);
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        Some(_) => return Err(wrong("tojson: an indent of more than 16")),
    };
    if let Err(error) = written {
        let other = || Error::new(ErrorKind::BadSerialization, "tojson").with_source(error);
        return Err(out.error.take().unwrap_or_else(other));
    }
    String::from_utf8(out.bytes).map_err(|_| wrong("tojson: not UTF-8"))
}

/// One line, with a space after each comma and colon.
struct PythonStyle;

impl Formatter for PythonStyle {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Keeps what is written, and charges for it.
struct Charged<'a> {
    bytes: Vec<u8>,
    meter: &'a Meter,
    error: Option<Error>,
}

impl io::Write for Charged<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.meter.charge(buf.len()) {
            self.error = Some(error);
            return Err(io::Error::other("memory limit"));
        }
        self.bytes.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
