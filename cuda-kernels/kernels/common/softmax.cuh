// The numbers of an online softmax, in base 2.
#pragma once
#include "activation.cuh"
#include "groups.cuh"

// The larger of two, or the one that is a number. PTX: fmaxf would bring a toolkit header's path with it.
DEVICE float max_f32(float a, float b) {
  float y;
  asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// log2(x), an absolute error of 2^-22 around 1 and a relative one elsewhere; -infinity for 0. PTX: as above.
DEVICE float log2_approximate(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x, within one unit in the last place; 0 for infinity. PTX: as above.
DEVICE float reciprocal_approximate(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

DEVICE float minus_infinity() { return as_float(0xff800000u); }

// The largest, and the sum, over the four lanes that hold a row of an accumulator; every lane gets the same bits.
DEVICE float quad_max(float x) {
  x = max_f32(x, as_float(exchange(as_bits(x), 1)));
  return max_f32(x, as_float(exchange(as_bits(x), 2)));
}
DEVICE float quad_sum(float x) {
  x = __fadd_rn(x, as_float(exchange(as_bits(x), 1)));
  return __fadd_rn(x, as_float(exchange(as_bits(x), 2)));
}

// The number that exponents are relative to: the maximum, or 0 while there is none, so that no -infinity is subtracted from
// another.
DEVICE float exponent_base(float maximum) { return maximum == minus_infinity() ? 0.0f : maximum; }

// Soft-cap: `x` is 2 log2(e) score / cap, `cap` is log2(e) cap; the capped score in base 2.
//   cap tanh(y) = cap - 2 cap / (1 + e^(2 y)): exact at both infinities, an absolute error of a few units of cap.
DEVICE float soft_capped(float x, float cap) {
  return __fmaf_rn(-2.0f * cap, reciprocal_approximate(__fadd_rn(1.0f, exp2_approximate(x))), cap);
}
