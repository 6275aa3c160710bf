// Gradients of causal attention from its outputs' gradient, without atomics: each is summed by one warp, in one order.
//
//   P = e^(score - lse),   dP = dout value^T,   dS = P (dP - delta),   delta[line] = sum over d of dout out
//   dq = scale dS key      dk = scale dS^T q    dv = P^T dout          with sums over what sees each other
//
// P and dS are computed in f32 from the bf16 inputs and rounded to bf16 where they meet the tensor cores; sums are f32.
// A warp has 16 lines (dq) or 16 positions (dk, dv), and goes over the others in ascending tiles.
// Statistics are float2 (lse log2(e), delta), [kv_head][line], a head's lines padded to an even number.
#pragma once
#include "attention.cuh"

// delta, and lse in base 2. out, dout: rows x n_heads x dim, bf16; lse: [n_heads][rows], natural. dim / 8 lanes a line.
template <int dim>
DEVICE void attention_backward_delta(const Attention& p, const u16* out, const u16* dout, const float* lse,
                                     float2* statistics) {
  constexpr int kLanes = dim / 8;
  const u32 line = blockIdx.x * (128 / kLanes) + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const u32 used = smaller(line, p.lines() - 1);
  const u64 at = p.query(blockIdx.y, used) * dim + lane * 8;
  const uint4 a = *(const uint4*)(out + at), b = *(const uint4*)(dout + at);
  const u32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sum = __fmaf_rn(bf16_low(x[i]), bf16_low(y[i]), sum);
    sum = __fmaf_rn(bf16_high(x[i]), bf16_high(y[i]), sum);
  }
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    sum = __fadd_rn(sum, as_float(exchange(as_bits(sum), distance)));
  }
  if (lane != 0 || line >= p.lines()) return;
  const float of_line = lse[(u64)p.head_of(blockIdx.y, line) * p.rows + line / p.group];
  statistics[(u64)blockIdx.y * ((p.lines() + 1) / 2 * 2) + line] = make_float2(__fmul_rn(of_line, kLog2E), sum);
}

// A weight from its score's product; `scale` and `lse` in base 2.
DEVICE float weight_again(float s, float scale, float lse) {
  return exp2_approximate(__fsub_rn(__fmul_rn(s, scale), lse));
}

