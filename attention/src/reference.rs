//! The plain f64 twin of [`attention`](crate::attention()): the formula, read off line by line.

use crate::AttentionParams;

/// Attention in f64, two passes over the keys of each head, no blocks.
///
/// `q` is rows of `n_heads * head_dim` numbers, `k` and `v` rows of `n_kv_heads * head_dim`, one a position from
/// position 0 on. Row `r` of `q` stands at position `first + r`; which keys it sees, and what becomes of a score, is
/// [`AttentionParams`]'. The result has the shape of `q`. A head that sees no key, or none with a score above -inf,
/// gives 0.
///
/// A cache that rounds is compared with it by rounding `k` and `v` first.
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
/// A sink of -inf is none.
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
