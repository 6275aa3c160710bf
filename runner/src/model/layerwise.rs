//! Many windows of tokens through a model together, a layer at a time: what calibration needs.
//!
//! A [`Visitor`] sees the inputs of every matrix, and may change the matrix once it has seen them all: what comes
//! after is then computed with the changed one, so that later layers are calibrated on the inputs that they will get.

use super::session::ActivationType;
use super::step::{Buffers, Step, attention_params, embed};
use super::weights::{LayerWeights, Weight};
use super::{Error, Model};
use halfbyte_attention::{KvCache, KvType};
use halfbyte_cpu_kernels::{Context, Matrix, Weights, rms_norm};

/// Matrices that read the same inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Queries, keys and values of a layer, from its first norm.
    Qkv(usize),
    /// The output matrix of a layer's attention.
    AttentionOutput(usize),
    /// Gate and up of a layer's feed-forward network, from its second norm.
    GateUp(usize),
    /// Down of a layer's feed-forward network.
    Down(usize),
    /// The logits, from the last norm.
    Output,
}

impl Stage {
    /// The names of its tensors. The output matrix goes by the embedding's name where the two are `tied`.
    pub fn tensors(self, tied: bool) -> Vec<String> {
        let in_layer =
            |layer, parts: &[&str]| parts.iter().map(|part| format!("blk.{layer}.{part}.weight")).collect();
        match self {
            Self::Qkv(layer) => in_layer(layer, &["attn_q", "attn_k", "attn_v"]),
            Self::AttentionOutput(layer) => in_layer(layer, &["attn_output"]),
            Self::GateUp(layer) => in_layer(layer, &["ffn_gate", "ffn_up"]),
            Self::Down(layer) => in_layer(layer, &["ffn_down"]),
            Self::Output if tied => vec!["token_embd.weight".to_owned()],
            Self::Output => vec!["output.weight".to_owned()],
        }
    }
}

/// Who watches the windows go through.
pub trait Visitor {
    /// What may go wrong, here or in the model.
    type Error: From<Error>;

    /// Takes in `rows` rows of inputs of the matrices of `stage`; called once for every window.
    ///
    /// # Errors
    /// Whatever ends the pass.
    fn inputs(&mut self, stage: Stage, x: &[f32], rows: usize) -> Result<(), Self::Error>;

    /// All inputs have been seen. Returns the matrices to go on with in place of [`Stage::tensors`], row-major; an
    /// empty one stands for no change.
    ///
    /// # Errors
    /// Whatever ends the pass.
    fn finish(&mut self, stage: Stage) -> Result<Vec<Vec<f32>>, Self::Error> {
        let _ = stage;
        Ok(Vec::new())
    }
}

/// One window between two stages.
#[derive(Debug)]
struct InFlight {
    rows: usize,
    /// The residual stream.
    x: Vec<f32>,
    /// What the next stage's matrices read, where it is not a norm of `x`.
    inner: Vec<f32>,
}

/// Windows of tokens before a layer.
///
/// Activations are f32 throughout. Memory: for every token, 4 bytes for each of the model's width and its
/// feed-forward width (or that of its queries if it is more).
#[derive(Debug)]
pub struct Layerwise<'m> {
    model: &'m Model<'m>,
    ctx: Context<'m>,
    windows: Vec<InFlight>,
}

impl<'m> Layerwise<'m> {
    /// `windows`, each from an empty context, before the first layer of `model`.
    ///
    /// # Errors
    /// [`Error::NoTokens`] for an empty window, [`Error::Token`], and [`Error::Context`] for one longer than the
    /// model's context.
    pub fn new(model: &'m Model<'m>, ctx: Context<'m>, windows: &[Vec<u32>]) -> Result<Self, Error> {
        let c = model.config();
        let embedded = windows.iter().map(|ids| {
            if ids.is_empty() {
                return Err(Error::NoTokens);
            }
            if ids.len() > c.context {
                return Err(Error::Context { wanted: ids.len(), trained: c.context });
            }
            if let Some(&id) = ids.iter().find(|&&id| id as usize >= c.n_vocab) {
                return Err(Error::Token { id, n_vocab: c.n_vocab });
            }
            let mut x = vec![0.0; ids.len() * c.width];
            embed(ctx, &model.weights.embedding.matrix(), ids, &mut x)?;
            Ok(InFlight { rows: ids.len(), x, inner: Vec::new() })
        });
        let windows = embedded.collect::<Result<_, _>>()?;
        Ok(Self { model, ctx, windows })
    }

    /// The stages of the model, in order.
    pub fn stages(model: &Model<'_>) -> impl Iterator<Item = Stage> {
        let layers = 0..model.config().n_layers;
        let layer = |l| [Stage::Qkv(l), Stage::AttentionOutput(l), Stage::GateUp(l), Stage::Down(l)];
        layers.flat_map(layer).chain([Stage::Output])
    }

