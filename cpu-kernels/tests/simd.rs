//! Every primitive of every path that this machine can run against the scalar path, bit for bit.

use halfbyte_cpu_kernels::Isa;
use halfbyte_cpu_kernels::simd::{Kernel, LANES, Simd, exp};
use halfbyte_testing::Rng;

/// Runs every primitive on bytes from a seed and returns all the bits that came out.
struct Everything(u64);

impl Kernel for Everything {
    type Output = Vec<u32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<u32> {
        let mut rng = Rng(self.0);
        let mut out = Vec::new();
        let mut a = [0f32; LANES];
        let mut b = [0f32; LANES];
        for i in 0..LANES {
            a[i] = rng.f32() * 100.0;
            b[i] = rng.f32() * 3.0;
        }
        let bytes: Vec<u8> = (0..16 * 64).map(|_| (rng.bits() >> 33) as u8).collect();
        let nibbles: Vec<u8> = bytes.iter().map(|b| b & 15).collect();
        let floats = |out: &mut Vec<u32>, v: S::F32| out.extend(s.to_array(v).map(f32::to_bits));
        let ints = |out: &mut Vec<u32>, v: S::I32| {
            let mut words = [0u32; LANES];
            // SAFETY: `words` holds 16 u32.
            unsafe { s.store_u32(words.as_mut_ptr(), v) };
            out.extend(words);
        };
        let (va, vb) = (s.load_slice(&a), s.load_slice(&b));
        for v in [
            s.add(va, vb),
            s.sub(va, vb),
            s.mul(va, vb),
            s.div(va, vb),
            s.fma(va, vb, s.splat(0.3)),
            s.max(va, vb),
            s.min(va, vb),
            s.select_lt(va, vb, s.splat(1.0), va),
            s.max(s.splat(f32::NAN), va),
            s.max(va, s.splat(f32::NAN)),
            exp(s, va),
            exp(s, s.mul(va, vb)),
            s.from_i32(s.round_i32(va)),
            s.from_bits(s.to_bits(va)),
            s.load_partial(&a[..7]),
        ] {
            floats(&mut out, v);
        }
        out.extend([s.reduce_add(va).to_bits(), s.reduce_max(va).to_bits()]);
        let mut wide = [va; LANES];
        for (i, v) in wide.iter_mut().enumerate() {
            *v = s.fma(va, s.splat(i as f32 + 0.7), vb);
        }
        let sums = s.to_array(s.reduce_add_each(wide)).map(f32::to_bits);
        assert_eq!(sums, wide.map(|v| s.reduce_add(v).to_bits()));
        out.extend(sums);
        let mut halves = [0u16; LANES];
        // SAFETY: `halves` holds 16 u16.
        unsafe { s.store_f16(halves.as_mut_ptr(), s.mul(va, va)) };
        out.extend(halves.map(u32::from));
        // SAFETY: `halves` holds 16 u16.
        floats(&mut out, unsafe { s.load_f16(halves.as_ptr()) });
        // SAFETY: `halves` holds 16 u16.
        floats(&mut out, unsafe { s.load_bf16(halves.as_ptr()) });
        let p = bytes.as_ptr();
        // SAFETY: 16 rows of 64 bytes.
        let rows = unsafe { s.load_rows(p, 64) };
        for v in rows {
            ints(&mut out, v);
        }
        // SAFETY: 64 bytes are readable.
        let words = unsafe { s.load_u32(p.cast()) };
        // SAFETY: 16 bytes are readable.
        let (unsigned, signed) = (unsafe { s.load_u8(p) }, unsafe { s.load_i8(p.cast()) });
        for v in [
            unsigned,
            signed,
            s.add_i32(words, rows[1]),
            s.max_i32(words, rows[1]),
            s.and(words, rows[1]),
            s.or(words, rows[1]),
            s.shl::<3>(words),
            s.shr::<5>(words),
        ] {
            ints(&mut out, v);
        }
        out.push(s.reduce_add_i32(words).cast_unsigned());
        out.push(s.reduce_max_i32(words).cast_unsigned());
        // SAFETY: `halves` holds 16 u16.
        unsafe { s.store_u16(halves.as_mut_ptr(), words) };
        out.extend(halves.map(u32::from));
        let mut narrow = [0i8; LANES];
        // SAFETY: `narrow` holds 16 bytes.
        unsafe { s.store_i8(narrow.as_mut_ptr(), words) };
        out.extend(narrow.map(|b| u32::from(b.cast_unsigned())));
        // A whole group against activations that reach both ends of the allowed range.
        let x: Vec<i32> = (0..8)
            .map(|_| {
                let quad = [0; 4].map(|_: u8| ((rng.bits() >> 20) % 255) as i32 - 127).map(|v| v as i8);
                i32::from_le_bytes(quad.map(i8::cast_unsigned))
            })
            .collect();
        let extreme = [i32::from_le_bytes([127; 4]), i32::from_le_bytes([129; 4])];
        for quads in [x.clone(), vec![extreme[0]; 8], vec![extreme[1]; 8]] {
            let sum: i32 = quads.iter().flat_map(|q| q.to_le_bytes()).map(|b| i32::from(b as i8)).sum();
            for codes in [nibbles.clone(), vec![15; 64]] {
                let mut acc = s.dot4_start(-8 * sum);
                // SAFETY: 64 bytes are readable.
                let codes = unsafe { s.load_u32(codes.as_ptr().cast()) };
                for &q in &quads {
                    acc = s.dot4(acc, codes, q);
                }
                ints(&mut out, s.dot4_finish(acc, -8 * sum));
            }
            for codes in [bytes[..64].to_vec(), vec![0x80; 64], vec![0x7f; 64], vec![0xff; 64]] {
                let mut acc = s.splat_i32(S::DOT8_START * sum);
                // SAFETY: 64 bytes are readable.
                let codes = s.prepare8(unsafe { s.load_u32(codes.as_ptr().cast()) });
                for &q in &quads {
                    acc = s.dot8(acc, codes, q);
                }
                ints(&mut out, acc);
            }
        }
        out
    }
}

