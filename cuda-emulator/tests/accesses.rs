//! Loads, stores, atomic operations, asynchronous copies and barriers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "shared by test files")]
mod support;

use halfbyte_cuda_emulator::{Fault, FaultKind};
use support::{Device, Params};

/// A kernel with parameters `in` and `out`, loaded to `%in` and `%out`, and the thread number in `%t`.
fn kernel(code: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.const .align 4 .u32 constant = 5;\n\
         .visible .entry k(.param .u64 in, .param .u64 out) {{\n\
         .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %t, %r<16>; .reg .b64 %in, %out, %d<8>; .reg .f32 %f<4>;\n\
         .shared .align 16 .b8 s[1024];\n\
         ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;\n{code}\nret;\n}}\n"
    )
}

/// Runs it over `threads` with `input`, and gives `words` words of output that began as zeros.
fn run(code: &str, threads: u32, input: &[u32], words: usize) -> Result<Vec<u32>, Box<Fault>> {
    let device = Device::new(&kernel(code));
    let (input, output) = (device.upload_words(input), device.upload_words(&vec![0; words]));
    let params = Params::new().pointer(input).pointer(output);
    device.launch("k", [1; 3], [threads, 1, 1], 0, &params)?;
    Ok(device.words(output, words))
}

fn fault(code: &str, threads: u32) -> FaultKind {
    run(code, threads, &[1; 64], 64).unwrap_err().kind
}

#[test]
fn vectors_and_widths() {
    let input = [0x8081_8283, 0x1122_3344, 0x5566_7788, 0x99aa_bbcc];
    let code = "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in]; st.global.v2.u32 [%out], {%r3, %r0};\n\
         ld.global.nc.L1::no_allocate.v2.u16 {%h0, %h1}, [%in+4]; st.global.u16 [%out+8], %h1; st.global.u16 [%out+10], %h0;\n\
         ld.global.s8 %r4, [%in]; st.global.u32 [%out+12], %r4; ld.global.s16 %r5, [%in+2]; st.global.u32 [%out+16], %r5;\n\
         ld.global.u8 %r6, [%in+1]; st.global.u8 [%out+20], %r6; ld.volatile.global.u64 %d0, [%in+8]; st.global.u64 [%out+24], %d0;\n\
         mov.u32 %r7, s; st.shared.v4.u32 [%r7+16], {%r0, %r1, %r2, %r3}; ld.shared.u8 %r8, [s+21]; st.global.u32 [%out+32], %r8;\n\
         ld.const.u32 %r9, [constant]; st.global.u32 [%out+36], %r9;";
    let expected = [
        0x99aa_bbcc,
        0x8081_8283,
        0x3344_1122,
        0xffff_ff83,
        0xffff_8081,
        0x82,
        0x5566_7788,
        0x99aa_bbcc,
        0x33,
        5,
    ];
    assert_eq!(run(code, 1, &input, 10).unwrap(), expected);
}

#[test]
fn atomic_operations_take_turns() {
    // 64 threads on one word each; the operand is the thread number plus 1.
    for (operation, start, expected) in [
        ("add.u32", 7, 7 + 64 * 65 / 2),
        ("min.s32", 100, 1),
        ("max.u32", 0, 64),
        ("or.b32", 0, 127),
        ("xor.b32", 0, (1..=64).fold(0, |x, i| x ^ i)),
        ("add.f32", 0, 2080f32.to_bits()),
    ] {
        let value = if operation.ends_with("f32") { "cvt.rn.f32.u32 %f0, %r0;" } else { "mov.b32 %f0, %r0;" };
        let register = if operation.ends_with("f32") { "%f0" } else { "%r0" };
        let global = format!(
            "add.u32 %r0, %t, 1; {value} red.global.{operation} [%in], {register}; bar.sync 0; ld.global.u32 %r1, [%in]; st.global.u32 [%out], %r1;"
        );
        assert_eq!(run(&global, 64, &[start], 1).unwrap(), [expected], "global {operation}");
        let shared = format!(
            "setp.eq.u32 %p0, %t, 0; ld.global.u32 %r2, [%in]; @%p0 st.shared.u32 [s], %r2; bar.sync 0; add.u32 %r0, %t, 1; {value}\n\
             atom.shared.{operation} %r3, [s], {register}; bar.sync 0; ld.shared.u32 %r1, [s]; st.global.u32 [%out], %r1;"
        );
        assert_eq!(run(&shared, 64, &[start], 1).unwrap(), [expected], "shared {operation}");
    }
    // inc wraps at its bound; each thread gets another old value, and marks it.
    let code = "atom.global.inc.u32 %r0, [%in], 63; mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %d0, %out; add.u32 %r1, %r0, 1; st.global.u32 [%d0], %r1;";
    assert_eq!(run(code, 64, &[0], 64).unwrap(), (1..=64).collect::<Vec<_>>());
    // A lock-free maximum by compare-and-swap, in which losers try again.
    let code = "ld.global.u32 %r0, [%in]; AGAIN: max.u32 %r1, %r0, %t; mov.u32 %r2, %r0; atom.global.cas.b32 %r0, [%in], %r2, %r1;\n\
         setp.ne.u32 %p0, %r0, %r2; @%p0 bra AGAIN; bar.sync 0; ld.global.u32 %r3, [%in]; st.global.u32 [%out], %r3;";
    assert_eq!(run(code, 96, &[10], 1).unwrap(), [95]);
}

