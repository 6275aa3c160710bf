//! A directory with `config.json` and safetensors files, as Hugging Face and MLX keep models.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use halfbyte_cpu_kernels::{HeadOrder, RopeOrder, Weights};

use super::affine::{self, Parts, Quantization};
use super::config::{self, Shape};
use super::converted::{self, Place};
use super::files::{Entry, Files};
use super::json::Object;
use super::limits::MAX_CONFIG_BYTES;
use super::{Error, Source, tokenizer};
use crate::architectures::Form;
use crate::weight_types::{self, WeightType, block_weights};
use halfbyte_gguf::{self as gguf, Metadata, TensorInfo, TensorType, quote};

/// A Hugging Face or MLX directory.
///
/// Weights are used as they are stored. A tensor that is not aligned for its type is copied, since no kernel could read
/// it; the usual writers align all tensors.
#[derive(Debug)]
pub struct Checkpoint {
    files: Files,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Of the same index as `tensors`.
    stored: Vec<Stored>,
    by_name: BTreeMap<String, usize>,
    /// Which elements of a head are rotated together.
    rope_order: RopeOrder,
    /// Whether the rows of q and k are in another order than in GGUF files of the architecture.
    reordered: bool,
    head_dim: usize,
    /// Elements of a head that rotate.
    rotated: usize,
    /// Tensors of a part that reads something other than text, which is left out.
    left_out: usize,
    quantized: bool,
}

/// Where a tensor's bytes are.
#[derive(Debug)]
enum Stored {
    Plain(Span),
    Affine(Parts<Span>),
}

/// The bytes of a part of a tensor.
#[derive(Debug)]
enum Span {
    InFile(usize, Range<usize>),
    /// A copy that is aligned, and its length in bytes.
    Copied(Vec<u64>, usize),
}

impl Span {
    /// The bytes of `entry` as they are, or a copy if numbers of `size` bytes are not aligned there.
    fn new(files: &Files, entry: &Entry, size: usize) -> Self {
        let bytes = files.bytes(entry.file, entry.range.clone());
        if bytes.as_ptr().addr().is_multiple_of(size) {
            Self::InFile(entry.file, entry.range.clone())
        } else {
            Self::copied(bytes)
        }
    }

    fn copied(bytes: &[u8]) -> Self {
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::Copied(words, bytes.len())
    }

    fn bytes<'a>(&'a self, files: &'a Files) -> &'a [u8] {
        match self {
            Self::InFile(file, range) => files.bytes(*file, range.clone()),
            Self::Copied(words, len) => &bytemuck::cast_slice(words)[..*len],
        }
    }
}

impl Checkpoint {
    /// Reads the configuration and the tokenizer in `directory`, maps its safetensors files and finds the tensors.
    ///
    /// # Errors
    /// Whatever is missing, malformed or not supported, by file and field or tensor.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let whole = Object::read(&directory.join("config.json"), MAX_CONFIG_BYTES)?
            .ok_or_else(|| Error::Incomplete { path: directory.to_owned(), missing: "config.json" })?;
        let config = whole.text_part()?;
        let quantization = Quantization::of(&config)?;
        let (metadata, shape) = config::metadata(&config)?;
        let (files, entries) = Files::open(directory)?;
        let mut checkpoint = Self {
            files,
            metadata,
            tensors: Vec::new(),
            stored: Vec::new(),
            by_name: BTreeMap::new(),
            rope_order: shape.architecture.directory_rope_order,
            reordered: shape.architecture.rope_order != shape.architecture.directory_rope_order,
            head_dim: shape.head_dim,
            rotated: shape.rotations.dims,
            left_out: 0,
            quantized: quantization.is_some(),
        };
        checkpoint.take(&entries, quantization.as_ref(), &shape)?;
        // The files have this many rows, so tables of this size can be allocated. A model without the embedding is refused
        // when it is made.
        if let Some(info) = checkpoint.opt_tensor("token_embd.weight") {
            let rows = info.n_rows();
            if rows != shape.n_vocab {
                return Err(
                    config.wrong("vocab_size", format!("{rows}, the rows of model.embed_tokens.weight"))
                );
            }
            tokenizer::set(directory, [&whole, &config], rows, &mut checkpoint.metadata)?;
        }
        Ok(checkpoint)
    }

    /// The safetensors files.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.paths.iter().map(PathBuf::as_path)
    }

    /// Finds a tensor of GGUF's for each of `entries`.
    fn take(
        &mut self,
        entries: &BTreeMap<String, Entry>,
        quantization: Option<&Quantization>,
        shape: &Shape,
    ) -> Result<(), Error> {
        let is_output = |name: &String| matches!(converted::place(name, shape.partial), Place::Text(name) if name == "lm_head.weight");
        let tied = shape.tied.unwrap_or(!entries.keys().any(is_output));
        let norms_lack_one = converted::norms_lack_one(entries);
        let mut drafts = 0;
        for (name, entry) in entries {
            let plain = match converted::place(name, shape.partial) {
                Place::Text(plain) => plain,
                Place::Images => {
                    self.left_out += 1;
                    continue;
                }
                Place::Drafts => {
                    drafts += 1;
                    continue;
                }
            };
            // A tied model's file may have the same matrix twice.
            if is_redundant(name) || (tied && plain.starts_with("lm_head.")) {
                continue;
            }
            if let Some(module) = name.strip_suffix(".scales").or_else(|| name.strip_suffix(".biases"))
                && entries.contains_key(&format!("{module}.weight"))
            {
                continue;
            }
            let Some(known) = shape.architecture.gguf_name(&plain) else {
                let architecture = shape.architecture.name;
                return Err(Error::ExtraTensor { tensor: quote(name), architecture });
            };
            let form = (shape.architecture.form)(&known, norms_lack_one);
            if form != Form::AsStored {
                let bytes = self.files.bytes(entry.file, entry.range.clone());
                let (dims, numbers) = converted::convert(name, form, entry, bytes)?;
                let info = TensorInfo::new(known, TensorType::F32, &dims)?;
                self.add(info, Stored::Plain(Span::copied(bytemuck::cast_slice(&numbers))));
                continue;
            }
            let parts = name.strip_suffix(".weight").and_then(|module| {
                let part = |kind: &str| entries.get(&format!("{module}.{kind}"));
                Some((module, part("scales")?, part("biases")?))
            });
            match (parts, quantization) {
                (Some((module, scales, biases)), Some(quantization)) => {
                    let affine = quantization.of_module(module)?;
                    let dims = affine::check(name, affine, [entry, scales, biases])?;
                    let span = |entry: &Entry, size| Span::new(&self.files, entry, size);
                    let size = scales.dtype.bitsize() / 8;
                    let stored = Parts {
                        affine,
                        codes: span(entry, 4),
                        scales: span(scales, size),
                        biases: span(biases, size),
                        parameter: scales.dtype,
                    };
                    let mut info = TensorInfo::new(known, affine.ty, &dims)?;
                    info.n_bytes = [entry, scales, biases].iter().map(|e| e.range.len()).sum();
                    self.add(info, Stored::Affine(stored));
                }
                _ => {
                    let got = format!("{:?}", entry.dtype);
                    let Some(number) = WeightType::of_number(&got) else {
                        return Err(Error::Type { tensor: quote(name), got });
                    };
                    let ty = number.tensor_type();
                    let dims: Vec<usize> = entry.shape.iter().rev().copied().collect();
                    let info = TensorInfo::new(known, ty, &dims)?;
                    let span = Span::new(&self.files, entry, ty.block_bytes());
                    self.add(info, Stored::Plain(span));
                }
            }
        }
        if drafts > 0 {
            tracing::info!("{drafts} tensors of a block that makes drafts are not used");
        }
        if !tied && !self.by_name.contains_key("output.weight") {
            let tensor = quote("lm_head.weight");
            return Err(gguf::Error::MissingTensor { tensor, n_tensors: entries.len() }.into());
        }
        for (name, factors) in &shape.rotations.factors {
            let info = TensorInfo::new(*name, TensorType::F32, &[factors.len()])?;
            self.add(info, Stored::Plain(Span::copied(bytemuck::cast_slice(factors))));
        }
        Ok(())
    }

    fn add(&mut self, info: TensorInfo, stored: Stored) {
        self.by_name.insert(info.name.clone(), self.tensors.len());
        self.tensors.push(info);
        self.stored.push(stored);
    }

    fn stored(&self, info: &TensorInfo) -> &Stored {
        &self.stored[self.by_name[&info.name]]
    }
}

