// A window's queries, keys and values, from the projections to attention: bias, norm of each head, rotary position, and
// keys and values into the cache.
//
//   h       = projection + bias                     each optional, in f32
//   h       = h * inverse * w                       queries and keys, if they have norm weights: as rms_norm over the head
//   h       = rotated by the angles of start + r    queries and keys, if there is a table: common/rotary.cuh
//   queries = bf16(h)
//   cache   = bf16(h), or e4m3 codes and a scale for the row (rope_kv_fp8):
//             scale = amax / 448, code = e4m3(h / scale), both divisions correctly rounded; a row of zeros, or so small
//             that its scale is 0, has scale 0 and codes 0; a row with a NaN or an infinity has scale NaN and codes 0
// Nothing is rounded to bf16 between, so fp8 codes are those of the f32 values.
//
// q, k, v:            m rows of heads * d, kv_heads * d, kv_heads * d bf16, a row q_row, k_row, v_row numbers after the
//                     last; rows and pointers 16-byte aligned. One matrix product's rows, or three's.
// q_bias, ...:        heads * d or kv_heads * d f32, or null. q_norm, k_norm: d f32, or null.
// table:              (cos, sin) f32 for d / 2 pairs of each position up to start + m, or null
// queries:            m x heads x d bf16
// keys, values:       [kv_head][capacity][d]; key_scales, value_scales: [kv_head][capacity] f32 (fp8 only)
// d: 16 times a power of two, up to 512. start + m <= capacity.
//
// Tile: 16 numbers of a head a thread, in vectors of 8; 128 threads; grid (m, ceil((heads + 2 kv_heads) * d / 2048)). A
// head is d / 16 neighbouring lanes: sums add a thread's squares in the order of its two vectors, then lanes by distance.
// The angles come from a table that the host makes in f64: f32 angles of late positions, let alone sin.approx, would be
// off by more than bf16's half unit. Errors, u = 2^-24, against real numbers with the table's cos and sin exact: a
// rotated number 4 u (|a| + |b|) of its pair, a norm 24 u before, and one rounding to bf16 or e4m3.
#include "common/bf16x8.cuh"
#include "common/e4m3.cuh"
#include "common/rotary.cuh"
#include "common/warp.cuh"

struct Arguments {
  const u16 *q, *k, *v;
  const float *q_bias, *k_bias, *v_bias, *q_norm, *k_norm;
  const float2* table;
  u16* queries;
  void *keys, *values;
  float *key_scales, *value_scales;
  u32 q_row, k_row, v_row, heads, kv_heads, d, capacity, start, order;
  float eps;
};

// The codes of 8 numbers over `scale`.
DEVICE uint2 codes(const float (&x)[8], float scale) {
  u32 word[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; i++) word[i / 4] |= e4m3_code(__fdiv_rn(x[i], scale)) << (i % 4 * 8);
  return make_uint2(word[0], word[1]);
}

// The bits of the largest magnitude: as integers they order like the numbers, infinity and NaN on top.
DEVICE u32 largest(const float (&x)[8], u32 amax) {
#pragma unroll
  for (int i = 0; i < 8; i++) amax = larger(amax, as_bits(x[i]) & 0x7fffffff);
  return amax;
}

template <bool fp8>
DEVICE void rope_kv(const Arguments& a) {
  const u32 lanes = a.d / 16, row = blockIdx.x, thread = blockIdx.y * 128 + threadIdx.x;
  const u32 unit = thread / lanes, lane = thread % lanes;
  const bool query = unit < a.heads, value = unit >= a.heads + a.kv_heads, inside = unit < a.heads + 2 * a.kv_heads;
  const u32 head = query ? unit : unit - (value ? a.heads + a.kv_heads : a.heads);
  const u32 at = head * a.d + lane * 8;
  float low[8] = {}, high[8] = {};
  if (inside) {
    const u16* from = query ? a.q + (u64)row * a.q_row : value ? a.v + (u64)row * a.v_row : a.k + (u64)row * a.k_row;
    widen(*(const uint4*)(from + at), low);
    widen(*(const uint4*)(from + at + a.d / 2), high);
    const float* bias = query ? a.q_bias : value ? a.v_bias : a.k_bias;
    if (bias) {
      float b[8], c[8];
      load8(bias + at, b);
      load8(bias + at + a.d / 2, c);
#pragma unroll
      for (int i = 0; i < 8; i++) low[i] = __fadd_rn(low[i], b[i]), high[i] = __fadd_rn(high[i], c[i]);
    }
  }
  // Every lane of the warp takes part in the sums, whatever its head needs.
  if (a.q_norm || a.k_norm) {
    float square = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) square = __fmaf_rn(low[i], low[i], square);
#pragma unroll
    for (int i = 0; i < 8; i++) square = __fmaf_rn(high[i], high[i], square);
    square = sum_of_lanes(square, lanes);
    const float inverse = __frcp_rn(__fsqrt_rn(__fadd_rn(__fdiv_rn(square, (float)a.d), a.eps)));
    const float* norm = query ? a.q_norm : value ? nullptr : a.k_norm;
    if (norm) {
      float w[8], x[8];
      load8(norm + lane * 8, w);
      load8(norm + lane * 8 + a.d / 2, x);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        low[i] = __fmul_rn(__fmul_rn(low[i], inverse), w[i]);
        high[i] = __fmul_rn(__fmul_rn(high[i], inverse), x[i]);
      }
    }
  }
  if (a.table && inside && !value) {
    rotate(low, high, a.table + (u64)(a.start + row) * (a.d / 2), lane, a.d, a.order, 1.0f);
  }
  const u64 cached = (u64)head * a.capacity + a.start + row;
  if (fp8) {
    const u32 amax = max_of_lanes(largest(high, largest(low, 0)), lanes);
    if (inside && !query) {
      const bool finite = amax < 0x7f800000;
      const float scale = finite ? __fdiv_rn(as_float(amax), 448.0f) : as_float(0x7fc00000);
      const bool zero = !(scale > 0.0f);
      u8* to = (u8*)(value ? a.values : a.keys) + cached * a.d + lane * 8;
      *(uint2*)to = zero ? make_uint2(0, 0) : codes(low, scale);
      *(uint2*)(to + a.d / 2) = zero ? make_uint2(0, 0) : codes(high, scale);
      if (lane == 0) (value ? a.value_scales : a.key_scales)[cached] = scale;
    }
  }
  if (inside && (query || !fp8)) {
    u16* to = query ? a.queries + ((u64)row * a.heads + head) * a.d : (u16*)(value ? a.values : a.keys) + cached * a.d;
    *(uint4*)(to + lane * 8) = narrow(low);
    *(uint4*)(to + lane * 8 + a.d / 2) = narrow(high);
  }
}

KERNEL(128, 1) rope_kv_bf16(Arguments a) { rope_kv<false>(a); }
KERNEL(128, 1) rope_kv_fp8(Arguments a) { rope_kv<true>(a); }
