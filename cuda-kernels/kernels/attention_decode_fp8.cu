// Attention of a few rows over chunks of an e4m3 KV cache with a scale a row, sums for attention_merge.
//
// As attention_decode_bf16, with the cache of attention_prefill_fp8.
#include "common/attention_decode.cuh"

#define DECODE(dim, keys, lines)                                                                                    \
  KERNEL(lines * 2, 1)                                                                                              \
  attention_decode_fp8_d##dim##_##lines(const u16* q, const u8* k, const u8* v, const float* k_scales,              \
                                        const float* v_scales, float* sums, float2* statistics, u32 rows,           \
                                        u32 n_heads, u32 group, u32 capacity, u32 first, u32 kv_len, u32 causal,    \
                                        u32 window, float scale, float cap, u32 chunk, u32 first_chunk) {           \
    attention_decode<Fp8Tiles<dim, keys, lines / 16>>({q, k, v, k_scales, v_scales, nullptr, rows, n_heads, group,  \
                                                       capacity, first, kv_len, causal, window, scale, cap},        \
                                                      sums, statistics, chunk, first_chunk);                        \
  }

DECODE(64, 64, 16)
DECODE(64, 64, 64)
DECODE(128, 64, 16)
DECODE(128, 64, 64)
DECODE(256, 32, 16)
DECODE(256, 32, 64)
