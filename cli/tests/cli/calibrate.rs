//! `halfbyte imatrix` and the methods of `halfbyte quantize` that need a text.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Done, halfbyte, interrupt, keys, run, temp_dir};
use halfbyte_gguf::imatrix::Imatrix;
use halfbyte_gguf::{Gguf, TensorType};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/halfbyte-tiny.gguf");
const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/validation.txt");

fn at(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

fn quantize(output: &str, more: &[&str]) -> Done {
    run(&[&["quantize", TINY, output, "--type", "q4_0", "--ctx", "64"], more].concat())
}

#[test]
fn an_imatrix_is_written_merged_and_used() {
    let dir = temp_dir();
    let (first, both, dat) = (at(&dir, "first.gguf"), at(&dir, "both.gguf"), at(&dir, "both.dat"));
    let imatrix = |out: &str, more: &[&str]| {
        run(&[&["imatrix", "--model", TINY, "--text", TEXT, "--ctx", "64", out], more].concat())
    };
    let json = imatrix(&first, &["--tokens", "700", "--json"]).json();
    assert_eq!(
        keys(&json),
        ["chunks", "format", "matrices", "model", "output", "seconds", "window", "windows"]
    );
    assert_eq!((&json["matrices"], &json["windows"], &json["chunks"]), (&29.into(), &10.into(), &10.into()));
    assert!(imatrix(&first, &[]).error().ends_with("first.gguf exists already: --force replaces it"));
    assert!(imatrix(TINY, &["--force"]).error().contains("is the file to be read"));

    imatrix(&both, &["--tokens", "128", "--merge", &first]).ok();
    imatrix(&dat, &["--tokens", "128", "--merge", &first, "--format", "dat"]).ok();
    let [first_read, both_read, dat_read] = [&first, &both, &dat].map(|path| Imatrix::open(path).unwrap());
    assert_eq!((both_read.chunk_count(), dat_read.chunk_count()), (12, 12));
    assert_eq!(
        (both_read.chunk_size().get(), both_read.datasets()),
        (64, &[TEXT.to_owned(), TEXT.to_owned()][..])
    );
    let name = "blk.1.ffn_down.weight";
    let [a, b, c] = [first_read, both_read, dat_read].map(|m| m.importance(name, 704).unwrap().unwrap());
    assert_ne!(a, b);
    for (b, c) in b.iter().zip(&c) {
        assert!((b / c - 1.0).abs() < 1e-5);
    }

    // Either format gives the same blocks, and other ones than no importance does.
    let [from_gguf, from_dat, without] = [&["--imatrix", &both][..], &["--imatrix", &dat], &[]].map(|more| {
        let out = at(&dir, "q4_0.gguf");
        let done = quantize(&out, &[more, &["--force", "--strict"]].concat());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        std::fs::read(out).unwrap()
    });
    assert!(from_gguf != without);
    let differing = from_gguf.iter().zip(&from_dat).filter(|(a, b)| a != b).count();
    assert!(differing < from_gguf.len() / 1000, "{differing} bytes differ");
}

#[test]
fn what_an_imatrix_lacks_is_said_and_with_strict_refused() {
    let dir = temp_dir();
    let (partial, wrong, out) = (at(&dir, "partial.gguf"), at(&dir, "wrong.dat"), at(&dir, "out.gguf"));
    let mut imatrix = Imatrix::new(64.try_into().unwrap());
    imatrix.add("blk.0.attn_q.weight", &[1.0; 256], 256).unwrap();
    imatrix.save(&partial, halfbyte_gguf::imatrix::Format::Gguf).unwrap();
    let done = quantize(&out, &["--imatrix", &partial]);
    assert_eq!(done.code, Some(0));
    let said = "no importance is known for 28 tensors, whose columns count alike: ";
    assert!(done.stderr.contains(said), "{}", done.stderr);
    let error = quantize(&out, &["--imatrix", &partial, "--strict", "--force"]).error();
    assert!(error.starts_with("--strict: no importance is known for 28 tensors"), "{error}");
    assert!(Gguf::open(&out).is_ok());

    let mut imatrix = Imatrix::new(64.try_into().unwrap());
    imatrix.add("blk.0.attn_q.weight", &[1.0; 10], 10).unwrap();
    imatrix.save(&wrong, halfbyte_gguf::imatrix::Format::Dat).unwrap();
    let error = quantize(&out, &["--imatrix", &wrong, "--force"]).error();
    assert!(
        error.contains("256") && error.contains("10") && error.contains("blk.0.attn_q.weight"),
        "{error}"
    );
    let error = quantize(&out, &["--imatrix", TINY, "--force"]).error();
    assert!(error.contains("imatrix"), "{error}");
    assert!(quantize(&out, &["--imatrix", "none.dat", "--force"]).error().contains("none.dat"));
}

/// The options of a calibration that takes a moment.
fn gptq<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--method", "gptq", "--calibrate", TEXT, "--calibrate-tokens", "2048"], more].concat()
}

