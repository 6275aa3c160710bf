// Attention of query lines over one kv head: the same arithmetic for a prompt and for a decode step.
//
//   score[line][j] = scale * sum over d of q[line][d] key[j][d]      (soft-cap: cap tanh(score / cap))
//   out[line]      = sum over j of 2^(s[j] - m) value[j] / sum over j of 2^(s[j] - m),   s = score log2(e)
//
// A line is a query head of a row: line = row * group + head within the group, so heads that share a kv head share its
// tiles. Row r stands at position first + r and sees the positions of [lo, hi):
//   hi = kv_len, with `causal` at most first + r + 1, with a window alone at most first + r + window;
//   lo = 0, with a window at least first + r + 1 - window.
//
// A warp has 16 lines, an m16 tile, or two such tiles. For each tile of `keys` positions, which begin at multiples of `keys`, ascending:
//   s = mma(q, K)                       f32, d ascending
//   t = s * scale                       e4m3: s * key scale first;  soft-cap;  -infinity where masked
//   m' = max(m, t),  p = 2^(t - m'),  c = 2^(m - m')
//   l = l c + sum of p                  a lane's columns in ascending order; lanes are added at the end
//   o = o c + mma(bf16(p), V)           e4m3: bf16(p * value scale)
// A line's numbers depend on its query, its range and the tiles that meet it. A tile that a line sees nothing of leaves
// its bits: p is 0, c is 1, and what is added is 0 - provided that the tile's values are finite. (A zero's sign may
// change; outputs have +0 only.)
#pragma once
#include "attention_tiles.cuh"
#include "softmax.cuh"

struct Attention {
  const u16* q;  // rows x n_heads x dim
  const u8 *keys, *values;
  const float *key_scales, *value_scales, *sinks;  // sinks: of the query heads, or null
  u32 rows, n_heads, group, capacity, first, kv_len, causal, window;  // window: 0 is none
  float scale, cap;  // scale log2(e), 0; with a soft-cap: 2 log2(e) scale / cap, log2(e) cap

  // The positions that a row sees.
  DEVICE u32 low(u32 row) const {
    const u32 seen = first + row + 1;
    return window != 0 && seen > window ? seen - window : 0;
  }
  DEVICE u32 high(u32 row) const {
    const u32 limit = causal ? first + row + 1 : window != 0 ? first + row + window : kv_len;
    return smaller(limit, kv_len);
  }

  DEVICE u32 lines() const { return rows * group; }
  // The query head of a kv head's line, and its place among those of all rows.
  DEVICE u32 head_of(u32 kv_head, u32 line) const { return kv_head * group + line % group; }
  DEVICE u64 query(u32 kv_head, u32 line) const { return (u64)(line / group) * n_heads + head_of(kv_head, line); }
};

// Starts copying `lines` lines of queries, or of what is laid out like them; zeros beyond the last.
template <int dim, int lines, int threads>
DEVICE void copy_lines(const Attention& p, const u16* from, u32 kv_head, u32 line0, u32 to) {
  constexpr int kPieces = dim / 8;
#pragma unroll
  for (u32 piece = threadIdx.x; piece < lines * kPieces; piece += threads) {
    const u32 r = piece / kPieces, c = piece % kPieces;
    const bool inside = line0 + r < p.lines();
    const u64 at = p.query(kv_head, inside ? line0 + r : 0) * dim + c * 8;
    copy16(to + row_piece<kPieces>(r, c), from + at, inside ? 16 : 0);
  }
}

