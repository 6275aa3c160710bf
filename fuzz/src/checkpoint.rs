//! Model directories: configuration, index and safetensors headers.
//!
//! ```text
//! n_config u16   n_index u16   n_data u16   config.json   index   header of model.safetensors [00 header of b.safetensors]
//! ```
//!
//! No configuration is a fitting one, no index no file. Each safetensors file is its header with the length in front and
//! `n_data` zeros behind; with `n_data` 65535 it is the input's bytes as they are.

use std::fs;
use std::path::PathBuf;

use halfbyte::model::Transformer;
use halfbyte::source;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::source_support::{config, safetensors, tensors, with_header};
use crate::{Seeds, decode, take, take_u16, with_zeros};

/// Rows of the embedding: few, so that an input's header is most of the work.
const N_VOCAB: usize = 40;

const INDEX: &str = "model.safetensors.index.json";

thread_local! {
    static FOLDER: TempDir = in_memory();
}

/// A folder in memory, where there is one.
pub(crate) fn in_memory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// Plain weights.
///
/// # Panics
/// If a directory that opens can't be decoded.
pub fn check_safetensors(data: &[u8]) {
    check(data, &small_config());
}

/// MLX's packed weights.
///
/// # Panics
/// If a directory that opens can't be decoded.
pub fn check_mlx(data: &[u8]) {
    let mut config = small_config();
    config["quantization"] = json!({"group_size": 32, "bits": 4});
    check(data, &config);
}

fn check(data: &[u8], default: &Value) {
    let (n_config, data) = take_u16(data);
    let (n_index, data) = take_u16(data);
    let (n_data, data) = take_u16(data);
    let (config, data) = take(data, n_config);
    let (index, data) = take(data, n_index);
    FOLDER.with(|folder| {
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        let remove = |name: &str| _ = fs::remove_file(folder.path().join(name));
        match config {
            [] => write("config.json", default.to_string().as_bytes()),
            config => write("config.json", config),
        }
        match index {
            [] => remove(INDEX),
            index => write(INDEX, index),
        }
        let (first, second) = match data.iter().position(|&b| b == 0) {
            Some(at) if n_data != usize::from(u16::MAX) => (&data[..at], Some(&data[at + 1..])),
            _ => (data, None),
        };
        let file = |header: &[u8]| {
            if n_data == usize::from(u16::MAX) {
                return header.to_vec();
            }
            with_zeros(&[&(header.len() as u64).to_le_bytes(), header].concat(), n_data)
        };
        write("model.safetensors", &file(first));
        match second {
            Some(header) => write("b.safetensors", &file(header)),
            None => remove("b.safetensors"),
        }
        match source::open(folder.path()) {
            Ok(file) => {
                decode(&**file);
                _ = Transformer::new(file.clone()).map(|model| model.bytes_per_token());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

fn small_config() -> Value {
    let mut config = config();
    config["vocab_size"] = N_VOCAB.into();
    config
}

/// An input of these parts.
fn input(config: &[u8], index: &[u8], n_data: u16, headers: &[&[u8]]) -> Vec<u8> {
    let mut input = Vec::new();
    for n in [config.len(), index.len()] {
        input.extend(u16::try_from(n).unwrap().to_le_bytes());
    }
    input.extend(n_data.to_le_bytes());
    for part in [config, index] {
        input.extend(part);
    }
    input.extend(headers.join(&0));
    input
}

/// The header of a safetensors file and the bytes behind it.
fn cut(file: &[u8]) -> (&[u8], u16) {
    let len = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    (&file[8..8 + len], u16::try_from(file.len() - 8 - len).unwrap())
}

/// The directories in `goldens/checkpoints` that have `what` in their names.
fn goldens(what: &str) -> Seeds {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens/checkpoints");
    let mut seeds = Seeds::new();
    for directory in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let weights = directory.join("model.safetensors");
        if directory.to_string_lossy().contains(what) && weights.exists() {
            let (config, weights) =
                (fs::read(directory.join("config.json")).unwrap(), fs::read(weights).unwrap());
            let len = u64::from_le_bytes(*weights.first_chunk().unwrap()) as usize;
            if weights.len() - 8 - len < usize::from(u16::MAX) {
                let (header, n_data) = cut(&weights);
                seeds.push(input(&config, b"", n_data, &[header]));
            }
        }
    }
    seeds
}

/// A model in one file, in two files, with headers that lie, and whole files.
pub fn safetensors_seeds() -> Seeds {
    let mut all = tensors();
    all.insert("model.embed_tokens.weight".into(), ("F16", vec![N_VOCAB, 32]));
    let whole = safetensors(&all);
    let (header, n_data) = cut(&whole);
    let header = header.to_vec();
    let mut seeds = goldens("hf_");
    seeds.push(input(b"", b"", n_data, &[&header]));
    seeds.push(input(small_config().to_string().as_bytes(), b"", n_data, &[&header]));
    let names = all.keys().map(|name| (name.clone(), "model.safetensors".into()));
    let mut map: serde_json::Map<String, Value> = names.collect();
    let index = json!({"metadata": {"total_size": n_data}, "weight_map": map}).to_string();
    seeds.push(input(b"", index.as_bytes(), n_data, &[&header]));
    map.insert("b".into(), "b.safetensors".into());
    let index = json!({ "weight_map": map }).to_string();
    let one = json!({"b": {"dtype": "U8", "shape": [n_data], "data_offsets": [0, n_data]}}).to_string();
    seeds.push(input(b"", index.as_bytes(), n_data, &[&header, one.as_bytes()]));
    seeds.push(input(b"", b"", u16::MAX, &[&with_header(&one)]));
    seeds.push(input(b"", b"", u16::MAX, &[&(1_u64 << 60).to_le_bytes()]));
    let wraps = json!({"a": {"dtype": "U8", "shape": [u64::MAX - 7], "data_offsets": [0, u64::MAX - 7]}});
    seeds.push(input(b"", b"", 0, &[wraps.to_string().as_bytes()]));
    seeds
}

/// Models of four and eight bits in groups of three sizes, and one that needs no configuration.
pub fn mlx_seeds() -> Seeds {
    let mut seeds = goldens("mlx_");
    let mut all = tensors();
    all.insert("model.embed_tokens.weight".into(), ("F16", vec![N_VOCAB, 32]));
    for (name, (ty, shape)) in tensors() {
        if let (Some(module), [rows, cols]) = (name.strip_suffix("_proj.weight"), &*shape) {
            assert_eq!((ty, cols % 32), ("F16", 0));
            all.insert(name.clone(), ("U32", vec![*rows, cols / 8]));
            for part in ["scales", "biases"] {
                all.insert(format!("{module}_proj.{part}"), ("BF16", vec![*rows, cols / 32]));
            }
        }
    }
    let whole = safetensors(&all);
    let (header, n_data) = cut(&whole);
    seeds.push(input(b"", b"", n_data, &[header]));
    seeds
}
