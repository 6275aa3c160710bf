//! The rotations that a file's metadata and factors describe.
//!
//! ```text
//! plain        f_i = base^(-2 i / dims)
//! linear       f_i / factor
//! Llama 3      f_i / rope_freqs[i]
//! YaRN         (1 - ramp_i) f_i + ramp_i f_i / factor
//! LongRoPE     f_i / rope_factors_short[i], or rope_factors_long[i] in a context longer than the original one
//! dynamic      f_i of a base that grows with the context
//! ```

use std::f64::consts::TAU;

use halfbyte_cpu_kernels::RopeTable;
use halfbyte_gguf::Value;

use super::Reader;
use crate::model::{Description, Error, LongFrequencies, LongRope, Rope, RopeId, vector};

/// The tensor of Llama 3's factors.
const FACTORS: &str = "rope_freqs.weight";
/// The tensors of LongRoPE's factors.
const SHORT_FACTORS: &str = "rope_factors_short.weight";
const LONG_FACTORS: &str = "rope_factors_long.weight";

/// YaRN's share of interpolation for each of `dims / 2` pairs: 0 for pairs that make more than `turns[0]` turns within
/// the original context, 1 for those that make less than `turns[1]`, and a line between the two.
///
/// Source: "YaRN: Efficient Context Window Extension of Large Language Models", arXiv 2309.00071; the rounding of the
/// ends by the authors' code.
fn yarn_ramp(base: f64, dims: usize, original: f64, turns: [f64; 2], round: bool) -> Vec<f64> {
    let pair = |turns: f64| dims as f64 * (original / (turns * TAU)).ln() / (2.0 * base.ln());
    let (mut low, mut high) = (pair(turns[0]), pair(turns[1]));
    if round {
        (low, high) = (low.floor(), high.ceil());
    }
    let (low, high) = (low.max(0.0), high.min(dims as f64 - 1.0));
    let width = (high - low).max(0.001);
    (0..dims / 2).map(|i| ((i as f64 - low) / width).clamp(0.0, 1.0)).collect()
}

/// YaRN's attention factor for a scaling factor and a multiplier of its logarithm.
fn yarn_magnitude(factor: f64, multiplier: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * multiplier * factor.ln() + 1.0 }
}