// The work of a block: sums of its lines over a part of the positions. The kernels write or merge them.
// A warp has `tiles` m16 tiles of lines, which share what it loads of keys and values.
template <class Tiles, int tiles_of_lines = 1>
struct AttentionBlock {
  static constexpr int kDim = Tiles::kDim, kKeys = Tiles::kKeys, kTiles = tiles_of_lines;
  static constexpr int kWarpLines = kTiles * 16, kLines = Tiles::kWarps * kWarpLines;
  static constexpr int kSteps = kDim / 16, kColumns = kKeys / 8, kOutputs = kDim / 8;
  // Queries stay in registers where there are some beside the outputs and scores, else in shared memory.
  static constexpr bool kHeld = kDim * kTiles <= 128;
  // On their way to registers they lie in a slot that no tile is in yet, if they fit.
  static constexpr bool kSpare = kHeld && kLines * kDim * 2 <= Tiles::kSlot;
  static constexpr int kQueriesAt = Tiles::kShared;
  static constexpr int kShared = Tiles::kShared + (kSpare ? 0 : kLines * kDim * 2);
  using Scores = float[kTiles][kColumns][4];

  const Attention& p;
  u32 line0, kv_head;

  float o[kTiles][kOutputs][4], m[kTiles][2], l[kTiles][2];
  u32 held[kTiles][kHeld ? kSteps : 1][4];

