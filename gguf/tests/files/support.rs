//! GGUF files put together for a test, and what must hold of one that opens. The fuzz targets use them, too.

#![allow(dead_code, reason = "each program that includes this uses some of it")]

use halfbyte_gguf::{Gguf, GgufWriter, Metadata, StringTable, TensorInfo, TensorType, Value};

/// A file put together field by field, right or wrong.
#[derive(Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    pub(crate) fn header(version: u32, n_tensors: u64, n_metadata: u64) -> Self {
        Raw(b"GGUF".to_vec()).u32(version).u64(n_tensors).u64(n_metadata)
    }
    pub(crate) fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    pub(crate) fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    pub(crate) fn bytes(mut self, v: &[u8]) -> Self {
        self.0.extend(v);
        self
    }
    pub(crate) fn str(self, v: &str) -> Self {
        self.u64(v.len() as u64).bytes(v.as_bytes())
    }
    /// A tensor entry.
    pub(crate) fn tensor(self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        let raw = self.str(name).u32(dims.len() as u32);
        dims.iter().fold(raw, |raw, &dim| raw.u64(dim)).u32(ty).u64(offset)
    }
    /// Pads to the default alignment and adds `n` bytes of tensor data.
    pub(crate) fn data(mut self, n: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + n, 0);
        self
    }
}

/// A small file with every value type and several tensor types.
pub(crate) fn sample() -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("u8", Value::U8(1));
    metadata.set("i64", Value::I64(-1));
    metadata.set("f32", 1.5_f32);
    metadata.set("bool", true);
    metadata.set("tokens", ["a", "", "ü"].into_iter().collect::<StringTable>());
    metadata.set("types", vec![1, 2, 3]);
    let list = [
        TensorInfo::new("a", TensorType::Q4_0, &[32, 3]).unwrap(),
        TensorInfo::new("b", TensorType::F32, &[5]).unwrap(),
        TensorInfo::new("c", TensorType::F16, &[2, 2, 2]).unwrap(),
    ];
    let mut writer = GgufWriter::new(Vec::new(), &metadata, &list).unwrap();
    for info in &list {
        writer.write_tensor(&info.name, &vec![7; info.n_bytes]).unwrap();
    }
    writer.finish().unwrap()
}

/// Opens `bytes`; a file that opens must keep every promise of the module.
pub(crate) fn open_and_check(bytes: Vec<u8>) -> Option<Gguf> {
    let total = bytes.len();
    let gguf = match Gguf::from_vec(bytes) {
        Ok(gguf) => gguf,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for info in gguf.tensors() {
        assert_eq!(gguf.bytes(info).len(), info.n_bytes);
        assert_eq!(info.n_rows() * info.row_bytes(), info.n_bytes);
        assert_eq!(info.n_bytes > 0, info.ty.is_known());
        assert_eq!(info.offset % gguf.alignment(), 0);
        // A tensor whose size cannot be told has one byte at least.
        let end = info.offset + info.n_bytes.max(1);
        assert!(end <= total);
        assert!(ranges.iter().all(|&(other, other_end)| info.offset >= other_end || end <= other));
        ranges.push((info.offset, end));
        assert_eq!(gguf.tensor(&info.name).unwrap(), info);
    }
    for (key, value) in gguf.metadata().iter() {
        assert_eq!(gguf.metadata().get(key).map(Value::to_string), Some(value.to_string()));
    }
    Some(gguf)
}
