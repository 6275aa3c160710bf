// The outputs of a block of lines whose positions it goes over alone.
#pragma once
#include "attention.cuh"

template <class Tiles, int tiles_of_lines>
DEVICE void attention_prefill(const Attention& p, u16* out, float* lse) {
  using Block = AttentionBlock<Tiles, tiles_of_lines>;
  needs_shared<Block::kShared>();
  // The last rows see most: they begin first.
  Block block(p, (gridDim.x - 1 - blockIdx.x) * Block::kLines, blockIdx.y);
  const u32 begin = p.low(block.line0 / p.group), end = p.high(block.last_row());
  if (begin < end) block.run(begin, end);
  // All tiles have been used when every warp is here.
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Block::kTiles; i++) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const u32 line = smaller(block.line(i, half), p.lines() - 1);
      float sum = quad_sum(block.l[i][half]), top = block.m[i][half], correction = 1.0f;
      if (p.sinks != nullptr) {
        const float sink = __fmul_rn(p.sinks[p.head_of(block.kv_head, line)], kLog2E);
        top = max_f32(top, sink);
        const float base = exponent_base(top);
        correction = exp2_approximate(__fsub_rn(block.m[i][half], base));
        sum = __fmaf_rn(sum, correction, exp2_approximate(__fsub_rn(sink, base)));
      }
      factor[half] = sum == 0.0f ? 0.0f : __fdiv_rn(correction, sum);
      if (lse != nullptr && block.line(i, half) < p.lines() && block.lane() % 4 == 0) {
        const u64 at = (u64)p.head_of(block.kv_head, line) * p.rows + line / p.group;
        lse[at] = sum == 0.0f ? minus_infinity() : __fmul_rn(__fadd_rn(top, log2_approximate(sum)), kLn2);
      }
    }
    u8* staged = shared_memory + block.tile_line(i) * (Block::kDim * 2);
    store_lines<Block::kDim>(block.o[i], factor, staged, [&](u32 r) -> u16* {
      const u32 line = block.line0 + block.tile_line(i) + r;
      return line < p.lines() ? out + p.query(block.kv_head, line) * Block::kDim : nullptr;
    });
  }
}
