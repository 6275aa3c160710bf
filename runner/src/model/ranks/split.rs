//! Which rows of each matrix a rank has.

use std::ops::Range;
use std::sync::Arc;

use halfbyte_cpu_kernels::Isa;
use sha2::{Digest, Sha256};

use super::super::description::{Dense, Description, FeedForward, Linear, MatrixId, Mixer, Norm};
use super::super::weights::tensor_matrix;
use super::super::{Compute, Error, SessionOptions, Transformer};
use super::Ranks;
use crate::source::Source;

/// Rows that stay together where nothing else asks for it: the kernels take sixteen at a time.
const PANEL: usize = 16;

/// How many outputs each rank has, by what they are.
#[derive(Clone, Debug)]
pub(in super::super) struct Split {
    /// Of the residual stream.
    pub(in super::super) width: Vec<usize>,
    /// Of the vocabulary.
    pub(in super::super) logits: Vec<usize>,
    /// Of what a matrix reads, where ranks have computed parts of it: whole heads for the mixer's output matrix, parts of
    /// the hidden layer for the feed-forward network's. Empty for other matrices.
    inputs: Vec<Vec<usize>>,
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

/// What one rank has of a description.
struct Restriction {
    description: Description,
    split: Split,
}

impl Restriction {
    fn new(whole: &Description, rank: usize, count: usize) -> Result<Self, Error> {
        let split = Split {
            width: parts("panels of 16 outputs", whole.width, PANEL, count)?,
            logits: parts("panels of 16 tokens", whole.n_vocab, PANEL, count)?,
            inputs: vec![Vec::new(); whole.matrices.len()],
        };
        let mut this = Self { description: whole.clone(), split };
        let (width, logits) = (range(&this.split.width, rank), range(&this.split.logits, rank));
        let mut layers = std::mem::take(&mut this.description.layers);
        for layer in &mut layers {
            match &mut layer.mixer {
                Mixer::Attention(a) if a.gated => {
                    return Err(Error::Unshared { part: "gated attention" });
                }
                Mixer::Attention(a) => {
                    let over_all = |norm: &Norm| whole.vectors[norm.weight.0].tensor_len != a.head_dim;
                    if count > 1 && a.head_norms.iter().flatten().any(over_all) {
                        let what = "norm over all heads of the queries";
                        return Err(Error::TooManyRanks { ranks: count, most: 1, what });
                    }
                    let kv_heads = parts("key and value heads", a.n_kv_heads, 1, count)?;
                    let group = a.n_heads / a.n_kv_heads;
                    let heads = range(&kv_heads, rank);
                    let kv = heads.start * a.head_dim..heads.end * a.head_dim;
                    let q_parts: Vec<usize> = kv_heads.iter().map(|n| n * group * a.head_dim).collect();
                    this.keep_rows(a.q, &range(&q_parts, rank));
                    this.keep_rows(a.k, &kv);
                    this.keep_rows(a.v, &kv);
                    this.keep_rows(a.output, &width);
                    this.split.inputs[a.output.matrix.0] = q_parts;
                    if let Some(sinks) = a.sinks {
                        this.description.vectors[sinks.0].range = heads.start * group..heads.end * group;
                    }
                    (a.n_heads, a.n_kv_heads) = (heads.len() * group, heads.len());
                }
                Mixer::GatedDelta(_) => return Err(Error::Unshared { part: "the gated delta rule" }),
                Mixer::ShortConvolution(_) => return Err(Error::Unshared { part: "short convolutions" }),
            }
            match &mut layer.feed_forward {
                FeedForward::Dense(d) => this.share_dense(d, rank, count, &width)?,
                FeedForward::Experts(e) => {
                    // Every rank has a part of every expert, and all choose the same ones.
                    for d in e.experts.iter_mut().chain(e.shared.as_mut().map(|shared| &mut shared.dense)) {
                        this.share_dense(d, rank, count, &width)?;
                    }
                }
            }
        }
        this.description.layers = layers;
        // The embedding stays whole, and so the two differ now where they were tied.
        let mut output = whole.matrix(whole.output).clone();
        output.rows = logits;
        this.description.matrices.push(output);
        this.description.output = MatrixId(this.description.matrices.len() - 1);
        this.split.inputs.push(Vec::new());
        Ok(this)
    }

    /// Leaves only this rank's part of a feed-forward network, and `width` of its outputs.
    fn share_dense(
        &mut self,
        d: &mut Dense,
        rank: usize,
        count: usize,
        width: &Range<usize>,
    ) -> Result<(), Error> {
        let hidden = parts("panels of 16 hidden outputs", d.width, PANEL, count)?;
        let own = range(&hidden, rank);
        self.keep_rows(d.gate, &own);
        self.keep_rows(d.up, &own);
        self.keep_rows(d.down, width);
        self.split.inputs[d.down.matrix.0] = hidden;
        d.width = own.len();
        Ok(())
    }

