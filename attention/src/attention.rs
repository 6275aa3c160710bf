//! The entry points: they check their arguments, then run the kernel once for each tile.

use crate::cache::KvCache;
use crate::error::{Error, check_len, check_shape};
use crate::params::AttentionParams;
use crate::split::Split;
use crate::tile::{CHUNK, Goal, MAX_QUERIES, Merge, Queries, Sinks, Tile, record, with_parts, with_scratch};
use halfbyte_cpu_kernels::simd::LANES;
use halfbyte_cpu_kernels::{Context, CpuVendor};
use halfbyte_threadpool::DisjointMut;

/// The number of multiplications below which one thread does all: they take it some microseconds, and waking others takes longer.
const WORTH_SHARING: usize = 1 << 17;

/// Attention of query rows over a cache, for decode (one row) and prefill alike.
///
/// ```text
/// s[r, h, j]     = scale * sum over d of q[r, h, d] * key[j, h / group, d]
/// score[r, h, j] = s, or soft_cap * tanh(s / soft_cap)             for the keys j that row r sees
/// out[r, h]      = sum over j of softmax(score[r, h])[j] * value[j, h / group]
/// ```
///
/// `q` and `out` are rows of `n_heads * head_dim` numbers, head after head; their length gives the number of
/// rows. Row `r` is at position `first + r` and sees the keys that [`AttentionParams::visible`] names: by default those up to
/// its own position, so append keys and values before this call. What the cache holds at other positions has no
/// influence, not even NaN. A row that sees no key gets zeros.
///
/// # Numerics
/// A head's output is a function of its query, of the keys and values it sees with their positions, and of `params`, to
/// the bit: rows beside it, how a prompt was cut into calls, the threads and the ISA do not matter. All arithmetic is f32,
/// on what the cache's type has kept. With finite input, `u = 2^-24`, `n` keys, `A` the largest
/// `|scale| * sum of |q[d] * key[d]|` and `V` the largest `|value|`, an output is within
///
/// ```text
/// u * V * (2 * (head_dim / 2 + 10) * A + 2 * n + 32)              with a soft cap 18 in place of 10
/// ```
///
/// of the exact one for the numbers in the cache, as long as `A`, `n * V` and `scale * q` are within the range of f32.
/// Otherwise the result follows IEEE arithmetic, the same way on every ISA:
/// - NaN in a query, or in a key or value that it sees, gives the NaN `0x7fc00000`;
/// - a score of +inf gives NaN (`inf - inf`), a score of -inf weighs exactly 0; a soft cap makes both finite;
/// - if every score is -inf the output is exactly 0;
/// - an infinite value at a visible position gives an infinity or NaN, even where its weight has underflowed to 0.
///
/// # Errors
/// [`Error::NotWholeRows`] if `q` is not whole rows, [`Error::Length`] if `out` has another length than `q`,
/// [`Error::Shape`] if `cache` has other heads than `params`, [`Error::Position`] if attention is causal and a row's own
/// position is not in the cache yet. `out` is unchanged then.
pub fn attention(
    ctx: Context<'_>,
    params: AttentionParams,
    q: &[f32],
    cache: &KvCache,
    first: usize,
    out: &mut [f32],
) -> Result<(), Error> {
    run(ctx, params, None, q, cache, first, out)
}

/// [`attention`] with attention sinks: one logit for each query head, which every row of that head has as one more score.
/// The value that belongs to it is 0, so it takes weight from the keys and adds nothing. It is neither scaled nor capped.
/// A logit of -inf means no sink.
///
/// ```
/// use halfbyte_attention::{AttentionParams, KvCache, KvType, attention_with_sinks};
/// use halfbyte_cpu_kernels::Context;
/// use halfbyte_threadpool::ThreadPool;
///
/// let pool = ThreadPool::new(1)?;
/// let ctx = Context::new(&pool)?;
/// let params = AttentionParams::new(1, 1, 1, 1.0)?;
/// let mut cache = KvCache::new(KvType::F32, 1, 1, 2)?;
/// cache.append(ctx.isa, &[0.0, 0.0], &[4.0, 8.0], 2)?;
/// let mut out = [0.0];
/// // Two keys and a sink, all with score 0: a third of the weight each.
/// attention_with_sinks(ctx, params, &[0.0], &[1.0], &cache, 1, &mut out)?;
/// assert_eq!(out, [4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`attention`]; [`Error::Length`] unless there is a sink for each head, [`Error::Sink`] for one that is NaN or +inf.
pub fn attention_with_sinks(
    ctx: Context<'_>,
    params: AttentionParams,
    sinks: &[f32],
    q: &[f32],
    cache: &KvCache,
    first: usize,
    out: &mut [f32],
) -> Result<(), Error> {
    check_len("sinks", params.n_heads(), sinks.len())?;
    if let Some(head) = sinks.iter().position(|sink| sink.is_nan() || *sink == f32::INFINITY) {
        return Err(Error::Sink { head, got: sinks[head] });
    }
    run(ctx, params, Some(sinks), q, cache, first, out)
}

