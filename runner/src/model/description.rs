//! What a model is, as data: its layers in order, what each computes, and where its weights are.
//!
//! ```text
//! embedding rows of the tokens * embedding scale -> x
//! each layer:  x += residual scale * after_mixer(mixer(mixer_norm(x)))
//!              x += residual scale * after_feed_forward(feed_forward(feed_forward_norm(x)))
//! logits = soft cap of (logit scale * output * norm(x))
//! ```
//!
//! An [architecture](crate::architectures) makes a [`Description`] from a file's metadata and tensor names. The forward
//! pass of the CPU, calibration, ranks and CUDA read it, and nothing else, to know what to compute. What one of them
//! has no code for it refuses by name before it starts.

use std::num::NonZero;
use std::ops::Range;

use halfbyte_attention::AttentionParams;
pub use halfbyte_cpu_kernels::Activation;
use halfbyte_cpu_kernels::DeltaShape;

use super::{Error, Rope};

/// A model's layers and constants, and the list of the tensors that they use.
#[derive(Clone, Debug)]
pub struct Description {
    /// GGUF's name of the architecture.
    pub architecture: &'static str,
    /// Positions that the model is trained for.
    pub context: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Tokens in the vocabulary.
    pub n_vocab: usize,
    /// The matrix of embeddings, a row a token.
    pub embedding: MatrixId,
    /// The constants that numbers are multiplied by on their way.
    pub scales: Scales,
    /// The layers, in order.
    pub layers: Vec<Layer>,
    /// The norm before the logits.
    pub norm: Norm,
    /// The matrix of the logits: [`Self::embedding`] where the two are tied.
    pub output: MatrixId,
    /// The rotations that layers name.
    pub ropes: Vec<Rope>,
    /// The matrices that layers name.
    pub matrices: Vec<MatrixInfo>,
    /// The vectors that layers name.
    pub vectors: Vec<VectorInfo>,
    /// Tensors that a file may have and that nothing here computes with, such as a block that makes drafts.
    pub unused: Vec<String>,
}

/// Constants of a model that numbers are multiplied by on their way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// What rows of the embedding matrix are multiplied by.
    pub embedding: f32,
    /// What the output of each half of a layer is multiplied by before it is added to the residual stream.
    pub residual: f32,
    /// What logits are multiplied by.
    pub logits: f32,
    /// The bound `c` of `c * tanh(logit / c)`, after the logits' factor.
    pub logit_cap: Option<f32>,
}

impl Default for Scales {
    fn default() -> Self {
        Self { embedding: 1.0, residual: 1.0, logits: 1.0, logit_cap: None }
    }
}

/// A matrix of a [`Description`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatrixId(pub usize);

/// A vector of a [`Description`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VectorId(pub usize);

/// The rotations of a [`Description`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeId(pub usize);

/// Where a matrix is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixInfo {
    /// The tensor's name, as GGUF files have it.
    pub tensor: String,
    /// Rows of the whole tensor.
    pub tensor_rows: usize,
    /// Those that make the matrix: its outputs.
    pub rows: Range<usize>,
    /// Its inputs.
    pub cols: usize,
}

/// Where a vector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorInfo {
    /// The tensor's name, as GGUF files have it.
    pub tensor: String,
    /// Elements of the whole tensor.
    pub tensor_len: usize,
    /// Elements of a row, if the tensor has two dimensions. The vector then has its columns one after the other.
    pub row_len: Option<usize>,
    /// Those that make the vector.
    pub range: Range<usize>,
}

/// One layer.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The norm of what the mixer reads.
    pub mixer_norm: Option<Norm>,
    /// What mixes the positions.
    pub mixer: Mixer,
    /// The norm of what the mixer adds to the residual stream.
    pub after_mixer: Option<Norm>,
    /// The norm of what the feed-forward network reads.
    pub feed_forward_norm: Option<Norm>,
    /// What each position goes through by itself.
    pub feed_forward: FeedForward,
    /// The norm of what the feed-forward network adds to the residual stream.
    pub after_feed_forward: Option<Norm>,
}

/// What mixes the positions of a layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Mixer {
    /// Attention over the keys and values of all positions so far.
    Attention(Attention),
    /// The gated delta rule, which keeps a matrix a head whatever the number of positions.
    GatedDelta(GatedDelta),
    /// A gated convolution over the last few positions.
    ShortConvolution(ShortConvolution),
}

impl Mixer {
    /// The matrices that read the layer's input.
    pub fn inputs(&self) -> Vec<Linear> {
        match self {
            Self::Attention(a) => vec![a.q, a.k, a.v],
            Self::GatedDelta(d) => d.inputs().to_vec(),
            Self::ShortConvolution(c) => c.inputs().to_vec(),
        }
    }

