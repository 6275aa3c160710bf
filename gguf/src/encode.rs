//! From metadata and a tensor list to the bytes that [`crate::parse`] reads.

use crate::cursor::Place;
use crate::limits::{MAX_ARRAY_LEN, MAX_KEY_BYTES, MAX_METADATA, MAX_NAME_BYTES, MAX_STRING_BYTES, at_most};
use crate::metadata::Metadata;
use crate::tensor::TensorInfo;
use crate::value::{Array, StringTable, Value};
use crate::{Error, MAGIC};

/// All bytes before the tensor data, its padding included. The tensors are
/// written as they are: checked and placed by the caller.
pub(crate) fn encode_header(
    metadata: &Metadata,
    tensors: &[TensorInfo],
    alignment: usize,
) -> Result<Vec<u8>, Error> {
    const VERSION: u32 = 3;
    at_most(metadata.len() as u64, MAX_METADATA, Place::Header, "metadata count")?;
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (i, (key, value)) in metadata.iter().enumerate() {
        put_string(&mut out, key, MAX_KEY_BYTES, Place::Entry(i), "key")?;
        put_value(&mut out, value, Place::Key(key))?;
    }
    for (i, info) in tensors.iter().enumerate() {
        put_string(&mut out, &info.name, MAX_NAME_BYTES, Place::TensorEntry(i), "name")?;
        // At most MAX_DIMS.
        out.extend((info.dims.len() as u32).to_le_bytes());
        out.extend(info.dims.iter().flat_map(|&dim| (dim as u64).to_le_bytes()));
        out.extend(info.ty.id().to_le_bytes());
        out.extend((info.offset as u64).to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(alignment), 0);
    Ok(out)
}

fn put_string(
    out: &mut Vec<u8>,
    s: &str,
    limit: usize,
    place: Place<'_>,
    what: &'static str,
) -> Result<(), Error> {
    at_most(s.len() as u64, limit, place, format_args!("{what} length in bytes"))?;
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
    Ok(())
}

/// The type and the value.
fn put_value(out: &mut Vec<u8>, value: &Value, place: Place<'_>) -> Result<(), Error> {
    macro_rules! put {
        ($id:literal) => {
            out.extend(u32::to_le_bytes($id))
        };
        ($id:literal, $bytes:expr) => {{
            out.extend(u32::to_le_bytes($id));
            out.extend($bytes);
        }};
    }
    match value {
        Value::U8(v) => put!(0, v.to_le_bytes()),
        Value::I8(v) => put!(1, v.to_le_bytes()),
        Value::U16(v) => put!(2, v.to_le_bytes()),
        Value::I16(v) => put!(3, v.to_le_bytes()),
        Value::U32(v) => put!(4, v.to_le_bytes()),
        Value::I32(v) => put!(5, v.to_le_bytes()),
        Value::F32(v) => put!(6, v.to_le_bytes()),
        Value::Bool(v) => put!(7, [u8::from(*v)]),
        Value::String(v) => {
            put!(8);
            put_string(out, v, MAX_STRING_BYTES, place, "string")?;
        }
        Value::Array(v) => {
            put!(9);
            put_array(out, v, place)?;
        }
        Value::U64(v) => put!(10, v.to_le_bytes()),
        Value::I64(v) => put!(11, v.to_le_bytes()),
        Value::F64(v) => put!(12, v.to_le_bytes()),
    }
    Ok(())
}

/// The element type, the length and the elements.
fn put_array(out: &mut Vec<u8>, array: &Array, place: Place<'_>) -> Result<(), Error> {
    at_most(array.len() as u64, MAX_ARRAY_LEN, place, "array length")?;
    let n = array.len() as u64;
    macro_rules! put {
        ($id:literal) => {{
            out.extend(u32::to_le_bytes($id));
            out.extend(n.to_le_bytes());
        }};
        ($id:literal, $v:expr) => {{
            put!($id);
            out.extend($v.iter().flat_map(|x| x.to_le_bytes()));
        }};
    }
    match array {
        Array::U8(v) => put!(0, v),
        Array::I8(v) => put!(1, v),
        Array::U16(v) => put!(2, v),
        Array::I16(v) => put!(3, v),
        Array::U32(v) => put!(4, v),
        Array::I32(v) => put!(5, v),
        Array::F32(v) => put!(6, v),
        Array::Bool(v) => {
            let bytes: Vec<u8> = v.iter().map(|&b| b.into()).collect();
            put!(7, bytes);
        }
        Array::String(v) => {
            put!(8);
            put_strings(out, v, place)?;
        }
        Array::U64(v) => put!(10, v),
        Array::I64(v) => put!(11, v),
        Array::F64(v) => put!(12, v),
    }
    Ok(())
}

fn put_strings(out: &mut Vec<u8>, table: &StringTable, place: Place<'_>) -> Result<(), Error> {
    for (i, s) in table.iter().enumerate() {
        let place = if let Place::Key(key) = place { Place::Element(key, i) } else { place };
        put_string(out, s, MAX_STRING_BYTES, place, "string")?;
    }
    Ok(())
}
