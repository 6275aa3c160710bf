// y = x W^T for 1 to 32 rows of bf16 inputs: a token, or the window of one that is verified. Every weight is read once.
//
//   y[r][o] = sum over 8 slices w, ascending:  sum over the slice's groups g, ascending, by fma:
//               s[o][g] * dot(q[o], x[r])  +  b[o][g] * sum(x[r])
//
// Slice w has the 128-input blocks w, w + 8, w + 16, ... of a row: a warp's. The dots run on the bf16 tensor cores, weights
// as rows and inputs as columns of m16n8k16, so one row takes the instructions that eight do, and an output's bits depend
// on its weights and its inputs alone: not on the number of rows, their order, or the tile. Codes are exact in bf16. The
// sum of a group's inputs comes from the tensor cores too, as the dot with ones; no other kernel has to make it. bf16
// weights have no groups: a slice is one sum in the accumulators.
//
// Inputs within 32 may come in any order as long as weights follow: lane (g, t) takes inputs 8t..8t+7, which are one word
// of packed codes and one 16-byte load of x.
//
// A block has 16 or 32 outputs, a warp of it its own stages of shared memory: 128 weights a row by cp.async, 16-byte pieces
// exchanged within a row so that reading has no bank conflicts; no warp waits for another before the end. Scales come
// by registers, a step ahead.
//
// A tile's 16 rows are outputs in order, or for SwiGLU eight gates and the eight ups that go with them: both sums of an
// output of it end in one lane, and none of the product's outputs is written.
//
//   stage, 4-bit   16 rows of  4 pieces   piece c of row r at c ^ (r / 2 & 3)
//   stage, 8-bit   16 rows of  8 pieces   piece c of row r at c ^ (r & 7)
//   stage, bf16    16 rows of 16 pieces   piece c of row r at c ^ (r & 1) * 4
//
// Error against the real-number formula, u = 2^-24, tensor cores as for affine4_prefill: per output
//   2 u * sum over groups |s| * group * sum |q x|  (and |b| * group * sum |x|)  +  u * (2 k / group + 8) |partial sums|
// plus the output's rounding. A NaN or an infinity in a row leaves no finite output in that row, and touches no other.
#pragma once
#include "activation.cuh"
#include "async_copy.cuh"
#include "tensor_core.cuh"
#include "warp.cuh"
#include "weights.cuh"

// How y is written: rounded to bf16, as f32, or added to bf16 (in f32, rounded once); or not at all, but
// bf16(gated(bf16(y[i]), bf16(y[i + n / 2]))) for i below n / 2, a multiple of 16: the bits that swiglu makes of y.
enum Written : u32 { kBf16 = 0, kF32 = 1, kAddBf16 = 2, kSwiglu = 3 };

struct Product {
  const u16* x;
  const u8* weights;
  const u16 *scales, *biases;
  void* y;
  u32 m, n, k, written;
};

// A stage of packed codes: 128 weights of a row are 4 pieces, a 32-block of them is one.
struct Nibbles128 {
  static constexpr u32 kPieces = 4;
  DEVICE static u32 piece(u32 r, u32 c) { return (r * 4 + (c ^ (r / 2 & 3))) * 16; }
  DEVICE static void words(u32 (&word)[4], const u8* stage, u32 r, u32 block, u32 t) {
    word[0] = *(const u32*)(stage + piece(r, block) + t * 4);
  }
};

// Affine 4-bit, codes 0..15 with a bias.
template <int group>
struct AffineRows : Nibbles128, Affine4<group> {};

// Q4_0, codes minus 8: exact in bf16, so no bias is needed.
struct Q4_0Rows : Nibbles128, Q4_0 {
  static constexpr bool kBias = false;
  // 128 + code is 0x4300 | code; 136 comes off.
  template <int i>
  DEVICE static u32 pair(const u32* word) {
    const u32 bytes = pick_bytes(word[0], word[0] >> 4, i | i << 4 | (4 + i) << 8 | (4 + i) << 12);
    return fma_bf16_pairs(bytes & 0x000f000f | 0x43004300, kOnes, 0xc308c308);
  }
};

// Q8_0: a 32-block is two pieces, its even codes and its odd ones.
struct Q8_0Rows : Q8_0 {
  static constexpr u32 kPieces = 8;
  DEVICE static u32 piece(u32 r, u32 c) { return (r * 8 + (c ^ (r & 7))) * 16; }
  DEVICE static void words(u32 (&word)[4], const u8* stage, u32 r, u32 block, u32 t) {
    word[0] = *(const u32*)(stage + piece(r, block * 2) + t * 4);
    word[1] = *(const u32*)(stage + piece(r, block * 2 + 1) + t * 4);
  }
};

// bf16 as it is; no groups.
struct Bf16Rows {
  static constexpr int kGroup = 0, kParameters = 0;
  static constexpr bool kBias = false;
  static constexpr u32 kPieces = 16;
  DEVICE static u32 piece(u32 r, u32 c) { return (r * 16 + (c ^ (r & 1) * 4)) * 16; }
  DEVICE static void words(u32 (&word)[4], const u8* stage, u32 r, u32 block, u32 t) {
    const uint4 v = *(const uint4*)(stage + piece(r, block * 4 + t));
    word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
  }
  template <int i>
  DEVICE static u32 pair(const u32* word) {
    return word[i];
  }
  DEVICE static void store(u32*, int, u16) {}
  DEVICE static float scale(u32) { return 1.0f; }
  DEVICE static float bias(u32) { return 0.0f; }
};

