//! Weights onto the device, in the forms that its kernels take.

use super::CudaError;
use crate::model::weights::{LayerWeights, Linear, Weight};
use crate::model::{Config, Error, Model};
use half::bf16;
use halfbyte_cpu_kernels::{Isa, Matrix, Parameters, RopeOrder, Weights as HostWeights};
use halfbyte_cuda_driver::DeviceBuffer;
use halfbyte_cuda_kernels::{Affine, DeviceSampler, DeviceWeights, Kernels};
use halfbyte_q4::BlockQ4_1;
use std::collections::BTreeMap;

/// A model's weights on a device.
///
/// Q4_0, Q8_0 and MLX affine groups of 4 bits with bf16 scales go as they are stored, Q4_1 as MLX affine groups of 32, whose scales and minima are bf16: three bits less
/// than the file's f16. Every other type becomes bf16, and so do matrices that are stacked for one product (queries,
/// keys and values; gate and up) but differ in type.
#[derive(Debug)]
pub struct CudaModel {
    pub(super) kernels: Kernels,
    pub(super) config: Config,
    pub(super) embedding: DeviceWeights,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: DeviceBuffer<f32>,
    /// `None`: the embedding again.
    pub(super) output: Option<DeviceWeights>,
}

/// One layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) attention_norm: DeviceBuffer<f32>,
    /// Queries over keys over values.
    pub(super) qkv: DeviceWeights,
    pub(super) biases: Option<[DeviceBuffer<f32>; 3]>,
    pub(super) head_norms: Option<[DeviceBuffer<f32>; 2]>,
    pub(super) attention_output: DeviceWeights,
    pub(super) feed_forward_norm: DeviceBuffer<f32>,
    /// Gate over up.
    pub(super) gate_up: DeviceWeights,
    pub(super) down: DeviceWeights,
}

impl CudaModel {
    /// Copies the weights of `model`, which must not be packed, to the device of `kernels`.
    ///
    /// # Errors
    /// [`CudaError::Unsupported`] for heads or widths that there are no kernels for, before anything is copied;
    /// [`CudaError::Cuda`] and [`CudaError::Driver`], most likely for want of memory.
    pub fn new(kernels: &Kernels, model: &Model<'_>) -> Result<Self, Error> {
        let (config, weights) = (model.config(), &model.weights);
        check(config)?;
        let layers =
            weights.layers.iter().map(|layer| Layer::new(kernels, layer)).collect::<Result<_, _>>()?;
        let upload = |weight: &Weight<'_>| stacked(kernels, &[weight.matrix()]);
        Ok(Self {
            kernels: kernels.clone(),
            config: config.clone(),
            embedding: upload(&weights.embedding)?,
            layers,
            norm: vector(kernels, &weights.norm)?,
            output: if weights.tied { None } else { Some(upload(&weights.output)?) },
        })
    }

    /// The sizes and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the likeliest tokens are chosen on the device: its sampler takes as many logits.
    pub fn is_greedy(&self) -> bool {
        self.config.n_vocab <= DeviceSampler::MAX_VOCABULARY
    }

    /// Bytes of weights on the device that each decoded token reads.
    pub fn bytes_per_token(&self) -> usize {
        let in_layer =
            |l: &Layer| [&l.qkv, &l.attention_output, &l.gate_up, &l.down].map(DeviceWeights::bytes);
        let output = self.output.as_ref().unwrap_or(&self.embedding).bytes();
        self.layers.iter().flat_map(in_layer).sum::<usize>() + output
    }

    /// The forms of the matrices on the device, and how many there are of each.
    pub fn formats(&self) -> BTreeMap<String, usize> {
        let in_layer =
            |l: &Layer| [&l.qkv, &l.attention_output, &l.gate_up, &l.down].map(DeviceWeights::format);
        let ends =
            [Some(&self.embedding), self.output.as_ref()].into_iter().flatten().map(DeviceWeights::format);
        let mut formats = BTreeMap::new();
        for format in self.layers.iter().flat_map(in_layer).chain(ends) {
            *formats.entry(format.to_string()).or_default() += 1;
        }
        formats
    }

