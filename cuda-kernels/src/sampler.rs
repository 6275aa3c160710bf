//! The next token of each row of logits, on the device.

use crate::check::{at_most, length, place};
use crate::profiler::{Queue, Work};
use crate::{Error, Kernels, MAX_WINDOW};
use halfbyte_cuda_driver::{Argument, DeviceBuffer, DeviceSlice, DeviceSliceMut};

/// Logits of a slice, which a block takes.
const SLICE: usize = 4096;
/// Candidates of a slice, at most.
const CANDIDATES: usize = 32;

/// How a row's token is chosen.
///
/// A draw adds Gumbel noise to `logit / temperature` and takes the largest, which makes a token as likely as the softmax
/// says. The noise is a function of seed, position and token: the same draw again gives the same token, on every GPU, in
/// any window, and [`reference::sample`](crate::reference::sample) computes it without a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// 0 for the largest logit, else what logits are divided by: finite, not negative, its reciprocal finite.
    pub temperature: f32,
    /// How many of the largest logits take part, up to 32; 0: all.
    pub top_k: usize,
    /// The seed of the reply.
    pub seed: u64,
    /// The token's position in the reply: there is one draw for each seed and position.
    pub position: u64,
}

impl Draw {
    /// Chooses the largest logit; of equal logits that of the lowest token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, seed: 0, position: 0 };

    /// The reciprocal that kernel and twin multiply with; 0 for greedy.
    pub(crate) fn inverse_temperature(self) -> f32 {
        if self.temperature == 0.0 { 0.0 } else { 1.0 / self.temperature }
    }
}

/// The layout of `sampler.cu`'s `Rule`.
#[derive(Debug, Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Rule {
    inverse_temperature: f32,
    top_k: u32,
    seed: [u32; 2],
    position: [u32; 2],
}

/// A 64-bit number as the kernel's words, the lower first.
fn words(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// Samples rows of one vocabulary; holds the candidates between its two kernels.
#[derive(Debug)]
pub struct DeviceSampler {
    kernels: Kernels,
    vocabulary: usize,
    candidates: DeviceBuffer<u64>,
}

impl DeviceSampler {
    /// Logits of a row, at most: the 128 slices that the second kernel holds.
    pub const MAX_VOCABULARY: usize = 128 * SLICE;

    /// A sampler of windows of up to [`MAX_WINDOW`] rows of `vocabulary` logits.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more than [`MAX_VOCABULARY`](Self::MAX_VOCABULARY) logits; [`Error::Driver`].
    pub fn new(kernels: &Kernels, vocabulary: usize) -> Result<Self, Error> {
        at_most("the logits of a row", Self::MAX_VOCABULARY, vocabulary)?;
        let candidates = MAX_WINDOW * vocabulary.div_ceil(SLICE) * CANDIDATES;
        let candidates = DeviceBuffer::uninit(kernels.context(), candidates)?;
        Ok(Self { kernels: kernels.clone(), vocabulary, candidates })
    }

    /// Queues the choice of `tokens[r]` from row r of `logits` as `draws[r]` says; as many rows as draws.
    ///
    /// NaN counts as -infinity. A row in which nothing is above that gives `u32::MAX`, for which
    /// [`embed`](crate::embed) gives NaN.
    ///
    /// # Errors
    /// [`Error::WindowRows`], [`Error::Draw`] for a temperature or top_k out of range, [`Error::Length`],
    /// [`Error::Alignment`] (logits 16 bytes, tokens 4) or [`Error::OtherContext`], before anything is queued;
    /// [`Error::Driver`].
    #[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
    pub fn sample<'q>(
        &mut self,
        queue: impl Into<Queue<'q>>,
        draws: &[Draw],
        logits: DeviceSlice<'_, f32>,
        tokens: &mut DeviceSliceMut<'_, u32>,
    ) -> Result<(), Error> {
        let (queue, rows, vocabulary) = (queue.into(), draws.len(), self.vocabulary);
        if rows == 0 || rows > MAX_WINDOW {
            return Err(Error::WindowRows { limit: MAX_WINDOW, got: rows });
        }
        let mut rules = [Rule::default(); MAX_WINDOW];
        for (rule, draw) in rules.iter_mut().zip(draws) {
            *rule = checked(*draw)?;
        }
        let context = self.kernels.context();
        length("the logits", rows * vocabulary, logits.len())?;
        length("the tokens", rows, tokens.len())?;
        place("the logits", context, logits.context(), logits.pointer(), 16)?;
        place("the tokens", context, tokens.context(), tokens.pointer(), 4)?;
        let slices = vocabulary.div_ceil(SLICE) as u32;
        let (from, between, to) = (logits.pointer(), self.candidates.pointer(), tokens.pointer());
        let n = vocabulary as u32;
        let kept = |draw: &Draw| if draw.temperature == 0.0 { 1 } else { draw.top_k.max(1) };
        let kept = draws.iter().map(kept).sum::<usize>() * slices as usize * 8;
        let describe = |bytes: usize| {
            move || (format!("{rows}x{vocabulary}"), Work { operations: 0, bytes: bytes as u64 })
        };
        if slices > 0 {
            let arguments = [Argument::new(&from), (&between).into(), (&n).into(), Argument::new(&rules)];
            let kernel = self.kernels.kernel("sampler_slices")?;
            let describe = describe(rows * vocabulary * 4 + kept);
            // SAFETY: there are `rows` rows of `n` logits, and room for 32 candidates of each row's slices.
            unsafe { kernel.launch(queue, [slices, rows as u32, 1], &arguments, describe)? };
        }
        let arguments = [Argument::new(&between), (&to).into(), (&slices).into(), Argument::new(&rules)];
        let kernel = self.kernels.kernel("sampler_pick")?;
        let describe = describe(kept + rows * 4);
        // SAFETY: the candidates of `rows` rows, which the launch before writes as far as this one reads, and as many
        // tokens.
        unsafe { kernel.launch(queue, [rows as u32, 1, 1], &arguments, describe) }
    }
}

fn checked(draw: Draw) -> Result<Rule, Error> {
    let Draw { temperature, top_k, seed, position } = draw;
    let inverse_temperature = draw.inverse_temperature();
    if !(temperature >= 0.0 && temperature.is_finite() && inverse_temperature.is_finite()) {
        let expected = "0, or finite with a finite reciprocal";
        return Err(Error::Draw { what: "temperature", expected, got: temperature.to_string() });
    }
    if top_k > CANDIDATES {
        return Err(Error::Draw {
            what: "top_k",
            expected: "0 for all, or up to 32",
            got: top_k.to_string(),
        });
    }
    Ok(Rule { inverse_temperature, top_k: top_k as u32, seed: words(seed), position: words(position) })
}
