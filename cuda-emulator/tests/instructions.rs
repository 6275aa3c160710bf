//! Instructions one by one, on random operands, against what Rust says they are.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(unreachable_pub, reason = "shared by test files")]
mod support;

use half::{bf16, f16};
use halfbyte_testing::Rng;
use support::{Device, Params};

/// Runs `code` on 32 lanes: `%a`, `%b`, `%c` are words of the inputs, `%wa`, `%wb` doubles made of `a` and `b`
/// (low) and `b` and `c`; `%d` and `%wd` are stored.
fn run(code: &str, inputs: &[[u32; 3]]) -> Vec<(u32, u64)> {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {{\n\
         .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %a, %b, %c, %d, %l, %t<8>; .reg .b64 %wa, %wb, %wd, %in, %out, %s<4>;\n\
         ld.param.u64 %in, [in]; ld.param.u64 %out, [out];\n\
         mov.u32 %l, %tid.x; mul.wide.u32 %wa, %l, 12; add.u64 %in, %in, %wa; mul.wide.u32 %wa, %l, 16;\n\
         add.u64 %out, %out, %wa; ld.global.u32 %a, [%in]; ld.global.u32 %b, [%in+4]; ld.global.u32 %c, [%in+8];\n\
         mov.b64 %wa, {{%a, %b}}; mov.b64 %wb, {{%b, %c}}; mov.u32 %d, 0; mov.u64 %wd, 0;\n\
         {code}\n\
         st.global.u32 [%out], %d; st.global.u64 [%out+8], %wd; ret; }}\n"
    );
    let device = Device::new(&ptx);
    let mut words: Vec<u32> = inputs.iter().flatten().copied().collect();
    words.resize(96, 0);
    let (input, output) = (device.upload_words(&words), device.upload_words(&[0; 128]));
    let params = Params::new().pointer(input).pointer(output);
    device.launch("k", [1; 3], [32, 1, 1], 0, &params).unwrap_or_else(|fault| panic!("{code}: {fault}"));
    let out = device.words(output, 128);
    (0..inputs.len())
        .map(|i| (out[4 * i], u64::from(out[4 * i + 2]) | u64::from(out[4 * i + 3]) << 32))
        .collect()
}

/// 32 triples of random words, among them extreme ones.
fn inputs(seed: u64) -> Vec<[u32; 3]> {
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let extremes = [
        0,
        1,
        31,
        32,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX,
        0x3f80_0000,
        0x7f80_0000,
        0x7fc0_0000,
        0x0000_0001,
    ];
    (0..32)
        .map(|_| {
            std::array::from_fn(|_| {
                let word = rng.word();
                match word % 4 {
                    0 => extremes[(word / 4) as usize % extremes.len()],
                    1 => rng.word() >> (word / 4 % 32),
                    _ => rng.word(),
                }
            })
        })
        .collect()
}

/// `%d` must be `f(a, b, c)`.
fn words(code: &str, f: impl Fn(u32, u32, u32) -> u32) {
    for seed in 0..4 {
        let inputs = inputs(seed);
        for (&[a, b, c], (d, _)) in inputs.iter().zip(run(code, &inputs)) {
            assert_eq!(
                d,
                f(a, b, c),
                "{code} of {a:#x}, {b:#x}, {c:#x}: got {d:#x}, expected {:#x}",
                f(a, b, c)
            );
        }
    }
}

/// `%wd` must be `f(wa, wb, c)`.
fn doubles(code: &str, f: impl Fn(u64, u64, u32) -> u64) {
    for seed in 0..4 {
        let inputs = inputs(seed);
        for (&[a, b, c], (_, d)) in inputs.iter().zip(run(code, &inputs)) {
            let (wa, wb) = (u64::from(a) | u64::from(b) << 32, u64::from(b) | u64::from(c) << 32);
            assert_eq!(d, f(wa, wb, c), "{code} of {wa:#x}, {wb:#x}, {c:#x}");
        }
    }
}

