// GGUF Q8_0 blocks to the arrays that q8_0_prefill reads, at load time.
//
//   block (34 bytes)   f16 scale, 32 int8
//   weights            32 int8 a block: codes 0, 2, .. 30, then 1, 3, .. 31, the order of w4a8_quantize
//   scales             f16 a block
//
// blocks: count blocks, 2-byte aligned; rows of blocks lie one after the other, so rows need no mention.
// weights: 16-byte aligned. Tile: a block a thread, 256 threads, ceil(count / 256) blocks. No shared memory.
#include "common/types.cuh"

KERNEL(256, 1) q8_0_split(const u16* blocks, uint4* weights, u16* scales, u64 count) {
  const u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  const u16* block = blocks + i * 17;
  scales[i] = block[0];
  u32 even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
#pragma unroll
  for (int pair = 0; pair < 16; pair++) {
    const u32 bytes = block[1 + pair];
    even[pair / 4] |= (bytes & 0xff) << (pair % 4 * 8);
    odd[pair / 4] |= (bytes >> 8) << (pair % 4 * 8);
  }
  weights[i * 2] = make_uint4(even[0], even[1], even[2], even[3]);
  weights[i * 2 + 1] = make_uint4(odd[0], odd[1], odd[2], odd[3]);
}
