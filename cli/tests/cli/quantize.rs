//! `halfbyte quantize` and `halfbyte compare`, and the module under them.

use std::ops::ControlFlow;
use std::path::Path;

use crate::support::{Done, keys, run, temp_dir};
use bytemuck::Pod;
use half::{bf16, f16};
use halfbyte::requantize::Plan;
use halfbyte_cpu_kernels::{Context, Isa, quantize_q4_0_fit};
use halfbyte_gguf::{Gguf, GgufWriter, Metadata, TensorInfo, TensorType};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;
use halfbyte_threadpool::ThreadPool;
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};
use serde_json::Value;

/// The embedded model's file, F16 matrices and F32 norms.
const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/halfbyte-tiny.gguf");

/// A path in `dir`, as an argument.
fn at(dir: &tempfile::TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

fn quantize(input: &str, output: &str, more: &[&str]) -> Done {
    run(&[&["quantize", input, output], more].concat())
}

/// The embedded model in another type, and what was said of it.
fn quantize_tiny(dir: &tempfile::TempDir, more: &[&str]) -> (Gguf, Value) {
    let out = at(dir, "out.gguf");
    let json = quantize(TINY, &out, &[more, &["--json", "--force"]].concat()).json();
    (Gguf::open(out).unwrap(), json)
}

/// A tensor to write: its name, sizes (the first contiguous) and values.
type Made<'a> = (&'a str, &'a [usize], Vec<f32>);

/// A file of the given tensors.
fn write_f32(path: &str, tensors: &[Made<'_>]) {
    let infos: Vec<_> = tensors
        .iter()
        .map(|(name, dims, _)| TensorInfo::new(*name, TensorType::F32, dims).unwrap())
        .collect();
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    let mut writer = GgufWriter::create(path, &metadata, &infos).unwrap();
    for (name, _, values) in tensors {
        writer.write_tensor(name, bytemuck::cast_slice(values)).unwrap();
    }
    writer.commit().unwrap();
}

/// Values of a linear congruential generator, from -1 to 1.
fn values(n: usize) -> Vec<f32> {
    let mut state = 11_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// A tensor's weights, row by row through the public block types.
fn decode(gguf: &Gguf, info: &TensorInfo) -> Vec<f32> {
    match info.ty {
        TensorType::F32 => gguf.view::<f32>(info).unwrap().to_vec(),
        TensorType::F16 => gguf.view::<f16>(info).unwrap().iter().map(|w| w.to_f32()).collect(),
        TensorType::BF16 => gguf.view::<bf16>(info).unwrap().iter().map(|w| w.to_f32()).collect(),
        TensorType::Q8_0 => gguf.view(info).unwrap().iter().flat_map(BlockQ8_0::dequantize).collect(),
        TensorType::Q4_0 => gguf.view(info).unwrap().iter().flat_map(BlockQ4_0::dequantize).collect(),
        TensorType::Q4_1 => gguf.view(info).unwrap().iter().flat_map(BlockQ4_1::dequantize).collect(),
        ty => panic!("{ty}"),
    }
}

/// `sum (a - b)^2` and `sum a^2`.
fn sums(a: &[f32], b: &[f32]) -> (f64, f64) {
    assert_eq!(a.len(), b.len());
    let pairs = || a.iter().zip(b).map(|(&a, &b)| (f64::from(a), f64::from(b)));
    (pairs().map(|(a, b)| (a - b).powi(2)).sum(), pairs().map(|(a, _)| a * a).sum())
}

#[track_caller]
fn assert_close(got: &Value, expected: f64) {
    let got = got.as_f64().unwrap();
    assert!((got - expected).abs() <= 1e-9 * expected, "{got} is not {expected}");
}

/// Every matrix of `quantized` is what `quantizer` makes of the rows of `original`.
fn assert_rows<B: Pod + std::fmt::Debug + PartialEq, E: std::fmt::Debug>(
    original: &Gguf,
    quantized: &Gguf,
    quantizer: impl Fn(&[f32], &mut [B]) -> Result<(), E>,
) {
    for info in original.tensors().iter().filter(|t| t.dims.len() == 2) {
        let blocks = quantized.view::<B>(quantized.tensor(&info.name).unwrap()).unwrap();
        let rows = decode(original, info);
        let per_row = info.row_len() / 32;
        for (row, (weights, got)) in rows.chunks(info.row_len()).zip(blocks.chunks(per_row)).enumerate() {
            let mut expected = vec![B::zeroed(); per_row];
            quantizer(weights, &mut expected).unwrap();
            assert_eq!(got, expected, "{}, row {row}", info.name);
        }
        assert_eq!(blocks.len(), info.n_rows() * per_row);
    }
}

#[test]
fn the_bytes_are_those_of_the_row_quantizers() {
    let (dir, original) = (temp_dir(), Gguf::open(TINY).unwrap());
    let pool = ThreadPool::new(1).unwrap();
    let ctx = Context { pool: &pool, isa: Isa::scalar() };
    let fit = |x: &[f32], blocks: &mut [_]| quantize_q4_0_fit(ctx, x, blocks);
    let tiny = |more: &[&str]| quantize_tiny(&dir, more).0;
    assert_rows(&original, &tiny(&["--type", "q4_0", "--method", "max7"]), halfbyte_q4::q4_row);
    assert_rows(&original, &tiny(&["--type", "q4_0", "--method", "max"]), halfbyte_q4::q4_row_max);
    assert_rows(&original, &tiny(&["--type", "q4_0", "--method", "fit"]), fit);
    assert_rows(&original, &tiny(&["--type", "q4_0"]), fit);
    assert_rows(&original, &tiny(&["--type", "q4_1", "--threads", "3"]), halfbyte_q4::q4_1_row);
    assert_rows(&original, &tiny(&["--type", "q8_0"]), halfbyte_q8::quantize_row);
}

#[test]
fn all_but_the_matrices_stays() {
    let (dir, original) = (temp_dir(), Gguf::open(TINY).unwrap());
    for (ty, file_type) in [("f32", 0_u32), ("f16", 1), ("q4_0", 2), ("q4_1", 3), ("q8_0", 7), ("bf16", 32)] {
        let (quantized, json) = quantize_tiny(&dir, &["--type", ty]);
        let mut expected = original.metadata().clone();
        expected.set("general.file_type", file_type);
        expected.set("general.quantization_version", 2_u32);
        assert_eq!(quantized.metadata(), &expected);
        assert_eq!(json["type"], ty.to_uppercase());
        for (old, new) in original.tensors().iter().zip(quantized.tensors()) {
            assert_eq!((&old.name, &old.dims), (&new.name, &new.dims));
            if old.dims.len() == 1 {
                assert_eq!((new.ty, original.bytes(old)), (TensorType::F32, quantized.bytes(new)));
            } else {
                assert_eq!(new.ty.name(), ty.to_uppercase());
            }
            // F16 fits in both exactly.
            if ["f16", "f32"].contains(&ty) {
                assert_eq!(decode(&original, old), decode(&quantized, new));
            }
        }
        assert_eq!(original.tensors().len(), quantized.tensors().len());
    }
}

/// Eight significant bits: halfway goes to the even one, and what has them already loses nothing.
#[test]
fn bf16_rounds_to_nearest_even_once() {
    let dir = temp_dir();
    let (input, out, back) = (at(&dir, "in.gguf"), at(&dir, "bf16.gguf"), at(&dir, "f32.gguf"));
    let bits = |ulp: u32, below: u32| f32::from_bits(((0x3f80 + ulp) << 16) | below);
    let exact =
        [1.0, -0.0, -2.5, bf16::MAX.to_f32(), bf16::MIN_POSITIVE.to_f32(), f32::from_bits(0x0001_0000)];
    let rounded = [
        (bits(0, 0x7fff), bits(0, 0)),
        (bits(0, 0x8000), bits(0, 0)),
        (bits(1, 0x8000), bits(2, 0)),
        (-bits(1, 0x8001), -bits(2, 0)),
    ];
    let mut weights = values(64);
    weights[..4].copy_from_slice(&rounded.map(|(from, _)| from));
    weights[32..38].copy_from_slice(&exact);
    write_f32(&input, &[("w.weight", &[32, 2], weights.clone())]);
    quantize(&input, &out, &["--type", "bf16"]).ok();
    quantize(&out, &back, &["--type", "f32"]).ok();
    let (small, wide) = (Gguf::open(&out).unwrap(), Gguf::open(&back).unwrap());
    let (small, wide) = (decode(&small, &small.tensors()[0]), decode(&wide, &wide.tensors()[0]));
    let bits_of = |x: &[f32]| x.iter().map(|w| w.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits_of(&small), bits_of(&wide));
    assert_eq!(small[..4], rounded.map(|(_, to)| to));
    assert_eq!(bits_of(&small[32..38]), bits_of(&weights[32..38]));
    for (got, from) in small.iter().zip(&weights) {
        assert!((got - from).abs() <= from.abs() / 256.0, "{from} became {got}");
    }
    // A second time, the bytes stay.
    let again = at(&dir, "again.gguf");
    quantize(&back, &again, &["--type", "bf16"]).ok();
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&again).unwrap());
}

#[test]
fn errors_and_sizes_are_what_the_files_say() {
    let (dir, original) = (temp_dir(), Gguf::open(TINY).unwrap());
    let mut totals = Vec::new();
    for (ty, method) in [("q4_0", "max7"), ("q4_0", "max"), ("q4_0", "fit"), ("q4_1", ""), ("q8_0", "")] {
        let more = if method.is_empty() { vec![] } else { vec!["--method", method] };
        let (quantized, json) = quantize_tiny(&dir, &[&["--type", ty], &more[..]].concat());
        let (mut error, mut squares, mut errors) = (0.0, 0.0, Vec::new());
        for (i, old) in original.tensors().iter().enumerate() {
            let new = &quantized.tensors()[i];
            let (e, s) = sums(&decode(&original, old), &decode(&quantized, new));
            let said = &json["tensors"][i];
            assert_eq!((&said["name"], &said["to"]), (&old.name.as_str().into(), &new.ty.name().into()));
            let bits = 8.0 * new.n_bytes as f64 / new.n_elements() as f64;
            assert_eq!(said["bits_per_weight"], bits);
            assert_close(&said["relative_squared_error"], e / s);
            if old.dims.len() > 1 {
                (error, squares) = (error + e, squares + s);
                errors.push(e);
            }
        }
        assert_close(&json["relative_squared_error"], error / squares);
        let bytes: usize = quantized.tensors().iter().map(|t| t.n_bytes).sum();
        let weights: usize = quantized.tensors().iter().map(TensorInfo::n_elements).sum();
        assert_close(&json["bits_per_weight"], 8.0 * bytes as f64 / weights as f64);
        assert_eq!(json["output_bytes"], quantized.file_bytes());
        let default = if ty == "q4_1" { "max".into() } else { Value::Null };
        assert_eq!(json["method"], if method.is_empty() { default } else { method.into() });
        totals.push(errors);

        // `compare` measures the same.
        let compared = run(&["compare", TINY, &at(&dir, "out.gguf"), "--json"]).json();
        assert_close(&compared["relative_squared_error"], error / squares);
        assert_eq!(compared["bits_per_weight_b"], json["bits_per_weight"]);
    }
    for ((max7, max), fit) in totals[0].iter().zip(&totals[1]).zip(&totals[2]) {
        assert!(fit <= max && fit < max7, "{max7}, {max}, {fit}");
    }
}

#[test]
fn the_last_exception_that_matches_counts() {
    let dir = temp_dir();
    let keep = ["--keep", "blk.*=q4_1", "--keep", "blk.?.attn_[qk].*=q8_0"];
    let out = at(&dir, "out.gguf");
    let error = quantize(TINY, &out, &[&["--type", "q4_0"], &keep[..]].concat()).error();
    assert!(
        error.ends_with(r#"--keep "blk.?.attn_[qk].*" matches no tensor of two or more dimensions"#),
        "{error}"
    );
    assert!(!Path::new(&out).exists());

    let keep = ["--keep", "blk.*=q4_1", "--keep", "*.attn_?.weight=q8_0", "--keep", "token_embd.weight=f16"];
    let (quantized, _) = quantize_tiny(&dir, &[&["--type", "q4_0"], &keep[..]].concat());
    for (name, ty) in [
        ("token_embd.weight", TensorType::F16),
        ("blk.0.attn_q.weight", TensorType::Q8_0),
        ("blk.3.attn_v.weight", TensorType::Q8_0),
        ("blk.0.attn_output.weight", TensorType::Q4_1),
        ("blk.2.ffn_down.weight", TensorType::Q4_1),
        ("blk.2.ffn_norm.weight", TensorType::F32),
    ] {
        assert_eq!(quantized.tensor(name).unwrap().ty, ty, "{name}");
    }
    // The embedding has its type already.
    let original = Gguf::open(TINY).unwrap();
    let embedding = |gguf: &Gguf| gguf.bytes(gguf.tensor("token_embd.weight").unwrap()).to_vec();
    assert!(embedding(&original) == embedding(&quantized));
}

#[test]
fn a_type_that_is_there_already_loses_nothing() {
    let dir = temp_dir();
    let (once, twice) = (at(&dir, "once.gguf"), at(&dir, "twice.gguf"));
    quantize(TINY, &once, &["--type", "q4_0", "--method", "max7"]).ok();
    quantize(&once, &twice, &["--type", "q4_0", "--method", "fit"]).ok();
    assert!(std::fs::read(once).unwrap() == std::fs::read(twice).unwrap());
}

#[test]
fn the_result_runs() {
    let dir = temp_dir();
    for ty in ["q8_0", "q4_0", "q4_1", "f32", "bf16"] {
        quantize_tiny(&dir, &["--type", ty]);
        let out = at(&dir, "out.gguf");
        let args = ["run", "--model", &out, "-n", "8", "--temperature", "0", "--prompt", "The sea", "--json"];
        assert_eq!(crate::support::ids(&run(&args).json()["ids"]).len(), 8, "{ty}");
    }
}

#[test]
fn json_shapes() {
    let dir = temp_dir();
    let (_, json) = quantize_tiny(&dir, &["--type", "q4_0"]);
    assert_eq!(
        keys(&json),
        [
            "bits_per_weight",
            "input",
            "input_bytes",
            "method",
            "output",
            "output_bytes",
            "relative_squared_error",
            "seconds",
            "tensors",
            "type",
            "weights"
        ]
    );
    let tensor = ["bits_per_weight", "from", "name", "relative_squared_error", "shape", "to"];
    assert_eq!(keys(&json["tensors"][0]), tensor);

    let json = run(&["compare", TINY, &at(&dir, "out.gguf"), "--json"]).json();
    assert_eq!(
        keys(&json),
        [
            "a",
            "b",
            "bits_per_weight_a",
            "bits_per_weight_b",
            "max_error",
            "only_a",
            "only_b",
            "relative_squared_error",
            "relative_squared_output_error",
            "reshaped",
            "tensors",
            "weights"
        ]
    );
}

#[test]
fn errors_of_outputs_are_those_of_the_products() {
    let (dir, original) = (temp_dir(), Gguf::open(TINY).unwrap());
    let (quantized, _) = quantize_tiny(&dir, &["--type", "q4_0"]);
    let (out, text) = (at(&dir, "out.gguf"), at(&dir, "text.txt"));
    std::fs::write(&text, "The sea was calm, and the captain had no reason to complain of his ship.")
        .unwrap();
    let compare = |b: &str, more: &[&str]| run(&[&["compare", TINY, b, "--text", &text], more].concat());
    let json = compare(&out, &["--json"]).json();
    let error = |json: &Value, name: &str| {
        let tensors = json["tensors"].as_array().unwrap();
        tensors.iter().find(|t| t["name"] == name).unwrap()["relative_squared_output_error"].clone()
    };

    // The first layer's inputs are normalized rows of the embedding: the products, here in f64.
    let spec = TokenizerSpec::from_metadata(original.metadata()).unwrap();
    let text = std::fs::read_to_string(&text).unwrap();
    let ids = Tokenizer::new(&spec).unwrap().encode_prompt(&text, Special::Off).unwrap();
    let tensor = |gguf: &Gguf, name: &str| decode(gguf, gguf.tensor(name).unwrap());
    let (embedding, norm) =
        (tensor(&original, "token_embd.weight"), tensor(&original, "blk.0.attn_norm.weight"));
    let n = norm.len();
    for name in ["blk.0.attn_q.weight", "blk.0.attn_v.weight"] {
        let (a, b) = (tensor(&original, name), tensor(&quantized, name));
        let (mut errors, mut squares) = (0.0, 0.0);
        for &id in &ids {
            let row = &embedding[id as usize * n..][..n];
            let mean = row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n as f64;
            let x: Vec<f64> = row
                .iter()
                .zip(&norm)
                .map(|(&v, &weight)| f64::from(v) * f64::from(weight) / (mean + 1e-5).sqrt())
                .collect();
            for (a, b) in a.chunks_exact(n).zip(b.chunks_exact(n)) {
                let dot = |w: &[f32]| w.iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum::<f64>();
                (errors, squares) = (errors + (dot(a) - dot(b)).powi(2), squares + dot(a).powi(2));
            }
        }
        let (got, expected) = (error(&json, name).as_f64().unwrap(), errors / squares);
        assert!((got / expected - 1.0).abs() < 1e-4, "{name}: {got} is not {expected}");
    }

    // Every matrix has one, vectors have none, and the total is the mean.
    let of_tensors = |json: &Value| -> Vec<f64> {
        let tensors = json["tensors"].as_array().unwrap().clone();
        tensors.iter().filter_map(|t| t["relative_squared_output_error"].as_f64()).collect()
    };
    let errors = of_tensors(&json);
    assert_eq!((errors.len(), error(&json, "output_norm.weight")), (29, Value::Null));
    assert_close(&json["relative_squared_output_error"], errors.iter().sum::<f64>() / 29.0);
    assert!(compare(&out, &[]).ok().contains(", of outputs "));
    assert!(!run(&["compare", TINY, &out]).ok().contains("of outputs"));
    // The same weights have the same outputs.
    assert_eq!(of_tensors(&compare(TINY, &["--json"]).json()), vec![0.0; 29]);
    let without = run(&["compare", TINY, &out, "--tokens", "5"]);
    assert!(without.code == Some(2) && without.stderr.contains("--text"), "{without:?}");
    assert!(run(&["compare", TINY, &out, "--text", "none.txt"]).error().contains("none.txt"));
}

#[test]
fn nothing_is_replaced_unasked() {
    let dir = temp_dir();
    let out = at(&dir, "out.gguf");
    std::fs::write(&out, "precious").unwrap();
    let error = quantize(TINY, &out, &["--type", "q4_0"]).error();
    assert_eq!(error, format!("{out} exists already: --force replaces it"));
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    quantize(TINY, &out, &["--type", "q4_0", "--force"]).ok();

    let before = std::fs::read(&out).unwrap();
    let other_way = at(&dir, "./out.gguf");
    let error = quantize(&out, &other_way, &["--type", "q8_0", "--force"]).error();
    assert!(error.ends_with("is the file to be read: expected another name for the new one"), "{error}");
    assert!(std::fs::read(&out).unwrap() == before);
}

#[test]
fn what_cannot_be_written_is_named_and_leaves_the_file_as_it_was() {
    let dir = temp_dir();
    let (input, out) = (at(&dir, "in.gguf"), at(&dir, "out.gguf"));
    let matrix = |row: usize, position: usize, value: f32| {
        let mut weights = values(64 * 3);
        weights[row * 64 + position] = value;
        weights
    };
    let refused = |tensors: &[Made<'_>], more: &[&str]| {
        write_f32(&input, tensors);
        std::fs::write(&out, "precious").unwrap();
        let error = quantize(&input, &out, &[more, &["--force"]].concat()).error();
        assert_eq!(std::fs::read(&out).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "something was left beside the file");
        error.strip_prefix(&format!("{input}: ")).unwrap().to_owned()
    };
    let good: Made<'_> = ("good.weight", &[64, 3], values(64 * 3));
    for ty in ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"] {
        for (value, shown) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf")] {
            assert_eq!(
                refused(&[good.clone(), ("bad.weight", &[64, 3], matrix(2, 37, value))], &["--type", ty]),
                format!(r#"tensor "bad.weight", row 2, position 37: {shown} is not a finite weight"#)
            );
        }
    }
    assert_eq!(
        refused(&[good.clone(), ("bad.weight", &[64, 3], matrix(1, 40, 65520.0))], &["--type", "f16"]),
        r#"tensor "bad.weight", row 1, as F16: weight 40 of the row is 65520, f16 ends at 65504"#
    );
    assert_eq!(
        refused(&[good.clone(), ("bad.weight", &[64, 3], matrix(1, 40, -3.4e38))], &["--type", "bf16"]),
        r#"tensor "bad.weight", row 1, as BF16: weight 40 of the row is -3.4e38, bf16 ends at 3.3895e38"#
    );
    for (ty, value) in [("q8_0", 1e7), ("q4_0", 1e6), ("q4_1", -1e6)] {
        let error = refused(&[good.clone(), ("bad.weight", &[64, 3], matrix(1, 40, value))], &["--type", ty]);
        let start = format!(r#"tensor "bad.weight", row 1, as {}: "#, ty.to_uppercase());
        assert!(error.starts_with(&start) && error.contains("group 1"), "{error}");
    }
    assert_eq!(
        refused(&[good.clone(), ("odd.weight", &[48, 2], values(96))], &["--type", "q4_0"]),
        r#"tensor "odd.weight" has rows of 48 weights, and Q4_0 comes in groups of 32: give it another type (--keep 'odd.weight=f16')"#
    );
    // A vector is copied, but it is not exempt: a model with a NaN in a norm answers nothing.
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let vector = ("output_norm.weight", &[5][..], vec![1.0, 2.0, 3.0, value, 5.0]);
        assert_eq!(
            refused(&[good.clone(), vector], &["--type", "q4_0"]),
            format!(r#"tensor "output_norm.weight", row 0, position 3: {shown} is not a finite weight"#)
        );
    }
    // The advice helps; a vector may have any length.
    let vector = ("norm.weight", &[5][..], vec![f32::MAX; 5]);
    write_f32(&input, &[good, ("odd.weight", &[48, 2], values(96)), vector]);
    quantize(&input, &out, &["--type", "q4_0", "--keep", "odd.weight=f16", "--force"]).ok();
    let gguf = Gguf::open(&out).unwrap();
    assert_eq!(gguf.view::<f32>(gguf.tensor("norm.weight").unwrap()).unwrap(), [f32::MAX; 5]);
}

/// The types of vectors beside F32: their numbers are looked at as well, where they are numbers that can be infinite.
#[test]
fn vectors_of_other_types_are_finite_too() {
    let dir = temp_dir();
    let (input, out) = (at(&dir, "in.gguf"), at(&dir, "out.gguf"));
    let error = |ty: TensorType, bytes: &[u8]| {
        let n = bytes.len() / ty.block_bytes();
        let infos = [TensorInfo::new("v.bias", ty, &[n]).unwrap()];
        let mut writer = GgufWriter::create(&input, &Metadata::new(), &infos).unwrap();
        writer.write_tensor("v.bias", bytes).unwrap();
        writer.commit().unwrap();
        let done = quantize(&input, &out, &["--type", "q8_0", "--force"]);
        (done.code != Some(0)).then(|| done.error())
    };
    let expected = format!(r#"{input}: tensor "v.bias", row 0, position 1: inf is not a finite weight"#);
    let infinite = [1.0_f32, f32::INFINITY];
    let halves = infinite.map(f16::from_f32);
    let brains = infinite.map(bf16::from_f32);
    let doubles = infinite.map(f64::from);
    assert_eq!(error(TensorType::F16, bytemuck::cast_slice(&halves)), Some(expected.clone()));
    assert_eq!(error(TensorType::BF16, bytemuck::cast_slice(&brains)), Some(expected.clone()));
    assert_eq!(error(TensorType::F64, bytemuck::cast_slice(&doubles)), Some(expected));
    assert_eq!(error(TensorType::F64, bytemuck::cast_slice(&[1e300, -1e300])), None);
    assert_eq!(error(TensorType::I32, &[0xff; 8]), None);
}

#[test]
fn weights_out_of_range_are_taken_to_its_end_if_asked_for() {
    let dir = temp_dir();
    let (input, out) = (at(&dir, "in.gguf"), at(&dir, "out.gguf"));
    let mut weights = values(64);
    (weights[3], weights[40]) = (1e9, -2e9);
    write_f32(&input, &[("w.weight", &[64, 1], weights)]);
    for (ty, limit) in
        [("f16", 65504.0), ("q8_0", 127.0 * 65504.0), ("q4_0", 8.0 * 65504.0), ("q4_1", 65504.0)]
    {
        let done = quantize(&input, &out, &["--type", ty, "--saturate", "--force"]);
        let said = format!(
            r#"warning: "w.weight": 2 weights beyond the range of {} were taken to its end"#,
            ty.to_uppercase()
        );
        assert!(done.stderr.contains(&said), "{}", done.stderr);
        let gguf = Gguf::open(&out).unwrap();
        let back = decode(&gguf, &gguf.tensors()[0]);
        for (got, wanted) in [(back[3], limit), (back[40], -limit)] {
            assert!((got / wanted - 1.0).abs() < 0.13, "{ty}: {got}, not {wanted}");
        }
        drop(gguf);
        std::fs::write(&out, "precious").unwrap();
        let error = quantize(&input, &out, &["--type", ty, "--saturate", "--strict", "--force"]).error();
        assert!(error.starts_with("--strict: ") && error.contains("2 weights"), "{error}");
        assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    }
}

#[test]
fn a_stopped_conversion_leaves_the_file_as_it_was() {
    let dir = temp_dir();
    let out = at(&dir, "out.gguf");
    std::fs::write(&out, "precious").unwrap();
    let gguf = Gguf::open(TINY).unwrap();
    let plan = Plan::new(&gguf, "q4_0:fit".parse().unwrap(), &[]).unwrap();
    let mut writer = GgufWriter::create(&out, plan.metadata(), plan.tensors()).unwrap();
    let pool = ThreadPool::new(2).unwrap();
    let mut seen = Vec::new();
    let ctx = Context { pool: &pool, isa: Isa::fastest() };
    let written = plan.write(ctx, &mut writer, &(), |done| {
        seen.push(done);
        if seen.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(written.unwrap(), None);
    assert!(seen.is_sorted() && seen[2] < plan.n_weights(), "{seen:?}");
    drop(writer);
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn wrong_usage_says_what_there_is() {
    for (more, said) in [
        (&["--type", "q4_0", "--method", "best"][..], "[possible values: max7, max, fit, optimal, gptq]"),
        (&["--type", "q4_0", "--calibrate-tokens", "9"], "--calibrate <TEXT>"),
        (&["--type", "q4_0", "--damping", "2"], "expected a number from 0 to 1"),
        (
            &["--type", "q4_k_x"],
            "[possible values: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4, q3_k_s, q3_k_m, q3_k_l, q4_k_s, q4_k_m, q5_k_s, q5_k_m]",
        ),
        (&["--type", "q4_0", "--keep", "x"], "expected PATTERN=TYPE"),
        (
            &["--type", "q4_0", "--keep", "x=q5"],
            r#""q5" is not a type: expected one of f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4"#,
        ),
        (&[], "--type <TYPE>"),
    ] {
        let done = quantize(TINY, "out.gguf", more);
        assert_eq!(done.code, Some(2));
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    for (more, said) in [
        (
            &["--type", "q8_0", "--method", "fit"][..],
            "--method is for q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs and mxfp4, which neither --type nor --keep asks for",
        ),
        (
            &["--type", "q8_0", "--imatrix", "x"],
            "--imatrix is for q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs and mxfp4, which neither --type nor --keep asks for",
        ),
        (
            &["--type", "q4_1", "--method", "optimal"],
            "--method optimal is for q4_0: expected max, fit or gptq for q4_1",
        ),
        (
            &["--type", "q4_0", "--method", "gptq"],
            "--method gptq needs a text to calibrate on: expected --calibrate TEXT",
        ),
        (
            &["--type", "q4_0", "--method", "max", "--imatrix", "x"],
            "--method max minimises no error that columns could weigh in: expected fit, optimal or gptq",
        ),
        (
            &["--type", "q4_0", "--calibrate", "y", "--imatrix", "x"],
            "both --imatrix and --calibrate say how important columns are: expected one of them",
        ),
    ] {
        assert_eq!(quantize(TINY, "out.gguf", more).error(), said);
    }
}

#[test]
fn compare_names_what_is_missing_or_reshaped() {
    let dir = temp_dir();
    let (a, b) = (at(&dir, "a.gguf"), at(&dir, "b.gguf"));
    let x: Vec<f32> = vec![3.0, 0.0, 0.0, 4.0];
    fn tensor<'a>(name: &'a str, dims: &'a [usize], values: &[f32]) -> Made<'a> {
        (name, dims, values.to_vec())
    }
    write_f32(&a, &[tensor("w", &[2, 2], &x), tensor("gone", &[4], &x), tensor("turned", &[4, 1], &x)]);
    write_f32(
        &b,
        &[
            tensor("new", &[4], &x),
            tensor("turned", &[2, 2], &x),
            tensor("w", &[2, 2], &[3.0, 0.0, 0.5, 2.0]),
        ],
    );
    let done = run(&["compare", &a, &b, "--json"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("error: the files do not have the same tensors: 3 of other shapes"));
    let json: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(json["tensors"].as_array().unwrap().len(), 1);
    assert_eq!(json["tensors"][0]["relative_squared_error"], 4.25 / 25.0);
    assert_eq!((&json["tensors"][0]["max_error"], &json["max_error"]), (&2.0.into(), &2.0.into()));
    assert_eq!((&json["only_a"][0], &json["only_b"][0]), (&"gone".into(), &"new".into()));
    assert_eq!(json["reshaped"][0]["name"], "turned");

    let done = run(&["compare", &a, &b]);
    assert_eq!(done.code, Some(1));
    for line in ["turned  4 x 1 in A, 2 x 2 in B\n", "gone  in A alone\n", "new  in B alone\n"] {
        assert!(done.stdout.contains(line), "{}", done.stdout);
    }
    let same = run(&["compare", &a, &a, "--json"]).json();
    assert_eq!((&same["relative_squared_error"], &same["max_error"]), (&0.0.into(), &0.0.into()));
}

/// Weights that lie about evenly in -1..1, in the types of ggml: the file has the type, and what it decodes to is as near as so
/// many bits can be.
#[test]
fn ggmls_types_are_written_and_read_back() {
    let dir = temp_dir();
    let (input, output) = (at(&dir, "in.gguf"), at(&dir, "out.gguf"));
    write_f32(&input, &[("w", &[512, 3], values(1536)), ("narrow", &[96, 5], values(480))]);
    // The squared error of rounding to `n` even steps over the range is 1 / n^2 of the mean square. Scales take some of the
    // bits, and uneven levels are made for other weights.
    for (ty, narrow, most) in [
        ("q5_0", "Q5_0", 1.0 / 900.0),
        ("q5_1", "Q5_1", 1.0 / 900.0),
        ("q3_k", "Q4_0", 1.0 / 45.0),
        ("q4_k", "Q5_0", 1.0 / 200.0),
        ("q5_k", "Q5_1", 1.0 / 900.0),
        ("q6_k", "Q8_0", 1.0 / 3600.0),
        ("iq4_nl", "IQ4_NL", 1.0 / 120.0),
        ("iq4_xs", "IQ4_NL", 1.0 / 120.0),
        ("mxfp4", "MXFP4", 1.0 / 60.0),
    ] {
        let json = quantize(&input, &output, &["--type", ty, "--json", "--force"]).json();
        let gguf = Gguf::open(&output).unwrap();
        let types = ["w", "narrow"].map(|name| gguf.tensor(name).unwrap().ty.name());
        assert_eq!(types, [&*ty.to_uppercase(), narrow]);
        for tensor in json["tensors"].as_array().unwrap() {
            let error = tensor["relative_squared_error"].as_f64().unwrap();
            assert!(error > 0.0 && error < most, "{ty}, {}: {error}, at most {most}", tensor["name"]);
        }
        // What `compare` reads is what `quantize` said.
        let compared = run(&["compare", &input, &output, "--json"]).json();
        assert_eq!(compared["relative_squared_error"], json["relative_squared_error"], "{ty}");
    }
}

#[test]
fn mixes_have_the_types_of_llama_cpp() {
    let dir = temp_dir();
    let (input, output) = (at(&dir, "in.gguf"), at(&dir, "out.gguf"));
    let names =
        ["token_embd", "output", "blk.0.attn_v", "blk.0.ffn_down", "blk.1.ffn_down", "blk.1.attn_output"];
    let names = names.map(|name| format!("{name}.weight"));
    let infos = names.each_ref().map(|name| TensorInfo::new(name, TensorType::F32, &[256, 2]).unwrap());
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("llama.block_count", 8_u32);
    metadata.set("llama.attention.head_count", 8_u32);
    metadata.set("llama.attention.head_count_kv", 2_u32);
    let mut writer = GgufWriter::create(&input, &metadata, &infos).unwrap();
    for name in &names {
        writer.write_tensor(name, bytemuck::cast_slice(&values(512))).unwrap();
    }
    writer.commit().unwrap();
    for (mix, file_type, types) in [
        ("q4_k_m", 15, ["Q4_K", "Q6_K", "Q6_K", "Q6_K", "Q4_K", "Q4_K"]),
        ("q4_k_s", 14, ["Q4_K", "Q6_K", "Q5_K", "Q5_K", "Q4_K", "Q4_K"]),
        ("q3_k_l", 13, ["Q3_K", "Q6_K", "Q5_K", "Q5_K", "Q5_K", "Q5_K"]),
        ("q2_k", 10, ["Q2_K", "Q6_K", "Q4_K", "Q3_K", "Q3_K", "Q3_K"]),
    ] {
        let json = quantize(&input, &output, &["--type", mix, "--json", "--force"]).json();
        assert_eq!(json["type"], mix.to_uppercase());
        let gguf = Gguf::open(&output).unwrap();
        assert_eq!(gguf.metadata().u32("general.file_type").unwrap(), file_type);
        assert_eq!(names.each_ref().map(|name| gguf.tensor(name).unwrap().ty.name()), types, "{mix}");
    }
    // An exception of the user counts more than the mix.
    quantize(&input, &output, &["--type", "q4_k_m", "--keep", "output.weight=q8_0", "--force"]).ok();
    let gguf = Gguf::open(&output).unwrap();
    let types = ["output.weight", "blk.0.attn_v.weight"].map(|name| gguf.tensor(name).unwrap().ty.name());
    assert_eq!(types, ["Q8_0", "Q6_K"]);
}
