//! Warp instructions a second on one host thread, for the kernels among the tests.

use std::sync::Arc;
use std::time::Instant;

use halfbyte_cuda_emulator::{GlobalMemory, LaunchConfig, Module, Options, launch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let k = 4096u32;
    let bf16 = include_str!("../tests/ptx/tile_bf16.ptx");
    let w4a8 = include_str!("../tests/ptx/w4a8_tile.ptx");
    let sum = include_str!("../tests/ptx/block_sum.ptx");
    for (ptx, kernel, sizes, threads, dynamic_shared) in [
        (bf16, "tile_bf16", &[32 * k, 32 * k, 1024][..], 64, 0),
        (w4a8, "w4a8_tile", &[16 * k, 4 * k, 64, 512], 32, 3 * 1280),
        (sum, "block_sum", &[4 * k, 4], 128, 0),
    ] {
        let memory = GlobalMemory::new(1 << 24);
        let module = Arc::new(Module::parse(ptx)?).load(&memory)?;
        let mut params = Vec::new();
        for &bytes in sizes {
            let address = memory.alloc(u64::from(bytes))?;
            memory.fill(address, &[0], u64::from(bytes))?;
            params.extend(address.to_le_bytes());
        }
        params.extend(k.to_le_bytes());
        let config =
            LaunchConfig { grid: [32, 1, 1], block: [threads, 1, 1], dynamic_shared, params: &params };
        let mut options = Options::default();
        options.threads = 1;
        let mut best = 0.0f64;
        for _ in 0..5 {
            let start = Instant::now();
            let stats = launch(&module, kernel, &config, &memory, &options)?;
            best = best.max(stats.warp_instructions as f64 / start.elapsed().as_secs_f64());
        }
        println!("{kernel}: {:.1} million warp instructions a second", best / 1e6);
    }
    Ok(())
}
