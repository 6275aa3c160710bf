// C[16, 8] = scale[row of C] * (A[16, K] . W[8, K]): int8 activations, 4-bit weights in [-8, 7] packed as 32 a
// 16-byte block (byte i holds weight i low and weight i + 16 high), one warp, K a multiple of 64, three stages.
// Sums start at the bits of 12582912.0, so that read as floats they are 12582912 plus the dot.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(32)
    w4a8_tile(const int8_t* a, const uint8_t* w, const float* scale, float* c, int k) {
  extern __shared__ __align__(16) uint8_t shared[];
  constexpr int A = 16 * 64, STAGE = A + 8 * 32;
  int lane = threadIdx.x, tiles = k / 64;
  auto load = [&](int t) {
    if (t < tiles) {
      uint8_t* to = shared + t % 3 * STAGE;
      for (int i = lane; i < 64; i += 32)
        copy16(shared_address(to + i / 4 * 64 + i % 4 * 16), a + i / 4 * k + t * 64 + i % 4 * 16, true);
      if (lane < 16)
        copy16(shared_address(to + A + lane / 2 * 32 + lane % 2 * 16), w + lane / 2 * (k / 2) + t * 32 + lane % 2 * 16, true);
    }
    commit();
  };
  int sum[4] = {0x4B400000, 0x4B400000, 0x4B400000, 0x4B400000};
  load(0);
  load(1);
  for (int t = 0; t < tiles; t++) {
    wait<1>();
    __syncwarp();
    load(t + 2);
    const uint8_t* from = shared + t % 3 * STAGE;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t fa[4];
      load_matrix(fa, shared_address(from + lane % 16 * 64 + half * 32 + lane / 16 * 16));
      uint32_t v = *reinterpret_cast<const uint32_t*>(from + A + lane / 4 * 32 + half * 16 + lane % 4 * 4);
      // In the upper nibble of a byte a weight counts 16 times.
      mma_s8(sum, fa, (v << 4) & 0xf0f0f0f0u, v & 0xf0f0f0f0u);
    }
  }
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + i / 2 * 8;
    c[row * 8 + lane % 4 * 2 + i % 2] = (__int_as_float(sum[i]) - 12582912.0f) * 0.0625f * scale[row];
  }
}
