//! Many windows of tokens through a model together, a layer at a time: what calibration needs.
//!
//! A [`Visitor`] sees the inputs of every matrix, and may change the matrix once it has seen them all: what comes
//! after is then computed with the changed one, so that later layers are calibrated on the inputs that they will get.

use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::rms_norm;

use super::description::{Dense, Description, FeedForward, Layer, Linear, MatrixId, Norm, Scales};
use super::session::ActivationType;
use super::state::LayerState;
use super::step::{Buffers, Step, embed};
use super::weights::ModelWeights;
use super::{Compute, Error, Transformer};

/// Matrices that read the same inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What a layer's mixer reads: queries, keys and values of attention, and the gates of recurrent layers.
    MixerInput(usize),
    /// The mixer's output matrix.
    MixerOutput(usize),
    /// What a layer's feed-forward network reads: gate and up.
    FeedForwardInput(usize),
    /// Down of a layer's feed-forward network. Experts each have inputs of their own, which [`Layerwise`] does not tell apart.
    FeedForwardOutput(usize),
    /// The logits, from the last norm.
    Output,
}

impl Stage {
    /// All stages of a model, in order.
    pub fn all(description: &Description) -> impl Iterator<Item = Self> {
        let layer = |l| {
            [Self::MixerInput(l), Self::MixerOutput(l), Self::FeedForwardInput(l), Self::FeedForwardOutput(l)]
        };
        (0..description.layers.len()).flat_map(layer).chain([Self::Output])
    }

    /// Its matrices.
    pub fn matrices(self, description: &Description) -> Vec<MatrixId> {
        let mixer = |l: usize| &description.layers[l].mixer;
        let feed_forward = |l: usize, parts: fn(&Dense) -> Vec<Linear>| {
            let matrices = match &description.layers[l].feed_forward {
                FeedForward::Dense(d) => parts(d),
                FeedForward::Experts(e) => e.experts.iter().flat_map(parts).collect(),
            };
            matrices.into_iter().map(|linear| linear.matrix).collect()
        };
        match self {
            Self::MixerInput(l) => mixer(l).inputs().into_iter().map(|linear| linear.matrix).collect(),
            Self::MixerOutput(l) => vec![mixer(l).output().matrix],
            Self::FeedForwardInput(l) => feed_forward(l, |d| vec![d.gate, d.up]),
            Self::FeedForwardOutput(l) => feed_forward(l, |d| vec![d.down]),
            Self::Output => vec![description.output],
        }
    }

    /// The names of its tensors, each once: several matrices may be rows of one. The output matrix goes by the
    /// embedding's name where the two are tied.
    pub fn tensors(self, description: &Description) -> Vec<String> {
        let matrices = self.matrices(description).into_iter();
        let mut names: Vec<String> = matrices.map(|id| description.matrix(id).tensor.clone()).collect();
        names.dedup();
        names
    }
}

/// What sees the inputs of every matrix as the windows go through the model.
pub trait Visitor {
    /// What may go wrong, here or in the model.
    type Error: From<Error>;

    /// Takes in `rows` rows of inputs of the matrices of `stage`; called once for every window.
    ///
    /// # Errors
    /// Whatever ends the pass.
    fn inputs(&mut self, stage: Stage, x: &[f32], rows: usize) -> Result<(), Self::Error>;

    /// All inputs have been seen. Returns the tensors to go on with in place of [`Stage::tensors`], row-major; an empty
    /// one stands for no change.
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
pub struct Layerwise {
    model: Transformer,
    compute: Compute,
    windows: Vec<InFlight>,
}

impl Layerwise {
    /// `windows`, each from an empty context, before the first layer of `model`.
    ///
    /// # Errors
    /// [`Error::NoTokens`] for an empty window, [`Error::Token`], [`Error::Context`] for one longer than the
    /// model's context, and [`Error::Feature`] for a model with experts.
    pub fn new(model: &Transformer, compute: &Compute, windows: &[Vec<u32>]) -> Result<Self, Error> {
        let d = model.description();
        if d.layers.iter().any(Layer::has_experts) {
            let (key, got) = ("calibration".to_owned(), format!("{} with experts", d.architecture));
            return Err(Error::Feature { key, got, supported: "models without experts" });
        }
        let embedded = windows.iter().map(|ids| {
            if ids.is_empty() {
                return Err(Error::NoTokens);
            }
            if ids.len() > d.context {
                return Err(Error::Context { wanted: ids.len(), trained: d.context });
            }
            if let Some(&id) = ids.iter().find(|&&id| id as usize >= d.n_vocab) {
                return Err(Error::Token { id, n_vocab: d.n_vocab });
            }
            let mut x = vec![0.0; ids.len() * d.width];
            embed(compute.context(), &model.matrix(d.embedding), d.scales.embedding, ids, &mut x)?;
            Ok(InFlight { rows: ids.len(), x, inner: Vec::new() })
        });
        let windows = embedded.collect::<Result<_, _>>()?;
        Ok(Self { model: model.clone(), compute: compute.clone(), windows })
    }

