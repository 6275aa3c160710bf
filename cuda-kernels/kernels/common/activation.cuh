// The logistic function, and gating with SiLU.
#pragma once
#include "bf16.cuh"

// 2^x, within two units in the last place. PTX: exp2f from the toolkit's headers would bring their path.
DEVICE float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / (1 + e^-x): 0 for -infinity, 1 for infinity.
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + exp2_approximate(x * -1.44269504f)); }

// silu(gate) * up.
DEVICE float gated(float gate, float up) { return gate * sigmoid(gate) * up; }
