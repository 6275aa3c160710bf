//! `tojson`: JSON as Python's `json.dumps` writes it, with its arguments `ensure_ascii`, `indent`, `separators` and
//! `sort_keys`.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::meter::Meter;
use super::python;

/// The widest indentation.
const MAX_INDENT: usize = 16;

/// The longest separator, in bytes.
const MAX_SEPARATOR: usize = 16;

/// How values are laid out.
struct Style {
    ascii: bool,
    /// What one level is indented by. Without it everything is one line.
    indent: Option<String>,
    comma: String,
    colon: String,
    sort_keys: bool,
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {}", message.into()))
}

/// The filter.
pub(super) fn to_json(state: &State<'_, '_>, value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) => Some(match (value.as_str(), value.as_usize()) {
            (Some(text), _) if text.len() <= MAX_INDENT => text.to_owned(),
            (None, Some(n)) if n <= MAX_INDENT => " ".repeat(n),
            _ => return Err(wrong(format!("an indent of more than {MAX_INDENT}"))),
        }),
    };
    let (comma, colon) = match kwargs.get::<Option<Vec<String>>>("separators")?.as_deref() {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some([comma, colon]) if comma.len().max(colon.len()) <= MAX_SEPARATOR => {
            (comma.clone(), colon.clone())
        }
        Some(_) => return Err(wrong(format!("separators are two texts of at most {MAX_SEPARATOR} bytes"))),
    };
    let flag = |name| kwargs.get::<Option<bool>>(name).map(|flag| flag == Some(true));
    let style = Style { ascii: flag("ensure_ascii")?, indent, comma, colon, sort_keys: flag("sort_keys")? };
    kwargs.assert_all_used()?;
    let meter = Meter::of(state);
    // This bounds the depth, too.
    meter.charge_tree(value)?;
    let mut writer = Writer { style, meter: &meter, out: String::new() };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a> {
    style: Style,
    meter: &'a Meter,
    out: String,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) -> Result<(), Error> {
        self.meter.charge(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn value(&mut self, value: &Value, level: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.block('[', ']', level, items, |this, item| this.value(&item, level + 1))
            }
            ValueKind::Map => {
                let mut keys = Vec::new();
                for key in value.try_iter()? {
                    let text = match key.as_str() {
                        Some(text) => text.to_owned(),
                        None => scalar(&key)?,
                    };
                    keys.push((text, key));
                }
                if self.style.sort_keys {
                    keys.sort();
                }
                self.block('{', '}', level, keys, |this, (text, key)| {
                    this.text(&text)?;
                    let colon = this.style.colon.clone();
                    this.push(&colon)?;
                    this.value(&value.get_item(&key)?, level + 1)
                })
            }
            _ => {
                let text = scalar(value)?;
                self.push(&text)
            }
        }
    }

    fn block<T>(
        &mut self,
        open: char,
        close: char,
        level: usize,
        items: Vec<T>,
        mut write: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.push(open.encode_utf8(&mut [0; 4]))?;
        let is_empty = items.is_empty();
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                let comma = self.style.comma.clone();
                self.push(&comma)?;
            }
            self.line(level + 1)?;
            write(self, item)?;
        }
        if !is_empty {
            self.line(level)?;
        }
        self.push(close.encode_utf8(&mut [0; 4]))
    }

    fn line(&mut self, level: usize) -> Result<(), Error> {
        match &self.style.indent {
            None => Ok(()),
            Some(indent) => {
                let line = format!("\n{}", indent.repeat(level));
                self.push(&line)
            }
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Error> {
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        for c in text.chars() {
            match c {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                '\u{8}' => quoted.push_str("\\b"),
                '\u{c}' => quoted.push_str("\\f"),
                c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
                // A private-use character of planes 15 and 16 stands for a character of a message, most often ASCII.
                c if self.style.ascii && ('\u{7f}'..'\u{f0000}').contains(&c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        quoted.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => quoted.push(c),
            }
        }
        quoted.push('"');
        self.push(&quoted)
    }
}

/// A value that holds no others and is no text.
fn scalar(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if value.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number if value.is_integer() => Ok(value.to_string()),
        ValueKind::Number => {
            let number = f64::try_from(value.clone()).map_err(|_| wrong("a number out of range"))?;
            Ok(python::float(number, ["NaN", "Infinity"]))
        }
        kind => Err(wrong(format!("a value of kind {kind} has no JSON"))),
    }
}