    /// Leaves only these outputs of `linear`.
    fn keep_rows(&mut self, linear: Linear, rows: &Range<usize>) {
        let within = |whole: &Range<usize>| whole.start + rows.start..whole.start + rows.end;
        let matrix = &mut self.description.matrices[linear.matrix.0];
        matrix.rows = within(&matrix.rows);
        if let Some(bias) = linear.bias {
            let bias = &mut self.description.vectors[bias.0];
            bias.range = within(&bias.range);
        }
    }
}

/// One rank's part of a model: rows of every matrix, and the norms and the embedding as they are.
///
/// The embedding stays where the file is mapped, of which only the rows of tokens that come up are read.
#[derive(Clone, Debug)]
pub struct ModelShare {
    /// The weights of this rank, with the description that it sees: its own heads.
    transformer: Transformer,
    split: Split,
    rank: usize,
    count: usize,
}

impl Transformer {
    /// The part that rank `rank` of `count` has, from a model that is not packed yet. No weight is copied.
    ///
    /// # Errors
    /// [`Error::TooManyRanks`] if there are more ranks than key and value heads, or than panels of 16 rows in a matrix;
    /// [`Error::Unshared`] for layers that ranks have no parts of; [`Error::SharePacked`] for a model that is packed.
    ///
    /// # Panics
    /// If `rank` is not below `count`.
    pub fn share(&self, rank: usize, count: usize) -> Result<ModelShare, Error> {
        assert!(rank < count, "rank {rank} of {count}");
        if self.description().products().any(|id| self.weights().is_packed(id)) {
            return Err(Error::SharePacked);
        }
        let Restriction { description, split } = Restriction::new(self.description(), rank, count)?;
        let transformer = Transformer::with_description(Arc::clone(self.file()), description)?;
        Ok(ModelShare { transformer, split, rank, count })
    }
}

impl ModelShare {
    /// This rank's part, as a model.
    pub(in super::super) fn transformer(&self) -> &Transformer {
        &self.transformer
    }

    /// Packs this rank's rows, as [`Transformer::pack`] does.
    ///
    /// # Errors
    /// As there.
    pub fn pack(self, compute: &Compute) -> Result<Self, Error> {
        Ok(Self { transformer: self.transformer.pack(compute)?, ..self })
    }

    /// Bytes of weights that this rank reads for each decoded token.
    pub fn bytes_per_token(&self) -> usize {
        self.transformer.bytes_per_token()
    }

    /// How many numbers of 4 bytes this rank is sent for each token: by gathers of all layers, and the logits if it is
    /// rank 0.
    pub fn received_per_token(&self) -> usize {
        let Split { width, logits, inputs } = &self.split;
        let others = |parts: &[usize]| parts.iter().sum::<usize>() - parts.get(self.rank).unwrap_or(&0);
        let products = self.transformer.description().products_of_a_token();
        let layers = products.map(|id| others(&inputs[id.0])).sum::<usize>()
            + 2 * self.transformer.description().layers.len() * others(width);
        layers + if self.rank == 0 { others(logits) } else { 0 }
    }

    /// What has to be the same on all ranks for their parts to make one model: this program, the weights and `options`.
    /// Of the weights it has names, types, shapes, and the first row of each.
    ///
    /// # Errors
    /// Those of reading a tensor.
    pub fn mark(&self, options: &SessionOptions) -> Result<String, Error> {
        let source: &dyn Source = &***self.transformer.file();
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
        let (version, activations, kv_type) = (env!("CARGO_PKG_VERSION"), activations.name(), kv_type.name());
        Ok(format!(
            "halfbyte {version}, weights {weights}, context {context}, {activations} activations, {kv_type} KV cache, chunks of {chunk}"
        ))
    }

    /// Its number, and how many there are.
    pub(in super::super) fn rank(&self) -> (usize, usize) {
        (self.rank, self.count)
    }
}

/// What connects a session on a share to the other ranks.
#[derive(Debug)]
pub(in super::super) struct RankLink {
    split: Split,
    ranks: Arc<dyn Ranks>,
}

impl RankLink {
    /// # Errors
    /// [`Error::WrongRank`] if `share` is another rank's.
    pub(in super::super) fn new(share: &ModelShare, ranks: Arc<dyn Ranks>) -> Result<Self, Error> {
        let ((expected, expected_count), (got, got_count)) = (share.rank(), (ranks.rank(), ranks.count()));
        if (expected, expected_count) != (got, got_count) {
            return Err(Error::WrongRank { expected, expected_count, got, got_count });
        }
        Ok(Self { split: share.split.clone(), ranks })
    }
}

/// The ranks that get what all ranks computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum To {
    /// Every rank.
    All,
    /// Rank 0.
    First,
}

/// A rank's connection to what the others have computed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Shares<'m> {
    pub(in super::super) split: &'m Split,
    ranks: &'m dyn Ranks,
}

impl<'m> Shares<'m> {
    pub(in super::super) fn new(link: &'m RankLink) -> Self {
        Self { split: &link.split, ranks: &*link.ranks }
    }

    /// The parts of what a matrix reads.
    pub(in super::super) fn inputs(self, matrix: MatrixId) -> &'m [usize] {
        &self.split.inputs[matrix.0]
    }

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