/// `%d` must be the float `f(a, b, c)`, any NaN for a NaN.
fn floats(code: &str, f: impl Fn(f32, f32, f32) -> f32) {
    for seed in 0..4 {
        let inputs = inputs(seed);
        for (&[a, b, c], (d, _)) in inputs.iter().zip(run(code, &inputs)) {
            let expected = f(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            let same = d == expected.to_bits() || expected.is_nan() && d == 0x7fff_ffff;
            assert!(same, "{code} of {a:#x}, {b:#x}, {c:#x}: {d:#x}, expected {:#x}", expected.to_bits());
        }
    }
}

/// The lesser of two numbers; a negative zero is less than a positive one.
fn least(a: f32, b: f32) -> f32 {
    if a == 0.0 && b == 0.0 && (a.is_sign_negative() || b.is_sign_negative()) { -0.0 } else { a.min(b) }
}

#[test]
fn integer_arithmetic_of_32_bits() {
    words("add.s32 %d, %a, %b;", |a, b, _| a.wrapping_add(b));
    words("add.sat.s32 %d, %a, %b;", |a, b, _| (a as i32).saturating_add(b as i32) as u32);
    words("sub.u32 %d, %a, %b;", |a, b, _| a.wrapping_sub(b));
    words("mul.lo.s32 %d, %a, %b;", |a, b, _| a.wrapping_mul(b));
    words("mul.hi.s32 %d, %a, %b;", |a, b, _| ((a as i32 as i64 * b as i32 as i64) >> 32) as u32);
    words("mul.hi.u32 %d, %a, %b;", |a, b, _| ((a as u64 * b as u64) >> 32) as u32);
    words("mad.lo.s32 %d, %a, %b, %c;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    words("div.s32 %d, %a, %b;", |a, b, _| match b {
        0 => u32::MAX,
        b => (a as i32).wrapping_div(b as i32) as u32,
    });
    words("rem.u32 %d, %a, %b;", |a, b, _| a.checked_rem(b).unwrap_or(a));
    words("abs.s32 %d, %a;", |a, _, _| (a as i32).wrapping_abs() as u32);
    words("neg.s32 %d, %a;", |a, _, _| a.wrapping_neg());
    words("min.s32 %d, %a, %b;", |a, b, _| (a as i32).min(b as i32) as u32);
    words("max.u32 %d, %a, %b;", |a, b, _| a.max(b));
    words("sad.s32 %d, %a, %b, %c;", |a, b, c| (a as i32).abs_diff(b as i32).wrapping_add(c));
    words("dp4a.u32.s32 %d, %a, %b, %c;", |a, b, c| {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes().map(|x| x as i8));
        (0..4).fold(c, |sum, i| sum.wrapping_add((i32::from(a[i]) * i32::from(b[i])) as u32))
    });
    words("dp2a.hi.s32.u32 %d, %a, %b, %c;", |a, b, c| {
        let (a, b) = ([a as i16, (a >> 16) as i16], b.to_le_bytes());
        (0..2).fold(c, |sum, i| sum.wrapping_add((i32::from(a[i]) * i32::from(b[2 + i])) as u32))
    });
    words("set.lt.u32.s32 %d, %a, %b;", |a, b, _| if (a as i32) < b as i32 { u32::MAX } else { 0 });
    words("slct.u32.s32 %d, %a, %b, %c;", |a, b, c| if c as i32 >= 0 { a } else { b });
}

#[test]
fn integer_arithmetic_of_16_and_64_bits() {
    words("cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; mul.wide.s16 %d, %h1, %h2;", |a, b, _| {
        (i32::from(a as i16) * i32::from(b as i16)) as u32
    });
    words(
        "cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; add.s16 %h3, %h1, %h2; cvt.u32.u16 %d, %h3;",
        |a, b, _| (a.wrapping_add(b)) & 0xffff,
    );
    words("cvt.u16.u32 %h1, %a; shr.s16 %h2, %h1, %b; cvt.s32.s16 %d, %h2;", |a, b, _| {
        i32::from(a as i16 >> b.min(15)) as u32
    });
    doubles("mul.wide.s32 %wd, %a, %b;", |a, _, _| {
        (i64::from(a as i32) * i64::from((a >> 32) as i32)) as u64
    });
    doubles("mad.wide.u32 %wd, %a, %b, %wb;", |a, b, _| ((a & 0xffff_ffff) * (a >> 32)).wrapping_add(b));
    doubles("mul.hi.u64 %wd, %wa, %wb;", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64);
    doubles("mul.hi.s64 %wd, %wa, %wb;", |a, b, _| {
        ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
    });
    doubles("div.u64 %wd, %wa, %wb;", |a, b, _| a.checked_div(b).unwrap_or(u64::MAX));
    doubles("max.s64 %wd, %wa, %wb;", |a, b, _| (a as i64).max(b as i64) as u64);
    // Chains of carries make 64 bits of 32 and 32.
    doubles("add.cc.u32 %t1, %a, %b; addc.u32 %t2, %b, %c; mov.b64 %wd, {%t1, %t2};", |a, b, _| {
        a.wrapping_add(b)
    });
    doubles("sub.cc.u32 %t1, %a, %b; subc.u32 %t2, %b, %c; mov.b64 %wd, {%t1, %t2};", |a, b, _| {
        a.wrapping_sub(b)
    });
    doubles(
        "mul.lo.u32 %t1, %a, %b; mul.hi.u32 %t2, %a, %b; mad.lo.cc.u32 %t3, %a, %b, %c; madc.hi.u32 %t4, %a, %b, 0; mov.b64 %wd, {%t3, %t4};",
        |a, _, c| ((a & 0xffff_ffff) * (a >> 32)).wrapping_add(u64::from(c)),
    );
}

