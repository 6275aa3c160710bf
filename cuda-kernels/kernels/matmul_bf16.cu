// C = A B for bf16 matrices, either of them stored transposed, sums in f32 along k, ascending.
//
//   matmul_bf16_nn   A m x k, B k x n      the gradient of a layer's inputs:   dx = dy W
//   matmul_bf16_nt   A m x k, B n x k      a layer:                            y  = x W^T
//   matmul_bf16_tn   A k x m, B k x n      the gradient of its weights:        dW = dy^T x
//
// All row-major, 16-byte aligned; k a multiple of 8, n too (nt: of 2), m for tn (else any). c: m x n. output: 0 writes bf16, 1 writes f32, 2 adds to f32
// (one f32 addition an element).
// No atomics and no split sums: the same bits every time, and for every grid.
// Tile: 128 x 128, 32 deep, 256 threads; grid: row tiles times column tiles, in one dimension, column tiles first.
#include "common/matmul.cuh"

#define MATMUL(name, a_along, b_along)                                                                            \
  KERNEL(256, 1)                                                                                                  \
  matmul_bf16_##name(const u16* a, const u16* b, void* c, u32 m, u32 n, u32 k, u32 output) {                      \
    matmul<a_along, b_along>(a, b, c, m, n, k, output);                                                           \
  }

MATMUL(nn, true, false)
MATMUL(nt, true, true)
MATMUL(tn, false, false)