// Up to 8 * row_tiles rows by 16 * output_tiles outputs.
template <class Weights, int row_tiles, int output_tiles, int stages>
struct Matvec {
  static constexpr u32 kWarps = 8, kPieces = Weights::kPieces, kTile = 16 * kPieces * 16;
  static constexpr u32 kStage = output_tiles * kTile, kRing = stages * kStage;
  static constexpr int kTiles = row_tiles * output_tiles, kUnrolled = row_tiles == 1 ? 4 : 1;
  static_assert(kRing >= kTiles * 32 * 16, "the partial sums take the stages' place");

  const Product& p;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  // Outputs from a tile's first to the next one's, and to its ninth.
  const u32 next_tile = p.written == kSwiglu ? 8 : 16, next_half = p.written == kSwiglu ? p.n / 2 : 8;
  u8* const ring = shared_memory + warp * kRing;
  const u32 ring_address = shared_address(ring);

  DEVICE Matvec(const Product& p) : p(p) { needs_shared<(int)(kWarps * kRing)>(); }

  // Row r of the block's tiles.
  DEVICE u32 output(u32 r) const {
    return (blockIdx.x * output_tiles + r / 16) * next_tile + r % 16 / 8 * next_half + r % 8;
  }

  // Starts copying step `i` of this warp: 128 weights of each of the block's outputs, zeros beyond the matrix.
  DEVICE void load(u32 i) {
    const u32 block = warp + i * kWarps;
    const u32 to = ring_address + i % stages * kStage;
    if (block * 128 < p.k) {
#pragma unroll
      for (u32 piece = lane; piece < 16 * output_tiles * kPieces; piece += 32) {
        const u32 r = piece / kPieces, c = piece % kPieces, o = output(r);
        const bool inside = o < p.n && block * 128 + c * (128 / kPieces) < p.k;
        // A row's bytes: k / 128 times 16 kPieces.
        const u64 at = (u64)o * (p.k / (128 / kPieces)) + block * kPieces + c;
        copy16(to + r / 16 * kTile + Weights::piece(r % 16, c), p.weights + (inside ? at * 16 : 0), inside ? 16 : 0);
      }
    }
    commit_copies();
  }

