// y = x W^T for GGUF Q4_0 weights, split at load time by q4_0_split, and 1 to 32 rows of bf16 inputs.
// common/matvec.cuh says how.
//
// x: m x k bf16. weights, scales: as for q4_0_prefill, n x k. y: m x n, bf16 or f32; for SwiGLU m x n / 2.
// written: 0 rounds to bf16, 1 writes f32, 2 adds to the bf16 in y, 3 is SwiGLU of y's halves, n a multiple of 32.
// All 16-byte aligned; k a multiple of 32.
// Entry points q4_0_matvec_{8,16,32}: rows at most. 256 threads; 16, 32 and 32 outputs a block, grid ceil(n / outputs).
#include "common/matvec.cuh"

#define ENTRY(rows, output_tiles, stages)                                                                        \
  KERNEL(256, 2)                                                                                                 \
  q4_0_matvec_##rows(const u16* x, const u8* weights, const u16* scales, void* y, u32 m, u32 n, u32 k, u32 written) { \
    Matvec<Q4_0Rows, rows / 8, output_tiles, stages>({x, weights, scales, nullptr, y, m, n, k, written}).run();  \
  }

ENTRY(8, 1, 4)
ENTRY(16, 2, 3)
ENTRY(32, 2, 3)
