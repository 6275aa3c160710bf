// The chunks of attention_decode put together: one row and head a block.
//
//   m = max over c of m[c] (and the sink),  w[c] = 2^(m[c] - m)
//   out = sum over c of w[c] sums[c] / (sum over c of w[c] l[c] + 2^(sink - m)),  0 if no position is seen
//
// c runs over the chunks that the row sees, which its position decides (common/attention.cuh). Lane group g of a block
// adds chunks g, g + groups, ... ascending from the first one; the groups are added in order: an output depends on the
// row's own chunks only, in one order.
// sums, statistics: as attention_decode_bf16 writes them. out: rows x n_heads x dim, bf16. sinks as in
// attention_prefill_bf16.
// Tile: dim / 4 threads a chunk, 256 in all; grid (rows, n_heads). Shared memory: one partial sum a thread.
#include "common/attention.cuh"

template <int dim>
DEVICE void attention_merge(const Attention& p, const float4* sums, const float2* statistics, u16* out, u32 chunk,
                            u32 first_chunk, u32 chunks) {
  constexpr int kLanes = dim / 4, kGroups = 256 / kLanes;
  __shared__ float4 partial[kGroups][kLanes];
  __shared__ float part[256];
  const u32 row = blockIdx.x, head = blockIdx.y, group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const u64 at = (u64)row * p.n_heads + head;
  const u32 low = p.low(row), high = p.high(row);
  const u32 from = low / chunk - first_chunk, to = low < high ? (high + chunk - 1) / chunk - first_chunk : from;
  statistics += at * chunks;
  sums += at * chunks * kLanes;

  float top = minus_infinity();
  for (u32 c = from + threadIdx.x; c < to; c += 256) top = max_f32(top, statistics[c].x);
  part[threadIdx.x] = top;
  __syncthreads();
  for (u32 i = 0; i < smaller(to - from, 256u); i++) top = max_f32(top, part[i]);
  const float sink = p.sinks != nullptr ? __fmul_rn(p.sinks[head], kLog2E) : minus_infinity();
  top = max_f32(top, sink);
  const float base = exponent_base(top);

  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float l = 0.0f;
#pragma unroll 4
  for (u32 c = from + group; c < to; c += kGroups) {
    const float2 of_chunk = statistics[c];
    const float4 x = sums[c * kLanes + lane];
    const float weight = exp2_approximate(__fsub_rn(of_chunk.x, base));
    l = __fmaf_rn(weight, of_chunk.y, l);
    sum.x = __fmaf_rn(weight, x.x, sum.x);
    sum.y = __fmaf_rn(weight, x.y, sum.y);
    sum.z = __fmaf_rn(weight, x.z, sum.z);
    sum.w = __fmaf_rn(weight, x.w, sum.w);
  }
  __syncthreads();
  partial[group][lane] = sum;
  if (lane == 0) part[group] = l;
  __syncthreads();
  if (group != 0) return;
#pragma unroll
  for (int g = 1; g < kGroups; g++) {
    const float4 x = partial[g][lane];
    l = __fadd_rn(l, part[g]);
    sum.x = __fadd_rn(sum.x, x.x);
    sum.y = __fadd_rn(sum.y, x.y);
    sum.z = __fadd_rn(sum.z, x.z);
    sum.w = __fadd_rn(sum.w, x.w);
  }
  if (p.sinks != nullptr) l = __fadd_rn(l, exp2_approximate(__fsub_rn(sink, base)));
  const float factor = l == 0.0f ? 0.0f : __fdiv_rn(1.0f, l);
  // + 0: a zero is +0.
  const u32 left = bf16_pair(__fadd_rn(__fmul_rn(sum.x, factor), 0.0f), __fadd_rn(__fmul_rn(sum.y, factor), 0.0f));
  const u32 right = bf16_pair(__fadd_rn(__fmul_rn(sum.z, factor), 0.0f), __fadd_rn(__fmul_rn(sum.w, factor), 0.0f));
  *(uint2*)(out + at * dim + lane * 4) = make_uint2(left, right);
}

#define MERGE(dim)                                                                                                   \
  KERNEL(256, 1)                                                                                                     \
  attention_merge_d##dim(const float4* sums, const float2* statistics, const float* sinks, u16* out, u32 n_heads,    \
                         u32 first, u32 kv_len, u32 causal, u32 window, u32 chunk, u32 first_chunk, u32 chunks) {    \
    Attention p = {};                                                                                                \
    p.sinks = sinks, p.n_heads = n_heads, p.first = first, p.kv_len = kv_len, p.causal = causal, p.window = window;  \
    attention_merge<dim>(p, sums, statistics, out, chunk, first_chunk, chunks);                                      \
  }

MERGE(64)
MERGE(128)
MERGE(256)
