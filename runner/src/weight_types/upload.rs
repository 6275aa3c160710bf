//! Weights onto a CUDA device, in the forms that its kernels take.

use super::WeightType;
use crate::model::cuda::CudaError;
use half::bf16;
use halfbyte_cpu_kernels::{Matrix, Parameters, Weights};
use halfbyte_cuda_kernels::{Affine, DeviceWeights, Kernels};
use halfbyte_q4::BlockQ4_1;

/// Copies matrices of the same inputs, one over the other, to the device as one of `outputs` x `inputs`; `None` if they
/// are not all of one type.
pub(super) type Upload =
    fn(&Kernels, usize, usize, &[Matrix<'_>]) -> Result<Option<DeviceWeights>, CudaError>;

/// Copies matrices of the same inputs, one over the other, to the device as one; `None` if there is no form for it but
/// bf16.
pub(crate) fn stack(kernels: &Kernels, parts: &[Matrix<'_>]) -> Result<Option<DeviceWeights>, CudaError> {
    let Some(first) = parts.first() else { return Ok(None) };
    let Some(upload) = WeightType::of_weights(&first.weights()).and_then(|entry| entry.upload) else {
        return Ok(None);
    };
    upload(kernels, parts.iter().map(Matrix::rows).sum(), first.cols(), parts)
}

/// The blocks of all parts, if all are of one type.
macro_rules! all {
    ($variant:ident, $parts:expr) => {
        $parts
            .iter()
            .map(|part| match part.weights() {
                Weights::$variant(blocks) => Some(blocks),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(|blocks| blocks.concat())
    };
}

/// Q4_0 as it is stored.
pub(super) fn q4_0(
    kernels: &Kernels,
    outputs: usize,
    inputs: usize,
    parts: &[Matrix<'_>],
) -> Result<Option<DeviceWeights>, CudaError> {
    let Some(blocks) = all!(Q4_0, parts) else { return Ok(None) };
    Ok(Some(DeviceWeights::from_q4_0(kernels, outputs, inputs, &blocks)?))
}

/// Q8_0 as it is stored.
pub(super) fn q8_0(
    kernels: &Kernels,
    outputs: usize,
    inputs: usize,
    parts: &[Matrix<'_>],
) -> Result<Option<DeviceWeights>, CudaError> {
    let Some(blocks) = all!(Q8_0, parts) else { return Ok(None) };
    Ok(Some(DeviceWeights::from_q8_0(kernels, outputs, inputs, &blocks)?))
}

/// Q4_1 as MLX affine groups of 32, with scales and minima in bf16: three bits less than the file's f16.
pub(super) fn q4_1(
    kernels: &Kernels,
    outputs: usize,
    inputs: usize,
    parts: &[Matrix<'_>],
) -> Result<Option<DeviceWeights>, CudaError> {
    let Some(blocks) = all!(Q4_1, parts) else { return Ok(None) };
    let (words, scales, biases) = affine_groups(&blocks);
    let affine = Affine { bits: 4, group: 32, words: &words, scales: &scales, biases: &biases };
    Ok(Some(DeviceWeights::from_affine(kernels, outputs, inputs, &affine)?))
}

/// MLX affine groups of 4 bits as they are stored, if their scales and biases are bf16.
pub(super) fn affine(
    kernels: &Kernels,
    outputs: usize,
    inputs: usize,
    parts: &[Matrix<'_>],
) -> Result<Option<DeviceWeights>, CudaError> {
    let Some(parts) = all_affine(parts) else { return Ok(None) };
    let words = parts.iter().map(|part| part.words).collect::<Vec<_>>().concat();
    let scales = parts.iter().map(|part| part.scales).collect::<Vec<_>>().concat();
    let biases = parts.iter().map(|part| part.biases).collect::<Vec<_>>().concat();
    let affine = Affine { words: &words, scales: &scales, biases: &biases, ..parts[0] };
    Ok(Some(DeviceWeights::from_affine(kernels, outputs, inputs, &affine)?))
}

/// The parts, if all are MLX affine groups of one size and of 4 bits, with scales and biases in bf16.
fn all_affine<'a>(parts: &[Matrix<'a>]) -> Option<Vec<Affine<'a>>> {
    let affine = |part: &Matrix<'a>| match part.weights() {
        Weights::Affine(w) => match (w.bits, w.scales, w.biases) {
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
fn affine_groups(blocks: &[BlockQ4_1]) -> (Vec<u32>, Vec<bf16>, Vec<bf16>) {
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
        let (words, scales, biases) = affine_groups(&[block(0), block(15)]);
        assert_eq!(words[..4], [0x3322_1100, 0x7766_5544, 0xbbaa_9988, 0xffee_ddcc]);
        assert_eq!(words[4..], [0xccdd_eeff, 0x8899_aabb, 0x4455_6677, 0x0011_2233]);
        assert_eq!((scales[1], biases[0]), (bf16::from_f32(0.5), bf16::from_f32(-3.0)));
    }
}
