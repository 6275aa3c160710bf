// Tiles of keys and values in shared memory: one interface for bf16 caches and for e4m3 caches with scales.
//
// The tiles of a block come in the order they are used, K0 V0 K1 V1 ..., step i being the keys of tile i / 2 or its
// values, as bf16 `keys` x `dim`, 16-byte pieces exchanged within a row so that ldmatrix has no bank conflicts. Two
// steps are under way while one is worked on, and a step costs one barrier:
//
//   bf16   cp.async fills three slots in turn
//   e4m3   cp.async fills two slots of codes in turn; each thread widens the pieces that it copied itself, after its
//          own wait, into one of two slots of bf16. Scales of the rows lie in four slots: they are still read when the
//          copies two steps later begin.
//
// A slot is written after a barrier that every warp reaches only when it has used what was there.
// Rows from `end` on, which no line sees, are not read: they are zeros, and so are their scales.
#pragma once
#include "attention_products.cuh"
#include "fp8.cuh"

// The keys and values of one kv head.
struct KvHead {
  const u8 *keys, *values;
  const float *key_scales, *value_scales;  // of the rows; unused in bf16
};

// With four slots a tile's keys stay until the step after its values.
template <int dim, int keys, int warps, int slots = 3>
struct Bf16Tiles {
  static constexpr int kDim = dim, kKeys = keys, kWarps = warps, kThreads = warps * 32;
  static constexpr bool kScales = false;
  static constexpr int kSlots = slots, kSlot = keys * dim * 2, kShared = kSlots * kSlot;

  KvHead head;
  u32 shared, first, end, steps;  // address; first tile's first position; positions; two steps a tile

  DEVICE void start(u32 i) const {
    if (i < steps) {
      constexpr int kPieces = dim / 8;
      const u32 to = slot(i), row0 = first + i / 2 * keys;
      const u8* from = (i % 2 ? head.values : head.keys) + (u64)row0 * (dim * 2);
#pragma unroll
      for (u32 piece = threadIdx.x; piece < keys * kPieces; piece += kThreads) {
        const u32 r = piece / kPieces;
        const bool inside = row0 + r < end;
        copy16(to + row_piece<kPieces>(r, piece % kPieces), from + (inside ? piece * 16 : 0), inside ? 16 : 0);
      }
    }
    commit_copies();
  }

  // Waits for step i and sets step i + 2 going; the address of the tile.
  DEVICE u32 ready(u32 i) const {
    wait_copies<1>();
    __syncthreads();
    start(i + 2);
    return slot(i);
  }

  DEVICE u32 slot(u32 i) const { return shared + i % kSlots * kSlot; }
  // A slot that is not written before step 0 is ready and every warp has come there.
  DEVICE u32 spare() const { return slot(kSlots - 1); }
  DEVICE float2 scales(u32, u32) const { return make_float2(1.0f, 1.0f); }
};

template <int dim, int keys, int warps>
struct Fp8Tiles {
  static constexpr int kDim = dim, kKeys = keys, kWarps = warps, kThreads = warps * 32;
  static constexpr bool kScales = true;
  static constexpr int kSlots = 2, kSlot = keys * dim * 2, kScaleSlots = 4;
  static constexpr int kCodesAt = kSlots * kSlot, kCodes = keys * dim, kScalesAt = kCodesAt + 2 * kCodes;
  static constexpr int kShared = kScalesAt + kScaleSlots * keys * 4;
  static constexpr int kPieces = dim / 16;  // of 16 codes in a row

  KvHead head;
  u32 shared, first, end, steps;

  DEVICE void start(u32 i) const {
    if (i < steps) {
      const u32 to = shared + kCodesAt + i % 2 * kCodes, row0 = first + i / 2 * keys;
      const u8* from = (i % 2 ? head.values : head.keys) + (u64)row0 * dim;
#pragma unroll
      for (u32 piece = threadIdx.x; piece < keys * kPieces; piece += kThreads) {
        const bool inside = row0 + piece / kPieces < end;
        copy16(to + piece * 16, from + (inside ? piece * 16 : 0), inside ? 16 : 0);
      }
      const u32 four = threadIdx.x * 4;
      if (four < keys) {
        const float* scales = (i % 2 ? head.value_scales : head.key_scales) + row0;
        const bool inside = row0 + four < end;
        copy16(shared + kScalesAt + (i % kScaleSlots * keys + four) * 4, scales + (inside ? four : 0),
               inside ? smaller(end - row0 - four, 4u) * 4 : 0);
      }
    }
    commit_copies();
  }

  DEVICE u32 ready(u32 i) const {
    wait_copies<1>();
    if (i < steps) widen(i);
    start(i + 2);
    __syncthreads();
    return slot(i);
  }

  DEVICE void widen(u32 i) const {
    const u8* codes = shared_memory + kCodesAt + i % 2 * kCodes;
    u8* to = shared_memory + i % kSlots * kSlot;
#pragma unroll 4
    for (u32 piece = threadIdx.x; piece < keys * kPieces; piece += kThreads) {
      const u32 r = piece / kPieces, c = piece % kPieces;
      const uint4 word = *(const uint4*)(codes + piece * 16);
      const uint4 low = e4m3_to_bf16(word.x, word.y), high = e4m3_to_bf16(word.z, word.w);
      // Eight neighbours write at once: with rows of 256 bytes and more, half of them the upper piece first, or two
      // would meet in a bank.
      const u32 swap = kPieces >= 8 ? c / 4 % 2 : 0;
      *(uint4*)(to + row_piece<dim / 8>(r, c * 2 + swap)) = swap ? high : low;
      *(uint4*)(to + row_piece<dim / 8>(r, c * 2 + 1 - swap)) = swap ? low : high;
    }
  }

  DEVICE u32 slot(u32 i) const { return shared + i % kSlots * kSlot; }
  DEVICE u32 spare() const { return slot(kSlots - 1); }
  // Of rows `row` (even) and row + 1 of step i, which is ready.
  DEVICE float2 scales(u32 i, u32 row) const {
    return *(const float2*)(shared_memory + kScalesAt + (i % kScaleSlots * keys + row) * 4);
  }
};
