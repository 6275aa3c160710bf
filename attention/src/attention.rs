//! The entry point: checks, then one kernel run a tile.

use crate::cache::{KvCache, Planes, Store};
use crate::element::Element;
use crate::error::{Error, check_len, check_shape};
use crate::output::Output;
use crate::params::AttentionParams;
use crate::split::Split;
use crate::tile::{Tile, with_scratch};
use halfbyte_cpu_kernels::Context;
use halfbyte_cpu_kernels::simd::LANES;

/// Multiplications below which waking other threads takes longer than the work: some microseconds of one core.
const WORTH_SHARING: usize = 1 << 17;

/// Causal attention of query rows over a cache, for decode (one row) and prefill alike.
///
/// ```text
/// score[r, h, j] = scale * sum over d of q[r, h, d] * key[j, h / group, d]     j = 0 ..= first + r
/// out[r, h]      = sum over j of softmax(score[r, h])[j] * value[j, h / group]
/// ```
///
/// `q` and `out` are rows of `n_heads * head_dim` numbers, head after head; their length gives the number of
/// rows. Row `r` stands at position `first + r` and sees the keys up to its own, so keys and values are appended
/// before this is called. What the cache holds at later positions has no influence, not even if it is NaN.
///
/// # Numerics
/// A head's output is a function of its query, of the keys and values it sees, and of `params`, to the bit: rows
/// beside it, how a prompt was cut into calls, the threads and the ISA do not matter. All arithmetic is f32. With
/// finite input, `u = 2^-24`, `n` keys, `A` the largest `|scale| * sum of |q[d] * key[d]|` and `V` the largest
/// `|value|`, an output is within
///
/// ```text
/// u * V * (2 * (head_dim / 16 + 12) * A + 2 * n + 32)
/// ```
///
/// of the exact one for the numbers in the cache, as long as `A`, `n * V` and `scale * q` are within f32.
/// Otherwise IEEE arithmetic decides, the same way on every ISA:
/// - NaN in a query, or in a key or value that it sees, gives NaN (`0x7fc00000`, no other);
/// - a score of +inf gives NaN (`inf - inf`), a score of -inf weighs exactly 0;
/// - if every score is -inf the output is exactly 0;
/// - an infinite value that is seen gives an infinity or NaN, even where its weight has underflowed to 0.
///
/// # Errors
/// [`Error::NotWholeRows`] if `q` is not whole rows, [`Error::Length`] if `out` has another length than `q`,
/// [`Error::Shape`] if `cache` has other heads than `params`, [`Error::Position`] if a row's own position is not
/// in the cache yet. `out` is unchanged then.
pub fn attention(
    ctx: Context<'_>,
    params: AttentionParams,
    q: &[f32],
    cache: &KvCache,
    first: usize,
    out: &mut [f32],
) -> Result<(), Error> {
    if params.window().is_some() || params.soft_cap().is_some() || !params.causal() {
        return Err(Error::Unsupported { what: "a window, a soft cap or attention that is not causal" });
    }
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
    if first.checked_add(rows).is_none_or(|end| end > cache.len()) {
        return Err(Error::Position { first, rows, len: cache.len() });
    }
    let call = Call { ctx, params, q, first, rows, head_len: cache.capacity() * cache.stride() };
    let out = Output::new(out);
    match cache.store() {
        Store::F32(planes) => call.run(planes, &out),
        Store::F16(planes) => call.run(planes, &out),
    }
    Ok(())
}

/// The checked arguments of a call.
#[derive(Clone, Copy)]
struct Call<'a> {
    ctx: Context<'a>,
    params: AttentionParams,
    q: &'a [f32],
    first: usize,
    rows: usize,
    /// Elements of a key/value head in the cache.
    head_len: usize,
}

impl Call<'_> {
    /// Picks the kernel for the head's width: 64 and 128 have loops of known length.
    fn run<E: Element>(self, planes: &Planes<E>, out: &Output<'_>) {
        match self.params.head_dim().div_ceil(LANES) {
            4 => self.tiles::<E, 4>(planes, out),
            8 => self.tiles::<E, 8>(planes, out),
            _ => self.tiles::<E, 0>(planes, out),
        }
    }

    fn tiles<E: Element, const VECTORS: usize>(self, planes: &Planes<E>, out: &Output<'_>) {
        let n_kv_heads = self.params.n_kv_heads();
        let queries = self.rows * self.params.group();
        let multiplications = self.q.len().saturating_mul(self.first + self.rows);
        let threads = if multiplications < WORTH_SHARING { 1 } else { self.ctx.pool.threads() };
        let split = Split::new(queries, n_kv_heads, threads);
        let item = |i: usize| {
            let (kv_head, first_query, n) = split.item(i);
            self.tile::<E, VECTORS>(planes, out, kv_head, first_query, n);
        };
        if threads == 1 {
            (0..split.items()).for_each(item);
        } else {
            self.ctx.pool.par_for(split.items(), 1, item);
        }
    }

    fn tile<E: Element, const VECTORS: usize>(
        self,
        planes: &Planes<E>,
        out: &Output<'_>,
        kv_head: usize,
        first_query: usize,
        n: usize,
    ) {
        let head = kv_head * self.head_len..(kv_head + 1) * self.head_len;
        let (keys, values) = (&planes.keys.as_slice()[head.clone()], &planes.values.as_slice()[head]);
        let Self { params, q, first: first_position, .. } = self;
        with_scratch(params.head_dim().div_ceil(LANES), |scratch| {
            let tile =
                Tile { params, q, keys, values, kv_head, first_position, first_query, n, scratch, out };
            self.ctx.isa.dispatch::<Tile<'_, E, VECTORS>>(tile);
        });
    }
}
