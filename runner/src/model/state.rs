//! What a session keeps of the tokens that it was fed.
//!
//! Attention keeps keys and values for each position, so that the end can be cut off. A layer that folds all positions
//! into one state cannot be cut: it has to be restored from an earlier copy, and fed again from there. Prefix reuse,
//! speculation and the scheduler go through this module's types and work with both.

use std::any::Any;
use std::sync::Arc;

use halfbyte_attention::{KvCache, KvType, SavedKv};
use halfbyte_cpu_kernels::Context;

use super::Error;
use super::description::{Description, Mixer};
use super::recurrent::RecurrentState;

/// Why a state cannot be cut back: one of its layers keeps a summary of all positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the state of {len} tokens cannot be cut back to {wanted}: it has to be restored from an earlier copy"
)]
pub struct CannotCut {
    /// Tokens in the state.
    pub len: usize,
    /// Tokens that were to stay.
    pub wanted: usize,
}

/// A copy of a session's state.
#[derive(Clone, Debug)]
pub struct SavedState {
    pub(super) len: usize,
    pub(super) layers: Vec<SavedLayer>,
    /// Which of its frequencies each rotation had.
    pub(super) ropes: Vec<usize>,
}

/// A copy of a layer's state.
#[derive(Clone, Debug)]
pub(super) enum SavedLayer {
    Attention(SavedKv),
    /// How many positions had keys and values, which [`State::rewind`] finds where they are.
    Positions(usize),
    Recurrent(Arc<RecurrentState>),
    /// A device's copy of a layer's keys and values.
    #[cfg(feature = "cuda")]
    Device(Arc<halfbyte_cuda_kernels::attention::DeviceKvCache>),
    /// The copy that a sequence of another crate made.
    Other(Arc<dyn Any + Send + Sync>),
}

impl SavedState {
    /// A copy of a state of `len` tokens, for a [`Sequence`](super::Sequence) with a state of its own kind.
    pub fn new(len: usize, state: impl Any + Send + Sync) -> Self {
        Self { len, layers: vec![SavedLayer::Other(Arc::new(state))], ropes: Vec::new() }
    }

    /// The copy that [`Self::new`] was given; `None` if this is another kind of state.
    pub fn get<T: Any>(&self) -> Option<&T> {
        match self.layers.as_slice() {
            [SavedLayer::Other(state)] => state.downcast_ref(),
            _ => None,
        }
    }

    /// Tokens in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is the state before the first token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of host memory that it takes; those of [`Self::new`] are not counted.
    pub fn bytes(&self) -> usize {
        let layer = |layer: &SavedLayer| match layer {
            SavedLayer::Attention(kv) => kv.bytes(),
            SavedLayer::Positions(_) => 0,
            SavedLayer::Recurrent(state) => state.bytes(),
            #[cfg(feature = "cuda")]
            SavedLayer::Device(_) => 0,
            SavedLayer::Other(_) => 0,
        };
        self.layers.iter().map(layer).sum()
    }
}

/// What a layer keeps.
#[derive(Debug)]
pub(super) enum LayerState {
    /// Keys and values of each position.
    Attention(KvCache),
    /// What a recurrent layer made of all positions, or what a convolution needs of the last few.
    Recurrent(RecurrentState),
}

impl LayerState {
    /// The state of a layer with this mixer before the first token, with room for `capacity` tokens.
    pub(super) fn new(mixer: &Mixer, kv_type: KvType, capacity: usize) -> Result<Self, Error> {
        match mixer {
            Mixer::Attention(a) => {
                Ok(Self::Attention(KvCache::new(kv_type, a.n_kv_heads, a.head_dim, capacity)?))
            }
            Mixer::GatedDelta(d) => Ok(Self::Recurrent(RecurrentState::of_delta(d))),
            Mixer::ShortConvolution(c) => Ok(Self::Recurrent(RecurrentState::of_convolution(c))),
        }
    }

    /// Forgets all tokens.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Attention(cache) => cache.clear(),
            Self::Recurrent(state) => state.clear(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Attention(cache) => cache.len(),
            Self::Recurrent(state) => state.len(),
        }
    }

    /// Whether the end can always be cut off.
    fn can_cut(&self) -> bool {
        match self {
            Self::Attention(_) => true,
            Self::Recurrent(_) => false,
        }
    }

    /// The fewest positions, but for none at all, that it can be cut back to.
    fn least(&self) -> usize {
        match self {
            Self::Attention(_) => 0,
            Self::Recurrent(state) => state.least(),
        }
    }

    /// Cuts back to `len` positions, at least [`Self::least`] and fewer than there are.
    fn cut(&mut self, ctx: Context<'_>, len: usize) {
        match self {
            Self::Attention(cache) => cache.truncate(len),
            Self::Recurrent(state) => state.cut(ctx, len),
        }
    }

    /// Lets the positions that follow be cut off.
    fn hold(&mut self) {
        match self {
            Self::Attention(_) => {}
            Self::Recurrent(state) => state.hold(),
        }
    }

    fn save(&self) -> SavedLayer {
        match self {
            Self::Attention(cache) => SavedLayer::Attention(cache.save()),
            Self::Recurrent(state) => SavedLayer::Recurrent(Arc::new(state.copy())),
        }
    }

    /// A copy of what [`Self::cut`] can't give back.
    fn mark(&self) -> SavedLayer {
        match self {
            Self::Attention(cache) => SavedLayer::Positions(cache.len()),
            Self::Recurrent(_) => self.save(),
        }
    }

    /// Goes back to what [`Self::mark`] saw.
    fn rewind(&mut self, mark: &SavedLayer) -> Result<(), Error> {
        match (self, mark) {
            (Self::Attention(cache), SavedLayer::Positions(len)) => {
                cache.truncate(*len);
                Ok(())
            }
            (state, mark) => state.restore(mark),
        }
    }

    /// Whether a copy is of such a layer, and of no more positions than there are where keys and values are not in it.
    fn fits(&self, saved: &SavedLayer, rewinds: bool) -> bool {
        match (self, saved) {
            (Self::Attention(_), SavedLayer::Attention(_)) => true,
            (Self::Attention(cache), SavedLayer::Positions(len)) => rewinds && cache.len() >= *len,
            (Self::Recurrent(state), SavedLayer::Recurrent(saved)) => state.fits(saved),
            _ => false,
        }
    }

    fn restore(&mut self, saved: &SavedLayer) -> Result<(), Error> {
        match (self, saved) {
            (Self::Attention(cache), SavedLayer::Attention(kv)) => Ok(cache.restore(kv)?),
            (Self::Recurrent(state), SavedLayer::Recurrent(saved)) => {
                state.restore(saved);
                Ok(())
            }
            _ => Err(Error::OtherState),
        }
    }

    /// Bytes reserved for it.
    fn bytes(&self) -> usize {
        match self {
            Self::Attention(cache) => cache.bytes(),
            Self::Recurrent(state) => state.bytes(),
        }
    }
}

