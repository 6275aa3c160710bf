//! Files that no honest writer makes: each kind is an error whose message says
//! what was expected and what was found, and no bytes at all make the reader panic.

use crate::support::{Raw, open_and_check, sample};
use halfbyte_gguf::{Error, Gguf, GgufWriter, TensorType};

/// Assertions on a file put together field by field.
trait Refused {
    fn error(self) -> Error;
    /// Asserts that the file is refused with this message.
    fn refused(self, message: &str);
}

impl Refused for Raw {
    fn error(self) -> Error {
        Gguf::from_vec(self.0).unwrap_err()
    }

    #[track_caller]
    fn refused(self, message: &str) {
        assert_eq!(self.error().to_string(), message);
    }
}

fn v3(n_tensors: u64, n_metadata: u64) -> Raw {
    Raw::header(3, n_tensors, n_metadata)
}

/// One metadata entry `k` of the given type, its value to follow.
fn entry(ty: u32) -> Raw {
    v3(0, 1).str("k").u32(ty)
}

/// A file with these tensors and `n` bytes of data.
fn tensors(list: &[(&str, &[u64], u32, u64)], n: usize) -> Raw {
    let raw = v3(list.len() as u64, 0);
    list.iter().fold(raw, |raw, &(name, dims, ty, offset)| raw.tensor(name, dims, ty, offset)).data(n)
}

#[test]
fn the_helpers_make_a_valid_file() {
    let raw = tensors(&[("a", &[32, 2], 2, 0), ("b", &[3], 0, 64)], 64 + 12);
    let gguf = Gguf::from_vec(raw.0).unwrap();
    assert_eq!((gguf.version(), gguf.alignment(), gguf.tensors().len()), (3, 32, 2));
    assert_eq!(gguf.bytes(gguf.tensor("a").unwrap()).len(), 36);
    assert_eq!(Gguf::from_vec(Raw::header(2, 0, 0).0).unwrap().version(), 2);
}

