// The loss of each row of logits against its target token, and the gradient of the logits.
//
//   loss[r]          = ln(sum over i of e^(x[i] - top)) - (x[target] - top),   top the row's largest
//   gradient[r][i]   = bf16( scale * (e^(x[i] - top) / sum - [i = target]) )
//
// A target beyond the row (0xffffffff, say) asks for no prediction: loss 0, gradient 0. A NaN in a row, or an infinity that
// is not negative, makes its loss and gradient NaN, and so does nothing but -infinity; else that has no share.
//
// logits: m x n f32, targets: m u32, losses: m f32, gradient: m x n bf16, row-major; 16-byte aligned (targets and losses
// 4); n a multiple of 4. scale: 1 / the number of predicted tokens, for the mean.
// Tile: a row a block of 256 threads, 4 numbers a thread and pass, three passes: largest, sum, gradient. The sum adds a
// thread's terms in the order of its columns, lanes by distance, warps in order; the same bits every time.
// In f32, e^x and ln x by ex2.approx and lg2.approx. Against real numbers, u = 2^-24, D the largest |x - top| that matters
// (beyond 104 terms vanish): a probability p within (n / 1024 + 20 + 4 D) u p; the loss within
// (n / 1024 + 24 + 4 D) u + 4 u |loss|.
#include "common/activation.cuh"
#include "common/warp.cuh"

// log2 x. PTX: log2f from the toolkit's headers would bring their path.
DEVICE float log2_approximate(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

DEVICE float exponential(float x) { return exp2_approximate(__fmul_rn(x, 1.44269504f)); }

KERNEL(256, 1)
cross_entropy(const float* logits, const u32* targets, float* losses, u16* gradient, u32 n, float scale) {
  __shared__ float parts[8];
  const u64 start = (u64)blockIdx.x * n;
  const float* row = logits + start;
  const u32 target = targets[blockIdx.x];
  if (target >= n) {
    for (u32 i = threadIdx.x * 4; i < n; i += 1024) *(uint2*)(gradient + start + i) = make_uint2(0, 0);
    if (threadIdx.x == 0) losses[blockIdx.x] = 0.0f;
    return;
  }
  // Whatever a NaN does to the largest, it comes into the sum.
  float top = as_float(0xff800000);
  for (u32 i = threadIdx.x * 4; i < n; i += 1024) {
    const float4 x = *(const float4*)(row + i);
    top = larger(larger(top, larger(x.x, x.y)), larger(x.z, x.w));
  }
  for (int distance = 1; distance < 32; distance *= 2) top = larger(top, as_float(exchange(as_bits(top), distance)));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = top;
  __syncthreads();
  top = parts[0];
#pragma unroll
  for (int warp = 1; warp < 8; warp++) top = larger(top, parts[warp]);
  __syncthreads();

  float sum = 0.0f;
  for (u32 i = threadIdx.x * 4; i < n; i += 1024) {
    const float4 x = *(const float4*)(row + i);
    sum = __fadd_rn(sum, exponential(__fadd_rn(x.x, -top)));
    sum = __fadd_rn(sum, exponential(__fadd_rn(x.y, -top)));
    sum = __fadd_rn(sum, exponential(__fadd_rn(x.z, -top)));
    sum = __fadd_rn(sum, exponential(__fadd_rn(x.w, -top)));
  }
  sum = sum_of_block<8>(sum, parts);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = __fmaf_rn(log2_approximate(sum), 0.693147182f, -__fadd_rn(row[target], -top));
  }
  const float share = __fdiv_rn(1.0f, sum);
  for (u32 i = threadIdx.x * 4; i < n; i += 1024) {
    const float4 x = *(const float4*)(row + i);
    float p[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      p[j] = __fmul_rn(exponential(__fadd_rn(p[j], -top)), share);
      if (i + j == target) p[j] = __fadd_rn(p[j], -1.0f);
      p[j] = __fmul_rn(p[j], scale);
    }
    *(uint2*)(gradient + start + i) = make_uint2(bf16_pair(p[0], p[1]), bf16_pair(p[2], p[3]));
  }
}
