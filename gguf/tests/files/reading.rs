//! Writer to reader and back, files on disk, and bytes that are part of the program.

use std::fs;
use std::io::{self, Write};

use halfbyte_gguf::{
    Aligned, Array, Error, Gguf, GgufWriter, Metadata, StringTable, TensorInfo, TensorType, Value,
};

/// The whole of `error`, its sources included.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

fn all_values() -> Metadata {
    let mut m = Metadata::new();
    for (key, value) in [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-100)),
        ("u16", Value::U16(60000)),
        ("i16", Value::I16(-30000)),
        ("u32", Value::U32(u32::MAX)),
        ("i32", Value::I32(i32::MIN)),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f32", Value::F32(-0.1)),
        ("f64", Value::F64(1e300)),
        ("bool", Value::Bool(true)),
        ("string", Value::from("grüße\0")),
        ("empty", Value::from("")),
        ("u8s", Value::Array(Array::U8(vec![0, 255]))),
        ("i8s", Value::Array(Array::I8(vec![-128, 127]))),
        ("u16s", Value::Array(Array::U16(vec![1, 65535]))),
        ("i16s", Value::Array(Array::I16(vec![-1, 32767]))),
        ("u32s", Value::Array(Array::U32(vec![7; 3]))),
        ("i32s", Value::Array(Array::I32(vec![-7, 7]))),
        ("u64s", Value::Array(Array::U64(vec![1 << 40]))),
        ("i64s", Value::Array(Array::I64(vec![-(1 << 40)]))),
        ("f32s", Value::Array(Array::F32(vec![0.5, -2.0]))),
        ("f64s", Value::Array(Array::F64(vec![0.25]))),
        ("bools", Value::Array(Array::Bool(vec![true, false]))),
        ("strings", ["a", "", "→"].into_iter().collect::<StringTable>().into()),
        ("none", Value::Array(Array::I32(Vec::new()))),
    ] {
        m.set(key, value);
    }
    m
}

/// One tensor of each type, with a row of one block and then some, and bytes
/// that differ everywhere.
fn all_tensors() -> Vec<(TensorInfo, Vec<u8>)> {
    let make = |&ty: &TensorType| {
        let info = TensorInfo::new(format!("t.{ty}"), ty, &[2 * ty.block_len(), 3]).unwrap();
        let bytes = (0..info.n_bytes).map(|i| (i * 31 + ty.id() as usize) as u8).collect();
        (info, bytes)
    };
    TensorType::ALL.iter().filter(|ty| ty.is_ggml()).map(make).collect()
}

#[test]
fn round_trip() {
    for alignment in [None, Some(8_u32), Some(32), Some(4096)] {
        let mut metadata = all_values();
        if let Some(alignment) = alignment {
            metadata.set("general.alignment", alignment);
        }
        let tensors = all_tensors();
        let infos: Vec<TensorInfo> = tensors.iter().map(|(info, _)| info.clone()).collect();
        let mut writer = GgufWriter::new(Vec::new(), &metadata, &infos).unwrap();
        for (i, (info, bytes)) in tensors.iter().enumerate() {
            if i % 2 == 0 {
                writer.write_tensor(&info.name, bytes).unwrap();
            } else {
                bytes.chunks(17).for_each(|piece| writer.append(piece).unwrap());
            }
        }
        let file = writer.finish().unwrap();

        let gguf = Gguf::from_vec(file.clone()).unwrap();
        let alignment = alignment.unwrap_or(32) as usize;
        assert_eq!((gguf.version(), gguf.alignment(), file.len() % alignment), (3, alignment, 0));
        assert_eq!(gguf.metadata(), &metadata);
        assert!(gguf.metadata().iter().eq(metadata.iter()), "file order");
        assert_eq!(gguf.tensors().len(), tensors.len());
        for (read, (info, bytes)) in gguf.tensors().iter().zip(&tensors) {
            assert_eq!((&read.name, read.ty, &read.dims), (&info.name, info.ty, &info.dims));
            assert_eq!(gguf.bytes(read), bytes.as_slice());
        }

        // Written again from what was read: the same file.
        let mut again = GgufWriter::new(Vec::new(), gguf.metadata(), gguf.tensors()).unwrap();
        for info in gguf.tensors() {
            again.write_tensor(&info.name, gguf.bytes(info)).unwrap();
        }
        assert!(again.finish().unwrap() == file);
    }
}

