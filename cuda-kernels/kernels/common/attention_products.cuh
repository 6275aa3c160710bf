// Products of a warp's 16 lines with a tile in shared memory, rows of `dim` bf16 laid out by row_piece.
#pragma once
#include "async_copy.cuh"
#include "bf16.cuh"
#include "tensor_core.cuh"

// Byte offset of 16-byte piece c of row r, `pieces` (a multiple of 8) a row: ldmatrix has no bank conflicts.
template <int pieces>
DEVICE u32 row_piece(u32 r, u32 c) {
  return (r * pieces + (c ^ (r & 7))) * 16;
}

// Numbers 16 step..16 step + 15 of rows row..row + 15: the left operand of an mma.
template <int dim>
DEVICE void load_left(u32 (&a)[4], u32 tile, u32 row, int step) {
  const u32 lane = threadIdx.x % 32;
  load_matrices(a, tile + (row_piece<dim / 8>(row + lane % 16, lane / 16) ^ step * 32));
}

// s[i] = A[i] T^T: `left(a, i, step)` gives the fragments of A[i]'s 16 rows, T is a tile of `rows` rows, read once for
// all of them. Sums along dim, ascending.
template <int dim, int rows, int count, class Left>
DEVICE void multiply_rows_by(float (&s)[count][rows / 8][4], const Left& left, u32 tile) {
  const u32 lane = threadIdx.x % 32, of_lane = row_piece<dim / 8>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int i = 0; i < count; i++) {
#pragma unroll
    for (int n = 0; n < rows / 8; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) s[i][n][e] = 0.0f;
    }
  }
#pragma unroll
  for (int step = 0; step < dim / 16; step++) {
    u32 a[count][4];
#pragma unroll
    for (int i = 0; i < count; i++) left(a[i], i, step);
#pragma unroll
    for (int n = 0; n < rows / 8; n += 2) {
      u32 b[4];
      load_matrices(b, tile + (of_lane ^ step * 32) + n * 8 * dim * 2);
#pragma unroll
      for (int i = 0; i < count; i++) {
        mma_bf16(s[i][n], a[i][0], a[i][1], a[i][2], a[i][3], b[0], b[1], s[i][n]);
        mma_bf16(s[i][n + 1], a[i][0], a[i][1], a[i][2], a[i][3], b[2], b[3], s[i][n + 1]);
      }
    }
  }
}

// The same for one A: `left(a, step)`.
template <int dim, int rows, class Left>
DEVICE void multiply_rows(float (&s)[rows / 8][4], const Left& left, u32 tile) {
  multiply_rows_by<dim, rows, 1>((float(&)[1][rows / 8][4])s, [&](u32(&a)[4], int, int step) { left(a, step); }, tile);
}

// o[i] += A[i] T for the 16 rows of T from `row` on: `a[i]` has A[i]'s weights of them.
template <int dim, int count>
DEVICE void add_weighted_rows(float (&o)[count][dim / 8][4], const u32 (&a)[count][4], u32 tile, u32 row) {
  const u32 lane = threadIdx.x % 32, of_lane = row_piece<dim / 8>(lane % 8 + lane / 8 % 2 * 8, lane / 16);
#pragma unroll
  for (int n = 0; n < dim / 8; n += 2) {
    u32 b[4];
    load_matrices_transposed(b, tile + (of_lane ^ n * 16) + row * dim * 2);
#pragma unroll
    for (int i = 0; i < count; i++) {
      mma_bf16(o[i][n], a[i][0], a[i][1], a[i][2], a[i][3], b[0], b[1], o[i][n]);
      mma_bf16(o[i][n + 1], a[i][0], a[i][1], a[i][2], a[i][3], b[2], b[3], o[i][n + 1]);
    }
  }
}

// The same for a whole tile, with weights in f32, as accumulators hold them, rounded to bf16.
template <int dim, int rows>
DEVICE void add_weighted_tile(float (&o)[dim / 8][4], const float (&w)[rows / 8][4], u32 tile) {
#pragma unroll
  for (int k = 0; k < rows / 8; k += 2) {
    const u32 a[1][4] = {{bf16_pair(w[k][0], w[k][1]), bf16_pair(w[k][2], w[k][3]), bf16_pair(w[k + 1][0], w[k + 1][1]),
                          bf16_pair(w[k + 1][2], w[k + 1][3])}};
    add_weighted_rows<dim, 1>((float(&)[1][dim / 8][4])o, a, tile, k * 8);
  }
}

// Lanes of a warp see what the others wrote to shared memory. PTX: __syncwarp would bring a toolkit header's path.
DEVICE void sync_warp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// A warp's 16 lines from accumulators, times `factor` (of the upper and the lower row), as bf16: through 16 rows of
// shared memory of the warp's own at `staged`, so that whole rows are written. `to(line)` is where line 0..15 goes, or
// null.
template <int dim, class To>
DEVICE void store_lines(const float (&o)[dim / 8][4], const float (&factor)[2], u8* staged, const To& to) {
  const u32 lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; half++) {
#pragma unroll
    for (int n = 0; n < dim / 8; n++) {
      // + 0: a zero is +0, whatever tiles its line saw nothing of.
      const float left = __fadd_rn(__fmul_rn(o[n][half * 2], factor[half]), 0.0f);
      const float right = __fadd_rn(__fmul_rn(o[n][half * 2 + 1], factor[half]), 0.0f);
      *(u32*)(staged + row_piece<dim / 8>(lane / 4 + half * 8, n) + lane % 4 * 4) = bf16_pair(left, right);
    }
  }
  sync_warp();
#pragma unroll
  for (u32 piece = lane; piece < 16 * dim / 8; piece += 32) {
    const u32 r = piece / (dim / 8), c = piece % (dim / 8);
    u16* line = to(r);
    if (line != nullptr) *(uint4*)(line + c * 8) = *(const uint4*)(staged + row_piece<dim / 8>(r, c));
  }
}
