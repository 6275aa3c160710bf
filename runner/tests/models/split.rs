//! Models in several files.

use std::fs;
use std::path::{Path, PathBuf};

use halfbyte::source;
use halfbyte_gguf::{Gguf, GgufWriter, Metadata, TensorInfo, Value};

fn part_path(directory: &Path, no: usize, count: usize) -> PathBuf {
    directory.join(format!("tiny-{:05}-of-{count:05}.gguf", no + 1))
}

/// The embedded model as `count` files; the first has only metadata if `bare`.
fn split(directory: &Path, count: usize, bare: bool) -> Gguf {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let n = gguf.tensors().len();
    let first = usize::from(bare);
    for no in 0..count {
        let mut metadata = if no == 0 { gguf.metadata().clone() } else { Metadata::new() };
        metadata.set("split.no", Value::U16(no as u16));
        metadata.set("split.count", Value::U16(count as u16));
        metadata.set("split.tensors.count", Value::I32(n as i32));
        let tensors: Vec<&TensorInfo> = match no.checked_sub(first) {
            None => Vec::new(),
            Some(k) => gguf.tensors().iter().skip(k).step_by(count - first).collect(),
        };
        let infos: Vec<TensorInfo> = tensors.iter().map(|t| (*t).clone()).collect();
        let mut writer = GgufWriter::create(part_path(directory, no, count), &metadata, &infos).unwrap();
        for info in tensors {
            writer.write_tensor(&info.name, gguf.bytes(info)).unwrap();
        }
        writer.commit().unwrap();
    }
    gguf
}

/// Everything that an error says, causes included.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[track_caller]
fn refused(path: &Path) -> String {
    let error = chain(&Gguf::open(path).unwrap_err());
    error.replace(&path.parent().unwrap().display().to_string(), "DIR")
}

#[test]
fn a_split_model_is_the_whole_model() {
    for (count, bare) in [(3, false), (2, true)] {
        let directory = tempfile::tempdir().unwrap();
        let whole = split(directory.path(), count, bare);
        let file = source::open(&part_path(directory.path(), 0, count)).unwrap();
        let parts = file.gguf().unwrap();
        assert_eq!(parts.n_parts(), count);
        assert!(file.format().starts_with(&format!("GGUF v3 in {count} parts")), "{}", file.format());
        assert_eq!(parts.tensors().len(), whole.tensors().len());
        for info in whole.tensors() {
            let found = parts.tensor(&info.name).unwrap();
            assert_eq!((found.ty, &found.dims), (info.ty, &info.dims));
            assert!(parts.bytes(found) == whole.bytes(info), "{}", info.name);
        }
        assert_eq!(
            parts.metadata().str("general.architecture").unwrap(),
            whole.metadata().str("general.architecture").unwrap()
        );
        file.require_unchanged().unwrap();
        let last = part_path(directory.path(), count - 1, count);
        fs::OpenOptions::new().append(true).open(&last).unwrap().set_len(100).unwrap();
        let error = file.require_unchanged().unwrap_err().to_string();
        assert!(error.contains("was changed while it was in use") && error.contains("100"), "{error}");
    }
}

#[test]
fn what_is_wrong_with_a_split_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |no| part_path(directory.path(), no, 3);
    split(directory.path(), 3, false);
    assert_eq!(
        refused(&at(1)),
        "DIR/tiny-00002-of-00003.gguf is part 2 of 3 of a split model: expected the first part, \
         DIR/tiny-00001-of-00003.gguf"
    );
    let renamed = directory.path().join("model.gguf");
    fs::copy(at(0), &renamed).unwrap();
    assert_eq!(
        refused(&renamed),
        "DIR/model.gguf is part 1 of 3 of a split model: expected a name that ends in -00001-of-00003.gguf, \
         by which the other parts are found"
    );
    let in_memory = Gguf::from_vec(fs::read(at(2)).unwrap()).unwrap_err().to_string();
    assert!(in_memory.starts_with("part 3 of 3 of a split model: expected a whole one"), "{in_memory}");

    let third = fs::read(at(2)).unwrap();
    fs::remove_file(at(2)).unwrap();
    let error = refused(&at(0));
    assert!(
        error.starts_with("part 3 of 3 of a split model: cannot open DIR/tiny-00003-of-00003.gguf"),
        "{error}"
    );
    fs::copy(at(1), at(2)).unwrap();
    assert_eq!(
        refused(&at(0)),
        "DIR/tiny-00003-of-00003.gguf says that it is part 2 of 3: expected part 3 of 3"
    );
    fs::write(at(2), &third[..third.len() / 2]).unwrap();
    let error = refused(&at(0));
    assert!(
        error.starts_with("part 3 of 3 of a split model: DIR/tiny-00003-of-00003.gguf: tensor "),
        "{error}"
    );
    fs::write(at(2), b"GGUF").unwrap();
    assert!(refused(&at(0)).contains("tiny-00003-of-00003.gguf: header: the version"));
}

/// Small parts of one tensor each.
fn small(directory: &Path, no: u16, count: u16, tensors: i32, name: &str) {
    let mut metadata = Metadata::new();
    metadata.set("split.no", Value::U16(no));
    metadata.set("split.count", Value::U16(count));
    metadata.set("split.tensors.count", Value::I32(tensors));
    let info = TensorInfo::new(name, halfbyte_gguf::TensorType::F32, &[1]).unwrap();
    let path = part_path(directory, no.into(), count.into());
    let mut writer = GgufWriter::create(path, &metadata, &[info]).unwrap();
    writer.append(&[0; 4]).unwrap();
    writer.commit().unwrap();
}

#[test]
fn counts_and_names_across_parts() {
    let directory = tempfile::tempdir().unwrap();
    small(directory.path(), 0, 2, 3, "a");
    small(directory.path(), 1, 2, 3, "b");
    let first = part_path(directory.path(), 0, 2);
    assert_eq!(
        refused(&first),
        "the parts of the split model have 2 tensors: expected 3 (split.tensors.count)"
    );
    small(directory.path(), 0, 2, 2, "b");
    assert_eq!(refused(&first), "tensor \"b\" occurs twice: expected each name once");
    small(directory.path(), 0, 65535, 2, "b");
    assert_eq!(
        refused(&part_path(directory.path(), 0, 65535)),
        "metadata key \"split.count\": the number of parts is 65535: expected at most 1024"
    );
    small(directory.path(), 0, 2, -1, "a");
    assert!(refused(&first).contains("split.tensors.count\" has the value -1"));
    // A single part is no split.
    small(directory.path(), 0, 1, 1, "a");
    assert_eq!(Gguf::open(part_path(directory.path(), 0, 1)).unwrap().n_parts(), 1);
}
