//! What is refused, and that nothing makes the parser panic.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "shared by test files")]
mod support;

use halfbyte_cuda_emulator::Module;
use halfbyte_testing::Rng;

const TILE: &str = include_str!("ptx/tile_bf16.ptx");

fn refusal(body: &str) -> (u32, String) {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n.reg .b32 %r<4>;\n{body}\nret;\n}}\n"
    );
    let error = Module::parse(&ptx).unwrap_err();
    (error.line, error.message)
}

#[test]
fn what_is_not_known_is_named_with_its_line() {
    for (body, part) in [
        ("frobnicate.u32 %r1, %r2;", "frobnicate.u32"),
        ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned"),
        ("add.frob.u32 %r1, %r2, %r3;", "frob"),
        ("mma.sync.aligned.m16n8k99.row.col.f32.bf16.bf16.f32 {%r1}, {%r1}, {%r1}, {%r1};", "m16n8k99"),
        ("add.u32 %r1, %r2, %r9;", "%r9"),
        ("add.u32 %r1, %r2;", "operands"),
        ("bra NOWHERE;", "NOWHERE"),
        (".frob 3;", ".frob"),
        ("cp.async.bulk.commit_group;", "cp.async.bulk"),
        // Operands of a form that nothing else has: coordinates within an address, descriptors.
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%r2, {%r3, %r3}], [%r1];",
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
        ),
        (
            "tcgen05.st.sync.aligned.16x64b.x1.b32 [%r1 + 1 + 2], {%r2};",
            "tcgen05.st.sync.aligned.16x64b.x1.b32",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1}, %r2, %r3, 1, 1, 1, 0, 0;",
            "wgmma.mma_async",
        ),
    ] {
        let (line, message) = refusal(body);
        assert_eq!(line, 6, "{body}: {message}");
        assert!(message.contains(part), "{body}: {message}");
    }
    let recursive = ".version 8.0\n.target sm_80\n.address_size 64\n.func f() { call f; ret; }\n.entry k() { call f; ret; }\n";
    assert!(Module::parse(recursive).unwrap_err().message.contains("recursive"));
}

#[test]
fn broken_texts_are_errors_not_panics() {
    let mut rng = Rng(5);
    let pieces: Vec<&str> =
        TILE.split_inclusive(|c: char| c.is_whitespace() || ",;[]{}".contains(c)).collect();
    for round in 0..400 {
        let mut text: Vec<&str> = pieces.clone();
        for _ in 0..1 + rng.word() % 3 {
            let at = rng.word() as usize % text.len();
            match rng.word() % 4 {
                0 => drop(text.remove(at)),
                1 => text.truncate(at),
                2 => text[at] = pieces[rng.word() as usize % pieces.len()],
                _ => text.insert(
                    at,
                    ["{", "}", "[", ";", "<", "0x", "@", "|", "%", ".reg "][rng.word() as usize % 10],
                ),
            }
        }
        // Whether it parses is not the point.
        let _ = Module::parse(&text.concat()).map(|module| module.kernels().len() + round);
    }
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..rng.word() % 200).map(|_| (rng.word() % 128) as u8).collect();
        let _ = Module::parse(&String::from_utf8_lossy(&bytes)).map(|module| module.kernels().len());
    }
}

#[test]
fn a_kernel_tells_its_shape() {
    let module = Module::parse(include_str!("ptx/w4a8_tile.ptx")).unwrap();
    let kernel = module.kernel("w4a8_tile").unwrap();
    assert_eq!(kernel.max_threads, Some([32, 1, 1]));
    assert_eq!((kernel.static_shared, kernel.local_bytes), (0, 0));
    let places: Vec<_> = kernel.parameters.iter().map(|p| (p.offset, p.size)).collect();
    assert_eq!(places, [(0, 8), (8, 8), (16, 8), (24, 8), (32, 4)]);
    assert_eq!(kernel.parameter_bytes, 36);
    let tile = Module::parse(TILE).unwrap();
    assert_eq!(tile.kernel("tile_bf16").unwrap().static_shared, 2048);
}
