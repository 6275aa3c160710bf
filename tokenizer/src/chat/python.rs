//! Values as Python shows them: what `{{ value }}`, `~`, `join` and `string` write.
//!
//! Chat templates are written for Jinja2, where a value that is no text is written by Python's `str`: `None`, `True`,
//! `1e-05`, `['a', {'b': 1}]`.

use std::fmt::{self, Write};

use minijinja::value::{Value, ValueKind};

/// Writes `str(value)`. An undefined value is written as nothing.
pub(super) fn write(value: &Value, out: &mut dyn Write) -> fmt::Result {
    match value.as_str() {
        Some(text) => out.write_str(text),
        None if value.is_undefined() => Ok(()),
        None => repr(value, out),
    }
}

/// Writes `repr(value)`.
fn repr(value: &Value, out: &mut dyn Write) -> fmt::Result {
    match value.kind() {
        ValueKind::Undefined => out.write_str("Undefined"),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) => out.write_str(&float(number, ["nan", "inf"])),
            Err(_) => write!(out, "{value}"),
        },
        ValueKind::String => text(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.write_char('[')?;
            for (i, item) in value.try_iter().map_err(|_| fmt::Error)?.enumerate() {
                if i > 0 {
                    out.write_str(", ")?;
                }
                repr(&item, out)?;
            }
            out.write_char(']')
        }
        ValueKind::Map => {
            out.write_char('{')?;
            for (i, key) in value.try_iter().map_err(|_| fmt::Error)?.enumerate() {
                if i > 0 {
                    out.write_str(", ")?;
                }
                repr(&key, out)?;
                out.write_str(": ")?;
                repr(&value.get_item(&key).map_err(|_| fmt::Error)?, out)?;
            }
            out.write_char('}')
        }
        _ => write!(out, "{value}"),
    }
}

/// Writes a text in quotes. Private-use characters, which stand for characters of a message, are left as they are.
fn text(text: &str, out: &mut dyn Write) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c if c == quote => write!(out, "\\{c}")?,
            c if c.is_control() || (c.is_whitespace() && c != ' ') => match u32::from(c) {
                code @ 0..0x100 => write!(out, "\\x{code:02x}")?,
                code => write!(out, "\\u{code:04x}")?,
            },
            c => out.write_char(c)?,
        }
    }
    out.write_char(quote)
}

/// The shortest decimal number that is read back as `number`, as Python writes it. `names`: of no number and of infinity.
pub(super) fn float(number: f64, names: [&str; 2]) -> String {
    if number.is_nan() {
        return names[0].to_owned();
    }
    if number.is_infinite() {
        let sign = if number < 0.0 { "-" } else { "" };
        return format!("{sign}{}", names[1]);
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(e) if !(-4..16).contains(&e) => {
            let sign = if e < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", e.abs())
        }
        _ => format!("{number:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats() {
        // As Python 3.11 prints them.
        for (number, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-2.5e300, "-2.5e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(number, ["nan", "inf"]), text);
        }
    }
}
