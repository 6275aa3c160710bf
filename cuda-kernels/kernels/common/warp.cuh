// Shuffles, votes and sums among the lanes of a warp. All 32 lanes take part in each of them.
#pragma once
#include "types.cuh"

// A neighbour's word, `distance` a power of two. PTX: __shfl_xor_sync would bring a toolkit header's path with it.
DEVICE u32 exchange(u32 word, int distance) {
  u32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(other) : "r"(word), "r"(distance));
  return other;
}

// The word of a lane. PTX: as above.
DEVICE u32 word_of(u32 word, u32 lane) {
  u32 other;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(other) : "r"(word), "r"(lane));
  return other;
}

// A bit for each lane whose predicate holds. PTX: __ballot_sync would bring a toolkit header's path.
DEVICE u32 lanes_where(bool so) {
  u32 bits;
  asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}" : "=r"(bits) : "r"((u32)so));
  return bits;
}

// All lanes see after it what lanes wrote to shared memory before it. PTX: __syncwarp would bring a header's path.
DEVICE void warp_barrier() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// The sum of `lanes` neighbours, a power of two: distances 1, 2, 4, ..., so every lane gets the same bits.
DEVICE float sum_of_lanes(float x, u32 lanes) {
  for (u32 distance = 1; distance < lanes; distance *= 2) {
    x = __fadd_rn(x, __uint_as_float(exchange(__float_as_uint(x), (int)distance)));
  }
  return x;
}

// The largest word of `lanes` neighbours.
DEVICE u32 max_of_lanes(u32 x, u32 lanes) {
  for (u32 distance = 1; distance < lanes; distance *= 2) x = larger(x, exchange(x, (int)distance));
  return x;
}

// The sum over a block of `warps` warps, each thread's bits the same: lanes by distance, then warps in order. `parts` is
// shared memory of `warps` floats that nobody else uses until the next barrier.
template <int warps>
DEVICE float sum_of_block(float x, float* parts) {
  x = sum_of_lanes(x, 32);
  if (warps == 1) return x;
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = parts[0];
#pragma unroll
  for (int warp = 1; warp < warps; warp++) sum = __fadd_rn(sum, parts[warp]);
  return sum;
}