    /// The matrix back to the residual stream.
    pub fn output(&self) -> Linear {
        match self {
            Self::Attention(a) => a.output,
            Self::GatedDelta(d) => d.output,
            Self::ShortConvolution(c) => c.output,
        }
    }
}

/// What each position of a layer goes through by itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FeedForward {
    /// `down * (activation(gate * x) * (up * x))`.
    Dense(Dense),
    /// The weighted sum of what a few networks give, which are chosen for each position.
    Experts(Experts),
}

/// Attention of a layer.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; each serves `n_heads / n_kv_heads` query heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Queries; where they are gated, each head's query with its gate behind it.
    pub q: Linear,
    /// Keys.
    pub k: Linear,
    /// Values.
    pub v: Linear,
    /// Back to the residual stream.
    pub output: Linear,
    /// Norms of the queries and of the keys: over each head where their weights are as long as a head, over all heads
    /// together where they are as long as those.
    pub head_norms: Option<[Norm; 2]>,
    /// How queries and keys are rotated; `None` for a layer without positions.
    pub rope: Option<RopeId>,
    /// Positions that a query sees, its own included; `None` for all.
    pub window: Option<NonZero<usize>>,
    /// What scores are multiplied by.
    pub scale: f32,
    /// The bound `c` of `c * tanh(score / c)`.
    pub soft_cap: Option<f32>,
    /// One logit a head that takes part in the softmax and adds nothing.
    pub sinks: Option<VectorId>,
    /// How scores grow with a query's position.
    pub temperature: Option<Temperature>,
    /// Whether what was found is multiplied by `sigmoid(gate)`, with gates that [`Self::q`] makes.
    pub gated: bool,
}

/// A factor of the scores of each query that grows with its position `p`: `1 + scale * ln(1 + floor(p / length))`.
///
/// Source: `get_llama_4_attn_scale` of transformers' Ministral 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// How strongly the factor grows.
    pub scale: f32,
    /// Positions without growth, and between two steps of it.
    pub length: NonZero<usize>,
}

impl Temperature {
    /// The factor at a position: computed in f64, rounded once.
    pub fn factor(self, position: usize) -> f32 {
        let steps = (position / self.length) as f64;
        (1.0 + f64::from(self.scale) * steps.ln_1p()) as f32
    }
}

/// The gated delta rule of a layer: a causal convolution over queries, keys and values, a state that each position
/// decays and corrects, and a norm of what is read from it, times `silu` of a gate.
#[derive(Clone, Debug)]
pub struct GatedDelta {
    /// The heads.
    pub shape: DeltaShape,
    /// Queries, keys and values, in this order.
    pub qkv: Linear,
    /// What the output is gated by.
    pub gate: Linear,
    /// How much of a value is written, before the sigmoid: one number a value head.
    pub beta: Linear,
    /// How much of the state stays, before [`Self::bias`], softplus and [`Self::rate`]: one number a value head.
    pub decay: Linear,
    /// The convolution: for each tap, from the oldest row on, one weight for each output of [`Self::qkv`].
    pub convolution: VectorId,
    /// The convolution's taps.
    pub taps: usize,
    /// What softplus is multiplied by to give the logarithm of the decay: negative, one number a value head.
    pub rate: VectorId,
    /// What is added before softplus, one number a value head.
    pub bias: VectorId,
    /// What is added to the sum of the squares of a key, or query, before it is given the length 1.
    pub key_eps: f32,
    /// The norm of each head's output.
    pub norm: Norm,
    /// Back to the residual stream.
    pub output: Linear,
}

impl GatedDelta {
    /// The matrices that read the layer's input.
    pub fn inputs(&self) -> [Linear; 4] {
        [self.qkv, self.gate, self.beta, self.decay]
    }

    /// Bytes of the state of a sequence.
    pub fn state_bytes(&self) -> usize {
        size_of::<f32>() * (self.shape.state_len() + (self.taps - 1) * self.shape.row())
    }
}

/// A short convolution of a layer: `output * (c . convolution(b . x))`, where `b`, `c` and `x` are products of the layer's
/// input, `.` multiplies element by element, and the convolution is causal and takes each channel by itself.
///
/// Source: `Lfm2ShortConv` of transformers.
#[derive(Clone, Debug)]
pub struct ShortConvolution {
    /// Channels: rows of the three matrices that follow.
    pub channels: usize,
    /// What the convolution's input is multiplied by.
    pub input_gate: Linear,
    /// What the convolution's output is multiplied by.
    pub output_gate: Linear,
    /// The convolution's input.
    pub values: Linear,
    /// The convolution: for each tap, from the oldest row on, one weight a channel.
    pub convolution: VectorId,
    /// The convolution's taps.
    pub taps: usize,
    /// What is added to the convolution's output, one number a channel.
    pub bias: Option<VectorId>,
    /// Back to the residual stream.
    pub output: Linear,
}

