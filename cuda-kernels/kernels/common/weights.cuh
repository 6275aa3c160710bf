// The weight formats of the prompt matrices, 32 weights of a row at a time, and how the two precisions take them.
//
// A format says where its bytes come from and what its groups' parameters are; what the tensor cores get is made of
// `even` and `odd`, four codes a word: lane (g, t) holds the codes of inputs 8t, 8t + 2, 8t + 4, 8t + 6 and 8t + 1, ...
// of output g.
#pragma once
#include "bf16.cuh"

// Bytes of two words by a selector of four nibbles, the first word's are 0-3. PTX: __byte_perm would bring a toolkit
// header's path with it.
DEVICE u32 pick_bytes(u32 low, u32 high, u32 selector) {
  u32 word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "r"(selector));
  return word;
}

// a * b + c of bf16 pairs, each rounded once. PTX: C++ has it in cuda_bf16.h only.
DEVICE u32 fma_bf16_pairs(u32 a, u32 b, u32 c) {
  u32 d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// f16 bits widened, exact. PTX: C++ has it in cuda_fp16.h only.
DEVICE float f16_value(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

constexpr u32 kOnes = 0x3f803f80;  // a pair of bf16 1.0

// Codes 0..15 in packed words, eight a word, the lowest nibble first.
struct Nibbles {
  static constexpr u32 kBytes = 16;  // of 32 weights
  static constexpr int kWords = 1;   // that a lane holds of them
  DEVICE static u32 even(const u32* word) { return word[0] & 0x0f0f0f0f; }
  DEVICE static u32 odd(const u32* word) { return word[0] >> 4 & 0x0f0f0f0f; }
  // Inputs 8t + 2i and 8t + 2i + 1 as bf16: 128 + code is 0x4300 | code, exact, and so is taking 128 off.
  template <int i>
  DEVICE static u32 pair(const u32* word) {
    const u32 bytes = pick_bytes(word[0], word[0] >> 4, i | i << 4 | (4 + i) << 8 | (4 + i) << 12);
    return fma_bf16_pairs(bytes & 0x000f000f | 0x43004300, kOnes, 0xc300c300);
  }
};

// Codes -128..127, each 32 of a row the even ones first (as q8_0_split writes them).
struct Bytes {
  static constexpr u32 kBytes = 32;
  static constexpr int kWords = 2;
  DEVICE static u32 even(const u32* word) { return word[0]; }
  DEVICE static u32 odd(const u32* word) { return word[1]; }
  // code = (128 + low seven bits) - (128 or, if negative, 256): both exact in bf16.
  template <int i>
  DEVICE static u32 pair(const u32* word) {
    const u32 bytes = pick_bytes(word[0], word[1], i | i << 4 | (4 + i) << 8 | (4 + i) << 12);
    return fma_bf16_pairs(bytes & 0x007f007f | 0x43004300, kOnes, bytes & 0x00800080 | 0xc300c300);
  }
};

// MLX affine 4-bit: w = scale * code + bias, both bf16. A parameter word holds the scale below the bias.
template <int group_>
struct Affine4 : Nibbles {
  static constexpr int kGroup = group_;
  static constexpr bool kBias = true;       // sums of the inputs are needed
  static constexpr int kParameters = 2;     // arrays of 16-bit parameters in memory
  DEVICE static void store(u32* word, int array, u16 bits) { ((u16*)word)[array] = bits; }
  DEVICE static float scale(u32 word) { return bf16_low(word); }
  DEVICE static float bias(u32 word) { return bf16_high(word); }
};

// GGUF Q4_0, split: w = scale * (code - 8), scale f16. A parameter word holds the scale as f32.
struct Q4_0 : Nibbles {
  static constexpr int kGroup = 32;
  static constexpr bool kBias = true;
  static constexpr int kParameters = 1;
  DEVICE static void store(u32* word, int, u16 bits) { *word = as_bits(f16_value(bits)); }
  DEVICE static float scale(u32 word) { return as_float(word); }
  DEVICE static float bias(u32 word) { return __fmul_rn(as_float(word), -8.0f); }
};

// GGUF Q8_0, split: w = scale * code, scale f16.
struct Q8_0 : Bytes {
  static constexpr int kGroup = 32;
  static constexpr bool kBias = false;
  static constexpr int kParameters = 1;
  DEVICE static void store(u32* word, int, u16 bits) { *word = as_bits(f16_value(bits)); }
  DEVICE static float scale(u32 word) { return as_float(word); }
  DEVICE static float bias(u32) { return 0.0f; }
};