/// What a session keeps: the state of every layer, all of one length.
#[derive(Debug)]
pub(super) struct State {
    pub(super) layers: Vec<LayerState>,
    /// Which of its frequencies each rotation has, which depends on the capacity.
    ropes: Vec<usize>,
}

impl State {
    /// The state before the first token, with room for `capacity` tokens.
    pub(super) fn new(description: &Description, kv_type: KvType, capacity: usize) -> Result<Self, Error> {
        let layer = |layer: &super::Layer| LayerState::new(&layer.mixer, kv_type, capacity);
        let layers = description.layers.iter().map(layer).collect::<Result<_, Error>>()?;
        Ok(Self { layers, ropes: description.rope_kinds(capacity) })
    }

    /// Tokens in it.
    pub(super) fn len(&self) -> usize {
        self.layers.first().map_or(0, LayerState::len)
    }

    /// Whether it can be cut back to any length.
    pub(super) fn can_cut(&self) -> bool {
        self.layers.iter().all(LayerState::can_cut)
    }

    /// Cuts back to `len` tokens; more than there are changes nothing.
    ///
    /// # Errors
    /// [`CannotCut`], and nothing is changed. Cutting to 0 always works.
    pub(super) fn cut(&mut self, ctx: Context<'_>, len: usize) -> Result<(), CannotCut> {
        if len == 0 {
            self.layers.iter_mut().for_each(LayerState::clear);
        } else if len < self.len() {
            if self.layers.iter().any(|layer| layer.least() > len) {
                return Err(CannotCut { len: self.len(), wanted: len });
            }
            self.layers.iter_mut().for_each(|layer| layer.cut(ctx, len));
        }
        Ok(())
    }

    /// Lets the tokens that follow be cut off, as many as a draft has.
    pub(super) fn hold(&mut self) {
        self.layers.iter_mut().for_each(LayerState::hold);
    }

    /// A copy.
    pub(super) fn save(&self) -> SavedState {
        let layers = self.layers.iter().map(LayerState::save).collect();
        SavedState { len: self.len(), layers, ropes: self.ropes.clone() }
    }

    /// Puts a copy in the place of the state.
    ///
    /// # Errors
    /// [`Error::OtherState`] for a copy of another kind of session, of a context so long that its keys were rotated by other
    /// frequencies, or of a mark; [`Error::Attention`] for one of other sizes.
    pub(super) fn restore(&mut self, saved: &SavedState) -> Result<(), Error> {
        self.require_fit(saved, false)?;
        self.layers.iter_mut().zip(&saved.layers).try_for_each(|(layer, saved)| layer.restore(saved))
    }

    /// A copy of what [`Self::cut`] can't give back.
    pub(super) fn mark(&self) -> SavedState {
        let layers = self.layers.iter().map(LayerState::mark).collect();
        SavedState { len: self.len(), layers, ropes: self.ropes.clone() }
    }

    /// Goes back to what [`Self::mark`] saw, as long as no position before its end has been changed since.
    ///
    /// # Errors
    /// As [`Self::restore`], and for fewer positions than there were.
    pub(super) fn rewind(&mut self, mark: &SavedState) -> Result<(), Error> {
        self.require_fit(mark, true)?;
        self.layers.iter_mut().zip(&mark.layers).try_for_each(|(layer, mark)| layer.rewind(mark))
    }

    /// Refuses a copy whose layers or rotations are others, before anything is changed.
    fn require_fit(&self, saved: &SavedState, rewinds: bool) -> Result<(), Error> {
        let mut layers = self.layers.iter().zip(&saved.layers);
        let fits = saved.layers.len() == self.layers.len()
            && saved.ropes == self.ropes
            && layers.all(|(layer, saved)| layer.fits(saved, rewinds));
        if fits { Ok(()) } else { Err(Error::OtherState) }
    }

    /// Bytes reserved for it.
    pub(super) fn bytes(&self) -> usize {
        self.layers.iter().map(LayerState::bytes).sum()
    }
}