  DEVICE AttentionBlock(const Attention& p, u32 line0, u32 kv_head) : p(p), line0(line0), kv_head(kv_head) {
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
#pragma unroll
      for (int n = 0; n < kOutputs; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) o[i][n][e] = 0.0f;
      }
      m[i][0] = m[i][1] = minus_infinity();
      l[i][0] = l[i][1] = 0.0f;
    }
  }

  DEVICE u32 lane() const { return threadIdx.x % 32; }
  // The first line of tile i of this warp, from the block's first.
  DEVICE u32 tile_line(int i) const { return threadIdx.x / 32 * kWarpLines + i * 16; }
  // The line of this lane's upper (half 0) or lower row of accumulators.
  DEVICE u32 line(int i, int half) const { return line0 + tile_line(i) + half * 8 + lane() / 4; }
  DEVICE u32 last_row() const { return (smaller(line0 + kLines, p.lines()) - 1) / p.group; }

  // Adds the positions of [begin, end), which is not empty.
  DEVICE void run(u32 begin, u32 end) {
    const u32 shared = shared_address(shared_memory), tile0 = begin / kKeys, tiles = (end + kKeys - 1) / kKeys - tile0;
    const Tiles kv{kv_of(), shared, tile0 * kKeys, end, tiles * 2};
    const u32 queries = kSpare ? kv.spare() : shared + kQueriesAt;
    copy_lines<kDim, kLines, Tiles::kThreads>(p, p.q, kv_head, line0, queries);
    commit_copies();
    kv.start(0);
    kv.start(1);
    wait_copies<2>();
    __syncthreads();
    if (kHeld) {
#pragma unroll
      for (int i = 0; i < kTiles; i++) {
#pragma unroll
        for (int step = 0; step < kSteps; step++) {
          load_left<kDim>(held[i][kHeld ? step : 0], queries, tile_line(i), step);
        }
      }
    }
    u32 lo[kTiles][2], hi[kTiles][2];
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const u32 row = smaller(line(i, half), p.lines() - 1) / p.group;
        lo[i][half] = p.low(row);
        hi[i][half] = p.high(row);
      }
    }
    // Positions that every line of the block sees need no masks.
    const u32 all_from = p.low(last_row()), all_to = p.high(line0 / p.group);
    // A warp of the last block may have no lines; it copies and waits with the others.
    const bool used = line0 + tile_line(0) < p.lines();
    for (u32 t = 0; t < tiles; t++) {
      Scores s;
      const u32 keys = kv.ready(t * 2), position = (tile0 + t) * kKeys;
      if (used) {
        scores(s, keys, queries);
        scale(s, kv, t * 2);
        if (position < all_from || position + kKeys > all_to) mask(s, position, lo, hi);
        weigh(s);
      }
      const u32 values = kv.ready(t * 2 + 1);
      if (used) add_values(s, kv, t * 2 + 1, values);
    }
  }

  DEVICE KvHead kv_of() const {
    const u64 row = (u64)kv_head * p.capacity;
    constexpr u32 kRow = kDim * (Tiles::kScales ? 1 : 2);
    return KvHead{p.keys + row * kRow, p.values + row * kRow, p.key_scales + row, p.value_scales + row};
  }

  DEVICE void scores(Scores& s, u32 tile, u32 queries) const {
    const auto left = [&](u32(&a)[4], int i, int step) {
      if (kHeld) {
#pragma unroll
        for (int j = 0; j < 4; j++) a[j] = held[i][kHeld ? step : 0][j];
      } else {
        load_left<kDim>(a, queries, tile_line(i), step);
      }
    };
    multiply_rows_by<kDim, kKeys, kTiles>(s, left, tile);
  }

  DEVICE void scale(Scores& s, const Tiles& kv, u32 step) const {
#pragma unroll
    for (int n = 0; n < kColumns; n++) {
      const float2 of_keys = kv.scales(step, n * 8 + lane() % 4 * 2);
#pragma unroll
      for (int i = 0; i < kTiles; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          if (Tiles::kScales) s[i][n][e] = __fmul_rn(s[i][n][e], e % 2 ? of_keys.y : of_keys.x);
          s[i][n][e] = __fmul_rn(s[i][n][e], p.scale);
        }
      }
    }
    if (p.cap != 0.0f) {
#pragma unroll
      for (int i = 0; i < kTiles; i++) {
#pragma unroll
        for (int n = 0; n < kColumns; n++) {
#pragma unroll
          for (int e = 0; e < 4; e++) s[i][n][e] = soft_capped(s[i][n][e], p.cap);
        }
      }
    }
  }

  DEVICE void mask(Scores& s, u32 position, const u32 (&lo)[kTiles][2], const u32 (&hi)[kTiles][2]) const {
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
#pragma unroll
      for (int n = 0; n < kColumns; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const u32 j = position + n * 8 + lane() % 4 * 2 + e % 2;
          if (j < lo[i][e / 2] || j >= hi[i][e / 2]) s[i][n][e] = minus_infinity();
        }
      }
    }
  }

  // Scores to weights, and everything so far relative to the new maximum.
  DEVICE void weigh(Scores& s) {
#pragma unroll
    for (int i = 0; i < kTiles; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float top = m[i][half];
#pragma unroll
        for (int n = 0; n < kColumns; n++) top = max_f32(top, max_f32(s[i][n][half * 2], s[i][n][half * 2 + 1]));
        top = quad_max(top);
        const float base = exponent_base(top), correction = exp2_approximate(__fsub_rn(m[i][half], base));
        m[i][half] = top;
        l[i][half] = __fmul_rn(l[i][half], correction);
#pragma unroll
        for (int n = 0; n < kOutputs; n++) {
          o[i][n][half * 2] = __fmul_rn(o[i][n][half * 2], correction);
          o[i][n][half * 2 + 1] = __fmul_rn(o[i][n][half * 2 + 1], correction);
        }
#pragma unroll
        for (int n = 0; n < kColumns; n++) {
#pragma unroll
          for (int e = half * 2; e < half * 2 + 2; e++) {
            s[i][n][e] = exp2_approximate(__fsub_rn(s[i][n][e], base));
            l[i][half] = __fadd_rn(l[i][half], s[i][n][e]);
          }
        }
      }
    }
  }

  DEVICE void add_values(const Scores& weights, const Tiles& kv, u32 step, u32 tile) {
#pragma unroll
    for (int k = 0; k < kColumns; k += 2) {
      u32 a[kTiles][4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float2 of_keys = kv.scales(step, (k + j / 2) * 8 + lane() % 4 * 2);
#pragma unroll
        for (int i = 0; i < kTiles; i++) {
          const float(&w)[4] = weights[i][k + j / 2];
          const float left = w[j % 2 * 2], right = w[j % 2 * 2 + 1];
          a[i][j] = Tiles::kScales ? bf16_pair(__fmul_rn(left, of_keys.x), __fmul_rn(right, of_keys.y))
                                   : bf16_pair(left, right);
        }
      }
      add_weighted_rows<kDim, kTiles>(o, a, tile, k * 8);
    }
  }
};