    /// Takes the windows through all layers and the last norm.
    ///
    /// # Errors
    /// Those of `visitor`.
    ///
    /// # Panics
    /// If `visitor` changes a tensor to one of another size.
    pub fn run<V: Visitor>(self, visitor: &mut V) -> Result<(), V::Error> {
        let Self { model, compute, mut windows } = self;
        let d = model.description();
        let longest = windows.iter().map(|w| w.rows).max().unwrap_or(0);
        let mut ropes: Vec<_> = d.ropes.iter().map(|rope| rope.table(longest)).collect();
        ropes.iter_mut().for_each(|table| table.extend_to(longest));
        let mut b = Buffers::default();
        for (l, (layer, &params)) in d.layers.iter().zip(model.attention()).enumerate() {
            // A copy for each layer, so that changed matrices live no longer than their layer.
            let mut weights = model.weights().clone();
            let mut state = LayerState::new(&layer.mixer, KvType::F32, longest.max(1))?;
            let stage = Stage::MixerInput(l);
            for window in &windows {
                normed(&compute, &weights, layer.mixer_norm, &window.x, &mut b.h)?;
                visitor.inputs(stage, &b.h, window.rows)?;
            }
            replace(&mut weights, stage, d, visitor.finish(stage)?);

            let stage = Stage::MixerOutput(l);
            for window in &mut windows {
                let step = step(&compute, &weights, d.scales, window.rows);
                b.x.clone_from(&window.x);
                state.clear();
                step.project(layer, &mut b)?;
                step.mix(layer, params, &ropes, &mut state, 0..window.rows, &mut b)?;
                window.inner.clone_from(&b.attended);
                visitor.inputs(stage, &window.inner, window.rows)?;
            }
            replace(&mut weights, stage, d, visitor.finish(stage)?);

            let stage = Stage::FeedForwardInput(l);
            for window in &mut windows {
                let step = step(&compute, &weights, d.scales, window.rows);
                std::mem::swap(&mut b.x, &mut window.x);
                std::mem::swap(&mut b.attended, &mut window.inner);
                step.add_mixed(layer, &mut b)?;
                std::mem::swap(&mut b.x, &mut window.x);
                normed(&compute, &weights, layer.feed_forward_norm, &window.x, &mut b.h)?;
                visitor.inputs(stage, &b.h, window.rows)?;
            }
            replace(&mut weights, stage, d, visitor.finish(stage)?);

            let stage = Stage::FeedForwardOutput(l);
            for window in &mut windows {
                b.x.clone_from(&window.x);
                step(&compute, &weights, d.scales, window.rows).hidden(layer, &mut b)?;
                window.inner.clone_from(&b.hidden);
                visitor.inputs(stage, &window.inner, window.rows)?;
            }
            replace(&mut weights, stage, d, visitor.finish(stage)?);

            for window in &mut windows {
                std::mem::swap(&mut b.x, &mut window.x);
                std::mem::swap(&mut b.hidden, &mut window.inner);
                step(&compute, &weights, d.scales, window.rows).add_hidden(layer, &mut b)?;
                std::mem::swap(&mut b.x, &mut window.x);
            }
        }
        for window in &windows {
            normed(&compute, model.weights(), Some(d.norm), &window.x, &mut b.h)?;
            visitor.inputs(Stage::Output, &b.h, window.rows)?;
        }
        visitor.finish(Stage::Output)?;
        Ok(())
    }
}

/// The forward pass of `rows` rows with f32 activations.
fn step<'a>(compute: &'a Compute, weights: &'a ModelWeights, scales: Scales, rows: usize) -> Step<'a> {
    Step { ctx: compute.context(), weights, activations: ActivationType::F32, scales, rows, shares: None }
}

/// `x` after `norm`, or as it is where there is none.
fn normed(
    compute: &Compute,
    weights: &ModelWeights,
    norm: Option<Norm>,
    x: &[f32],
    h: &mut Vec<f32>,
) -> Result<(), Error> {
    h.resize(x.len(), 0.0);
    match norm {
        Some(Norm { weight, eps }) => Ok(rms_norm(compute.context(), x, weights.vector(weight), eps, h)?),
        None => {
            h.copy_from_slice(x);
            Ok(())
        }
    }
}

/// Puts `changed` in the place of a stage's tensors, as far as there are any.
fn replace(weights: &mut ModelWeights, stage: Stage, description: &Description, changed: Vec<Vec<f32>>) {
    let tensors = stage.tensors(description);
    for id in stage.matrices(description) {
        let info = description.matrix(id);
        let values =
            tensors.iter().zip(&changed).find(|(name, _)| **name == info.tensor).map(|(_, values)| values);
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            let count = info.tensor_rows * info.cols;
            assert_eq!(values.len(), count, "the weights of {}", info.tensor);
            weights.replace(id, values[info.rows.start * info.cols..info.rows.end * info.cols].to_vec());
        }
    }
}
