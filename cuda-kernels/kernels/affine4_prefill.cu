// y = x W^T for MLX affine 4-bit weights and bf16 inputs, on the bf16 tensor cores: the default precision.
//
//   y[r][o] = bf16( sum over groups g:  s[o][g] * dot(q[o], x[r])  +  b[o][g] * sum[g][r] )
//
// The weights are not rounded to bf16: the codes 0..15 are exact in bf16, their products with bf16 inputs exact in the
// f32 accumulators, and scale and bias are applied to a group's dot and sum in f32, groups ascending. That costs two
// fused multiply-adds an output and group, and the sums (group_sums); rounding s * q + b to bf16 would cost up to 2^-8
// of every weight. common/prefill.cuh has the order of the roundings and the layout of shared memory.
//
// inputs:        m x k bf16
// sums:          from group_sums (or w4a8_quantize: the same bits) of the same group
// weights, weight_scales, weight_biases, y: as for w4a8_prefill
// Everything 16-byte aligned, row-major; k a multiple of the group; m and n any.
//
// Error against the real-number formula, with u = 2^-24 and tensor cores that round f32 sums of 16 products at least as
// well as a chain of truncating additions, for one output:
//   2 u * sum over groups |s| * group * sum |q x|  +  u * sum over the 2 k / group partial sums |y|  +  half a bf16 unit
// A NaN or an infinity in a row makes all outputs of the row NaN, since its group's sum is.
//
// Entry points affine4_prefill_g{32,64,128}_{128,64,32,16}x128: rows x columns of a block. A warp makes 32 x 64 outputs
// in the first, 32 x 32 in the next two, 16 x 32 in the last; 256, 256, 128 and 128 threads. Grid: row tiles times column
// tiles, in one dimension.
// Source: the default path of the same pull request; exact codes instead of rounded weights are ours.
#include "common/prefill.cuh"

#define ENTRY(group, bm, wm, wn, blocks)                                                                             \
  KERNEL(bm / wm * (128 / wn) * 32, blocks)                                                                          \
  affine4_prefill_g##group##_##bm##x128(const u8* inputs, const float* sums, const u8* weights,                      \
                                        const u16* weight_scales, const u16* weight_biases, u16* y, u32 m, u32 n,    \
                                        u32 k) {                                                                     \
    const Problem problem = {inputs, nullptr, sums, weights, weight_scales, weight_biases, y, m, n, k};              \
    Prefill<Affine4<group>, Bf16, bm, 128, wm, wn>(problem).run();                                                   \
  }

ENTRY(32, 128, 32, 64, 1)
ENTRY(32, 64, 32, 32, 2)
ENTRY(32, 32, 32, 32, 3)
ENTRY(32, 16, 16, 32, 4)
ENTRY(64, 128, 32, 64, 1)
ENTRY(64, 64, 32, 32, 2)
ENTRY(64, 32, 32, 32, 3)
ENTRY(64, 16, 16, 32, 4)
ENTRY(128, 128, 32, 64, 1)
ENTRY(128, 64, 32, 32, 1)
ENTRY(128, 32, 32, 32, 2)
ENTRY(128, 16, 16, 32, 2)
