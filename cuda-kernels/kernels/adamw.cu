// One step of AdamW, with decoupled weight decay, and the bf16 copy that the next forward pass reads.
//
//   m = m + (1 - beta1) (g - m)        v = v + (1 - beta2) (g^2 - v)
//   w = w - rate decay w - rate (m / c1) / (sqrt(v / c2) + epsilon),   c1 = 1 - beta1^t, c2 = 1 - beta2^t
//
// The host gives, made in f64 and rounded once: b1 = 1 - beta1, b2 = 1 - beta2, keep = 1 - rate decay, step = rate / c1,
// root = 1 / sqrt(c2). Then, in f32 with every operation correctly rounded (fma where written):
//   m = fma(b1, g - m, m), v = fma(b2, fma(g, g, -v), v)
//   w = fma(-step, m / fma(sqrt(v), root, epsilon), keep w)
// A gradient that is not finite makes its own weight so, and no other.
//
// weights, first, second, gradient: n f32; copy: n bf16; all 16-byte aligned; n any.
// Tile: 4 weights a thread, 256 threads, ceil(n / 1024) blocks. No shared memory.
// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
#include "common/bf16.cuh"

struct Step {
  float b1, b2, keep, step, root, epsilon;
};

DEVICE void update(const Step& s, float g, float& w, float& m, float& v) {
  m = __fmaf_rn(s.b1, __fadd_rn(g, -m), m);
  v = __fmaf_rn(s.b2, __fmaf_rn(g, g, -v), v);
  const float size = __fmaf_rn(__fsqrt_rn(v), s.root, s.epsilon);
  w = __fmaf_rn(-s.step, __fdiv_rn(m, size), __fmul_rn(s.keep, w));
}

KERNEL(256, 1) adamw(float* weights, float* first, float* second, const float* gradient, u16* copy, u64 n, Step s) {
  const u64 at = ((u64)blockIdx.x * 256 + threadIdx.x) * 4;
  if (at + 4 <= n) {
    float4 w = *(float4*)(weights + at), m = *(float4*)(first + at), v = *(float4*)(second + at);
    const float4 g = *(const float4*)(gradient + at);
    update(s, g.x, w.x, m.x, v.x);
    update(s, g.y, w.y, m.y, v.y);
    update(s, g.z, w.z, m.z, v.z);
    update(s, g.w, w.w, m.w, v.w);
    *(float4*)(weights + at) = w;
    *(float4*)(first + at) = m;
    *(float4*)(second + at) = v;
    *(uint2*)(copy + at) = make_uint2(bf16_pair(w.x, w.y), bf16_pair(w.z, w.w));
    return;
  }
  for (u64 i = at; i < n; i++) {
    float w = weights[i], m = first[i], v = second[i];
    update(s, gradient[i], w, m, v);
    weights[i] = w;
    first[i] = m;
    second[i] = v;
    copy[i] = (u16)bf16_pair(w, 0.0f);
  }
}
