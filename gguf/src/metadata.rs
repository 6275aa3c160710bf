//! The metadata of a file: an ordered map with typed lookups.

use std::borrow::Cow;

use crate::Error;
use crate::error::quote;
use crate::value::{Array, StringTable, Value};

/// Keys and values in file order, each key once.
///
/// The typed lookups come in pairs: `u32(key)` needs the key, `opt_u32(key)`
/// gives `None` when it is absent. Both refuse a value of another type: a wrong
/// type is a wrong file and never a reason to fall back to a default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    /// Positions in `entries`, sorted by key.
    by_key: Vec<usize>,
}

impl Metadata {
    /// No entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes entries as read.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`].
    pub(crate) fn from_entries(entries: Vec<(String, Value)>) -> Result<Self, Error> {
        match sorted_index(entries.len(), |i| &entries[i].0) {
            Ok(by_key) => Ok(Self { entries, by_key }),
            Err(i) => Err(Error::DuplicateKey { key: quote(&entries[i].0) }),
        }
    }

    /// Gives `key` the value, in its old place if it is there and else at the end.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let key = key.into();
        match self.search(&key) {
            Ok(at) => self.entries[self.by_key[at]].1 = value.into(),
            Err(at) => {
                self.by_key.insert(at, self.entries.len());
                self.entries.push((key, value.into()));
            }
        }
    }

    /// Takes out all entries whose key starts with `prefix`.
    pub fn remove_all(&mut self, prefix: &str) {
        self.entries.retain(|(key, _)| !key.starts_with(prefix));
        self.by_key = (0..self.entries.len()).collect();
        let entries = &self.entries;
        self.by_key.sort_unstable_by_key(|&i| &entries[i].0);
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of `key`, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.search(key).ok().map(|at| &self.entries[self.by_key[at]].1)
    }

    /// Where in `by_key` the key is or would be.
    fn search(&self, key: &str) -> Result<usize, usize> {
        self.by_key.binary_search_by(|&i| self.entries[i].0.as_str().cmp(key))
    }
}

/// Positions `0..n` sorted by name, or the position of a name that occurs twice.
pub(crate) fn sorted_index<'a>(n: usize, name: impl Fn(usize) -> &'a str) -> Result<Vec<usize>, usize> {
    let mut index: Vec<usize> = (0..n).collect();
    index.sort_unstable_by_key(|&i| name(i));
    match index.windows(2).find(|pair| name(pair[0]) == name(pair[1])) {
        Some(pair) => Err(pair[1]),
        None => Ok(index),
    }
}

/// Defines `opt_NAME` by a conversion and `NAME` by `opt_NAME`.
macro_rules! lookups {
    ($($(#[$doc:meta])* $name:ident, $opt_name:ident -> $ty:ty, $expected:literal, $convert:expr;)*) => {
        impl Metadata {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`Error::MissingKey`], and all errors of the `opt_` form.
                pub fn $name(&self, key: &str) -> Result<$ty, Error> {
                    self.$opt_name(key)?
                        .ok_or_else(|| Error::MissingKey { key: quote(key), expected: $expected })
                }

                #[doc = concat!("Like [`Self::", stringify!($name), "`], but `None` for an absent key.")]
                ///
                /// # Errors
                /// [`Error::WrongType`] for a value of another type, [`Error::OutOfRange`]
                /// for a number that does not fit.
                pub fn $opt_name(&self, key: &str) -> Result<Option<$ty>, Error> {
                    let Some(value) = self.get(key) else { return Ok(None) };
                    let converted: Result<Option<$ty>, String> = $convert(value);
                    match converted {
                        Ok(Some(v)) => Ok(Some(v)),
                        Ok(None) => {
                            Err(Error::WrongType { key: quote(key), expected: $expected, got: value.type_name() })
                        }
                        Err(got) => Err(Error::OutOfRange { key: quote(key), expected: $expected, got }),
                    }
                }
            )*
        }
    };
}

lookups! {
    /// The string of `key`.
    str, opt_str -> &str, "a string", to_str;
    /// The integer of `key`, stored in any integer type as long as it fits.
    u32, opt_u32 -> u32, "an integer from 0 to 4294967295", to_u32;
    /// The finite number of `key`, stored as f32, or as f64 and rounded to nearest.
    f32, opt_f32 -> f32, "a finite f32", to_f32;
    /// The boolean of `key`.
    bool, opt_bool -> bool, "a bool", to_bool;
    /// The strings of `key`.
    strings, opt_strings -> &StringTable, "an array of strings", to_strings;
    /// The integers of `key`, borrowed when stored as i32, converted from any
    /// other integer type as long as each fits.
    i32s, opt_i32s -> Cow<'_, [i32]>, "an array of integers from -2147483648 to 2147483647", to_i32s;
    /// The numbers of `key`. They may be infinite or NaN.
    f32s, opt_f32s -> &[f32], "an array of f32", to_f32s;
}

// What the lookups convert with: `Ok(None)` for a wrong type, `Err` with the
// value in words for one out of range.

fn to_str(value: &Value) -> Result<Option<&str>, String> {
    Ok(if let Value::String(s) = value { Some(s) } else { None })
}

