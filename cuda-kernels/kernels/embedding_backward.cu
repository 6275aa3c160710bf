// The gradient of a table of embeddings: dw[token[r]] += dy[r], rows in order.
//
// tokens: m u32, 4-byte aligned; a token beyond the table's n rows has no gradient. dy: m x k bf16, dw: n x k f32, 16-byte
// aligned, row-major; k a multiple of 8, m up to 2^31.
// A row's block looks whether an earlier row has its token; if not, it adds all rows that have it, ascending, to what dw
// holds: every element has one writer and one order of sums, whatever the grid. m^2 / 2 comparisons of tokens in all.
// Tile: a row a block of 256 threads, 8 columns a thread and pass, grid m.
#include "common/bf16x8.cuh"
#include "common/warp.cuh"

KERNEL(256, 1) embedding_backward(const u32* tokens, const u16* dy, float* dw, u32 m, u32 n, u32 k) {
  __shared__ u32 same[8];
  const u32 token = tokens[blockIdx.x], warp = threadIdx.x / 32;
  if (token >= n) return;
  // Whether rows `first` to `first + 255` have the token, a word a warp.
  const auto look = [&](u32 first, u32 end) {
    __syncthreads();
    const u32 row = first + threadIdx.x;
    const u32 bits = lanes_where(row < end && tokens[row < end ? row : 0] == token);
    if (threadIdx.x % 32 == 0) same[warp] = bits;
    __syncthreads();
  };
  for (u32 first = 0; first < blockIdx.x; first += 256) {
    look(first, blockIdx.x);
    u32 any = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) any |= same[w];
    if (any) return;
  }
  for (u32 first = blockIdx.x; first < m; first += 256) {
    look(first, m);
    for (u32 column = threadIdx.x * 8; column < k; column += 2048) {
      float* to = dw + (u64)token * k + column;
      float sum[8];
      load8(to, sum);
      for (u32 w = 0; w < 8; w++) {
        for (u32 bits = same[w]; bits; bits &= bits - 1) {
          // The lowest set bit's place.
          const u32 row = first + w * 32 + 31 - __clz((int)(bits & (0u - bits)));
          float d[8];
          widen(*(const uint4*)(dy + (u64)row * k + column), d);
#pragma unroll
          for (int e = 0; e < 8; e++) sum[e] = __fadd_rn(sum[e], d[e]);
        }
      }
      ((float4*)to)[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
      ((float4*)to)[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    }
  }
}
