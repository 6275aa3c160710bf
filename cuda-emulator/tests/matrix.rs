//! `mma`, `ldmatrix`, `stmatrix`, `movmatrix` against plain products and the documented fragment layouts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "shared by test files")]
mod support;

use half::{bf16, f16};
use halfbyte_testing::Rng;
use support::{Device, Params};

/// Runs an `mma` whose fragments are `na`, `nb`, `nc` registers; each lane's registers lie one after another.
fn mma(opcode: &str, a: &[u32], b: &[u32], c: &[u32]) -> Vec<u32> {
    let [na, nb, nc] = [a, b, c].map(|x| x.len() / 32);
    let list = |name: &str, n: usize| (0..n).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ");
    let mut ptx = String::from(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {\n\
         .reg .b32 %a<8>, %b<8>, %c<8>, %d<8>, %l; .reg .b64 %p, %q;\nmov.u32 %l, %tid.x;\n",
    );
    for (name, n) in [("a", na), ("b", nb), ("c", nc)] {
        ptx += &format!("ld.param.u64 %p, [p{name}]; mul.wide.u32 %q, %l, {}; add.u64 %p, %p, %q;\n", 4 * n);
        for i in 0..n {
            ptx += &format!("ld.global.u32 %{name}{i}, [%p+{}];\n", 4 * i);
        }
    }
    ptx += &format!(
        "{opcode} {{{}}}, {{{}}}, {{{}}}, {{{}}};\n",
        list("d", nc),
        list("a", na),
        list("b", nb),
        list("c", nc)
    );
    ptx += &format!("ld.param.u64 %p, [pd]; mul.wide.u32 %q, %l, {}; add.u64 %p, %p, %q;\n", 4 * nc);
    for i in 0..nc {
        ptx += &format!("st.global.u32 [%p+{}], %d{i};\n", 4 * i);
    }
    ptx += "ret; }\n";
    let device = Device::new(&ptx);
    let pd = device.alloc(4 * 32 * nc);
    let params = Params::new()
        .pointer(device.upload_words(a))
        .pointer(device.upload_words(b))
        .pointer(device.upload_words(c))
        .pointer(pd);
    device.launch("k", [1; 3], [32, 1, 1], 0, &params).unwrap();
    device.words(pd, 32 * nc)
}

/// Packs row-major `A` (16 x k) and column-major `B` (k x 8) of `bits`-bit codes into fragments.
fn fragments(a: &[Vec<u32>], b: &[Vec<u32>], k: usize, bits: usize) -> (Vec<u32>, Vec<u32>) {
    let n = 32 / bits;
    let pack = |row: &[u32], at: usize| (0..n).fold(0, |word, i| word | row[at + i] << (bits * i));
    let (mut fa, mut fb) = (Vec::new(), Vec::new());
    for lane in 0..32 {
        let (g, q) = (lane / 4, lane % 4);
        for r in 0..k / (2 * n) {
            // a0: row g, first half; a1: row g + 8; a2, a3: the second half of the columns.
            fa.push(pack(&a[g + 8 * (r % 2)], n * q + 4 * n * (r / 2)));
        }
        for r in 0..k / (4 * n) {
            fb.push(pack(&b[g], n * q + 4 * n * r));
        }
    }
    (fa, fb)
}

fn check<T: PartialEq + std::fmt::Debug>(
    d: &[u32],
    value: impl Fn(u32) -> T,
    expected: impl Fn(usize, usize) -> T,
) {
    for lane in 0..32 {
        for r in 0..4 {
            let (row, column) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
            assert_eq!(value(d[4 * lane + r]), expected(row, column), "row {row}, column {column}");
        }
    }
}

#[test]
fn integer_products_are_exact() {
    for (types, bits, ks, signed) in [
        ("s8.s8", 8, [16, 32], [true, true]),
        ("u8.s8", 8, [16, 32], [false, true]),
        ("s4.u4", 4, [32, 64], [true, false]),
    ] {
        for k in ks {
            let mut rng = Rng(k as u64);
            let mask = (1u32 << bits) - 1;
            let mut codes = |rows: usize| -> Vec<Vec<u32>> {
                (0..rows).map(|_| (0..k).map(|_| rng.word() & mask).collect()).collect()
            };
            let (a, b) = (codes(16), codes(8));
            let value = |code: u32, signed: bool| {
                if signed && code >> (bits - 1) == 1 { code as i32 - (1 << bits) } else { code as i32 }
            };
            let (fa, fb) = fragments(&a, &b, k, bits);
            let c: Vec<u32> = (0..128).map(|i| 0x4b40_0000 + i).collect();
            let d = mma(&format!("mma.sync.aligned.m16n8k{k}.row.col.s32.{types}.s32"), &fa, &fb, &c);
            check(
                &d,
                |x| x as i32,
                |row, column| {
                    let (r, lane) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
                    let dot: i32 =
                        (0..k).map(|i| value(a[row][i], signed[0]) * value(b[column][i], signed[1])).sum();
                    c[4 * lane + r] as i32 + dot
                },
            );
        }
    }
}

#[test]
fn float_products_of_small_numbers_are_exact() {
    for (types, bits, ks) in [("bf16.bf16", 16, [8, 16]), ("f16.f16", 16, [8, 16]), ("tf32.tf32", 32, [4, 8])]
    {
        for k in ks {
            let mut rng = Rng(k as u64);
            let mut values = |rows: usize| -> Vec<Vec<f32>> {
                (0..rows).map(|_| (0..k).map(|_| rng.coarse()).collect()).collect()
            };
            let (a, b) = (values(16), values(8));
            let code = |x: &f32| match types {
                "bf16.bf16" => u32::from(bf16::from_f32(*x).to_bits()),
                "f16.f16" => u32::from(f16::from_f32(*x).to_bits()),
                _ => x.to_bits(),
            };
            let codes =
                |v: &[Vec<f32>]| v.iter().map(|row| row.iter().map(code).collect()).collect::<Vec<_>>();
            let (fa, fb) = fragments(&codes(&a), &codes(&b), k, bits);
            let c: Vec<u32> = (0..128).map(|i| (i as f32).to_bits()).collect();
            let d = mma(&format!("mma.sync.aligned.m16n8k{k}.row.col.f32.{types}.f32"), &fa, &fb, &c);
            check(&d, f32::from_bits, |row, column| {
                let (r, lane) = (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2);
                (4 * lane + r) as f32 + (0..k).map(|i| a[row][i] * b[column][i]).sum::<f32>()
            });
        }
    }
}

/// Shared memory holds 0, 1, 2, ... in its halves; the words that lanes got are written out.
#[test]
fn ldmatrix_gives_each_lane_two_neighbours() {
    for (count, transposed) in [(1, false), (2, false), (4, false), (4, true)] {
        let registers = (0..count).map(|i| format!("%d{i}")).collect::<Vec<_>>().join(", ");
        let trans = if transposed { ".trans" } else { "" };
        let mut ptx = String::from(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) {\n\
             .shared .align 16 .b8 s[512]; .reg .b32 %d<4>, %l, %t<4>; .reg .b64 %p, %q;\nmov.u32 %l, %tid.x;\n\
             mov.u32 %t0, s; shl.b32 %t1, %l, 4; add.u32 %t0, %t0, %t1; shl.b32 %t1, %l, 19; shl.b32 %t2, %l, 3; \
             or.b32 %t1, %t1, %t2; add.u32 %t1, %t1, 0x10000;\n",
        );
        for i in 0..4 {
            ptx += &format!("add.u32 %t2, %t1, {}; st.shared.u32 [%t0+{}], %t2;\n", 0x2_0002 * i, 4 * i);
        }
        // Rows in reverse order, so that the order is the addresses' own.
        ptx += &format!(
            "bar.warp.sync -1; mov.u32 %t0, s; sub.u32 %t1, 31, %l; shl.b32 %t1, %t1, 4; add.u32 %t0, %t0, %t1;\n\
             ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%t0];\n\
             ld.param.u64 %p, [out]; mul.wide.u32 %q, %l, {}; add.u64 %p, %p, %q;\n",
            4 * count
        );
        for i in 0..count {
            ptx += &format!("st.global.u32 [%p+{}], %d{i};\n", 4 * i);
        }
        ptx += "ret; }\n";
        let device = Device::new(&ptx);
        let out = device.alloc(128 * count);
        device.launch("k", [1; 3], [32, 1, 1], 0, &Params::new().pointer(out)).unwrap();
        let words = device.words(out, 32 * count);
        for lane in 0..32 {
            for matrix in 0..count {
                // Element (row, column) of a matrix is the number of its half in shared memory.
                let element = |row: usize, column: usize| ((31 - (8 * matrix + row)) * 8 + column) as u32;
                let (g, q) = (lane / 4, 2 * (lane % 4));
                let expected = if transposed {
                    element(q, g) | element(q + 1, g) << 16
                } else {
                    element(g, q) | element(g, q + 1) << 16
                };
                assert_eq!(
                    words[lane * count + matrix],
                    expected,
                    "x{count}{trans}, lane {lane}, matrix {matrix}"
                );
            }
        }
    }
}

#[test]
fn movmatrix_and_stmatrix_undo_what_they_should() {
    let ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {\n\
        .shared .align 16 .b8 s[512]; .reg .b32 %r<8>, %l; .reg .b64 %p<4>;\n\
        mov.u32 %l, %tid.x; mul.wide.u32 %p0, %l, 4; ld.param.u64 %p1, [in]; add.u64 %p1, %p1, %p0; ld.param.u64 %p2, [out]; add.u64 %p2, %p2, %p0;\n\
        ld.global.u32 %r0, [%p1];\n\
        movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;\n\
        st.global.u32 [%p2], %r1;\n\
        mov.u32 %r2, s; and.b32 %r3, %l, 7; shl.b32 %r3, %r3, 4; add.u32 %r2, %r2, %r3;\n\
        stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r2], {%r1};\n\
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r2];\n\
        st.global.u32 [%p2+128], %r4; ret; }\n";
    let device = Device::new(ptx);
    let mut rng = Rng(3);
    let matrix: Vec<u32> = (0..32).map(|_| rng.word()).collect();
    let out = device.alloc(256);
    let params = Params::new().pointer(device.upload_words(&matrix)).pointer(out);
    device.launch("k", [1; 3], [32, 1, 1], 0, &params).unwrap();
    let words = device.words(out, 64);
    let element = |words: &[u32], row: usize, column: usize| {
        words[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff
    };
    for row in 0..8 {
        for column in 0..8 {
            assert_eq!(element(&words[..32], row, column), element(&matrix, column, row));
        }
    }
    assert_eq!(words[32..], matrix);
}
