// Attention of a few rows over chunks of a bf16 KV cache, sums for attention_merge; heads of 64, 128 or 256 numbers.
//
//   statistics[r][h][c] = (m, sum of 2^(s[j] - m)),  sums[r][h][c] = sum of 2^(s[j] - m) value[j]
//   over the j of chunk c that row r sees, m their largest score in base 2 (common/attention.cuh has the arithmetic)
//
// q: rows x n_heads x dim; keys, values: [kv_head][capacity][dim], all bf16; sums and statistics:
// [row][head][chunks] of dim f32 and of two f32. A chunk of which a row sees nothing is left as it is, or gets m = -inf
// and zeros.
// Tile: 16 or 64 lines (the heads that share a kv head, of the rows of a window) x 64 positions (32 for 256 numbers),
// 32 or 128 threads: what a line gets does not depend on which. Grid (chunks, kv heads, ceil(rows group / lines)).
// Shared memory as attention_prefill_bf16.
// Source: split-KV decoding (Flash-Decoding); the query heads of a kv head as the lines of one m16 tile.
#include "common/attention_decode.cuh"

#define DECODE(dim, keys, lines)                                                                                   \
  KERNEL(lines * 2, 1)                                                                                             \
  attention_decode_bf16_d##dim##_##lines(const u16* q, const u8* k, const u8* v, float* sums, float2* statistics,  \
                                         u32 rows, u32 n_heads, u32 group, u32 capacity, u32 first, u32 kv_len,    \
                                         u32 causal, u32 window, float scale, float cap, u32 chunk,                \
                                         u32 first_chunk) {                                                        \
    attention_decode<Bf16Tiles<dim, keys, lines / 16>>({q, k, v, nullptr, nullptr, nullptr, rows, n_heads, group,  \
                                                        capacity, first, kv_len, causal, window, scale, cap},      \
                                                       sums, statistics, chunk, first_chunk);                      \
  }

DECODE(64, 64, 16)
DECODE(64, 64, 64)
DECODE(128, 64, 16)
DECODE(128, 64, 64)
DECODE(256, 32, 16)
DECODE(256, 32, 64)
