//! What is accepted of a model directory at most, and why.
//!
//! Each limit is far above published models. Sizes within a file are compared with the file before memory is
//! allocated for them.

/// Longest `config.json` or `generation_config.json` in bytes. Published ones have a few thousand.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Longest `tokenizer.json` in bytes. Vocabularies of 256 thousand tokens take some 34 MB.
pub const MAX_TOKENIZER_BYTES: u64 = 128 << 20;

/// Longest `tokenizer_config.json` in bytes: it can list thousands of added tokens.
pub const MAX_TOKENIZER_CONFIG_BYTES: u64 = 16 << 20;

/// Longest `model.safetensors.index.json` in bytes.
pub const MAX_INDEX_BYTES: u64 = 16 << 20;

/// Longest header of a safetensors file in bytes: 16 thousand tensors a MiB or so. The format allows 100 MB.
pub const MAX_HEADER_BYTES: u64 = 16 << 20;

/// Most safetensors files of a model. The largest published ones have some 200.
pub const MAX_FILES: usize = 1024;

/// Deepest nesting of any of the JSON files (what `serde_json` allows).
pub const MAX_NESTING: usize = 128;
