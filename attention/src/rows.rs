//! The storage of a *row*: the numbers of one head at one position.
//!
//! ```text
//! f32, f16, bf16   the numbers, zeros up to a multiple of 16
//! q8               Q8_0 blocks: | f16 scale | 32 codes |, the last one padded with zeros
//! fp8              | e4m3 codes, zeros up to a multiple of 16 | f32 scale |
//! ```
//!
//! Values are stored row after row. Keys are stored in *panels* of sixteen positions, one position a lane, of as many bytes
//! as sixteen rows: a number of the query is multiplied by sixteen keys at once, and no sum has to be folded over lanes.
//!
//! ```text
//! f32, f16, bf16   number 0 of 16 positions | number 1 of 16 positions | ...
//! q8               16 scales of block 0 | of block 1 | ... | code 0 of 16 positions | code 1 | ...
//! fp8              code 0 of 16 positions | code 1 | ... | 16 scales
//! ```
//!
//! Kernels compute with f32. Blocks of rows are widened to f32 first, into memory that stays in the L1 or L2 cache; where
//! there is a scale, `code * scale` is rounded to f32. So all types share the kernels. For decode steps from an f16 cache,
//! the most frequent case, there is a second path that widens in registers.

use bytemuck::Pod;
use core::mem::size_of;
use half::{bf16, f16};
use halfbyte_cpu_kernels::Isa;
use halfbyte_cpu_kernels::simd::{Kernel, LANES, Simd};
use halfbyte_q8::{BlockQ8_0, GROUP, quantize_row};

/// How a cache stores its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvType {
    /// f32: exact, 4 bytes.
    F32,
    /// IEEE half precision, 2 bytes, rounded to nearest even. Magnitudes from 65520 on become infinite, those
    /// below 2^-14 lose digits, and those up to 2^-25 become zero.
    F16,
    /// bfloat16, 2 bytes: rounded to nearest even, 8 significant bits, the range of f32.
    Bf16,
    /// Q8_0, 34 bytes for 32 numbers of a head: codes of -127 to 127 times an f16 scale, as [`quantize_row`] chooses
    /// them. A group with NaN, infinity or a magnitude above 127 * 65504 reads as NaN throughout.
    Q8,
    /// e4m3, 1 byte, and one f32 scale for the numbers of a head at a position: their largest magnitude divided by 448.
    /// Codes are the numbers divided by the scale, rounded to nearest even and clamped to 448: the relative error is at most
    /// 1/16, for the smallest numbers the absolute error at most 2^-10 times the scale. If a number is NaN or infinite, all
    /// numbers of that head and position read as NaN.
    Fp8,
}

impl KvType {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Q8, Self::Fp8];

    /// Bytes of a key, or of a value, of one head of `head_dim` numbers, padding and scales included.
    ///
    /// ```
    /// use halfbyte_attention::KvType;
    /// let bytes = |head_dim| KvType::ALL.map(|kind| kind.row_bytes(head_dim));
    /// assert_eq!(bytes(64), [256, 128, 128, 68, 68]);
    /// assert_eq!(bytes(20), [128, 64, 64, 34, 36]);
    /// ```
    #[must_use]
    pub const fn row_bytes(self, head_dim: usize) -> usize {
        let padded = head_dim.next_multiple_of(LANES);
        match self {
            Self::F32 => padded * size_of::<f32>(),
            Self::F16 | Self::Bf16 => padded * size_of::<u16>(),
            Self::Q8 => head_dim.div_ceil(GROUP) * size_of::<BlockQ8_0>(),
            Self::Fp8 => padded + size_of::<f32>(),
        }
    }

    /// A short name: `f32`, `f16`, `bf16`, `q8`, `fp8`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8 => "q8",
            Self::Fp8 => "fp8",
        }
    }
}

/// A number that kernels load as f32.
pub(crate) trait Element: Copy {
    /// Whether blocks are read from the KV cache itself and not from widened copies. Only then does prefetching the next
    /// block make sense.
    const STREAMED: bool;

    /// Loads 16 numbers.
    ///
    /// # Safety
    /// `p` is valid for reading 16 elements.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32;
}

