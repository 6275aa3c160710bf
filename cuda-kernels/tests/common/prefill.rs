//! The prompt matrices in plain Rust: formats, the quantizer's rule, and the kernels' formula in f32 and in f64.

use super::{Arg, Device, pad4};
use half::{bf16, f16};
use halfbyte_testing::Rng;

/// Inputs of one precision in the layout of the kernels, of `m` rows and `k` columns in groups.
#[derive(Debug, Clone)]
pub(crate) struct Int8Inputs {
    pub(crate) codes: Vec<i8>,
    /// By group, then row; no padding.
    pub(crate) scales: Vec<f32>,
    pub(crate) sums: Vec<f32>,
}

/// Where `w4a8_quantize` puts the code of column `c`.
pub(crate) fn position(c: usize) -> usize {
    c / 32 * 32 + c % 2 * 16 + c % 32 / 2
}

/// The sum of finite numbers rounded to f32 once; exact while none is 2^90 times smaller than the largest.
pub(crate) fn exact_sum(x: &[bf16]) -> f32 {
    let parts = x.iter().map(|v| {
        let bits = v.to_bits();
        let field = i32::from(bits >> 7 & 0xff);
        let significand = i128::from(bits & 0x7f) + if field > 0 { 0x80 } else { 0 };
        (field.max(1), if bits >> 15 == 1 { -significand } else { significand })
    });
    let top = parts.clone().map(|(field, _)| field).max().unwrap_or(1);
    let total: i128 =
        parts.filter(|(field, _)| top - field <= 90).map(|(field, s)| s << (90 - (top - field))).sum();
    // The conversion rounds; powers of two do not, in f64, and the sum of bf16 is no finer than f32's subnormals.
    (f64::from(total as f32) * 2f64.powi(top - 134 - 90)) as f32
}

/// Codes of a group in order, scale and sum, and the mark: halfbyte-q8's rule on groups of any size.
pub(crate) fn quantize_group(x: &[bf16]) -> (Vec<i8>, f32, f32, u32) {
    let amax =
        x.iter().map(|v| v.to_f32().abs()).fold(0.0, |a: f32, b| if b.is_nan() { b } else { a.max(b) });
    let finite = x.iter().all(|v| v.is_finite());
    let (zeros, nan) = (vec![0; x.len()], f32::from_bits(0x7fc0_0000));
    if !finite {
        return (zeros, nan, nan, 1);
    }
    let (scale, sum) = (amax / 127.0, exact_sum(x));
    if !(scale * 12_582_912.0).is_finite() {
        return (zeros, nan, sum, 2);
    }
    if amax < 127.0 * f32::MIN_POSITIVE {
        return (zeros, 0.0, sum, 0);
    }
    let inverse = 127.0 / amax;
    (x.iter().map(|v| (v.to_f32() * inverse).round_ties_even() as i8).collect(), scale, sum, 0)
}

/// [`quantize_group`] of a matrix, and marks for every `chunk` rows.
pub(crate) fn quantize(x: &[bf16], m: usize, k: usize, group: usize, chunk: usize) -> (Int8Inputs, Vec<u32>) {
    let groups = k / group;
    let mut out =
        Int8Inputs { codes: vec![0; m * k], scales: vec![0.0; m * groups], sums: vec![0.0; m * groups] };
    let mut marks = vec![0; m.div_ceil(chunk)];
    for r in 0..m {
        for g in 0..groups {
            let (codes, scale, sum, mark) = quantize_group(&x[r * k + g * group..][..group]);
            for (i, code) in codes.into_iter().enumerate() {
                out.codes[r * k + position(g * group + i)] = code;
            }
            out.scales[g * m + r] = scale;
            out.sums[g * m + r] = sum;
            marks[r / chunk] |= mark;
        }
    }
    (out, marks)
}

/// A format of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Affine(usize),
    Q4_0,
    Q8_0,
}

impl Format {
    pub(crate) fn group(self) -> usize {
        if let Self::Affine(group) = self { group } else { 32 }
    }

    /// Of the kernel that takes these weights and int8 or bf16 inputs.
    pub(crate) fn entry(self, int8: bool, rows: usize) -> String {
        match (self, int8) {
            (Self::Affine(g), true) => format!("w4a8_prefill_g{g}_{rows}x128"),
            (Self::Affine(g), false) => format!("affine4_prefill_g{g}_{rows}x128"),
            (Self::Q4_0, true) => format!("q4_0_prefill_int8_{rows}x128"),
            (Self::Q4_0, false) => format!("q4_0_prefill_bf16_{rows}x128"),
            (Self::Q8_0, true) => format!("q8_0_prefill_int8_{rows}x128"),
            (Self::Q8_0, false) => format!("q8_0_prefill_bf16_{rows}x128"),
        }
    }
}

/// Rows of the tiles.
pub(crate) const TILES: [usize; 4] = [128, 64, 32, 16];

/// A weight matrix: codes as numbers, and parameters a group, row-major, exact in f32.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    pub(crate) format: Format,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) codes: Vec<i8>,
    pub(crate) scales: Vec<f32>,
    pub(crate) biases: Vec<f32>,
}

