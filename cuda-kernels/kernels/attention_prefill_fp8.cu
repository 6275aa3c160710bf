// Flash attention of a prompt chunk over an e4m3 KV cache with a scale a row, for heads of 64, 128 or 256 numbers.
//
//   out[r][h] = sum over j of softmax(scale q[r][h] . key[j])[j] value[j],  j in what row r sees (common/attention.cuh)
//   key[j] = key_scales[j] * e4m3(keys[j]),  value[j] likewise
//
// q, out: rows x n_heads x dim, bf16; keys, values: [kv_head][capacity][dim] codes; key_scales, value_scales:
// [kv_head][capacity] f32. sinks, lse as in attention_prefill_bf16.
// Codes are widened to bf16, exactly, in shared memory. A key's scale is applied to its scores in f32, a value's to its
// weights before they are rounded to bf16: nothing else is rounded for the cache's sake.
// Tile: as attention_prefill_bf16. Shared memory: two tiles of codes, two of bf16, four of scales.
// _wide: 128 lines, with 128 numbers by 256 threads, since 32 lines a warp would leave too few registers for the codes.
// Every tile is loaded and widened half as often; queries have room of their own (16, 32 KiB). The same bits.
#include "common/attention_prefill.cuh"

#define PREFILL(name, dim, keys, warps, tiles, blocks)                                                                 \
  KERNEL(warps * 32, blocks)                                                                                           \
  attention_prefill_fp8_##name(const u16* q, const u8* k, const u8* v, const float* k_scales, const float* v_scales,   \
                               const float* sinks, u16* out, float* lse, u32 rows, u32 n_heads, u32 group,             \
                               u32 capacity, u32 first, u32 kv_len, u32 causal, u32 window, float scale,               \
                               float cap) {                                                                            \
    attention_prefill<Fp8Tiles<dim, keys, warps>, tiles>({q, k, v, k_scales, v_scales, sinks, rows, n_heads, group,    \
                                                          capacity, first, kv_len, causal, window, scale, cap},        \
                                                         out, lse);                                                    \
  }

PREFILL(d64, 64, 64, 4, 1, 3)
PREFILL(d64_wide, 64, 64, 4, 2, 2)
PREFILL(d128, 128, 64, 4, 1, 2)
PREFILL(d128_wide, 128, 64, 8, 1, 1)
PREFILL(d256, 256, 32, 4, 1, 1)