impl ShortConvolution {
    /// The matrices that read the layer's input.
    pub fn inputs(&self) -> [Linear; 3] {
        [self.input_gate, self.output_gate, self.values]
    }

    /// Bytes of the state of a sequence.
    pub fn state_bytes(&self) -> usize {
        size_of::<f32>() * (self.taps - 1) * self.channels
    }
}

/// A gated feed-forward network.
#[derive(Clone, Debug)]
pub struct Dense {
    /// What goes through the activation.
    pub gate: Linear,
    /// What it is multiplied by.
    pub up: Linear,
    /// Back to the residual stream.
    pub down: Linear,
    /// The activation.
    pub activation: Activation,
    /// Width of the hidden layer.
    pub width: usize,
}

/// A mixture of experts: `sum over the chosen e of share_e * experts[e](x)`, and the shared expert.
#[derive(Clone, Debug)]
pub struct Experts {
    /// A logit for each expert.
    pub router: Linear,
    /// The experts, all of the same sizes.
    pub experts: Vec<Dense>,
    /// How many of them a position goes through: those with the largest scores, and of equal ones the first.
    pub chosen: usize,
    /// How scores and shares come from the logits.
    pub gating: Gating,
    /// A network that every position goes through.
    pub shared: Option<SharedExpert>,
}

/// How the scores that experts are chosen by and the shares of the chosen ones come from the router's logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gating {
    /// Scores are the logits, and shares the softmax over all experts: those of the chosen ones add up to less than 1.
    Softmax,
    /// Scores are the logits, and shares the softmax over the chosen experts. It equals the softmax over all of them, divided
    /// by the sum of the chosen.
    SoftmaxOfChosen,
    /// Scores are the sigmoids of the logits, each with its number of `bias` added. Shares are the sigmoids themselves,
    /// without the bias.
    Sigmoid {
        /// Whether shares are divided by the sum of the chosen ones, plus `1e-6`.
        normalised: bool,
        /// One number an expert.
        bias: Option<VectorId>,
    },
}

/// An expert that every position goes through.
#[derive(Clone, Debug)]
pub struct SharedExpert {
    /// The network.
    pub dense: Dense,
    /// A vector whose product with `x`, through a sigmoid, is what the network's output is multiplied by.
    pub gate: Option<VectorId>,
}

/// A matrix and perhaps a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// The matrix.
    pub matrix: MatrixId,
    /// What is added to its outputs.
    pub bias: Option<VectorId>,
}

/// A root-mean-square norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// What the normalised numbers are multiplied by.
    pub weight: VectorId,
    /// What is added to the mean square.
    pub eps: f32,
}

impl Attention {
    /// Width of all query heads together.
    pub fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of all key (or value) heads together.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// What the kernels take.
    ///
    /// # Errors
    /// [`Error::Attention`] for heads, a window or a bound that make no sense.
    pub fn params(&self) -> Result<AttentionParams, Error> {
        let params = AttentionParams::new(self.n_heads, self.n_kv_heads, self.head_dim, self.scale)?;
        Ok(params.with_window(self.window).with_soft_cap(self.soft_cap)?)
    }
}

impl Description {
    /// A model without layers, whose embedding and output are the matrix `token_embd.weight`, and whose last norm and
    /// context are still to be set.
    pub fn new(architecture: &'static str, width: usize, n_vocab: usize) -> Self {
        let mut new = Self {
            architecture,
            context: 0,
            width,
            n_vocab,
            embedding: MatrixId(0),
            scales: Scales::default(),
            layers: Vec::new(),
            norm: Norm { weight: VectorId(0), eps: 0.0 },
            output: MatrixId(0),
            ropes: Vec::new(),
            matrices: Vec::new(),
            vectors: Vec::new(),
            unused: Vec::new(),
        };
        new.add_matrix("token_embd.weight", n_vocab, width);
        new
    }

    /// Whether logits are made with the embedding matrix.
    pub fn is_tied(&self) -> bool {
        self.embedding == self.output
    }

    /// A matrix's place.
    pub fn matrix(&self, id: MatrixId) -> &MatrixInfo {
        &self.matrices[id.0]
    }

    /// Adds a matrix of a whole tensor to the list.
    pub fn add_matrix(&mut self, tensor: impl Into<String>, rows: usize, cols: usize) -> MatrixId {
        self.matrices.push(MatrixInfo { tensor: tensor.into(), tensor_rows: rows, rows: 0..rows, cols });
        MatrixId(self.matrices.len() - 1)
    }

