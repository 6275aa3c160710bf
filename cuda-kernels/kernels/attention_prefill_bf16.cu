// Flash attention of a prompt chunk over a bf16 KV cache, for heads of 64, 128 or 256 numbers.
//
//   out[r][h] = sum over j of softmax(scale q[r][h] . key[j])[j] value[j],  j in what row r sees (common/attention.cuh)
//
// q, out: rows x n_heads x dim; keys, values: [kv_head][capacity][dim], all bf16. sinks: a score of each query head
// that takes part in the softmax with no value, or null. lse: null, or [n_heads][rows] f32: ln of the sum of e^score,
// sinks included, -infinity where that sum is 0; such a row's output is 0.
// Tile: 64 lines (heads that share a kv head, of as many rows as fit) x 64 positions (32 for 256 numbers), 128 threads;
// grid (ceil(rows group / 64), kv heads). Shared memory: three tiles of keys or values (24, 48, 48 KiB) and for 256
// numbers the queries (32 KiB).
// _wide: 128 lines, 32 a warp, and the same bits. Keys and values are loaded half as often, into shared memory and from
// it; queries have room of their own there (16, 32 KiB). With 128 numbers that is for GPUs that hold two such blocks.
// Source: FlashAttention-2 (online softmax, queries outside), its split of a block over warps by lines.
#include "common/attention_prefill.cuh"

#define PREFILL(name, dim, keys, warps, tiles, blocks)                                                                 \
  KERNEL(warps * 32, blocks)                                                                                           \
  attention_prefill_bf16_##name(const u16* q, const u8* k, const u8* v, const float* sinks, u16* out, float* lse,      \
                                u32 rows, u32 n_heads, u32 group, u32 capacity, u32 first, u32 kv_len, u32 causal,     \
                                u32 window, float scale, float cap) {                                                  \
    attention_prefill<Bf16Tiles<dim, keys, warps>, tiles>({q, k, v, nullptr, nullptr, sinks, rows, n_heads, group,     \
                                                           capacity, first, kv_len, causal, window, scale, cap},       \
                                                          out, lse);                                                   \
  }

PREFILL(d64, 64, 64, 4, 1, 3)
PREFILL(d64_wide, 64, 64, 4, 2, 2)
PREFILL(d128, 128, 64, 4, 1, 2)
PREFILL(d128_wide, 128, 64, 4, 2, 2)
PREFILL(d256, 256, 32, 4, 1, 1)