impl Weights {
    /// Codes over the whole range, scales around 1/64 of both signs, biases around -8 scales.
    pub(crate) fn random(format: Format, n: usize, k: usize, random: &mut Rng) -> Self {
        let groups = n * k / format.group();
        let scale = |random: &mut Rng| {
            let scale = random.f32() / 64.0;
            if matches!(format, Format::Affine(_)) {
                bf16::from_f32(scale).to_f32()
            } else {
                f16::from_f32(scale).to_f32()
            }
        };
        let scales: Vec<f32> = (0..groups).map(|_| scale(random)).collect();
        let bias = |s: &f32| match format {
            Format::Affine(_) => bf16::from_f32(s * (random.f32() - 8.0)).to_f32(),
            Format::Q4_0 => -8.0 * s,
            Format::Q8_0 => 0.0,
        };
        let biases = scales.iter().map(bias).collect();
        let code = |random: &mut Rng| match format {
            Format::Q8_0 => (random.below(256) as i64 - 128) as i8,
            _ => random.below(16) as i8,
        };
        let codes = (0..n * k).map(|_| code(random)).collect();
        Self { format, n, k, codes, scales, biases }
    }

    /// The bytes of Q4_0 or Q8_0 blocks.
    pub(crate) fn blocks(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (codes, &scale) in self.codes.chunks(32).zip(&self.scales) {
            bytes.extend(f16::from_f32(scale).to_le_bytes());
            match self.format {
                Format::Q4_0 => {
                    bytes.extend((0..16).map(|i| (codes[i] | codes[i + 16] << 4).cast_unsigned()))
                }
                _ => bytes.extend(codes.iter().map(|c| c.cast_unsigned())),
            }
        }
        bytes
    }

    /// The kernels' parameters that hold these weights: words, scales and, for affine ones, biases. GGUF formats go in
    /// as blocks, through the splitting kernels.
    pub(crate) fn upload(&self, device: &Device) -> Vec<Arg> {
        let bf16s = |v: &[f32]| v.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
        let blocks = self.n * self.k / 32;
        if let Format::Affine(_) = self.format {
            let pack = |w: &[i8]| (0..8).map(|i| u32::from(w[i].cast_unsigned()) << (4 * i)).sum::<u32>();
            let words: Vec<u32> = self.codes.chunks(8).map(pack).collect();
            return vec![
                device.upload(&words),
                device.upload(&bf16s(&self.scales)),
                device.upload(&bf16s(&self.biases)),
            ];
        }
        let (name, bytes_a_block) =
            if self.format == Format::Q4_0 { ("q4_0_split", 16) } else { ("q8_0_split", 32) };
        let (words, scales) = (device.reserve::<u8>(blocks * bytes_a_block), device.reserve::<f16>(blocks));
        let args = [device.upload(&self.blocks()), words, scales, Arg::U64(blocks)];
        device.run(name, [blocks.div_ceil(256), 1], &args);
        vec![words, scales]
    }
}

/// Inputs on the device, in both precisions.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) x: Arg,
    pub(crate) codes: Arg,
    pub(crate) scales: Arg,
    pub(crate) sums: Arg,
    pub(crate) marks: Vec<u32>,
    pub(crate) m: usize,
    pub(crate) k: usize,
}

impl Inputs {
    /// Uploads and quantizes `x`.
    pub(crate) fn new(device: &Device, x: &[bf16], m: usize, k: usize, group: usize, chunk: usize) -> Self {
        let x = device.upload(x);
        let parameters = k / group * pad4(m);
        let (codes, scales) = (device.reserve::<i8>(m * k), device.reserve::<f32>(parameters));
        let (sums, marks) =
            (device.reserve::<f32>(parameters), device.upload(&vec![0u32; m.div_ceil(chunk)]));
        let args = [x, codes, scales, sums, marks, Arg::U32(m), Arg::U32(k), Arg::U32(chunk)];
        device.run(&format!("w4a8_quantize_g{group}"), [m, k.div_ceil(1024)], &args);
        let marks = device.download(marks, m.div_ceil(chunk));
        Self { x, codes, scales, sums, marks, m, k }
    }
}

/// y of a prompt matrix, by the kernel with a tile of `rows`.
pub(crate) fn run(
    device: &Device,
    inputs: &Inputs,
    w: &Weights,
    uploaded: &[Arg],
    int8: bool,
    rows: usize,
) -> Vec<bf16> {
    let (m, n, k) = (inputs.m, w.n, w.k);
    let y = device.reserve::<bf16>(m * n);
    let mut args = if int8 { vec![inputs.codes, inputs.scales] } else { vec![inputs.x] };
    if w.format != Format::Q8_0 {
        args.push(inputs.sums);
    }
    args.extend(uploaded);
    args.extend([y, Arg::U32(m), Arg::U32(n), Arg::U32(k)]);
    device.run(&w.format.entry(int8, rows), [m.div_ceil(rows) * n.div_ceil(128), 1], &args);
    device.download_written(y, m * n)
}