    /// Adds a matrix of some rows of a tensor to the list.
    pub fn add_rows(
        &mut self,
        tensor: impl Into<String>,
        tensor_rows: usize,
        rows: Range<usize>,
        cols: usize,
    ) -> MatrixId {
        self.matrices.push(MatrixInfo { tensor: tensor.into(), tensor_rows, rows, cols });
        MatrixId(self.matrices.len() - 1)
    }

    /// Adds a vector of a whole tensor to the list.
    pub fn add_vector(&mut self, tensor: impl Into<String>, len: usize) -> VectorId {
        self.vectors.push(VectorInfo {
            tensor: tensor.into(),
            tensor_len: len,
            row_len: None,
            range: 0..len,
        });
        VectorId(self.vectors.len() - 1)
    }

    /// Adds the columns of a tensor of `rows` rows of `row_len` elements, one after the other, to the list of vectors.
    pub fn add_columns(&mut self, tensor: impl Into<String>, row_len: usize, rows: usize) -> VectorId {
        let id = self.add_vector(tensor, row_len * rows);
        self.vectors[id.0].row_len = Some(row_len);
        id
    }

    /// The matrices that tokens are multiplied by, all experts among them, in the order in which a token reads them.
    pub fn products(&self) -> impl Iterator<Item = MatrixId> {
        self.layers.iter().flat_map(Layer::products).chain([self.output])
    }

    /// As many matrices as one token is multiplied by: of each layer's experts, which are alike, as many as are chosen.
    pub fn products_of_a_token(&self) -> impl Iterator<Item = MatrixId> {
        self.layers.iter().flat_map(Layer::products_of_a_token).chain([self.output])
    }

    /// How many experts of layer `l` have their matrices in the tensor `name`: all, where they are stacked, or one.
    pub(crate) fn stacked(&self, l: usize, name: &str) -> usize {
        let FeedForward::Experts(e) = &self.layers[l].feed_forward else { return 1 };
        let has = |d: &&Dense| d.products().iter().any(|id| self.matrix(*id).tensor == name);
        e.experts.iter().filter(has).count().max(1)
    }

    /// Which of its frequencies each rotation has in a session with room for `context` tokens.
    pub(super) fn rope_kinds(&self, context: usize) -> Vec<usize> {
        self.ropes.iter().map(|rope| rope.kind(context)).collect()
    }

    /// What a session keeps for each position: the heads of keys and values, and their size, of the layers that have any.
    pub fn kv_heads(&self) -> impl Iterator<Item = (usize, usize)> {
        self.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Attention(a) => Some((a.n_kv_heads, a.head_dim)),
            Mixer::GatedDelta(_) | Mixer::ShortConvolution(_) => None,
        })
    }

    /// Bytes that a session keeps whatever the number of positions: the states of recurrent layers.
    pub fn state_bytes(&self) -> usize {
        let layer = |layer: &Layer| match &layer.mixer {
            Mixer::Attention(_) => 0,
            Mixer::GatedDelta(d) => d.state_bytes(),
            Mixer::ShortConvolution(c) => c.state_bytes(),
        };
        self.layers.iter().map(layer).sum()
    }
}

impl Dense {
    /// Its matrices, in the order in which a token reads them.
    pub fn products(&self) -> [MatrixId; 3] {
        [self.gate, self.up, self.down].map(|linear| linear.matrix)
    }
}

impl Layer {
    /// Its matrices, in the order in which a token reads them.
    pub fn products(&self) -> Vec<MatrixId> {
        self.some_products(usize::MAX)
    }

    /// As many of them as one token is multiplied by.
    pub fn products_of_a_token(&self) -> Vec<MatrixId> {
        let FeedForward::Experts(experts) = &self.feed_forward else { return self.products() };
        self.some_products(experts.chosen)
    }

    /// Whether its feed-forward network is a mixture of experts.
    pub fn has_experts(&self) -> bool {
        matches!(self.feed_forward, FeedForward::Experts(_))
    }

    /// Its matrices, those of `most` experts at most.
    pub(super) fn some_products(&self, most: usize) -> Vec<MatrixId> {
        let mixer = self.mixer.inputs().into_iter().chain([self.mixer.output()]);
        let mut all: Vec<MatrixId> = mixer.map(|linear| linear.matrix).collect();
        match &self.feed_forward {
            FeedForward::Dense(dense) => all.extend(dense.products()),
            FeedForward::Experts(e) => {
                all.push(e.router.matrix);
                all.extend(e.shared.iter().flat_map(|shared| shared.dense.products()));
                all.extend(e.experts.iter().take(most).flat_map(Dense::products));
            }
        }
        all
    }
}
