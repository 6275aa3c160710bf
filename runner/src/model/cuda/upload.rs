//! Weights onto the device, in the forms that its kernels take.

use super::{CudaError, unsupported};
use crate::model::description::{Activation, Attention, Dense, FeedForward, Linear, Mixer, Norm, RopeId};
use crate::model::weights::ModelWeights;
use crate::model::{Description, Error, Scales, Transformer};
use crate::weight_types;
use half::bf16;
use halfbyte_cpu_kernels::{Isa, Matrix, RopeOrder};
use halfbyte_cuda_driver::DeviceBuffer;
use halfbyte_cuda_kernels::attention::AttentionParams;
use halfbyte_cuda_kernels::{DeviceSampler, DeviceWeights, Kernels};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A model's weights on a device. A clone shares them.
///
/// Q4_0, Q8_0 and MLX affine groups of 4 bits with bf16 scales go as they are stored, Q4_1 as MLX affine groups of 32,
/// whose scales and minima are bf16: three bits less than the file's f16. Every other type becomes bf16, and so do
/// matrices that are stacked for one product (queries, keys and values; gate and up) but differ in type.
#[derive(Clone, Debug)]
pub struct CudaModel(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kernels: Kernels,
    description: Description,
    sizes: Sizes,
    embedding: DeviceWeights,
    layers: Vec<Layer>,
    norm: DeviceNorm,
    /// `None`: the embedding again.
    output: Option<DeviceWeights>,
}

/// The widest of all layers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    width: usize,
    /// Queries, keys and values together.
    pub(super) qkv: usize,
    pub(super) queries: usize,
    pub(super) hidden: usize,
}

impl Sizes {
    /// The most inputs of a product.
    pub(super) fn widest_input(self) -> usize {
        self.width.max(self.queries).max(self.hidden)
    }
}

/// One layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) mixer_norm: DeviceNorm,
    pub(super) params: AttentionParams,
    pub(super) rope: Option<RopeId>,
    /// Queries over keys over values.
    pub(super) qkv: DeviceWeights,
    pub(super) biases: Option<[DeviceBuffer<f32>; 3]>,
    pub(super) head_norms: Option<[DeviceBuffer<f32>; 2]>,
    /// The epsilon of `head_norms`.
    pub(super) head_eps: f32,
    pub(super) sinks: Option<DeviceBuffer<f32>>,
    pub(super) mixer_output: DeviceWeights,
    pub(super) feed_forward_norm: DeviceNorm,
    /// Gate over up.
    pub(super) gate_up: DeviceWeights,
    pub(super) down: DeviceWeights,
}

/// A root-mean-square norm.
#[derive(Debug)]
pub(super) struct DeviceNorm {
    pub(super) weight: DeviceBuffer<f32>,
    pub(super) eps: f32,
}

impl CudaModel {
    /// Copies the weights of `model`, which must not be packed, to the device of `kernels`.
    ///
    /// # Errors
    /// [`CudaError::Unsupported`] for heads, widths and parts of layers that there are no kernels for, before anything is
    /// copied; [`CudaError::Cuda`] and [`CudaError::Driver`], most likely for want of memory.
    pub fn new(kernels: &Kernels, model: &Transformer) -> Result<Self, Error> {
        let (d, weights) = (model.description(), model.weights());
        let parts = d.layers.iter().map(|layer| parts(d, layer)).collect::<Result<Vec<_>, _>>()?;
        let mut sizes = Sizes { width: d.width, ..Sizes::default() };
        for Parts { attention: a, dense, .. } in &parts {
            sizes.qkv = sizes.qkv.max(a.q_width() + 2 * a.kv_width());
            sizes.queries = sizes.queries.max(a.q_width());
            sizes.hidden = sizes.hidden.max(dense.width);
        }
        let layers =
            parts.iter().map(|parts| Layer::new(kernels, weights, parts)).collect::<Result<_, _>>()?;
        let upload = |id| stacked(kernels, &[weights.matrix(id)]);
        Ok(Self(Arc::new(Inner {
            kernels: kernels.clone(),
            description: d.clone(),
            sizes,
            embedding: upload(d.embedding)?,
            layers,
            norm: norm(kernels, weights, d.norm)?,
            output: if d.is_tied() { None } else { Some(upload(d.output)?) },
        })))
    }

    /// The layers and constants.
    pub fn description(&self) -> &Description {
        &self.0.description
    }

    /// Whether the likeliest tokens are chosen on the device: its sampler takes as many logits.
    pub fn is_greedy(&self) -> bool {
        self.description().n_vocab <= DeviceSampler::MAX_VOCABULARY
    }

