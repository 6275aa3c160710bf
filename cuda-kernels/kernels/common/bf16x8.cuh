// Eight bf16 in a 16-byte vector, as f32.
#pragma once
#include "bf16.cuh"

DEVICE void widen(const uint4& v, float (&x)[8]) {
  const u32 pair[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    x[2 * i] = bf16_low(pair[i]);
    x[2 * i + 1] = bf16_high(pair[i]);
  }
}

// Rounded to nearest even.
DEVICE uint4 narrow(const float (&x)[8]) {
  return make_uint4(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7]));
}

// a + b, each in f32 and rounded once.
DEVICE uint4 add_bf16x8(const uint4& a, const uint4& b) {
  float x[8], y[8];
  widen(a, x);
  widen(b, y);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = __fadd_rn(x[i], y[i]);
  return narrow(x);
}

// Eight f32 at a 16-byte aligned address.
DEVICE void load8(const float* from, float (&x)[8]) {
  const float4 low = ((const float4*)from)[0], high = ((const float4*)from)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}
