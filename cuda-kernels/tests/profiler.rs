//! The profiler's table, of launches on the emulator's virtual clock or a GPU's real one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod gpu;

use gpu::{bf16s, on_gpu};
use half::bf16;
use halfbyte_cuda_driver::{DeviceBuffer, Stream};
use halfbyte_cuda_emulator::EmulatorConfig;
use halfbyte_cuda_kernels::{Kernels, Layout, MatmulOutput, Profiler, add, matmul};
use halfbyte_testing::Rng;

#[test]
fn launches_with_a_profiler_are_in_the_table_and_others_are_not() {
    on_gpu(EmulatorConfig::default(), |context, _| {
        let kernels = Kernels::new(context).unwrap();
        let stream = Stream::legacy_default(context);
        let mut random = Rng(5);
        let a = DeviceBuffer::from_slice(context, &bf16s(&mut random, 64 * 32, 1.0)).unwrap();
        let b = DeviceBuffer::from_slice(context, &bf16s(&mut random, 16 * 32, 1.0)).unwrap();
        let mut c = DeviceBuffer::<bf16>::zeroed(context, 64 * 16).unwrap();
        let mut sum = DeviceBuffer::<bf16>::zeroed(context, 64 * 32).unwrap();

        let profiler = Profiler::new(context);
        let timed = profiler.queue(&stream);
        for _ in 0..2 {
            let out = &mut MatmulOutput::Bf16(c.as_mut_slice());
            matmul(&kernels, timed, Layout::Nt, [64, 16, 32], a.as_slice(), b.as_slice(), out).unwrap();
        }
        add(&kernels, timed, a.as_slice(), a.as_slice(), &mut sum.as_mut_slice()).unwrap();
        // This launch has no profiler.
        add(&kernels, &stream, a.as_slice(), a.as_slice(), &mut sum.as_mut_slice()).unwrap();

        let report = profiler.take().unwrap();
        let mut rows: Vec<_> = report.rows.iter().map(|row| (&*row.kernel, &*row.shape, row.calls)).collect();
        rows.sort_unstable();
        assert_eq!(rows, [("add_bf16", "1x2048", 1), ("matmul_bf16_nt", "64x16x32", 2)]);
        assert!(report.rows.iter().all(|row| row.total_ms > 0.0), "{report}");
        let product = report.rows.iter().find(|row| row.kernel == "matmul_bf16_nt").unwrap();
        assert_eq!(product.work.operations, 2 * 2 * 64 * 16 * 32);
        eprintln!("{report}");

        // What was taken is gone, and its events are used again.
        assert!(profiler.take().unwrap().rows.is_empty());
        add(&kernels, profiler.queue(&stream), a.as_slice(), a.as_slice(), &mut sum.as_mut_slice()).unwrap();
        assert_eq!(profiler.take().unwrap().rows.len(), 1);
    });
}
