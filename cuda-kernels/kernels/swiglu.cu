// h = silu(gate) * up, with gate and up the halves of one matrix product's rows; and the group sums of h.
//
//   h[r][i] = bf16( gate / (1 + e^-gate) * up ),  gate = gate_up[r][i], up = gate_up[r][f + i], in f32
//   sums    as group_sums makes them of h, if group is not 0
//
// gate_up: m x 2 f bf16, h: m x f bf16, row-major, 16-byte aligned; f a multiple of 8, and of the group. sums: f / group
// rows of m rounded up to a multiple of 4, f32. In f32: e^x by ex2.approx (2 units), the division correctly rounded, then
// one rounding to bf16.
// Tile: 8 columns a thread, 128 threads, grid (m, ceil(f / 1024)). No shared memory.
#include "common/activation.cuh"
#include "common/bf16x8.cuh"
#include "common/groups.cuh"

KERNEL(128, 1) swiglu(const u16* gate_up, u16* h, float* sums, u32 m, u32 f, u32 group) {
  const u32 row = blockIdx.x, column = (blockIdx.y * 128 + threadIdx.x) * 8;
  const bool inside = column < f;
  uint4 v = make_uint4(0, 0, 0, 0);
  if (inside) {
    const u16* from = gate_up + (u64)row * 2 * f + column;
    float gate[8], up[8];
    widen(*(const uint4*)from, gate);
    widen(*(const uint4*)(from + f), up);
#pragma unroll
    for (int e = 0; e < 8; e++) gate[e] = gated(gate[e], up[e]);
    v = narrow(gate);
    *(uint4*)(h + (u64)row * f + column) = v;
  }
  if (group) write_group_sum(sums, v, row, column, inside, m, group);
}
