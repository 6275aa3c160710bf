// Rotary positions: which numbers of a head are a pair, and a pair's rotation.
//
// A head of d numbers is d / 16 lanes'; lane l holds numbers 8 l .. 8 l + 7 of the lower half and of the upper half.
//   halves (0)     number i and number i + d / 2 are pair i:        the lane's two vectors
//   adjacent (1)   numbers 2 i and 2 i + 1 are pair i:              neighbours in each of them
// table: d / 2 pairs of (cos, sin) for each position.
#pragma once
#include "bf16.cuh"

enum RopeOrder : u32 { kHalves = 0, kAdjacent = 1 };

// Turns (a, b) by the angle of (cos, sin): one product and one fma each.
DEVICE void turn(float& a, float& b, float cosine, float sine) {
  const float x = a, y = b;
  a = __fmaf_rn(x, cosine, -__fmul_rn(y, sine));
  b = __fmaf_rn(x, sine, __fmul_rn(y, cosine));
}

// Turns a lane's numbers; `angles` is the table's row, `direction` is 1, or -1 to turn back.
DEVICE void rotate(float (&low)[8], float (&high)[8], const float2* angles, u32 lane, u32 d, u32 order, float direction) {
  if (order == kHalves) {
    const float4* table = (const float4*)(angles + lane * 8);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const float4 two = table[i / 2];
      turn(low[i], high[i], two.x, direction * two.y);
      turn(low[i + 1], high[i + 1], two.z, direction * two.w);
    }
  } else {
    const float4 *lower = (const float4*)(angles + lane * 4), *upper = (const float4*)(angles + d / 4 + lane * 4);
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const float4 a = lower[i / 4], b = upper[i / 4];
      turn(low[i], low[i + 1], a.x, direction * a.y);
      turn(low[i + 2], low[i + 3], a.z, direction * a.w);
      turn(high[i], high[i + 1], b.x, direction * b.y);
      turn(high[i + 2], high[i + 3], b.z, direction * b.w);
    }
  }
}
