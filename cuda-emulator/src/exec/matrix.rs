//! Matrix fragments.
//!
//! In a fragment of an `mma`, lane `l` has row (or column) `g = l / 4` and elements from `q = l % 4` on: a register
//! holds `n = 32 / bits` neighbouring elements along k. Register `r` of `A` (16 x k) is row `g + 8 * (r % 2)`,
//! columns `n * q + 4 * n * (r / 2)` and on; register `r` of `B` (k x 8) is column `g`, rows `n * q + 4 * n * r` and
//! on; accumulator `r` is row `g + 8 * (r / 2)`, column `2 * q + r % 2`.

use super::block::Block;
use super::interpret::Words;
use super::registers::{LANES, Registers};
use super::shared::Kind;
use super::windows;
use crate::alu::narrow::{bf16_to_f32, canonical, f16_to_f32, f32_to_f16};
use crate::decode::program::{Element, LoadMatrix, Mma};
use crate::fault::Fault;

/// The largest k of an `mma`.
const MAX_K: usize = 64;

/// `D = A * B + C`.
pub(super) fn multiply(registers: &mut Registers, mma: &Mma) {
    match mma.a_type {
        Element::S8 | Element::U8 | Element::S4 | Element::U4 => multiply_integers(registers, mma),
        _ => multiply_floats(registers, mma),
    }
}

/// Integer products are exact; sums wrap, or saturate at the end.
fn multiply_integers(registers: &mut Registers, mma: &Mma) {
    match (mma.a_type, mma.b_type) {
        (Element::S8, Element::S8) => multiply_unpacked(registers, mma, bytes::<true>, bytes::<true>),
        (Element::S8, _) => multiply_unpacked(registers, mma, bytes::<true>, bytes::<false>),
        (Element::U8, Element::S8) => multiply_unpacked(registers, mma, bytes::<false>, bytes::<true>),
        (Element::U8, _) => multiply_unpacked(registers, mma, bytes::<false>, bytes::<false>),
        (Element::S4, Element::S4) => multiply_unpacked(registers, mma, nibbles::<true>, nibbles::<true>),
        (Element::S4, _) => multiply_unpacked(registers, mma, nibbles::<true>, nibbles::<false>),
        (_, Element::S4) => multiply_unpacked(registers, mma, nibbles::<false>, nibbles::<true>),
        (_, _) => multiply_unpacked(registers, mma, nibbles::<false>, nibbles::<false>),
    }
}

/// The four bytes of a word.
#[inline(always)]
fn bytes<const SIGNED: bool>(word: u32) -> [i16; 4] {
    word.to_le_bytes().map(|x| if SIGNED { i16::from(x as i8) } else { i16::from(x) })
}

/// The eight nibbles of a word.
#[inline(always)]
fn nibbles<const SIGNED: bool>(word: u32) -> [i16; 8] {
    std::array::from_fn(|i| {
        if SIGNED { ((word << (28 - 4 * i)) as i32 >> 28) as i16 } else { (word >> (4 * i) & 15) as i16 }
    })
}

#[inline(always)]
fn multiply_unpacked<const N: usize>(
    registers: &mut Registers,
    mma: &Mma,
    unpack_a: impl Fn(u32) -> [i16; N],
    unpack_b: impl Fn(u32) -> [i16; N],
) {
    let mut a = [[0i16; MAX_K]; 16];
    let mut b = [[0i16; MAX_K]; 8];
    for (r, &register) in mma.a.iter().enumerate() {
        let words = registers.words[register as usize].as_chunks::<4>().0;
        for (words, row) in words.iter().zip(&mut a[8 * (r % 2)..]) {
            let part = row[4 * N * (r / 2)..].as_chunks_mut::<N>().0;
            part.iter_mut().zip(words).for_each(|(part, &word)| *part = unpack_a(word));
        }
    }
    for (r, &register) in mma.b.iter().enumerate() {
        let words = registers.words[register as usize].as_chunks::<4>().0;
        for (words, column) in words.iter().zip(&mut b) {
            let part = column[4 * N * r..].as_chunks_mut::<N>().0;
            part.iter_mut().zip(words).for_each(|(part, &word)| *part = unpack_b(word));
        }
    }
    let mut sums = [[0i32; 8]; 16];
    for (row, sums) in a.iter().zip(&mut sums) {
        for (column, sum) in b.iter().zip(sums) {
            let products = row[..mma.k].iter().zip(&column[..mma.k]);
            *sum = products.map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
        }
    }
    let c = accumulator(registers, mma);
    for (r, (&register, c)) in mma.result.iter().zip(&c).enumerate() {
        registers.words[register as usize] = std::array::from_fn(|lane| {
            let sum = sums[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2];
            let c = c[lane] as i32;
            (if mma.saturate { c.saturating_add(sum) } else { c.wrapping_add(sum) }) as u32
        });
    }
}

/// The accumulator's registers: read before the results, which may be the same, are written.
#[inline(always)]
fn accumulator(registers: &Registers, mma: &Mma) -> [Words; 4] {
    let mut c = [[0; LANES]; 4];
    for (c, &register) in c.iter_mut().zip(&mma.c) {
        *c = registers.words[register as usize];
    }
    c
}

/// Products are summed in f32 from k = 0 up, and the accumulator is added last.
fn multiply_floats(registers: &mut Registers, mma: &Mma) {
    match mma.a_type {
        Element::Bf16 => {
            multiply_widened(registers, mma, |x| [bf16_to_f32(x as u16), bf16_to_f32((x >> 16) as u16)]);
        }
        Element::F16 => {
            multiply_widened(registers, mma, |x| [f16_to_f32(x as u16), f16_to_f32((x >> 16) as u16)]);
        }
        // The 13 bits below TF32's fraction are ignored.
        _ => multiply_widened(registers, mma, |x| [f32::from_bits(x & !0x1fff)]),
    }
}