#[test]
fn bits() {
    words("and.b32 %d, %a, %b;", |a, b, _| a & b);
    words("not.b32 %d, %a;", |a, _, _| !a);
    words("lop3.b32 %d, %a, %b, %c, 0x96;", |a, b, c| a ^ b ^ c);
    words("lop3.b32 %d, %a, %b, %c, 0xe2;", |a, b, c| {
        (0..32).fold(0, |d, i| {
            let entry = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1;
            d | (0xe2 >> entry & 1) << i
        })
    });
    words("shl.b32 %d, %a, %b;", |a, b, _| a.checked_shl(b).unwrap_or(0));
    words("shr.u32 %d, %a, %b;", |a, b, _| a.checked_shr(b).unwrap_or(0));
    words("shr.s32 %d, %a, %b;", |a, b, _| (a as i32 >> b.min(31)) as u32);
    words("shf.l.wrap.b32 %d, %a, %b, %c;", |a, b, c| {
        ((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32) as u32
    });
    words("shf.r.clamp.b32 %d, %a, %b, %c;", |a, b, c| {
        ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32
    });
    words("popc.b32 %d, %a;", |a, _, _| a.count_ones());
    words("clz.b32 %d, %a;", |a, _, _| a.leading_zeros());
    words("brev.b32 %d, %a;", |a, _, _| a.reverse_bits());
    words("bfind.u32 %d, %a;", |a, _, _| a.checked_ilog2().unwrap_or(u32::MAX));
    words("bfind.s32 %d, %a;", |a, _, _| {
        let a = if (a as i32) < 0 { !a } else { a };
        a.checked_ilog2().unwrap_or(u32::MAX)
    });
    // The definitions of the two field instructions, bit by bit.
    words("bfe.s32 %d, %a, %b, %c;", |a, b, c| {
        let (at, n) = (b & 0xff, c & 0xff);
        let sign = if n == 0 { 0 } else { a >> (at + n - 1).min(31) & 1 };
        (0..32).fold(0, |d, i| d | (if i < n && at + i <= 31 { a >> (at + i) & 1 } else { sign }) << i)
    });
    words("bfi.b32 %d, %a, %b, %c, 5;", |a, b, c| {
        let at = c & 0xff;
        (0..32).fold(0, |d, i| d | (if i >= at && i < at + 5 { a >> (i - at) & 1 } else { b >> i & 1 }) << i)
    });
    words("prmt.b32 %d, %a, %b, %c;", |a, b, c| {
        let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
        u32::from_le_bytes(std::array::from_fn(|i| {
            let nibble = c >> (4 * i) & 15;
            let byte = bytes[nibble as usize & 7];
            if nibble & 8 == 0 {
                byte
            } else if byte & 0x80 == 0 {
                0
            } else {
                0xff
            }
        }))
    });
    words("prmt.b32 %d, %a, %b, 0x5410U;", |a, b, _| a & 0xffff | b << 16);
    words("mov.b32 {%h1, %h2}, %a; mov.b32 %d, {%h2, %h1};", |a, _, _| a.rotate_left(16));
    doubles("shl.b64 %wd, %wa, %c;", |a, _, c| a.checked_shl(c).unwrap_or(0));
    doubles("bfe.u64 %wd, %wa, 60, 12;", |a, _, _| a >> 60);
}

#[test]
fn predicates() {
    words(
        "setp.lt.s32 %p1, %a, %b; selp.u32 %d, 7, 9, %p1;",
        |a, b, _| if (a as i32) < b as i32 { 7 } else { 9 },
    );
    words(
        "setp.hi.u32 %p1|%p2, %a, %b; selp.u32 %t1, 1, 0, %p1; selp.u32 %t2, 2, 0, %p2; or.b32 %d, %t1, %t2;",
        |a, b, _| {
            if a > b { 1 } else { 2 }
        },
    );
    words(
        "setp.ne.u32 %p3, %c, 0; setp.lt.and.u32 %p1|%p2, %a, %b, !%p3; selp.u32 %t1, 1, 0, %p1; selp.u32 %t2, 2, 0, %p2; or.b32 %d, %t1, %t2;",
        |a, b, c| match (c == 0, a < b) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        },
    );
    words("setp.geu.f32 %p1, %a, %b; selp.u32 %d, 1, 0, %p1;", |a, b, _| {
        let (a, b) = (f32::from_bits(a), f32::from_bits(b));
        u32::from(a.is_nan() || b.is_nan() || a >= b)
    });
    words("setp.ne.f32 %p1, %a, %b; selp.u32 %d, 1, 0, %p1;", |a, b, _| {
        let (a, b) = (f32::from_bits(a), f32::from_bits(b));
        u32::from(a.partial_cmp(&b).is_some_and(|order| order.is_ne()))
    });
    words(
        "setp.eq.u32 %p1, %a, %b; mov.u32 %d, 1; @%p1 mov.u32 %d, 2; @!%p1 add.u32 %d, %d, 4;",
        |a, b, _| {
            if a == b { 2 } else { 5 }
        },
    );
    words("mov.u32 %d, %lanemask_lt; popc.b32 %d, %d; sub.u32 %d, %d, %laneid;", |_, _, _| 0);
}