    /// Takes the windows through all layers and the last norm.
    ///
    /// # Errors
    /// Those of `visitor`.
    ///
    /// # Panics
    /// If `visitor` changes a matrix to one of another size.
    pub fn run<V: Visitor>(mut self, visitor: &mut V) -> Result<(), V::Error> {
        let (ctx, config) = (self.ctx, self.model.config());
        let norm = |x: &[f32], weight: &[f32], h: &mut Vec<f32>| {
            h.resize(x.len(), 0.0);
            rms_norm(ctx, x, weight, config.norm_eps, h).map_err(Error::from)
        };
        let longest = self.windows.iter().map(|w| w.rows).max().unwrap_or(0);
        let mut rope = config.rope_table();
        rope.extend_to(longest);
        let params = attention_params(config)?;
        let mut cache = KvCache::new(KvType::F32, config.n_kv_heads, config.head_dim, longest.max(1))
            .map_err(Error::from)?;
        let step = Step { ctx, config, activations: ActivationType::F32, params, rows: 0, shares: None };
        let mut b = Buffers::default();
        for (l, layer) in self.model.weights.layers.iter().enumerate() {
            // With a shorter lifetime, for matrices that live as long as this layer.
            let mut layer: LayerWeights<'_> = layer.clone();

            for window in &self.windows {
                norm(&window.x, &layer.attention_norm, &mut b.h)?;
                visitor.inputs(Stage::Qkv(l), &b.h, window.rows)?;
            }
            let changed = visitor.finish(Stage::Qkv(l))?;
            let linears = [&mut layer.q, &mut layer.k, &mut layer.v];
            replace(linears.map(|linear| &mut linear.weight), &changed);

            for window in &mut self.windows {
                b.x.clone_from(&window.x);
                cache.truncate(0);
                let step = Step { rows: window.rows, ..step };
                step.project(&layer, &mut b)?;
                step.attend(&rope, &mut cache, 0..window.rows, &mut b)?;
                window.inner.clone_from(&b.attended);
                visitor.inputs(Stage::AttentionOutput(l), &window.inner, window.rows)?;
            }
            let changed = visitor.finish(Stage::AttentionOutput(l))?;
            replace([&mut layer.attention_output], &changed);

            for window in &mut self.windows {
                std::mem::swap(&mut b.x, &mut window.x);
                std::mem::swap(&mut b.attended, &mut window.inner);
                b.h.resize(b.x.len(), 0.0);
                Step { rows: window.rows, ..step }.add_attended(&layer, &mut b)?;
                std::mem::swap(&mut b.x, &mut window.x);
                norm(&window.x, &layer.feed_forward_norm, &mut b.h)?;
                visitor.inputs(Stage::GateUp(l), &b.h, window.rows)?;
            }
            let changed = visitor.finish(Stage::GateUp(l))?;
            replace([&mut layer.gate, &mut layer.up], &changed);

            for window in &mut self.windows {
                b.x.clone_from(&window.x);
                Step { rows: window.rows, ..step }.hidden(&layer, &mut b)?;
                window.inner.clone_from(&b.hidden);
                visitor.inputs(Stage::Down(l), &window.inner, window.rows)?;
            }
            let changed = visitor.finish(Stage::Down(l))?;
            replace([&mut layer.down], &changed);

            for window in &mut self.windows {
                std::mem::swap(&mut b.x, &mut window.x);
                std::mem::swap(&mut b.hidden, &mut window.inner);
                b.h.resize(b.x.len(), 0.0);
                Step { rows: window.rows, ..step }.add_hidden(&layer, &mut b)?;
                std::mem::swap(&mut b.x, &mut window.x);
            }
        }
        for window in &self.windows {
            norm(&window.x, &self.model.weights.norm, &mut b.h)?;
            visitor.inputs(Stage::Output, &b.h, window.rows)?;
        }
        visitor.finish(Stage::Output)?;
        Ok(())
    }
}

/// Puts `changed` in the place of matrices, as far as there are any.
fn replace<'a, const N: usize>(weights: [&mut Weight<'a>; N], changed: &'a [Vec<f32>]) {
    for (weight, changed) in weights.into_iter().zip(changed) {
        if !changed.is_empty() {
            let (rows, cols) = (weight.matrix().rows(), weight.matrix().cols());
            let matrix = Matrix::new(Weights::F32(changed), rows, cols)
                .unwrap_or_else(|e| panic!("a changed matrix of {rows} x {cols} has another size: {e}"));
            *weight = Weight::InPlace(matrix);
        }
    }
}
