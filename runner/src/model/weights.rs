//! The tensors of a model, found by name, checked by shape, used where they lie.

use super::Error;
use super::config::{Architecture, Config};
use crate::source::Source;
use halfbyte_cpu_kernels::{Context, Matrix, PackedMatrix, Weights};
use halfbyte_gguf::TensorInfo;
use std::collections::HashSet;

/// All weights of a model, borrowed from its file or packed.
#[derive(Debug)]
pub(super) struct ModelWeights<'a> {
    pub(super) embedding: Weight<'a>,
    pub(super) layers: Vec<LayerWeights<'a>>,
    pub(super) norm: Vec<f32>,
    /// The embedding again where the two are tied.
    pub(super) output: Weight<'a>,
    pub(super) tied: bool,
}

/// One layer.
#[derive(Clone, Debug)]
pub(super) struct LayerWeights<'a> {
    pub(super) attention_norm: Vec<f32>,
    pub(super) q: Linear<'a>,
    pub(super) k: Linear<'a>,
    pub(super) v: Linear<'a>,
    /// Norms over each head of q and k, where the architecture has them.
    pub(super) head_norms: Option<[Vec<f32>; 2]>,
    pub(super) attention_output: Weight<'a>,
    pub(super) feed_forward_norm: Vec<f32>,
    pub(super) gate: Weight<'a>,
    pub(super) up: Weight<'a>,
    pub(super) down: Weight<'a>,
}

/// A weight matrix.
#[derive(Clone, Debug)]
pub(super) enum Weight<'a> {
    /// Where the file has it.
    InPlace(Matrix<'a>),
    /// In the order in which kernels read it.
    Packed(PackedMatrix),
}

impl Weight<'_> {
    /// For kernels.
    pub(super) fn matrix(&self) -> Matrix<'_> {
        match self {
            Self::InPlace(matrix) => *matrix,
            Self::Packed(packed) => packed.as_matrix(),
        }
    }
}

/// A matrix and perhaps a bias.
#[derive(Clone, Debug)]
pub(super) struct Linear<'a> {
    pub(super) weight: Weight<'a>,
    pub(super) bias: Option<Vec<f32>>,
}

/// Takes tensors by name and remembers which, so that what is left over can be named.
struct Taker<'a> {
    source: &'a dyn Source,
    taken: HashSet<String>,
}

impl<'a> Taker<'a> {
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Weight<'a>, Error> {
        let info = self.source.tensor(name)?;
        self.taken.insert(name.to_owned());
        Ok(Weight::InPlace(matrix(self.source, info, rows, cols)?))
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        self.taken.insert(name.to_owned());
        vector(self.source, name, len)
    }

    fn linear(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        needs_bias: bool,
    ) -> Result<Linear<'a>, Error> {
        let weight = self.matrix(&format!("{name}.weight"), rows, cols)?;
        let bias = format!("{name}.bias");
        let bias = if needs_bias || self.source.opt_tensor(&bias).is_some() {
            Some(self.vector(&bias, rows)?)
        } else {
            None
        };
        Ok(Linear { weight, bias })
    }
}

impl<'a> ModelWeights<'a> {
    /// Finds every tensor that `config` asks for, and no other.
    pub(super) fn from_source(source: &'a dyn Source, config: &Config) -> Result<Self, Error> {
        let c = config;
        let mut take = Taker { source, taken: HashSet::new() };
        let embedding = take.matrix("token_embd.weight", c.n_vocab, c.width)?;
        let mut layers = Vec::new();
        for i in 0..c.n_layers {
            let name = |part: &str| format!("blk.{i}.{part}");
            let qkv_bias = c.architecture == Architecture::Qwen2;
            layers.push(LayerWeights {
                attention_norm: take.vector(&name("attn_norm.weight"), c.width)?,
                q: take.linear(&name("attn_q"), c.q_width(), c.width, qkv_bias)?,
                k: take.linear(&name("attn_k"), c.kv_width(), c.width, qkv_bias)?,
                v: take.linear(&name("attn_v"), c.kv_width(), c.width, qkv_bias)?,
                head_norms: match c.architecture {
                    Architecture::Qwen3 => Some([
                        take.vector(&name("attn_q_norm.weight"), c.head_dim)?,
                        take.vector(&name("attn_k_norm.weight"), c.head_dim)?,
                    ]),
                    _ => None,
                },
                attention_output: take.matrix(&name("attn_output.weight"), c.width, c.q_width())?,
                feed_forward_norm: take.vector(&name("ffn_norm.weight"), c.width)?,
                gate: take.matrix(&name("ffn_gate.weight"), c.feed_forward, c.width)?,
                up: take.matrix(&name("ffn_up.weight"), c.feed_forward, c.width)?,
                down: take.matrix(&name("ffn_down.weight"), c.width, c.feed_forward)?,
            });
        }
        let norm = take.vector("output_norm.weight", c.width)?;
        let tied = source.opt_tensor("output.weight").is_none();
        let output = if tied { embedding.clone() } else { take.matrix("output.weight", c.n_vocab, c.width)? };
        // Read with the hyperparameters.
        take.taken.insert("rope_freqs.weight".to_owned());
        if let Some(extra) = source.tensors().iter().find(|t| !take.taken.contains(&t.name)) {
            return Err(Error::ExtraTensor {
                tensor: extra.name.clone(),
                architecture: c.architecture.name(),
            });
        }
        Ok(Self { embedding, layers, norm, output, tied })
    }

