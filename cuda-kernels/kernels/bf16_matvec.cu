// y = x W^T for bf16 weights and 1 to 32 rows of bf16 inputs. common/matvec.cuh says how.
//
// x: m x k bf16. weights: n x k bf16. y: m x n, bf16 or f32; for SwiGLU m x n / 2.
// written: 0 rounds to bf16, 1 writes f32, 2 adds to the bf16 in y, 3 is SwiGLU of y's halves, n a multiple of 32.
// All 16-byte aligned; k a multiple of 8.
// Entry points bf16_matvec_{8,16,32}: rows at most. 256 threads, 16 outputs a block, grid ceil(n / 16).
#include "common/matvec.cuh"

#define ENTRY(rows)                                                                                              \
  KERNEL(256, 2)                                                                                                 \
  bf16_matvec_##rows(const u16* x, const u8* weights, void* y, u32 m, u32 n, u32 k, u32 written) {               \
    Matvec<Bf16Rows, rows / 8, 1, 2>({x, weights, nullptr, nullptr, y, m, n, k, written}).run();                 \
  }

ENTRY(8)
ENTRY(16)
ENTRY(32)
