// Gumbel noise from random words, by operations that round alike on every machine.
//
//   g = -ln(-ln(1 - v)),  v = (word + 1/2) / 2^32
//
// The token with the largest logit / temperature + g is a draw from their softmax. The largest g come from the smallest v,
// where f32 has the most digits. Every operation is a correctly rounded one of f32, fused where it says so: the twin in
// Rust has the same bits. g lies in -3.2..22.9, within 2^-19 of the real number's.
#pragma once
#include "bf16.cuh"

// 2 atanh(s) for |s| < 0.172: the series to s^9, whose rest is below 2^-30 of it.
DEVICE float twice_atanh(float s) {
  const float z = __fmul_rn(s, s), t = __fadd_rn(s, s);
  float p = 1.0f / 9;
  p = __fmaf_rn(p, z, 1.0f / 7);
  p = __fmaf_rn(p, z, 1.0f / 5);
  p = __fmaf_rn(p, z, 1.0f / 3);
  return __fmaf_rn(__fmul_rn(t, z), p, t);
}

// ln x for normal x > 0: x = 2^e m with m from sqrt(1/2) to sqrt(2), and ln m = 2 atanh((m - 1) / (m + 1)).
DEVICE float natural_log(float x) {
  const i32 offset = (i32)as_bits(x) - 0x3f3504f3;
  const float m = as_float((u32)(offset & 0x7fffff) + 0x3f3504f3);
  const float s = __fdiv_rn(__fadd_rn(m, -1.0f), __fadd_rn(m, 1.0f));
  return __fmaf_rn((float)(offset >> 23), 0.693147182f, twice_atanh(s));
}

DEVICE float gumbel(u32 word) {
  constexpr float kUnit = 2.32830644e-10f;  // 2^-32
  const bool small = word < 1u << 30;
  // Below a quarter v itself; above, 1 - v, made of the complement.
  const float v = __fmul_rn(__fadd_rn((float)(small ? word : ~word), 0.5f), kUnit);
  // -ln(1 - v) = 2 atanh(v / (2 - v)).
  const float exponential = small ? twice_atanh(__fdiv_rn(v, __fadd_rn(2.0f, -v))) : -natural_log(v);
  return -natural_log(exponential);
}
