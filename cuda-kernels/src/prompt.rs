//! A prompt's products: `y = x W^T` for a chunk of its rows, in bf16 or int8.
//!
//! ```text
//! x  bf16 --+-- bf16:  group_sums -----------------> affine4_prefill, q4_0_prefill, q8_0_prefill --> y
//!           |
//!           +-- int8:  w4a8_quantize -- mark read -+-> w4a8_prefill, ... ------------------------------> y
//!                                                  +-> exceptional: bf16, as above
//! ```
//!
//! The inputs are quantized once and then meet every matrix that reads them: the query, key and value projections, or
//! gate and up. The quantizer marks a chunk with a group that int8 can't hold: a NaN, an infinity, or a scale that
//! overflows the matrix kernel's offset. The host reads the mark before it queues a product, and computes such a chunk in
//! bf16, whose sums the quantizer has made on the way. In bf16 the kernel that made the rows can have written the sums
//! ([`Prepared::summed`]), and there is nothing left to launch.

use crate::check::{length, multiple_of, place, same};
use crate::kernels::Kernels;
use crate::products;
use crate::profiler::{Queue, Work};
use crate::{DeviceWeights, Error, PromptPrecision, Sums, WeightFormat};
use half::bf16;
use halfbyte_cuda_driver::{DeviceBuffer, DevicePointer, DeviceSlice, DeviceSliceMut};
use halfbyte_q4::affine::GroupSize;

/// Rows of a chunk, at most.
pub const MAX_ROWS: usize = 4096;

/// Buffers for a chunk's inputs, for matrices of up to a number of inputs; one value serves a whole model.
///
/// For 4096 rows the sums take an eighth of a byte an input and the int8 codes and scales 1 1/8; all are allocated when
/// first needed, so that a model that runs in bf16 keeps the memory of the int8 ones.
#[derive(Debug)]
pub struct PromptInputs {
    kernels: Kernels,
    widest: usize,
    sums: Option<DeviceBuffer<f32>>,
    int8: Option<Int8>,
}

#[derive(Debug)]
struct Int8 {
    codes: DeviceBuffer<i8>,
    scales: DeviceBuffer<f32>,
    mark: DeviceBuffer<u32>,
}

/// The reasons for which a chunk can't be computed in int8, as the quantizer's mark gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exceptions {
    /// An input is NaN or infinite.
    pub not_finite: bool,
    /// An input is so large (beyond 3.4e33) that its group's scale overflows in the kernel.
    pub scale_overflow: bool,
}

impl Exceptions {
    /// Whether there are any.
    #[must_use]
    pub fn any(self) -> bool {
        self.not_finite || self.scale_overflow
    }
}

/// A chunk's inputs, ready to be multiplied with matrices of as many inputs and the same group.
///
/// It borrows the buffers: the next chunk can be prepared when this one is dropped. Its work is in the order of one
/// stream; multiply on the queue it was prepared on, or on one that waits for it.
#[derive(Debug)]
pub struct Prepared<'a> {
    kernels: &'a Kernels,
    x: DeviceSlice<'a, bf16>,
    rows: usize,
    inputs: usize,
    group: GroupSize,
    /// Read by the matrices of formats with a bias, in bf16 and int8.
    sums: DevicePointer,
    /// Codes and scales, if the chunk is computed in int8.
    int8: Option<&'a Int8>,
    exceptions: Exceptions,
}

impl PromptInputs {
    /// Buffers for matrices of up to `widest` inputs. Allocates nothing yet.
    #[must_use]
    pub fn new(kernels: &Kernels, widest: usize) -> Self {
        Self { kernels: kernels.clone(), widest, sums: None, int8: None }
    }