#[test]
fn every_path_gives_the_scalar_bits() {
    let seed = 0x5eed;
    println!("seed {seed:#x}");
    for round in 0..200 {
        let expected = Isa::scalar().dispatch(Everything(seed + round));
        for isa in Isa::available() {
            let got = isa.dispatch(Everything(seed + round));
            let at = got.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(at, None, "{isa} differs from scalar in round {round}");
            assert_eq!(got.len(), expected.len());
        }
    }
}

/// `exp` of one value, by lane 0.
struct Exp(f32);

impl Kernel for Exp {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        s.to_array(exp(s, s.splat(self.0)))[0]
    }
}

#[test]
fn exp_is_within_two_ulp_and_exact_at_the_ends() {
    for isa in Isa::available() {
        for i in -8730..8870 {
            let x = i as f32 * 0.01;
            let (got, want) = (isa.dispatch(Exp(x)), f64::from(x).exp());
            let ulp = f64::from((want as f32).next_up() - want as f32);
            assert!((f64::from(got) - want).abs() <= 2.0 * ulp, "{isa}: exp({x}) = {got}, want {want}");
        }
        assert_eq!(isa.dispatch(Exp(0.0)), 1.0);
        assert_eq!(isa.dispatch(Exp(f32::NEG_INFINITY)).to_bits(), 0);
        assert_eq!(isa.dispatch(Exp(-100.0)).to_bits(), 0);
        assert!(isa.dispatch(Exp(f32::NAN)).is_nan());
        assert!(isa.dispatch(Exp(f32::from_bits(0xffff_ffff))).is_nan());
        assert!(isa.dispatch(Exp(f32::INFINITY)) > 3e38);
    }
}
