// The gradient of rotary positions, in place: heads turned back by the angles of start + r.
//
// heads: m rows of `count` heads of d bf16, a row `stride` numbers after the last, 16-byte aligned; d 16 times a power of
// two, up to 512. table, order: as for rope_kv. In f32, rounded once: within 4 u (|a| + |b|) of a pair, u = 2^-24, and
// half a bf16 unit.
// Tile: 16 numbers of a head a thread, 128 threads, grid (m, ceil(count * d / 2048)). No shared memory.
#include "common/bf16x8.cuh"
#include "common/rotary.cuh"

KERNEL(128, 1)
rope_backward(u16* heads, const float2* table, u32 count, u32 d, u32 stride, u32 start, u32 order) {
  const u32 lanes = d / 16, thread = blockIdx.y * 128 + threadIdx.x, head = thread / lanes, lane = thread % lanes;
  if (head >= count) return;
  u16* at = heads + (u64)blockIdx.x * stride + head * d + lane * 8;
  float low[8], high[8];
  widen(*(const uint4*)at, low);
  widen(*(const uint4*)(at + d / 2), high);
  rotate(low, high, table + (u64)(start + blockIdx.x) * (d / 2), lane, d, order, -1.0f);
  *(uint4*)at = narrow(low);
  *(uint4*)(at + d / 2) = narrow(high);
}