fn to_u32(value: &Value) -> Result<Option<u32>, String> {
    value.as_integer().map(|v| u32::try_from(v).map_err(|_| v.to_string())).transpose()
}

fn to_f32(value: &Value) -> Result<Option<f32>, String> {
    let v = match *value {
        Value::F32(v) => v,
        Value::F64(v) => v as f32,
        _ => return Ok(None),
    };
    if v.is_finite() { Ok(Some(v)) } else { Err(value.to_string()) }
}

fn to_bool(value: &Value) -> Result<Option<bool>, String> {
    Ok(if let Value::Bool(v) = value { Some(*v) } else { None })
}

fn to_strings(value: &Value) -> Result<Option<&StringTable>, String> {
    Ok(if let Value::Array(Array::String(v)) = value { Some(v) } else { None })
}

fn to_f32s(value: &Value) -> Result<Option<&[f32]>, String> {
    Ok(if let Value::Array(Array::F32(v)) = value { Some(v) } else { None })
}

fn to_i32s(value: &Value) -> Result<Option<Cow<'_, [i32]>>, String> {
    let Value::Array(array) = value else { return Ok(None) };
    Ok(Some(match array {
        Array::I32(v) => Cow::Borrowed(v.as_slice()),
        Array::U8(v) => converted(v)?,
        Array::I8(v) => converted(v)?,
        Array::U16(v) => converted(v)?,
        Array::I16(v) => converted(v)?,
        Array::U32(v) => converted(v)?,
        Array::U64(v) => converted(v)?,
        Array::I64(v) => converted(v)?,
        Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::String(_) => return Ok(None),
    }))
}

/// Each element as i32, or the first that does not fit in words.
fn converted<T: Copy + TryInto<i32> + std::fmt::Display>(v: &[T]) -> Result<Cow<'static, [i32]>, String> {
    let convert = |(i, &x): (usize, &T)| x.try_into().map_err(|_| format!("{x} at index {i}"));
    v.iter().enumerate().map(convert).collect::<Result<Vec<i32>, String>>().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use crate::*;

    fn sample() -> Metadata {
        let mut m = Metadata::new();
        m.set("name", "model");
        m.set("layers", Value::U64(30));
        m.set("negative", Value::I32(-1));
        m.set("huge", u64::MAX);
        m.set("eps", Value::F64(1e-5));
        m.set("nan", f32::NAN);
        m.set("flag", true);
        m.set("types", Value::Array(Array::U8(vec![1, 255])));
        m.set("big", Value::Array(Array::I64(vec![5, 1 << 40])));
        m.set("scores", vec![0.5_f32, f32::NEG_INFINITY]);
        m.set("tokens", ["a", "b"].into_iter().collect::<StringTable>());
        m
    }

    #[test]
    fn typed_values() {
        let m = sample();
        assert_eq!(m.str("name").unwrap(), "model");
        assert_eq!(m.u32("layers").unwrap(), 30);
        assert_eq!(m.f32("eps").unwrap(), 1e-5_f32);
        assert!(m.bool("flag").unwrap());
        assert_eq!(*m.i32s("types").unwrap(), [1, 255]);
        assert_eq!(m.f32s("scores").unwrap(), [0.5, f32::NEG_INFINITY]);
        assert_eq!(&m.strings("tokens").unwrap()[1], "b");
        assert_eq!((m.opt_u32("absent").unwrap(), m.opt_str("absent").unwrap()), (None, None));
    }

    #[test]
    fn errors_name_key_expected_and_found() {
        let m = sample();
        for (error, text) in [
            (m.str("absent").unwrap_err(), r#"metadata key "absent" is missing: expected a string"#),
            (
                m.opt_u32("name").unwrap_err(),
                r#"metadata key "name" is a string: expected an integer from 0 to 4294967295"#,
            ),
            (
                m.u32("negative").unwrap_err(),
                r#"metadata key "negative" has the value -1: expected an integer from 0 to 4294967295"#,
            ),
            (
                m.u32("huge").unwrap_err(),
                r#"metadata key "huge" has the value 18446744073709551615: expected an integer from 0 to 4294967295"#,
            ),
            (m.f32("nan").unwrap_err(), r#"metadata key "nan" has the value NaN: expected a finite f32"#),
            (m.bool("layers").unwrap_err(), r#"metadata key "layers" is a u64: expected a bool"#),
            (
                m.strings("scores").unwrap_err(),
                r#"metadata key "scores" is an array of f32: expected an array of strings"#,
            ),
            (
                m.i32s("big").unwrap_err(),
                "metadata key \"big\" has the value 1099511627776 at index 1: \
                 expected an array of integers from -2147483648 to 2147483647",
            ),
            (
                m.f32s("tokens").unwrap_err(),
                r#"metadata key "tokens" is an array of strings: expected an array of f32"#,
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn order_is_kept_and_set_replaces_in_place() {
        let mut m = sample();
        m.set("layers", 31_u32);
        let keys: Vec<&str> = m.iter().map(|(key, _)| key).collect();
        assert_eq!(keys[..3], ["name", "layers", "negative"]);
        assert_eq!((m.len(), m.u32("layers").unwrap()), (11, 31));
    }
}
