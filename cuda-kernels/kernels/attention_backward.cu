// Gradients of causal attention over a bf16 cache, for heads of 64 or 128 numbers (common/attention_backward.cuh).
//
//   attention_backward_delta   statistics from out, its gradient dout, and lse of attention_prefill_bf16
//   attention_backward_dq      dq = scale (P (dout value^T - delta)) key
//   attention_backward_dkdv    dk = scale (P (dout value^T - delta))^T q,   dv = P^T dout
//
// q, out, dout, dq: rows x n_heads x dim; dk, dv: [position][kv_head][dim]; all bf16. statistics: [kv_head][line]
// float2, a head's lines padded to an even number. scale: times log2(e); natural: as it is. No atomics: the same bits
// every time.
// Tile: dq 64 lines x 64 positions (32 for 128 numbers), dk and dv 64 positions x 64 lines (32), 128 threads; grids
// (ceil(rows group / 64), kv heads) and (ceil(kv_len / 64), kv heads); delta 128 threads, (ceil(rows group dim / 1024),
// kv heads). Shared memory: dq 48 and 64 KiB, dk and dv 49 and 64.5 KiB.
// Source: FlashAttention-2's backward pass, its dq in a kernel of its own instead of atomics.
#include "common/attention_backward.cuh"

#define BACKWARD(dim, keys, lines)                                                                                   \
  KERNEL(128, 1)                                                                                                     \
  attention_backward_delta_d##dim(const u16* out, const u16* dout, const float* lse, float2* statistics, u32 rows,   \
                                  u32 n_heads, u32 group) {                                                          \
    Attention p = {};                                                                                                \
    p.rows = rows, p.n_heads = n_heads, p.group = group;                                                             \
    attention_backward_delta<dim>(p, out, dout, lse, statistics);                                                    \
  }                                                                                                                  \
  KERNEL(128, 1)                                                                                                     \
  attention_backward_dq_d##dim(const u16* q, const u8* k, const u8* v, const u16* dout, const float2* statistics,    \
                               u16* dq, u32 rows, u32 n_heads, u32 group, u32 capacity, u32 first, u32 kv_len,       \
                               u32 window, float scale, float natural) {                                             \
    attention_backward_dq<dim, keys>({q, k, v, nullptr, nullptr, nullptr, rows, n_heads, group, capacity, first,     \
                                      kv_len, 1, window, scale, 0.0f},                                               \
                                     dout, statistics, dq, natural);                                                 \
  }                                                                                                                  \
  KERNEL(128, 1)                                                                                                     \
  attention_backward_dkdv_d##dim(const u16* q, const u8* k, const u8* v, const u16* dout, const float2* statistics,  \
                                 u16* dk, u16* dv, u32 rows, u32 n_heads, u32 group, u32 capacity, u32 first,        \
                                 u32 kv_len, u32 window, float scale, float natural) {                               \
    attention_backward_dkdv<dim, lines>({q, k, v, nullptr, nullptr, nullptr, rows, n_heads, group, capacity, first,  \
                                         kv_len, 1, window, scale, 0.0f},                                            \
                                        dout, statistics, dk, dv, natural, gridDim.y);                               \
  }

BACKWARD(64, 64, 64)
BACKWARD(128, 32, 32)
