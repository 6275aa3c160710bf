//! `halfbyte inspect`: what is in a file, whether it can be run or not.

use std::fmt::Write;

use anyhow::Result;
use halfbyte::source::Source;
use halfbyte::weight_types::WeightType;
use halfbyte_gguf::{Array, Dims, Gguf, Metadata, TensorInfo, TensorType, Value};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::args::{GlobalArgs, InspectArgs};
use super::words::HumanBytes;
use super::{loading, output};

/// Elements of an array that are shown.
const SHOWN: usize = 8;

#[derive(serde::Serialize)]
struct Output<'a> {
    file: String,
    /// Of a GGUF file, else `null`, as is the alignment.
    version: Option<u32>,
    alignment: Option<usize>,
    format: String,
    file_bytes: usize,
    metadata: MetadataJson<'a>,
    tensors: Vec<TensorJson<'a>>,
    totals: Vec<Total>,
    parameters: usize,
}

#[derive(serde::Serialize)]
struct TensorJson<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    ty: String,
    /// The first dimension is contiguous.
    shape: &'a [usize],
    /// `null` where the file's type has no known size.
    bytes: Option<usize>,
    supported: bool,
}

/// All tensors of one type.
#[derive(serde::Serialize)]
struct Total {
    #[serde(rename = "type")]
    ty: String,
    tensors: usize,
    elements: usize,
    /// `null` where the file's type has no known size.
    bytes: Option<usize>,
    supported: bool,
}

pub(crate) fn run(global: &GlobalArgs, args: &InspectArgs) -> Result<()> {
    let path = args.file.as_deref().or(global.model.as_deref());
    let gguf = loading::open(path)?;
    let file = loading::model_name(path);
    if args.json {
        return output::json(&Output {
            file,
            version: gguf.gguf().map(Gguf::version),
            alignment: gguf.gguf().map(Gguf::alignment),
            format: gguf.format(),
            file_bytes: gguf.n_bytes(),
            metadata: MetadataJson(gguf.metadata()),
            tensors: gguf.tensors().iter().map(tensor_json).collect(),
            totals: totals(&**gguf),
            parameters: gguf.tensors().iter().map(TensorInfo::n_elements).sum(),
        });
    }
    Ok(output::text(&describe(&**gguf, &file)?)?)
}

fn tensor_json(info: &TensorInfo) -> TensorJson<'_> {
    TensorJson {
        name: &info.name,
        ty: info.ty.to_string(),
        shape: &info.dims,
        bytes: info.ty.is_known().then_some(info.n_bytes),
        supported: WeightType::of(info.ty).is_some(),
    }
}

/// Sums by type, the largest first.
fn totals(gguf: &dyn Source) -> Vec<Total> {
    let mut types: Vec<TensorType> = Vec::new();
    for tensor in gguf.tensors() {
        if !types.contains(&tensor.ty) {
            types.push(tensor.ty);
        }
    }
    let total = |ty: TensorType| {
        let of_type = || gguf.tensors().iter().filter(|t| t.ty == ty);
        Total {
            ty: ty.to_string(),
            tensors: of_type().count(),
            elements: of_type().map(TensorInfo::n_elements).sum(),
            bytes: ty.is_known().then(|| of_type().map(|t| t.n_bytes).sum()),
            supported: WeightType::of(ty).is_some(),
        }
    };
    let mut totals: Vec<_> = types.into_iter().map(total).collect();
    totals.sort_by_key(|total| std::cmp::Reverse(total.bytes));
    totals
}

