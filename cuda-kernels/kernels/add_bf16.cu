// out[i] = bf16(a[i] + b[i]): the residual sum, in f32, rounded once.
//
// a, b, out: n bf16, 16-byte aligned; out may be a or b. n: any.
// Tile: 8 numbers a thread, 256 threads a block, ceil(n / 2048) blocks. No shared memory.
#include "common/bf16.cuh"

KERNEL(256, 1) add_bf16(const uint4* a, const uint4* b, uint4* out, u64 n) {
  const u64 vector = (u64)blockIdx.x * 256 + threadIdx.x;
  const u64 first = vector * 8;
  if (first + 8 <= n) {
    const uint4 x = a[vector], y = b[vector];
    uint4 sum;
    sum.x = bf16_pair(bf16_low(x.x) + bf16_low(y.x), bf16_high(x.x) + bf16_high(y.x));
    sum.y = bf16_pair(bf16_low(x.y) + bf16_low(y.y), bf16_high(x.y) + bf16_high(y.y));
    sum.z = bf16_pair(bf16_low(x.z) + bf16_low(y.z), bf16_high(x.z) + bf16_high(y.z));
    sum.w = bf16_pair(bf16_low(x.w) + bf16_low(y.w), bf16_high(x.w) + bf16_high(y.w));
    out[vector] = sum;
    return;
  }
  const u16 *x = (const u16*)a, *y = (const u16*)b;
  for (u64 i = first; i < n; i++) {
    ((u16*)out)[i] = (u16)bf16_pair(bf16_low(x[i]) + bf16_low(y[i]), 0.0f);
  }
}