/// A complete file byte by byte, so that reader and writer cannot agree on
/// something wrong. Padded to 160, where the tensor data starts, and to 192.
#[rustfmt::skip]
const BY_HAND: [u8; 192] = *b"GGUF\x03\0\0\0\
\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
\x04\0\0\0\0\0\0\0abcd\x04\0\0\0\x2a\0\0\0\
\x01\0\0\0\0\0\0\0d\x09\0\0\0\x08\0\0\0\x02\0\0\0\0\0\0\0\
\x01\0\0\0\0\0\0\0x\x02\0\0\0\0\0\0\0yz\
\x01\0\0\0\0\0\0\0w\x02\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40\0\0\xc0\x40\
\0\0\0\0\0\0\0\0";

static EMBEDDED: &Aligned<[u8]> = &Aligned(BY_HAND);

#[test]
fn embedded_and_written_by_hand() {
    fn shared<T: Send + Sync>(t: T) -> T {
        t
    }
    let gguf = shared(Gguf::from_static(&EMBEDDED.0).unwrap());
    assert_eq!(gguf.metadata().u32("abcd").unwrap(), 42);
    assert_eq!(gguf.metadata().strings("d").unwrap().iter().collect::<Vec<_>>(), ["x", "yz"]);
    let w = gguf.tensor("w").unwrap();
    assert_eq!((w.ty, w.dims.as_slice(), w.n_rows(), w.row_len()), (TensorType::F32, &[2, 3][..], 3, 2));
    assert_eq!(gguf.view::<f32>(w).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(gguf.view::<[u8; 4]>(w).unwrap()[1], [0, 0, 0, 0x40]);
    assert_eq!(
        gguf.view::<half::f16>(w).unwrap_err().to_string(),
        "tensor \"w\" of type F32 has blocks of 4 bytes: asked for elements of 2 bytes"
    );
    assert_eq!(gguf.tensor("v").unwrap_err().to_string(), "tensor \"v\" is missing (the file has 1 tensors)");

    let mut writer = GgufWriter::new(Vec::new(), gguf.metadata(), gguf.tensors()).unwrap();
    writer.write_tensor("w", gguf.bytes(w)).unwrap();
    assert_eq!(writer.finish().unwrap(), BY_HAND);
}

#[test]
fn unaligned_bytes_are_an_error_and_not_a_copy() {
    static SHIFTED: Aligned<[u8; 193]> = {
        let mut bytes = [0; 193];
        let mut i = 0;
        while i < 192 {
            bytes[i + 1] = BY_HAND[i];
            i += 1;
        }
        Aligned(bytes)
    };
    let gguf = Gguf::from_static(&SHIFTED.0[1..]).unwrap();
    let w = gguf.tensor("w").unwrap();
    assert_eq!(gguf.bytes(w), &BY_HAND[160..184]);
    assert_eq!(
        gguf.view::<f32>(w).unwrap_err().to_string(),
        "tensor \"w\" lies 1 bytes past a multiple of 4: expected it to be aligned \
         (embed the model in gguf::Aligned)"
    );
    assert_eq!(gguf.view::<[u8; 4]>(w).unwrap().len(), 6);
}

#[test]
fn file_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, "an older file").unwrap();
    let infos = [TensorInfo::new("w", TensorType::F32, &[4]).unwrap()];
    let data: &[u8] = bytemuck::cast_slice(&[1.0_f32, 2.0, 3.0, 4.0]);

    // A destination that cannot be: found before any work.
    let error = GgufWriter::create(dir.path(), &all_values(), &infos).unwrap_err();
    let expected = format!(
        "cannot write {}: it is a directory, expected a regular file or a name that is not in use",
        dir.path().display()
    );
    assert_eq!(chain(&error), expected);
    let missing = dir.path().join("no/such");
    let error = GgufWriter::create(&missing, &all_values(), &infos).unwrap_err();
    let folder = dir.path().join("no");
    let expected = format!("cannot write {}: there is no directory {}", missing.display(), folder.display());
    assert_eq!(chain(&error), expected);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    // Dropped before the end: nothing has happened.
    let mut writer = GgufWriter::create(&path, &all_values(), &infos).unwrap();
    writer.append(&data[..8]).unwrap();
    drop(writer);
    assert_eq!(fs::read(&path).unwrap(), b"an older file");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    // Ended too early: the same.
    let writer = GgufWriter::create(&path, &all_values(), &infos).unwrap();
    assert_eq!(
        writer.commit().unwrap_err().to_string(),
        "writing tensor data: expected 16 bytes of \"w\", got the end of the file"
    );
    assert_eq!(fs::read(&path).unwrap(), b"an older file");

    let mut writer = GgufWriter::create(&path, &all_values(), &infos).unwrap();
    writer.write_tensor("w", data).unwrap();
    writer.commit().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.file_bytes() as u64, fs::metadata(&path).unwrap().len());
    assert_eq!(gguf.view::<f32>(gguf.tensor("w").unwrap()).unwrap(), [1.0, 2.0, 3.0, 4.0]);

    // A file may be rewritten from itself: the mapping keeps the old one.
    let mut writer = GgufWriter::create(&path, gguf.metadata(), gguf.tensors()).unwrap();
    writer.write_tensor("w", &[0; 16]).unwrap();
    writer.commit().unwrap();
    assert_eq!(gguf.view::<f32>(gguf.tensor("w").unwrap()).unwrap()[3], 4.0);
    let new = Gguf::open(&path).unwrap();
    assert_eq!(new.view::<f32>(new.tensor("w").unwrap()).unwrap()[3], 0.0);
}