// dq: rows x n_heads x dim, bf16. A block has 64 lines. A tile's keys are used twice, before and after its values.
template <int dim, int keys>
DEVICE void attention_backward_dq(const Attention& p, const u16* dout, const float2* statistics, u16* dq, float scale) {
  using Tiles = Bf16Tiles<dim, keys, 4, 4>;
  constexpr int kLines = 64, kLineBytes = kLines * dim * 2;
  needs_shared<Tiles::kShared + 2 * kLineBytes>();
  const u32 kv_head = blockIdx.y, line0 = (gridDim.x - 1 - blockIdx.x) * kLines, lane = threadIdx.x % 32;
  const u32 warp_line = threadIdx.x / 32 * 16, last_row = (smaller(line0 + kLines, p.lines()) - 1) / p.group;
  const u32 begin = p.low(line0 / p.group), end = p.high(last_row), tile0 = begin / keys;
  const u32 tiles = begin < end ? (end + keys - 1) / keys - tile0 : 0;
  const u32 shared = shared_address(shared_memory), q_tile = shared + Tiles::kShared, d_tile = q_tile + kLineBytes;
  copy_lines<dim, kLines, 128>(p, p.q, kv_head, line0, q_tile);
  copy_lines<dim, kLines, 128>(p, dout, kv_head, line0, d_tile);
  commit_copies();
  const u64 row = (u64)kv_head * p.capacity * dim * 2;
  const Tiles kv{{p.keys + row, p.values + row, nullptr, nullptr}, shared, tile0 * keys, end, tiles * 2};
  kv.start(0);
  kv.start(1);
  float lse[2], delta[2], sum[dim / 8][4] = {};
  u32 lo[2], hi[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const u32 line = smaller(line0 + warp_line + half * 8 + lane / 4, p.lines() - 1);
    const float2 of_line = statistics[(u64)kv_head * ((p.lines() + 1) / 2 * 2) + line];
    lse[half] = of_line.x;
    delta[half] = of_line.y;
    lo[half] = p.low(line / p.group);
    hi[half] = p.high(line / p.group);
  }
  for (u32 t = 0; t < tiles; t++) {
    float w[keys / 8][4], d[keys / 8][4];
    const u32 key_tile = kv.ready(t * 2);
    multiply_rows<dim, keys>(w, [&](u32(&a)[4], int step) { load_left<dim>(a, q_tile, warp_line, step); }, key_tile);
    const u32 value_tile = kv.ready(t * 2 + 1);
    multiply_rows<dim, keys>(d, [&](u32(&a)[4], int step) { load_left<dim>(a, d_tile, warp_line, step); }, value_tile);
#pragma unroll
    for (int n = 0; n < keys / 8; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const u32 j = (tile0 + t) * keys + n * 8 + lane % 4 * 2 + e % 2;
        const float weight = weight_again(w[n][e], p.scale, lse[e / 2]);
        const float gradient = __fmul_rn(weight, __fsub_rn(d[n][e], delta[e / 2]));
        d[n][e] = j < lo[e / 2] || j >= hi[e / 2] ? 0.0f : gradient;
      }
    }
    add_weighted_tile<dim, keys>(sum, d, key_tile);
  }
  // No other warp needs the queries of this warp's lines; without a tile they were not waited for.
  if (tiles == 0) {
    wait_copies<0>();
    __syncthreads();
  }
  const float factor[2] = {scale, scale};
  store_lines<dim>(sum, factor, shared_memory + Tiles::kShared + warp_line * dim * 2, [&](u32 r) -> u16* {
    const u32 line = line0 + warp_line + r;
    return line < p.lines() ? dq + p.query(kv_head, line) * dim : nullptr;
  });
}