    /// Bytes of weights on the device that each decoded token reads.
    pub fn bytes_per_token(&self) -> usize {
        self.products().map(DeviceWeights::bytes).sum()
    }

    /// The forms of the matrices on the device, and how many there are of each.
    pub fn formats(&self) -> BTreeMap<String, usize> {
        let embedding = self.0.output.is_some().then_some(&self.0.embedding);
        let mut formats = BTreeMap::new();
        for weights in self.products().chain(embedding) {
            *formats.entry(weights.format().to_string()).or_default() += 1;
        }
        formats
    }

    /// The matrices that each token is multiplied by.
    fn products(&self) -> impl Iterator<Item = &DeviceWeights> {
        let layers = self.0.layers.iter();
        layers.flat_map(|l| [&l.qkv, &l.mixer_output, &l.gate_up, &l.down]).chain([self.output()])
    }

    pub(super) fn kernels(&self) -> &Kernels {
        &self.0.kernels
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.0.sizes
    }

    pub(super) fn layers(&self) -> &[Layer] {
        &self.0.layers
    }

    pub(super) fn embedding(&self) -> &DeviceWeights {
        &self.0.embedding
    }

    pub(super) fn norm(&self) -> &DeviceNorm {
        &self.0.norm
    }

    pub(super) fn output(&self) -> &DeviceWeights {
        self.0.output.as_ref().unwrap_or(&self.0.embedding)
    }

    /// Which numbers of a head are rotated together.
    pub(super) fn rope_order(&self, RopeId(id): RopeId) -> halfbyte_cuda_kernels::RopeOrder {
        match self.description().ropes[id].order {
            RopeOrder::Adjacent => halfbyte_cuda_kernels::RopeOrder::Adjacent,
            RopeOrder::Halves => halfbyte_cuda_kernels::RopeOrder::Halves,
        }
    }
}

/// The parts of a layer that the kernels take.
struct Parts<'a> {
    mixer_norm: Norm,
    attention: &'a Attention,
    feed_forward_norm: Norm,
    dense: &'a Dense,
}

/// Refuses what no kernel takes, by name.
fn parts<'a>(d: &'a Description, layer: &'a crate::model::Layer) -> Result<Parts<'a>, CudaError> {
    if d.scales != Scales::default() {
        return Err(unsupported(
            "the scales of a model",
            "1 throughout, and no cap",
            format!("{:?}", d.scales),
        ));
    }
    // Norms take up to 16,384 numbers, and groups have 32.
    if !d.width.is_multiple_of(32) || d.width > 16_384 {
        return Err(unsupported("the width", "a multiple of 32 up to 16384", d.width));
    }
    let attention = match &layer.mixer {
        Mixer::Attention(attention) => attention,
        Mixer::GatedDelta(_) => {
            return Err(unsupported("the mixer of a layer", "attention", "the gated delta rule"));
        }
        Mixer::ShortConvolution(_) => {
            return Err(unsupported("the mixer of a layer", "attention", "a short convolution"));
        }
    };
    if attention.gated {
        return Err(unsupported("the attention of a layer", "attention without gates", "gated attention"));
    }
    let FeedForward::Dense(dense) = &layer.feed_forward else {
        return Err(unsupported("the feed-forward network", "a dense one", "a mixture of experts"));
    };
    if ![64, 128, 256].contains(&attention.head_dim) {
        return Err(unsupported("the size of a head", "64, 128 or 256", attention.head_dim));
    }
    if let Some(RopeId(id)) = attention.rope {
        let rotated = 2 * d.ropes[id].frequencies.len();
        if rotated != attention.head_dim {
            return Err(unsupported("the rotated part of a head", "the whole head", rotated));
        }
    }
    if let Some([q, k]) = attention.head_norms
        && q.eps != k.eps
    {
        return Err(unsupported("the epsilon of the keys' norm", "that of the queries' norm", k.eps));
    }
    if !dense.width.is_multiple_of(32) {
        return Err(unsupported("the feed-forward width", "a multiple of 32", dense.width));
    }
    if dense.activation != Activation::Silu {
        let got = format!("{:?}", dense.activation);
        return Err(unsupported("the activation of a feed-forward network", "SiLU", got));
    }
    if attention.temperature.is_some() {
        return Err(unsupported(
            "the temperature of attention",
            "the same at all positions",
            "one that grows",
        ));
    }
    if let Some(norms) = attention.head_norms
        && let Some(norm) =
            norms.iter().find(|norm| d.vectors[norm.weight.0].tensor_len != attention.head_dim)
    {
        let got = d.vectors[norm.weight.0].tensor_len;
        return Err(unsupported(
            "the norm of queries and keys",
            "over one head",
            format!("over {got} numbers"),
        ));
    }
    if layer.after_mixer.is_some() || layer.after_feed_forward.is_some() {
        return Err(unsupported("the norms of a layer", "norms before its halves alone", "norms after them"));
    }
    let (Some(mixer_norm), Some(feed_forward_norm)) = (layer.mixer_norm, layer.feed_forward_norm) else {
        return Err(unsupported("the norms of a layer", "a norm before each of its halves", "none"));
    };
    if [attention.output, dense.gate, dense.up, dense.down].iter().any(|linear| linear.bias.is_some()) {
        return Err(unsupported(
            "the biases of a layer",
            "those of queries, keys and values alone",
            "others",
        ));
    }
    Ok(Parts { mixer_norm, attention, feed_forward_norm, dense })
}

