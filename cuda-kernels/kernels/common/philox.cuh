// Random bits by counter: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once
#include "types.cuh"

// Turns a counter of four words, under a key of two, into four random words.
DEVICE void philox(u32 (&counter)[4], u32 key0, u32 key1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const u64 a = (u64)0xd2511f53 * counter[0], b = (u64)0xcd9e8d57 * counter[2];
    counter[0] = (u32)(b >> 32) ^ counter[1] ^ key0;
    counter[1] = (u32)b;
    counter[2] = (u32)(a >> 32) ^ counter[3] ^ key1;
    counter[3] = (u32)a;
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
}