/// A written model is an ordinary file, not one for its owner only.
#[cfg(unix)]
#[test]
fn written_file_has_ordinary_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    GgufWriter::create(&ours, &Metadata::new(), &[]).unwrap().commit().unwrap();
    fs::write(&theirs, "").unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&ours), mode(&theirs));
}

#[test]
fn what_cannot_be_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let shown = |name: &str| dir.path().join(name).display().to_string();

    let error = Gguf::open(dir.path()).unwrap_err().to_string();
    assert!(
        error.ends_with(
            " is a directory: expected a regular file (a model is mapped into memory, not streamed)"
        ),
        "{error}"
    );

    let missing = dir.path().join("missing");
    let error = Gguf::open(&missing).unwrap_err();
    assert!(matches!(&error, Error::Open { source, .. } if source.kind() == io::ErrorKind::NotFound));
    assert_eq!(error.to_string(), format!("cannot open {}", shown("missing")));
    assert!(chain(&error).len() > error.to_string().len(), "the system's words are in the chain");

    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    assert_eq!(
        Gguf::open(&empty).unwrap_err().to_string(),
        format!("{} is empty: expected a GGUF file", shown("empty"))
    );

    let text = dir.path().join("text");
    fs::write(&text, "# Readme").unwrap();
    assert_eq!(
        Gguf::open(&text).unwrap_err().to_string(),
        "not a GGUF file: expected it to start with \"GGUF\", found \"# Re\""
    );
}

#[cfg(unix)]
#[test]
fn special_files_are_named_and_never_block() {
    use std::os::unix::net::UnixListener;
    let dir = tempfile::tempdir().unwrap();
    let is = |path: &std::path::Path, what: &str| {
        let error = Gguf::open(path).unwrap_err().to_string();
        assert!(error.contains(&format!(" is {what}: expected a regular file")), "{error}");
    };
    let socket = dir.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    is(&socket, "a socket");
    is(std::path::Path::new("/dev/zero"), "a device");
    // mkfifo is in POSIX; opening the result without a writer would wait forever.
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    is(&pipe, "a pipe");
}

#[cfg(unix)]
#[test]
fn unreadable_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, BY_HAND).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    match Gguf::open(&path) {
        Err(Error::Open { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::PermissionDenied),
        // The superuser may read it all the same.
        Ok(gguf) => assert_eq!(gguf.file_bytes(), BY_HAND.len()),
        Err(other) => panic!("{other}"),
    }
}

/// A disk with room for so many bytes.
#[derive(Debug)]
struct Full(usize);

