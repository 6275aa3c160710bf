//! From the bytes of a file to its metadata and checked tensor list.
//!
//! ```text
//! "GGUF"  version u32  n_tensors u64  n_metadata u64
//! n_metadata x { key string, type u32, value }
//! n_tensors  x { name string, n_dims u32, dims u64 x n_dims, type u32, offset u64 }
//! padding to the alignment
//! tensor data: tensor i at its offset from here, padded to the alignment
//!
//! string = n_bytes u64, UTF-8      array = type u32, n u64, n values
//! ```
//! All numbers are little-endian. Versions 2 and 3 have the same layout; 3 adds
//! big-endian files, which are recognised by their swapped version and refused.

use crate::cursor::{Cursor, Place};
use crate::error::quote;
use crate::limits::{
    DEFAULT_ALIGNMENT, MAX_ARRAY_LEN, MAX_DIMS, MAX_KEY_BYTES, MAX_METADATA, MAX_NAME_BYTES,
    MAX_STRING_BYTES, MAX_TENSORS, MIN_METADATA_ENTRY_BYTES, MIN_TENSOR_ENTRY_BYTES, check_alignment,
};
use crate::metadata::{Metadata, sorted_index};
use crate::tensor::{TensorInfo, TensorType};
use crate::value::{Array, StringTable, Value};
use crate::{ALIGNMENT_KEY, Error, MAGIC};

/// Everything a file says before its tensor data. Every tensor lies within the
/// file, on its own bytes.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
    /// Positions in `tensors`, sorted by name.
    pub(crate) by_name: Vec<usize>,
    /// Where in the file the tensor data starts.
    pub(crate) data_start: usize,
}

/// Reads and checks all but the tensor data.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Error> {
    let mut cursor = Cursor::new(bytes);
    let version = version(&mut cursor)?;
    let n_tensors = cursor.count("tensor count", MAX_TENSORS)?;
    let n_metadata = cursor.count("metadata count", MAX_METADATA)?;

    cursor.require_items(n_metadata, MIN_METADATA_ENTRY_BYTES, "the metadata")?;
    let mut entries = Vec::with_capacity(n_metadata);
    for i in 0..n_metadata {
        cursor.place = Place::Entry(i);
        let key = cursor.string("key", MAX_KEY_BYTES)?;
        cursor.place = Place::Key(key);
        entries.push((key.to_owned(), value(&mut cursor, key)?));
    }
    let metadata = Metadata::from_entries(entries)?;
    let alignment = alignment(&metadata)?;

    cursor.place = Place::Header;
    cursor.require_items(n_tensors, MIN_TENSOR_ENTRY_BYTES, "the tensor list")?;
    let mut tensors = Vec::with_capacity(n_tensors);
    for i in 0..n_tensors {
        cursor.place = Place::TensorEntry(i);
        tensors.push(tensor(&mut cursor, alignment)?);
    }
    let by_name = sorted_index(n_tensors, |i| &tensors[i].name)
        .map_err(|i| Error::DuplicateTensor { tensor: quote(&tensors[i].name) })?;

    // The position is at most the file's length, so this cannot overflow.
    let data_start = cursor.position().next_multiple_of(alignment);
    check_placement(&tensors, bytes.len().saturating_sub(data_start))?;
    Ok(Parsed { version, alignment, metadata, tensors, by_name, data_start })
}

/// Magic and version.
fn version(cursor: &mut Cursor<'_>) -> Result<u32, Error> {
    let magic: [u8; 4] = cursor.array("the magic")?;
    if magic != MAGIC {
        return Err(Error::Magic { got: magic.escape_ascii().to_string() });
    }
    match cursor.u32("the version")? {
        version @ (2 | 3) => Ok(version),
        // A small number in the upper bytes only: written by a big-endian machine.
        swapped if swapped != 0 && swapped.trailing_zeros() >= 16 => {
            Err(Error::BigEndian { version: swapped.swap_bytes() })
        }
        got => Err(Error::Version { got }),
    }
}

/// A typed value of `key`.
fn value<'a>(cursor: &mut Cursor<'a>, key: &'a str) -> Result<Value, Error> {
    const WHAT: &str = "the value";
    Ok(match cursor.u32("the value type")? {
        0 => Value::U8(u8::from_le_bytes(cursor.array(WHAT)?)),
        1 => Value::I8(i8::from_le_bytes(cursor.array(WHAT)?)),
        2 => Value::U16(u16::from_le_bytes(cursor.array(WHAT)?)),
        3 => Value::I16(i16::from_le_bytes(cursor.array(WHAT)?)),
        4 => Value::U32(u32::from_le_bytes(cursor.array(WHAT)?)),
        5 => Value::I32(i32::from_le_bytes(cursor.array(WHAT)?)),
        6 => Value::F32(f32::from_le_bytes(cursor.array(WHAT)?)),
        7 => Value::Bool(boolean(cursor.array(WHAT)?, cursor.place)?),
        8 => Value::String(cursor.string("string", MAX_STRING_BYTES)?.to_owned()),
        9 => Value::Array(array(cursor, key)?),
        10 => Value::U64(u64::from_le_bytes(cursor.array(WHAT)?)),
        11 => Value::I64(i64::from_le_bytes(cursor.array(WHAT)?)),
        12 => Value::F64(f64::from_le_bytes(cursor.array(WHAT)?)),
        got => return Err(Error::ValueType { place: cursor.place.to_string(), got }),
    })
}

