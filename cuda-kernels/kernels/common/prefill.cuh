// The prompt matrix kernel: y = x W^T for quantized W, the same in int8 and bf16, for every format and tile.
//
//   y[r][o] = bf16( sum over groups g, ascending:  s[o][g] * d(r, o, g) + b[o][g] * sum[g][r] )
//     int8:  d = a[g][r] * (integer dot of codes and int8 inputs)
//     bf16:  d = f32 dot of codes, exact in bf16, and bf16 inputs
//
// A group costs an output two fused multiply-adds in f32 (three in int8), in this order whatever the tile:
//   d = fma(float(accumulator), a, -12582912 a)      int8 only
//   y = fma(s, d, y);  y = fma(b, sum, y)            the second for formats that have a bias
// No output depends on another row or column, on m, or on the tile.
//
// # The integer accumulators start at the bits of 12582912.0
// After the mma they read, as f32, 12582912 + dot exactly, while |dot| < 2^22 (the largest: 127 * 15 * 128 = 243,840 for
// 4-bit codes, 127 * 128 * 32 = 520,192 for 8-bit): one fma takes the offset off and applies `a`, and nothing converts
// integers. The product in it is exact; its constant is rounded, by at most 2^-24 * 12582912 a = 0.75 a.
//
// # Shape of the work
// A block makes bm x bn outputs, a warp 32 (or 16) rows by wn columns of them, in registers. A stage in shared memory is
// 64 inputs deep (128 for groups of 128, so that a group lies in one stage), and cp.async fills stages ahead. In a stage
//   inputs   bm rows, 16-byte pieces exchanged within a row so that neither ldmatrix nor 128-bit loads conflict
//   weights  bn rows as stored, likewise
//   rows     scale and sum of the groups, bm each
// Beside the stages, a ring of 16 groups holds the weights' parameters, one 32-bit word a column: their groups are
// neighbours in memory, so eight groups are fetched at once, in registers, while the previous eight are worked on.
//
// For each group a warp first takes its inputs into registers, then goes over its columns: unpack the weights, mma,
// fold. In int8 the inputs come with ldmatrix, in the quantizer's order. In bf16 lane (g, t) takes inputs 8t..8t+7 of
// row g with one 128-bit load, and its four pairs meet the four pairs of the same lane's weights: the dot does not care
// in which order the inputs come.
#pragma once
#include "async_copy.cuh"
#include "tensor_core.cuh"
#include "weights.cuh"

// What a launch gets. `groups` = k / group; scales are unused in bf16, biases and sums by formats without a bias.
struct Problem {
  const u8* inputs;
  const float *scales, *sums;
  const u8* weights;
  const u16 *weight_scales, *weight_biases;
  u16* y;
  u32 m, n, k;
};

// Byte offset of 16-byte piece `c` of row `r`, `pieces` (2, 4 or 8) a row, so that 8 rows' pieces c lie in all banks.
template <int pieces>
DEVICE u32 swizzled(u32 r, u32 c) {
  return (r * pieces + (c ^ (r / (8 / pieces) & (pieces - 1)))) * 16;
}

struct Int8 {
  static constexpr int kBytes = 1;  // of an input
  static constexpr int kWords = 4;  // of 16 rows and 32 inputs that a lane holds
  static constexpr bool kScales = true;
  using Accumulator = i32;

  template <int row_bytes>
  DEVICE static u32 piece(u32 r, u32 c) {
    return swizzled<row_bytes / 16>(r, c);
  }
  // Where a lane's part of a tile of 16 rows and step 0 is; step s is at that ^ 32 s.
  template <int row_bytes>
  DEVICE static u32 lane_at(u32 lane) {
    return piece<row_bytes>(lane & 15, lane >> 4);
  }
  DEVICE static constexpr u32 step_at(u32 step) { return step * 32; }
  template <int row_bytes>
  DEVICE static void load(u32 (&a)[4], const u8*, u32 address) {
    load_matrices(a, address);
  }
  static constexpr i32 kStart = 0x4b400000;
  template <class Weights>
  DEVICE static void multiply(i32 (&d)[4], const u32 (&a)[4], const u32* word, const i32 (&c)[4]) {
    mma_int8(d, a, Weights::even(word), Weights::odd(word), c);
  }
  DEVICE static float value(i32 accumulator, float scale, float offset) {
    return __fmaf_rn(as_float((u32)accumulator), scale, offset);
  }
};

struct Bf16 {
  static constexpr int kBytes = 2;
  static constexpr int kWords = 8;
  static constexpr bool kScales = false;
  using Accumulator = float;