    /// Bytes allocated on the device.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let int8 = self.int8.as_ref().map_or(0, |b| b.codes.bytes() + b.scales.bytes() + b.mark.bytes());
        self.sums.as_ref().map_or(0, DeviceBuffer::bytes) + int8
    }

    /// Prepares `rows` rows of `inputs` numbers, row-major in `x`, for matrices with groups of `group`.
    ///
    /// In int8 it waits until the quantizer has run, to read its mark.
    ///
    /// # Errors
    /// [`Error::ChunkRows`], [`Error::Inputs`], [`Error::Mismatch`] for more inputs than the buffers are for,
    /// [`Error::Length`], [`Error::Alignment`] (16 bytes) or [`Error::OtherContext`], before anything is queued;
    /// [`Error::Driver`].
    pub fn prepare<'a>(
        &'a mut self,
        queue: impl Into<Queue<'a>>,
        precision: PromptPrecision,
        x: DeviceSlice<'a, bf16>,
        rows: usize,
        inputs: usize,
        group: GroupSize,
    ) -> Result<Prepared<'a>, Error> {
        let queue = queue.into();
        let (entry, sums_entry) = match group {
            GroupSize::G32 => ("w4a8_quantize_g32", "group_sums_g32"),
            GroupSize::G64 => ("w4a8_quantize_g64", "group_sums_g64"),
            GroupSize::G128 => ("w4a8_quantize_g128", "group_sums_g128"),
        };
        check(&self.kernels, x, rows, inputs, group, entry)?;
        if inputs > self.widest {
            return Err(Error::Mismatch { what: "the widest input", expected: self.widest, got: inputs });
        }

        let Self { kernels, widest, sums, int8 } = self;
        let kernels = &*kernels;
        let sums = match sums {
            Some(sums) => sums,
            // The smallest group needs the most.
            None => sums.insert(DeviceBuffer::uninit(kernels.context(), MAX_ROWS * widest.div_ceil(32))?),
        };
        let (sums, exceptions) = (sums.pointer(), Exceptions::default());
        let mut prepared = Prepared { kernels, x, rows, inputs, group, sums, int8: None, exceptions };
        match precision {
            PromptPrecision::Bf16 => prepared.sum(queue, sums_entry)?,
            PromptPrecision::Int8 => {
                let int8 = match int8 {
                    Some(int8) => int8,
                    None => int8.insert(Int8::new(kernels, *widest)?),
                };
                prepared.quantize(queue, entry, int8)?;
                if !prepared.exceptions.any() {
                    prepared.int8 = Some(int8);
                }
            }
        }
        Ok(prepared)
    }
}

impl Int8 {
    fn new(kernels: &Kernels, widest: usize) -> Result<Self, Error> {
        let context = kernels.context();
        Ok(Self {
            codes: DeviceBuffer::uninit(context, MAX_ROWS * widest)?,
            scales: DeviceBuffer::uninit(context, MAX_ROWS * widest.div_ceil(32))?,
            mark: DeviceBuffer::uninit(context, 1)?,
        })
    }
}

/// Checks the shape and the place of a chunk, as every preparation has to.
fn check(
    kernels: &Kernels,
    x: DeviceSlice<'_, bf16>,
    rows: usize,
    inputs: usize,
    group: GroupSize,
    entry: &'static str,
) -> Result<(), Error> {
    if rows == 0 || rows > MAX_ROWS {
        return Err(Error::ChunkRows { limit: MAX_ROWS, got: rows });
    }
    multiple_of(entry, group.weights(), inputs)?;
    length("a prompt chunk", rows * inputs, x.len())?;
    place("a prompt chunk", kernels.context(), x.context(), x.pointer(), 16)
}

impl<'a> Prepared<'a> {
    /// Prepares a chunk for bf16 products with sums that an earlier kernel has written ([`Sums`]): no launch, and the same bits.
    ///
    /// # Errors
    /// As for [`PromptInputs::prepare`], and [`Error::Length`] for sums of another shape.
    pub fn summed(
        kernels: &'a Kernels,
        x: DeviceSlice<'a, bf16>,
        rows: usize,
        inputs: usize,
        group: GroupSize,
        sums: DeviceSlice<'a, f32>,
    ) -> Result<Self, Error> {
        check(kernels, x, rows, inputs, group, "group_sums")?;
        length("the sums of groups", Sums::elements(rows, inputs, group), sums.len())?;
        place("the sums of groups", kernels.context(), sums.context(), sums.pointer(), 16)?;
        let (sums, exceptions) = (sums.pointer(), Exceptions::default());
        Ok(Self { kernels, x, rows, inputs, group, sums, int8: None, exceptions })
    }

    /// The precision in which the chunk is computed: the one asked for, or bf16 if int8 can't hold the chunk.
    #[must_use]
    pub fn precision(&self) -> PromptPrecision {
        if self.int8.is_some() { PromptPrecision::Int8 } else { PromptPrecision::Bf16 }
    }

    /// The reasons for which the chunk is not computed in int8; none if bf16 was asked for.
    #[must_use]
    pub fn exceptions(&self) -> Exceptions {
        self.exceptions
    }

