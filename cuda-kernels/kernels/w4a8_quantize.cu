// bf16 rows to int8 activations: codes in the order in which packed 4-bit words meet them, a scale and the sum of each
// group.
//
//   a[g][r]      = amax / 127,  amax = max |x| over group g of row r          (f32)
//   code         = round_ties_even(x * (127 / amax)), in -127..=127           (int8)
//   sum[g][r]    = sum of the group's x, exact, rounded once                   (f32; common/groups.cuh says how exact)
//
// x:     m x k bf16, row-major, 16-byte aligned; k a multiple of the group.
// codes: m x k int8, 16-byte aligned. Each 32 of a row hold first the even, then the odd inputs:
//        codes[32 c + i] = code of x[32 c + 2 i], codes[32 c + 16 + i] = code of x[32 c + 2 i + 1], i in 0..16.
//        A 32-bit word of MLX's weights holds inputs 8 t..8 t + 7; its low nibbles are the even ones, its high nibbles
//        the odd ones. So `word & 0x0f0f0f0f` and `word >> 4 & 0x0f0f0f0f` are the two B registers of lane t of the
//        int8 mma, and these codes the A registers that belong to them.
// scales, sums: k / group rows of m rounded up to a multiple of 4, f32, 16-byte aligned; the padding is not written.
// marks: a word for every `chunk` rows, zeroed by the caller. A group that int8 can't take sets a bit in its chunk's:
//        1: an input is NaN or infinite; sum = NaN. 2: 12582912 * a overflows (amax > 3.4e33), which the matrix kernel
//        needs. Both have codes 0 and a = NaN.
// Groups with amax < 127 * 2^-126 have codes 0 and a = 0, and are not marked: what they lose is below 15 * 1.5e-36 times
// the weight's scale an input, and their sum still counts.
//
// The rule is halfbyte-q8's `quantize_group`, for bf16 inputs and three sizes of group.
// Tile: 8 inputs a thread, 128 threads a block, grid (m, ceil(k / 1024)). No shared memory.
// Source: the W4A8 scheme of TensorFold's pull request 1176.
#include "common/groups.cuh"

template <int group>
DEVICE void quantize(const u16* x, u8* codes, float* scales, float* sums, u32* marks, u32 m, u32 k, u32 chunk) {
  constexpr float kShift = 12582912.0f;
  const u32 row = blockIdx.x, column = (blockIdx.y * 128 + threadIdx.x) * 8;
  const bool inside = column < k;
  // Every lane takes part in the exchanges; a group never straddles the end of a row.
  const u64 at = (u64)row * k + column;
  const uint4 v = inside ? *(const uint4*)(x + at) : make_uint4(0, 0, 0, 0);
  const u32 top = group_amax(v, group / 8);
  const float amax = as_float(top << 16);
  const bool finite = top < 0x7f80;
  const float sum = group_sum(v, top, group / 8);
  if (!inside) return;

  const float scale = __fdiv_rn(amax, 127.0f);
  const bool fits = __fmul_rn(scale, kShift) <= 3.40282347e38f;
  const bool zero = amax < 127.0f * 1.17549435e-38f;
  const float inverse = finite && fits && !zero ? __fdiv_rn(127.0f, amax) : 0.0f;
  u32 even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    // At 1.5 * 2^23 the spacing of f32 is 1: the addition rounds to nearest even, the low byte is the code.
    const float input = inverse == 0.0f ? 0.0f : bf16_low(element(v, i));
    const u32 code = as_bits(__fadd_rn(__fmul_rn(input, inverse), kShift)) & 0xff;
    (i & 1 ? odd : even) |= code << (i / 2 * 8);
  }
  u8* block = codes + (at & ~(u64)31) + (column & 31) / 2;
  *(u32*)block = even;
  *(u32*)(block + 16) = odd;

  if (column % group != 0) return;
  const u64 parameter = (u64)(column / group) * ((u64)(m + 3) & ~(u64)3) + row;
  const float nan = as_float(0x7fc00000);
  scales[parameter] = !finite || !fits ? nan : zero ? 0.0f : scale;
  sums[parameter] = finite ? sum : nan;
  if (!finite || !fits) set_bits(marks + row / chunk, finite ? 2u : 1u);
}

#define QUANTIZE(group)                                                                                          \
  KERNEL(128, 1)                                                                                                 \
  w4a8_quantize_g##group(const u16* x, u8* codes, float* scales, float* sums, u32* marks, u32 m, u32 k, u32 chunk) { \
    quantize<group>(x, codes, scales, sums, marks, m, k, chunk);                                                 \
  }

QUANTIZE(32)
QUANTIZE(64)
QUANTIZE(128)