  // Eight lanes load pieces 4 step + t of rows r and r + 1.
  template <int row_bytes>
  DEVICE static u32 piece(u32 r, u32 c) {
    return r * row_bytes + (c ^ (r & 1) << 2) * 16;
  }
  template <int row_bytes>
  DEVICE static u32 lane_at(u32 lane) {
    return piece<row_bytes>(lane / 4, lane % 4);
  }
  DEVICE static constexpr u32 step_at(u32 step) { return step * 64; }
  template <int row_bytes>
  DEVICE static void load(u32 (&a)[8], const u8* shared, u32 at) {
    const uint4 upper = *(const uint4*)(shared + at);
    const uint4 lower = *(const uint4*)(shared + at + 8 * row_bytes);
    a[0] = upper.x, a[1] = upper.y, a[2] = upper.z, a[3] = upper.w;
    a[4] = lower.x, a[5] = lower.y, a[6] = lower.z, a[7] = lower.w;
  }
  static constexpr float kStart = 0.0f;
  template <class Weights>
  DEVICE static void multiply(float (&d)[4], const u32 (&a)[8], const u32* word, const float (&c)[4]) {
    mma_bf16(d, a[0], a[4], a[1], a[5], Weights::template pair<0>(word), Weights::template pair<1>(word), c);
    mma_bf16(d, a[2], a[6], a[3], a[7], Weights::template pair<2>(word), Weights::template pair<3>(word), d);
  }
  DEVICE static float value(float accumulator, float, float) { return accumulator; }
};

template <class Weights, class Precision, int bm, int bn, int wm, int wn>
struct Prefill {
  static constexpr int kThreads = (bm / wm) * (bn / wn) * 32;
  static constexpr int kGroup = Weights::kGroup, kSteps = kGroup / 32;
  static constexpr int kDepth = kGroup > 64 ? kGroup : 64, kGroups = kDepth / kGroup;
  static constexpr int kStages = kDepth > 64 ? 2 : 3;
  static constexpr int kRowArrays = Precision::kScales + Weights::kBias;
  static constexpr int kInputRow = kDepth * Precision::kBytes, kWeightRow = kDepth / 32 * Weights::kBytes;
  static constexpr int kWeightsAt = bm * kInputRow, kRowsAt = kWeightsAt + bn * kWeightRow;
  static constexpr int kStage = kRowsAt + kRowArrays * kGroups * bm * 4;
  static constexpr int kFetched = 8, kRing = 2 * kFetched;  // groups of parameters
  static constexpr int kSharedBytes = kStages * kStage + kRing * bn * 4;

  static constexpr int kRowTiles = wm / 16, kColumnTiles = wn / 8;
  static constexpr int kTileWords = kSteps * Weights::kWords;  // words of a column tile and group that a lane holds
  static constexpr int kTilesAtOnce = 4 / kTileWords;          // whose words one ldmatrix brings
  static_assert(kColumnTiles % kTilesAtOnce == 0, "");

  static constexpr int kParameterRows = Weights::kParameters * bn;
  static constexpr int kHeld = (kParameterRows + kThreads - 1) / kThreads;

  const Problem p;
  u8* shared;
  u32 shared_at, m0, n0, groups;

  // Blocks go down 8 row tiles, then to the next column tile, so that those running together share inputs and weights.
  DEVICE Prefill(const Problem& problem) : p(problem), shared(shared_memory), shared_at(shared_address(shared_memory)) {
    needs_shared<kSharedBytes>();
    const u32 row_tiles = (p.m + bm - 1) / bm, column_tiles = (p.n + bn - 1) / bn;
    const u32 band = blockIdx.x / (8 * column_tiles) * 8, within = blockIdx.x % (8 * column_tiles);
    const u32 height = smaller(row_tiles - band, 8u);
    m0 = (band + within % height) * bm;
    n0 = within / height * bn;
    groups = p.k / kGroup;
  }

  // The warp's outputs within the block's.
  DEVICE static u32 first_row(u32 thread) { return thread / 32 % (bm / wm) * wm; }
  DEVICE static u32 first_column(u32 thread) { return thread / 32 / (bm / wm) * wn; }

