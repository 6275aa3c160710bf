// y = x W^T for GGUF Q8_0 weights, split at load time by q8_0_split; int8 or bf16 inputs.
//
//   int8:  y[r][o] = bf16( sum over groups g:  s[o][g] * a[g][r] * dot(q[o], xq[r]) )
//   bf16:  y[r][o] = bf16( sum over groups g:  s[o][g] * dot(q[o], x[r]) )
//
// Signed codes, groups of 32, scales f16 (widened exactly), no bias, so no sums. |dot| <= 128 * 127 * 32 = 520,192, well
// below the 2^22 of the accumulators' offset; codes are exact in bf16. Otherwise w4a8_prefill and affine4_prefill: tiles,
// grids, errors (with one rounding of the partial sum a group instead of two).
//
// inputs, scales: from w4a8_quantize_g32, or bf16
// weights: n x k int8 in q8_0_split's order, weight_scales: n x k / 32 f16, both from q8_0_split
// y: m x n bf16
// Everything 16-byte aligned, row-major; k a multiple of 32; m and n any.
//
// Entry points q8_0_prefill_{int8,bf16}_{128,64,32,16}x128.
#include "common/prefill.cuh"

#define INT8(bm, wm, blocks)                                                                                    \
  KERNEL(bm / wm * 128, blocks)                                                                                 \
  q8_0_prefill_int8_##bm##x128(const u8* inputs, const float* scales, const u8* weights, const u16* weight_scales, \
                               u16* y, u32 m, u32 n, u32 k) {                                                   \
    Prefill<Q8_0, Int8, bm, 128, wm, 32>({inputs, scales, nullptr, weights, weight_scales, nullptr, y, m, n, k}).run(); \
  }
#define BF16(bm, wm, wn, blocks)                                                                                \
  KERNEL(bm / wm * (128 / wn) * 32, blocks)                                                                     \
  q8_0_prefill_bf16_##bm##x128(const u8* inputs, const u8* weights, const u16* weight_scales, u16* y, u32 m, u32 n, \
                               u32 k) {                                                                         \
    Prefill<Q8_0, Bf16, bm, 128, wm, wn>({inputs, nullptr, nullptr, weights, weight_scales, nullptr, y, m, n, k}).run(); \
  }

INT8(128, 32, 1)
INT8(64, 32, 2)
INT8(32, 32, 3)
INT8(16, 16, 4)
BF16(128, 32, 64, 1)
BF16(64, 32, 32, 2)
BF16(32, 32, 32, 3)
BF16(16, 16, 32, 4)
