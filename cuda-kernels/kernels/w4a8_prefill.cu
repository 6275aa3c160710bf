// y = x W^T for MLX affine 4-bit weights and int8 inputs, on the int8 tensor cores.
//
//   y[r][o] = bf16( sum over groups g:  s[o][g] * a[g][r] * dot(q[o], xq[r])  +  b[o][g] * sum[g][r] )
//
// The dot over a group is exact in i32; the rest is f32, groups ascending (common/prefill.cuh has the order of the
// roundings, the layout of shared memory and the 12582912.0 trick).
//
// inputs:        m x k int8, scales and sums: from w4a8_quantize of the same group
// weights:       n x k / 8 u32 as MLX stores them, eight codes a word, the first in the lowest nibble
// weight_scales, weight_biases: n x k / group bf16
// y:             m x n bf16
// Everything 16-byte aligned, row-major; k a multiple of the group; m and n any.
//
// Error against the real-number formula, with u = 2^-24, for one output:
//   sum over groups |s| a (0.75 + u |dot|)  +  u * sum over the 2 k / group partial sums |y|  +  half a bf16 unit of y
// The first term is the rounding of the constant in the fma that takes the accumulators' offset off, at most one unit of
// the integer dot.
//
// Entry points w4a8_prefill_g{32,64,128}_{128,64,32,16}x128: rows x columns of a block. A warp makes 32 x 32 outputs
// (16 x 32 in the last), 512, 256, 128 and 128 threads. Grid: row tiles times column tiles, in one dimension.
// Source: the W4A8 scheme of TensorFold's pull request 1176.
#include "common/prefill.cuh"

#define ENTRY(group, bm, wm, blocks)                                                                          \
  KERNEL(bm / wm * 128, blocks)                                                                               \
  w4a8_prefill_g##group##_##bm##x128(const u8* inputs, const float* scales, const float* sums,                \
                                     const u8* weights, const u16* weight_scales, const u16* weight_biases,   \
                                     u16* y, u32 m, u32 n, u32 k) {                                           \
    const Problem problem = {inputs, scales, sums, weights, weight_scales, weight_biases, y, m, n, k};        \
    Prefill<Affine4<group>, Int8, bm, 128, wm, 32>(problem).run();                                            \
  }

ENTRY(32, 128, 32, 1)
ENTRY(32, 64, 32, 2)
ENTRY(32, 32, 32, 3)
ENTRY(32, 16, 16, 4)
ENTRY(64, 128, 32, 1)
ENTRY(64, 64, 32, 2)
ENTRY(64, 32, 32, 3)
ENTRY(64, 16, 16, 4)
ENTRY(128, 128, 32, 1)
ENTRY(128, 64, 32, 2)
ENTRY(128, 32, 32, 3)
ENTRY(128, 16, 16, 4)
