// The gradient of swiglu's inputs.
//
//   d_gate = dh * up * sigma * (1 + gate * (1 - sigma)),  d_up = dh * gate * sigma,  sigma = 1 / (1 + e^-gate)
//
// gate_up, d_gate_up: m x 2 f bf16 (gate before up in each row), dh: m x f bf16, row-major, 4-byte aligned; f even.
// d_gate_up may be gate_up: a thread reads what it writes. In f32 as swiglu, one rounding to bf16.
// Tile: 2 columns a thread, 256 threads, grid (m, ceil(f / 512)). No shared memory.
#include "common/activation.cuh"

DEVICE void gradient(float gate, float up, float dh, float& d_gate, float& d_up) {
  const float sigma = sigmoid(gate);
  d_gate = dh * up * sigma * (1.0f + gate * (1.0f - sigma));
  d_up = dh * gate * sigma;
}

KERNEL(256, 1) swiglu_backward(const u32* gate_up, const u32* dh, u32* d_gate_up, u32 m, u32 f) {
  const u32 pair = blockIdx.y * 256 + threadIdx.x, half = f / 2;
  if (pair >= half) return;
  const u64 row = blockIdx.x, at = row * f + pair;
  const u32 gate = gate_up[at], up = gate_up[at + half], d = dh[row * half + pair];
  float d_gate[2], d_up[2];
  gradient(bf16_low(gate), bf16_low(up), bf16_low(d), d_gate[0], d_up[0]);
  gradient(bf16_high(gate), bf16_high(up), bf16_high(d), d_gate[1], d_up[1]);
  d_gate_up[at] = bf16_pair(d_gate[0], d_gate[1]);
  d_gate_up[at + half] = bf16_pair(d_up[0], d_up[1]);
}