impl Write for Full {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = buf.len().min(self.0);
        self.0 -= n;
        if n == 0 && !buf.is_empty() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_with_its_reason() {
    let infos = [TensorInfo::new("w", TensorType::F32, &[64]).unwrap()];
    let error = GgufWriter::new(Full(10), &Metadata::new(), &infos).unwrap_err();
    assert_eq!(chain(&error), "cannot write the GGUF file, at tensor \"w\": no storage space");
    let mut writer = GgufWriter::new(Full(200), &Metadata::new(), &infos).unwrap();
    let error = writer.write_tensor("w", &[0; 256]).unwrap_err();
    assert_eq!(chain(&error), "cannot write the GGUF file, at tensor \"w\": no storage space");
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let foreign = TensorInfo::new("a", TensorType::MLX4_G64, &[64]).unwrap();
    let error = GgufWriter::new(Vec::new(), &Metadata::new(), &[foreign]).unwrap_err().to_string();
    assert_eq!(error, "tensor \"a\" has type MLX4_G64, which GGUF files do not have");
    let new = |metadata: &Metadata, infos: &[TensorInfo]| {
        let mut out = Vec::new();
        let error = GgufWriter::new(&mut out, metadata, infos).map(drop).unwrap_err().to_string();
        assert!(out.is_empty(), "nothing is written");
        error
    };
    let with = |key: &str, value: Value| {
        let mut m = Metadata::new();
        m.set(key, value);
        m
    };
    let none = Metadata::new();
    let w = TensorInfo::new("w", TensorType::F32, &[4]).unwrap();

    assert_eq!(new(&none, &[w.clone(), w.clone()]), "tensor \"w\" occurs twice: expected each name once");
    let mut bad = w.clone();
    bad.dims = vec![4, 0];
    assert_eq!(new(&none, &[bad]), "tensor \"w\" has dimensions 4 x 0: expected every one to be at least 1");
    let mut bad = w.clone();
    bad.name = "n".repeat(1025);
    assert_eq!(new(&none, &[bad]), "tensor entry 0: name length in bytes is 1025: expected at most 1024");
    assert_eq!(
        new(&with("general.alignment", Value::U32(48)), &[]),
        "general.alignment is 48: expected a power of two from 8 to 1048576"
    );
    assert_eq!(
        new(&with("general.alignment", Value::U64(32)), &[]),
        "metadata key \"general.alignment\" is a u64: expected a u32"
    );
    assert_eq!(
        new(&with("k", Value::Array(Array::U8(vec![0; (1 << 24) + 1]))), &[]),
        "metadata key \"k\": array length is 16777217: expected at most 16777216"
    );
    let huge = TensorInfo::new("h", TensorType::I8, &[1 << 63]).unwrap();
    let mut other = huge.clone();
    other.name = "i".to_owned();
    assert_eq!(
        new(&none, &[huge, other]),
        "tensor \"i\" with dimensions 9223372036854775808 and type I8: its size overflows"
    );
}

#[test]
fn tensor_data_out_of_order() {
    let infos = ["a", "b"].map(|name| TensorInfo::new(name, TensorType::F32, &[2]).unwrap());
    let mut writer = GgufWriter::new(Vec::new(), &Metadata::new(), &infos).unwrap();
    let message = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert_eq!(
        message(writer.write_tensor("b", &[0; 8])),
        "writing tensor data: expected 8 bytes of \"a\", got 8 bytes of \"b\""
    );
    assert_eq!(
        message(writer.write_tensor("a", &[0; 7])),
        "writing tensor data: expected 8 bytes of \"a\", got 7 bytes of \"a\""
    );
    writer.append(&[1; 3]).unwrap();
    assert_eq!(
        message(writer.append(&[0; 6])),
        "writing tensor data: expected at most 5 bytes of \"a\", got 6 bytes"
    );
    writer.append(&[2; 5]).unwrap();
    writer.write_tensor("b", &[3; 8]).unwrap();
    assert_eq!(
        message(writer.append(&[0])),
        "writing tensor data: expected the end of the file, got 1 more bytes"
    );
    // What was refused has left no trace.
    let gguf = Gguf::from_vec(writer.finish().unwrap()).unwrap();
    assert_eq!(gguf.bytes(gguf.tensor("a").unwrap()), [1, 1, 1, 2, 2, 2, 2, 2]);
    assert_eq!(gguf.bytes(gguf.tensor("b").unwrap()), [3; 8]);
}
