//! Planted faults: correct kernels with one thing broken, each of which must be reported, where it is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "shared by test files")]
mod support;

use halfbyte_cuda_emulator::{Fault, FaultKind};
use support::{Device, Params, line_of};

const BLOCK_SUM: &str = include_str!("ptx/block_sum.ptx");
const TILE_BF16: &str = include_str!("ptx/tile_bf16.ptx");

/// Replaces the one occurrence, which must be there.
fn broken(ptx: &str, from: &str, to: &str) -> String {
    assert!(ptx.contains(from), "`{from}` is in the text");
    ptx.replacen(from, to, 1)
}

fn run_sum(ptx: &str, seed: u64) -> Option<Box<Fault>> {
    let mut device = Device::new(ptx);
    device.options.seed = seed;
    device.options.warp_budget = 100_000;
    let (x, total) = (device.upload_words(&[1; 1000]), device.upload_words(&[0]));
    let params = Params::new().pointer(x).pointer(total).word(1000);
    device.launch("block_sum", [2, 1, 1], [128, 1, 1], 0, &params).err()
}

fn run_tile(ptx: &str, seed: u64) -> Option<Box<Fault>> {
    let mut device = Device::new(ptx);
    device.options.seed = seed;
    let (a, b, c) =
        (device.upload_halves(&[0; 16 * 64]), device.upload_halves(&[0; 64 * 16]), device.alloc(1024));
    let params = Params::new().pointer(a).pointer(b).pointer(c).word(64);
    device.launch("tile_bf16", [1, 1, 1], [64, 1, 1], 0, &params).err()
}

/// The mutant must fault with one of these kinds whatever the order of warps, at the line that holds `at` (if
/// given); the correct text must not.
fn caught(
    run: fn(&str, u64) -> Option<Box<Fault>>,
    correct: &str,
    mutant: &str,
    kinds: &[FaultKind],
    at: Option<&str>,
) {
    for seed in 0..8 {
        if let Some(fault) = run(correct, seed) {
            panic!("seed {seed}: the correct kernel is refused: {fault}");
        }
        let fault = run(mutant, seed).unwrap_or_else(|| panic!("seed {seed}: not caught"));
        println!("seed {seed}: {fault}");
        assert!(kinds.contains(&fault.kind), "seed {seed}: {fault}");
        if let Some(at) = at {
            assert_eq!(fault.ptx_line, line_of(mutant, at), "seed {seed}: {fault}");
        }
        let (file, line) = fault.source_line.as_ref().unwrap_or_else(|| panic!("{fault} names the source"));
        assert!(file.ends_with(".cu") || file.ends_with(".cuh") || file.ends_with(".hpp"), "{fault}");
        assert!(*line > 0);
    }
}

#[test]
fn a_missing_barrier_before_reading() {
    let mutant = broken(BLOCK_SUM, "bar.sync 	0;", "");
    // Which of the two is met first is for the order of warps to say.
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::SharedRace, FaultKind::Uninitialised], None);
}

#[test]
fn a_missing_barrier_before_refilling_a_stage() {
    // The barrier at the end of an iteration is the second.
    let second = TILE_BF16.match_indices("bar.sync").nth(1).unwrap().0;
    let mutant = format!("{}{}", &TILE_BF16[..second], broken(&TILE_BF16[second..], "bar.sync 	0;", ""));
    caught(run_tile, TILE_BF16, &mutant, &[FaultKind::SharedRace, FaultKind::PendingAsyncCopy], None);
}

#[test]
fn a_missing_barrier_after_the_wait() {
    let mutant = broken(TILE_BF16, "bar.sync 	0;", "");
    caught(
        run_tile,
        TILE_BF16,
        &mutant,
        &[FaultKind::SharedRace, FaultKind::PendingAsyncCopy, FaultKind::Uninitialised],
        None,
    );
}

#[test]
fn a_weaker_wait() {
    let mutant = broken(TILE_BF16, "cp.async.wait_group 1;", "cp.async.wait_group 2;");
    caught(run_tile, TILE_BF16, &mutant, &[FaultKind::PendingAsyncCopy], None);
}

#[test]
fn a_missing_wait_for_the_last_stage() {
    let mutant = TILE_BF16.replace("cp.async.wait_group 0;", "");
    caught(run_tile, TILE_BF16, &mutant, &[FaultKind::PendingAsyncCopy], None);
}

#[test]
fn an_index_out_of_bounds() {
    let mutant = broken(BLOCK_SUM, "setp.lt.s32 	%p2,", "setp.le.s32 	%p2,");
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::OutOfBounds], Some("ld.global.u32"));
    let mutant = broken(
        BLOCK_SUM,
        "ld.shared.u32 	%r46, [_ZZ9block_sumE4sums+12]",
        "ld.shared.u32 	%r46, [_ZZ9block_sumE4sums+16]",
    );
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::OutOfBounds], Some("sums+16]"));
}

#[test]
fn a_misaligned_address() {
    let mutant = broken(
        BLOCK_SUM,
        "ld.shared.u32 	%r42, [_ZZ9block_sumE4sums+4]",
        "ld.shared.u32 	%r42, [_ZZ9block_sumE4sums+2]",
    );
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::Misaligned], Some("sums+2]"));
    let mutant = broken(BLOCK_SUM, "mul.wide.s32 	%rd4, %r49, 4;", "mul.wide.s32 	%rd4, %r49, 2;");
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::Misaligned], Some("ld.global.u32"));
}

