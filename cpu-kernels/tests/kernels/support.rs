//! What the tests share: numbers from a seed, weights of every format, pools, and the comparison of bits.

use crate::ggml::{Blocks, Ggml};
use half::{bf16, f16};
use halfbyte_cpu_kernels::{Affine, Context, Isa, Matrix, Parameters, Weights};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;
pub(crate) use halfbyte_testing::Rng;
use halfbyte_threadpool::ThreadPool;
use proptest::prop_oneof;
use proptest::sample::select;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::array::from_fn;
use std::sync::OnceLock;

/// Half a unit in the last place of 1.0f32: the relative error of one rounding.
pub(crate) const U: f64 = 1.0 / (1 << 24) as f64;

/// What `roundings` roundings in a row can do, relatively, with the higher orders that docstrings leave out.
pub(crate) fn relative(roundings: f64) -> f64 {
    roundings * U / (1.0 - roundings * U)
}

/// Runs `test` on 60 values of `strategy`, always the same ones, and shrinks what fails.
pub(crate) fn property<S: Strategy>(strategy: S, test: impl Fn(S::Value)) {
    const SEED: &[u8; 32] = b"halfbyte-cpu-kernels-properties!";
    println!("proptest seed {SEED:?}");
    let config = Config { cases: 60, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, SEED);
    let result = TestRunner::new_with_rng(config, rng).run(&strategy, |value| {
        test(value);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// A pool of 1, 2 or 3 threads, one for all tests; of one where there are no others.
pub(crate) fn pool(threads: usize) -> &'static ThreadPool {
    static POOLS: OnceLock<[ThreadPool; 3]> = OnceLock::new();
    &POOLS.get_or_init(|| {
        [1, 2, 3].map(|n| ThreadPool::new(if cfg!(target_family = "wasm") { 1 } else { n }).unwrap())
    })[threads - 1]
}

/// One thread, the scalar path.
pub(crate) fn plain() -> Context<'static> {
    Context { pool: pool(1), isa: Isa::scalar() }
}

/// Every path of this machine on 1, 2 and 3 threads.
pub(crate) fn everywhere() -> impl Iterator<Item = Context<'static>> {
    Isa::available().into_iter().flat_map(|isa| [1, 2, 3].map(|n| Context { pool: pool(n), isa }))
}

/// The bits of `n` outputs that `kernel` wrote over NaN, which must all have been written.
pub(crate) fn run(ctx: Context<'_>, n: usize, kernel: impl FnOnce(Context<'_>, &mut [f32])) -> Vec<f32> {
    let poison = f32::from_bits(0x7fc0_beef);
    let mut y = vec![poison; n];
    kernel(ctx, &mut y);
    let left = y.iter().position(|y| y.to_bits() == poison.to_bits());
    assert_eq!(left, None, "{} on {} threads left an output unwritten", ctx.isa, ctx.pool.threads());
    y
}

/// The bits of `kernel`'s `n` outputs on one thread of the scalar path, after every other path and number of
/// threads was seen to give the same ones. NaN equals NaN: which of its bits are set, no path promises.
pub(crate) fn run_everywhere(n: usize, kernel: impl Fn(Context<'_>, &mut [f32])) -> Vec<f32> {
    let expected = run(plain(), n, &kernel);
    for ctx in everywhere() {
        let got = run(ctx, n, &kernel);
        assert_same(&got, &expected, &format!("{} on {} threads", ctx.isa, ctx.pool.threads()));
    }
    expected
}

/// Panics unless the bits are the same, NaN for NaN.
#[track_caller]
pub(crate) fn assert_same(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    if let Some(i) = got.iter().zip(expected).position(|pair| !same(pair)) {
        panic!("{what}: element {i} is {}, not {}", got[i], expected[i]);
    }
}

/// Panics unless `got` is within `bound` of `want`.
#[track_caller]
pub(crate) fn assert_within(got: f32, want: f64, bound: f64, what: &str) {
    let error = (f64::from(got) - want).abs();
    // The twin's own roundings, f64's, are paid for by the last term.
    assert!(
        error <= bound + want.abs() * 1e-14,
        "{what}: {got}, want {want}, off by {error:e}, bound {bound:e}"
    );
}

/// A type of the scales and biases of MLX groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Parameter {
    F32,
    F16,
    Bf16,
}

