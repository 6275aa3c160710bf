// C = op(A) op(B) for bf16 matrices, sums in f32: 128 x 128 outputs a block, 32 x 64 a warp, 32 deep, three stages.
//
// A matrix lies in shared memory as it is stored, 16-byte pieces exchanged within a row so that ldmatrix has no bank
// conflicts; one whose rows run along the sum is loaded with ldmatrix, the other way round with its transposing form.
#pragma once
#include "async_copy.cuh"
#include "bf16.cuh"
#include "tensor_core.cuh"

// How C is written.
enum Output : u32 { kBf16 = 0, kF32 = 1, kAddF32 = 2 };

// A block's part of an operand: 128 outer (rows of C for A, columns for B) by 32 along the sum.
// `along` tells whether a stored row runs along the sum (128 rows of 64 bytes) or across it (32 rows of 256 bytes).
template <bool along>
struct Operand {
  static constexpr u32 kPieces = along ? 4 : 16, kBytes = 128 * 32 * 2;

  DEVICE static u32 piece(u32 r, u32 c) {
    return along ? (r * 4 + (c ^ (r / 2 & 3))) * 16 : (r * 16 + (c ^ (r & 7))) * 16;
  }

  // Starts copying; zeros beyond the `outer` x `k` matrix.
  DEVICE static void load(u32 to, const u16* from, u32 outer, u32 k, u32 outer0, u32 k0) {
#pragma unroll
    for (u32 i = threadIdx.x; i < 512; i += 256) {
      const u32 r = i / kPieces, c = i % kPieces;
      const u32 o = outer0 + (along ? r : c * 8), d = k0 + (along ? c * 8 : r);
      const bool inside = o < outer && d < k;
      const u64 at = along ? (u64)o * k + d : (u64)d * outer + o;
      copy16(to + piece(r, c), from + (inside ? at : 0), inside ? 16 : 0);
    }
  }

  // Four 8 x 8 matrices at outer `o`, depth `d`: matrix 1 is 8 further in depth if `depth_first`, else 8 further out;
  // matrix 2 the other one, matrix 3 both.
  DEVICE static void fragment(u32 (&r)[4], u32 at, u32 o, u32 d, bool depth_first) {
    const u32 lane = threadIdx.x % 32, one = lane / 8 & 1, two = lane / 16;
    const u32 out = o + (depth_first ? two : one) * 8, deep = d + (depth_first ? one : two) * 8;
    if (along) {
      load_matrices(r, at + piece(out + lane % 8, deep / 8));
    } else {
      load_matrices_transposed(r, at + piece(deep + lane % 8, out / 8));
    }
  }
};

template <bool a_along, bool b_along>
DEVICE void matmul(const u16* a, const u16* b, void* c, u32 m, u32 n, u32 k, u32 output) {
  using A = Operand<a_along>;
  using B = Operand<b_along>;
  constexpr u32 kStages = 3, kStage = A::kBytes + B::kBytes;
  needs_shared<(int)(kStages * kStage)>();
  const u32 shared = shared_address(shared_memory);
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 column_tiles = (n + 127) / 128, m0 = blockIdx.x / column_tiles * 128, n0 = blockIdx.x % column_tiles * 128;
  const u32 row = warp % 4 * 32, column = warp / 4 * 64, stages = (k + 31) / 32;
  const auto load = [&](u32 t) {
    const u32 to = shared + t % kStages * kStage;
    if (t < stages) {
      A::load(to, a, m, k, m0, t * 32);
      B::load(to + A::kBytes, b, n, k, n0, t * 32);
    }
    commit_copies();
  };
  load(0);
  load(1);
  float sum[2][8][4] = {};
  for (u32 t = 0; t < stages; t++) {
    wait_copies<kStages - 2>();
    __syncthreads();
    load(t + 2);
    const u32 at = shared + t % kStages * kStage;
#pragma unroll
    for (u32 d = 0; d < 32; d += 16) {
      u32 x[2][4];
#pragma unroll
      for (u32 i = 0; i < 2; i++) A::fragment(x[i], at, row + i * 16, d, false);
#pragma unroll
      for (u32 j = 0; j < 8; j += 2) {
        u32 w[4];
        B::fragment(w, at + A::kBytes, column + j * 8, d, true);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
          mma_bf16(sum[i][j], x[i][0], x[i][1], x[i][2], x[i][3], w[0], w[1], sum[i][j]);
          mma_bf16(sum[i][j + 1], x[i][0], x[i][1], x[i][2], x[i][3], w[2], w[3], sum[i][j + 1]);
        }
      }
    }
  }
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
      const u32 r = m0 + row + i * 16 + half * 8 + lane / 4;
#pragma unroll
      for (u32 j = 0; j < 8; j++) {
        const u32 o = n0 + column + j * 8 + lane % 4 * 2;
        if (r >= m || o >= n) continue;
        const u64 to = (u64)r * n + o;
        float2 v = make_float2(sum[i][j][half * 2], sum[i][j][half * 2 + 1]);
        if (output == kBf16) {
          *(u32*)((u16*)c + to) = bf16_pair(v.x, v.y);
        } else {
          float2* out = (float2*)((float*)c + to);
          if (output == kAddF32) {
            const float2 old = *out;
            v = make_float2(old.x + v.x, old.y + v.y);
          }
          *out = v;
        }
      }
    }
  }
}
