//! ggml's codebooks: points of four or eight magnitudes, which blocks name by number.
//!
//! A point is one number of 16 bits. In the tables of [`two`] and [`one`] it holds eight codes of 2 bits, in those of
//! [`three`] four codes of 3 bits; the code of the first weight is lowest. [`LEVELS_2`], [`LEVELS_1`], [`LEVELS_3_XXS`]
//! and [`LEVELS_3_S`] say which magnitude a code stands for. The two tables of 3 bits have levels of their own.
//!
//! The points were chosen by the authors of ggml, and follow no formula.

pub mod one;
pub mod three;
pub mod two;

/// The magnitudes of the codes of [`two`]; no point has code 3.
pub const LEVELS_2: [f32; 4] = [8.0, 25.0, 43.0, 0.0];

/// The numbers that the codes of [`one`] stand for; no point has code 3.
pub const LEVELS_1: [f32; 4] = [-1.0, 0.0, 1.0, 0.0];

/// The magnitudes of the codes of [`three::IQ3_XXS`].
pub const LEVELS_3_XXS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];

/// The magnitudes of the codes of [`three::IQ3_S`].
pub const LEVELS_3_S: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];

/// Level `i` of a point of eight codes of 2 bits.
pub(crate) fn level_2(point: u16, i: usize, levels: &[f32; 4]) -> f32 {
    levels[usize::from(point >> (2 * i) & 3)]
}

/// Level `i` of a point of four codes of 3 bits.
pub(crate) fn level_3(point: u16, i: usize, levels: &[f32; 8]) -> f32 {
    levels[usize::from(point >> (3 * i) & 7)]
}

/// The eight signs, one a bit, that seven stored bits stand for: the number of minus signs is even, so the eighth is
/// set where the number of ones among the seven is odd.
pub(crate) fn even_signs(seven: u8) -> u8 {
    let seven = seven & 127;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// 1, or -1 where bit `i` of `signs` is set.
pub(crate) fn sign(signs: u8, i: usize) -> f32 {
    if signs >> i & 1 == 0 { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_point_has_a_code_without_a_level() {
        for table in [&two::IQ2_XXS[..], &two::IQ2_XS, &two::IQ2_S, &one::IQ1] {
            assert!(table.iter().all(|point| (0..8).all(|i| point >> (2 * i) & 3 != 3)));
        }
        for table in [&three::IQ3_XXS[..], &three::IQ3_S] {
            assert!(table.iter().all(|&point| point < 1 << 12));
        }
    }

    #[test]
    fn the_minus_signs_are_even() {
        for seven in 0..=255 {
            let signs = even_signs(seven);
            assert_eq!((signs & 127, signs.count_ones() % 2), (seven & 127, 0));
        }
    }
}
