//! The definition of an attention problem.

use crate::error::{Error, check_positive};

/// What is the same for every call of a layer: heads, their width, the scale. Attention is causal.
///
/// Query heads `g * i .. g * (i + 1)` read key/value head `i`, with `g = n_heads / n_kv_heads`: grouped-query
/// attention, plain multi-head attention where `g` is 1, multi-query attention where `n_kv_heads` is 1.
///
/// ```
/// use halfbyte_attention::AttentionParams;
/// // SmolLM2-135M: nine query heads on three key/value heads of 64.
/// let params = AttentionParams::new(9, 3, 64, 0.125)?;
/// assert_eq!(params.group(), 3);
/// assert!(AttentionParams::new(9, 2, 64, 0.125).is_err());
/// # Ok::<(), halfbyte_attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionParams {
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    scale: f32,
}

impl AttentionParams {
    /// The parameters of a layer; `scale` multiplies every score and is `1 / sqrt(head_dim)` in most models.
    ///
    /// # Errors
    /// [`Error::Zero`] if a size is 0, [`Error::HeadGroups`] if `n_heads` is no multiple of `n_kv_heads`,
    /// [`Error::Scale`] if `scale` is not finite.
    pub fn new(n_heads: usize, n_kv_heads: usize, head_dim: usize, scale: f32) -> Result<Self, Error> {
        check_positive("n_heads", n_heads)?;
        check_positive("n_kv_heads", n_kv_heads)?;
        check_positive("head_dim", head_dim)?;
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(Error::HeadGroups { n_heads, n_kv_heads });
        }
        if !scale.is_finite() {
            return Err(Error::Scale { got: scale });
        }
        Ok(Self { n_heads, n_kv_heads, head_dim, scale })
    }

    /// Query heads.
    #[must_use]
    pub const fn n_heads(&self) -> usize {
        self.n_heads
    }

    /// Key/value heads.
    #[must_use]
    pub const fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    /// Elements of a head.
    #[must_use]
    pub const fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// What every score is multiplied by.
    #[must_use]
    pub const fn scale(&self) -> f32 {
        self.scale
    }

    /// Query heads that share a key/value head.
    #[must_use]
    pub const fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }
}
