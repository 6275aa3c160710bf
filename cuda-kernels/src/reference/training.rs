//! Twins of the norm's gradients, the loss and the optimizer.

use crate::training::AdamW;

/// The gradients of [`rms_norm`](super::rms_norm) of one row: of its input, and this row's share of its weights'.
#[must_use]
pub fn rms_norm_backward(x: &[f64], weights: &[f64], dy: &[f64], epsilon: f64) -> (Vec<f64>, Vec<f64>) {
    let count = x.len() as f64;
    let inverse = 1.0 / (x.iter().map(|v| v * v).sum::<f64>() / count + epsilon).sqrt();
    let h: Vec<f64> = x.iter().map(|v| v * inverse).collect();
    let g: Vec<f64> = weights.iter().zip(dy).map(|(w, d)| w * d).collect();
    let mean = g.iter().zip(&h).map(|(g, h)| g * h).sum::<f64>() / count;
    let dx = g.iter().zip(&h).map(|(g, h)| inverse * (g - h * mean)).collect();
    (dx, dy.iter().zip(&h).map(|(d, h)| d * h).collect())
}

/// The loss of a row of logits whose token is `target`, and the softmax.
#[must_use]
pub fn cross_entropy(logits: &[f64], target: usize) -> (f64, Vec<f64>) {
    let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| (x - top).exp()).sum();
    let softmax = logits.iter().map(|x| (x - top).exp() / sum).collect();
    (sum.ln() - (logits[target] - top), softmax)
}

/// One weight's step: weight and the two means, moved by a gradient.
#[must_use]
pub fn adamw(settings: &AdamW, [w, m, v]: [f64; 3], g: f64) -> [f64; 3] {
    let AdamW { rate, beta1, beta2, epsilon, decay, step } = *settings;
    let (m, v) = (beta1 * m + (1.0 - beta1) * g, beta2 * v + (1.0 - beta2) * g * g);
    let corrected = |mean: f64, beta: f64| mean / (1.0 - beta.powf(step as f64));
    let size = corrected(v, beta2).sqrt() + epsilon;
    [w - rate * decay * w - rate * corrected(m, beta1) / size, m, v]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::rms_norm;

    /// The gradient of a function by finite differences.
    fn differences(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let step = 1e-5;
        let at = |i: usize, by: f64| {
            let mut moved = x.to_vec();
            moved[i] += by;
            f(&moved)
        };
        (0..x.len()).map(|i| (at(i, step) - at(i, -step)) / (2.0 * step)).collect()
    }

    fn assert_close(got: &[f64], want: &[f64]) {
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-8), "{got:?} {want:?}");
    }

    #[test]
    fn the_norms_gradients_are_its_differences() {
        let (x, w) = ([0.3, -1.2, 2.0, 0.7, -0.1], [1.1, 0.4, -0.8, 2.0, 1.0]);
        let dy = [0.5, -1.0, 0.25, 0.1, 0.9];
        let loss =
            |x: &[f64], w: &[f64]| -> f64 { rms_norm(x, w, 1e-3).iter().zip(dy).map(|(y, d)| y * d).sum() };
        let (dx, dw) = rms_norm_backward(&x, &w, &dy, 1e-3);
        assert_close(&dx, &differences(&x, |x| loss(x, &w)));
        assert_close(&dw, &differences(&w, |w| loss(&x, w)));
    }

    #[test]
    fn the_losss_gradient_is_its_difference() {
        let x = [0.3, -1.2, 2.0, 0.7];
        let (_, mut gradient) = cross_entropy(&x, 3);
        gradient[3] -= 1.0;
        assert_close(&gradient, &differences(&x, |x| cross_entropy(x, 3).0));
    }

    // The first step of Adam moves a weight by the rate, whatever the gradient's size, and the decay takes its part.
    #[test]
    fn the_first_step_is_the_rates() {
        let settings = AdamW { rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 0.0, decay: 0.5, step: 1 };
        let [w, m, v] = adamw(&settings, [2.0, 0.0, 0.0], -3.0);
        assert_close(&[w, m, v], &[2.0 - 0.1 * 0.5 * 2.0 + 0.1, -0.3, 0.009]);
    }
}
