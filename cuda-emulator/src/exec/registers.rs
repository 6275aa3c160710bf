//! A warp's registers: register-major, 32 lanes side by side, so that an instruction is one loop over lanes.
//!
//! There are three files. *Words* hold everything of up to 32 bits, *doubles* 64 bits, *predicates* a bit a lane.
//! Constants and special registers such as `%tid.x` are registers too, filled when the warp starts: an operand
//! is always an index.

/// Which file a register lies in, and for words how many of its bits it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// A bit a lane.
    Predicate,
    /// 8 or 16 bits, in a word whose other bits are zero.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
}

/// Register 0 of each file takes what the program throws away (`_`).
pub(crate) const SINK: u32 = 0;
/// The predicate that holds the carry flag.
pub(crate) const CARRY: u32 = 1;
/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// All lanes.
pub(crate) const FULL: u32 = u32::MAX;

/// The register files of one warp.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    pub(crate) words: Vec<[u32; LANES]>,
    pub(crate) doubles: Vec<[u64; LANES]>,
    pub(crate) predicates: Vec<u32>,
}

/// A type that lanes compute with: how it lies in its register file.
pub(crate) trait Lane: Copy + Default {
    /// The file.
    const CLASS: Class;
    /// All lanes of a register.
    fn read(registers: &Registers, index: u32) -> [Self; LANES];
    /// Writes the lanes in `mask`.
    fn write(registers: &mut Registers, index: u32, values: &[Self; LANES], mask: u32);
}

/// Copies the lanes of `from` that are in `mask`.
#[inline(always)]
pub(crate) fn blend<T: Copy>(to: &mut [T; LANES], from: &[T; LANES], mask: u32) {
    if mask == FULL {
        *to = *from;
    } else {
        for lane in 0..LANES {
            if mask >> lane & 1 == 1 {
                to[lane] = from[lane];
            }
        }
    }
}

/// `from.map(f)` as a loop, which the compiler vectorises where it leaves `map` of so many elements a call.
#[inline(always)]
pub(crate) fn each<T: Copy, U: Copy + Default>(from: &[T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    let mut to = [U::default(); LANES];
    for (to, &from) in to.iter_mut().zip(from) {
        *to = f(from);
    }
    to
}

macro_rules! lane {
    ($ty:ty, $class:ident, $file:ident, |$raw:ident| $decode:expr, |$value:ident| $encode:expr) => {
        impl Lane for $ty {
            const CLASS: Class = Class::$class;

            #[inline(always)]
            fn read(registers: &Registers, index: u32) -> [Self; LANES] {
                each(&registers.$file[index as usize], |$raw| $decode)
            }

            #[inline(always)]
            fn write(registers: &mut Registers, index: u32, values: &[Self; LANES], mask: u32) {
                let register = &mut registers.$file[index as usize];
                if mask == FULL {
                    for (raw, &$value) in register.iter_mut().zip(values) {
                        *raw = $encode;
                    }
                } else {
                    blend(register, &each(values, |$value| $encode), mask);
                }
            }
        }
    };
}

lane!(u8, Half, words, |x| x as u8, |x| u32::from(x));
lane!(i8, Half, words, |x| x as i8, |x| u32::from(x as u8));
lane!(u16, Half, words, |x| x as u16, |x| u32::from(x));
lane!(i16, Half, words, |x| x as i16, |x| u32::from(x as u16));
lane!(u32, Word, words, |x| x, |x| x);
lane!(i32, Word, words, |x| x as i32, |x| x as u32);
lane!(f32, Word, words, |x| f32::from_bits(x), |x| x.to_bits());
lane!(u64, Double, doubles, |x| x, |x| x);
lane!(i64, Double, doubles, |x| x as i64, |x| x as u64);
lane!(f64, Double, doubles, |x| f64::from_bits(x), |x| x.to_bits());

impl Lane for bool {
    const CLASS: Class = Class::Predicate;

    #[inline(always)]
    fn read(registers: &Registers, index: u32) -> [Self; LANES] {
        let bits = registers.predicates[index as usize];
        std::array::from_fn(|lane| bits >> lane & 1 == 1)
    }

    #[inline(always)]
    fn write(registers: &mut Registers, index: u32, values: &[Self; LANES], mask: u32) {
        let mut bits = 0;
        for (lane, &value) in values.iter().enumerate() {
            bits |= u32::from(value) << lane;
        }
        let register = &mut registers.predicates[index as usize];
        *register = *register & !mask | bits & mask;
    }
}
