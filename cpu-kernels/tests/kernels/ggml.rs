//! The blocks of `halfbyte-k-quants`, for the tests of all formats.

use crate::support::Rng;
use half::f16;
use halfbyte_cpu_kernels::Weights;
use halfbyte_k_quants::*;

/// Makes the formats, their stored blocks and how both are made, of one table.
macro_rules! formats {
    ($($variant:ident: $block:ident, |$b:ident, $scale:ident, $min:ident| $set:expr;)*) => {
        /// A weight format whose blocks are those of `halfbyte-k-quants`.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) enum Ggml {
            $($variant,)*
        }

        /// Weights that own their memory.
        #[derive(Debug)]
        pub(crate) enum Blocks {
            $($variant(Vec<$block>),)*
        }

        impl Ggml {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),*];

            /// ggml's name.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $block::NAME,)* }
            }

            /// Weights that come together.
            pub(crate) fn group(self) -> usize {
                match self { $(Self::$variant => $block::WEIGHTS,)* }
            }

            /// `n` blocks of bytes from `byte`, with scales and minima from the functions.
            pub(crate) fn build(
                self,
                n: usize,
                rng: &mut Rng,
                scale: impl Fn(&mut Rng) -> f32,
                min: impl Fn(&mut Rng) -> f32,
                byte: impl Fn(&mut Rng) -> u8,
            ) -> Blocks {
                match self {
                    $(Self::$variant => Blocks::$variant((0..n).map(|_| {
                        let bytes: Vec<u8> = (0..size_of::<$block>()).map(|_| byte(rng)).collect();
                        let mut $b: $block = bytemuck::pod_read_unaligned(&bytes);
                        let ($scale, $min) = (scale(rng), min(rng));
                        let _ = $min;
                        $set;
                        $b
                    }).collect()),)*
                }
            }
        }

        impl Blocks {
            /// `n` weights from weight `at` on.
            pub(crate) fn weights(&self, at: usize, n: usize) -> Weights<'_> {
                match self {
                    $(Self::$variant(v) =>
                        Weights::$variant(&v[at / $block::WEIGHTS..][..n / $block::WEIGHTS]),)*
                }
            }
        }
    };
}

fn half(x: f32) -> f16 {
    f16::from_f32(x)
}

// Scales are such that weights are about 1 at most.
formats! {
    Q5_0: BlockQ5_0, |b, scale, min| b.scale = half(scale);
    Q5_1: BlockQ5_1, |b, scale, min| (b.scale, b.min) = (half(scale), half(min));
    Q2K: BlockQ2K, |b, scale, min| (b.d, b.dmin) = (half(scale / 16.0), half(min / 16.0));
    Q3K: BlockQ3K, |b, scale, min| b.d = half(scale / 32.0);
    Q4K: BlockQ4K, |b, scale, min| (b.d, b.dmin) = (half(scale / 64.0), half(min / 64.0));
    Q5K: BlockQ5K, |b, scale, min| (b.d, b.dmin) = (half(scale / 64.0), half(min / 64.0));
    Q6K: BlockQ6K, |b, scale, min| b.d = half(scale / 64.0);
    Iq4Nl: BlockIq4Nl, |b, scale, min| b.scale = half(scale / 64.0);
    Iq4Xs: BlockIq4Xs, |b, scale, min| b.d = half(scale / 2048.0);
    Mxfp4: BlockMxfp4, |b, scale, min| b.exponent = 124 + (scale.to_bits() >> 20 & 3) as u8;
    Nvfp4: BlockNvfp4, |b, scale, min| b.scales[0] = scale.to_bits() as u8;
    Iq1S: BlockIq1S, |b, scale, min| b.d = half(scale / 8.0);
    Iq1M: BlockIq1M, |b, scale, min| {
        let d = half(scale / 8.0).to_bits();
        for k in 0..4 {
            b.scales[2 * k + 1] = b.scales[2 * k + 1] & 15 | ((d >> (4 * k) & 15) as u8) << 4;
        }
    };
    Iq2Xxs: BlockIq2Xxs, |b, scale, min| b.d = half(scale / 64.0);
    Iq2Xs: BlockIq2Xs, |b, scale, min| b.d = half(scale / 64.0);
    Iq2S: BlockIq2S, |b, scale, min| b.d = half(scale / 64.0);
    Iq3Xxs: BlockIq3Xxs, |b, scale, min| b.d = half(scale / 64.0);
    Iq3S: BlockIq3S, |b, scale, min| b.d = half(scale / 64.0);
    Tq1_0: BlockTq1_0, |b, scale, min| b.d = half(scale);
    Tq2_0: BlockTq2_0, |b, scale, min| b.d = half(scale);
    Q1_0: BlockQ1_0, |b, scale, min| b.scale = half(scale);
    Q2_0: BlockQ2_0, |b, scale, min| b.scale = half(scale);
}
