//! Races on global memory and undefined registers: planted ones are caught under every seed, what is in order is not
//! reported.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "shared by test files")]
mod support;

use halfbyte_cuda_emulator::{Fault, FaultKind};
use support::{Device, Params, line_of};

const BLOCK_SUM: &str = include_str!("ptx/block_sum.ptx");
const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn broken(ptx: &str, from: &str, to: &str) -> String {
    assert!(ptx.contains(from), "`{from}` is in the text");
    ptx.replace(from, to)
}

fn run_sum(ptx: &str, seed: u64) -> Result<u32, Box<Fault>> {
    let mut device = Device::new(ptx);
    device.options.seed = seed;
    let (x, total) = (device.upload_words(&[1; 1000]), device.upload_words(&[0]));
    let params = Params::new().pointer(x).pointer(total).word(1000);
    device.launch("block_sum", [4, 1, 1], [128, 1, 1], 0, &params)?;
    Ok(device.words(total, 1)[0])
}

/// Runs `k(a, b, c)`, pointers to 64 words each that hold zeros.
fn run(body: &str, grid: u32, block: u32, seed: u64, checked: bool) -> Result<Vec<u32>, Box<Fault>> {
    let ptx = format!(
        "{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{\n\
         .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\n\
         ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];\n\
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %tid.x;\n{body}\nret;\n}}\n"
    );
    let mut device = Device::new(&ptx);
    device.options.seed = seed;
    device.options.checks.global_races = checked;
    let pointers = [(); 3].map(|()| device.upload_words(&[0; 64]));
    let params = pointers.iter().fold(Params::new(), |params, &address| params.pointer(address));
    device.launch("k", [grid, 1, 1], [block, 1, 1], 0, &params)?;
    Ok(device.words(pointers[2], 64))
}

/// The mutant is reported under every seed, the correct body under none, nor the mutant unchecked.
fn caught(body: &str, mutant: &str, grid: u32, block: u32, part: &str) {
    for seed in 0..8 {
        run(body, grid, block, seed, true).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        run(mutant, grid, block, seed, false).unwrap();
        let fault = run(mutant, grid, block, seed, true).unwrap_err();
        println!("seed {seed}: {fault}");
        assert_eq!(fault.kind, FaultKind::GlobalRace);
        assert!(fault.detail.contains(part), "`{part}` in {fault}");
    }
}

#[test]
fn an_addition_that_is_not_atomic() {
    let atomic = "atom.global.add.u32 	%r48, [%rd6], %r47;";
    let plain = "ld.global.u32 %r48, [%rd6]; add.u32 %r48, %r48, %r47; st.global.u32 [%rd6], %r48;";
    let mutant = broken(BLOCK_SUM, atomic, plain);
    for seed in 0..8 {
        assert_eq!(run_sum(BLOCK_SUM, seed).unwrap(), 1000);
        let fault = run_sum(&mutant, seed).unwrap_err();
        println!("seed {seed}: {fault}");
        assert_eq!(fault.kind, FaultKind::GlobalRace);
        assert_eq!(fault.ptx_line, line_of(&mutant, "ld.global.u32 %r48"));
        assert_eq!(fault.thread, [0, 0, 0]);
        assert!(fault.source_line.as_ref().is_some_and(|(file, line)| file.ends_with(".hpp") && *line > 0));
    }
}

#[test]
fn blocks_that_write_the_same_element() {
    // Each thread of each block its own word; then the same words in each block.
    let own = "mad.lo.u32 %r4, %r1, 32, %r3;";
    let rest = "mul.wide.u32 %rd4, %r4, 4; add.s64 %rd4, %rd3, %rd4; st.global.u32 [%rd4], %r1;";
    let same = format!("mov.u32 %r4, %r3;{rest}");
    caught(&format!("{own}{rest}"), &same, 2, 32, "wrote");
    // Writing the value that is already there is no race.
    run(&broken(&same, "%r1;", "7;"), 2, 32, 0, true).unwrap();
}

#[test]
fn a_write_to_what_other_blocks_read() {
    // All blocks read word 0; block 3 writes word 1, then word 0.
    let body = "ld.global.u32 %r4, [%rd1]; setp.ne.u32 %p1, %r1, 3; @%p1 ret; st.global.u32 [%rd1+4], %r1;";
    caught(body, &broken(body, "[%rd1+4]", "[%rd1]"), 4, 1, "read");
}

#[test]
fn the_last_block_needs_a_fence_before_the_counter() {
    let body = "
        mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd1, %rd4; st.global.u32 [%rd4], %r1;
        membar.gl;
        atom.global.add.u32 %r4, [%rd2], 1; add.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, %r2; @%p1 ret;
        mov.u32 %r4, 0; mov.u32 %r5, 0;
        LOOP: mul.wide.u32 %rd5, %r4, 4; add.s64 %rd5, %rd1, %rd5; ld.global.u32 %r6, [%rd5];
        add.u32 %r5, %r5, %r6; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r2; @%p2 bra LOOP;
        st.global.u32 [%rd3], %r5;";
    caught(body, &broken(body, "membar.gl;", ""), 16, 1, "wrote");
    assert_eq!(run(body, 16, 1, 0, true).unwrap()[0], 120);
}