#[inline(always)]
fn multiply_widened<const N: usize>(registers: &mut Registers, mma: &Mma, widen: impl Fn(u32) -> [f32; N]) {
    let mut a = [[0f32; 16]; 16];
    // By rows, so that a row's eight sums are neighbours.
    let mut b = [[0f32; 8]; 16];
    for (r, &register) in mma.a.iter().enumerate() {
        let words = registers.words[register as usize].as_chunks::<4>().0;
        for (words, row) in words.iter().zip(&mut a[8 * (r % 2)..]) {
            let part = row[4 * N * (r / 2)..].as_chunks_mut::<N>().0;
            part.iter_mut().zip(words).for_each(|(part, &word)| *part = widen(word));
        }
    }
    for (r, &register) in mma.b.iter().enumerate() {
        for (lane, &word) in registers.words[register as usize].iter().enumerate() {
            for (i, x) in widen(word).into_iter().enumerate() {
                b[(4 * N * r + N * (lane % 4) + i) % 16][lane / 4] = x;
            }
        }
    }
    let mut sums = [[0f32; 8]; 16];
    for (row, sums) in a.iter().zip(&mut sums) {
        for (&a, b) in row[..mma.k].iter().zip(&b) {
            for (sum, &b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    let c = accumulator(registers, mma);
    for (r, (&register, c)) in mma.result.iter().zip(&c).enumerate() {
        registers.words[register as usize] = std::array::from_fn(|lane| {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            if mma.half_sum {
                // Two neighbouring sums a register.
                let [low, high] = [0, 1].map(|i| {
                    let c = f16_to_f32((c[lane] >> (16 * i)) as u16);
                    f32_to_f16(sums[row + 8 * r][column + i] + c)
                });
                u32::from(low) | u32::from(high) << 16
            } else {
                let c = f32::from_bits(c[lane]);
                canonical(sums[row + 8 * (r / 2)][column + r % 2] + c).to_bits()
            }
        });
    }
}

impl Block<'_> {
    /// Row `i` of matrix `j` starts at the address of lane `8 * j + i`; each lane gets two neighbours of a row (of
    /// a column, transposed).
    pub(super) fn load_matrix(&mut self, w: usize, at: u32, access: &LoadMatrix) -> Result<(), Box<Fault>> {
        let addresses = self.matrix_addresses(w, access);
        for (j, &register) in access.registers.iter().enumerate() {
            // Each lane of a row has a word of it.
            let mut words = [0; LANES];
            for (i, row) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let lane = 8 * j + i;
                match self.shared.read::<16>(addresses[lane], w, Kind::Read) {
                    Ok(bytes) => {
                        for (word, bytes) in row.iter_mut().zip(bytes.as_chunks().0) {
                            *word = u32::from_le_bytes(*bytes);
                        }
                    }
                    Err(problem) => return Err(self.fault(w, at, lane, *problem)),
                }
            }
            if access.transposed {
                words = transpose(&words);
            }
            self.warps[w].registers.words[register as usize] = words;
        }
        let n = 8 * access.registers.len();
        self.counters.stats.shared_loaded += 16 * n as u64;
        self.count_matrix(&addresses[..n]);
        Ok(())
    }

    /// The opposite of [`Self::load_matrix`].
    pub(super) fn store_matrix(&mut self, w: usize, at: u32, access: &LoadMatrix) -> Result<(), Box<Fault>> {
        let addresses = self.matrix_addresses(w, access);
        for (j, &register) in access.registers.iter().enumerate() {
            let mut words = self.warps[w].registers.words[register as usize];
            if access.transposed {
                words = transpose(&words);
            }
            for (i, row) in words.as_chunks::<4>().0.iter().enumerate() {
                let lane = 8 * j + i;
                let mut bytes = [0; 16];
                for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(row) {
                    *bytes = word.to_le_bytes();
                }
                if let Err(problem) = self.shared.write(addresses[lane], &bytes, w, Kind::Write) {
                    return Err(self.fault(w, at, lane, *problem));
                }
            }
        }
        let n = 8 * access.registers.len();
        self.counters.stats.shared_stored += 16 * n as u64;
        self.count_matrix(&addresses[..n]);
        Ok(())
    }

    fn matrix_addresses(&self, w: usize, access: &LoadMatrix) -> [u64; LANES] {
        let addresses = self.warps[w].addresses(access.address);
        if access.generic && access.address.wide {
            // An address outside the window stays one, and is out of bounds.
            return addresses.map(|address| address.wrapping_sub(windows::SHARED));
        }
        addresses
    }

    fn count_matrix(&mut self, addresses: &[u64]) {
        if self.env.traffic() {
            self.counters.shared_access(addresses, 16);
        }
    }

    /// Each row becomes a column.
    pub(super) fn transpose_matrix(&mut self, w: usize, result: u32, source: u32) {
        let words = self.warps[w].registers.words[source as usize];
        self.warps[w].registers.words[result as usize] = transpose(&words);
    }
}

/// The transposed matrix of 16-bit elements, two of a row in each lane.
#[inline(always)]
fn transpose(words: &Words) -> Words {
    let half = |row: usize, column: usize| words[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
    std::array::from_fn(|lane| {
        let (g, q) = (lane / 4, 2 * (lane % 4));
        half(q, g) | half(q + 1, g) << 16
    })
}
