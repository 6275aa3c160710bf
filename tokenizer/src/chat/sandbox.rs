//! The Jinja dialect that chat templates are written in, with limits.

use std::fmt;
use std::io;

use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, context};
use minijinja_contrib::pycompat;
use serde::Serialize as _;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::date;
use super::{ChatError, ChatOptions, MAX_FUEL, MAX_OUTPUT_BYTES};

/// The name in messages: `... (in chat_template:3)`.
const NAME: &str = "chat_template";

/// The widest indentation `tojson` makes.
const MAX_INDENT: usize = 16;

/// A compiled template in its environment.
pub(super) struct Sandbox {
    environment: Environment<'static>,
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
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(MAX_FUEL));
        environment.set_unknown_method_callback(method);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", to_json);
        for filter in ["batch", "format", "indent", "slice"] {
            environment.remove_filter(filter);
        }
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|e| ChatError::Syntax { message: e.to_string() })?;
        Ok(Self { environment })
    }

    /// Runs the template on roles and contents.
    ///
    /// # Errors
    /// [`ChatError::Refused`], [`ChatError::OutOfFuel`],
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
        let mut output = Limited { bytes: Vec::new(), exceeded: false };
        let result = (self.environment.get_template(NAME))
            .and_then(|t| t.render_captured_to(context, &mut output).map(drop));
        match result {
            Ok(()) => String::from_utf8(output.bytes)
                .map_err(|_| ChatError::Render { message: "the output is not UTF-8".into() }),
            Err(_) if output.exceeded => Err(ChatError::OutputSize { limit: MAX_OUTPUT_BYTES }),
            Err(error) => Err(explain(&error)),
        }
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
        cause = e.source();
    }
    ChatError::Render { message: error.to_string() }
}

/// Python's string and dictionary methods, but for `format`, which pads to any length.
fn method(state: &State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if name == "format" {
        return Err(Error::new(ErrorKind::UnknownMethod, "format is not available in chat templates"));
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
}

/// JSON as Python's `json.dumps` writes it: `, ` and `: ` between, no escapes beyond JSON's.
fn to_json(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let wrong = |message| Error::new(ErrorKind::InvalidOperation, message);
    if ascii == Some(true) {
        return Err(wrong("tojson: ensure_ascii=true is not available"));
    }
    let mut out = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut out, PythonStyle)),
        Some(n) if n <= MAX_INDENT => {
            let formatter = PrettyFormatter::with_indent(&b"                "[..n]);
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        Some(_) => return Err(wrong("tojson: an indent of more than 16")),
    };
    written.map_err(|e| Error::new(ErrorKind::BadSerialization, "tojson").with_source(e))?;
    String::from_utf8(out).map_err(|_| wrong("tojson: not UTF-8"))
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

/// Keeps what is written, up to [`MAX_OUTPUT_BYTES`].
struct Limited {
    bytes: Vec<u8>,
    exceeded: bool,
}

impl io::Write for Limited {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.len() > MAX_OUTPUT_BYTES - self.bytes.len() {
            self.exceeded = true;
            return Err(io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