    /// Which numbers of a head turn together.
    pub(super) fn rope_order(&self) -> halfbyte_cuda_kernels::RopeOrder {
        match self.config.rope_order {
            RopeOrder::Adjacent => halfbyte_cuda_kernels::RopeOrder::Adjacent,
            RopeOrder::Halves => halfbyte_cuda_kernels::RopeOrder::Halves,
        }
    }
}

/// What no kernel would take, found before anything is copied.
fn check(c: &Config) -> Result<(), CudaError> {
    let unsupported =
        |what, expected, got: usize| CudaError::Unsupported { what, expected, got: got.to_string() };
    if ![64, 128, 256].contains(&c.head_dim) {
        return Err(unsupported("the size of a head", "64, 128 or 256", c.head_dim));
    }
    if 2 * c.rope_frequencies.len() != c.head_dim {
        let rotated = 2 * c.rope_frequencies.len();
        return Err(unsupported("the rotated part of a head", "the whole head", rotated));
    }
    // Norms take up to 16,384 numbers, and groups have 32.
    if !c.width.is_multiple_of(32) || c.width > 16_384 {
        return Err(unsupported("the width", "a multiple of 32 up to 16384", c.width));
    }
    if !c.feed_forward.is_multiple_of(32) {
        return Err(unsupported("the feed-forward width", "a multiple of 32", c.feed_forward));
    }
    Ok(())
}

impl Layer {
    fn new(kernels: &Kernels, w: &LayerWeights<'_>) -> Result<Self, Error> {
        let matrix = |weight: &Weight<'_>| stacked(kernels, &[weight.matrix()]);
        let qkv = [&w.q, &w.k, &w.v];
        let biases = match qkv.map(|linear| linear.bias.as_deref()) {
            [None, None, None] => None,
            _ => {
                // A bias that is missing beside others is zero.
                let bias = |linear: &Linear<'_>| match &linear.bias {
                    Some(bias) => vector(kernels, bias),
                    None => vector(kernels, &vec![0.0; linear.weight.matrix().rows()]),
                };
                Some([bias(&w.q)?, bias(&w.k)?, bias(&w.v)?])
            }
        };
        let head_norms = match &w.head_norms {
            Some([q, k]) => Some([vector(kernels, q)?, vector(kernels, k)?]),
            None => None,
        };
        Ok(Self {
            attention_norm: vector(kernels, &w.attention_norm)?,
            qkv: stacked(kernels, &qkv.map(|linear| linear.weight.matrix()))?,
            biases,
            head_norms,
            attention_output: matrix(&w.attention_output)?,
            feed_forward_norm: vector(kernels, &w.feed_forward_norm)?,
            gate_up: stacked(kernels, &[w.gate.matrix(), w.up.matrix()])?,
            down: matrix(&w.down)?,
        })
    }
}

fn vector(kernels: &Kernels, values: &[f32]) -> Result<DeviceBuffer<f32>, Error> {
    Ok(DeviceBuffer::from_slice(kernels.context(), values).map_err(CudaError::from)?)
}