#[test]
fn asynchronous_copies_fill_with_zeros() {
    let copy = |size: u32, tail: &str, wait: &str| {
        format!(
            "mov.u32 %r0, 0xdddddddd; st.shared.v4.u32 [s], {{%r0, %r0, %r0, %r0}}; mov.u32 %r1, 5; setp.eq.u32 %p0, %t, 0;\n\
             cp.async.ca.shared.global [s], [%in], {size}{tail}; cp.async.commit_group; {wait}\n\
             ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, [s]; st.global.v4.u32 [%out], {{%r2, %r3, %r4, %r5}};"
        )
    };
    let input = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d];
    let wait = "cp.async.wait_group 0;";
    assert_eq!(run(&copy(16, "", wait), 1, &input, 4).unwrap(), input);
    assert_eq!(run(&copy(16, ", %r1", wait), 1, &input, 4).unwrap(), [input[0], 5, 0, 0]);
    assert_eq!(run(&copy(16, ", %p0", wait), 1, &input, 4).unwrap(), [0; 4]);
    assert_eq!(
        run(&copy(8, "", "cp.async.wait_all;"), 1, &input, 4).unwrap(),
        [input[0], input[1], 0xdddd_dddd, 0xdddd_dddd]
    );
    // One group may still be in flight: nothing has arrived.
    let early = run(&copy(4, "", "cp.async.wait_group 1;"), 1, &input, 4).unwrap_err();
    assert_eq!(early.kind, FaultKind::PendingAsyncCopy);
    // Five bytes are read, and no more need to be there.
    let short = run(&copy(16, ", %r1", wait), 1, &input[..2], 4).unwrap();
    assert_eq!(short, [input[0], 5, 0, 0]);
    assert_eq!(run(&copy(16, "", wait), 1, &input[..2], 4).unwrap_err().kind, FaultKind::OutOfBounds);
}

#[test]
fn barriers_reduce_and_pair_warps() {
    let code = "setp.lt.u32 %p0, %t, 40; barrier.sync.aligned 1; bar.red.popc.u32 %r0, 0, %p0; bar.red.and.pred %p1, 0, %p0; bar.red.or.pred %p2, 0, !%p0;\n\
         selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 1, 0, %p2; setp.eq.u32 %p3, %t, 70; @!%p3 ret; st.global.v2.u32 [%out], {%r0, %r1}; st.global.u32 [%out+8], %r2;";
    assert_eq!(run(code, 96, &[0], 3).unwrap(), [40, 0, 1]);
    // Warp 1 produces and only arrives; warp 0 waits for it.
    let code = "setp.ge.u32 %p0, %t, 32; @%p0 bra MAKE; bar.sync 3, 64; ld.shared.u32 %r0, [s]; st.global.u32 [%out], %r0; ret;\n\
         MAKE: mov.u32 %r1, 11; st.shared.u32 [s], %r1; bar.arrive 3, 64;";
    assert_eq!(run(code, 64, &[0], 1).unwrap(), [11]);
    // The other way round it is a race, however the warps are ordered.
    let code = "setp.ge.u32 %p0, %t, 32; @%p0 bra MAKE; bar.sync 3, 64; mov.u32 %r0, 12; st.shared.u32 [s], %r0; ret;\n\
         MAKE: bar.arrive 3, 64; mov.u32 %r1, 11; st.shared.u32 [s], %r1;";
    assert_eq!(fault(code, 64), FaultKind::SharedRace);
}

#[test]
fn what_is_forbidden_is_a_fault() {
    use FaultKind::{
        DivergentBarrier, IllegalInstruction, Misaligned, OutOfBounds, ReadOnly, SharedRace, Trap,
        Uninitialised,
    };
    for (code, kind) in [
        ("mov.u64 %d0, constant; st.global.u32 [%d0], %t;", ReadOnly),
        ("ld.global.v2.u32 {%r0, %r1}, [%in+4];", Misaligned),
        ("ld.shared.u32 %r0, [s+4];", Uninitialised),
        ("st.shared.u8 [s+1024], %t;", OutOfBounds),
        ("ld.global.u32 %r0, [%in-4];", OutOfBounds),
        ("ld.u32 %r0, [0];", OutOfBounds),
        ("trap;", Trap),
        ("bar.sync 16;", IllegalInstruction),
        ("st.shared.u32 [s], %t;", SharedRace),
        // Half of each warp leaves.
        ("and.b32 %r0, %t, 1; setp.eq.u32 %p0, %r0, 0; @%p0 ret; bar.sync 0;", DivergentBarrier),
        // The two halves wait at different barriers.
        (
            "and.b32 %r0, %t, 1; setp.eq.u32 %p0, %r0, 0; @%p0 bra A; bar.sync 0; ret; A: bar.sync 0;",
            DivergentBarrier,
        ),
    ] {
        assert_eq!(fault(code, 64), kind, "{code}");
    }
}

#[test]
fn lanes_that_left_may_be_forgiven() {
    let code =
        "and.b32 %r0, %t, 1; setp.eq.u32 %p0, %r0, 0; @%p0 ret; bar.sync 0; st.global.u32 [%out], %r0;";
    let mut device = Device::new(&kernel(code));
    device.options.checks.exited_lanes_pass_barriers = true;
    let out = device.alloc(4);
    let params = Params::new().pointer(out).pointer(out);
    device.launch("k", [1; 3], [64, 1, 1], 0, &params).unwrap();
    assert_eq!(device.words(out, 1), [1]);
}
