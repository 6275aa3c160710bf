// h = silu(gate) * up, with gate and up the halves of one matrix product's rows.
//
//   h[r][i] = bf16( gate / (1 + e^-gate) * up ),  gate = gate_up[r][i], up = gate_up[r][f + i], in f32
//
// gate_up: m x 2 f bf16, h: m x f bf16, row-major, 4-byte aligned; f even. In f32: e^x by ex2.approx (2 units), the
// division correctly rounded, then one rounding to bf16.
// Tile: 2 columns a thread, 256 threads, grid (m, ceil(f / 512)). No shared memory.
#include "common/activation.cuh"

KERNEL(256, 1) swiglu(const u32* gate_up, u32* h, u32 m, u32 f) {
  const u32 pair = blockIdx.y * 256 + threadIdx.x, half = f / 2;
  if (pair >= half) return;
  const u64 row = blockIdx.x;
  const u32 gate = gate_up[row * f + pair], up = gate_up[row * f + half + pair];
  h[row * half + pair] = bf16_pair(bf16_low(gate) * sigmoid(bf16_low(gate)) * bf16_low(up),
                                   bf16_high(gate) * sigmoid(bf16_high(gate)) * bf16_high(up));
}
