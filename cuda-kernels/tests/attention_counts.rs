//! What the attention kernels issue and move, beside the least possible: the numbers of docs/performance.md.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use common::Random;
use common::attention::{Case, heads};
use gpu::on_gpu;
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::Kernels;
use halfbyte_cuda_kernels::attention::{Heads, KvFormat};

/// Operations of an m16n8k16 product.
const MMA: f64 = 4096.0;

/// Dense bf16 operations with f32 sums, and bytes of memory, a second: as published for an RTX 5090 and an H200.
const DEVICES: [(&str, f64, f64); 2] = [("RTX 5090", 209e12, 1.79e12), ("H200", 989e12, 4.8e12)];

/// One kv head of four query heads (a model with 32 and 8 has eight times as much) on the emulator: products against those
/// of the pairs that see each other, bytes that threads load and store against each byte once, and the time that the
/// slower of the two takes at a device's peak. Loads that another block has made before come from a cache on a GPU.
#[test]
#[ignore = "prints a table, half a minute with --release"]
fn counts() {
    println!(
        "| kernel | shape | mma | of the least | MB moved | of the least | {} | {} |",
        DEVICES[0].0, DEVICES[1].0
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (format, dim, first, rows) in [
        (KvFormat::Bf16, 128, 0, 2048),
        (KvFormat::Fp8, 128, 0, 2048),
        (KvFormat::Bf16, 64, 0, 2048),
        (KvFormat::Bf16, 128, 8191, 1),
        (KvFormat::Fp8, 128, 8191, 1),
        (KvFormat::Fp8, 128, 8184, 8),
    ] {
        let of: Heads = heads(4, 1, dim);
        let case = Case::random(&mut Random(110), format, of, first, rows);
        on_gpu(EmulatorConfig::default(), |context, emulator| {
            let Some(emulator) = emulator else { panic!("counts are the emulator's") };
            let kernels = Kernels::new(context).unwrap();
            let cache = case.cache(context);
            if rows > 8 {
                case.prefill(&kernels, &cache);
            } else {
                case.decode(&kernels, &cache);
            }
            let pairs: usize = (0..rows).map(|row| (first + row + 1) * of.n_heads).sum();
            let least_operations = 4.0 * (pairs * dim) as f64;
            let row_bytes = if format == KvFormat::Bf16 { dim * 2 } else { dim + 4 };
            let least_bytes = (rows * of.width() * 4 + 2 * case.kv_len * row_bytes) as f64;
            for launch in emulator.take_launches() {
                let bytes = (launch.stats.global_loaded + launch.stats.global_stored) as f64;
                let merge = launch.kernel.contains("merge");
                let time = |(_, operations, bandwidth): (&str, f64, f64)| {
                    let (operations, bytes) = if merge {
                        (0.0, bytes)
                    } else {
                        (launch.stats.mma as f64 * MMA / operations, least_bytes)
                    };
                    let seconds = operations.max(bytes / bandwidth);
                    format!("{:.2} us", seconds * 1e6)
                };
                println!(
                    "| `{}` | {rows} rows, {} positions | {} | {:.3} | {:.2} | {:.2} | {} | {} |",
                    launch.kernel,
                    case.kv_len,
                    launch.stats.mma,
                    launch.stats.mma as f64 * MMA / least_operations,
                    bytes / 1e6,
                    bytes / least_bytes,
                    time(DEVICES[0]),
                    time(DEVICES[1]),
                );
                assert!(merge || launch.stats.mma as f64 * MMA >= least_operations);
            }
        });
    }
}
