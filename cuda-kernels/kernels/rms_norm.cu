// y = x / sqrt(mean(x^2) + eps) * w, row by row, with the residual sum before it and the group sums behind it.
//
//   x[r]    = bf16(x[r] + delta[r])                                        if there is a delta; x is written back
//   y[r][i] = bf16( (x[r][i] * inverse) * w[i] ),  inverse = 1 / sqrt(sum / k + eps),  sum = sum over i of x[r][i]^2
//   sums    as group_sums makes them of y                                  if group is not 0
//
// The norm reads the sum as rounded: the same bits as add_bf16 followed by the norm and by group_sums.
//
// x, delta, y: m x k bf16, row-major, 16-byte aligned; k a multiple of 8. delta may be null. y may be x only without delta.
// w: k f32, 16-byte aligned. sums: k / group rows of m rounded up to a multiple of 4, f32; k a multiple of the group.
//
// In f32. A thread's squares are added by fma in the order of its columns, lanes at distances 1 to 16, warps in order;
// square root, reciprocal and division are correctly rounded. A row's bits depend on the row and on which entry point.
// Against real numbers, u = 2^-24: |y| * 48 u + half a bf16 unit, for sums of squares between 2^-100 and f32's end. Beyond
// that end the row is 0. A NaN or an infinity in a row makes its own outputs NaN, and the row's others NaN or 0.
//
// rms_norm_narrow: k <= 1024, a row a warp, 4 rows a block of 128 threads, grid ceil(m / 4).
// rms_norm_wide:   k <= 16384, a row a block of 256 threads, grid m.
// Both hold the row, and the weights that were loaded with it, in registers.
#include "common/bf16x8.cuh"
#include "common/groups.cuh"

template <int warps, int rows, int vectors>
DEVICE void rms_norm(u16* x, const u16* delta, const float* weights, u16* y, float* sums, u32 m, u32 k, u32 group,
                     float eps) {
  __shared__ float parts[warps];
  const u32 row = blockIdx.x * rows + threadIdx.x / (warps * 32), thread = threadIdx.x % (warps * 32);
  if (row >= m) return;  // a whole warp
  const u64 start = (u64)row * k;
  uint4 v[vectors];
  float w[vectors][8], square = 0.0f;
#pragma unroll
  for (int i = 0; i < vectors; i++) {
    const u32 column = (i * warps * 32 + thread) * 8;
    v[i] = make_uint4(0, 0, 0, 0);
    if (column < k) {
      v[i] = *(const uint4*)(x + start + column);
      load8(weights + column, w[i]);
      if (delta) {
        v[i] = add_bf16x8(v[i], *(const uint4*)(delta + start + column));
        *(uint4*)(x + start + column) = v[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < vectors; i++) {
    float f[8];
    widen(v[i], f);
#pragma unroll
    for (int e = 0; e < 8; e++) square = __fmaf_rn(f[e], f[e], square);
  }
  square = sum_of_block<warps>(square, parts);
  const float inverse = __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(square, (float)k), eps)));
#pragma unroll
  for (int i = 0; i < vectors; i++) {
    const u32 column = (i * warps * 32 + thread) * 8;
    // All lanes of a warp leave together.
    if (column - thread % 32 * 8 >= k) break;
    const bool inside = column < k;
    if (inside) {
      float f[8];
      widen(v[i], f);
#pragma unroll
      for (int e = 0; e < 8; e++) f[e] = __fmul_rn(__fmul_rn(f[e], inverse), w[i][e]);
      v[i] = narrow(f);
      *(uint4*)(y + start + column) = v[i];
    }
    if (group) write_group_sum(sums, v[i], row, column, inside, m, group);
  }
}

#define PARAMETERS \
  u16 *x, const u16 *delta, const float *weights, u16 *y, float *sums, u32 m, u32 k, u32 group, float eps

KERNEL(128, 1) rms_norm_narrow(PARAMETERS) { rms_norm<1, 4, 4>(x, delta, weights, y, sums, m, k, group, eps); }
KERNEL(256, 1) rms_norm_wide(PARAMETERS) { rms_norm<8, 1, 8>(x, delta, weights, y, sums, m, k, group, eps); }
