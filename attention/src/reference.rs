//! The f64 twin of [`attention`](crate::attention()), written from its formula, and what a cache of each type keeps of a
//! number.

use crate::{AttentionParams, KvType};
use half::{bf16, f16};
use halfbyte_q8::{BlockQ8_0, GROUP, dequantize_row, quantize_row};

/// Attention in f64, in two passes over the keys of each head, without blocks.
///
/// `q` is rows of `n_heads * head_dim` numbers, `k` and `v` rows of `n_kv_heads * head_dim`, one a position from
/// position 0 on. Row `r` of `q` is at position `first + r`; [`AttentionParams`] says which keys it sees and how
/// scores are scaled and capped. The result has the shape of `q`. A head that sees no key, or none with a score above -inf,
/// gives 0.
///
/// To compare with a cache that rounds, pass keys and values through [`kept`] first.
///
/// # Panics
/// If a slice is not whole rows, `k` and `v` differ in length, or attention is causal and a row's own position is not
/// in `k`.
///
/// ```
/// use halfbyte_attention::{AttentionParams, reference};
/// let params = AttentionParams::new(1, 1, 1, 1.0)?;
/// // Scores ln 1 and ln 3: weights 1/4 and 3/4.
/// let out = reference::attention(&params, &[1.0], &[0.0, 3f32.ln()], &[0.0, 4.0], 1);
/// assert!((out[0] - 3.0).abs() < 1e-6);
/// # Ok::<(), halfbyte_attention::Error>(())
/// ```
#[must_use]
pub fn attention(params: &AttentionParams, q: &[f32], k: &[f32], v: &[f32], first: usize) -> Vec<f64> {
    attention_with_sinks(params, &vec![f32::NEG_INFINITY; params.n_heads()], q, k, v, first)
}

/// [`attention`] with a sink for every query head: one more score, of a key that every row sees and whose value is 0.
/// A sink of -inf means no sink.
///
/// # Panics
/// As [`attention`], and if `sinks` is not `n_heads` long.
///
/// ```
/// use halfbyte_attention::{AttentionParams, reference};
/// let params = AttentionParams::new(1, 1, 1, 1.0)?;
/// // Scores ln 1 and ln 3, and a sink of ln 4: weights 1/8 and 3/8.
/// let out = reference::attention_with_sinks(&params, &[4f32.ln()], &[1.0], &[0.0, 3f32.ln()], &[0.0, 4.0], 1);
/// assert!((out[0] - 1.5).abs() < 1e-6);
/// # Ok::<(), halfbyte_attention::Error>(())
/// ```
#[must_use]
pub fn attention_with_sinks(
    params: &AttentionParams,
    sinks: &[f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    first: usize,
) -> Vec<f64> {
    let (dim, kv_width) = (params.head_dim(), params.n_kv_heads() * params.head_dim());
    let positions = k.len() / kv_width;
    assert_eq!(q.len() % (params.n_heads() * dim), 0, "q is not whole rows");
    assert_eq!(k.len() % kv_width, 0, "k is not whole rows");
    assert_eq!(k.len(), v.len(), "k and v differ in length");
    assert_eq!(sinks.len(), params.n_heads(), "one sink a query head");
    let mut out = Vec::with_capacity(q.len());
    for (i, query) in q.chunks_exact(dim).enumerate() {
        let (row, head) = (i / params.n_heads(), i % params.n_heads());
        let position = first + row;
        assert!(!params.causal() || position < positions, "row {row} is not among {positions} keys");
        let seen = params.visible(position, positions);
        let at = |j: usize| j * kv_width + head / params.group() * dim;
        let scores: Vec<f64> = seen
            .clone()
            .map(|j| {
                let dot: f64 =
                    query.iter().zip(&k[at(j)..]).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                let score = dot * f64::from(params.scale());
                params.soft_cap().map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
            })
            .collect();
        let sink = f64::from(sinks[head]);
        let largest = scores.iter().copied().fold(sink, f64::max);
        if scores.iter().all(|&x| x == f64::NEG_INFINITY) {
            out.extend(std::iter::repeat_n(0.0, dim));
            continue;
        }
        let weights: Vec<f64> = scores.iter().map(|x| (x - largest).exp()).collect();
        let total: f64 = weights.iter().sum::<f64>() + (sink - largest).exp();
        out.extend((0..dim).map(|d| {
            let sum: f64 = seen.clone().zip(&weights).map(|(j, p)| p * f64::from(v[at(j) + d])).sum();
            sum / total
        }));
    }
    out
}

/// The numbers that a cache of type `kind` holds after it was given `x`, rows of heads of `head_dim` numbers, by
/// [`KvType`]'s rules. The fp8 code of a number is found by comparing it with all codes.
///
/// # Panics
/// If `x` is not a whole number of heads.
///
/// ```
/// use halfbyte_attention::{KvType, reference};
/// // The scale is 2: 448 times it is the largest, 447 lies next to the code of 448, not of 416.
/// assert_eq!(reference::kept(KvType::Fp8, 4, &[896.0, -894.0, 7.1, 0.0]), [896.0, -896.0, 7.0, 0.0]);
/// ```
#[must_use]
pub fn kept(kind: KvType, head_dim: usize, x: &[f32]) -> Vec<f32> {
    assert_eq!(x.len() % head_dim, 0, "x is not whole heads");
    match kind {
        KvType::F32 => x.to_vec(),
        KvType::F16 => x.iter().map(|&x| f16::from_f32(x).to_f32()).collect(),
        KvType::Bf16 => x.iter().map(|&x| bf16::from_f32(x).to_f32()).collect(),
        KvType::Q8 => x.chunks(head_dim).flat_map(|head| head.chunks(GROUP).flat_map(q8)).collect(),
        KvType::Fp8 => x.chunks(head_dim).flat_map(fp8).collect(),
    }
}

/// A Q8_0 group, which may be the short one at a head's end.
fn q8(x: &[f32]) -> Vec<f32> {
    let mut group = [0.0; GROUP];
    group[..x.len()].copy_from_slice(x);
    let mut block = [BlockQ8_0 { scale: f16::ZERO, codes: [0; GROUP] }];
    let done = quantize_row(&group, &mut block).and_then(|()| dequantize_row(&block, &mut group));
    if done.is_ok() { group[..x.len()].to_vec() } else { vec![f32::NAN; x.len()] }
}

/// A head in e4m3.
fn fp8(x: &[f32]) -> Vec<f32> {
    if x.iter().any(|x| !x.is_finite()) {
        return vec![f32::NAN; x.len()];
    }
    let scale = x.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 448.0;
    // Codes 0 to 126: exponents from -6 (twice, once without a leading one) to 8, three digits.
    let magnitudes: Vec<f32> = (0..127)
        .map(|code| {
            let (exponent, digits) = (code / 8, code % 8);
            let leading = if exponent == 0 { 0.0 } else { 1.0 };
            (leading + digits as f32 / 8.0) * 2f32.powi(exponent.max(1) - 7)
        })
        .collect();
    let nearest = |x: f32| {
        let distance = |code: &usize| f64::from((magnitudes[*code] - x.abs()).abs());
        let code = (0..127).min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2))));
        code.map_or(0.0, |code| magnitudes[code].copysign(x))
    };
    x.iter().map(|&x| if scale > 0.0 { nearest(x / scale) * scale } else { 0.0 }).collect()
}
