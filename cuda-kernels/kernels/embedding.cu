// Rows of a table of embeddings: y[r] = table[token[r]], rounded to bf16 once.
//
//   affine: fma(scale, code, bias)    Q4_0: scale * (code - 8)    Q8_0: scale * code    bf16: as stored
//
// tokens: m u32, 4-byte aligned. A token beyond the table's n rows gives a row of NaN, and nothing is read for it.
// table, scales, biases: as the prompt matrices' weights (n x k); bf16: n x k numbers, and no scales
// y: m x k bf16. All 16-byte aligned, row-major; k a multiple of 32, and of the group; for bf16 of 8.
// Tile: 8 numbers a thread, 128 threads, grid (m, ceil(k / 1024)). No shared memory.
#include "common/bf16x8.cuh"
#include "common/weights.cuh"

// Weights `column` to `column + 7`: codes, in f32.
DEVICE void nibbles(const u32* words, u64 at, float (&x)[8]) {
  const u32 word = words[at / 8];
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = (float)(word >> (4 * i) & 15);
}

// The same of bytes: of each 32 the even codes come first.
DEVICE void bytes(const u8* codes, u64 at, float (&x)[8]) {
  const u8* block = codes + (at & ~(u64)31) + (at & 31) / 2;
  const u32 even = *(const u32*)block, odd = *(const u32*)(block + 16);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = (float)(signed char)((i & 1 ? odd : even) >> (i / 2 * 8));
}

// The row and first column of a thread; false if there is nothing to write, or only NaN.
DEVICE bool find(const u32* tokens, uint4* y, u32 n, u32 k, u64& from, u64& to) {
  const u32 column = (blockIdx.y * 128 + threadIdx.x) * 8;
  if (column >= k) return false;
  const u32 token = tokens[blockIdx.x];
  from = (u64)token * k + column;
  to = ((u64)blockIdx.x * k + column) / 8;
  if (token < n) return true;
  y[to] = make_uint4(0x7fc07fc0, 0x7fc07fc0, 0x7fc07fc0, 0x7fc07fc0);
  return false;
}

template <int group>
DEVICE void affine(const u32* tokens, const u32* words, const u16* scales, const u16* biases, uint4* y, u32 n, u32 k) {
  u64 from, to;
  if (!find(tokens, y, n, k, from, to)) return;
  float x[8];
  nibbles(words, from, x);
  const float scale = bf16_low(scales[from / group]), bias = bf16_low(biases[from / group]);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = __fmaf_rn(scale, x[i], bias);
  y[to] = narrow(x);
}

#define AFFINE(group)                                                                                                \
  KERNEL(128, 1)                                                                                                     \
  embedding_affine4_g##group(const u32* tokens, const u32* words, const u16* scales, const u16* biases, uint4* y, u32 n, \
                             u32 k) {                                                                                \
    affine<group>(tokens, words, scales, biases, y, n, k);                                                           \
  }

AFFINE(32)
AFFINE(64)
AFFINE(128)

KERNEL(128, 1) embedding_q4_0(const u32* tokens, const u32* words, const u16* scales, uint4* y, u32 n, u32 k) {
  u64 from, to;
  if (!find(tokens, y, n, k, from, to)) return;
  float x[8];
  nibbles(words, from, x);
  const float scale = f16_value(scales[from / 32]);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = __fmul_rn(scale, x[i] - 8.0f);
  y[to] = narrow(x);
}

KERNEL(128, 1) embedding_q8_0(const u32* tokens, const u8* codes, const u16* scales, uint4* y, u32 n, u32 k) {
  u64 from, to;
  if (!find(tokens, y, n, k, from, to)) return;
  float x[8];
  bytes(codes, from, x);
  const float scale = f16_value(scales[from / 32]);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = __fmul_rn(scale, x[i]);
  y[to] = narrow(x);
}

KERNEL(128, 1) embedding_bf16(const u32* tokens, const uint4* table, uint4* y, u32 n, u32 k) {
  u64 from, to;
  if (find(tokens, y, n, k, from, to)) y[to] = table[from / 8];
}
