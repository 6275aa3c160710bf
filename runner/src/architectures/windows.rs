//! The windows of layers: which layers have one, in `config.json` and in GGUF's metadata.

use std::num::NonZero;

use halfbyte_gguf::{Array, Metadata, Value};

use super::Reader;
use crate::model::Error;
use crate::source::{self, Object};

/// Sets the window of `config.json` and the layers that have it: by the type of each layer, by a pattern, or by the
/// distance of those without one, which is `distance` where the file has nothing else. `window` is the window of files
/// that do not name one; `null` stands for none.
pub(super) fn set_windows(
    config: &Object,
    metadata: &mut Metadata,
    prefix: &str,
    distance: u32,
    window: Option<u32>,
) -> Result<(), source::Error> {
    const WINDOWED: &str = "sliding_attention";
    let window = if config.has("sliding_window") { config.opt_u32("sliding_window")? } else { window };
    let Some(window) = window.filter(|&window| window > 0) else {
        metadata.set(format!("{prefix}.attention.sliding_window"), 0_u32);
        return Ok(());
    };
    let n_layers = config.u32("num_hidden_layers")? as usize;
    let field = "sliding_window_pattern";
    let layers: Vec<bool> = if let Some(types) = config.opt_strings("layer_types")? {
        if let Some(other) = types.iter().find(|ty| **ty != WINDOWED && **ty != "full_attention") {
            let supported = format!("{WINDOWED}, full_attention, and one is {}", halfbyte_gguf::quote(other));
            return Err(config.unsupported("layer_types", supported));
        }
        if types.len() != n_layers {
            return Err(config.wrong("layer_types", format!("a list of num_hidden_layers, {n_layers}")));
        }
        types.iter().map(|ty| *ty == WINDOWED).collect()
    } else if config.get(field).is_some_and(serde_json::Value::is_string) {
        let pattern = config.opt_str(field)?.unwrap_or_default();
        if pattern.is_empty() || pattern.bytes().any(|b| b != b'L' && b != b'G') {
            return Err(config.wrong(field, "a number, or letters L and G"));
        }
        pattern.bytes().cycle().take(n_layers).map(|b| b == b'L').collect()
    } else {
        let older = config.opt_u32("_sliding_window_pattern")?;
        let distance = config.opt_u32(field)?.or(older).unwrap_or(distance);
        if distance == 0 {
            return Err(config.wrong(field, "at least 1"));
        }
        (1..=n_layers).map(|i| !i.is_multiple_of(distance as usize)).collect()
    };
    metadata.set(format!("{prefix}.attention.sliding_window"), window);
    metadata.set(format!("{prefix}.attention.sliding_window_pattern"), Value::Array(Array::Bool(layers)));
    Ok(())
}

impl Reader<'_> {
    /// Positions that layers with a window see: what the file says, else `default`; 0 stands for no window.
    pub(super) fn window(&self, default: u32) -> Result<Option<NonZero<usize>>, Error> {
        let window = self.metadata.opt_u32(&self.key("attention.sliding_window"))?;
        Ok(NonZero::new(window.unwrap_or(default) as usize))
    }

    /// Whether each layer has the window: what the file says, layer by layer or as the distance of those without one,
    /// else those whose number plus 1 is no multiple of `distance`.
    pub(super) fn windowed(&self, distance: u32) -> Result<Vec<bool>, Error> {
        let key = self.key("attention.sliding_window_pattern");
        let n_layers = self.n_layers()?;
        if let Some(layers) = self.flags("attention.sliding_window_pattern", n_layers)? {
            return Ok(layers);
        }
        let distance = match self.metadata.get(&key) {
            Some(Value::Array(_)) | None => distance,
            Some(_) => self.metadata.u32(&key)?,
        } as usize;
        Ok((0..n_layers).map(|i| distance == 0 || (i + 1) % distance != 0).collect())
    }

    /// One flag a layer, which files may hold as numbers, if the file has a list of them under `name`.
    pub(super) fn flags(&self, name: &str, n_layers: usize) -> Result<Option<Vec<bool>>, Error> {
        let list: Vec<bool> = match self.metadata.get(&self.key(name)) {
            Some(Value::Array(Array::Bool(list))) => list.clone(),
            Some(Value::Array(Array::U32(list))) => list.iter().map(|&flag| flag != 0).collect(),
            Some(Value::Array(Array::I32(list))) => list.iter().map(|&flag| flag != 0).collect(),
            Some(Value::Array(array)) => {
                let got = format!("a list of {}", array.element_type());
                return Err(self.wrong(name, got, "a list of bool".into()));
            }
            _ => return Ok(None),
        };
        if list.len() < n_layers {
            let got = format!("a list of {}", list.len());
            return Err(self.wrong(name, got, format!("one flag for each of {n_layers} layers")));
        }
        Ok(Some(list))
    }
}
