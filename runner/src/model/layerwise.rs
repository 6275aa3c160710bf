//! Many windows of tokens through a model together, a layer at a time: what calibration needs.
//!
//! A [`Visitor`] sees the inputs of every matrix, and may change the matrix once it has seen them all: what comes
//! after is then computed with the changed one, so that later layers are calibrated on the inputs that they will get.

use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::rms_norm;

use super::description::{Dense, Description, FeedForward, MatrixId, Norm, Scales};
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
    /// What a layer's feed-forward network, or its shared expert, reads: gate and up.
    FeedForwardInput(usize),
    /// Down of a layer's feed-forward network, or of its shared expert.
    FeedForwardOutput(usize),
    /// What an expert of a layer reads, given that positions go through it: gate and up.
    ExpertInput(usize, usize),
    /// Down of an expert of a layer.
    ExpertOutput(usize, usize),
    /// The logits, from the last norm.
    Output,
}

impl Stage {
    /// All stages of a model, in order.
    pub fn all(description: &Description) -> impl Iterator<Item = Self> {
        let layer = |l: usize| {
            let experts = match &description.layers[l].feed_forward {
                FeedForward::Dense(_) => 0,
                FeedForward::Experts(e) => e.experts.len(),
            };
            let all = [
                Self::MixerInput(l),
                Self::MixerOutput(l),
                Self::FeedForwardInput(l),
                Self::FeedForwardOutput(l),
            ];
            let experts = (0..experts).flat_map(move |e| [Self::ExpertInput(l, e), Self::ExpertOutput(l, e)]);
            all.into_iter().chain(experts)
        };
        (0..description.layers.len()).flat_map(layer).chain([Self::Output])
    }

    /// Its matrices.
    pub fn matrices(self, description: &Description) -> Vec<MatrixId> {
        let mixer = |l: usize| &description.layers[l].mixer;
        let inputs = |dense: Option<&Dense>| dense.map_or(Vec::new(), |d| vec![d.gate.matrix, d.up.matrix]);
        let output = |dense: Option<&Dense>| dense.map_or(Vec::new(), |d| vec![d.down.matrix]);
        let feed_forward = |l: usize| match &description.layers[l].feed_forward {
            FeedForward::Dense(d) => Some(d),
            FeedForward::Experts(e) => e.shared.as_ref().map(|shared| &shared.dense),
        };
        let expert = |l: usize, i: usize| match &description.layers[l].feed_forward {
            FeedForward::Dense(_) => None,
            FeedForward::Experts(e) => e.experts.get(i),
        };
        match self {
            Self::MixerInput(l) => mixer(l).inputs().into_iter().map(|linear| linear.matrix).collect(),
            Self::MixerOutput(l) => vec![mixer(l).output().matrix],
            Self::FeedForwardInput(l) => inputs(feed_forward(l)),
            Self::FeedForwardOutput(l) => output(feed_forward(l)),
            Self::ExpertInput(l, e) => inputs(expert(l, e)),
            Self::ExpertOutput(l, e) => output(expert(l, e)),
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

    /// Takes in `rows` rows of inputs of the matrices of `stage`; called once for every window, for experts once for every
    /// window that has positions that go through them.
    ///
    /// # Errors
    /// Whatever ends the pass.
    fn inputs(&mut self, stage: Stage, x: &[f32], rows: usize) -> Result<(), Self::Error>;

    /// All inputs have been seen. Returns the tensors to go on with in place of [`Stage::tensors`], row-major; an empty
    /// one stands for no change. Not called for experts, shared ones included, which can't be changed.
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
    /// [`Error::NoTokens`] for an empty window, [`Error::Token`], and [`Error::Context`] for one longer than the
    /// model's context.
    pub fn new(model: &Transformer, compute: &Compute, windows: &[Vec<u32>]) -> Result<Self, Error> {
        let d = model.description();
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
            if layer.has_experts() {
                for window in &mut windows {
                    let step = step(&compute, &weights, d.scales, window.rows);
                    std::mem::swap(&mut b.x, &mut window.x);
                    step.hidden(layer, &mut b)?;
                    show_experts(l, window.rows, &b, visitor)?;
                    step.add_hidden(layer, &mut b)?;
                    std::mem::swap(&mut b.x, &mut window.x);
                }
                continue;
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

/// Shows the inputs of a layer's experts to `visitor`; `b` is as [`Step::hidden`] leaves it.
fn show_experts<V: Visitor>(l: usize, rows: usize, b: &Buffers, visitor: &mut V) -> Result<(), V::Error> {
    if let Some(hidden) = b.routing.shared_hidden() {
        visitor.inputs(Stage::FeedForwardOutput(l), hidden, rows)?;
    }
    let (width, hidden) = (b.h.len() / rows, b.hidden.len() / b.routing.len());
    let mut x = Vec::new();
    for (expert, own, range) in b.routing.groups() {
        x.clear();
        own.iter().for_each(|row| x.extend_from_slice(&b.h[row * width..][..width]));
        visitor.inputs(Stage::ExpertInput(l, expert), &x, own.len())?;
        let inner = &b.hidden[range.start * hidden..range.end * hidden];
        visitor.inputs(Stage::ExpertOutput(l, expert), inner, own.len())?;
    }
    Ok(())
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
