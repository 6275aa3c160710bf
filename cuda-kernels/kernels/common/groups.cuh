// Groups of 32, 64 or 128 bf16 along a row: a lane holds 8 of them, `lanes` = size / 8 neighbours hold a group.
//
// Both results are made with integers, so they do not depend on the order, and every lane of the group gets them.
#pragma once
#include "bf16.cuh"
#include "warp.cuh"

DEVICE u16 element(const uint4& x, int i) {
  const u32 pair = (i >> 1) == 0 ? x.x : (i >> 1) == 1 ? x.y : (i >> 1) == 2 ? x.z : x.w;
  return (u16)(i & 1 ? pair >> 16 : pair);
}

// The bits of the largest magnitude. As integers they order like the numbers, infinity and then NaN on top.
DEVICE u32 group_amax(const uint4& x, int lanes) {
  u32 amax = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) amax = larger(amax, (u32)element(x, i) & 0x7fffu);
#pragma unroll
  for (int distance = 1; distance < lanes; distance *= 2) amax = larger(amax, exchange(amax, distance));
  return amax;
}

// The sum of a group of finite numbers whose largest magnitude has the bits `amax`, rounded to f32 once.
//
// In 64-bit fixed point: a number with exponent field e (subnormals: 1) and 8-bit significand m is m * 2^(e - 134). The
// unit is 2^(base - 134), base = max(top - 47, 1) for the largest exponent field `top`: 128 numbers below 2^55 units
// stay below 2^62. So the sum is exact, and correctly rounded, whenever no nonzero number is more than 2^47 times
// smaller (by exponent) than the largest; of smaller numbers the part below the unit is cut off, less than 2^-47 of the
// largest each. The result times the unit is exact: 24 bits, and no unit is below 2^-133.
DEVICE float group_sum(const uint4& x, u32 amax, int lanes) {
  const i32 base = larger((i32)(amax >> 7) - 47, 1);
  i64 sum = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const u32 bits = element(x, i);
    const u32 field = bits >> 7 & 0xff;
    const u32 significand = (bits & 0x7f) | (field ? 0x80 : 0);
    const i32 shift = larger((i32)field, 1) - base;
    const i64 magnitude = (i64)(significand >> smaller(larger(-shift, 0), 8)) << larger(shift, 0);
    sum += bits & 0x8000 ? -magnitude : magnitude;
  }
#pragma unroll
  for (int distance = 1; distance < lanes; distance *= 2) {
    const u32 low = exchange((u32)sum, distance), high = exchange((u32)(sum >> 32), distance);
    sum += (i64)((u64)high << 32 | low);
  }
  const u32 unit = base >= 8 ? (u32)(base - 7) << 23 : 1u << (base + 15);
  return (float)sum * as_float(unit);
}

// Writes the sum of a group of a row that was just made, as group_sums would: `v` holds columns `column` to `column + 7`
// of it. Lanes beyond the row take part with inside = false. NaN for a group with a NaN or an infinity.
DEVICE void write_group_sum(float* sums, const uint4& v, u32 row, u32 column, bool inside, u32 m, u32 group) {
  const uint4 x = inside ? v : make_uint4(0, 0, 0, 0);
  const u32 top = group_amax(x, group / 8);
  const float sum = group_sum(x, top, group / 8);
  if (!inside || column % group != 0) return;
  sums[(u64)(column / group) * ((u64)(m + 3) & ~(u64)3) + row] = top < 0x7f80 ? sum : as_float(0x7fc00000);
}

// Sets bits of a word in global memory atomically. PTX: atomicOr would bring a toolkit header's path.
DEVICE void set_bits(u32* word, u32 bits) {
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(word), "r"(bits) : "memory");
}
