// GGUF Q4_0 blocks to the arrays that q4_0_prefill reads, at load time.
//
//   block (18 bytes)   f16 scale, 16 bytes; byte i: weight i in the low nibble, weight i + 16 in the high one
//   weights            4 u32 a block, eight codes each, weight 8 w first and lowest in word w: MLX's packing
//   scales             f16 a block
//
// blocks: count blocks, 2-byte aligned; rows of blocks lie one after the other, so rows need no mention.
// weights: 16-byte aligned. Tile: a block a thread, 256 threads, ceil(count / 256) blocks. No shared memory.
#include "common/types.cuh"

KERNEL(256, 1) q4_0_split(const u16* blocks, uint4* weights, u16* scales, u64 count) {
  const u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  const u16* block = blocks + i * 9;
  scales[i] = block[0];
  u32 word[4] = {0, 0, 0, 0};
#pragma unroll
  for (int pair = 0; pair < 8; pair++) {
    // Bytes 2 pair and 2 pair + 1: two low nibbles for words 0, 1, two high ones for words 2, 3.
    const u32 bytes = block[1 + pair];
    const u32 low = bytes & 0xf | (bytes >> 8 & 0xf) << 4, high = bytes >> 4 & 0xf | (bytes >> 12) << 4;
    word[pair / 4] |= low << (pair % 4 * 8);
    word[2 + pair / 4] |= high << (pair % 4 * 8);
  }
  weights[i] = make_uint4(word[0], word[1], word[2], word[3]);
}
