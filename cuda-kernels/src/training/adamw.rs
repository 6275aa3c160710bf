//! The optimizer.

use crate::check::{at_most, length, place};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels};
use half::bf16;
use halfbyte_cuda_driver::{Argument, DeviceSlice, DeviceSliceMut};

/// AdamW's settings and the step's number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub rate: f64,
    /// Decay of the mean of the gradients.
    pub beta1: f64,
    /// Decay of the mean of their squares.
    pub beta2: f64,
    /// Added to the root of that mean.
    pub epsilon: f64,
    /// Decoupled weight decay: a weight loses `rate * decay` of itself a step.
    pub decay: f64,
    /// From 1: what the means' starts at zero are corrected by.
    pub step: u64,
}

/// The layout of `adamw.cu`'s `Step`.
#[derive(Debug, Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct Step {
    b1: f32,
    b2: f32,
    keep: f32,
    step: f32,
    root: f32,
    epsilon: f32,
}

/// What AdamW keeps of a tensor's `n` weights: all of the same length.
#[derive(Debug)]
pub struct AdamState<'a> {
    /// The weights in f32.
    pub weights: DeviceSliceMut<'a, f32>,
    /// Mean of the gradients; zeros before the first step.
    pub first: DeviceSliceMut<'a, f32>,
    /// Mean of their squares; zeros before the first step.
    pub second: DeviceSliceMut<'a, f32>,
    /// The weights rounded to bf16, which the next forward pass reads; only written.
    pub copy: DeviceSliceMut<'a, bf16>,
}

impl AdamW {
    /// Queues a step: moves `state` by the gradient.
    ///
    /// ```text
    /// m = beta1 m + (1 - beta1) g      v = beta2 v + (1 - beta2) g^2
    /// w = w - rate decay w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
    /// ```
    ///
    /// In f32; the corrections are made in f64 and rounded once. A gradient that is not finite spoils its own weight.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for step 0, [`Error::Length`], [`Error::Alignment`] (16 bytes), [`Error::OtherContext`] or
    /// [`Error::TooLarge`], before anything is queued; [`Error::Driver`].
    #[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
    pub fn step<'q>(
        &self,
        kernels: &Kernels,
        queue: impl Into<Queue<'q>>,
        state: &mut AdamState<'_>,
        gradient: DeviceSlice<'_, f32>,
    ) -> Result<(), Error> {
        if self.step == 0 {
            return Err(Error::Mismatch { what: "AdamW's first step", expected: 1, got: 0 });
        }
        let n = state.weights.len();
        length("the means of the gradients", n, state.first.len())?;
        length("the means of the squares", n, state.second.len())?;
        length("the bf16 copy of the weights", n, state.copy.len())?;
        length("the gradient of the weights", n, gradient.len())?;
        let context = kernels.context();
        place("the weights", context, state.weights.context(), state.weights.pointer(), 16)?;
        place("the means of the gradients", context, state.first.context(), state.first.pointer(), 16)?;
        place("the means of the squares", context, state.second.context(), state.second.pointer(), 16)?;
        place("the bf16 copy of the weights", context, state.copy.context(), state.copy.pointer(), 16)?;
        place("the gradient of the weights", context, gradient.context(), gradient.pointer(), 16)?;
        let blocks = n.div_ceil(1024);
        at_most("the blocks of an optimizer's step", i32::MAX as usize, blocks)?;
        if n == 0 {
            return Ok(());
        }
        let steps = self.step as f64;
        let numbers = Step {
            b1: (1.0 - self.beta1) as f32,
            b2: (1.0 - self.beta2) as f32,
            keep: (1.0 - self.rate * self.decay) as f32,
            step: (self.rate / (1.0 - self.beta1.powf(steps))) as f32,
            root: (1.0 / (1.0 - self.beta2.powf(steps)).sqrt()) as f32,
            epsilon: self.epsilon as f32,
        };
        let pointers = [
            state.weights.pointer(),
            state.first.pointer(),
            state.second.pointer(),
            gradient.pointer(),
            state.copy.pointer(),
        ];
        let [weights, first, second, gradient, copy] = &pointers;
        let count = n as u64;
        let arguments = [
            weights.into(),
            first.into(),
            second.into(),
            gradient.into(),
            copy.into(),
            Argument::new(&count),
            Argument::new(&numbers),
        ];
        let kernel = kernels.kernel("adamw")?;
        let describe = || (format!("{n}"), Work { operations: 0, bytes: 30 * count });
        // SAFETY: all five have `count` numbers, are aligned and of the kernels' context.
        unsafe { kernel.launch(queue.into(), [blocks as u32, 1, 1], &arguments, describe) }
    }
}