#[test]
fn a_read_of_shared_memory_that_nobody_wrote() {
    let mutant = broken(BLOCK_SUM, "st.shared.u32 	[%r39], %r8;", "");
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::Uninitialised], Some("ld.shared.u32 	%r41"));
}

#[test]
fn a_store_by_every_lane_is_a_race_only_between_warps() {
    // All lanes of a warp store the same sum to the same place: no fault.
    let same = broken(BLOCK_SUM, "@%p8 bra 	$L__BB0_5;", "");
    assert!(run_sum(&same, 0).is_none());
    let mutant = broken(BLOCK_SUM, "and.b32  	%r37, %r36, 536870908;", "and.b32  	%r37, %r36, 0;");
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::SharedRace], Some("st.shared.u32"));
}

#[test]
fn a_barrier_that_part_of_a_warp_reaches() {
    let mutant = broken(BLOCK_SUM, "bar.sync 	0;", "@!%p8 bar.sync 	0;");
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::DivergentBarrier], Some("bar.sync"));
}

#[test]
fn a_barrier_that_only_some_warps_reach() {
    // The first warp alone waits at a barrier of its own.
    let mutant =
        broken(BLOCK_SUM, "bar.sync 	0;", "setp.gt.u32 %p9, %r13, 31;\n@!%p9 bar.sync 	1;\nbar.sync 0;");
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::Deadlock], None);
}

#[test]
fn a_shuffle_that_part_of_a_warp_reaches() {
    let mutant = broken(
        BLOCK_SUM,
        "shfl.sync.bfly.b32 	%r32|%p7",
        "mov.u32 %r32, 0;\nand.b32 %r33, %r13, 1;\nsetp.eq.u32 %p8, %r33, 0;\n@%p8 shfl.sync.bfly.b32 	%r32|%p7",
    );
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::PartialWarp], Some("@%p8 shfl"));
}

#[test]
fn a_matrix_instruction_that_part_of_a_warp_reaches() {
    for opcode in ["mma.sync", "ldmatrix.sync.aligned.m8n8.x4"] {
        // At the start of the loop's body, before which every register is written.
        let at = TILE_BF16.find(opcode).unwrap();
        let guard =
            "{ .reg .pred %half; .reg .b32 %l; mov.u32 %l, %laneid; setp.lt.u32 %half, %l, 16; @%half ";
        let end = at + TILE_BF16[at..].find(';').unwrap() + 1;
        let mutant = format!("{}{guard}{} }}{}", &TILE_BF16[..at], &TILE_BF16[at..end], &TILE_BF16[end..]);
        caught(run_tile, TILE_BF16, &mutant, &[FaultKind::PartialWarp], Some(opcode));
    }
}

#[test]
fn an_endless_loop() {
    let mutant = broken(BLOCK_SUM, "add.s32 	%r49, %r49, %r2;", "");
    caught(run_sum, BLOCK_SUM, &mutant, &[FaultKind::Watchdog], None);
}

#[test]
fn the_lowest_block_is_reported_whatever_the_threads() {
    let mutant = broken(BLOCK_SUM, "setp.ge.s32 	%p1,", "setp.gt.s32 	%p1,");
    let faults: Vec<_> = [1, 2, 4]
        .map(|threads| {
            let mut device = Device::new(&mutant);
            device.options.threads = threads;
            let (x, total) = (device.upload_words(&[1; 1000]), device.upload_words(&[0]));
            let params = Params::new().pointer(x).pointer(total).word(1000);
            device.launch("block_sum", [16, 1, 1], [128, 1, 1], 0, &params).unwrap_err()
        })
        .into();
    // Element 1000 is that of block 7, thread 104.
    assert_eq!((faults[0].block, faults[0].thread), ([7, 0, 0], [104, 0, 0]));
    assert!(faults.iter().all(|fault| *fault == faults[0]), "{faults:?}");
}

#[test]
fn memory_that_was_freed() {
    let device = Device::new(BLOCK_SUM);
    let (x, total) = (device.upload_words(&[1; 1000]), device.upload_words(&[0]));
    device.memory.free(x).unwrap();
    let params = Params::new().pointer(x).pointer(total).word(1000);
    let fault = device.launch("block_sum", [1, 1, 1], [128, 1, 1], 0, &params).unwrap_err();
    assert_eq!(fault.kind, FaultKind::UseAfterFree);
    assert_eq!(fault.ptx_line, line_of(BLOCK_SUM, "ld.global.u32"));
    let text = fault.to_string();
    for part in ["block_sum", "block_sum.cu:6", "block (0, 0, 0)", "thread (0, 0, 0)", "freed"] {
        assert!(text.contains(part), "`{part}` in {text}");
    }
}

#[test]
fn impossible_launches() {
    let device = Device::new(BLOCK_SUM);
    let good = Params::new().pointer(0).pointer(0).word(0);
    let bad = |kernel: &str, grid, block, shared, params: &Params| {
        device.launch(kernel, grid, block, shared, params).unwrap_err().kind
    };
    let kinds = [
        bad("nothing", [1; 3], [128, 1, 1], 0, &good),
        bad("block_sum", [0, 1, 1], [128, 1, 1], 0, &good),
        bad("block_sum", [1; 3], [129, 1, 1], 0, &good),
        bad("block_sum", [1; 3], [128, 1, 1], 1 << 20, &good),
        bad("block_sum", [1; 3], [128, 1, 1], 0, &Params::new()),
    ];
    assert!(kinds.iter().all(|kind| *kind == FaultKind::InvalidLaunch), "{kinds:?}");
}