impl Source for Checkpoint {
    fn format(&self) -> String {
        let kind = if self.quantized { "MLX, quantized" } else { "Hugging Face" };
        let n = self.files.paths.len();
        format!("{kind}, {n} safetensors file{}", if n == 1 { "" } else { "s" })
    }

    fn warnings(&self) -> Vec<String> {
        match self.left_out {
            0 => Vec::new(),
            n => vec![format!(
                "the part of the model that reads images ({n} tensors) is left out: images are refused"
            )],
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn opt_tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    fn weights(&self, info: &TensorInfo) -> Result<Weights<'_>, weight_types::Error> {
        match self.stored(info) {
            Stored::Plain(span) => block_weights(info, span.bytes(&self.files)),
            Stored::Affine(parts) => {
                let Parts { affine, codes, scales, biases, parameter } = parts;
                let parts = Parts {
                    affine: *affine,
                    codes: codes.bytes(&self.files),
                    scales: scales.bytes(&self.files),
                    biases: biases.bytes(&self.files),
                    parameter: *parameter,
                };
                Ok(parts.weights(info)?)
            }
        }
    }

    fn bytes(&self, info: &TensorInfo) -> &[u8] {
        match self.stored(info) {
            Stored::Plain(span) => span.bytes(&self.files),
            Stored::Affine(parts) => parts.codes.bytes(&self.files),
        }
    }

    fn rope_order(&self) -> Option<RopeOrder> {
        Some(self.rope_order)
    }

    fn head_order(&self) -> HeadOrder {
        HeadOrder::Grouped
    }

    fn stored_row(&self, info: &TensorInfo, row: usize) -> usize {
        let rotated = ["attn_q.weight", "attn_q.bias", "attn_k.weight", "attn_k.bias"];
        if !self.reordered || !rotated.iter().any(|part| info.name.ends_with(part)) {
            return row;
        }
        // GGUF has the two elements of a pair side by side; a checkpoint has the first elements of all pairs of a head,
        // then the second ones.
        let (head, within) = (row / self.head_dim, row % self.head_dim);
        let n = if info.dims.len() == 1 { info.row_len() } else { info.n_rows() };
        if (head + 1).saturating_mul(self.head_dim) > n {
            // A head is cut off: every model refuses such a tensor.
            return row;
        }
        if within >= self.rotated {
            return row;
        }
        head * self.head_dim + within % 2 * (self.rotated / 2) + within / 2
    }

    fn contents(&self) -> Vec<&[u8]> {
        self.files.contents().collect()
    }

    fn release_pages(&self) {
        self.files.release_pages();
    }
}

/// Whether a tensor says nothing that the hyperparameters do not say: old checkpoints store the rotations.
fn is_redundant(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}
