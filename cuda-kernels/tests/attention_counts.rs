//! What the attention kernels issue and move, beside the least possible: the numbers of docs/performance.md.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use common::Activations as _;
use common::attention::{Case, params};
use gpu::on_gpu;
use halfbyte_cuda_driver::ComputeCapability;
use halfbyte_cuda_emulator::{EmulatorConfig, LaunchRecord};
use halfbyte_cuda_kernels::Kernels;
use halfbyte_cuda_kernels::attention::KvFormat;
use halfbyte_testing::Rng;

use KvFormat::{Bf16, Fp8};

/// Dense bf16 operations with f32 sums, and bytes of memory, a second, as published: RTX 5090, H200.
const PEAKS: [(f64, f64); 2] = [(209e12, 1.79e12), (989e12, 4.8e12)];

/// Operations of an m16n8k16 product.
const MMA: f64 = 4096.0;

/// An eighth of an H200: as many multiprocessors as a kv head's blocks get, and its shared memory.
fn eighth_of_an_h200() -> EmulatorConfig {
    EmulatorConfig {
        compute_capability: ComputeCapability { major: 9, minor: 0 },
        multiprocessors: 16,
        registers: [("attention_prefill_bf16_d64_wide".to_owned(), 255)].into(),
        ..EmulatorConfig::default()
    }
}

/// One kv head of four query heads, a part of a model that has eight times as much: its launches.
fn launches(config: EmulatorConfig, case: &Case, run: impl Fn(&Kernels)) -> Vec<LaunchRecord> {
    let mut launches = vec![];
    on_gpu(config, |context, emulator| {
        let emulator = emulator.unwrap_or_else(|| panic!("counts are the emulator's"));
        run(&Kernels::new(context).unwrap());
        launches = emulator.take_launches();
    });
    assert!(case.rows > 0 && !launches.is_empty());
    launches
}

/// A row of the table: products and bytes beside the least, MB out of shared memory, bank conflicts, and the time of a roofline: the products issued at the peak
/// rate, or the least bytes at the memory's, whichever takes longer. (What several blocks load comes from a cache.)
fn print(launch: &LaunchRecord, case: &Case, least_operations: f64, least_bytes: f64) {
    let operations = launch.stats.mma as f64 * MMA;
    let bytes = (launch.stats.global_loaded + launch.stats.global_stored) as f64;
    let times = PEAKS.map(|(rate, bandwidth)| 1e6 * (operations / rate).max(least_bytes / bandwidth));
    let share = if operations > 0.0 { format!("{:.3}", operations / least_operations) } else { "-".into() };
    println!(
        "| `{}` | {} x {} | {} | {share} | {:.2} | {:.2} | {:.2} | {} | {:.2} | {:.2} |",
        launch.kernel,
        case.rows,
        case.kv_len,
        launch.stats.mma,
        bytes / 1e6,
        bytes / least_bytes,
        launch.stats.shared_loaded as f64 / 1e6,
        launch.stats.bank_conflicts,
        times[0],
        times[1],
    );
    assert!(operations >= least_operations);
}

fn pairs(case: &Case) -> f64 {
    (0..case.rows).map(|row| (case.first + row + 1) * case.params.n_heads).sum::<usize>() as f64
}

#[test]
#[ignore = "prints a table, half a minute"]
fn forward() {
    for (format, dim, first, rows) in [
        (Bf16, 128, 0, 2048),
        (Fp8, 128, 0, 2048),
        (Bf16, 64, 0, 2048),
        (Bf16, 128, 8191, 1),
        (Fp8, 128, 8191, 1),
        (Bf16, 128, 8184, 8),
        (Fp8, 128, 8184, 8),
    ] {
        let case = Case::random(&mut Rng(110), format, params(4, 1, dim), first, rows);
        let row_bytes = if format == Bf16 { dim * 2 } else { dim + 4 };
        let least_bytes = (rows * case.params.width() * 4 + 2 * case.kv_len * row_bytes) as f64;
        let run = |kernels: &Kernels| {
            let cache = case.cache(kernels.context());
            if rows > 8 { drop(case.prefill(kernels, &cache)) } else { drop(case.decode(kernels, &cache)) }
        };
        if rows > 8 {
            let wide = &launches(eighth_of_an_h200(), &case, run)[0];
            assert!(wide.kernel.ends_with("_wide"));
            print(wide, &case, 4.0 * pairs(&case) * dim as f64, least_bytes);
        }
        let records = launches(EmulatorConfig::default(), &case, run);
        print(&records[0], &case, 4.0 * pairs(&case) * dim as f64, least_bytes);
        if let Some(merge) = records.get(1) {
            let bytes = (merge.stats.global_loaded + merge.stats.global_stored) as f64;
            print(merge, &case, 0.0, bytes);
        }
    }
}

#[test]
#[ignore = "prints a table, half a minute"]
fn gradients() {
    for dim in [128, 64] {
        let case = Case::random(&mut Rng(111), Bf16, params(4, 1, dim), 0, 1024);
        let dout = Rng(112).activations(case.q.len());
        let records =
            launches(EmulatorConfig::default(), &case, |kernels| drop(case.gradients(kernels, &dout)));
        let (rows, kv) = ((case.rows * case.params.width() * 2) as f64, (2 * case.kv_len * dim * 2) as f64);
        let statistics = (case.rows * case.params.n_heads * 8) as f64;
        for launch in &records {
            // Queries, their gradient's and the outputs' gradient's rows; keys and values, or those and their gradients.
            let (products, bytes) = match &*launch.kernel {
                name if name.contains("dq") => (3.0, 3.0 * rows + kv + statistics),
                name if name.contains("dkdv") => (4.0, 2.0 * rows + 2.0 * kv + statistics),
                _ => continue,
            };
            print(launch, &case, 2.0 * products * pairs(&case) * dim as f64, bytes);
        }
    }
}
