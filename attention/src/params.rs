//! The parameters of an attention layer.

use crate::error::{Error, check_positive};
use core::num::NonZero;
use core::ops::Range;

/// The parameters of a layer's attention: its heads and their width, how scores are scaled and capped, and which keys a row
/// sees. They come with each call, so layers of one model may differ in all of them.
///
/// Query heads `g * i .. g * (i + 1)` read key/value head `i`, with `g = n_heads / n_kv_heads`: grouped-query
/// attention, plain multi-head attention where `g` is 1, multi-query attention where `n_kv_heads` is 1.
///
/// [`new`](Self::new) gives causal attention without a window or a cap; the `with_*` methods change that:
///
/// ```text
/// s       = scale * q . k
/// score   = s                          or soft_cap * tanh(s / soft_cap)
/// a row at position p sees the keys j
///           j <= p                     causal
///           every j                    with_causal(false)
///           p - window < j <= p        with_window(window): that many keys, the row's own counted
///           |p - j| < window           with_causal(false) and with_window(window)
/// ```
///
/// The mask is applied after the cap: a key that a row does not see weighs exactly 0. Positions count from 0, the first
/// key. Attention sinks, one logit a query head, are weights of the model and are an argument of
/// [`attention_with_sinks`](crate::attention_with_sinks), not kept here. Bidirectional attention, as embedding models use
/// it, is `with_causal(false)`: append all keys and values, then call with all rows.
///
/// ```
/// use core::num::NonZero;
/// use halfbyte_attention::AttentionParams;
/// // SmolLM2-135M: nine query heads on three key/value heads of 64.
/// let params = AttentionParams::new(9, 3, 64, 0.125)?;
/// assert_eq!(params.group(), 3);
/// assert!(AttentionParams::new(9, 2, 64, 0.125).is_err());
/// // A layer of Gemma 2: 4096 keys back, scores below 50.
/// let window = NonZero::new(4096);
/// let params = AttentionParams::new(8, 4, 256, 0.0625)?.with_window(window).with_soft_cap(Some(50.0))?;
/// assert_eq!(params.visible(5000, 8192), 905..5001);
/// assert!(params.with_soft_cap(Some(0.0)).is_err());
/// # Ok::<(), halfbyte_attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionParams {
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    scale: f32,
    causal: bool,
    window: Option<NonZero<usize>>,
    soft_cap: Option<f32>,
}

impl AttentionParams {
    /// The parameters of a causal layer; `scale` multiplies every score and is `1 / sqrt(head_dim)` in most models.
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
        Ok(Self { n_heads, n_kv_heads, head_dim, scale, causal: true, window: None, soft_cap: None })
    }

    /// The same parameters, but rows see later keys too (`false`) or no later ones (`true`).
    #[must_use]
    pub const fn with_causal(self, causal: bool) -> Self {
        Self { causal, ..self }
    }

    /// The same parameters with a sliding window of that many positions, the row's own counted; `None` means no window.
    #[must_use]
    pub const fn with_window(self, window: Option<NonZero<usize>>) -> Self {
        Self { window, ..self }
    }

    /// The same parameters with scores kept between `-soft_cap` and `soft_cap`; `None` means no cap.
    ///
    /// # Errors
    /// [`Error::SoftCap`] if it is not a positive normal number.
    pub fn with_soft_cap(self, soft_cap: Option<f32>) -> Result<Self, Error> {
        match soft_cap {
            Some(got) if !(got.is_normal() && got > 0.0) => Err(Error::SoftCap { got }),
            _ => Ok(Self { soft_cap, ..self }),
        }
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

    /// The factor that dot products are multiplied by.
    #[must_use]
    pub const fn scale(&self) -> f32 {
        self.scale
    }

    /// Whether a row sees no key after its own.
    #[must_use]
    pub const fn causal(&self) -> bool {
        self.causal
    }

    /// The size of the sliding window in positions, the row's own counted; `None` means no window.
    #[must_use]
    pub const fn window(&self) -> Option<NonZero<usize>> {
        self.window
    }

    /// The bound of scores; `None` means no bound.
    #[must_use]
    pub const fn soft_cap(&self) -> Option<f32> {
        self.soft_cap
    }

    /// Query heads that share a key/value head.
    #[must_use]
    pub const fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// The keys that a row at `position` sees where there are `len` keys. The range is empty if the row's window lies
    /// behind all keys. Neither end decreases as the position grows.
    #[must_use]
    pub fn visible(&self, position: usize, len: usize) -> Range<usize> {
        let own = position.saturating_add(1);
        let (back, ahead) = match (self.window, self.causal) {
            (None, true) => (0, own),
            (None, false) => (0, len),
            (Some(w), true) => (own.saturating_sub(w.get()), own),
            (Some(w), false) => (own.saturating_sub(w.get()), position.saturating_add(w.get())),
        };
        let end = ahead.min(len);
        back.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_see_the_keys_of_mask_and_window() {
        let causal = AttentionParams::new(1, 1, 1, 1.0).unwrap();
        let all = causal.with_causal(false);
        for (params, window) in [(causal, 1), (causal, 3), (causal, 9), (all, 1), (all, 3), (all, 9)] {
            let windowed = params.with_window(NonZero::new(window));
            for position in 0..12 {
                let seen = |params: AttentionParams| {
                    let range = params.visible(position, 6);
                    (0..6).filter(|j| range.contains(j)).collect::<Vec<_>>()
                };
                let want = |windowed: bool| {
                    let near = |j: &usize| !windowed || j.abs_diff(position) < window;
                    let past = |j: &usize| !params.causal() || *j <= position;
                    (0..6).filter(near).filter(past).collect::<Vec<_>>()
                };
                assert_eq!(seen(params), want(false), "{params:?} at {position}");
                assert_eq!(seen(windowed), want(true), "{windowed:?} at {position}");
            }
        }
    }
}