  // The parameters of step `i`: lane (g, t) gets those of 32-block t, rows g and g + 8 of each tile; 0 beyond.
  DEVICE void parameters(u32 (&word)[output_tiles][2], u32 i) {
    if (Weights::kParameters == 0) return;
    constexpr u32 group = Weights::kGroup ? Weights::kGroup : 1;
    const u32 column = (warp + i * kWarps) * 128 + t * 32;
#pragma unroll
    for (int tile = 0; tile < output_tiles; tile++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const u32 o = output(tile * 16 + half * 8 + g);
        word[tile][half] = 0;
        if (o >= p.n || column >= p.k) continue;
        const u64 at = (u64)o * (p.k / group) + column / group;
        Weights::store(&word[tile][half], 0, p.scales[at]);
        if (Weights::kParameters == 2) Weights::store(&word[tile][half], 1, p.biases[at]);
      }
    }
  }

  DEVICE void run() {
#pragma unroll
    for (u32 i = 0; i + 1 < stages; i++) load(i);
    u32 word[output_tiles][2], next[output_tiles][2];
    parameters(next, 0);
    float y[row_tiles][output_tiles][4] = {};
    for (u32 i = 0; (warp + i * kWarps) * 128 < p.k; i++) {
      wait_copies<stages - 2>();
      // All threads' copies have arrived, and all threads have read the stage that is loaded now.
      warp_barrier();
      load(i + stages - 1);
#pragma unroll
      for (int tile = 0; tile < output_tiles; tile++) word[tile][0] = next[tile][0], word[tile][1] = next[tile][1];
      parameters(next, i + 1);
      step(i, word, y);
    }
    // No copy is in flight any more: a warp has used every stage that it loaded.
    __syncthreads();
    finish(y);
  }

  // Multiplies a step's 128 weights.
  DEVICE void step(u32 i, const u32 (&word)[output_tiles][2], float (&y)[row_tiles][output_tiles][4]) {
    const u8* stage = ring + i % stages * kStage;
    const u32 column0 = (warp + i * kWarps) * 128;
    float dot[row_tiles][output_tiles][4] = {}, sum[row_tiles][4] = {};
    // More rows leave no registers for the loads of several blocks at once.
#pragma unroll kUnrolled
    for (int block = 0; block < 4; block++) {
      uint4 x[row_tiles];
      const u32 column = column0 + block * 32 + t * 8;
#pragma unroll
      for (int tile = 0; tile < row_tiles; tile++) {
        const u32 r = tile * 8 + g;
        x[tile] = make_uint4(0, 0, 0, 0);
        if (r < p.m && column < p.k) x[tile] = *(const uint4*)(p.x + (u64)r * p.k + column);
        if (Weights::kBias) {
          mma_bf16(sum[tile], kOnes, kOnes, kOnes, kOnes, x[tile].x, x[tile].y, sum[tile]);
          mma_bf16(sum[tile], kOnes, kOnes, kOnes, kOnes, x[tile].z, x[tile].w, sum[tile]);
        }
      }
#pragma unroll
      for (int tile = 0; tile < output_tiles; tile++) {
        u32 low[4], high[4];
        Weights::words(low, stage + tile * kTile, g, block, t);
        Weights::words(high, stage + tile * kTile, g + 8, block, t);
        const u32 a[4] = {Weights::template pair<0>(low), Weights::template pair<0>(high),
                          Weights::template pair<1>(low), Weights::template pair<1>(high)};
        const u32 b[4] = {Weights::template pair<2>(low), Weights::template pair<2>(high),
                          Weights::template pair<3>(low), Weights::template pair<3>(high)};
#pragma unroll
        for (int r = 0; r < row_tiles; r++) {
          float(&to)[4] = Weights::kGroup ? dot[r][tile] : y[r][tile];
          mma_bf16(to, a[0], a[1], a[2], a[3], x[r].x, x[r].y, to);
          mma_bf16(to, b[0], b[1], b[2], b[3], x[r].z, x[r].w, to);
        }
      }
      if (Weights::kGroup && (block + 1) * 32 % (Weights::kGroup ? Weights::kGroup : 1) == 0) {
        scale(block, word, dot, sum, y);
      }
    }
  }

  // Ends the group that 32-block `block` ends: adds it to y, and starts anew.
  DEVICE void scale(u32 block, const u32 (&word)[output_tiles][2], float (&dot)[row_tiles][output_tiles][4],
                    float (&sum)[row_tiles][4], float (&y)[row_tiles][output_tiles][4]) {
#pragma unroll
    for (int tile = 0; tile < output_tiles; tile++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const u32 parameter = word_of(word[tile][half], lane - t + block);
        const float s = Weights::scale(parameter), b = Weights::bias(parameter);
#pragma unroll
        for (int r = 0; r < row_tiles; r++) {
#pragma unroll
          for (int e = half * 2; e < half * 2 + 2; e++) {
            y[r][tile][e] = __fmaf_rn(s, dot[r][tile][e], y[r][tile][e]);
            if (Weights::kBias) y[r][tile][e] = __fmaf_rn(b, sum[r][e], y[r][tile][e]);
            dot[r][tile][e] = 0.0f;
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < row_tiles; r++) {
#pragma unroll
      for (int e = 0; e < 4; e++) sum[r][e] = 0.0f;
    }
  }

  // Adds the warps' parts in order and writes them.
  DEVICE void finish(const float (&y)[row_tiles][output_tiles][4]) {
    float4* parts = (float4*)shared_memory;
#pragma unroll
    for (int r = 0; r < row_tiles; r++) {
#pragma unroll
      for (int tile = 0; tile < output_tiles; tile++) {
        parts[(warp * kTiles + r * output_tiles + tile) * 32 + lane] =
            make_float4(y[r][tile][0], y[r][tile][1], y[r][tile][2], y[r][tile][3]);
      }
    }
    __syncthreads();
    constexpr u32 rows = 16 * output_tiles;
    const bool halved = p.written == kSwiglu;
    for (u32 i = threadIdx.x; i < 8 * row_tiles * rows; i += kWarps * 32) {
      const u32 r = i / rows, o = i % rows, column = output(o);
      if (r >= p.m || column >= p.n || (halved && o % 16 >= 8)) continue;
      // Row o of the tiles, row r of x in the accumulators: lane (o % 8, r % 8 / 2), element r % 2, the upper half's two
      // further on.
      const u32 tile = r / 8 * output_tiles + o / 16, holder = o % 8 * 4 + r % 8 / 2, e = o % 16 / 8 * 2 + r % 2;
      const float* part = (const float*)parts + (tile * 32 + holder) * 4 + e;
      const float sum = sum_of_warps(part);
      const u64 to = (u64)r * (halved ? p.n / 2 : p.n) + column;
      u16* narrow = (u16*)p.y + to;
      if (p.written == kF32) {
        ((float*)p.y)[to] = sum;
      } else if (halved) {
        const u32 both = bf16_pair(sum, sum_of_warps(part + 2));
        *narrow = (u16)bf16_pair(gated(bf16_low(both), bf16_high(both)), 0.0f);
      } else {
        *narrow = (u16)bf16_pair(p.written == kAddBf16 ? __fadd_rn(bf16_low(*narrow), sum) : sum, 0.0f);
      }
    }
  }

  // The parts of one element, the first warp's at `part`, in the order of the warps.
  DEVICE static float sum_of_warps(const float* part) {
    float sum = part[0];
#pragma unroll
    for (u32 w = 1; w < kWarps; w++) sum = __fadd_rn(sum, part[w * kTiles * 32 * 4]);
    return sum;
  }
};