fn run(
    ctx: Context<'_>,
    params: AttentionParams,
    sinks: Sinks<'_>,
    q: &[f32],
    cache: &KvCache,
    first: usize,
    out: &mut [f32],
) -> Result<(), Error> {
    check_shape("n_kv_heads", params.n_kv_heads(), cache.n_kv_heads())?;
    check_shape("head_dim", params.head_dim(), cache.head_dim())?;
    let width = params.n_heads().checked_mul(params.head_dim()).ok_or(Error::NotWholeRows {
        what: "q",
        width: usize::MAX,
        got: q.len(),
    })?;
    if !q.len().is_multiple_of(width) {
        return Err(Error::NotWholeRows { what: "q", width, got: q.len() });
    }
    check_len("out", q.len(), out.len())?;
    let rows = q.len() / width;
    let limit = if params.causal() { cache.len() } else { usize::MAX };
    if first.checked_add(rows).is_none_or(|end| end > limit) {
        return Err(Error::Position { first, rows, len: cache.len() });
    }
    if rows > 0 {
        let queries = Queries {
            params,
            sinks,
            len: cache.len(),
            kv_head: 0,
            first_position: first,
            first: 0,
            n: rows * params.group(),
            prefetch: prefetch_pays(),
        };
        Call { ctx, q, cache, queries, out: DisjointMut::new(out) }.run();
    }
    Ok(())
}

/// Whether kernels prefetch the next block of keys and values. They do on Intel's processors, where prefetching brings
/// decoding from 6.8 to 9.1 GB/s of the 10.9 that memory gives one thread (`docs/performance.md`). On Zen 4 a prefetch
/// costs about 7 cycles and brings nothing: the hardware prefetcher is as fast.
fn prefetch_pays() -> bool {
    CpuVendor::of_this_machine() == CpuVendor::Intel
}

/// The checked arguments of a call with at least one row.
#[derive(Clone, Copy)]
struct Call<'a> {
    ctx: Context<'a>,
    q: &'a [f32],
    cache: &'a KvCache,
    /// All queries of key/value head 0; the other heads have as many.
    queries: Queries<'a>,
    /// All output rows. A tile takes the heads of its own queries.
    out: DisjointMut<'a, f32>,
}

impl Call<'_> {
    fn run(self) {
        let (n, n_kv_heads) = (self.queries.n, self.cache.n_kv_heads());
        let chunks = self.queries.all_chunks().len();
        let multiplications = self.q.len().saturating_mul(self.queries.len.min(chunks * CHUNK));
        let threads = if multiplications < WORTH_SHARING { 1 } else { self.ctx.pool.threads() };
        if threads > 1 && chunks > 1 && n <= MAX_QUERIES {
            self.chunk_by_chunk();
            return;
        }
        let split = Split::new(n, n_kv_heads, threads);
        self.share(threads, split.items(), |i| {
            let (kv_head, first, n) = split.item(i);
            self.tile(Queries { kv_head, first, n, ..self.queries }, Goal::Output(self.out));
        });
    }

    /// Shares the work by chunks of keys, for few queries and many keys: each chunk of a key/value head is an item, and a
    /// second pass merges the records of the chunks.
    fn chunk_by_chunk(self) {
        let Self { queries, cache, ctx, out, .. } = self;
        let (chunks, n_kv_heads) = (queries.all_chunks(), cache.n_kv_heads());
        let vectors = cache.head_dim().div_ceil(LANES);
        let item_len = queries.n * record(vectors);
        let head_len = chunks.len() * item_len;
        with_parts(n_kv_heads * head_len, |parts| {
            let records = DisjointMut::new(parts);
            self.share(ctx.pool.threads(), n_kv_heads * chunks.len(), |i| {
                // SAFETY: the parts of items are `item_len` long and as far apart, so those of two items share no record.
                let part = unsafe { records.part(i * item_len, item_len) };
                let (kv_head, chunk) = (i / chunks.len(), chunks.start + i % chunks.len());
                self.tile(Queries { kv_head, ..queries }, Goal::Chunk(chunk, part));
            });
            let threads = if parts.len() < WORTH_SHARING { 1 } else { ctx.pool.threads() };
            let parts = &*parts;
            self.share(threads, n_kv_heads, |kv_head| {
                let queries = Queries { kv_head, ..queries };
                let records = &parts[kv_head * head_len..][..head_len];
                with_scratch(vectors, |scratch| {
                    let total = &mut scratch.total[..record(vectors)];
                    ctx.isa.dispatch(Merge { queries, records, total, out });
                });
            });
        });
    }

    /// Calls `item` with `0..items`, on the pool unless `threads` is 1.
    fn share(self, threads: usize, items: usize, item: impl Fn(usize) + Sync) {
        if threads == 1 {
            (0..items).for_each(item);
        } else {
            self.ctx.pool.par_for(items, 1, item);
        }
    }

    fn tile(self, queries: Queries<'_>, goal: Goal<'_>) {
        let [keys, values] = self.cache.head(queries.kv_head);
        with_scratch(self.cache.head_dim().div_ceil(LANES), |scratch| {
            self.ctx.isa.dispatch(Tile { queries, q: self.q, keys, values, scratch, goal });
        });
    }
}