impl Element for f32 {
    const STREAMED: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise is the callee's.
        unsafe { s.load(p) }
    }
}

impl Element for f16 {
    const STREAMED: bool = true;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F32 {
        // SAFETY: the caller's promise; an `f16` is a transparent `u16`.
        unsafe { s.load_f16(p.cast()) }
    }
}

/// The order in which the numbers of several positions are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Rows,
    Panels,
}

impl Order {
    /// The number of positions to reserve memory for, for a cache of `capacity` positions.
    pub(crate) const fn reserved(self, capacity: usize) -> usize {
        match self {
            Self::Rows => capacity,
            Self::Panels => capacity.next_multiple_of(LANES),
        }
    }
}

/// The stored numbers of one head, position after position or panel after panel.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) kind: KvType,
    pub(crate) order: Order,
    pub(crate) bytes: &'a [u8],
    pub(crate) row_bytes: usize,
}

impl<'a> Rows<'a> {
    /// The positions `range`. In panels, the start is a multiple of sixteen, and the end is rounded up to one.
    #[inline(always)]
    fn part(self, range: (usize, usize)) -> Self {
        let end = if self.order == Order::Panels { range.1.next_multiple_of(LANES) } else { range.1 };
        Self { bytes: &self.bytes[range.0 * self.row_bytes..end * self.row_bytes], ..self }
    }

    /// The positions `range` in the same order as f32, padded to `vectors * 16` numbers a position. An f32 cache gives its
    /// own memory; the other types are widened into `to`.
    #[inline(always)]
    pub(crate) fn widened<'t, S: Simd>(
        self,
        s: S,
        vectors: usize,
        range: (usize, usize),
        to: &'t mut [f32],
    ) -> &'t [f32]
    where
        'a: 't,
    {
        let rows = self.part(range);
        if self.kind == KvType::F32 {
            return bytemuck::cast_slice(rows.bytes);
        }
        let stride = vectors * LANES;
        let to = &mut to[..rows.bytes.len() / self.row_bytes * stride];
        s.vectorize(Widen { rows, stride, to: &mut *to });
        to
    }
}

/// Widens all rows to f32. It is a kernel of its own so that it is compiled once for each ISA and not into every kind of
/// tile.
struct Widen<'a> {
    rows: Rows<'a>,
    stride: usize,
    to: &'a mut [f32],
}

impl Kernel for Widen<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rows: Rows { kind, order, bytes, row_bytes }, stride, to } = self;
        match (kind, order) {
            (KvType::F32, _) => to.copy_from_slice(bytemuck::cast_slice(bytes)),
            (KvType::F16, _) => widen_f16(s, bytemuck::cast_slice(bytes), to),
            (KvType::Bf16, _) => widen_bf16(s, bytemuck::cast_slice(bytes), to),
            (KvType::Q8, Order::Rows) => widen_q8(s, bytemuck::cast_slice(bytes), row_bytes, stride, to),
            (KvType::Q8, Order::Panels) => widen_q8_panels(s, bytes, row_bytes, stride, to),
            (KvType::Fp8, Order::Rows) => widen_fp8(s, bytes, row_bytes, stride, to),
            (KvType::Fp8, Order::Panels) => widen_fp8_panels(s, bytes, row_bytes, stride, to),
        }
    }
}

impl<'a> Rows<'a> {
    /// The positions `range` of an f16 cache, in its own memory.
    #[inline(always)]
    pub(crate) fn halves(self, range: (usize, usize)) -> &'a [f16] {
        bytemuck::cast_slice(self.part(range).bytes)
    }
}

#[inline(always)]
fn widen_f16<S: Simd>(s: S, from: &[u16], to: &mut [f32]) {
    for (x, y) in from.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)) {
        // SAFETY: `x` has 16 numbers.
        s.store_slice(y, unsafe { s.load_f16(x.as_ptr()) });
    }
}

#[inline(always)]
fn widen_bf16<S: Simd>(s: S, from: &[u16], to: &mut [f32]) {
    for (x, y) in from.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)) {
        // SAFETY: `x` has 16 numbers.
        s.store_slice(y, unsafe { s.load_bf16(x.as_ptr()) });
    }
}