    /// Rows of the chunk.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Queues `y = x W^T`: `rows` rows of `weights.outputs()` bf16, row-major.
    ///
    /// A row's bits depend on nothing but the row, the weights and the precision that the chunk is computed in: not on
    /// the rows beside it, their number, the GPU, or the tile. bf16 weights are multiplied with the bf16 inputs in either
    /// precision; the number of their outputs is even.
    ///
    /// # Errors
    /// [`Error::Mismatch`] when the weights have another number of inputs or another group, [`Error::Length`],
    /// [`Error::Alignment`] (4 bytes) or [`Error::OtherContext`], before anything is queued; [`Error::Driver`].
    #[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
    pub fn multiply<'q>(
        &self,
        queue: impl Into<Queue<'q>>,
        weights: &DeviceWeights,
        y: &mut DeviceSliceMut<'_, bf16>,
    ) -> Result<(), Error> {
        same("the inputs of a matrix", self.inputs, weights.inputs())?;
        let dense = weights.format() == WeightFormat::Bf16;
        if dense && !weights.outputs().is_multiple_of(2) {
            return Err(Error::Inputs { kernel: "matmul_bf16_nt", multiple: 2, got: weights.outputs() });
        }
        if !dense {
            same("the group of a matrix", self.group.weights(), weights.format().group().weights())?;
        }
        length("the outputs of a prompt chunk", self.rows * weights.outputs(), y.len())?;
        place("the outputs of a prompt chunk", self.kernels.context(), y.context(), y.pointer(), 4)?;
        place("the weights", self.kernels.context(), weights.codes.context(), weights.codes.pointer(), 16)?;
        if weights.outputs() == 0 {
            return Ok(());
        }
        let int8 = self.int8.filter(|_| !dense);
        let precision = if int8.is_some() { PromptPrecision::Int8 } else { PromptPrecision::Bf16 };
        let operands = products::Operands {
            inputs: int8.map_or(self.x.pointer(), |int8| int8.codes.pointer()),
            scales: int8.map_or(self.sums, |int8| int8.scales.pointer()),
            sums: self.sums,
            rows: self.rows,
        };
        // SAFETY: the chunk was quantized, or its sums made, for this many rows and inputs in groups of this size, and
        // the weights and outputs have been checked against them above.
        unsafe { products::launch(self.kernels, queue.into(), precision, &operands, weights, y) }
    }

    /// Queues the sums of the groups.
    #[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
    fn sum(&self, queue: Queue<'_>, entry: &'static str) -> Result<(), Error> {
        let (m, k) = (self.rows as u32, self.inputs as u32);
        let kernel = self.kernels.kernel(entry)?;
        let (x, sums) = (self.x.pointer(), self.sums);
        let arguments = [(&x).into(), (&sums).into(), (&m).into(), (&k).into()];
        // SAFETY: `x` holds `m * k` numbers in whole groups, and the sums have room for the rows rounded up to a multiple
        // of 4, which MAX_ROWS is.
        unsafe { kernel.launch(queue, per_eight(m, k), &arguments, || (shape(m, k), self.moved(0))) }
    }

    /// Queues the quantizer, and waits for its mark.
    #[allow(unsafe_code, reason = "a kernel's arguments can't be checked by a type")]
    fn quantize(&mut self, queue: Queue<'_>, entry: &'static str, int8: &mut Int8) -> Result<(), Error> {
        int8.mark.as_mut_slice().fill_bytes_async(0, queue.stream())?;
        let (m, k) = (self.rows as u32, self.inputs as u32);
        let kernel = self.kernels.kernel(entry)?;
        let pointers =
            [self.x.pointer(), int8.codes.pointer(), int8.scales.pointer(), self.sums, int8.mark.pointer()];
        let [x, codes, scales, sums, mark] = &pointers;
        // The whole chunk shares the one word of its mark.
        let arguments = [
            x.into(),
            codes.into(),
            scales.into(),
            sums.into(),
            mark.into(),
            (&m).into(),
            (&k).into(),
            (&m).into(),
        ];
        let describe = || (shape(m, k), self.moved(self.rows * self.inputs));
        // SAFETY: as in `sum`; codes have a byte for each input, scales as much room as sums, and the mark is zeroed.
        unsafe { kernel.launch(queue, per_eight(m, k), &arguments, describe)? };
        let mut mark = [0];
        int8.mark.as_slice().copy_to_host(&mut mark, queue.stream())?;
        self.exceptions = Exceptions { not_finite: mark[0] & 1 != 0, scale_overflow: mark[0] & 2 != 0 };
        Ok(())
    }

    /// The bytes of a pass over the inputs that writes `written` bytes beside the sums.
    fn moved(&self, written: usize) -> Work {
        let groups = self.rows * self.inputs / self.group.weights();
        Work { operations: 0, bytes: (self.rows * self.inputs * 2 + groups * 4 + written) as u64 }
    }
}

/// The blocks of a kernel whose threads take eight inputs each, 128 of them a block.
fn per_eight(rows: u32, inputs: u32) -> [u32; 3] {
    [rows, inputs.div_ceil(1024), 1]
}

fn shape(rows: u32, inputs: u32) -> String {
    format!("{rows}x{inputs}")
}
