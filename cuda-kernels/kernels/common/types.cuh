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