/// Widens Q8_0 rows. The scales of sixteen blocks are widened together.
#[inline(always)]
fn widen_q8<S: Simd>(s: S, blocks: &[BlockQ8_0], row_bytes: usize, stride: usize, to: &mut [f32]) {
    let a_row = row_bytes / size_of::<BlockQ8_0>();
    let (mut row, mut column) = (0, 0);
    for blocks in blocks.chunks(LANES) {
        let mut scales = [0_u16; LANES];
        for (scale, block) in scales.iter_mut().zip(blocks) {
            *scale = block.scale.to_bits();
        }
        // SAFETY: 16 numbers.
        let scales = s.to_array(unsafe { s.load_f16(scales.as_ptr()) });
        for (block, scale) in blocks.iter().zip(scales) {
            let to = &mut to[row * stride..][..stride][column * GROUP..];
            let scale = s.splat(scale);
            for (x, y) in block.codes.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)) {
                // SAFETY: `x` has 16 codes.
                let codes = unsafe { s.load_i8(x.as_ptr()) };
                s.store_slice(y, s.mul(s.from_i32(codes), scale));
            }
            column += 1;
            if column == a_row {
                (row, column) = (row + 1, 0);
            }
        }
    }
}

/// Widens rows of e4m3 codes, each with its scale at the end.
#[inline(always)]
fn widen_fp8<S: Simd>(s: S, bytes: &[u8], row_bytes: usize, stride: usize, to: &mut [f32]) {
    for (row, to) in bytes.chunks_exact(row_bytes).zip(to.chunks_exact_mut(stride)) {
        let (codes, scale) = row.split_at(stride);
        let scale = s.splat(bytemuck::pod_read_unaligned(scale));
        for (x, y) in codes.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)) {
            // SAFETY: `x` has 16 codes.
            let codes = unsafe { s.load_u8(x.as_ptr()) };
            s.store_slice(y, s.mul(e4m3_to_f32(s, codes), scale));
        }
    }
}

/// Widens panels of Q8_0 rows.
#[inline(always)]
fn widen_q8_panels<S: Simd>(s: S, bytes: &[u8], row_bytes: usize, stride: usize, to: &mut [f32]) {
    let blocks = row_bytes / size_of::<BlockQ8_0>();
    for (panel, to) in bytes.chunks_exact(LANES * row_bytes).zip(to.chunks_exact_mut(LANES * stride)) {
        let (scales, codes) = panel.split_at(blocks * LANES * size_of::<f16>());
        let scales: &[u16] = bytemuck::cast_slice(scales);
        // A head's last block may reach beyond its padding.
        let groups = codes.chunks_exact(GROUP * LANES).zip(to.chunks_mut(GROUP * LANES));
        for ((codes, to), scales) in groups.zip(scales.chunks_exact(LANES)) {
            // SAFETY: 16 numbers.
            let scales = unsafe { s.load_f16(scales.as_ptr()) };
            for (x, y) in codes.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)) {
                // SAFETY: `x` has 16 codes.
                let codes = unsafe { s.load_i8(x.as_ptr().cast()) };
                s.store_slice(y, s.mul(s.from_i32(codes), scales));
            }
        }
    }
}

/// Widens panels of e4m3 codes, each with its scales at the end.
#[inline(always)]
fn widen_fp8_panels<S: Simd>(s: S, bytes: &[u8], row_bytes: usize, stride: usize, to: &mut [f32]) {
    for (panel, to) in bytes.chunks_exact(LANES * row_bytes).zip(to.chunks_exact_mut(LANES * stride)) {
        let (codes, scales) = panel.split_at(LANES * stride);
        let scales: [f32; LANES] = bytemuck::pod_read_unaligned(scales);
        let scales = s.load_slice(&scales);
        for (x, y) in codes.chunks_exact(LANES).zip(to.chunks_exact_mut(LANES)) {
            // SAFETY: `x` has 16 codes.
            let codes = unsafe { s.load_u8(x.as_ptr()) };
            s.store_slice(y, s.mul(e4m3_to_f32(s, codes), scales));
        }
    }
}