impl Reader<'_> {
    /// Adds the rotations that the file describes, scaling included.
    pub(super) fn rope(&self, d: &mut Description, head_dim: usize) -> Result<RopeId, Error> {
        let dims = self.rotated(head_dim)?;
        let base = f64::from(self.positive("rope.freq_base", Some(10_000.0))?);
        let frequencies = RopeTable::plain_frequencies(base, dims);
        let order = self.source.rope_order().unwrap_or(self.architecture.rope_order);
        let mut rope = Rope::new(frequencies, order);
        let factor = f64::from(self.positive("rope.scaling.factor", Some(1.0))?);
        let original = self.opt_size("rope.scaling.original_context_length")?.unwrap_or(d.context);
        let kind_key = self.key("rope.scaling.type");
        let kind = self.metadata.opt_str(&kind_key)?;
        match kind {
            None | Some("linear") => rope.frequencies.iter_mut().for_each(|f| *f /= factor),
            Some("none" | "longrope") => {}
            Some("yarn") => self.yarn(&mut rope, base, factor, original)?,
            Some("dynamic") => {
                let frequencies = LongFrequencies::Dynamic { base, factor };
                rope.long = Some(LongRope { context: original, frequencies });
            }
            Some(other) => {
                let got = other.chars().take(64).collect();
                let supported =
                    "none, linear, yarn, longrope, dynamic, and Llama 3's factors in rope_freqs.weight";
                return Err(Error::Feature { key: kind_key, got, supported });
            }
        }
        rope.magnitude *= f64::from(self.positive("rope.scaling.attn_factor", Some(1.0))?);
        if !matches!(self.metadata.get(&self.key("rope.scale_linear")), None | Some(Value::String(_))) {
            let linear = f64::from(self.positive("rope.scale_linear", Some(1.0))?);
            rope.frequencies.iter_mut().for_each(|f| *f /= linear);
        }
        if self.source.opt_tensor(FACTORS).is_some() {
            self.divide(d, FACTORS, &mut rope.frequencies)?;
        }
        if kind == Some("longrope") || self.source.opt_tensor(LONG_FACTORS).is_some() {
            let mut long = rope.frequencies.clone();
            self.divide(d, LONG_FACTORS, &mut long)?;
            self.divide(d, SHORT_FACTORS, &mut rope.frequencies)?;
            rope.long = Some(LongRope { context: original, frequencies: LongFrequencies::Fixed(long) });
        }
        Ok(add(d, rope))
    }

    /// Adds the rotations of layers with a window: those without scaling, by a base of their own, or `base` where the
    /// file has none.
    pub(super) fn window_rope(
        &self,
        d: &mut Description,
        head_dim: usize,
        base: Option<f32>,
    ) -> Result<RopeId, Error> {
        let base = match base {
            Some(base) => base,
            None => self.positive("rope.freq_base", Some(10_000.0))?,
        };
        let base = self.positive("rope.freq_base_swa", Some(base))?;
        let frequencies = RopeTable::plain_frequencies(f64::from(base), self.rotated(head_dim)?);
        let order = self.source.rope_order().unwrap_or(self.architecture.rope_order);
        Ok(add(d, Rope::new(frequencies, order)))
    }

    /// Elements of a head that rotate.
    fn rotated(&self, head_dim: usize) -> Result<usize, Error> {
        let dims = self.opt_size("rope.dimension_count")?.unwrap_or(head_dim);
        if dims > head_dim || !dims.is_multiple_of(2) {
            let (key, got) = (self.key("rope.dimension_count"), dims.to_string());
            let expected = format!("an even number up to {head_dim}");
            return Err(Error::Hyperparameter { key, got, expected });
        }
        Ok(dims)
    }

    fn yarn(&self, rope: &mut Rope, base: f64, factor: f64, original: usize) -> Result<(), Error> {
        let key = self.key("rope.scaling.yarn_ext_factor");
        if let Some(got) = self.metadata.opt_f32(&key)?.filter(|&ext| ext >= 0.0 && ext != 1.0) {
            return Err(Error::Feature { key, got: got.to_string(), supported: "1" });
        }
        let fast = f64::from(self.positive("rope.scaling.yarn_beta_fast", Some(32.0))?);
        let slow = f64::from(self.positive("rope.scaling.yarn_beta_slow", Some(1.0))?);
        let round = self.metadata.opt_bool(&self.key("rope.scaling.yarn_truncate"))? != Some(false);
        let ramp = yarn_ramp(base, 2 * rope.frequencies.len(), original as f64, [fast, slow], round);
        for (f, share) in rope.frequencies.iter_mut().zip(ramp) {
            *f = *f * (1.0 - share) + *f / factor * share;
        }
        rope.magnitude = match self.opt_positive("rope.scaling.yarn_attn_factor")? {
            Some(magnitude) => f64::from(magnitude),
            None => {
                let multiplier = self.metadata.opt_f32(&self.key("rope.scaling.yarn_log_multiplier"))?;
                let multiplier = f64::from(multiplier.unwrap_or(0.0));
                yarn_magnitude(factor, 1.0) / yarn_magnitude(factor, multiplier)
            }
        };
        Ok(())
    }

    /// Divides frequencies by the factors of a tensor.
    fn divide(&self, d: &mut Description, tensor: &str, frequencies: &mut [f64]) -> Result<(), Error> {
        let factors = vector(self.source, tensor, frequencies.len())?;
        for (f, &factor) in frequencies.iter_mut().zip(&factors) {
            if !(factor > 0.0 && factor.is_finite()) {
                let (key, got) = (tensor.to_owned(), factor.to_string());
                return Err(Error::Hyperparameter { key, got, expected: "positive finite factors".into() });
            }
            *f /= f64::from(factor);
        }
        // The factors are in the frequencies now. The list of vectors says that the tensor is used.
        d.add_vector(tensor, frequencies.len());
        Ok(())
    }
}

fn add(d: &mut Description, rope: Rope) -> RopeId {
    d.ropes.push(rope);
    RopeId(d.ropes.len() - 1)
}