#[test]
fn not_gguf() {
    Raw(b"PK\x03\x04rest".to_vec())
        .refused(r#"not a GGUF file: expected it to start with "GGUF", found "PK\x03\x04""#);
    Raw(b"GG".to_vec()).refused("header: the magic takes 4 bytes at offset 0, but the file has 2 left");
}

#[test]
fn versions() {
    Raw::header(1, 0, 0).refused("GGUF version 1: expected version 2 or 3");
    Raw::header(4, 0, 0).refused("GGUF version 4: expected version 2 or 3");
    Raw::header(0, 0, 0).refused("GGUF version 0: expected version 2 or 3");
    Raw::header(u32::MAX, 0, 0).refused("GGUF version 4294967295: expected version 2 or 3");
    Raw::header(3_u32.swap_bytes(), 0, 0).refused(
        "big-endian GGUF version 3: expected a little-endian file (convert it with gguf-convert-endian)",
    );
}

#[test]
fn counts_beyond_limit_or_file() {
    let huge = 1 << 60;
    v3(huge, 0).refused("header: tensor count is 1152921504606846976: expected at most 65536");
    v3(0, huge).refused("header: metadata count is 1152921504606846976: expected at most 65536");
    v3(u64::MAX, u64::MAX).refused("header: tensor count is 18446744073709551615: expected at most 65536");
    v3(65536, 0).refused("header: the tensor list takes 2097152 bytes at offset 24, but the file has 0 left");
    v3(0, 65536).refused("header: the metadata takes 851968 bytes at offset 24, but the file has 0 left");
}

#[test]
fn strings() {
    v3(0, 1)
        .u64(1 << 40)
        .bytes(&[0; 20])
        .refused("metadata entry 0: key length in bytes is 1099511627776: expected at most 65535");
    v3(0, 1)
        .u64(65535)
        .bytes(&[b'k'; 20])
        .refused("metadata entry 0: key takes 65535 bytes at offset 32, but the file has 20 left");
    v3(0, 1)
        .u64(3)
        .bytes(b"k\xff!\0\0\0\0\0\0\0\0")
        .refused("metadata entry 0: key is not UTF-8: invalid byte at offset 33");
    entry(8).u64(u64::MAX).refused(
        "metadata key \"k\": string length in bytes is 18446744073709551615: expected at most 16777216",
    );
    entry(8)
        .u64(2)
        .bytes(b"a\x80")
        .refused("metadata key \"k\": string is not UTF-8: invalid byte at offset 46");
    v3(1, 0)
        .u64(1025)
        .bytes(&[0; 2000])
        .refused("tensor entry 0: name length in bytes is 1025: expected at most 1024");
    v3(1, 0)
        .u64(2)
        .bytes(b"\xc3(")
        .bytes(&[0; 32])
        .refused("tensor entry 0: name is not UTF-8: invalid byte at offset 32");
}

#[test]
fn values() {
    entry(13).u64(0).refused("metadata key \"k\": unknown value type 13: expected 0 to 12");
    entry(u32::MAX).refused("metadata key \"k\": unknown value type 4294967295: expected 0 to 12");
    entry(7).bytes(&[2]).refused("metadata key \"k\": boolean stored as 2: expected 0 or 1");
    entry(10)
        .u32(0)
        .refused("metadata key \"k\": the value takes 8 bytes at offset 37, but the file has 4 left");
    v3(0, 2)
        .str("k")
        .u32(4)
        .u32(1)
        .str("k")
        .u32(4)
        .u32(1)
        .refused("metadata key \"k\" occurs twice: expected each key once");
}

#[test]
fn arrays() {
    entry(9)
        .u32(4)
        .u64(1 << 24)
        .refused("metadata key \"k\": the array takes 67108864 bytes at offset 49, but the file has 0 left");
    entry(9)
        .u32(0)
        .u64((1 << 24) + 1)
        .refused("metadata key \"k\": array length is 16777217: expected at most 16777216");
    entry(9)
        .u32(8)
        .u64(1 << 24)
        .refused("metadata key \"k\": the array takes 134217728 bytes at offset 49, but the file has 0 left");
    entry(9)
        .u32(8)
        .u64(2)
        .str("a")
        .u64(9)
        .refused("metadata key \"k\", element 1: string takes 9 bytes at offset 66, but the file has 0 left");
    entry(9)
        .u32(8)
        .u64(2)
        .str("a")
        .u64(1)
        .bytes(b"\xff")
        .refused("metadata key \"k\", element 1: string is not UTF-8: invalid byte at offset 66");
    entry(9)
        .u32(7)
        .u64(3)
        .bytes(&[0, 1, 3])
        .refused("metadata key \"k\", element 2: boolean stored as 3: expected 0 or 1");
    // Empty inner arrays would let a length of 2^24 cost no bytes.
    entry(9)
        .u32(9)
        .u64(1 << 24)
        .refused("metadata key \"k\": an array of arrays: expected an array of numbers, booleans or strings");
    // An unknown element type has no size: it must not be skipped over.
    entry(9).u32(99).u64(0).refused("metadata key \"k\": unknown value type 99: expected 0 to 12");
}

#[test]
fn alignment() {
    for got in [0, 3, 4, 33, 1 << 21, u32::MAX] {
        v3(0, 1)
            .str("general.alignment")
            .u32(4)
            .u32(got)
            .refused(&format!("general.alignment is {got}: expected a power of two from 8 to 1048576"));
    }
    v3(0, 1)
        .str("general.alignment")
        .u32(8)
        .str("32")
        .refused("metadata key \"general.alignment\" is a string: expected an integer from 0 to 4294967295");
    v3(0, 1).str("general.alignment").u32(11).u64(u64::MAX).refused(
        "metadata key \"general.alignment\" has the value -1: expected an integer from 0 to 4294967295",
    );
}

#[test]
fn dimensions() {
    tensors(&[("t", &[], 0, 0)], 64).refused("tensor \"t\" has 0 dimensions: expected 1 to 4");
    tensors(&[("t", &[1; 5], 0, 0)], 64).refused("tensor \"t\" has 5 dimensions: expected 1 to 4");
    v3(1, 0)
        .str("t")
        .u32(u32::MAX)
        .bytes(&[0; 64])
        .refused("tensor \"t\" has 4294967295 dimensions: expected 1 to 4");
    tensors(&[("t", &[4, 0, 2], 0, 0)], 64)
        .refused("tensor \"t\" has dimensions 4 x 0 x 2: expected every one to be at least 1");
    tensors(&[("t", &[48], 2, 0)], 64)
        .refused("tensor \"t\" of type Q4_0 has rows of 48: expected a multiple of 32");
    tensors(&[("t", &[128, 2], 14, 0)], 512)
        .refused("tensor \"t\" of type Q6_K has rows of 128: expected a multiple of 256");
}

#[test]
fn sizes_that_wrap() {
    // 2^64 elements: 0 after wrapping.
    tensors(&[("t", &[1 << 32, 1 << 32], 0, 0)], 64)
        .refused("tensor \"t\" with dimensions 4294967296 x 4294967296 and type F32: its size overflows");
    // 2^62 elements fit, their bytes do not.
    tensors(&[("t", &[1 << 62], 0, 0)], 64)
        .refused("tensor \"t\" with dimensions 4611686018427387904 and type F32: its size overflows");
    // Elements overflow, the bytes of a 2-bit type would not.
    tensors(&[("t", &[1 << 62, 4], 10, 0)], 64)
        .refused("tensor \"t\" with dimensions 4611686018427387904 x 4 and type Q2_K: its size overflows");
    // Offset plus size wraps to a small number.
    tensors(&[("t", &[16], 0, u64::MAX - 31)], 64).refused(
        "tensor \"t\" takes 64 bytes at offset 18446744073709551584 of the tensor data, which has 64 bytes",
    );
}

#[test]
fn tensor_types() {
    // A type that this crate does not know: the tensor is listed, by its number or its former name.
    for (id, name) in [(43, "id 43"), (4, "Q4_2"), (31, "Q4_0_4_4"), (u32::MAX, "id 4294967295")] {
        let gguf = Gguf::from_vec(tensors(&[("t", &[33, 2], id, 0), ("u", &[4], 0, 32)], 64).0).unwrap();
        let info = gguf.tensor("t").unwrap();
        assert_eq!((info.ty, &*info.ty.to_string()), (TensorType::Unknown(id), name));
        assert_eq!((info.n_elements(), info.n_bytes, gguf.bytes(info)), (66, 0, &[][..]));
        assert!(gguf.view::<f32>(info).is_err());
        assert_eq!(gguf.view::<f32>(gguf.tensor("u").unwrap()).unwrap().len(), 4);
        // Its bytes can't be copied, so it can't be written either.
        let error = GgufWriter::new(Vec::new(), gguf.metadata(), gguf.tensors()).unwrap_err();
        let message = format!("tensor \"t\" has type {name}: expected one that ggml's files have");
        assert_eq!(error.to_string(), message);
    }
    // Its dimensions and the place where it starts are checked.
    tensors(&[("t", &[1 << 40, 1 << 40], 43, 0)], 64).refused(
        "tensor \"t\" with dimensions 1099511627776 x 1099511627776 and type id 43: its size overflows",
    );
    tensors(&[("t", &[32], 43, 64)], 64)
        .refused("tensor \"t\" takes 1 bytes at offset 64 of the tensor data, which has 64 bytes");
    tensors(&[("t", &[32], 43, 0), ("u", &[4], 0, 0)], 64)
        .refused("tensor \"u\" starts at offset 0, inside \"t\": expected 1 or more");
    let gguf = Gguf::from_vec(tensors(&[("t", &[256], 17, 0)], 74).0).unwrap();
    let info = gguf.tensor("t").unwrap();
    assert_eq!((info.ty, gguf.bytes(info).len()), (TensorType::IQ2_XS, 74));
}

#[test]
fn placement() {
    tensors(&[("t", &[4], 0, 16)], 64)
        .refused("tensor \"t\" starts at offset 16: expected a multiple of the alignment 32");
    tensors(&[("t", &[16], 0, 32)], 95).refused(
        "tensor \"t\" takes 64 bytes at offset 32 of the tensor data, which has 63 bytes"
            .replace("63", "95")
            .as_str(),
    );
    tensors(&[("t", &[1], 0, 1 << 40)], 64)
        .refused("tensor \"t\" takes 4 bytes at offset 1099511627776 of the tensor data, which has 64 bytes");
    tensors(&[("a", &[16], 0, 0), ("b", &[16], 0, 32)], 128)
        .refused("tensor \"b\" starts at offset 32, inside \"a\": expected 64 or more");
    tensors(&[("b", &[16], 0, 32), ("a", &[64], 0, 0), ("c", &[1], 0, 256)], 512)
        .refused("tensor \"b\" starts at offset 32, inside \"a\": expected 256 or more");
    tensors(&[("a", &[1], 0, 0), ("b", &[1], 0, 32), ("a", &[1], 0, 64)], 128)
        .refused("tensor \"a\" occurs twice: expected each name once");
    // No tensor data at all, and no padding before it.
    v3(1, 0)
        .tensor("t", &[4], 0, 0)
        .refused("tensor \"t\" takes 16 bytes at offset 0 of the tensor data, which has 0 bytes");
}

#[test]
fn names_in_messages_are_escaped_and_short() {
    tensors(&[("\x1b[31mred\n", &[0], 0, 0)], 64)
        .refused(r#"tensor "\u{1b}[31mred\n" has dimensions 0: expected every one to be at least 1"#);
    let long = "n".repeat(1000);
    let message = tensors(&[(&long, &[0], 0, 0)], 64).error().to_string();
    assert!(message.len() < 200, "{message}");
}

#[test]
fn every_truncation_is_an_error() {
    let whole = sample();
    // The last tensor, 16 bytes, is followed by 16 bytes of padding.
    let needed = whole.len() - 16;
    for n in 0..whole.len() {
        assert_eq!(
            open_and_check(whole[..n].to_vec()).is_some(),
            n >= needed,
            "{n} of {} bytes",
            whole.len()
        );
    }
}

#[test]
fn no_damage_panics() {
    let whole = sample();
    let mut opened = 0;
    for at in 0..whole.len() {
        for byte in [0, 1, 2, 9, 0x1f, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            opened += usize::from(open_and_check(damaged).is_some());
        }
        for word in [0, 1, 1 << 31, 1 << 32, 1 << 60, 1 << 63, u64::MAX - 31, u64::MAX] {
            let mut damaged = whole.clone();
            let end = (at + 8).min(whole.len());
            damaged[at..end].copy_from_slice(&u64::to_le_bytes(word)[..end - at]);
            opened += usize::from(open_and_check(damaged).is_some());
        }
    }
    // Damage to the tensor data goes unseen, damage elsewhere does not.
    assert!(opened > 0 && opened < whole.len() * 16, "{opened}");
}

/// Steele, Lea and Flood's SplitMix64.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn no_random_damage_panics() {
    const SEED: u64 = 0x6767_7566;
    println!("seed {SEED}");
    let whole = sample();
    let mut state = SEED;
    for round in 0..20_000 {
        let mut damaged = whole.clone();
        for _ in 0..1 + round % 4 {
            let at = next_random(&mut state) as usize % damaged.len();
            damaged[at] ^= 1 << (next_random(&mut state) % 8);
        }
        open_and_check(damaged);
    }
}
