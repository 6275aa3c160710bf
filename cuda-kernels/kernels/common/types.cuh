// Integer names of fixed width, and how a kernel is declared. No toolkit header is included anywhere: their paths would
// end in the PTX's line tables.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

#define DEVICE __device__ __forceinline__
// An entry point with its C name, for blocks of exactly `threads` threads, of which `blocks` should fit on a
// multiprocessor.
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

// min and max, which would bring a toolkit header's path with them.
template <class T>
DEVICE T smaller(T a, T b) {
  return a < b ? a : b;
}
template <class T>
DEVICE T larger(T a, T b) {
  return a > b ? a : b;
}

// threadIdx.x, read anew. PTX: volatile, so that a loop computes what follows from it again instead of keeping it, and
// every address made of it, in registers that the loop's work needs more.
DEVICE u32 thread_again() {
  u32 thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Dynamic shared memory of a block, whose size the launch gives; every kernel says with needs_shared() how much.
extern __shared__ __align__(128) u8 shared_memory[];

// Leaves a line in the PTX from which launchers and `cargo xtask contract` read the size. PTX: a comment, no instruction.
template <int bytes>
DEVICE void needs_shared() {
  asm volatile("// dynamic shared memory: %0 bytes" ::"n"(bytes));
}
