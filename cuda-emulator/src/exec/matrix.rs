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
    let mut a = [[0i16; MAX_K]; 16];
    let mut b = [[0i16; MAX_K]; 8];
    for (r, &register) in mma.a.iter().enumerate() {
        let words = &registers.words[register as usize];
        unpack_integers(words, mma.a_type, |lane, i, n, x| {
            a[lane / 4 + 8 * (r % 2)][n * (lane % 4) + 4 * n * (r / 2) + i] = x;
        });
    }
    for (r, &register) in mma.b.iter().enumerate() {
        let words = &registers.words[register as usize];
        unpack_integers(words, mma.b_type, |lane, i, n, x| b[lane / 4][n * (lane % 4) + 4 * n * r + i] = x);
    }
    let mut sums = [[0i32; 8]; 16];
    for (row, sums) in a.iter().zip(&mut sums) {
        for (column, sum) in b.iter().zip(sums) {
            let products = row[..mma.k].iter().zip(&column[..mma.k]);
            *sum = products.map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
        }
    }
    let c: Vec<Words> = mma.c.iter().map(|&register| registers.words[register as usize]).collect();
    for (r, (&register, c)) in mma.result.iter().zip(&c).enumerate() {
        registers.words[register as usize] = std::array::from_fn(|lane| {
            let sum = sums[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2];
            let c = c[lane] as i32;
            (if mma.saturate { c.saturating_add(sum) } else { c.wrapping_add(sum) }) as u32
        });
    }
}

#[inline(always)]
fn unpack_integers(words: &Words, element: Element, mut put: impl FnMut(usize, usize, usize, i16)) {
    for (lane, &word) in words.iter().enumerate() {
        match element {
            Element::S8 => (0..4).for_each(|i| put(lane, i, 4, i16::from((word >> (8 * i)) as i8))),
            Element::U8 => (0..4).for_each(|i| put(lane, i, 4, i16::from((word >> (8 * i)) as u8))),
            Element::S4 => (0..8).for_each(|i| put(lane, i, 8, ((word << (28 - 4 * i)) as i32 >> 28) as i16)),
            _ => (0..8).for_each(|i| put(lane, i, 8, (word >> (4 * i) & 15) as i16)),
        }
    }
}

/// Products are summed in f32 from k = 0 up, and the accumulator is added last.
fn multiply_floats(registers: &mut Registers, mma: &Mma) {
    let mut a = [[0f32; 16]; 16];
    // By rows, so that a row's eight sums are neighbours.
    let mut b = [[0f32; 8]; 16];
    for (r, &register) in mma.a.iter().enumerate() {
        let words = &registers.words[register as usize];
        unpack_floats(words, mma.a_type, |lane, i, n, x| {
            a[lane / 4 + 8 * (r % 2)][n * (lane % 4) + 4 * n * (r / 2) + i] = x;
        });
    }
    for (r, &register) in mma.b.iter().enumerate() {
        let words = &registers.words[register as usize];
        unpack_floats(words, mma.b_type, |lane, i, n, x| b[n * (lane % 4) + 4 * n * r + i][lane / 4] = x);
    }
    let mut sums = [[0f32; 8]; 16];
    for (row, sums) in a.iter().zip(&mut sums) {
        for (&a, b) in row[..mma.k].iter().zip(&b) {
            for (sum, &b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    let c: Vec<Words> = mma.c.iter().map(|&register| registers.words[register as usize]).collect();
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

#[inline(always)]
fn unpack_floats(words: &Words, element: Element, mut put: impl FnMut(usize, usize, usize, f32)) {
    for (lane, &word) in words.iter().enumerate() {
        let halves = [word as u16, (word >> 16) as u16];
        match element {
            Element::Bf16 => (0..2).for_each(|i| put(lane, i, 2, bf16_to_f32(halves[i]))),
            Element::F16 => (0..2).for_each(|i| put(lane, i, 2, f16_to_f32(halves[i]))),
            // The 13 bits below TF32's fraction are ignored.
            _ => put(lane, 0, 1, f32::from_bits(word & !0x1fff)),
        }
    }
}

impl Block<'_> {
    /// Row `i` of matrix `j` starts at the address of lane `8 * j + i`; each lane gets two neighbours of a row (of
    /// a column, transposed).
    pub(super) fn load_matrix(&mut self, w: usize, at: u32, access: &LoadMatrix) -> Result<(), Box<Fault>> {
        let addresses = self.matrix_addresses(w, access);
        for (j, &register) in access.registers.iter().enumerate() {
            let mut rows = [[0u16; 8]; 8];
            for (i, row) in rows.iter_mut().enumerate() {
                let lane = 8 * j + i;
                match self.shared.read(addresses[lane], 16, w, Kind::Read) {
                    Ok(bytes) => {
                        for (value, pair) in row.iter_mut().zip(bytes.chunks_exact(2)) {
                            *value = u16::from_le_bytes([pair[0], pair[1]]);
                        }
                    }
                    Err(problem) => return Err(self.fault(w, at, lane, *problem)),
                }
            }
            self.warps[w].registers.words[register as usize] = std::array::from_fn(|lane| {
                let (g, q) = (lane / 4, 2 * (lane % 4));
                let [low, high] = if access.transposed {
                    [rows[q][g], rows[q + 1][g]]
                } else {
                    [rows[g][q], rows[g][q + 1]]
                };
                u32::from(low) | u32::from(high) << 16
            });
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
            let words = self.warps[w].registers.words[register as usize];
            let mut rows = [[0u16; 8]; 8];
            for (lane, word) in words.into_iter().enumerate() {
                let (g, q) = (lane / 4, 2 * (lane % 4));
                for (i, value) in [word as u16, (word >> 16) as u16].into_iter().enumerate() {
                    if access.transposed {
                        rows[q + i][g] = value;
                    } else {
                        rows[g][q + i] = value;
                    }
                }
            }
            for (i, row) in rows.iter().enumerate() {
                let lane = 8 * j + i;
                let mut bytes = [0; 16];
                for (pair, value) in bytes.chunks_exact_mut(2).zip(row) {
                    pair.copy_from_slice(&value.to_le_bytes());
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
            let mut used = [0; LANES];
            for (used, &address) in used.iter_mut().zip(addresses) {
                *used = address as u32;
            }
            self.counters.shared_access(&used[..addresses.len()], 16);
        }
    }

    /// Each row becomes a column.
    pub(super) fn transpose_matrix(&mut self, w: usize, result: u32, source: u32) {
        let words = self.warps[w].registers.words[source as usize];
        let mut rows = [[0u16; 8]; 8];
        for (lane, word) in words.into_iter().enumerate() {
            let (g, q) = (lane / 4, 2 * (lane % 4));
            (rows[q][g], rows[q + 1][g]) = (word as u16, (word >> 16) as u16);
        }
        self.warps[w].registers.words[result as usize] = std::array::from_fn(|lane| {
            let (g, q) = (lane / 4, 2 * (lane % 4));
            u32::from(rows[g][q]) | u32::from(rows[g][q + 1]) << 16
        });
    }
}