impl Layer {
    fn new(kernels: &Kernels, weights: &ModelWeights, parts: &Parts<'_>) -> Result<Self, Error> {
        let Parts { mixer_norm, attention: a, feed_forward_norm, dense } = *parts;
        let stack = |linears: &[Linear]| {
            stacked(kernels, &linears.iter().map(|linear| weights.matrix(linear.matrix)).collect::<Vec<_>>())
        };
        let qkv = [a.q, a.k, a.v];
        let biases = match qkv.map(|linear| linear.bias) {
            [None, None, None] => None,
            _ => {
                // A bias that is missing beside others is zero.
                let bias = |linear: Linear| match linear.bias {
                    Some(bias) => vector(kernels, weights.vector(bias)),
                    None => vector(kernels, &vec![0.0; weights.matrix(linear.matrix).rows()]),
                };
                Some([bias(a.q)?, bias(a.k)?, bias(a.v)?])
            }
        };
        let head_norms = match a.head_norms {
            Some([q, k]) => {
                Some([vector(kernels, weights.vector(q.weight))?, vector(kernels, weights.vector(k.weight))?])
            }
            None => None,
        };
        let window = a.window.map(|window| u32::try_from(window.get()).unwrap_or(u32::MAX));
        Ok(Self {
            mixer_norm: norm(kernels, weights, mixer_norm)?,
            params: AttentionParams {
                n_heads: a.n_heads,
                n_kv_heads: a.n_kv_heads,
                head_dim: a.head_dim,
                scale: a.scale,
                causal: true,
                window,
                soft_cap: a.soft_cap,
            },
            rope: a.rope,
            qkv: stack(&qkv)?,
            biases,
            head_norms,
            head_eps: a.head_norms.map_or(mixer_norm.eps, |[q, _]| q.eps),
            sinks: a.sinks.map(|sinks| vector(kernels, weights.vector(sinks))).transpose()?,
            mixer_output: stack(&[a.output])?,
            feed_forward_norm: norm(kernels, weights, feed_forward_norm)?,
            gate_up: stack(&[dense.gate, dense.up])?,
            down: stack(&[dense.down])?,
        })
    }
}

fn norm(kernels: &Kernels, weights: &ModelWeights, Norm { weight, eps }: Norm) -> Result<DeviceNorm, Error> {
    Ok(DeviceNorm { weight: vector(kernels, weights.vector(weight))?, eps })
}

fn vector(kernels: &Kernels, values: &[f32]) -> Result<DeviceBuffer<f32>, Error> {
    Ok(DeviceBuffer::from_slice(kernels.context(), values).map_err(CudaError::from)?)
}

/// Matrices of the same inputs, one over the other, as one.
fn stacked(kernels: &Kernels, parts: &[Matrix<'_>]) -> Result<DeviceWeights, Error> {
    if let Some(weights) = weight_types::stack(kernels, parts)? {
        return Ok(weights);
    }
    let (inputs, outputs) = (parts[0].cols(), parts.iter().map(Matrix::rows).sum());
    let mut weights = Vec::with_capacity(outputs * inputs);
    let mut row = vec![0.0; inputs];
    for part in parts {
        for i in 0..part.rows() {
            part.decode_row(Isa::scalar(), i, &mut row)?;
            weights.extend(row.iter().map(|&x| bf16::from_f32(x)));
        }
    }
    Ok(DeviceWeights::from_bf16(kernels, outputs, inputs, &weights).map_err(CudaError::from)?)
}
