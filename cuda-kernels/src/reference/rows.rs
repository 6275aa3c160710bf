//! Twins of the kernels between the products.

/// `x / sqrt(mean(x^2) + epsilon) * weights`.
#[must_use]
pub fn rms_norm(x: &[f64], weights: &[f64], epsilon: f64) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let root = (mean + epsilon).sqrt();
    x.iter().zip(weights).map(|(v, w)| v / root * w).collect()
}

/// `gate / (1 + e^-gate) * up`.
#[must_use]
pub fn swiglu(gate: f64, up: f64) -> f64 {
    gate / (1.0 + (-gate).exp()) * up
}