// dk, dv: [position][kv_head][dim], bf16, of the kv_len positions. A block has 64 of them and goes over the lines that
// see any, `lines` a tile: queries, gradients and statistics in two slots.
template <int dim, int lines>
DEVICE void attention_backward_dkdv(const Attention& p, const u16* dout, const float2* statistics, u16* dk, u16* dv,
                                    float scale, u32 n_kv_heads) {
  constexpr int kKeys = 64, kKeyBytes = kKeys * dim * 2, kLineBytes = lines * dim * 2;
  constexpr int kSlot = 2 * kLineBytes + lines * 8, kShared = 2 * kKeyBytes + 2 * kSlot;
  needs_shared<kShared>();
  const u32 kv_head = blockIdx.y, key0 = blockIdx.x * kKeys, lane = threadIdx.x % 32, warp_key = threadIdx.x / 32 * 16;
  const u32 shared = shared_address(shared_memory), k_tile = shared, v_tile = shared + kKeyBytes;
  // Rows before the first position's own see nothing here, nor do those a window after the last.
  const u32 row0 = key0 > p.first ? key0 - p.first : 0;
  const u32 behind = key0 + kKeys - 1 + p.window, all = p.window == 0 || behind > p.first + p.rows;
  const u32 row1 = all ? p.rows : behind > p.first ? behind - p.first : 0;
  const u32 tile0 = row0 * p.group / lines, tiles = row0 < row1 ? (row1 * p.group + lines - 1) / lines - tile0 : 0;
  const float2* of_head = statistics + (u64)kv_head * ((p.lines() + 1) / 2 * 2);
  const auto start = [&](u32 i) {
    if (i < tiles) {
      const u32 to = shared + 2 * kKeyBytes + i % 2 * kSlot, line0 = (tile0 + i) * lines;
      copy_lines<dim, lines, 128>(p, p.q, kv_head, line0, to);
      copy_lines<dim, lines, 128>(p, dout, kv_head, line0, to + kLineBytes);
      const u32 two = threadIdx.x * 2;
      if (two < lines) {
        const bool inside = line0 + two < p.lines();
        copy16(to + 2 * kLineBytes + two * 8, of_head + (inside ? line0 + two : 0),
               inside ? smaller(p.lines() - line0 - two, 2u) * 8 : 0);
      }
    }
    commit_copies();
  };
  const u64 first_row = ((u64)kv_head * p.capacity + key0) * dim * 2;
#pragma unroll
  for (u32 piece = threadIdx.x; piece < kKeys * dim / 8; piece += 128) {
    const u32 r = piece / (dim / 8), to = row_piece<dim / 8>(r, piece % (dim / 8));
    const bool inside = key0 + r < p.kv_len;
    const u64 from = first_row + (inside ? piece * 16 : 0);
    copy16(k_tile + to, p.keys + from, inside ? 16 : 0);
    copy16(v_tile + to, p.values + from, inside ? 16 : 0);
  }
  start(0);
  float k_sum[dim / 8][4] = {}, v_sum[dim / 8][4] = {};
  for (u32 t = 0; t < tiles; t++) {
    wait_copies<0>();
    __syncthreads();
    start(t + 1);
    const u32 slot = 2 * kKeyBytes + t % 2 * kSlot, q_tile = shared + slot, d_tile = q_tile + kLineBytes;
    const float* of_lines = (const float*)(shared_memory + slot + 2 * kLineBytes);
    const u32 line0 = (tile0 + t) * lines, last = smaller(line0 + lines, p.lines()) - 1;
    const bool all_see = line0 + lines <= p.lines() && p.low(last / p.group) <= key0 &&
                         p.high(line0 / p.group) >= key0 + kKeys;
    float w[lines / 8][4], d[lines / 8][4];
    multiply_rows<dim, lines>(w, [&](u32(&a)[4], int step) { load_left<dim>(a, k_tile, warp_key, step); }, q_tile);
#pragma unroll
    for (int n = 0; n < lines / 8; n++) {
      const float4 two = *(const float4*)(of_lines + (n * 8 + lane % 4 * 2) * 2);
#pragma unroll
      for (int e = 0; e < 4; e++) w[n][e] = weight_again(w[n][e], p.scale, e % 2 ? two.z : two.x);
    }
    if (!all_see) {
#pragma unroll
      for (int n = 0; n < lines / 8; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const u32 line = line0 + n * 8 + lane % 4 * 2 + e % 2, row = line / p.group;
          const u32 j = key0 + warp_key + lane / 4 + e / 2 * 8;
          if (line >= p.lines() || j < p.low(row) || j >= p.high(row)) w[n][e] = 0.0f;
        }
      }
    }
    add_weighted_tile<dim, lines>(v_sum, w, d_tile);
    multiply_rows<dim, lines>(d, [&](u32(&a)[4], int step) { load_left<dim>(a, v_tile, warp_key, step); }, d_tile);
#pragma unroll
    for (int n = 0; n < lines / 8; n++) {
      const float4 two = *(const float4*)(of_lines + (n * 8 + lane % 4 * 2) * 2);
#pragma unroll
      for (int e = 0; e < 4; e++) d[n][e] = __fmul_rn(w[n][e], __fsub_rn(d[n][e], e % 2 ? two.w : two.y));
    }
    add_weighted_tile<dim, lines>(k_sum, d, q_tile);
  }
  // No other warp needs this warp's rows of keys and values; without a tile they were not waited for.
  if (tiles == 0) {
    wait_copies<0>();
    __syncthreads();
  }
  const auto to = [&](u16* gradients) {
    return [=](u32 r) -> u16* {
      const u32 j = key0 + warp_key + r;
      return j < p.kv_len ? gradients + ((u64)j * n_kv_heads + kv_head) * dim : nullptr;
    };
  };
  const float of_keys[2] = {scale, scale}, of_values[2] = {1.0f, 1.0f};
  store_lines<dim>(k_sum, of_keys, shared_memory + warp_key * dim * 2, to(dk));
  store_lines<dim>(v_sum, of_values, shared_memory + kKeyBytes + warp_key * dim * 2, to(dv));
}
