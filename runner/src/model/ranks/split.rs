//! Which rows are whose.

use super::super::weights::{LayerWeights, Linear, ModelWeights, Weight, tensor_matrix};
use super::super::{Config, Error, Model, SessionOptions};
use super::Ranks;
use halfbyte_cpu_kernels::{Context, Isa};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Rows that stay together where nothing else asks for it: the kernels take sixteen at a time.
const PANEL: usize = 16;

/// The outputs of each rank, by what they are.
#[derive(Clone, Debug)]
pub(in super::super) struct Split {
    /// Of the attention: whole heads.
    pub(in super::super) attended: Vec<usize>,
    /// Of the residual stream.
    pub(in super::super) width: Vec<usize>,
    /// Of the feed-forward network's hidden layer.
    pub(in super::super) hidden: Vec<usize>,
    /// Of the vocabulary.
    pub(in super::super) logits: Vec<usize>,
}

/// `total` in units, as evenly as it goes: how many each of `count` ranks has.
fn parts(what: &'static str, total: usize, unit: usize, count: usize) -> Result<Vec<usize>, Error> {
    let units = total.div_ceil(unit);
    if count > units {
        return Err(Error::TooManyRanks { ranks: count, most: units, what });
    }
    let end = |rank: usize| (rank * units / count * unit).min(total);
    Ok((0..count).map(|rank| end(rank + 1) - end(rank)).collect())
}

/// Where rank `rank`'s part lies.
fn range(parts: &[usize], rank: usize) -> Range<usize> {
    let start: usize = parts[..rank].iter().sum();
    start..start + parts[rank]
}

impl Split {
    fn new(c: &Config, count: usize) -> Result<(Self, Vec<usize>), Error> {
        let kv_heads = parts("key and value heads", c.n_kv_heads, 1, count)?;
        let group = c.n_heads / c.n_kv_heads * c.head_dim;
        let split = Self {
            attended: kv_heads.iter().map(|n| n * group).collect(),
            width: parts("panels of 16 outputs", c.width, PANEL, count)?,
            hidden: parts("panels of 16 hidden outputs", c.feed_forward, PANEL, count)?,
            logits: parts("panels of 16 tokens", c.n_vocab, PANEL, count)?,
        };
        Ok((split, kv_heads))
    }
}

/// One rank's part of a model: rows of every matrix, and the norms and the embedding as they are.
///
/// The embedding stays where the file is mapped, of which only the rows of tokens that come up are read.
#[derive(Debug)]
pub struct ModelShare<'a> {
    /// The weights of this rank, with the hyperparameters that it sees: its own heads.
    pub(in super::super) model: Model<'a>,
    pub(in super::super) split: Split,
    rank: usize,
}

impl<'a> Model<'a> {
    /// The part that rank `rank` of `count` has, from a model that is not packed yet. No weight is copied.
    ///
    /// # Errors
    /// [`Error::TooManyRanks`] if there are more ranks than key and value heads, or than panels of 16 rows in a matrix;
    /// [`Error::SharePacked`] for a model that is packed.
    ///
    /// # Panics
    /// If `rank` is not below `count`.
    pub fn share(&self, rank: usize, count: usize) -> Result<ModelShare<'a>, Error> {
        assert!(rank < count, "rank {rank} of {count}");
        let c = &self.config;
        let (split, kv_heads) = Split::new(c, count)?;
        let n_kv_heads = kv_heads[rank];
        let config = Config { n_kv_heads, n_heads: c.n_heads / c.n_kv_heads * n_kv_heads, ..c.clone() };
        let heads = range(&kv_heads, rank);
        let kv = heads.start * c.head_dim..heads.end * c.head_dim;
        let (q, width) = (range(&split.attended, rank), range(&split.width, rank));
        let (hidden, logits) = (range(&split.hidden, rank), range(&split.logits, rank));
        let w = &self.weights;
        let layers = w.layers.iter().map(|layer| {
            Ok(LayerWeights {
                attention_norm: layer.attention_norm.clone(),
                q: linear(&layer.q, &q)?,
                k: linear(&layer.k, &kv)?,
                v: linear(&layer.v, &kv)?,
                head_norms: layer.head_norms.clone(),
                attention_output: rows(&layer.attention_output, &width)?,
                feed_forward_norm: layer.feed_forward_norm.clone(),
                gate: rows(&layer.gate, &hidden)?,
                up: rows(&layer.up, &hidden)?,
                down: rows(&layer.down, &width)?,
            })
        });
        let weights = ModelWeights {
            embedding: w.embedding.clone(),
            layers: layers.collect::<Result<_, Error>>()?,
            norm: w.norm.clone(),
            output: rows(&w.output, &logits)?,
            // The two differ now in what they hold.
            tied: false,
        };
        Ok(ModelShare { model: Model { source: self.source, config, weights }, split, rank })
    }
}

