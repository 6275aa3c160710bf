//! JSON files that may hold anything: read whole up to a limit, and asked field by field. Errors name the field.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Error;
use halfbyte_gguf::{self as gguf, quote};

/// The bytes of the file at `path`, or `None` if there is none.
///
/// # Errors
/// `path` is not a file, cannot be read or is longer than `limit`.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    let wrong = |source| Error::Read { path: path.to_owned(), source };
    // This is asked before the file is opened, since opening a pipe would wait for a writer.
    match fs::metadata(path) {
        Ok(metadata) => gguf::require_file(path, &metadata)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error)),
    }
    let file = File::open(path).map_err(wrong)?;
    let len = file.metadata().map_err(wrong)?.len();
    let mut bytes = Vec::new();
    if len <= limit {
        // Of a file that grows meanwhile, no more than the limit is read.
        file.take(limit + 1).read_to_end(&mut bytes).map_err(wrong)?;
    }
    let got = len.max(bytes.len() as u64);
    if got > limit {
        return Err(Error::TooLong { path: path.to_owned(), got, limit });
    }
    Ok(Some(bytes))
}

/// An object in a file. Messages name the fields that lead to it.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    path: PathBuf,
    /// `""`, or `rope_scaling.`.
    prefix: String,
    fields: Map<String, Value>,
}

impl Object {
    /// The object that the file at `path` holds, or `None` if there is no file.
    pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<Self>, Error> {
        read(path, limit)?.map(|bytes| Self::parse(path, &bytes)).transpose()
    }

    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let path = path.to_owned();
        match serde_json::from_slice(bytes) {
            Ok(fields) => Ok(Self { path, prefix: String::new(), fields }),
            Err(error) => Err(Error::Json { path, message: error.to_string() }),
        }
    }

    /// The object called `text_config`, with the fields around it that it does not have; the whole where there is none.
    pub(crate) fn text_part(&self) -> Result<Self, Error> {
        let Some(mut text) = self.opt_object("text_config")? else { return Ok(self.clone()) };
        for (field, value) in &self.fields {
            text.fields.entry(field.clone()).or_insert_with(|| value.clone());
        }
        Ok(text)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The field if it is there and not `null`.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// Whether the field is there, be it `null`.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Sets the field if it is missing or `null`.
    pub(crate) fn set_default(&mut self, field: &str, value: u32) {
        if self.get(field).is_none() {
            self.fields.insert(field.to_owned(), value.into());
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.fields.iter()
    }

    /// The error for a `field` whose value is wrong.
    pub(crate) fn wrong(&self, field: &str, expected: impl Into<String>) -> Error {
        Error::Field {
            path: self.path.clone(),
            field: format!("{}{field}", self.prefix),
            got: self.get(field).map_or_else(|| "missing".to_owned(), shown),
            expected: expected.into(),
        }
    }

    /// The error for a `field` whose value is not supported.
    pub(crate) fn unsupported(&self, field: &str, supported: impl Into<Cow<'static, str>>) -> Error {
        Error::Feature {
            path: self.path.clone(),
            field: format!("{}{field}", self.prefix),
            got: self.get(field).map_or_else(|| "missing".to_owned(), shown),
            supported: supported.into(),
        }
    }

    pub(crate) fn opt_str(&self, field: &str) -> Result<Option<&str>, Error> {
        self.get(field).map(|v| v.as_str().ok_or_else(|| self.wrong(field, "a string"))).transpose()
    }

    pub(crate) fn opt_bool(&self, field: &str) -> Result<Option<bool>, Error> {
        self.get(field).map(|v| v.as_bool().ok_or_else(|| self.wrong(field, "true or false"))).transpose()
    }

    /// A whole number that fits an id or a size.
    pub(crate) fn opt_u32(&self, field: &str) -> Result<Option<u32>, Error> {
        let expected = || self.wrong(field, "a whole number from 0 to 4294967295");
        let number = |v: &Value| v.as_u64().and_then(|v| u32::try_from(v).ok()).ok_or_else(expected);
        self.get(field).map(number).transpose()
    }

    pub(crate) fn u32(&self, field: &str) -> Result<u32, Error> {
        self.opt_u32(field)?.ok_or_else(|| self.wrong(field, "a whole number"))
    }

    /// A number that is finite as f32.
    pub(crate) fn opt_f64(&self, field: &str) -> Result<Option<f64>, Error> {
        let expected = || self.wrong(field, "a finite number");
        let number = |v: &Value| v.as_f64().filter(|v| (*v as f32).is_finite()).ok_or_else(expected);
        self.get(field).map(number).transpose()
    }

    /// A number above 0 that is so as f32, too.
    pub(crate) fn opt_positive(&self, field: &str) -> Result<Option<f64>, Error> {
        match self.opt_f64(field)? {
            Some(v) if v as f32 > 0.0 => Ok(Some(v)),
            Some(_) => Err(self.wrong(field, "a positive number")),
            None => Ok(None),
        }
    }

    /// A list of numbers above 0 that are finite as f32.
    pub(crate) fn opt_factors(&self, field: &str) -> Result<Option<Vec<f32>>, Error> {
        let factor = |v: &Value| v.as_f64().map(|v| v as f32).filter(|v| *v > 0.0 && v.is_finite());
        let list = |v: &Value| v.as_array()?.iter().map(factor).collect::<Option<Vec<_>>>();
        let expected = || self.wrong(field, "a list of positive numbers");
        self.get(field).map(|v| list(v).ok_or_else(expected)).transpose()
    }

    /// A list of strings.
    pub(crate) fn opt_strings(&self, field: &str) -> Result<Option<Vec<&str>>, Error> {
        fn list(value: &Value) -> Option<Vec<&str>> {
            value.as_array()?.iter().map(Value::as_str).collect()
        }
        self.get(field).map(|v| list(v).ok_or_else(|| self.wrong(field, "a list of strings"))).transpose()
    }

    /// A list of `len` numbers or truth values, as numbers.
    pub(crate) fn opt_ids(&self, field: &str, len: usize) -> Result<Option<Vec<u64>>, Error> {
        let number = |v: &Value| v.as_u64().or_else(|| v.as_bool().map(u64::from));
        let list = |v: &Value| {
            let list = v.as_array().filter(|list| list.len() == len)?;
            list.iter().map(number).collect::<Option<Vec<_>>>()
        };
        let expected = || self.wrong(field, format!("a list of {len} whole numbers"));
        self.get(field).map(|v| list(v).ok_or_else(expected)).transpose()
    }

    pub(crate) fn opt_object(&self, field: &str) -> Result<Option<Self>, Error> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self {
                path: self.path.clone(),
                prefix: format!("{}{field}.", self.prefix),
                fields: fields.clone(),
            })),
            Some(_) => Err(self.wrong(field, "an object")),
        }
    }

    /// Token ids: one number or a list of them.
    pub(crate) fn ids(&self, field: &str) -> Result<Vec<u32>, Error> {
        let id = |v: &Value| v.as_u64().and_then(|v| u32::try_from(v).ok());
        let ids = match self.get(field) {
            None => Some(Vec::new()),
            Some(Value::Array(list)) if list.len() <= 1024 => list.iter().map(id).collect(),
            Some(value) => id(value).map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.wrong(field, "a token id or a list of at most 1024"))
    }
}

/// A value for a message: short, and without control characters.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string().chars().take(80).collect(),
    }
}
