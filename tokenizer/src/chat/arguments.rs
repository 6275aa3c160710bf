//! What a template is told by name: `enable_thinking`, `reasoning_effort`, `documents` and whatever else it asks for.

use std::collections::BTreeMap;

use minijinja::value::{Value, ValueKind};
use serde::Deserialize;

use super::mask::Mask;

/// The names that stand for what every prompt has.
pub(super) const RESERVED: [&str; 3] = ["messages", "add_generation_prompt", "strftime_now"];

/// Values for a template by name.
///
/// They are JSON: null, true, false, numbers, texts, lists and objects. It reads itself from a JSON object.
///
/// Their texts are not trusted, as those of messages are not: none becomes a control token. Only a text of ASCII
/// letters, digits, `_`, `-` and `.` that holds no control token's text is shown to the template as it is, so that the
/// template can compare it (`reasoning_effort == 'low'`).
///
/// ```
/// use halfbyte_tokenizer::chat::Arguments;
///
/// let mut arguments = Arguments::default();
/// arguments.set("enable_thinking", "false");
/// arguments.set("reasoning_effort", "low");
/// let same: Arguments = serde_json::from_str(r#"{"enable_thinking": false, "reasoning_effort": "low"}"#)?;
/// assert_eq!(arguments, same);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Arguments(BTreeMap<String, Value>);

impl Arguments {
    /// Sets the value called `name`: `value` as JSON if it is JSON, otherwise as the text that it is.
    pub fn set(&mut self, name: impl Into<String>, value: &str) {
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        self.0.insert(name.into(), value);
    }

    /// The names that have a value, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Names and values with what must not become a control token masked, or `None` if there are no characters left
    /// for that.
    pub(super) fn masked(&self, mask: &mut Mask<'_>, control: &[&str]) -> Option<Vec<(String, Value)>> {
        let value =
            |(name, value): (&String, &Value)| Some((name.clone(), mask_value(value, mask, control)?));
        self.0.iter().map(value).collect()
    }
}

fn mask_value(value: &Value, mask: &mut Mask<'_>, control: &[&str]) -> Option<Value> {
    match value.kind() {
        ValueKind::String => mask_text(value.as_str().unwrap_or_default(), mask, control).map(Value::from),
        ValueKind::Seq => {
            let items: Option<Vec<Value>> =
                value.try_iter().ok()?.map(|item| mask_value(&item, mask, control)).collect();
            items.map(Value::from)
        }
        ValueKind::Map => {
            let pair = |key: Value| {
                let value = value.get_item(&key).ok()?;
                Some((mask_value(&key, mask, control)?, mask_value(&value, mask, control)?))
            };
            let pairs: Option<Vec<(Value, Value)>> = value.try_iter().ok()?.map(pair).collect();
            pairs.map(Value::from_iter)
        }
        _ => Some(value.clone()),
    }
}

fn mask_text(text: &str, mask: &mut Mask<'_>, control: &[&str]) -> Option<String> {
    let is_word = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if is_word && !control.iter().any(|token| text.contains(token)) {
        return Some(text.to_owned());
    }
    mask.mask(text)
}