/// Matrices of the same inputs, one over the other, as one.
fn stacked(kernels: &Kernels, parts: &[Matrix<'_>]) -> Result<DeviceWeights, Error> {
    let (inputs, outputs) = (parts[0].cols(), parts.iter().map(Matrix::rows).sum());
    /// The blocks of all parts, if all are of one type.
    macro_rules! all {
        ($kind:ident) => {
            parts
                .iter()
                .map(|part| match part.weights() {
                    HostWeights::$kind(blocks) => Some(blocks),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .map(|blocks| blocks.concat())
        };
    }
    if let Some(blocks) = all!(Q4_0) {
        return Ok(DeviceWeights::from_q4_0(kernels, outputs, inputs, &blocks).map_err(CudaError::from)?);
    }
    if let Some(blocks) = all!(Q8_0) {
        return Ok(DeviceWeights::from_q8_0(kernels, outputs, inputs, &blocks).map_err(CudaError::from)?);
    }
    if let Some(blocks) = all!(Q4_1) {
        let (words, scales, biases) = affine(&blocks);
        let affine = Affine { bits: 4, group: 32, words: &words, scales: &scales, biases: &biases };
        return Ok(DeviceWeights::from_affine(kernels, outputs, inputs, &affine).map_err(CudaError::from)?);
    }
    if let Some(parts) = all_affine(parts) {
        let words = parts.iter().map(|part| part.words).collect::<Vec<_>>().concat();
        let scales = parts.iter().map(|part| part.scales).collect::<Vec<_>>().concat();
        let biases = parts.iter().map(|part| part.biases).collect::<Vec<_>>().concat();
        let affine = Affine { words: &words, scales: &scales, biases: &biases, ..parts[0] };
        return Ok(DeviceWeights::from_affine(kernels, outputs, inputs, &affine).map_err(CudaError::from)?);
    }
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

/// The parts, if all are MLX affine groups of one size and of 4 bits, with scales and biases in bf16.
fn all_affine<'a>(parts: &[Matrix<'a>]) -> Option<Vec<Affine<'a>>> {
    let affine = |part: &Matrix<'a>| match part.weights() {
        HostWeights::Affine(w) => match (w.bits, w.scales, w.biases) {
            (4, Parameters::Bf16(scales), Parameters::Bf16(biases)) => {
                Some(Affine { bits: 4, group: w.group, words: w.codes, scales, biases })
            }
            _ => None,
        },
        _ => None,
    };
    let affine: Vec<_> = parts.iter().map(affine).collect::<Option<_>>()?;
    affine.iter().all(|part| part.group == affine[0].group).then_some(affine)
}

/// Q4_1 blocks as MLX has them: eight codes a word, the first lowest.
fn affine(blocks: &[BlockQ4_1]) -> (Vec<u32>, Vec<bf16>, Vec<bf16>) {
    let word = |codes: &[u8; 16], first: usize| {
        // Byte `i` has code `i` in its low half and code `i + 16` in its high half.
        let code = |i: usize| u32::from(codes[i % 16] >> (4 * (i / 16)) & 15);
        (0..8).map(|i| code(first + i) << (4 * i)).sum()
    };
    let words = blocks.iter().flat_map(|b| [0, 8, 16, 24].map(|first| word(&b.codes, first))).collect();
    let rounded = |x: half::f16| bf16::from_f32(x.to_f32());
    let scales = blocks.iter().map(|b| rounded(b.scale)).collect();
    (words, scales, blocks.iter().map(|b| rounded(b.min)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn q4_1_codes_keep_their_order() {
        // Code `i` of the first block is i / 2, of the second 15 - i / 2.
        let byte = |i: usize, flip: u8| (((i / 2) as u8) ^ flip) | (((i / 2 + 8) as u8) ^ flip) << 4;
        let block = |flip| BlockQ4_1 {
            scale: f16::from_f32(0.5),
            min: f16::from_f32(-3.0),
            codes: std::array::from_fn(|i| byte(i, flip)),
        };
        let (words, scales, biases) = affine(&[block(0), block(15)]);
        assert_eq!(words[..4], [0x3322_1100, 0x7766_5544, 0xbbaa_9988, 0xffee_ddcc]);
        assert_eq!(words[4..], [0xccdd_eeff, 0x8899_aabb, 0x4455_6677, 0x0011_2233]);
        assert_eq!((scales[1], biases[0]), (bf16::from_f32(0.5), bf16::from_f32(-3.0)));
    }
}
