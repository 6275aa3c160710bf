// The gradients of rms_norm: of its input row by row, of its weights over all rows.
//
//   h[i]  = x[i] * inverse,  inverse = 1 / sqrt(mean(x^2) + eps)
//   dx[i] = (dx[i] +) inverse * (w[i] dy[i] - h[i] * mean(w dy h))      rms_norm_backward_rows
//   dw[i] += sum over rows r of dy[r][i] * h[r][i]                      rms_norm_backward_weights
//
// x, dy, dx: m x k bf16, row-major, 16-byte aligned; k a multiple of 8, up to 16384. w: k f32; dw: k f32; inverses: m f32,
// which the first writes and the second reads. dx may be dy. add: whether the gradient is added to what dx holds (the
// residual stream's own), in f32, rounded once.
// In f32; sums as rms_norm_wide's; for the weights 32 parts of the rows, ascending, then the parts, ascending. The same bits
// every time, with no atomics.
//
// rows:    a row a block of 256 threads, grid m.
// weights: 64 columns a block, 8 a thread, 8 threads across and 32 along the rows; grid ceil(k / 64).
#include "common/bf16x8.cuh"
#include "common/warp.cuh"

KERNEL(256, 1)
rms_norm_backward_rows(const u16* x, const u16* dy, const float* weights, u16* dx, float* inverses, u32 k, float eps,
                       u32 add) {
  __shared__ float squares[8], products[8];
  const u64 start = (u64)blockIdx.x * k;
  uint4 v[8], d[8];
  float square = 0.0f, product = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const u32 column = (i * 256 + threadIdx.x) * 8;
    if (column >= k) break;
    v[i] = *(const uint4*)(x + start + column);
    d[i] = *(const uint4*)(dy + start + column);
    float f[8], g[8], w[8];
    widen(v[i], f);
    widen(d[i], g);
    load8(weights + column, w);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      square = __fmaf_rn(f[e], f[e], square);
      product = __fmaf_rn(__fmul_rn(w[e], g[e]), f[e], product);
    }
  }
  square = sum_of_block<8>(square, squares);
  product = sum_of_block<8>(product, products);
  const float inverse = __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(square, (float)k), eps)));
  // mean(w dy h) * inverse: what multiplies x.
  const float pull = __fmul_rn(__fmul_rn(__fdiv_rn(product, (float)k), inverse), inverse);
  if (threadIdx.x == 0) inverses[blockIdx.x] = inverse;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const u32 column = (i * 256 + threadIdx.x) * 8;
    if (column >= k) break;
    float f[8], g[8], w[8], old[8];
    widen(v[i], f);
    widen(d[i], g);
    load8(weights + column, w);
    if (add) widen(*(const uint4*)(dx + start + column), old);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      g[e] = __fmul_rn(inverse, __fmaf_rn(-pull, f[e], __fmul_rn(w[e], g[e])));
      if (add) g[e] = __fadd_rn(old[e], g[e]);
    }
    *(uint4*)(dx + start + column) = narrow(g);
  }
}

KERNEL(256, 1)
rms_norm_backward_weights(const u16* x, const u16* dy, const float* inverses, float* dw, u32 m, u32 k) {
  __shared__ float parts[32][64];
  const u32 across = threadIdx.x % 8, along = threadIdx.x / 8, column = blockIdx.x * 64 + across * 8;
  float sum[8] = {};
  if (column < k) {
    for (u32 row = along; row < m; row += 32) {
      const u64 at = (u64)row * k + column;
      float f[8], g[8];
      widen(*(const uint4*)(x + at), f);
      widen(*(const uint4*)(dy + at), g);
      const float inverse = inverses[row];
#pragma unroll
      for (int e = 0; e < 8; e++) sum[e] = __fmaf_rn(g[e], __fmul_rn(f[e], inverse), sum[e]);
    }
  }
#pragma unroll
  for (int e = 0; e < 8; e++) parts[along][across * 8 + e] = sum[e];
  __syncthreads();
  const u32 i = blockIdx.x * 64 + threadIdx.x;
  if (threadIdx.x >= 64 || i >= k) return;
  float total = dw[i];
  for (u32 part = 0; part < 32; part++) total = __fadd_rn(total, parts[part][threadIdx.x]);
  dw[i] = total;
}