#[test]
fn warps_that_hand_over_need_a_barrier() {
    let body = "
        mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %rd1, %rd4; st.global.u32 [%rd5], %r3;
        bar.sync 0;
        xor.b32 %r4, %r3, 32; mul.wide.u32 %rd5, %r4, 4; add.s64 %rd5, %rd1, %rd5; ld.global.u32 %r5, [%rd5];
        add.s64 %rd4, %rd3, %rd4; st.global.u32 [%rd4], %r5;";
    assert_eq!(run(body, 1, 64, 0, true).unwrap(), (0..64).map(|i| i ^ 32).collect::<Vec<u32>>());
    caught(body, &broken(body, "bar.sync 0;", ""), 1, 64, "warp");
}

#[test]
fn bytes_of_one_word_are_apart() {
    // Block i writes byte i, block i half i; each reads its own again and writes it once more.
    for body in [
        "cvt.u64.u32 %rd4, %r1; add.s64 %rd4, %rd3, %rd4; st.global.u8 [%rd4], %r1; ld.global.u8 %r4, [%rd4];
         add.u32 %r4, %r4, 1; st.global.u8 [%rd4], %r4;",
        "mul.wide.u32 %rd4, %r1, 2; add.s64 %rd4, %rd3, %rd4; st.global.u16 [%rd4], %r1;
         ld.global.u16 %r4, [%rd4]; add.u32 %r4, %r4, 1; st.global.u16 [%rd4], %r4;",
    ] {
        for seed in 0..8 {
            let words = run(body, 16, 1, seed, true).unwrap_or_else(|fault| panic!("{body}: {fault}"));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let step = if body.contains("u16") { 2 } else { 1 };
            for i in 0..16 {
                assert_eq!(usize::from(bytes[step * i]), i + 1, "{body}");
            }
        }
    }
}

#[test]
fn atomic_and_volatile_accesses_do_not_race() {
    let body = "
        atom.global.add.u32 %r4, [%rd3], 1; ld.volatile.global.u32 %r5, [%rd3]; red.global.max.u32 [%rd3+4], %r1;
        st.volatile.global.u32 [%rd3+8], 7; st.relaxed.gpu.global.u32 [%rd3+8], 7;";
    for seed in 0..8 {
        assert_eq!(run(body, 8, 32, seed, true).unwrap()[..3], [256, 7, 7]);
    }
}

#[test]
fn a_sum_that_nothing_started() {
    let mutant = broken(BLOCK_SUM, "mov.u32 	%r51, 0;", "");
    for seed in 0..8 {
        let fault = run_sum(&mutant, seed).unwrap_err();
        assert_eq!(fault.kind, FaultKind::UndefinedRegister, "{fault}");
        assert!(fault.detail.contains("`%r51`"), "{fault}");
        assert!(fault.source_line.is_some_and(|(file, line)| file.ends_with(".cu") && line == 6));
    }
    let mut device = Device::new(&mutant);
    device.options.checks.registers = false;
    let (x, total) = (device.upload_words(&[1; 1000]), device.upload_words(&[0]));
    let params = Params::new().pointer(x).pointer(total).word(1000);
    device.launch("block_sum", [4, 1, 1], [128, 1, 1], 0, &params).unwrap();
}

#[test]
fn lanes_that_wrote_a_register_may_read_it() {
    // Odd lanes write %r4 on one way, %p1's other side on another; only who wrote reads.
    let odd =
        "and.b32 %r5, %r3, 1; setp.eq.u32 %p1, %r5, 1; mul.wide.u32 %rd4, %r3, 4; add.s64 %rd4, %rd3, %rd4;";
    let good = format!("{odd} @%p1 mov.u32 %r4, %r3; @%p1 st.global.u32 [%rd4], %r4;");
    assert_eq!(run(&good, 1, 32, 0, true).unwrap()[..4], [0, 1, 0, 3]);
    let fault =
        run(&format!("{odd} @%p1 mov.u32 %r4, %r3; st.global.u32 [%rd4], %r4;"), 1, 32, 0, true).unwrap_err();
    assert_eq!((fault.kind, fault.thread), (FaultKind::UndefinedRegister, [0, 0, 0]));
    let guard = format!("{odd} @%p3 st.global.u32 [%rd4], %r3;");
    let fault = run(&guard, 1, 32, 0, true).unwrap_err();
    assert!(fault.kind == FaultKind::UndefinedRegister && fault.detail.contains("%p3"), "{fault}");
    // A pair of which one half means nothing.
    let pair = format!("{odd} mov.b64 %rd5, {{%r3, %r8}}; cvt.u32.u64 %r6, %rd5; st.global.u32 [%rd4], %r6;");
    assert_eq!(run(&pair, 1, 32, 0, true).unwrap()[..3], [0, 1, 2]);
}
