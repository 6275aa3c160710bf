// C[16, 8 * warps] = A[16, K] * B[K, 8 * warps]: bf16 inputs, f32 sums, row-major, K a multiple of 16.
// Blocks of 64 threads: two warps, each one 16 x 8 tile. Two cp.async stages of 16 columns of A and 16 rows of B.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(64) tile_bf16(const uint16_t* a, const uint16_t* b, float* c, int k) {
  __shared__ __align__(16) uint16_t as[2][16][16];
  __shared__ __align__(16) uint16_t bs[2][16][16];
  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  // 64 threads copy two times 32 chunks of eight elements.
  int row = thread % 32 / 2, column = thread % 2 * 8;
  auto load = [&](int stage, int at) {
    if (thread < 32)
      copy16(shared_address(&as[stage][row][column]), a + row * k + at + column, true);
    else
      copy16(shared_address(&bs[stage][row][column]), b + (at + row) * 16 + column, true);
    commit();
  };
  float sum[4] = {};
  load(0, 0);
  for (int at = 0; at < k; at += 16) {
    int stage = at / 16 % 2;
    if (at + 16 < k) {
      load(stage ^ 1, at + 16);
      wait<1>();
    } else {
      wait<0>();
    }
    __syncthreads();
    uint32_t fa[4], fb[2];
    load_matrix(fa, shared_address(&as[stage][lane % 16][lane / 16 * 8]));
    load_matrix_transposed(fb, shared_address(&bs[stage][lane % 16][warp * 8]));
    mma_bf16(sum, fa, fb);
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) c[(lane / 4 + i / 2 * 8) * 16 + warp * 8 + lane % 4 * 2 + i % 2] = sum[i];
}