  // Starts copying inputs, weights and row parameters of stage t.
  DEVICE void load_stage(u32 t) const {
    const u32 thread = thread_again();
    const u32 to = shared_at + t % kStages * kStage;
    constexpr int kInputPieces = kInputRow / 16, kWeightPieces = kWeightRow / 16;
#pragma unroll
    for (int i = 0; i < bm * kInputPieces; i += kThreads) {
      const u32 piece = i + thread, r = piece / kInputPieces, c = piece % kInputPieces;
      if (piece < bm * kInputPieces) {
        const u32 at = t * kDepth + c * (16 / Precision::kBytes);
        const bool inside = m0 + r < p.m && at < p.k;
        const u64 from = ((u64)(m0 + r) * p.k + at) * Precision::kBytes;
        copy16(to + Precision::template piece<kInputRow>(r, c), p.inputs + (inside ? from : 0), inside ? 16 : 0);
      }
    }
#pragma unroll
    for (int i = 0; i < bn * kWeightPieces; i += kThreads) {
      const u32 piece = i + thread, r = piece / kWeightPieces, c = piece % kWeightPieces;
      if (piece < bn * kWeightPieces) {
        const u32 at = t * kDepth + c * (512 / Weights::kBytes);
        const bool inside = n0 + r < p.n && at < p.k;
        const u64 from = ((u64)(n0 + r) * (p.k / 32) + at / 32) * Weights::kBytes + c % (Weights::kBytes / 16) * 16;
        copy16(to + kWeightsAt + swizzled<kWeightPieces>(r, c), p.weights + (inside ? from : 0), inside ? 16 : 0);
      }
    }
    constexpr int kRowPieces = bm / 4;
#pragma unroll
    for (int i = 0; i < kRowArrays * kGroups * kRowPieces; i += kThreads) {
      const u32 piece = i + thread, r = piece % kRowPieces * 4, line = piece / kRowPieces;
      if ((i32)piece < kRowArrays * kGroups * kRowPieces) {
        const u32 group = t * kGroups + line % kGroups;
        const float* array = Precision::kScales && line < kGroups ? p.scales : p.sums;
        const bool inside = m0 + r < p.m && group < groups;
        const u64 from = (u64)group * (((u64)p.m + 3) & ~(u64)3) + m0 + r;
        copy16(to + kRowsAt + piece * 16, array + (inside ? from : 0), inside ? smaller(p.m - m0 - r, 4u) * 4 : 0);
      }
    }
  }

  // Parameters of the kFetched groups from `first` of this thread's columns; zero where there is no such group.
  DEVICE void fetch_parameters(uint4 (&held)[kHeld], u32 first) const {
    const u32 thread = thread_again();
#pragma unroll
    for (int h = 0; h < kHeld; h++) {
      const u32 line = h * kThreads + thread, column = n0 + line % bn;
      held[h] = make_uint4(0, 0, 0, 0);
      if (line >= kParameterRows || column >= p.n || first >= groups) continue;
      const u16* array = Weights::kParameters == 2 && line >= bn ? p.weight_biases : p.weight_scales;
      const u16* from = array + (u64)column * groups + first;
      if (groups % kFetched == 0) {
        held[h] = *(const uint4*)from;
      } else {
        u32 pair[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < kFetched; i++) {
          if (first + i < groups) pair[i / 2] |= (u32)from[i] << (i % 2 * 16);
        }
        held[h] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
      }
    }
  }

  DEVICE u32* ring(u32 group, u32 column) const {
    return (u32*)(shared + kStages * kStage) + group % kRing * bn + column;
  }

  DEVICE void store_parameters(const uint4 (&held)[kHeld], u32 first) const {
    const u32 thread = thread_again();
#pragma unroll
    for (int h = 0; h < kHeld; h++) {
      const u32 line = h * kThreads + thread;
      if (line >= kParameterRows) continue;
      const u32 pair[4] = {held[h].x, held[h].y, held[h].z, held[h].w};
#pragma unroll
      for (int i = 0; i < kFetched; i++) {
        Weights::store(ring(first + i, line % bn), line / bn, (u16)(pair[i / 2] >> (i % 2 * 16)));
      }
    }
  }

