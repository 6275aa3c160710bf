// What kernels around matrix products use: mathematical functions, exchanges within warps and blocks, atomics.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define NEXT out[n * j++ + i]

// 32 results of each x, n apart.
extern "C" __global__ void functions(float* out, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = 0;
  if (i >= n) return;
  float a = x[i], s, c;
  NEXT = expf(a);
  NEXT = __expf(a);
  NEXT = exp2f(a);
  NEXT = logf(a);
  NEXT = __logf(a);
  NEXT = log2f(a);
  NEXT = sinf(a);
  NEXT = cosf(a);
  NEXT = tanhf(a);
  NEXT = __cosf(a);
  NEXT = powf(a, 2.3f);
  NEXT = rsqrtf(a);
  NEXT = sqrtf(a);
  NEXT = __fdividef(1.5f, a);
  NEXT = a / (a + 1.5f);
  NEXT = cbrtf(a);
  NEXT = log1pf(a);
  NEXT = expm1f(a);
  NEXT = fmodf(a, 1.7f);
  NEXT = roundf(a);
  NEXT = rintf(a);
  NEXT = ldexpf(a, 3);
  NEXT = (float)exp((double)a);
  NEXT = (float)log((double)a);
  NEXT = (float)sin((double)a);
  NEXT = (float)pow((double)a, 0.7);
  NEXT = (float)((double)a / 3.0 + sqrt((double)a));
  NEXT = __bfloat162float(hexp(__float2bfloat16(a)));
  NEXT = __half2float(hrsqrt(__float2half(a)));
  // Far from zero: the long way to reduce the argument.
  sincosf(a * 100000.0f, &s, &c);
  NEXT = s;
  NEXT = c;
  NEXT = a > 4.0f ? __saturatef(a - 4.0f) : fmaxf(a, 0.5f);
}

// Results of a block of 64 threads, 64 apart.
extern "C" __global__ void exchanges(unsigned* out, const unsigned* x) {
  const unsigned all = 0xffffffffu;
  int n = 64, i = threadIdx.x, j = 0;
  unsigned a = x[i];
  NEXT = __shfl_xor_sync(all, a, 16);
  NEXT = __shfl_down_sync(all, a, 4, 16);
  NEXT = (unsigned)__shfl_xor_sync(all, (double)a * 0.5, 1);
  NEXT = __ballot_sync(all, a % 3 == 0);
  NEXT = __match_any_sync(all, a % 4);
  NEXT = __reduce_max_sync(all, a);
  NEXT = __reduce_add_sync(all, a);
  NEXT = __syncthreads_count(a % 2);
  NEXT = __syncthreads_and(a < 1000) + 2 * __syncthreads_or(a == 1000);
  unsigned part = 0;
  if (a % 2 == 0) part = __popc(__activemask()) + __reduce_add_sync(__activemask(), 1u) * 100;
  NEXT = part;
  auto warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  NEXT = cooperative_groups::reduce(warp, a, cooperative_groups::plus<unsigned>());
  NEXT = __float_as_uint(cooperative_groups::reduce(warp, (float)a, cooperative_groups::greater<float>()));
  __shared__ unsigned sums[3];
  __shared__ float sum;
  if (i < 3) sums[i] = i == 2 ? ~0u : 0;
  if (i == 3) sum = 0;
  __syncthreads();
  atomicAdd(&sums[0], a);
  atomicMax(&sums[1], a);
  atomicMin(&sums[2], a);
  atomicAdd(&sum, 0.5f);
  __syncthreads();
  NEXT = sums[i % 3] + (unsigned)sum;
}
