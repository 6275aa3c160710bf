//! Python's methods of texts and dictionaries, and the filters that are not minijinja's own.

use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::meter::Meter;
use super::operators::{Cost, charge, finish};

/// The most that a text is indented or padded by.
const MAX_WIDTH: usize = 1000;

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Calls a method of a value.
pub(super) fn call(state: &State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let meter = Meter::of(state);
    let mut all = vec![value.clone()];
    all.extend_from_slice(args);
    if name == "join" {
        // The method has the separator first, the filter the list.
        all.reverse();
    }
    let cost =
        if matches!(name, "get" | "items" | "keys" | "values") { Cost::Elements } else { Cost::Everything };
    if name != "get" {
        charge(&meter, name, cost, &all)?;
    }
    let made = match value.as_str() {
        Some(text) => of_text(text, name, args)?,
        None => None,
    };
    match made {
        Some(made) => finish(&meter, made),
        None => finish(&meter, pycompat::unknown_method_callback(state, value, name, args)?),
    }
}

/// The methods of texts that pycompat lacks or has in another way than Python.
fn of_text(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let position = |at: Option<usize>| match at {
        // Python counts characters.
        Some(at) => Value::from(text[..at].chars().count()),
        None => Value::from(-1),
    };
    Ok(Some(match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "split" | "rsplit" => {
            let (separator, most, kwargs): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.or(kwargs.get("sep")?);
            let most = most.or(kwargs.get("maxsplit")?);
            kwargs.assert_all_used()?;
            // A negative number stands for no limit.
            let most = most.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
            let parts = match separator {
                Some("") => return Err(wrong(format!("{name}: the separator is empty"))),
                Some(by) if name == "split" => text.splitn(most.saturating_add(1), by).collect(),
                Some(by) => reversed(text.rsplitn(most.saturating_add(1), by).collect()),
                None if name == "split" => words(text, most),
                None => reversed(last_words(text, most)),
            };
            parts.into_iter().map(Value::from).collect()
        }
        "find" => {
            let (what,): (&str,) = from_args(args)?;
            position(text.find(what))
        }
        "rfind" => {
            let (what,): (&str,) = from_args(args)?;
            position(text.rfind(what))
        }
        "format" => {
            check_format(text)?;
            return Ok(None);
        }
        _ => return Ok(None),
    }))
}

fn reversed(mut parts: Vec<&str>) -> Vec<&str> {
    parts.reverse();
    parts
}

/// What stands between white space, from the left; after `most` cuts the rest is one part.
fn words(text: &str, most: usize) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() && parts.len() < most {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

/// [`words`] from the right, the last one first.
fn last_words(text: &str, most: usize) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text.trim_end());
    while !rest.is_empty() && parts.len() < most {
        let white = rest.char_indices().rev().find(|(_, c)| c.is_whitespace());
        let (end, start) = white.map_or((0, 0), |(at, c)| (at, at + c.len_utf8()));
        parts.push(&rest[start..]);
        rest = rest[..end].trim_end();
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

/// Refuses a format that pads to more than [`MAX_WIDTH`], or to a width that is an argument.
fn check_format(format: &str) -> Result<(), Error> {
    let mut depth = 0_usize;
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' | '}' if depth == 0 && chars.peek() == Some(&c) => {
                chars.next();
            }
            '{' if depth > 0 => return Err(wrong("format: a width that is an argument is not available")),
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '0'..='9' if depth > 0 => {
                let mut number = c.to_digit(10).unwrap_or(0) as usize;
                while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                    number = number.saturating_mul(10).saturating_add(digit as usize);
                    chars.next();
                }
                if number > MAX_WIDTH {
                    return Err(wrong(format!("format: a width of more than {MAX_WIDTH}")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// `indent(width=4, first=false, blank=false)`: indents the lines of a text after the first one.
pub(super) fn indent(state: &State<'_, '_>, text: &Value, args: &[Value]) -> Result<Value, Error> {
    let (width, first, blank, kwargs): (Option<Value>, Option<bool>, Option<bool>, Kwargs) = from_args(args)?;
    let width = width.or(kwargs.get("width")?).unwrap_or_else(|| Value::from(4));
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let indentation = match (width.as_str(), width.as_usize()) {
        (Some(text), _) if text.len() <= MAX_WIDTH => text.to_owned(),
        (None, Some(n)) if n <= MAX_WIDTH => " ".repeat(n),
        _ => return Err(wrong(format!("indent: expected a text or at most {MAX_WIDTH}, got {width}"))),
    };
    let meter = Meter::of(state);
    let mut plain = String::new();
    meter.write_text(text, &mut plain)?;
    let mut out = String::new();
    for (i, line) in plain.split('\n').enumerate() {
        meter.charge(line.len() + indentation.len() + 1)?;
        if i > 0 {
            out.push('\n');
        }
        let indented = if i == 0 { first } else { blank || !line.is_empty() };
        if indented {
            out.push_str(&indentation);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// `int(default=0)`: a number without its fraction, or the default for what is no number.
pub(super) fn int(value: &Value, default: Option<i64>) -> Value {
    let number = match value.as_str() {
        Some(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|number| number as i64))
        }
        None if value.is_integer() => return value.clone(),
        None => f64::try_from(value.clone()).ok().map(|number| number as i64),
    };
    Value::from(number.or(default).unwrap_or(0))
}

/// Jinja2's tests whose answers are others than minijinja's. An undefined value can be iterated over and called there.
pub(super) fn is_callable(value: &Value) -> bool {
    let is_macro = |value: &Value| value.as_object().is_some_and(|o| o.type_name().ends_with("::Macro"));
    value.is_undefined() || value.kind() == ValueKind::Plain || is_macro(value)
}

/// Whether Python finds a length and elements: in texts and dictionaries, too.
pub(super) fn is_sequence(value: &Value) -> bool {
    value.as_str().is_some() || matches!(value.kind(), ValueKind::Undefined | ValueKind::Seq | ValueKind::Map)
}

/// Whether Python can iterate over the value.
pub(super) fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}