fn boolean([byte]: [u8; 1], place: Place<'_>) -> Result<bool, Error> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        got => Err(Error::Bool { place: place.to_string(), got }),
    }
}

/// An array value of `key`, after its type.
fn array<'a>(cursor: &mut Cursor<'a>, key: &'a str) -> Result<Array, Error> {
    let ty = cursor.u32("the element type")?;
    let n = cursor.count("array length", MAX_ARRAY_LEN)?;
    Ok(match ty {
        0 => Array::U8(numbers(cursor, n, u8::from_le_bytes)?),
        1 => Array::I8(numbers(cursor, n, i8::from_le_bytes)?),
        2 => Array::U16(numbers(cursor, n, u16::from_le_bytes)?),
        3 => Array::I16(numbers(cursor, n, i16::from_le_bytes)?),
        4 => Array::U32(numbers(cursor, n, u32::from_le_bytes)?),
        5 => Array::I32(numbers(cursor, n, i32::from_le_bytes)?),
        6 => Array::F32(numbers(cursor, n, f32::from_le_bytes)?),
        7 => {
            let bytes = cursor.take(n as u64, "the array")?;
            let element = |(i, &byte)| boolean([byte], Place::Element(key, i));
            Array::Bool(bytes.iter().enumerate().map(element).collect::<Result<_, _>>()?)
        }
        8 => Array::String(strings(cursor, n, key)?),
        9 => return Err(Error::NestedArray { place: cursor.place.to_string() }),
        10 => Array::U64(numbers(cursor, n, u64::from_le_bytes)?),
        11 => Array::I64(numbers(cursor, n, i64::from_le_bytes)?),
        12 => Array::F64(numbers(cursor, n, f64::from_le_bytes)?),
        got => return Err(Error::ValueType { place: cursor.place.to_string(), got }),
    })
}

/// `n` numbers of `N` bytes each.
fn numbers<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    n: usize,
    from_le_bytes: fn([u8; N]) -> T,
) -> Result<Vec<T>, Error> {
    // At most MAX_ARRAY_LEN * 8: no overflow.
    let (chunks, _) = cursor.take((n * N) as u64, "the array")?.as_chunks::<N>();
    Ok(chunks.iter().copied().map(from_le_bytes).collect())
}

/// `n` strings.
fn strings<'a>(cursor: &mut Cursor<'a>, n: usize, key: &'a str) -> Result<StringTable, Error> {
    // A string takes at least its length field.
    cursor.require_items(n, size_of::<u64>(), "the array")?;
    let mut table = StringTable::with_capacity(n);
    for i in 0..n {
        cursor.place = Place::Element(key, i);
        table.push(cursor.string("string", MAX_STRING_BYTES)?);
    }
    Ok(table)
}

/// The file's alignment.
fn alignment(metadata: &Metadata) -> Result<usize, Error> {
    metadata.opt_u32(ALIGNMENT_KEY)?.map_or(Ok(DEFAULT_ALIGNMENT), check_alignment)
}

/// An entry of the tensor list.
fn tensor(cursor: &mut Cursor<'_>, alignment: usize) -> Result<TensorInfo, Error> {
    let name = cursor.string("name", MAX_NAME_BYTES)?;
    cursor.place = Place::Tensor(name);
    let n_dims = cursor.u32("the number of dimensions")? as usize;
    if n_dims == 0 || n_dims > MAX_DIMS {
        return Err(Error::DimCount { tensor: quote(name), got: n_dims });
    }
    let mut dims = [0; MAX_DIMS];
    for dim in &mut dims[..n_dims] {
        *dim = cursor.count("dimension", usize::MAX)?;
    }
    let id = cursor.u32("the tensor type")?;
    let offset = cursor.count("offset", usize::MAX)?;

    let ty = TensorType::from_id(id).unwrap_or(TensorType::Unknown(id));
    let info = TensorInfo { offset, ..TensorInfo::read(name.to_owned(), ty, &dims[..n_dims])? };
    if !offset.is_multiple_of(alignment) {
        return Err(Error::OffsetAlignment { tensor: quote(name), expected: alignment, got: offset });
    }
    Ok(info)
}

/// Each tensor within `data_len` bytes of tensor data, no two on the same bytes. Of a tensor whose size cannot be told,
/// the first byte is checked.
fn check_placement(tensors: &[TensorInfo], data_len: usize) -> Result<(), Error> {
    let n_bytes = |info: &TensorInfo| info.n_bytes.max(1);
    for info in tensors {
        if info.offset.checked_add(n_bytes(info)).is_none_or(|end| end > data_len) {
            return Err(Error::OutOfFile {
                tensor: quote(&info.name),
                offset: info.offset,
                n_bytes: n_bytes(info),
                got: data_len,
            });
        }
    }
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|info| info.offset);
    // None is empty, so an overlap anywhere means one between neighbours.
    for pair in by_offset.windows(2) {
        let end = pair[0].offset + n_bytes(pair[0]);
        if pair[1].offset < end {
            return Err(Error::Overlap {
                first: quote(&pair[0].name),
                second: quote(&pair[1].name),
                expected: end,
                got: pair[1].offset,
            });
        }
    }
    Ok(())
}
