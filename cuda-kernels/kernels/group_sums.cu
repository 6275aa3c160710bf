// sum[g][r] = sum over group g of row r of x: what the bf16 matrix kernels multiply the weights' biases with.
//
// x:    m x k bf16, row-major, 16-byte aligned; k a multiple of the group.
// sums: k / group rows of m rounded up to a multiple of 4, f32; the padding is not written. Exact and rounded once, as
//       common/groups.cuh says; NaN for a group with a NaN or an infinity. The bits that w4a8_quantize writes.
// Tile: 8 inputs a thread, 128 threads a block, grid (m, ceil(k / 1024)). No shared memory.
#include "common/groups.cuh"

template <int group>
DEVICE void sum_groups(const u16* x, float* sums, u32 m, u32 k) {
  const u32 row = blockIdx.x, column = (blockIdx.y * 128 + threadIdx.x) * 8;
  const bool inside = column < k;
  const uint4 v = inside ? *(const uint4*)(x + (u64)row * k + column) : make_uint4(0, 0, 0, 0);
  write_group_sum(sums, v, row, column, inside, m, group);
}

#define GROUP_SUMS(group) \
  KERNEL(128, 1) group_sums_g##group(const u16* x, float* sums, u32 m, u32 k) { sum_groups<group>(x, sums, m, k); }

GROUP_SUMS(32)
GROUP_SUMS(64)
GROUP_SUMS(128)