#[test]
fn single_precision() {
    floats("add.f32 %d, %a, %b;", |a, b, _| a + b);
    floats("mul.rn.f32 %d, %a, %b;", |a, b, _| a * b);
    floats("fma.rn.f32 %d, %a, %b, %c;", |a, b, c| a.mul_add(b, c));
    floats("div.rn.f32 %d, %a, %b;", |a, b, _| a / b);
    floats("sqrt.rn.f32 %d, %a;", |a, _, _| a.sqrt());
    floats("rcp.rn.f32 %d, %a;", |a, _, _| 1.0 / a);
    floats("neg.f32 %t1, %a; mul.f32 %d, %t1, 0f3F800000;", |a, _, _| -a);
    floats("min.f32 %d, %a, %b;", |a, b, _| least(a, b));
    floats(
        "max.NaN.f32 %d, %a, %b;",
        |a, b, _| if a.is_nan() || b.is_nan() { f32::NAN } else { -least(-a, -b) },
    );
    floats("add.sat.f32 %d, %a, %b;", |a, b, _| {
        let sum = a + b;
        if sum.is_nan() || sum <= 0.0 { 0.0 } else { sum.min(1.0) }
    });
    let flush = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    floats("mul.ftz.f32 %d, %a, %b;", |a, b, _| flush(flush(a) * flush(b)));
    // Towards zero: the largest magnitude that is not above the exact product, which f64 holds.
    floats("mul.rz.f32 %d, %a, %b;", |a, b, _| {
        let exact = f64::from(a) * f64::from(b);
        let near = exact as f32;
        if f64::from(near).abs() > exact.abs() { f32::from_bits(near.to_bits() - 1) } else { near }
    });
    floats("ex2.approx.ftz.f32 %d, 0f40400000;", |_, _, _| 8.0);
    floats("lg2.approx.f32 %d, 0f45000000;", |_, _, _| 11.0);
    floats("rsqrt.approx.f32 %d, 0f41800000;", |_, _, _| 0.25);
}

#[test]
fn halves() {
    let halves = |x: u32| [x as u16, (x >> 16) as u16];
    let join = |[low, high]: [u16; 2]| u32::from(low) | u32::from(high) << 16;
    let f16s = |x: u32| halves(x).map(f16::from_bits);
    let bf16s = |x: u32| halves(x).map(bf16::from_bits);
    let bits16 = |x: f16| if x.is_nan() { 0x7fff } else { x.to_bits() };
    let bits_b = |x: bf16| if x.is_nan() { 0x7fff } else { x.to_bits() };
    words("add.f16x2 %d, %a, %b;", |a, b, _| {
        join(std::array::from_fn(|i| bits16(f16::from_f32(f16s(a)[i].to_f32() + f16s(b)[i].to_f32()))))
    });
    words("mul.bf16x2 %d, %a, %b;", |a, b, _| {
        join(std::array::from_fn(|i| bits_b(bf16::from_f32(bf16s(a)[i].to_f32() * bf16s(b)[i].to_f32()))))
    });
    // An exact sum of an exact product, where f64 holds both.
    words("fma.rn.f16x2 %d, %a, %b, %c;", |a, b, c| {
        join(std::array::from_fn(|i| {
            let exact = f16s(a)[i].to_f64() * f16s(b)[i].to_f64() + f16s(c)[i].to_f64();
            let near = exact as f32;
            // To odd, so that rounding again is harmless.
            let odd = match f64::from(near) == exact || exact.is_nan() {
                true => near,
                false => {
                    f32::from_bits((near.to_bits() - u32::from(f64::from(near).abs() > exact.abs())) | 1)
                }
            };
            bits16(f16::from_f32(odd))
        }))
    });
    words("min.bf16x2 %d, %a, %b;", |a, b, _| {
        join(std::array::from_fn(|i| {
            bits_b(bf16::from_f32(least(bf16s(a)[i].to_f32(), bf16s(b)[i].to_f32())))
        }))
    });
    words("neg.bf16x2 %d, %a;", |a, _, _| a ^ 0x8000_8000);
}

