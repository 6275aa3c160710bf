// total += sum of x: a shuffle tree in each warp, shared memory between warps, one atomic addition a block.
// Blocks of 128 threads.
extern "C" __global__ void __launch_bounds__(128) block_sum(const int* x, int* total, int n) {
  __shared__ int sums[4];
  int sum = 0;
  for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) sum += x[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(total, sums[0] + sums[1] + sums[2] + sums[3]);
}
