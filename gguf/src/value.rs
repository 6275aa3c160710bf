//! Metadata values: twelve scalar types, strings, and arrays of them.

use std::fmt;
use std::ops::Index;

/// A metadata value as the file stores it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is named for the Rust type it holds")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// A metadata array: elements of one type, never arrays.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is named for the Rust type it holds")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(StringTable),
}

/// Many strings in one allocation.
///
/// A vocabulary has 10^5 strings of a few bytes; one allocation for each would
/// dominate the time to open a file. The texts lie end to end in one `String`
/// beside the positions where each ends.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringTable {
    text: String,
    ends: Vec<usize>,
}

impl StringTable {
    /// An empty table with room for `n` strings.
    pub fn with_capacity(n: usize) -> Self {
        Self { text: String::new(), ends: Vec::with_capacity(n) }
    }

    /// Appends a string.
    pub fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`, or `None` past the end.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|i| &self[i])
    }
}

impl Index<usize> for StringTable {
    type Output = str;

    /// # Panics
    /// If `i` is not below [`StringTable::len`].
    fn index(&self, i: usize) -> &str {
        match self.get(i) {
            Some(s) => s,
            None => panic!("string {i} of a table of {}", self.len()),
        }
    }
}

impl<S: AsRef<str>> FromIterator<S> for StringTable {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut table = Self::default();
        for s in strings {
            table.push(s.as_ref());
        }
        table
    }
}

impl fmt::Debug for StringTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Runs `$body` with `$v` bound to the content of whichever variant it is.
macro_rules! each_array {
    ($array:expr, $v:ident => $body:expr) => {
        match $array {
            Array::U8($v) => $body,
            Array::I8($v) => $body,
            Array::U16($v) => $body,
            Array::I16($v) => $body,
            Array::U32($v) => $body,
            Array::I32($v) => $body,
            Array::U64($v) => $body,
            Array::I64($v) => $body,
            Array::F32($v) => $body,
            Array::F64($v) => $body,
            Array::Bool($v) => $body,
            Array::String($v) => $body,
        }
    };
}

impl Array {
    /// The number of elements.
    pub fn len(&self) -> usize {
        each_array!(self, v => v.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements: `u32`, `string`, ...
    pub fn element_type(&self) -> &'static str {
        self.type_names().0
    }

    /// The element's type and the array's.
    fn type_names(&self) -> (&'static str, &'static str) {
        match self {
            Self::U8(_) => ("u8", "an array of u8"),
            Self::I8(_) => ("i8", "an array of i8"),
            Self::U16(_) => ("u16", "an array of u16"),
            Self::I16(_) => ("i16", "an array of i16"),
            Self::U32(_) => ("u32", "an array of u32"),
            Self::I32(_) => ("i32", "an array of i32"),
            Self::U64(_) => ("u64", "an array of u64"),
            Self::I64(_) => ("i64", "an array of i64"),
            Self::F32(_) => ("f32", "an array of f32"),
            Self::F64(_) => ("f64", "an array of f64"),
            Self::Bool(_) => ("bool", "an array of bool"),
            Self::String(_) => ("string", "an array of strings"),
        }
    }
}

impl Value {
    /// The type in words, as messages use it: `a u32`, `an array of strings`, ...
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "a u8",
            Self::I8(_) => "an i8",
            Self::U16(_) => "a u16",
            Self::I16(_) => "an i16",
            Self::U32(_) => "a u32",
            Self::I32(_) => "an i32",
            Self::U64(_) => "a u64",
            Self::I64(_) => "an i64",
            Self::F32(_) => "an f32",
            Self::F64(_) => "an f64",
            Self::Bool(_) => "a bool",
            Self::String(_) => "a string",
            Self::Array(array) => array.type_names().1,
        }
    }

    /// The value if it is an integer of any type.
    pub(crate) fn as_integer(&self) -> Option<i128> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::I8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::U64(v) => Some(v.into()),
            Self::I64(v) => Some(v.into()),
            _ => None,
        }
    }
}

/// Shows the value on one line, for people: strings quoted, escaped and cut at
/// 80 characters, arrays by type, length and first few elements.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            // Debug keeps one of "1.0", "1e30" and "1e-5" short and exact.
            Self::F32(v) => write!(f, "{v:?}"),
            Self::F64(v) => write!(f, "{v:?}"),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => f.write_str(&crate::error::quote(v)),
            Self::Array(v) => v.fmt(f),
        }
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        write!(f, "[{}; {}]", self.element_type(), self.len())?;
        each_array!(self, v => {
            for (i, element) in v.iter().take(SHOWN).enumerate() {
                let separator = if i == 0 { "" } else { "," };
                write!(f, "{separator} {}", crate::error::cut(format!("{element:?}")))?;
            }
        });
        if self.len() > SHOWN { f.write_str(", ...") } else { Ok(()) }
    }
}

/// `From` for the types that metadata is usually made of. Not for i32, so that a
/// bare literal, which would become one, does not compile: counts are u32.
macro_rules! from {
    ($($from:ty => |$v:ident| $value:expr;)*) => {
        $(impl From<$from> for Value {
            fn from($v: $from) -> Self {
                $value
            }
        })*
    };
}

from! {
    u32 => |v| Self::U32(v);
    u64 => |v| Self::U64(v);
    f32 => |v| Self::F32(v);
    bool => |v| Self::Bool(v);
    &str => |v| Self::String(v.to_owned());
    String => |v| Self::String(v);
    Vec<i32> => |v| Self::Array(Array::I32(v));
    Vec<f32> => |v| Self::Array(Array::F32(v));
    StringTable => |v| Self::Array(Array::String(v));
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn string_table() {
        let table: StringTable = ["a", "", "ü→x", "end"].into_iter().collect();
        assert_eq!(table.len(), 4);
        assert_eq!(table.iter().collect::<Vec<_>>(), ["a", "", "ü→x", "end"]);
        assert_eq!((&table[2], table.get(3), table.get(4)), ("ü→x", Some("end"), None));
        assert_eq!(format!("{table:?}"), r#"["a", "", "ü→x", "end"]"#);
        assert!(StringTable::default().is_empty());
    }

    #[test]
    fn display() {
        let long = "x".repeat(100);
        for (value, text) in [
            (Value::U32(7), "7".to_owned()),
            (Value::F32(1e-5), "1e-5".to_owned()),
            (Value::F32(10000.0), "10000.0".to_owned()),
            (Value::Bool(true), "true".to_owned()),
            (Value::from("a\u{1b}[31m\n"), r#""a\u{1b}[31m\n""#.to_owned()),
            (Value::from(long.as_str()), format!("\"{}\"...", "x".repeat(80))),
            (Value::from(vec![1, 2, 3, 4, 5]), "[i32; 5] 1, 2, 3, 4, ...".to_owned()),
            (Value::from(Vec::<f32>::new()), "[f32; 0]".to_owned()),
            (
                Value::from(["a", "b"].into_iter().collect::<StringTable>()),
                r#"[string; 2] "a", "b""#.to_owned(),
            ),
        ] {
            assert_eq!(value.to_string(), text);
        }
    }
}
