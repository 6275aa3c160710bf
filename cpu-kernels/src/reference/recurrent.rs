//! The twins of `recurrent`.

use super::{gated, rms_norm};
use crate::gated::Activation;
use crate::recurrent::{DeltaShape, HeadOrder};

/// [`crate::causal_convolution`] of one channel, whose inputs begin with the tail; without silu. Beside each sum stands that
/// of its products' magnitudes.
pub fn causal_convolution(x: &[f32], taps: &[f32]) -> Vec<(f64, f64)> {
    let products = |w: &[f32]| w.iter().zip(taps).map(|(&x, &tap)| f64::from(x) * f64::from(tap)).collect();
    x.windows(taps.len())
        .map(|w| {
            let products: Vec<f64> = products(w);
            (products.iter().sum(), products.iter().map(|p| p.abs()).sum())
        })
        .collect()
}

/// One head of [`crate::normalize_keys`], with `scale` 1 for a key.
pub fn normalize_key(x: &[f32], eps: f32, scale: f64) -> Vec<f64> {
    let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
    x.iter().map(|&x| f64::from(x) * scale / (squares + f64::from(eps)).sqrt()).collect()
}

/// `1 / (1 + exp(-x))`.
pub fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

/// The exponent of a decay of [`crate::delta_gates`]: `rate * ln(1 + exp(a + bias))`, of the f32 sum.
pub fn decay_exponent(a: f32, rate: f32, bias: f32) -> f64 {
    let x = f64::from(a + bias);
    f64::from(rate) * (x.max(0.0) + (-x.abs()).exp().ln_1p())
}

/// One row of [`crate::rms_norm_gated`].
pub fn rms_norm_gated(x: &[f32], weight: &[f32], eps: f32, gate: &[f32]) -> Vec<f64> {
    rms_norm(x, weight, eps)
        .iter()
        .zip(gate)
        .map(|(x, &gate)| x * gated(Activation::Silu, gate, 1.0))
        .collect()
}

/// [`crate::gated_delta`] from zeros: the outputs, and for each the sum of the magnitudes that error bounds scale with,
/// which is the largest of its row of the state so far.
///
/// # Panics
/// If the arguments are no whole rows.
pub fn gated_delta(shape: &DeltaShape, qkv: &[f32], beta: &[f32], decay: &[f32]) -> Vec<(f64, f64)> {
    let DeltaShape { k_heads, v_heads, k_dim, v_dim, order } = *shape;
    let width = 2 * k_heads * k_dim + v_heads * v_dim;
    let rows = qkv.len() / width;
    assert_eq!((qkv.len(), beta.len(), decay.len()), (rows * width, rows * v_heads, rows * v_heads));
    let mut out = vec![(0.0, 0.0); rows * v_heads * v_dim];
    for head in 0..v_heads {
        let key_head = match order {
            HeadOrder::Grouped => head / (v_heads / k_heads),
            HeadOrder::Tiled => head % k_heads,
        };
        for value in 0..v_dim {
            let mut state = vec![0.0_f64; k_dim];
            let mut largest = 0.0_f64;
            for t in 0..rows {
                let at = |i: usize| f64::from(qkv[t * width + i]);
                let q = |i: usize| at(key_head * k_dim + i);
                let k = |i: usize| at((k_heads + key_head) * k_dim + i);
                let v = at(2 * k_heads * k_dim + head * v_dim + value);
                let (beta, decay) =
                    (f64::from(beta[t * v_heads + head]), f64::from(decay[t * v_heads + head]));
                state.iter_mut().for_each(|s| *s *= decay);
                let found: f64 = state.iter().enumerate().map(|(i, s)| s * k(i)).sum();
                let d = beta * (v - found);
                let mut magnitude = v.abs();
                for (i, s) in state.iter_mut().enumerate() {
                    magnitude += (*s * k(i)).abs();
                    *s += d * k(i);
                    magnitude += s.abs() * q(i).abs().max(1.0 / k_dim as f64);
                }
                largest = largest.max(magnitude);
                let o = state.iter().enumerate().map(|(i, s)| s * q(i)).sum();
                out[(t * v_heads + head) * v_dim + value] = (o, largest);
            }
        }
    }
    out
}