    /// Every matrix that each token is multiplied by.
    pub(super) fn matrices(&self) -> impl Iterator<Item = Matrix<'_>> {
        self.layers.iter().flat_map(LayerWeights::weights).chain([&self.output]).map(Weight::matrix)
    }

    /// Packs what can be, a batch at a time; calls `done` after each, which may give the file's pages back. So the most
    /// memory in use is what is packed and one batch of the file. The output matrix, the largest of a small model, comes
    /// first, when nothing else is packed yet.
    pub(super) fn pack(&mut self, ctx: Context<'_>, mut done: impl FnMut()) -> Result<(), Error> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let layers = self.layers.iter_mut().flat_map(LayerWeights::weights_mut);
        for weight in std::iter::once(&mut self.output).chain(layers) {
            if let Weight::InPlace(matrix) = weight
                && matrix.supports_packing()
            {
                bytes += matrix.bytes();
                batch.push(weight);
            }
            if bytes >= PACK_BATCH {
                pack(ctx, &mut batch)?;
                bytes = 0;
                done();
            }
        }
        pack(ctx, &mut batch)?;
        if self.tied {
            self.embedding = self.output.clone();
        }
        done();
        Ok(())
    }
}

/// Bytes that are packed together: large enough for huge pages to be filled, small beside a model.
const PACK_BATCH: usize = 32 << 20;

/// Packs and empties a batch.
fn pack(ctx: Context<'_>, batch: &mut Vec<&mut Weight<'_>>) -> Result<(), Error> {
    let matrices: Vec<_> = batch.iter().map(|weight| weight.matrix()).collect();
    let packed = PackedMatrix::pack_all(ctx, &matrices)?;
    for (weight, packed) in batch.drain(..).zip(packed) {
        *weight = Weight::Packed(packed);
    }
    Ok(())
}

impl<'a> LayerWeights<'a> {
    fn weights(&self) -> [&Weight<'a>; 7] {
        [
            &self.q.weight,
            &self.k.weight,
            &self.v.weight,
            &self.attention_output,
            &self.gate,
            &self.up,
            &self.down,
        ]
    }

    /// In the order in which a token reads them.
    fn weights_mut(&mut self) -> [&mut Weight<'a>; 7] {
        let Self { q, k, v, attention_output, gate, up, down, .. } = self;
        [&mut q.weight, &mut k.weight, &mut v.weight, attention_output, gate, up, down]
    }
}

fn shape(info: &TensorInfo, expected: &[usize]) -> Result<(), Error> {
    if info.dims == expected {
        Ok(())
    } else {
        let (expected, got) = (expected.to_vec(), info.dims.to_vec());
        Err(Error::TensorShape { tensor: info.name.clone(), expected, got })
    }
}

/// Tensor `info` as a matrix of `rows` outputs by `cols` inputs, in place.
fn matrix<'a>(
    source: &'a dyn Source,
    info: &TensorInfo,
    rows: usize,
    cols: usize,
) -> Result<Matrix<'a>, Error> {
    info.require_supported()?;
    shape(info, &[cols, rows])?;
    tensor_matrix(source, info)
}

/// Tensor `info` in place as a matrix of its rows, whatever its dimensions.
pub(crate) fn tensor_matrix<'a>(source: &'a dyn Source, info: &TensorInfo) -> Result<Matrix<'a>, Error> {
    info.require_supported()?;
    Ok(Matrix::new(source.weights(info)?, info.n_rows(), info.row_len())?)
}

/// The norm, bias or factors called `name`, as f32.
pub(super) fn vector(source: &dyn Source, name: &str, len: usize) -> Result<Vec<f32>, Error> {
    let info = source.tensor(name)?;
    shape(info, &[len])?;
    match source.weights(info)? {
        Weights::F32(v) => Ok(v.to_vec()),
        Weights::F16(v) => Ok(v.iter().map(|v| v.to_f32()).collect()),
        Weights::Bf16(v) => Ok(v.iter().map(|v| v.to_f32()).collect()),
        _ => Err(Error::VectorType { tensor: info.name.clone(), got: info.ty.name() }),
    }
}
