//! The vectorised fitted quantizer against the scalar one, in f64, on every ISA path.

use halfbyte_cpu_kernels::{Context, Isa, quantize_q4_0_fit};
use halfbyte_q4::{BlockQ4_0, Error, q4_row_fit, q4_row_max};
use halfbyte_testing::Rng;
use halfbyte_threadpool::ThreadPool;

fn quantize(isa: Isa, threads: usize, x: &[f32]) -> Result<Vec<BlockQ4_0>, Error> {
    // There is no second thread in WebAssembly.
    let threads = if cfg!(target_family = "wasm") { 1 } else { threads };
    let pool = ThreadPool::new(threads).expect("a pool");
    let mut out = vec![BlockQ4_0::ZERO; x.len() / 32];
    quantize_q4_0_fit(Context { pool: &pool, isa }, x, &mut out)?;
    Ok(out)
}

fn scalar(quantizer: fn(&[f32], &mut [BlockQ4_0]) -> Result<(), Error>, x: &[f32]) -> Vec<BlockQ4_0> {
    let mut out = vec![BlockQ4_0::ZERO; x.len() / 32];
    quantizer(x, &mut out).expect("finite weights");
    out
}

/// The squared error of each group as decoded, in f64.
fn errors(x: &[f32], blocks: &[BlockQ4_0]) -> Vec<f64> {
    x.chunks(32)
        .zip(blocks)
        .map(|(x, b)| {
            let w = b.dequantize();
            x.iter().zip(w).map(|(&x, w)| (f64::from(x) - f64::from(w)).powi(2)).sum()
        })
        .collect()
}

/// Groups of many kinds and magnitudes, with a ragged number of them.
fn weights() -> Vec<f32> {
    let seed = 0x5eed_f175;
    println!("seed {seed:#x}");
    let mut rng = Rng(seed);
    let mut x = Vec::new();
    for g in 0..1_003u32 {
        let magnitude = 2f32.powi((rng.bits() % 50) as i32 - 36);
        for i in 0..32 {
            x.push(match g % 6 {
                0..=2 => magnitude * rng.normal(),
                3 => magnitude * if i == 0 { 1.0 } else { -0.95 },
                4 => magnitude * [1.0, -1.0, 0.0][rng.bits() as usize % 3],
                _ if g % 12 == 5 => 0.0,
                _ => magnitude * rng.normal().powi(3),
            });
        }
    }
    x
}

#[test]
fn never_worse_than_the_max_rule_and_as_good_as_the_scalar_search() {
    let x = weights();
    let (max, fit) = (errors(&x, &scalar(q4_row_max, &x)), errors(&x, &scalar(q4_row_fit, &x)));
    let expected = quantize(Isa::scalar(), 1, &x).expect("finite weights");
    let got = errors(&x, &expected);
    for g in 0..got.len() {
        assert!(got[g] <= max[g], "group {g}: error {} above the max rule's {}", got[g], max[g]);
        // A near-tie in the search may be decided by f32 rounding, which costs a little of one group.
        assert!(got[g] <= fit[g] * 1.02 + 1e-300, "group {g}: error {} and {}", got[g], fit[g]);
    }
    let (ours, theirs): (f64, f64) = (
        got.iter().zip(&max).filter(|(_, m)| **m > 0.0).map(|(e, m)| e / m).sum(),
        fit.iter().zip(&max).filter(|(_, m)| **m > 0.0).map(|(e, m)| e / m).sum(),
    );
    assert!(
        (ours / theirs - 1.0).abs() < 1e-4,
        "relative errors sum to {ours}, the scalar search's to {theirs}"
    );
    for isa in Isa::available() {
        for threads in 1..=3 {
            assert!(quantize(isa, threads, &x).expect("finite") == expected, "{isa}, {threads} threads");
        }
    }
}

#[test]
fn gaussian_weights_lose_what_the_recorded_groups_say() {
    let mut rng = Rng(0x6a55);
    println!("seed {:#x}", rng.0);
    let x: Vec<f32> = (0..32 * 4_000).map(|_| 0.02 * rng.normal()).collect();
    let fit: f64 = errors(&x, &quantize(Isa::fastest(), 2, &x).expect("finite")).iter().sum();
    let max7: f64 = errors(&x, &scalar(halfbyte_q4::q4_row, &x)).iter().sum();
    // The goal of the fitted search: 0.69 of max / 7's squared error.
    assert!((fit / max7 - 0.69).abs() < 0.01, "{}", fit / max7);
}

#[test]
fn coarse_groups_are_exact_and_zeros_are_zeros() {
    for isa in Isa::available() {
        let mut x = vec![0.0; 96];
        (x[0], x[1]) = (1.0, -1.0);
        x[64..].fill(1e-30);
        let blocks = quantize(isa, 1, &x).expect("finite");
        assert_eq!(errors(&x[..64], &blocks[..2]), [0.0, 0.0]);
        assert_eq!(blocks[1], BlockQ4_0::ZERO);
        assert!(blocks[2].dequantize().iter().all(|w| w.to_bits() == 0));
    }
}

#[test]
fn refusals_are_those_of_the_scalar_quantizer_and_write_nothing() {
    let pool = ThreadPool::new(1).expect("a pool");
    let ctx = Context { pool: &pool, isa: Isa::fastest() };
    let marker = BlockQ4_0 { scale: half::f16::ONE, codes: [0x5a; 16] };
    for (n, at, value) in
        [(64, 40, f32::NAN), (64, 3, f32::INFINITY), (64, 63, f32::MAX), (63, 0, 1.0), (96, 0, 1.0)]
    {
        let mut x = vec![0.5; n];
        x[at] = value;
        let (mut ours, mut theirs) = ([marker; 2], [marker; 2]);
        let got = quantize_q4_0_fit(ctx, &x, &mut ours).expect_err("refused").to_string();
        assert_eq!(got, q4_row_fit(&x, &mut theirs).expect_err("refused").to_string());
        assert_eq!(ours, [marker; 2]);
    }
}
