// The next token of each row of logits: greedy, or drawn at a temperature from all tokens or from the top_k largest.
//
//   token = the largest, of the candidates, of   logit                                    temperature 0
//                                                fma(logit, 1 / temperature, g(token))    else
//   g     = common/gumbel.cuh of word token % 4 of Philox4x32-10, counter (token / 4, position, position >> 32, 0),
//           key the seed
//
// Candidates are all tokens (top_k 0), or the top_k with the largest logits. Of equals the lowest token comes first,
// everywhere. -0 equals 0. NaN counts as -infinity; a row with nothing above -infinity gives token 0xffffffff.
// A draw depends on the row's logits, temperature, top_k, seed and position alone: not on other rows or on slices.
//
// sampler_slices: a slice of 4096 logits of a row a block of 256 threads, grid (slices, rows). Writes the slice's first
//   `keep` candidates: 1, or top_k, in order. A warp finds those of its 512 without a barrier: a step takes the largest key
//   below the last one, so nothing is removed and keys stay in registers.
// sampler_pick: a row a block, grid rows: the first `keep` of all slices' by the same steps, then the draw among them.
//
// logits:     m x n f32, 16-byte aligned; n up to 2^19. rules: a row's in a parameter, up to 32.
// candidates: m x slices x 32 u64; key = the logit or score as an ordered word, then ~token
// tokens:     m u32
#include "common/gumbel.cuh"
#include "common/philox.cuh"
#include "common/warp.cuh"

struct Rule {
  float inverse_temperature;  // 0: greedy
  u32 top_k;                  // 0: all; at most 32
  u32 seed[2], position[2];
};
struct Rules {
  Rule row[32];
};

// f32 to words that order like the numbers; NaN as -infinity.
DEVICE u32 ordered(float x) {
  const u32 bits = as_bits(x == x ? __fadd_rn(x, 0.0f) : as_float(0xff800000));
  return bits ^ (bits >> 31 ? 0xffffffff : 0x80000000);
}
DEVICE float number(u32 word) { return as_float(word ^ (word >> 31 ? 0x80000000 : 0xffffffff)); }
DEVICE u64 key(float x, u32 token) { return (u64)ordered(x) << 32 | ~token; }

DEVICE u64 largest_of_warp(u64 x) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    x = larger(x, (u64)exchange((u32)(x >> 32), distance) << 32 | exchange((u32)x, distance));
  }
  return x;
}

// The warp's `keep` largest keys, the i-th to lane i, 0 to the others. Keys other than 0 differ.
template <int count>
DEVICE u64 first_of_warp(const u64 (&keys)[count], u32 keep) {
  u64 last = ~0ull, mine = 0;
  for (u32 i = 0; i < keep; i++) {
    u64 best = 0;
#pragma unroll
    for (int j = 0; j < count; j++) best = keys[j] < last ? larger(best, keys[j]) : best;
    last = largest_of_warp(best);
    if (threadIdx.x % 32 == i) mine = last;
    if (last == 0) break;
  }
  return mine;
}

// The block's, to lane i of its first warp. `warps` is shared memory of 8 x 32 keys.
template <int count>
DEVICE u64 first_of_block(const u64 (&keys)[count], u32 keep, u64* warps) {
  warps[threadIdx.x] = first_of_warp(keys, keep);
  __syncthreads();
  if (threadIdx.x >= 32) return 0;
  u64 all[8];
#pragma unroll
  for (int warp = 0; warp < 8; warp++) all[warp] = warps[warp * 32 + threadIdx.x];
  return first_of_warp(all, keep);
}

// Random words of tokens 4 i to 4 i + 3.
DEVICE void words_of(const Rule& rule, u32 i, u32 (&word)[4]) {
  word[0] = i, word[1] = rule.position[0], word[2] = rule.position[1], word[3] = 0;
  philox(word, rule.seed[0], rule.seed[1]);
}

KERNEL(256, 1) sampler_slices(const float* logits, u64* candidates, u32 n, const __grid_constant__ Rules rules) {
  __shared__ u64 warps[256];
  const Rule& rule = rules.row[blockIdx.y];
  const float* row = logits + (u64)blockIdx.y * n;
  const bool noisy = rule.inverse_temperature != 0.0f && rule.top_k == 0;
  const u32 keep = rule.inverse_temperature == 0.0f || rule.top_k == 0 ? 1 : smaller(rule.top_k, 32u);
  u64 keys[16];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u32 token = blockIdx.x * 4096 + (i * 256 + threadIdx.x) * 4;
    float x[4];
    if (n % 4 == 0 && token < n) {
      const float4 v = *(const float4*)(row + token);
      x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
#pragma unroll
      for (int j = 0; j < 4; j++) x[j] = token + j < n ? row[token + j] : 0.0f;
    }
    if (noisy && token < n) {
      u32 word[4];
      words_of(rule, token / 4, word);
#pragma unroll
      for (int j = 0; j < 4; j++) x[j] = __fmaf_rn(x[j], rule.inverse_temperature, gumbel(word[j]));
    }
#pragma unroll
    for (int j = 0; j < 4; j++) keys[i * 4 + j] = token + j < n ? key(x[j], token + j) : 0;
  }
  const u64 mine = first_of_block(keys, keep, warps);
  if (threadIdx.x < keep) candidates[((u64)blockIdx.y * gridDim.x + blockIdx.x) * 32 + threadIdx.x] = mine;
}

KERNEL(256, 1) sampler_pick(const u64* candidates, u32* tokens, u32 slices, const __grid_constant__ Rules rules) {
  __shared__ u64 warps[256];
  const Rule& rule = rules.row[blockIdx.x];
  const bool greedy = rule.inverse_temperature == 0.0f;
  const u32 keep = greedy || rule.top_k == 0 ? 1 : smaller(rule.top_k, 32u);
  // Lane i of warp w holds the i-th of slices w, w + 8, ...
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u64 keys[16];
#pragma unroll
  for (u32 i = 0; i < 16; i++) {
    const u32 slice = warp + i * 8;
    keys[i] = slice < slices && lane < keep ? candidates[((u64)blockIdx.x * slices + slice) * 32 + lane] : 0;
  }
  u64 mine = first_of_block(keys, keep, warps);
  if (threadIdx.x >= 32) return;
  if (!greedy && rule.top_k != 0) {
    const u32 token = ~(u32)mine;
    u32 word[4];
    words_of(rule, token / 4, word);
    const u32 random = token % 4 == 0 ? word[0] : token % 4 == 1 ? word[1] : token % 4 == 2 ? word[2] : word[3];
    const float score = __fmaf_rn(number((u32)(mine >> 32)), rule.inverse_temperature, gumbel(random));
    mine = mine == 0 ? 0 : key(score, token);
  }
  mine = largest_of_warp(mine);
  if (threadIdx.x == 0) tokens[blockIdx.x] = mine >> 32 > ordered(as_float(0xff800000)) ? ~(u32)mine : 0xffffffff;
}