/// A weight format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
    Q4_1,
    Affine(usize, Parameter),
    Affine8(usize, Parameter),
    Ggml(Ggml),
}

/// What the int8 kernels multiply.
pub(crate) const INT8: [Format; 23] = [
    Format::Q8_0,
    Format::Q4_0,
    Format::Q4_1,
    Format::Affine(32, Parameter::F32),
    Format::Affine(32, Parameter::F16),
    Format::Affine(32, Parameter::Bf16),
    Format::Affine(64, Parameter::F32),
    Format::Affine(64, Parameter::F16),
    Format::Affine(64, Parameter::Bf16),
    Format::Affine(128, Parameter::F32),
    Format::Affine(128, Parameter::F16),
    Format::Affine(128, Parameter::Bf16),
    Format::Ggml(Ggml::Q5_0),
    Format::Ggml(Ggml::Q5_1),
    Format::Ggml(Ggml::Q2K),
    Format::Ggml(Ggml::Q3K),
    Format::Ggml(Ggml::Q4K),
    Format::Ggml(Ggml::Q5K),
    Format::Ggml(Ggml::Q6K),
    Format::Ggml(Ggml::Iq4Nl),
    Format::Ggml(Ggml::Iq4Xs),
    Format::Ggml(Ggml::Mxfp4),
    Format::Ggml(Ggml::Nvfp4),
];

/// What only the f32 kernels multiply.
pub(crate) const FLOAT_ONLY: [Format; 6 + Ggml::ALL.len() - 11] = {
    let mut formats = [Format::F32; 6 + Ggml::ALL.len() - 11];
    formats[1] = Format::F16;
    formats[2] = Format::Bf16;
    formats[3] = Format::Affine8(32, Parameter::F32);
    formats[4] = Format::Affine8(64, Parameter::F16);
    formats[5] = Format::Affine8(128, Parameter::Bf16);
    // The first eleven have int8 kernels.
    let mut i = 11;
    while i < Ggml::ALL.len() {
        formats[6 + i - 11] = Format::Ggml(Ggml::ALL[i]);
        i += 1;
    }
    formats
};

/// One of `from`, where all affine formats together count as two.
pub(crate) fn any_format(from: &[Format]) -> impl Strategy<Value = Format> + use<> {
    let (affine, plain): (Vec<_>, Vec<_>) = from.iter().partition(|f| matches!(f, Format::Affine(..)));
    prop_oneof![plain.len() as u32 => select(plain), 2 => select(affine)]
}