  // Adds a stage's groups to the outputs of this warp.
  DEVICE void multiply_stage(float (&y)[kRowTiles][kColumnTiles][4], u32 t) const {
    const u32 thread = thread_again(), stage = t % kStages * kStage;
    const u32 lane = thread % 32, row = first_row(thread), column = first_column(thread);
    // Where this lane's part of the warp's first tile of inputs is, and of its first four matrices of weights; lane / 8
    // tells which of them: a column tile and a part of its group.
    const u32 inputs_at = row * kInputRow + Precision::template lane_at<kInputRow>(lane);
    const u32 weights_at = kWeightsAt + (column + lane / 8 / kTileWords * 8) * kWeightRow +
                           swizzled<kWeightRow / 16>(lane % 8, lane / 8 % kTileWords);
    const float* rows = (const float*)(shared + stage + kRowsAt) + row + lane / 4;
#pragma unroll 1
    for (int group = 0; group < kGroups; group++) {
      u32 a[kRowTiles][kSteps][Precision::kWords];
      float scale[kRowTiles][2], offset[kRowTiles][2], sum[kRowTiles][2];
#pragma unroll
      for (int i = 0; i < kRowTiles; i++) {
#pragma unroll
        for (int step = 0; step < kSteps; step++) {
          const u32 at = stage + (inputs_at ^ Precision::step_at(group * kSteps + step)) + i * 16 * kInputRow;
          Precision::template load<kInputRow>(a[i][step], shared, Precision::kScales ? shared_at + at : at);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float* of_row = rows + group * bm + i * 16 + half * 8;
          scale[i][half] = Precision::kScales ? of_row[0] : 0.0f;
          offset[i][half] = __fmul_rn(scale[i][half], -12582912.0f);
          sum[i][half] = Weights::kBias ? of_row[Precision::kScales * kGroups * bm] : 0.0f;
        }
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; j += kTilesAtOnce) {
        u32 words[4];
        load_matrices(words, shared_at + stage + (weights_at ^ group * kTileWords * 16) + j * 8 * kWeightRow);
#pragma unroll
        for (int jj = 0; jj < kTilesAtOnce; jj++) {
          const uint2 parameters = *(const uint2*)ring(t * kGroups + group, column + (j + jj) * 8 + lane % 4 * 2);
          const float s[2] = {Weights::scale(parameters.x), Weights::scale(parameters.y)};
          const float b[2] = {Weights::bias(parameters.x), Weights::bias(parameters.y)};
#pragma unroll
          for (int i = 0; i < kRowTiles; i++) {
            constexpr auto kStart = Precision::kStart;
            typename Precision::Accumulator d[4] = {kStart, kStart, kStart, kStart};
#pragma unroll
            for (int step = 0; step < kSteps; step++) {
              Precision::template multiply<Weights>(d, a[i][step], words + jj * kTileWords + step * Weights::kWords, d);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
              float& out = y[i][j + jj][e];
              out = __fmaf_rn(s[e % 2], Precision::value(d[e], scale[i][e / 2], offset[i][e / 2]), out);
              if (Weights::kBias) out = __fmaf_rn(b[e % 2], sum[i][e / 2], out);
            }
          }
        }
      }
    }
  }

  DEVICE void store(const float (&y)[kRowTiles][kColumnTiles][4]) const {
    const u32 thread = thread_again(), lane = thread % 32, row = first_row(thread), column = first_column(thread);
#pragma unroll
    for (int i = 0; i < kRowTiles; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const u32 r = m0 + row + i * 16 + half * 8 + lane / 4;
        if (r >= p.m) continue;
#pragma unroll
        for (int j = 0; j < kColumnTiles; j++) {
          const u32 c = n0 + column + j * 8 + lane % 4 * 2;
          u16* to = p.y + (u64)r * p.n + c;
          const u32 pair = bf16_pair(y[i][j][half * 2], y[i][j][half * 2 + 1]);
          if (p.n % 2 == 0) {
            if (c < p.n) *(u32*)to = pair;
          } else {
            if (c < p.n) to[0] = (u16)pair;
            if (c + 1 < p.n) to[1] = (u16)(pair >> 16);
          }
        }
      }
    }
  }

  DEVICE void run() const {
    const u32 stages = (p.k + kDepth - 1) / kDepth;
    for (u32 t = 0; t < kStages - 1; t++) {
      if (t < stages) load_stage(t);
      commit_copies();
    }
    uint4 held[kHeld];
    fetch_parameters(held, 0);
    store_parameters(held, 0);
    float y[kRowTiles][kColumnTiles][4] = {};
    for (u32 t = 0; t < stages; t++) {
      wait_copies<kStages - 2>();
      __syncthreads();
      if (t + kStages - 1 < stages) load_stage(t + kStages - 1);
      commit_copies();
      // The half of the ring that was used up before this stage's barrier.
      const u32 next = t * kGroups + kFetched;
      multiply_stage(y, t);
      if (next % kFetched == 0) {
        fetch_parameters(held, next);
        store_parameters(held, next);
      }
    }
    store(y);
  }
};
