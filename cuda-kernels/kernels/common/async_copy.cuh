// Copies from global to shared memory that run beside the arithmetic, and the addresses they take.
#pragma once
#include "types.cuh"

// The 32-bit address in the shared window. PTX: what cp.async and ldmatrix take; C++ has 64-bit pointers only.
DEVICE u32 shared_address(const void* p) {
  u64 address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(p));
  return (u32)address;
}

// Starts copying 16 bytes, of which the first `bytes` come from memory and the rest are zero; both addresses are
// multiples of 16. PTX: a copy that passes by the registers and L1, and fills with zeros, has no C++ form.
DEVICE void copy16(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Ends a batch of this thread's copies. PTX: batches belong to cp.async.
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the newest `pending` of this thread's batches have landed. PTX: as above.
template <int pending>
DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