#[test]
fn a_killed_quantize_leaves_the_output_and_the_next_goes_on() {
    let dir = temp_dir();
    let (out, whole) = (at(&dir, "out.gguf"), at(&dir, "whole.gguf"));
    let partial = format!("{out}.partial");
    quantize(&whole, &gptq(&["--threads", "1"])).ok();
    std::fs::write(&out, "precious").unwrap();

    let args =
        [&["quantize", TINY, &out, "--type", "q4_0", "--ctx", "64", "--force"], &gptq(&[])[..]].concat();
    let mut child = halfbyte(&args).spawn().unwrap();
    let start = Instant::now();
    // Some tensors in; the whole is two megabytes.
    while std::fs::metadata(&partial).map_or(0, |m| m.len()) < 200_000 {
        assert!(start.elapsed() < Duration::from_secs(300), "nothing was kept");
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");

    // Other options do not go with what is there; the same ones do.
    let error = quantize(&out, &gptq(&["--damping", "0.02", "--force"])).error();
    assert!(error.starts_with(&partial) && error.contains("remove it"), "{error}");
    quantize(&out, &gptq(&["--force"])).ok();
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&whole).unwrap());
    assert!(!Path::new(&partial).exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn exceptions_orders_and_importance_go_together() {
    let dir = temp_dir();
    let (imatrix, out) = (at(&dir, "m.gguf"), at(&dir, "out.gguf"));
    run(&["imatrix", "--model", TINY, "--text", TEXT, "--tokens", "512", &imatrix]).ok();
    let more =
        ["--natural-order", "--imatrix", &imatrix, "--keep", "*.attn_v.*=q8_0", "--keep", "*down*=q4_1"];
    let json = quantize(&out, &gptq(&[&more[..], &["--json"]].concat())).json();
    assert_eq!(json["method"], "gptq");
    let gguf = Gguf::open(&out).unwrap();
    for (name, ty) in [
        ("blk.0.attn_v.weight", TensorType::Q8_0),
        ("blk.3.ffn_down.weight", TensorType::Q4_1),
        ("blk.2.attn_q.weight", TensorType::Q4_0),
        ("token_embd.weight", TensorType::Q4_0),
    ] {
        assert_eq!(gguf.tensor(name).unwrap().ty, ty, "{name}");
    }
    // A fit with importance from the text itself.
    let json =
        quantize(&out, &["--calibrate", TEXT, "--calibrate-tokens", "512", "--force", "--json"]).json();
    assert_eq!(json["method"], "fit");
}

#[test]
fn gptq_says_what_had_no_importance() {
    let dir = temp_dir();
    let (imatrix, out) = (at(&dir, "m.gguf"), at(&dir, "out.gguf"));
    let mut zeros = Imatrix::new(64.try_into().unwrap());
    // All columns but the first group of 32.
    let x: Vec<f32> = (0..256).map(|c| if c < 32 { 1.0 } else { 0.0 }).collect();
    zeros.add("blk.0.attn_k.weight", &x, 256).unwrap();
    zeros.save(&imatrix, halfbyte_gguf::imatrix::Format::Gguf).unwrap();
    let done = quantize(&out, &gptq(&["--imatrix", &imatrix]));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    // Seven groups in each of 128 rows.
    let said = r#"warning: "blk.0.attn_k.weight": 896 groups without any importance"#;
    assert!(done.stderr.contains(said), "{}", done.stderr);
}

#[test]
fn texts_that_say_nothing_are_refused() {
    let dir = temp_dir();
    let (empty, binary, out) = (at(&dir, "empty.txt"), at(&dir, "binary.txt"), at(&dir, "out.gguf"));
    std::fs::write(&empty, "").unwrap();
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    let with = |text: &str| quantize(&out, &["--method", "gptq", "--calibrate", text]).error();
    assert!(with(&empty).ends_with("empty.txt is empty: expected a text to calibrate on"));
    assert!(with(&binary).contains("binary.txt is not UTF-8"));
    assert!(with("none.txt").contains("cannot read none.txt"));
    let error =
        run(&["quantize", TINY, &out, "--type", "q4_0", "--calibrate", TEXT, "--ctx", "9999"]).error();
    assert!(error.contains("9999") && error.contains("512"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// The message of a command that Ctrl-C stops while it works, with what it leaves in `dir`. A slow machine may not have
/// begun when it is stopped, so it is tried later, too.
fn stopped(args: &[&str]) -> String {
    let stop_after = |seconds| {
        let mut child = halfbyte(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        assert!(child.try_wait().unwrap().is_none(), "it was done before it could be stopped");
        interrupt(&child);
        let done = Done::from(child.wait_with_output().unwrap());
        // Before it listens for signals one ends it without a word.
        (done.code == Some(1)).then_some(done.stderr)
    };
    [1, 2, 4, 8].into_iter().find_map(stop_after).unwrap()
}

#[test]
fn ctrl_c_leaves_files_as_they_were() {
    let dir = temp_dir();
    let (out, text) = (at(&dir, "out"), at(&dir, "text"));
    std::fs::write(&text, std::fs::read_to_string(TEXT).unwrap().repeat(40)).unwrap();
    std::fs::write(&out, "old").unwrap();
    let names = || std::fs::read_dir(dir.path()).unwrap().count();
    let calibrated = ["--calibrate", &text, "--calibrate-tokens", "1000000"];
    let quantize =
        [&["quantize", TINY, &out, "--type", "q4_0", "--ctx", "64", "--force"], &calibrated[..]].concat();
    for args in
        [&["imatrix", "--model", TINY, "--text", &text, "--ctx", "64", &out, "--force"], &quantize[..]]
    {
        assert_eq!(stopped(args), format!("error: stopped; {out} is as it was\n"));
        assert_eq!((std::fs::read_to_string(&out).unwrap().as_str(), names()), ("old", 2), "{args:?}");
    }
    let error = stopped(&[&quantize[..], &["--method", "gptq"]].concat());
    assert!(error.starts_with(&format!("error: stopped; {out} is as it was, and ")), "{error}");
    assert!(error.ends_with(" tensors: the same command goes on from there\n"), "{error}");
    // What goes on from there lies beside it.
    assert_eq!((std::fs::read_to_string(&out).unwrap().as_str(), names()), ("old", 3), "{error}");
}