/// Decodes e4m3: exponent bias 7, three digits. The codes of NaN, which no row holds, decode to numbers.
#[inline(always)]
fn e4m3_to_f32<S: Simd>(s: S, codes: S::I32) -> S::F32 {
    let digits = s.shl::<20>(s.and(codes, s.splat_i32(0x7f)));
    let normal = s.from_bits(s.add_i32(digits, s.splat_i32((127 - 7) << 23)));
    // Exponent 0 has no leading one and the scale of exponent 1: what decoded to `(1 + m / 8) * 2^-7` is `m / 8 * 2^-6`.
    let least = s.splat(2f32.powi(-6));
    let small = s.sub(s.add(normal, normal), least);
    let magnitude = s.select_lt(normal, least, small, normal);
    let sign = s.shl::<24>(s.and(codes, s.splat_i32(0x80)));
    s.from_bits(s.or(s.to_bits(magnitude), sign))
}

/// The e4m3 code nearest to `x`, ties to even, magnitudes above 448 as 448. `x` is not NaN.
#[inline(always)]
fn e4m3_from_f32(x: f32) -> u8 {
    let magnitude = x.abs().min(448.0);
    // Below the least normal number a code is a multiple of 2^-9: adding 2^23 rounds to a whole number of those.
    let small = (magnitude * 512.0 + 8_388_608.0).to_bits() & 0xff;
    let bits = magnitude.to_bits();
    let rounded = (bits + 0x7_ffff + ((bits >> 20) & 1)) >> 20;
    let normal = rounded.wrapping_sub((127 - 7) << 3);
    let code = if magnitude < 2f32.powi(-6) { small } else { normal };
    code as u8 | ((x.to_bits() >> 24) as u8 & 0x80)
}

/// Appends rows to all heads: `from` has `n_heads` rows of `head_dim` numbers for each position; `to` has `n_heads` heads of
/// `capacity` positions, of which `len` are in use.
pub(crate) struct Append<'a> {
    pub(crate) kind: KvType,
    pub(crate) order: Order,
    pub(crate) from: &'a [f32],
    pub(crate) to: &'a mut [u8],
    pub(crate) n_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) capacity: usize,
    pub(crate) len: usize,
}

impl Append<'_> {
    pub(crate) fn run_on(self, isa: Isa) {
        isa.dispatch(self);
    }
}

impl Kernel for Append<'_> {
    type Output = ();
    const INTEGER_DOTS: bool = false;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let row_bytes = self.kind.row_bytes(self.head_dim);
        // A row in its stored form, before it is copied to its lane. It is f32 so that all types are aligned in it.
        let mut row = vec![0.0_f32; if self.order == Order::Panels { row_bytes.div_ceil(4) } else { 0 }];
        for (i, x) in self.from.chunks_exact(self.head_dim).enumerate() {
            let (position, head) = (self.len + i / self.n_heads, i % self.n_heads);
            match self.order {
                Order::Rows => {
                    let y = &mut self.to[(head * self.capacity + position) * row_bytes..][..row_bytes];
                    store(s, self.kind, x, y);
                }
                Order::Panels => {
                    let row = &mut bytemuck::cast_slice_mut(&mut row)[..row_bytes];
                    store(s, self.kind, x, row);
                    let (first, lane) = (position / LANES * LANES, position % LANES);
                    let panel = &mut self.to[(head * self.capacity + first) * row_bytes..];
                    put_in_lane(self.kind, row, lane, &mut panel[..LANES * row_bytes]);
                }
            }
        }
    }
}

/// Writes the numbers `x` as a row of `kind`; its padding stays as it is.
#[inline(always)]
fn store<S: Simd>(s: S, kind: KvType, x: &[f32], y: &mut [u8]) {
    match kind {
        KvType::F32 => bytemuck::cast_slice_mut(y)[..x.len()].copy_from_slice(x),
        KvType::F16 => store_f16(s, x, bytemuck::cast_slice_mut(y)),
        KvType::Bf16 => {
            for (x, y) in x.iter().zip(bytemuck::cast_slice_mut(y)) {
                *y = bf16::from_f32(*x);
            }
        }
        KvType::Q8 => store_q8(x, bytemuck::cast_slice_mut(y)),
        KvType::Fp8 => store_fp8(s, x, y),
    }
}