impl ModelShare<'_> {
    /// Packs this rank's rows, as [`Model::pack`] does.
    ///
    /// # Errors
    /// As there.
    pub fn pack(&mut self, ctx: Context<'_>) -> Result<(), Error> {
        self.model.pack(ctx)
    }

    /// Bytes of weights that this rank reads for each decoded token.
    pub fn bytes_per_token(&self) -> usize {
        self.model.bytes_per_token()
    }

    /// How many numbers of 4 bytes this rank is sent for each token: by gathers of all layers, and the logits if it is
    /// rank 0.
    pub fn received_per_token(&self) -> usize {
        let Split { attended, width, hidden, logits } = &self.split;
        let others = |parts: &[usize]| parts.iter().sum::<usize>() - parts[self.rank];
        let layer = others(attended) + 2 * others(width) + others(hidden);
        self.model.config.n_layers * layer + if self.rank == 0 { others(logits) } else { 0 }
    }

    /// What has to be the same on all ranks for their parts to make one model: this program, the weights and `options`.
    /// Of the weights it has names, types, shapes, and the first row of each.
    ///
    /// # Errors
    /// Those of reading a tensor.
    pub fn mark(&self, options: &SessionOptions) -> Result<String, Error> {
        let source = self.model.source;
        let mut hash = Sha256::new();
        let mut row = Vec::new();
        for info in source.tensors() {
            hash.update(format!("{} {} {:?}\n", info.name, info.ty.name(), info.dims));
            let matrix = tensor_matrix(source, info)?;
            row.resize(matrix.cols(), 0.0);
            matrix.decode_row(Isa::scalar(), 0, &mut row)?;
            hash.update(bytemuck::cast_slice::<f32, u8>(&row));
        }
        let weights: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let SessionOptions { context, activations, kv_type, chunk } = options;
        let (version, kv_type) = (env!("CARGO_PKG_VERSION"), kv_type.name());
        Ok(format!(
            "halfbyte {version}, weights {weights}, context {context}, {activations:?} activations, {kv_type} KV cache, chunks of {chunk}"
        ))
    }

    /// Its number, and how many there are.
    pub(in super::super) fn rank(&self) -> (usize, usize) {
        (self.rank, self.split.width.len())
    }
}

/// Who is to have what all ranks computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum To {
    /// Every rank.
    All,
    /// Rank 0.
    First,
}

/// A rank's way to what the others have computed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Shares<'m> {
    pub(in super::super) split: &'m Split,
    pub(in super::super) ranks: &'m dyn Ranks,
}

impl Shares<'_> {
    /// Makes whole rows, on the ranks in `to`, of `own`, which has this rank's columns of them and is empty elsewhere
    /// afterwards; `received` is memory for it.
    pub(in super::super) fn gather(
        self,
        to: To,
        parts: &[usize],
        own: &mut Vec<f32>,
        received: &mut Vec<f32>,
    ) -> Result<(), Error> {
        let rank = self.ranks.rank();
        let rows = own.len() / parts[rank];
        let counts: Vec<usize> = parts.iter().map(|part| rows * part).collect();
        received.resize(if to == To::All || rank == 0 { counts.iter().sum() } else { 0 }, 0.0);
        match to {
            To::All => self.ranks.all_gather(own, &counts, received)?,
            To::First => self.ranks.gather(own, &counts, received)?,
        }
        interleave(parts, own, received);
        Ok(())
    }
}

/// The parts of `received`, each with all rows of a rank, as rows of all ranks' columns in `whole`.
fn interleave(parts: &[usize], whole: &mut Vec<f32>, received: &mut Vec<f32>) {
    let columns: usize = parts.iter().sum();
    let rows = received.len() / columns;
    if rows <= 1 {
        std::mem::swap(whole, received);
        return;
    }
    whole.resize(received.len(), 0.0);
    let (mut from, mut column) = (0, 0);
    for &part in parts {
        for row in 0..rows {
            let to = row * columns + column;
            whole[to..to + part].copy_from_slice(&received[from..from + part]);
            from += part;
        }
        column += part;
    }
}

fn rows<'a>(weight: &Weight<'a>, range: &Range<usize>) -> Result<Weight<'a>, Error> {
    match weight {
        Weight::InPlace(matrix) => Ok(Weight::InPlace(matrix.row_range(range.clone())?)),
        Weight::Packed(_) => Err(Error::SharePacked),
    }
}

fn linear<'a>(linear: &Linear<'a>, range: &Range<usize>) -> Result<Linear<'a>, Error> {
    let bias = linear.bias.as_ref().map(|bias| bias[range.clone()].to_vec());
    Ok(Linear { weight: rows(&linear.weight, range)?, bias })
}
