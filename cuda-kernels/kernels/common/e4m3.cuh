// f32 to e4m3 by integer operations, the same on every architecture: the instruction begins with compute capability 8.9.
#pragma once
#include "bf16.cuh"

// The code of x, which is not NaN: to the nearest, ties to even, beyond 448 the code of 448. Subnormals as they are.
DEVICE u32 e4m3_code(float x) {
  const u32 sign = as_bits(x) >> 24 & 0x80;
  const float magnitude = as_float(as_bits(x) & 0x7fffffff);
  if (magnitude >= 448.0f) return sign | 0x7e;
  // Below 2^-6 the spacing is 2^-9: at 2^14 that is f32's own, so the addition rounds; 8 is the code of 2^-6.
  if (magnitude < 0.015625f) return sign | as_bits(__fadd_rn(magnitude, 16384.0f)) & 0xf;
  // Three bits of the significand stay; a carry goes into the exponent, whose bias falls from 127 to 7.
  const u32 bits = as_bits(magnitude), rounded = bits + 0x7ffff + (bits >> 20 & 1);
  return sign | (rounded >> 20) - (120u << 3);
}
