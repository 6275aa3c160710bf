// Sums of a block of lines over one chunk of the positions, for attention_merge.
//
// Chunks begin at absolute multiples of `chunk` positions, so a line's sums over one are the same in every launch.
#pragma once
#include "attention.cuh"

// sums: of [row][head][chunk] dim f32, relative to 2^maximum; statistics: of the same (maximum in base 2, sum of the
// weights). Chunks count from `first_chunk`, `chunks` of them. What no line of a block sees is not written.
template <class Tiles>
DEVICE void attention_decode(const Attention& p, float* sums, float2* statistics, u32 chunk, u32 first_chunk) {
  using Block = AttentionBlock<Tiles>;
  needs_shared<Block::kShared>();
  Block block(p, blockIdx.z * Block::kLines, blockIdx.y);
  const u32 from = (first_chunk + blockIdx.x) * chunk;
  const u32 begin = larger(p.low(block.line0 / p.group), from), end = smaller(p.high(block.last_row()), from + chunk);
  if (begin >= end) return;
  block.run(begin, end);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const u32 line = block.line(0, half);
    const float sum = quad_sum(block.l[0][half]);
    if (line >= p.lines()) continue;
    const u64 at = p.query(block.kv_head, line) * gridDim.x + blockIdx.x;
    const u32 t = block.lane() % 4;
    if (t == 0) statistics[at] = make_float2(block.m[0][half], sum);
#pragma unroll
    for (int n = 0; n < Block::kOutputs; n++) {
      *(float2*)(sums + at * Block::kDim + n * 8 + t * 2) =
          make_float2(block.o[0][n][half * 2], block.o[0][n][half * 2 + 1]);
    }
  }
}