/// Copies a row into lane `lane` of a panel.
#[inline(always)]
fn put_in_lane(kind: KvType, row: &[u8], lane: usize, panel: &mut [u8]) {
    match kind {
        KvType::F32 => spread::<u32>(row, lane, panel),
        KvType::F16 | KvType::Bf16 => spread::<u16>(row, lane, panel),
        KvType::Q8 => {
            let blocks: &[BlockQ8_0] = bytemuck::cast_slice(row);
            let (scales, codes) = panel.split_at_mut(blocks.len() * LANES * size_of::<f16>());
            let scales: &mut [f16] = bytemuck::cast_slice_mut(scales);
            let groups = scales.chunks_exact_mut(LANES).zip(codes.chunks_exact_mut(GROUP * LANES));
            for (block, (scales, codes)) in blocks.iter().zip(groups) {
                scales[lane] = block.scale;
                spread::<u8>(bytemuck::cast_slice(&block.codes), lane, codes);
            }
        }
        KvType::Fp8 => {
            let (codes, scale) = row.split_at(row.len() - size_of::<f32>());
            let (to, scales) = panel.split_at_mut(LANES * codes.len());
            spread::<u8>(codes, lane, to);
            spread::<u32>(scale, lane, scales);
        }
    }
}

/// Number `i` of `row` becomes number `16 i + lane` of `panel`.
#[inline(always)]
fn spread<T: Pod>(row: &[u8], lane: usize, panel: &mut [u8]) {
    let (row, panel): (&[T], &mut [T]) = (bytemuck::cast_slice(row), bytemuck::cast_slice_mut(panel));
    for (number, lanes) in row.iter().zip(panel.as_chunks_mut::<LANES>().0) {
        lanes[lane] = *number;
    }
}

#[inline(always)]
fn store_f16<S: Simd>(s: S, x: &[f32], y: &mut [f16]) {
    for (x, y) in x.chunks(LANES).zip(y.chunks_exact_mut(LANES)) {
        let x = if x.len() == LANES { s.load_slice(x) } else { s.load_partial(x) };
        // SAFETY: `y` has 16 elements, and an `f16` is a transparent `u16`.
        unsafe { s.store_f16(y.as_mut_ptr().cast(), x) };
    }
}

fn store_q8(x: &[f32], y: &mut [BlockQ8_0]) {
    for (x, block) in x.chunks(GROUP).zip(y) {
        let mut group = [0.0; GROUP];
        group[..x.len()].copy_from_slice(x);
        if quantize_row(&group, core::slice::from_mut(block)).is_err() {
            *block = BlockQ8_0 { scale: f16::NAN, codes: [0; GROUP] };
        }
    }
}

#[inline(always)]
fn store_fp8<S: Simd>(s: S, x: &[f32], y: &mut [u8]) {
    let (codes, scale) = y.split_at_mut(x.len().next_multiple_of(LANES));
    let mut largest = s.splat(0.0);
    // The sum of `x - x` is 0 if all numbers are finite and NaN otherwise.
    let mut zero_or_nan = s.splat(0.0);
    for x in x.chunks(LANES) {
        let x = if x.len() == LANES { s.load_slice(x) } else { s.load_partial(x) };
        largest = s.max(largest, s.from_bits(s.and(s.to_bits(x), s.splat_i32(0x7fff_ffff))));
        zero_or_nan = s.add(zero_or_nan, s.sub(x, x));
    }
    let divisor = s.reduce_max(largest) / 448.0 + s.reduce_add(zero_or_nan);
    if divisor > 0.0 {
        for (x, y) in x.iter().zip(&mut *codes) {
            *y = e4m3_from_f32(x / divisor);
        }
    } else {
        codes.fill(0);
    }
    scale.copy_from_slice(bytemuck::bytes_of(&divisor));
}
