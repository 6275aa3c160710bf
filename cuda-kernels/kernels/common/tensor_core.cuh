// Matrix instructions. A lane is g = lane / 4, t = lane % 4; the fragments are as the PTX manual draws them:
//
//   ldmatrix   8 rows of 16 bytes, whose addresses 8 lanes give: lane (g, t) gets bytes 4t..4t+3 of row g
//   d, c       16 x 8: [0], [1] are row g, columns 2t and 2t + 1; [2], [3] the same of row g + 8
//   a          16 x 32 bytes: [0] row g, bytes 4t..4t+3; [1] row g + 8; [2], [3] the same at bytes 16 + 4t
//   b          8 columns of 32 bytes: b0 column g, bytes 4t..4t+3; b1 bytes 16 + 4t
#pragma once
#include "types.cuh"

// Four 8 x 8 matrices of 16-bit elements: lanes 8i..8i+7 give the rows of matrix i. PTX: no C++ form.
DEVICE void load_matrices(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same, each matrix transposed: lane (g, t) gets elements g of rows 2t and 2t + 1. PTX: no C++ form.
DEVICE void load_matrices_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// d = a * b + c over 32 int8 each, exact while it fits i32. PTX: the only way to this shape of int8 mma.
DEVICE void mma_int8(i32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, const i32 (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

// d = a * b + c over 16 bf16 each, products exact, sums in f32 in an order and with a rounding of the hardware's own.
// PTX: the only way to this shape.
DEVICE void mma_bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
