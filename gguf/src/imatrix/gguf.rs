//! The GGUF form of an imatrix.

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroU32;

use super::file::{checked, stored};
use super::{Entry, Error, Imatrix};
use crate::{Gguf, GgufWriter, Metadata, StringTable, TensorInfo, TensorType};

const TYPE: &str = "general.type";
const DATASETS: &str = "imatrix.datasets";
const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";

/// What the names of the tensors end in.
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// The tensors of one matrix.
#[derive(Default)]
struct Pair<'a> {
    sums: Option<&'a TensorInfo>,
    counts: Option<&'a TensorInfo>,
}

pub(super) fn read(gguf: &Gguf) -> Result<Imatrix, Error> {
    let metadata = gguf.metadata();
    match metadata.opt_str(TYPE)? {
        Some("imatrix") => {}
        got => return Err(Error::NotImatrix { got: got.unwrap_or_default().to_owned() }),
    }
    let chunk_size = metadata.u32(CHUNK_SIZE)?;
    let chunk_size = NonZeroU32::new(chunk_size).ok_or_else(|| Error::Range {
        place: CHUNK_SIZE.to_owned(),
        got: 0,
        min: 1,
        max: u32::MAX.into(),
    })?;
    let mut imatrix = Imatrix::new(chunk_size);
    imatrix.chunk_count = metadata.u32(CHUNK_COUNT)?;
    let datasets = metadata.opt_strings(DATASETS)?;
    imatrix.datasets = datasets.into_iter().flat_map(StringTable::iter).map(str::to_owned).collect();

    // Sorted, and each name once: the reader of the file has seen to that.
    let mut pairs: BTreeMap<&str, Pair<'_>> = BTreeMap::new();
    for info in gguf.tensors() {
        // Others, such as the sums of unsquared activations that some versions write, are passed over.
        if let Some(name) = info.name.strip_suffix(SUMS) {
            pairs.entry(name).or_default().sums = Some(info);
        } else if let Some(name) = info.name.strip_suffix(COUNTS) {
            pairs.entry(name).or_default().counts = Some(info);
        }
    }
    if pairs.is_empty() {
        return Err(Error::Empty);
    }
    for (tensor, Pair { sums, counts }) in pairs {
        let unpaired = |missing| Error::Unpaired { tensor: tensor.to_owned(), missing };
        let sums = sums.ok_or_else(|| unpaired(SUMS))?;
        let counts = counts.ok_or_else(|| unpaired(COUNTS))?;
        let sums = floats(gguf, sums)?.map(f64::from).collect();
        let counts = floats(gguf, counts)?.enumerate();
        let counts = counts.map(|(index, value)| count(tensor, index, value)).collect::<Result<_, _>>()?;
        imatrix.insert(tensor, checked(tensor, sums, counts)?)?;
    }
    Ok(imatrix)
}

/// The numbers of an F32 tensor.
fn floats<'a>(gguf: &'a Gguf, info: &TensorInfo) -> Result<impl Iterator<Item = f32> + use<'a>, Error> {
    if info.ty != TensorType::F32 {
        return Err(Error::Type { tensor: info.name.clone(), got: info.ty });
    }
    // Not a view: bytes in memory need not be aligned.
    Ok(gguf.bytes(info).as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)))
}

/// A count from the f32 it is stored as.
fn count(tensor: &str, index: usize, value: f32) -> Result<u64, Error> {
    // Below 2^63 the cast is exact.
    if (0.0..9.2e18).contains(&value) && value.fract() == 0.0 {
        Ok(value as u64)
    } else {
        Err(Error::Count { tensor: tensor.to_owned(), index, value })
    }
}

pub(super) fn write<W: Write>(imatrix: &Imatrix, sink: W) -> Result<W, Error> {
    if !imatrix.entries.values().any(Entry::counted) {
        return Err(Error::Empty);
    }
    let mut metadata = Metadata::new();
    metadata.set(TYPE, "imatrix");
    metadata.set(DATASETS, imatrix.datasets.iter().collect::<StringTable>());
    metadata.set(CHUNK_COUNT, imatrix.chunk_count);
    metadata.set(CHUNK_SIZE, imatrix.chunk_size.get());

    let (mut tensors, mut values) = (Vec::new(), Vec::new());
    for (name, Entry { sums, counts }) in &imatrix.entries {
        let matrices = counts.len();
        let dims = |columns| if matrices == 1 { vec![columns] } else { vec![columns, matrices] };
        for (suffix, dims) in [(SUMS, dims(sums.len() / matrices)), (COUNTS, dims(1))] {
            tensors.push(TensorInfo::new(format!("{name}{suffix}"), TensorType::F32, &dims)?);
        }
        let sums = sums.iter().enumerate().map(|(i, &sum)| stored(name, i, sum));
        values.push(sums.collect::<Result<Vec<f32>, _>>()?);
        values.push(counts.iter().map(|&n| n as f32).collect());
    }
    let mut writer = GgufWriter::new(sink, &metadata, &tensors)?;
    for values in values {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        writer.append(&bytes)?;
    }
    Ok(writer.finish()?)
}