#[test]
fn conversions_between_integers_and_floats() {
    words("cvt.rni.s32.f32 %d, %a;", |a, _, _| f32::from_bits(a).round_ties_even() as i32 as u32);
    words("cvt.rzi.u32.f32 %d, %a;", |a, _, _| f32::from_bits(a) as u32);
    words("cvt.rmi.s32.f32 %d, %a;", |a, _, _| f32::from_bits(a).floor() as i32 as u32);
    words("cvt.rzi.s8.f32 %d, %a;", |a, _, _| i32::from(f32::from_bits(a) as i8) as u32);
    floats("cvt.rn.f32.s32 %d, %a;", |a, _, _| a.to_bits() as i32 as f32);
    floats("cvt.rn.f32.u64 %d, %wa;", |a, b, _| {
        (u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32) as f32
    });
    words("cvt.rz.f32.u32 %d, %a;", |a, _, _| {
        let near = a as f32;
        if f64::from(near) > f64::from(a) { near.to_bits() - 1 } else { near.to_bits() }
    });
    words("cvt.s32.s8 %d, %a;", |a, _, _| i32::from(a as i8) as u32);
    words("cvt.sat.u8.s32 %d, %a;", |a, _, _| (a as i32).clamp(0, 255) as u32);
    words("cvt.u32.u64 %d, %wa;", |a, _, _| a);
    doubles("cvt.s64.s32 %wd, %a;", |a, _, _| i64::from(a as i32) as u64);
    doubles("cvt.s64.s16 %wd, %a;", |a, _, _| i64::from(a as i16) as u64);
    doubles("cvt.rzi.s64.f32 %wd, %a;", |a, _, _| match f32::from_bits(a as u32) {
        x if x.is_nan() => 1 << 63,
        x => x as i64 as u64,
    });
    doubles("cvt.f64.f32 %wd, 0f3FC00000;", |_, _, _| 1.5f64.to_bits());
    floats("cvt.f64.f32 %wd, %a; cvt.rn.f32.f64 %d, %wd;", |a, _, _| a);
}

#[test]
fn conversions_of_narrow_floats() {
    let bits16 = |x: f32| if x.is_nan() { 0x7fff } else { f16::from_f32(x).to_bits() };
    let bits_b = |x: f32| if x.is_nan() { 0x7fff } else { bf16::from_f32(x).to_bits() };
    // The first source is the high half.
    words("cvt.rn.f16x2.f32 %d, %a, %b;", |a, b, _| {
        u32::from(bits16(f32::from_bits(a))) << 16 | u32::from(bits16(f32::from_bits(b)))
    });
    words("cvt.rn.bf16x2.f32 %d, %a, %b;", |a, b, _| {
        u32::from(bits_b(f32::from_bits(a))) << 16 | u32::from(bits_b(f32::from_bits(b)))
    });
    words("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", |a, b, _| {
        let relu = |x: u32| if f32::from_bits(x) <= 0.0 { 0.0 } else { f32::from_bits(x) };
        u32::from(bits_b(relu(a))) << 16 | u32::from(bits_b(relu(b)))
    });
    floats("mov.b32 {%h1, %h2}, %a; cvt.f32.f16 %d, %h2;", |a, _, _| {
        f16::from_bits((a.to_bits() >> 16) as u16).to_f32()
    });
    floats("mov.b32 {%h1, %h2}, %a; cvt.f32.bf16 %d, %h1;", |a, _, _| f32::from_bits(a.to_bits() << 16));
    words("cvt.rna.tf32.f32 %d, %a; and.b32 %d, %d, 0x1fff;", |_, _, _| 0);
}

