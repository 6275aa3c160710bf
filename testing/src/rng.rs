//! A seeded generator.

/// SplitMix64 (Steele, Lea and Flood, 2014): the same seed gives the same numbers on every machine.
///
/// Tests print the seed that they start with, so that a failure can be repeated.
///
/// ```
/// use halfbyte_testing::Rng;
/// let (mut a, mut b) = (Rng(7), Rng(7));
/// assert_eq!(a.bits(), b.bits());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng(pub u64);

impl Rng {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 32 random bits.
    pub fn word(&mut self) -> u32 {
        self.bits() as u32
    }

    /// A random byte.
    pub fn byte(&mut self) -> u8 {
        (self.bits() >> 40) as u8
    }

    /// A number in `0..n`. `n` must not be 0. The remainder of a division, so it is uniform only for `n` far below
    /// 2^64.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// One of the elements of `from`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Uniform in `-1.0..1.0`, a multiple of 2^-23.
    pub fn f32(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Uniform in `-1.0..1.0`, a multiple of 1/128: bf16 holds it exactly, and sums of products are exact in f32.
    pub fn coarse(&mut self) -> f32 {
        (self.word() % 256) as f32 / 128.0 - 1.0
    }

    /// `len` numbers, uniform in `-size..size`.
    pub fn f32s(&mut self, len: usize, size: f32) -> Vec<f32> {
        (0..len).map(|_| self.f32() * size).collect()
    }

    /// About normal, with mean 0 and variance 1: the sum of twelve uniform numbers.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.bits() >> 40) as f32 / (1u32 << 24) as f32).sum::<f32>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    /// The first numbers of seed 1234567, as other implementations of SplitMix64 give them.
    #[test]
    fn the_sequence_is_splitmix64s() {
        let mut rng = Rng(1_234_567);
        let got = [(); 5].map(|()| rng.bits());
        assert_eq!(
            got,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn numbers_lie_in_their_ranges() {
        let mut rng = Rng(1);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert!((0..1000).map(|_| rng.f32()).all(|x| (-1.0..1.0).contains(&x)));
        assert!(rng.f32s(1000, 4.0).iter().any(|x| x.abs() > 2.0));
        let normal: Vec<f32> = (0..1000).map(|_| rng.normal()).collect();
        let variance = normal.iter().map(|x| x * x).sum::<f32>() / 1000.0;
        assert!((variance - 1.0).abs() < 0.2, "{variance}");
    }
}
