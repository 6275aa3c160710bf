// y = x W^T for GGUF Q4_0 weights, split at load time by q4_0_split; int8 or bf16 inputs.
//
//   int8:  y[r][o] = bf16( sum over groups g:  s[o][g] * a[g][r] * dot(q[o], xq[r])  -  8 s[o][g] * sum[g][r] )
//   bf16:  y[r][o] = bf16( sum over groups g:  s[o][g] * dot(q[o], x[r])  -  8 s[o][g] * sum[g][r] )
//
// The codes go in unsigned, as stored; their offset of 8 is paid with the group's sum. Groups of 32, scales f16 (widened
// exactly, and 8 s is exact too). Otherwise w4a8_prefill and affine4_prefill, with bias -8 s: tiles, grids, errors.
//
// inputs, scales, sums: from w4a8_quantize_g32, or bf16 and group_sums_g32
// weights: n x k / 8 u32, weight_scales: n x k / 32 f16, both from q4_0_split
// y: m x n bf16
// Everything 16-byte aligned, row-major; k a multiple of 32; m and n any.
//
// Entry points q4_0_prefill_{int8,bf16}_{128,64,32,16}x128.
#include "common/prefill.cuh"

#define INT8(bm, wm, blocks)                                                                                    \
  KERNEL(bm / wm * 128, blocks)                                                                                 \
  q4_0_prefill_int8_##bm##x128(const u8* inputs, const float* scales, const float* sums, const u8* weights,     \
                               const u16* weight_scales, u16* y, u32 m, u32 n, u32 k) {                         \
    Prefill<Q4_0, Int8, bm, 128, wm, 32>({inputs, scales, sums, weights, weight_scales, nullptr, y, m, n, k}).run(); \
  }
#define BF16(bm, wm, wn, blocks)                                                                                \
  KERNEL(bm / wm * (128 / wn) * 32, blocks)                                                                     \
  q4_0_prefill_bf16_##bm##x128(const u8* inputs, const float* sums, const u8* weights, const u16* weight_scales, \
                               u16* y, u32 m, u32 n, u32 k) {                                                   \
    Prefill<Q4_0, Bf16, bm, 128, wm, wn>({inputs, nullptr, sums, weights, weight_scales, nullptr, y, m, n, k}).run(); \
  }

INT8(128, 32, 1)
INT8(64, 32, 2)
INT8(32, 32, 3)
INT8(16, 16, 4)
BF16(128, 32, 64, 1)
BF16(64, 32, 32, 2)
BF16(32, 32, 32, 3)
BF16(16, 16, 32, 4)