#[test]
fn directed_roundings_to_halves() {
    // The neighbour on each side, found among all finite numbers.
    let all = |widen: fn(u16) -> f32| -> Vec<(f32, u16)> {
        let mut list: Vec<(f32, u16)> =
            (0..=u16::MAX).map(|code| (widen(code), code)).filter(|(x, _)| !x.is_nan()).collect();
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        list
    };
    let f16s = all(|code| f16::from_bits(code).to_f32());
    let bf16s = all(|code| bf16::from_bits(code).to_f32());
    for (ty, list) in [("f16", &f16s), ("bf16", &bf16s)] {
        for (rounding, up) in [("rm", false), ("rp", true)] {
            words(
                &format!("mov.b32 %t1, %a; cvt.{rounding}.{ty}.f32 %h1, %t1; cvt.u32.u16 %d, %h1;"),
                |a, _, _| {
                    let x = f32::from_bits(a);
                    if x.is_nan() {
                        return 0x7fff;
                    }
                    let (at, found) = if up {
                        let at = list.partition_point(|(value, _)| *value < x);
                        (at, list.get(at))
                    } else {
                        let at = list.partition_point(|(value, _)| *value <= x);
                        (at, at.checked_sub(1).and_then(|at| list.get(at)))
                    };
                    let code = found.unwrap_or_else(|| panic!("nothing beside {x} at {at}")).1;
                    // Both zeros are neighbours of themselves alone.
                    if x == 0.0 || code & 0x7fff == 0 {
                        u32::from(x.is_sign_negative()) << 15
                    } else {
                        code.into()
                    }
                },
            );
        }
    }
}

#[test]
fn comparisons_as_values() {
    let widen = |x: u32, i: u32| f16::from_bits((x >> (16 * i)) as u16).to_f32();
    words("set.gt.u32.f16x2 %d, %a, %b;", |a, b, _| {
        (0..2).fold(0, |mask, i| mask | (u32::from(widen(a, i) > widen(b, i)) * (0xffff << (16 * i))))
    });
    words("set.leu.f16x2.f16x2 %d, %a, %b;", |a, b, _| {
        let one = |i| !matches!(widen(a, i).partial_cmp(&widen(b, i)), Some(std::cmp::Ordering::Greater));
        (0..2).fold(0, |mask, i| mask | (u32::from(one(i)) * (0x3c00 << (16 * i))))
    });
    words("set.neu.bf16x2.bf16x2 %d, %a, %b;", |a, b, _| {
        let value = |x: u32, i: u32| bf16::from_bits((x >> (16 * i)) as u16).to_f32();
        (0..2).fold(0, |mask, i| mask | (u32::from(value(a, i) != value(b, i)) * (0x3f80 << (16 * i))))
    });
    let halves = "cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b;";
    words(&format!("{halves} set.eq.f16.f16 %h3, %h1, %h2; cvt.u32.u16 %d, %h3;"), |a, b, _| {
        u32::from(widen(a, 0) == widen(b, 0)) * 0x3c00
    });
    words("set.ge.f32.s32 %d, %a, %b;", |a, b, _| if a as i32 >= b as i32 { 1f32.to_bits() } else { 0 });
}

#[test]
fn saturating_packs_and_byte_differences() {
    words("cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c;", |a, b, c| {
        let byte = |x: u32| u32::from((x as i32).clamp(-128, 127) as u8);
        c << 16 | byte(a) << 8 | byte(b)
    });
    words("cvt.pack.sat.u16.s32 %d, %a, %b;", |a, b, _| {
        let half = |x: u32| (x as i32).clamp(0, 0xffff) as u32;
        half(a) << 16 | half(b)
    });
    words("vabsdiff4.u32.u32.u32 %d, %a, %b, %c;", |a, b, _| {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        u32::from_le_bytes(std::array::from_fn(|i| a[i].abs_diff(b[i])))
    });
    words("vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;", |a, b, c| {
        let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
        (0..4).fold(c, |sum, i| sum.wrapping_add(u32::from(a[i].abs_diff(b[i]))))
    });
}

#[test]
fn hints_change_nothing() {
    words(
        "{.reg.b32 x, y; .reg.b64 q;
          griddepcontrol.wait; createpolicy.fractional.L2::evict_last.b64 q, 1.0;
          ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.u32 x, [%in], q;
          ld.global.L1::evict_last.L2::128B.u32 y, [%in+4];
          griddepcontrol.launch_dependents; prefetch.global.L2::evict_last [%in]; sub.u32 %d, x, y;}",
        |a, b, _| a.wrapping_sub(b),
    );
}

