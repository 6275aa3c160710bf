//! A model's description with its weights.

use std::sync::Arc;

use halfbyte_attention::AttentionParams;
use halfbyte_cpu_kernels::Matrix;

use super::description::{Description, MatrixId, Mixer};
use super::weights::ModelWeights;
use super::{Compute, Error};
use crate::architectures;
use crate::source::ModelFile;

/// A model: what it computes, and its weights where they lie in an open file or packed for the kernels. A clone shares
/// them.
#[derive(Clone, Debug)]
pub struct Transformer(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    description: Description,
    weights: ModelWeights,
    /// What the attention kernels take, for each layer with attention.
    attention: Vec<Option<AttentionParams>>,
}

impl Transformer {
    /// The model in `file`, every tensor found and checked. No weight is copied but norms and biases, until
    /// [`Self::pack`].
    ///
    /// # Errors
    /// An architecture or a feature that there is no code for; a hyperparameter that is missing or makes no sense; a
    /// tensor that is missing, superfluous, of the wrong shape or of an unsupported type, by its name.
    pub fn new(file: impl Into<Arc<ModelFile>>) -> Result<Self, Error> {
        let file = file.into();
        let description = architectures::describe(&**file)?;
        Self::with_description(file, description)
    }

    /// The model that `description` makes of the tensors in `file`: for layers that no architecture has.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_description(
        file: impl Into<Arc<ModelFile>>,
        description: Description,
    ) -> Result<Self, Error> {
        let weights = ModelWeights::new(file.into(), &description)?;
        let params = |layer: &super::Layer| match &layer.mixer {
            Mixer::Attention(attention) => attention.params().map(Some),
            Mixer::GatedDelta(_) | Mixer::ShortConvolution(_) => Ok(None),
        };
        let attention = description.layers.iter().map(params).collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Inner { description, weights, attention })))
    }

    /// Copies the matrices that the kernels have a packed form of into huge pages where the system has them, in the order
    /// in which the kernels read them: prompts and replies are computed faster, with the same bits. It takes as much
    /// memory as those matrices have bytes in the file, whose pages are given back to the system; other programs that map
    /// the file no longer share them with this one.
    ///
    /// # Errors
    /// None for a model that could be made.
    pub fn pack(self, compute: &Compute) -> Result<Self, Error> {
        self.pack_at_most(compute, None)
    }

    /// The same, but experts stay in the mapped file if the model's matrices have more bytes than `memory`, together: a
    /// model with experts reads few of them for a token, and what it does not read takes no memory there.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub fn pack_within(self, compute: &Compute, memory: u64) -> Result<Self, Error> {
        self.pack_at_most(compute, Some(memory))
    }

    fn pack_at_most(self, compute: &Compute, most: Option<u64>) -> Result<Self, Error> {
        let mut inner = Arc::unwrap_or_clone(self.0);
        inner.weights.pack(compute, &inner.description, most)?;
        Ok(Self(Arc::new(inner)))
    }

    /// The layers and constants.
    pub fn description(&self) -> &Description {
        &self.0.description
    }

    /// The file that the weights are from.
    pub fn file(&self) -> &Arc<ModelFile> {
        self.0.weights.file()
    }

    /// Bytes of weights that each decoded token reads.
    pub fn bytes_per_token(&self) -> usize {
        self.products().map(|m| m.bytes()).sum()
    }

    /// Weights in all matrices that a token is multiplied by.
    pub fn weights_per_token(&self) -> usize {
        self.products().map(|m| m.rows() * m.cols()).sum()
    }

    /// Matrices that int8 activations are multiplied by when asked for, and the number of all matrices, of the chosen
    /// experts alone; the rest always takes f32 activations.
    pub fn int8_matrices(&self) -> (usize, usize) {
        (self.products().filter(|m| m.supports_int8()).count(), self.products().count())
    }

    /// As many matrices as a token is multiplied by.
    fn products(&self) -> impl Iterator<Item = Matrix<'_>> {
        self.description().products_of_a_token().map(|id| self.matrix(id))
    }

    /// A matrix of the description.
    pub(crate) fn matrix(&self, id: MatrixId) -> Matrix<'_> {
        self.0.weights.matrix(id)
    }

    pub(crate) fn weights(&self) -> &ModelWeights {
        &self.0.weights
    }

    /// What the attention kernels take, for each layer with attention.
    pub(crate) fn attention(&self) -> &[Option<AttentionParams>] {
        &self.0.attention
    }

    /// Whether both are one model.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