/// The same for people. What comes from the file is escaped where it can hold anything.
fn describe(gguf: &dyn Source, file: &str) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "{file}: {}, {}", gguf.format(), bytes(gguf.n_bytes()))?;
    writeln!(text, "\n{} metadata entries", gguf.metadata().len())?;
    for (key, value) in gguf.metadata().iter() {
        writeln!(text, "  {} = {value}", key.escape_debug())?;
    }
    writeln!(text, "\n{} tensors", gguf.tensors().len())?;
    let width = gguf.tensors().iter().map(|t| t.name.chars().count()).max().unwrap_or(0).min(60);
    for info in gguf.tensors() {
        let name = info.name.escape_debug().to_string();
        let (shape, size) = (Dims(&info.dims), size(info.ty.is_known().then_some(info.n_bytes)));
        writeln!(text, "  {name:width$}  {:9}  {shape:18}  {size:>10}", info.ty)?;
    }
    writeln!(text, "\nby type")?;
    for total in totals(gguf) {
        let Total { ty, tensors, elements, .. } = total;
        let support = if total.supported { "" } else { "  (halfbyte can't compute with it)" };
        writeln!(
            text,
            "  {ty:9}  {tensors:>5} tensors  {elements:>14} weights  {:>10}{support}",
            size(total.bytes)
        )?;
    }
    Ok(text)
}

fn bytes(n: usize) -> HumanBytes {
    HumanBytes(n as u64)
}

/// A size that may not be known.
fn size(n: Option<usize>) -> String {
    n.map_or_else(|| "unknown".to_owned(), |n| bytes(n).to_string())
}

/// Metadata as an object in file order. Long arrays are cut: `{"type", "length", "first"}`.
struct MetadataJson<'a>(&'a Metadata);

impl Serialize for MetadataJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0.iter() {
            map.serialize_entry(key, &ValueJson(value))?;
        }
        map.end()
    }
}

/// A value; numbers that JSON does not have (NaN, infinities) are `null`.
struct ValueJson<'a>(&'a Value);

impl Serialize for ValueJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::U8(v) => v.serialize(serializer),
            Value::I8(v) => v.serialize(serializer),
            Value::U16(v) => v.serialize(serializer),
            Value::I16(v) => v.serialize(serializer),
            Value::U32(v) => v.serialize(serializer),
            Value::I32(v) => v.serialize(serializer),
            Value::U64(v) => v.serialize(serializer),
            Value::I64(v) => v.serialize(serializer),
            Value::F32(v) => v.serialize(serializer),
            Value::F64(v) => v.serialize(serializer),
            Value::Bool(v) => v.serialize(serializer),
            Value::String(v) => v.serialize(serializer),
            Value::Array(array) if array.len() <= SHOWN => First(array).serialize(serializer),
            Value::Array(array) => {
                let mut map = serializer.serialize_map(Some(3))?;
                map.serialize_entry("type", array.element_type())?;
                map.serialize_entry("length", &array.len())?;
                map.serialize_entry("first", &First(array))?;
                map.end()
            }
            // The enum may grow; what this does not know it shows as people see it.
            other => serializer.collect_str(other),
        }
    }
}

/// The first elements of an array.
struct First<'a>(&'a Array);

impl Serialize for First<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fn first<S: Serializer, T: Serialize>(
            serializer: S,
            items: impl Iterator<Item = T>,
        ) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(None)?;
            for item in items.take(SHOWN) {
                seq.serialize_element(&item)?;
            }
            seq.end()
        }
        match self.0 {
            Array::U8(v) => first(serializer, v.iter()),
            Array::I8(v) => first(serializer, v.iter()),
            Array::U16(v) => first(serializer, v.iter()),
            Array::I16(v) => first(serializer, v.iter()),
            Array::U32(v) => first(serializer, v.iter()),
            Array::I32(v) => first(serializer, v.iter()),
            Array::U64(v) => first(serializer, v.iter()),
            Array::I64(v) => first(serializer, v.iter()),
            Array::F32(v) => first(serializer, v.iter()),
            Array::F64(v) => first(serializer, v.iter()),
            Array::Bool(v) => first(serializer, v.iter()),
            Array::String(v) => first(serializer, v.iter()),
            other => serializer.collect_str(other),
        }
    }
}
