// bfloat16 as raw bits: widening is a shift, narrowing rounds to nearest even.
#pragma once
#include "types.cuh"

// The bits of an f32 as a number, and back.
DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 as_bits(float x) { return __float_as_uint(x); }

// The lower and the upper bf16 of a pair, exact.
DEVICE float bf16_low(u32 pair) { return as_float(pair << 16); }
DEVICE float bf16_high(u32 pair) { return as_float(pair & 0xffff0000u); }

// Two f32 rounded to a pair. PTX: one instruction that C++ only offers through cuda_bf16.h.
DEVICE u32 bf16_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