impl Format {
    /// The name that messages use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Affine(..) => "MLX affine 4-bit",
            Self::Affine8(..) => "MLX affine 8-bit",
            Self::Ggml(format) => format.name(),
        }
    }

    /// Weights that come together.
    pub(crate) fn group(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => 32,
            Self::Affine(group, _) | Self::Affine8(group, _) => group,
            Self::Ggml(format) => format.group(),
        }
    }

    /// `rows` x `cols` weights: any codes, scales of either sign up to about 1.
    pub(crate) fn random(self, rows: usize, cols: usize, rng: &mut Rng) -> Stored {
        self.build(rows, cols, rng, |rng| rng.f32(), |rng| rng.f32(), Rng::byte)
    }

    /// Weights whose scales, minima and code bytes come from the three functions, where the format has them.
    pub(crate) fn build(
        self,
        rows: usize,
        cols: usize,
        rng: &mut Rng,
        scale: impl Fn(&mut Rng) -> f32,
        min: impl Fn(&mut Rng) -> f32,
        byte: impl Fn(&mut Rng) -> u8,
    ) -> Stored {
        let n = rows * cols / self.group();
        let half = |x: f32| f16::from_f32(x);
        match self {
            Self::F32 => Stored::F32((0..n).map(|_| scale(rng)).collect()),
            Self::F16 => Stored::F16((0..n).map(|_| half(scale(rng))).collect()),
            Self::Bf16 => Stored::Bf16((0..n).map(|_| bf16::from_f32(scale(rng))).collect()),
            Self::Q8_0 => {
                let mut block = || BlockQ8_0 { scale: half(scale(rng)), codes: from_fn(|_| byte(rng) as i8) };
                Stored::Q8_0((0..n).map(|_| block()).collect())
            }
            Self::Q4_0 => {
                let mut block = || BlockQ4_0 { scale: half(scale(rng)), codes: from_fn(|_| byte(rng)) };
                Stored::Q4_0((0..n).map(|_| block()).collect())
            }
            Self::Q4_1 => {
                let mut block = || BlockQ4_1 {
                    scale: half(scale(rng)),
                    min: half(min(rng)),
                    codes: from_fn(|_| byte(rng)),
                };
                Stored::Q4_1((0..n).map(|_| block()).collect())
            }
            Self::Affine(group, parameter) | Self::Affine8(group, parameter) => {
                let bits = if matches!(self, Self::Affine(..)) { 4 } else { 8 };
                let words = rows * cols / 32 * bits;
                Stored::Affine {
                    bits,
                    codes: (0..words).map(|_| u32::from_le_bytes(from_fn(|_| byte(rng)))).collect(),
                    scales: StoredParameters::new(parameter, (0..n).map(|_| scale(rng)).collect()),
                    biases: StoredParameters::new(parameter, (0..n).map(|_| min(rng)).collect()),
                    group,
                }
            }
            Self::Ggml(format) => Stored::Ggml(format.build(n, rng, scale, min, byte)),
        }
    }
}

/// Weights that own their memory.
#[derive(Debug)]
pub(crate) enum Stored {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    Q8_0(Vec<BlockQ8_0>),
    Q4_0(Vec<BlockQ4_0>),
    Q4_1(Vec<BlockQ4_1>),
    Affine { bits: usize, codes: Vec<u32>, scales: StoredParameters, biases: StoredParameters, group: usize },
    Ggml(Blocks),
}

/// Scales or biases that own their memory.
#[derive(Debug)]
pub(crate) enum StoredParameters {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl StoredParameters {
    fn new(parameter: Parameter, values: Vec<f32>) -> Self {
        match parameter {
            Parameter::F32 => Self::F32(values),
            Parameter::F16 => Self::F16(values.into_iter().map(f16::from_f32).collect()),
            Parameter::Bf16 => Self::Bf16(values.into_iter().map(bf16::from_f32).collect()),
        }
    }

    fn slice(&self, first: usize, n: usize) -> Parameters<'_> {
        match self {
            Self::F32(v) => Parameters::F32(&v[first..][..n]),
            Self::F16(v) => Parameters::F16(&v[first..][..n]),
            Self::Bf16(v) => Parameters::Bf16(&v[first..][..n]),
        }
    }
}

impl Stored {
    /// Rows `first..first + rows` of these weights, which are `cols` wide.
    pub(crate) fn rows(&self, first: usize, rows: usize, cols: usize) -> Matrix<'_> {
        let (at, n) = (first * cols, rows * cols);
        let weights = match self {
            Self::F32(v) => Weights::F32(&v[at..][..n]),
            Self::F16(v) => Weights::F16(&v[at..][..n]),
            Self::Bf16(v) => Weights::Bf16(&v[at..][..n]),
            Self::Q8_0(v) => Weights::Q8_0(&v[at / 32..][..n / 32]),
            Self::Q4_0(v) => Weights::Q4_0(&v[at / 32..][..n / 32]),
            Self::Q4_1(v) => Weights::Q4_1(&v[at / 32..][..n / 32]),
            Self::Affine { bits, codes, scales, biases, group } => Weights::Affine(Affine {
                bits: *bits,
                group: *group,
                codes: &codes[at / 32 * bits..][..n / 32 * bits],
                scales: scales.slice(at / group, n / group),
                biases: biases.slice(at / group, n / group),
            }),
            Self::Ggml(blocks) => blocks.weights(at, n),
        };
        Matrix::new(weights, rows, cols).unwrap()
    }
}