/// The values of E4M3 in order of their codes, from the format's definition: 4 exponent bits with bias 7, 3 fraction
/// bits, subnormals, no infinities, NaN only at 0x7f.
fn e4m3_table() -> Vec<f64> {
    (0..0x7f)
        .map(|code| match (code >> 3, f64::from(code & 7)) {
            (0, m) => m / 8.0 / 64.0,
            (e, m) => (1.0 + m / 8.0) * 2f64.powi(e - 7),
        })
        .collect()
}

#[test]
fn e4m3_is_the_nearest_of_its_table() {
    let table = e4m3_table();
    let nearest = |x: f32| -> u32 {
        if x.is_nan() {
            return 0x7f;
        }
        let magnitude = f64::from(x).abs();
        let best = (0..table.len())
            .min_by(|&i, &j| {
                let key = |i: usize| ((table[i] - magnitude).abs(), i % 2);
                key(i).partial_cmp(&key(j)).unwrap()
            })
            .unwrap();
        let best = if magnitude >= 448.0 { 0x7e } else { best as u32 };
        best | if x.is_sign_negative() { 0x80 } else { 0 }
    };
    let code = "cvt.rn.satfinite.e4m3x2.f32 %h1, %a, %b; cvt.u32.u16 %d, %h1;";
    words(code, |a, b, _| nearest(f32::from_bits(a)) << 8 | nearest(f32::from_bits(b)));
    // Values around the table's own, ties among them.
    let near: Vec<[u32; 3]> = (0..32)
        .map(|i| {
            let (x, y) = (table[3 * i + 5] as f32, table[3 * i + 6] as f32);
            [(-(x + y) / 2.0).to_bits(), (x * 1.01).to_bits(), 0]
        })
        .collect();
    for (&[a, b, _], (d, _)) in near.iter().zip(run(code, &near)) {
        assert_eq!(d, nearest(f32::from_bits(a)) << 8 | nearest(f32::from_bits(b)));
    }
    // And back: every code.
    for first in (0..256).step_by(32) {
        let codes: Vec<[u32; 3]> = (first..first + 32).map(|code| [code << 8, 0, 0]).collect();
        let code = "cvt.u16.u32 %h1, %a; cvt.rn.f16x2.e4m3x2 %d, %h1;";
        for (&[a, ..], (d, _)) in codes.iter().zip(run(code, &codes)) {
            let (sign, magnitude) = (a >> 15, (a >> 8 & 0x7f) as usize);
            let expected = match table.get(magnitude) {
                Some(&value) => f16::from_f64(if sign == 1 { -value } else { value }).to_bits(),
                None => 0x7fff,
            };
            assert_eq!(d, u32::from(expected) << 16, "code {:#x}", a >> 8);
        }
    }
}

#[test]
fn lanes_exchange_values() {
    let inputs: Vec<[u32; 3]> = (0..32).map(|lane| [1000 + lane, lane % 3, lane]).collect();
    let lanes = |code: &str, f: &dyn Fn(u32) -> u32| {
        for (lane, (d, _)) in (0..).zip(run(code, &inputs)) {
            assert_eq!(d, f(lane), "{code}, lane {lane}");
        }
    };
    lanes("shfl.sync.bfly.b32 %d, %a, 5, 31, -1;", &|lane| 1000 + (lane ^ 5));
    lanes("shfl.sync.up.b32 %d|%p1, %a, 3, 0, -1; @!%p1 add.u32 %d, %d, 100;", &|lane| {
        if lane >= 3 { 1000 + lane - 3 } else { 1100 + lane }
    });
    lanes("shfl.sync.down.b32 %d, %a, 4, 31, -1;", &|lane| 1000 + if lane < 28 { lane + 4 } else { lane });
    lanes("shfl.sync.idx.b32 %d, %a, 9, 31, -1;", &|_| 1009);
    // Segments of eight: the clamp's upper byte keeps the upper bits of the lane.
    lanes("shfl.sync.idx.b32 %d, %a, 2, 0x181f, -1;", &|lane| 1000 + (lane & !7) + 2);
    lanes("shfl.sync.down.b32 %d, %a, 1, 0x181f, -1;", &|lane| {
        1000 + if lane % 8 < 7 { lane + 1 } else { lane }
    });
    let third = (0..32).filter(|lane| lane % 3 == 0).fold(0, |mask, lane| mask | 1u32 << lane);
    lanes("setp.eq.u32 %p1, %b, 0; vote.sync.ballot.b32 %d, %p1, -1;", &|_| third);
    lanes("setp.eq.u32 %p1, %b, 0; vote.sync.any.pred %p2, !%p1, -1; selp.u32 %d, 1, 0, %p2;", &|_| 1);
    lanes("setp.lt.u32 %p1, %b, 3; vote.sync.all.pred %p2, %p1, -1; selp.u32 %d, 1, 0, %p2;", &|_| 1);
    lanes("match.any.sync.b32 %d, %b, -1;", &|lane| {
        (0..32).filter(|other| other % 3 == lane % 3).fold(0, |mask, other| mask | 1 << other)
    });
    lanes("redux.sync.add.s32 %d, %a, -1;", &|_| 32 * 1000 + 496);
    lanes("redux.sync.max.u32 %d, %a, -1;", &|_| 1031);
    lanes("elect.sync %d|%p1, -1; @%p1 add.u32 %d, %d, 50;", &|lane| if lane == 0 { 50 } else { 0 });
    lanes("activemask.b32 %d;", &|_| u32::MAX);
    // Half of a warp among itself, while the others are elsewhere.
    lanes(
        "setp.lt.u32 %p1, %c, 16; @%p1 bra LOW; shfl.sync.bfly.b32 %d, %a, 1, 31, 0xffff0000; bra DONE; \
         LOW: shfl.sync.bfly.b32 %d, %a, 2, 31, 0xffff; DONE: bar.warp.sync -1;",
        &|lane| 1000 + if lane < 16 { lane ^ 2 } else { lane ^ 1 },
    );
    // The two sides of a branch meet at a shuffle that one of them reaches first.
    lanes(
        "mov.u32 %t1, %c; LOOP: setp.eq.u32 %p1, %t1, 0; @%p1 bra OUT; sub.u32 %t1, %t1, 1; bra LOOP; \
         OUT: shfl.sync.bfly.b32 %d, %a, 1, 31, -1;",
        &|lane| 1000 + (lane ^ 1),
    );
}

