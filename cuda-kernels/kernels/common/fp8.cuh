// e4m3 codes to bf16, exactly and with integers: the conversion instruction begins with sm_89.
#pragma once
#include "weights.cuh"

// Two codes, in the upper bytes of a word's halves, as a pair of bf16. Sign, exponent and mantissa moved to where bf16
// has them read as 2^-120 of the number, subnormal codes as subnormals; the product takes that back.
DEVICE u32 e4m3_pair(u32 codes) {
  return fma_bf16_pairs(codes & 0x80008000u | codes >> 4 & 0x07f007f0u, 0x7b807b80u, 0x80008000u);
}

// Eight codes as four pairs.
DEVICE uint4 e4m3_to_bf16(u32 low, u32 high) {
  return make_uint4(e4m3_pair(pick_bytes(low, low, 0x1100)), e4m3_pair(pick_bytes(low, low, 0x3322)),
                    e4m3_pair(pick_bytes(high, high, 0x1100)), e4m3_pair(pick_bytes(high, high, 0x3322)));
}
