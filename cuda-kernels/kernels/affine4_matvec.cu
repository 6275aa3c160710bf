// y = x W^T for MLX affine 4-bit weights, as stored, and 1 to 32 rows of bf16 inputs. common/matvec.cuh says how.
//
// x: m x k bf16. weights, scales, biases: as for w4a8_prefill, n x k. y: m x n, bf16 or f32; for SwiGLU m x n / 2.
// written: 0 rounds to bf16, 1 writes f32, 2 adds to the bf16 in y, 3 is SwiGLU of y's halves, n a multiple of 32.
// All 16-byte aligned; k a multiple of the group.
// Entry points affine4_matvec_g{32,64,128}_{8,16,32}: rows at most. 256 threads; 16, 32 and 32 outputs a block, grid
// ceil(n / outputs).
#include "common/matvec.cuh"

#define ENTRY(group, rows, output_tiles, stages)                                                                      \
  KERNEL(256, 2)                                                                                                      \
  affine4_matvec_g##group##_##rows(const u16* x, const u8* weights, const u16* scales, const u16* biases, void* y,    \
                                   u32 m, u32 n, u32 k, u32 written) {                                                \
    Matvec<AffineRows<group>, rows / 8, output_tiles, stages>({x, weights, scales, biases, y, m, n, k, written}).run(); \
  }

ENTRY(32, 8, 1, 4)
ENTRY(32, 16, 2, 3)
ENTRY(32, 32, 2, 3)
ENTRY(64, 8, 1, 4)
ENTRY(64, 16, 2, 3)
ENTRY(64, 32, 2, 3)
ENTRY(128, 8, 1, 4)
ENTRY(128, 16, 2, 3)
ENTRY(128, 32, 2, 3)