#[test]
fn jump_tables_and_calls() {
    let ptx = "
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 table[4] = {10, 20, 30, 40};
.const .align 4 .f32 half = 0f3F000000;
.global .align 8 .u64 place[2] = {0, generic(table)+8};
.func (.param .b32 result) twice(.param .b32 x) {
  .reg .b32 %r<3>; .reg .pred %p;
  ld.param.b32 %r1, [x];
  setp.gt.u32 %p, %r1, 100;
  @%p ret;
  add.u32 %r2, %r1, %r1;
  st.param.b32 [result], %r2;
  ret;
}
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<3>;
  .local .align 8 .b8 depot[16];
  mov.u32 %r1, %tid.x;
  and.b32 %r2, %r1, 3;
  mov.u64 %rd1, table;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd1, %rd1, %rd2;
  ld.global.u32 %r3, [%rd1];
  mov.u64 %rd3, depot;
  cvta.local.u64 %rd3, %rd3;
  st.u32 [%rd3+4], %r3;
  targets: .branchtargets A, B, C, D;
  brx.idx %r2, targets;
A: add.u32 %r3, %r3, 1; bra.uni E;
B: add.u32 %r3, %r3, 2; bra.uni E;
C: add.u32 %r3, %r3, 3; bra.uni E;
D: add.u32 %r3, %r3, 4;
E:
  { .param .b32 p; .param .b32 q;
    st.param.b32 [p], %r3;
    call.uni (q), twice, (p);
    ld.param.b32 %r4, [q]; }
  ld.local.u32 %r5, [depot+4];
  mul.lo.u32 %r5, %r5, 1000;
  add.u32 %r4, %r4, %r5;
  ld.const.f32 %f1, [half];
  cvt.rn.f32.u32 %f2, %r4;
  mul.f32 %f2, %f2, %f1;
  cvt.rzi.u32.f32 %r6, %f2;
  mov.u64 %rd6, place;
  ld.global.u64 %rd7, [%rd6+8];
  ld.u32 %r7, [%rd7];
  add.u32 %r6, %r6, %r7;
  ld.param.u64 %rd4, [out];
  mul.wide.u32 %rd5, %r1, 4;
  add.u64 %rd4, %rd4, %rd5;
  st.global.u32 [%rd4], %r6;
  ret;
}";
    let device = Device::new(ptx);
    let out = device.alloc(128);
    device.launch("k", [1; 3], [32, 1, 1], 0, &Params::new().pointer(out)).unwrap();
    for (lane, value) in (0u32..).zip(device.words(out, 32)) {
        let entry = 10 * (lane % 4 + 1);
        // place[1] is the address of table[2].
        assert_eq!(value, (2 * (entry + lane % 4 + 1) + 1000 * entry) / 2 + 30, "lane {lane}");
    }
    assert_eq!(device.module.variable("table").map(|(_, size)| size), Some(16));
}
