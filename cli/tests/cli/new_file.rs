//! Where commands may write their files.

use std::fs;
use std::path::Path;

use crate::support::{Done, run, temp_dir};
use halfbyte_gguf::{Gguf, GgufWriter, Metadata, TensorInfo, Value};

/// The embedded model's file, F16 matrices and F32 norms.
const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/halfbyte-tiny.gguf");

/// A text that is long enough to measure an imatrix on.
const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

fn at(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

fn quantize(input: &str, output: &str) -> Done {
    run(&["quantize", input, output, "--type", "q8_0", "--force"])
}

/// An imatrix of the embedded model on `text`, written to `output`.
fn imatrix(output: &str, text: &str) -> Done {
    run(&["imatrix", "--model", TINY, "--text", text, "--tokens", "32", "--force", output])
}

/// The embedded model in two files; their paths.
fn split(dir: &tempfile::TempDir) -> [String; 2] {
    let gguf = Gguf::open(TINY).unwrap();
    let parts = [at(dir, "tiny-00001-of-00002.gguf"), at(dir, "tiny-00002-of-00002.gguf")];
    let half = gguf.tensors().len() / 2;
    for (no, tensors) in [&gguf.tensors()[..half], &gguf.tensors()[half..]].into_iter().enumerate() {
        let mut metadata = if no == 0 { gguf.metadata().clone() } else { Metadata::new() };
        metadata.set("split.no", Value::U16(no as u16));
        metadata.set("split.count", Value::U16(2));
        let infos: Vec<TensorInfo> = tensors.to_vec();
        let mut writer = GgufWriter::create(&parts[no], &metadata, &infos).unwrap();
        for info in tensors {
            writer.write_tensor(&info.name, gguf.bytes(info)).unwrap();
        }
        writer.commit().unwrap();
    }
    parts
}

#[test]
fn files_of_the_input_are_not_replaced() {
    let dir = temp_dir();
    let parts = split(&dir);
    for part in &parts {
        let before = fs::read(part).unwrap();
        let error = quantize(&parts[0], part).error();
        assert_eq!(error, format!("{part} is the file to be read: expected another name for the new one"));
        assert!(fs::read(part).unwrap() == before, "{part} has changed");
    }
    let whole = at(&dir, "whole.gguf");
    quantize(&parts[0], &whole).ok();
    // What else a command reads.
    let text = at(&dir, "text");
    fs::copy(TEXT, &text).unwrap();
    assert!(imatrix(&text, &text).error().contains("is the file to be read"));
    let first = at(&dir, "first.imatrix");
    imatrix(&first, &text).ok();
    let args = ["--type", "q4_0", "--imatrix", &first, "--force"];
    let error = run(&[&["quantize", TINY, &first], &args[..]].concat()).error();
    assert!(error.contains("is the file to be read"), "{error}");
    assert!(fs::read(&text).unwrap() == fs::read(TEXT).unwrap());
}

#[test]
fn files_of_an_input_directory_are_not_replaced() {
    let dir = temp_dir();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/checkpoints/mlx_llama_4bit_g32");
    let model = at(&dir, "model");
    fs::create_dir(&model).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), Path::new(&model).join(entry.file_name())).unwrap();
    }
    fs::write(format!("{model}/notes.txt"), "mine").unwrap();
    for entry in fs::read_dir(&model).unwrap() {
        let path = entry.unwrap().path();
        let before = fs::read(&path).unwrap();
        let error = quantize(&model, path.to_str().unwrap()).error();
        assert!(error.ends_with(": expected another name for the new one"), "{error}");
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert!(fs::read(&path).unwrap() == before, "{} has changed", path.display());
    }
    // A new name in it is as good as any other.
    quantize(&model, &format!("{model}/new.gguf")).ok();
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_stays() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::os::unix::net::UnixListener;

    let dir = temp_dir();
    assert!(std::process::Command::new("mkfifo").arg(at(&dir, "pipe")).status().unwrap().success());
    let _listener = UnixListener::bind(at(&dir, "socket")).unwrap();
    fs::create_dir(at(&dir, "folder")).unwrap();
    symlink("nothing", at(&dir, "to_nothing")).unwrap();
    symlink("pipe", at(&dir, "to_pipe")).unwrap();
    for (name, got) in [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("folder", "a directory"),
        ("to_nothing", "a link that leads nowhere"),
        ("to_pipe", "a pipe"),
    ] {
        let out = at(&dir, name);
        let expected =
            format!("cannot write {out}: it is {got}, expected a regular file or a name that is not in use");
        assert_eq!(quantize(TINY, &out).error(), expected);
        assert_eq!(imatrix(&out, TEXT).error(), expected);
    }
    assert!(fs::symlink_metadata(at(&dir, "pipe")).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(at(&dir, "socket")).unwrap().file_type().is_socket());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 5);
    // The checkpoint of a calibrated quantization is a file like any other.
    symlink("pipe", at(&dir, "out.gguf.partial")).unwrap();
    let gptq = ["--type", "q4_0", "--method", "gptq", "--calibrate", TEXT, "--calibrate-tokens", "32"];
    let error = run(&[&["quantize", TINY, &at(&dir, "out.gguf")], &gptq[..]].concat()).error();
    assert!(error.contains("out.gguf.partial: it is a pipe"), "{error}");
    // So are manual pages.
    symlink("pipe", at(&dir, "halfbyte-run.1")).unwrap();
    let error = run(&["man", dir.path().to_str().unwrap()]).error();
    assert!(error.contains("halfbyte-run.1: it is a pipe"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_link_to_a_file_is_followed() {
    let dir = temp_dir();
    let (link, target) = (at(&dir, "link"), at(&dir, "target"));
    fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink("target", &link).unwrap();
    quantize(TINY, &link).ok();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(Gguf::open(&target).is_ok());
    // A link to the input is the input.
    let error = quantize(&target, &link).error();
    assert!(error.contains("is the file to be read"), "{error}");
}

#[test]
fn a_missing_folder_is_named() {
    let dir = temp_dir();
    let out = at(&dir, "no/such/out.gguf");
    let folder = at(&dir, "no/such");
    for error in [quantize(TINY, &out).error(), imatrix(&out, TEXT).error()] {
        assert_eq!(error, format!("cannot write {out}: there is no directory {folder}"));
    }
}
