//! Imatrix files: those of other writers, our own read back, sums that add up, and files that no honest writer makes.

use std::num::NonZeroU32;

use halfbyte_gguf::imatrix::{Error, Format, Imatrix};
use halfbyte_gguf::{Gguf, GgufWriter, Metadata, TensorInfo, TensorType};
use halfbyte_testing::golden;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;

const FORMATS: [Format; 2] = [Format::Gguf, Format::Dat];

fn golden_path(name: &str) -> String {
    format!("{}/../goldens/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn f64s(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn with_chunk_size(n: u32) -> Imatrix {
    Imatrix::new(NonZeroU32::new(n).unwrap())
}

#[test]
fn reads_what_the_gguf_package_wrote() {
    let expected = golden("imatrix.json");
    let imatrix = Imatrix::open(golden_path("imatrix.gguf")).unwrap();
    assert_eq!(Value::from(imatrix.datasets()), expected["datasets"]);
    assert_eq!(Value::from(imatrix.chunk_count()), expected["chunk_count"]);
    assert_eq!(Value::from(imatrix.chunk_size().get()), expected["chunk_size"]);
    let names: Vec<&str> = imatrix.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["blk.0.attn_q.weight", "blk.0.ffn_down_exps.weight", "output.weight"]);
    for (name, entry) in imatrix.iter() {
        // As f32, which they are: the JSON reader is not exact in the last bit of an f64.
        let sums: Vec<f32> = f64s(&expected["sums"][name]).into_iter().map(|v| v as f32).collect();
        assert!(entry.sums().iter().copied().eq(sums.iter().map(|&v| f64::from(v))));
        assert_eq!(Value::from(entry.counts()), expected["counts"][name]);
        let means: Vec<f32> = f64s(&expected["means"][name]).into_iter().map(|v| v as f32).collect();
        assert_eq!(imatrix.importance(name, means.len()).unwrap(), Some(means));
    }
}

#[test]
fn reads_the_older_format_and_writes_the_same_bytes() {
    let expected = golden("imatrix.json");
    let bytes = std::fs::read(golden_path("imatrix.dat")).unwrap();
    let from_gguf = Imatrix::open(golden_path("imatrix.gguf")).unwrap();
    assert!(from_gguf.write(Vec::new(), Format::Dat).unwrap() == bytes);

    let imatrix = Imatrix::open(golden_path("imatrix.dat")).unwrap();
    assert_eq!(imatrix, Imatrix::from_bytes(bytes).unwrap());
    assert_eq!((imatrix.datasets(), imatrix.chunk_count()), (["größer.txt".to_owned()].as_slice(), 3));
    assert_eq!((imatrix.iter().len(), imatrix.chunk_size()), (3, Imatrix::DAT_CHUNK_SIZE));
    for (name, entry) in imatrix.iter() {
        assert_eq!(entry.counts(), [512 * 3]);
        let means = f64s(&expected["means"][name]);
        let got = imatrix.importance(name, means.len()).unwrap().unwrap();
        for (got, mean) in got.into_iter().zip(means) {
            // Rounded to f32 in the file and once more here.
            assert!((f64::from(got) - mean).abs() <= 1.2e-7 * mean, "{name}: {got} for {mean}");
        }
    }
}

/// One entry `w` of two values with a count of three chunks.
#[rustfmt::skip]
const DAT_BY_HAND: [u8; 36] = *b"\
\x01\0\0\0\
\x01\0\0\0w\x03\0\0\0\x02\0\0\0\0\0\xc0\x3f\0\0\xc0\x40\
\x07\0\0\0\
\x03\0\0\0a.t";

#[test]
fn a_dat_file_byte_by_byte() {
    let imatrix = Imatrix::from_bytes(DAT_BY_HAND.to_vec()).unwrap();
    assert_eq!(imatrix.importance("w", 2).unwrap(), Some(vec![0.5, 2.0]));
    assert_eq!((imatrix.datasets(), imatrix.chunk_count()), (["a.t".to_owned()].as_slice(), 7));

    let mut ours = with_chunk_size(1);
    ours.add("w", &[0.5, 1.0, -0.5, -1.0, 1.0, 2.0], 2).unwrap();
    ours.add_chunks(7).unwrap();
    ours.add_dataset("not kept");
    ours.add_dataset("a.t");
    assert_eq!(ours.write(Vec::new(), Format::Dat).unwrap(), DAT_BY_HAND);

    // Older files end after the values or after the number of chunks.
    let entries = Imatrix::from_bytes(DAT_BY_HAND[..25].to_vec()).unwrap();
    assert_eq!((entries.chunk_count(), entries.datasets().len()), (3, 0));
    let chunks = Imatrix::from_bytes(DAT_BY_HAND[..29].to_vec()).unwrap();
    assert_eq!((chunks.chunk_count(), chunks.datasets().len()), (7, 0));
    assert!(imatrix.iter().eq(entries.iter()) && imatrix.iter().eq(chunks.iter()));
}

#[test]
fn a_gguf_file_is_laid_out_as_llama_cpp_lays_it_out() {
    let imatrix = Imatrix::open(golden_path("imatrix.gguf")).unwrap();
    let [ours, theirs] = [
        Gguf::from_vec(imatrix.write(Vec::new(), Format::Gguf).unwrap()).unwrap(),
        Gguf::open(golden_path("imatrix.gguf")).unwrap(),
    ];
    assert!(ours.metadata().iter().eq(theirs.metadata().iter()));
    let theirs_read: Vec<&TensorInfo> =
        theirs.tensors().iter().filter(|t| !t.name.ends_with(".in_sum")).collect();
    assert_eq!(ours.tensors().len(), theirs_read.len());
    for (our, their) in ours.tensors().iter().zip(theirs_read) {
        assert_eq!((&our.name, our.ty, &our.dims), (&their.name, their.ty, &their.dims));
        assert_eq!(ours.bytes(our), theirs.bytes(their));
    }
}

#[test]
fn rows_add_up_in_any_portion() {
    let x: Vec<f32> = (0..60).map(|i| (i as f32 * 0.7).sin() * 10f32.powi(i % 7)).collect();
    let mut whole = with_chunk_size(4);
    whole.add("w", &x, 6).unwrap();
    let mut single = with_chunk_size(4);
    x.chunks(6).for_each(|row| single.add("w", row, 6).unwrap());
    single.add("w", &[], 6).unwrap();
    assert_eq!(whole, single);
    let expected: Vec<f64> =
        (0..6).map(|c| x.iter().skip(c).step_by(6).map(|&v| f64::from(v).powi(2)).sum()).collect();
    let entry = whole.get("w").unwrap();
    assert_eq!((entry.sums(), entry.counts()), (expected.as_slice(), [10].as_slice()));
    let means: Vec<f32> = expected.iter().map(|v| (v / 10.0) as f32).collect();
    assert_eq!(whole.importance("w", 6).unwrap(), Some(means));
}

#[test]
fn the_largest_activations_have_a_finite_importance() {
    let largest = f32::MAX.sqrt();
    let mut imatrix = with_chunk_size(1);
    imatrix.add("w", &[largest; 64], 1).unwrap();
    assert!(imatrix.importance("w", 1).unwrap().unwrap()[0].is_finite());
    // Their sum is no f32. The older format holds means.
    let error = imatrix.write(Vec::new(), Format::Gguf).unwrap_err();
    assert!(matches!(error, Error::Sum { index: 0, .. }), "{error}");
    assert!(matches!(imatrix.add("w", &[largest.next_up()], 1), Err(Error::Activation { .. })));
    imatrix.add("w", &[f32::from_bits(1)], 1).unwrap();
    assert_eq!(imatrix.get("w").unwrap().counts(), [65]);
}

#[test]
fn merging_adds() {
    let mut a = with_chunk_size(4);
    a.add("w", &[1.0, 2.0], 2).unwrap();
    a.add("only a", &[3.0], 1).unwrap();
    a.add_chunks(2).unwrap();
    a.add_dataset("a");
    let mut b = with_chunk_size(3);
    b.add("w", &[3.0, 0.0, 1.0, 1.0], 2).unwrap();
    b.add("only b", &[5.0], 1).unwrap();
    b.add_chunks(3).unwrap();
    b.add_dataset("b");
    let mut both = a.clone();
    both.merge(&b).unwrap();
    let entry = both.get("w").unwrap();
    assert_eq!((entry.sums(), entry.counts()), ([11.0, 5.0].as_slice(), [3].as_slice()));
    assert_eq!((both.get("only a"), both.get("only b")), (a.get("only a"), b.get("only b")));
    assert_eq!(both.datasets(), ["a", "b"]);
    // Two chunks of four tokens and nine tokens more.
    assert_eq!((both.chunk_count(), both.chunk_size().get()), (2 + 3, 4));

    // Nothing is added when anything does not fit.
    let mut wide = with_chunk_size(4);
    wide.add("another", &[1.0], 1).unwrap();
    wide.add("w", &[1.0; 3], 3).unwrap();
    let before = both.clone();
    let error = both.merge(&wide).unwrap_err();
    assert_eq!(error.to_string(), "\"w\": expected sums for 2 columns of 1 matrices, got 3 of 1");
    let mut many = with_chunk_size(4);
    many.add_chunks(u32::MAX - 1).unwrap();
    assert!(matches!(both.merge(&many), Err(Error::CountOverflow { .. })));
    assert_eq!(both, before);

    // A count for all experts together stands for each.
    let name = "blk.0.ffn_down_exps.weight";
    let experts = Imatrix::open(golden_path("imatrix.gguf")).unwrap();
    let together = Imatrix::open(golden_path("imatrix.dat")).unwrap();
    for (mut one, other) in [(experts.clone(), &together), (together.clone(), &experts)] {
        one.merge(other).unwrap();
        assert_eq!(one.get(name).unwrap().counts(), [130 + 1536, 62 + 1536, 1536]);
    }
}

#[test]
fn wrong_activations_are_named_and_not_added() {
    let mut imatrix = with_chunk_size(4);
    imatrix.add("w", &[1.0, 2.0, 3.0, 4.0], 2).unwrap();
    let before = imatrix.clone();
    for (x, columns, message) in [
        (vec![1.0; 3], 2, "\"w\": 3 activations are not whole rows of 2"),
        (vec![1.0], 0, "\"w\": 1 activations are not whole rows of 0"),
        (Vec::new(), 0, "\"w\": 0 activations are not whole rows of 0"),
        (vec![1.0; 3], 3, "\"w\": expected sums for 2 columns of 1 matrices, got 3 of 1"),
        (
            vec![0.0, 1.0, 2.0, f32::NAN],
            2,
            "\"w\": the activation in row 1, column 1 is NaN, expected one whose square is a finite f32",
        ),
        (
            vec![0.0, 1.0, f32::NEG_INFINITY, 2.0],
            2,
            "\"w\": the activation in row 1, column 0 is -inf, expected one whose square is a finite f32",
        ),
    ] {
        assert_eq!(imatrix.add("w", &x, columns).unwrap_err().to_string(), message);
    }
    imatrix.add_chunks(u32::MAX).unwrap();
    assert!(matches!(imatrix.add_chunks(1), Err(Error::CountOverflow { what: "chunks" })));
    assert_eq!(imatrix.get("w"), before.get("w"));
    assert_eq!(imatrix.iter().len(), 1);
    let error = imatrix.importance("w", 3).unwrap_err();
    assert!(matches!(error, Error::Length { expected: 3, got: 2, .. }), "{error}");
}

#[test]
fn saving_replaces_a_file_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let imatrix = Imatrix::open(golden_path("imatrix.gguf")).unwrap();
    for format in FORMATS {
        let path = folder.path().join("imatrix");
        imatrix.save(&path, format).unwrap();
        assert!(std::fs::read(&path).unwrap() == imatrix.write(Vec::new(), format).unwrap());
        let error = with_chunk_size(1).save(&path, format).unwrap_err();
        assert!(matches!(error, Error::Empty), "{error}");
        assert_eq!(Imatrix::open(&path).unwrap().iter().len(), 3);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
    let error = Imatrix::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Open { .. }), "{error}");
    assert!(matches!(Imatrix::open(folder.path().join("absent")), Err(Error::Open { .. })));
}

#[test]
fn no_cut_and_no_changed_byte_makes_the_reader_panic() {
    for name in ["imatrix.gguf", "imatrix.dat"] {
        let bytes = std::fs::read(golden_path(name)).unwrap();
        // A GGUF file may end before its padding, here 8 bytes; the older format before its last number, and before
        // the name of 12 bytes after that.
        let len = bytes.len();
        let ends = if name == "imatrix.dat" { vec![len - 20, len - 16] } else { (len - 8..len).collect() };
        for n in 0..len {
            let result = Imatrix::from_bytes(bytes[..n].to_vec());
            assert_eq!(result.is_ok(), ends.contains(&n), "{name} cut to {n}");
        }
        for i in 0..len {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[i] ^= change;
                // Either what it now says, or an error.
                if let Ok(imatrix) = Imatrix::from_bytes(bytes) {
                    for (name, entry) in imatrix.iter() {
                        let means = imatrix.importance(name, entry.sums().len()).unwrap();
                        assert!(means.is_none_or(|m| m.iter().all(|v| v.is_finite() && *v >= 0.0)));
                    }
                }
            }
        }
    }
}

/// A file of the older format with these entries: name, chunks, values.
fn dat(entries: &[(&[u8], i32, &[f32])]) -> Vec<u8> {
    let mut out = (entries.len() as i32).to_le_bytes().to_vec();
    for (name, chunks, values) in entries {
        out.extend((name.len() as i32).to_le_bytes());
        out.extend(*name);
        out.extend(chunks.to_le_bytes());
        out.extend((values.len() as i32).to_le_bytes());
        out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    out
}

/// Bytes `at..at + 4` of the file replaced.
fn with_number(mut bytes: Vec<u8>, at: usize, n: i32) -> Vec<u8> {
    bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
    bytes
}

#[track_caller]
fn refused(bytes: Vec<u8>, message: &str) {
    assert_eq!(Imatrix::from_bytes(bytes).unwrap_err().to_string(), message);
}

#[test]
fn wrong_dat_files_are_refused() {
    let good = || dat(&[(b"w", 2, &[1.0, 2.0])]);
    assert!(Imatrix::from_bytes(good()).is_ok());
    refused(Vec::new(), "number of entries takes 4 bytes, but the file has 0 left");
    refused(vec![0; 4], "number of entries is 0: expected 1 to 65536");
    refused(with_number(good(), 0, -1), "number of entries is 4294967295: expected 1 to 65536");
    refused(with_number(good(), 0, 2), "entry 1: name, its length takes 4 bytes, but the file has 0 left");
    refused(with_number(good(), 4, 0), "entry 0: name, its length is 0: expected 1 to 1024");
    refused(with_number(good(), 4, i32::MAX), "entry 0: name, its length is 2147483647: expected 1 to 1024");
    refused(with_number(good(), 4, 1024), "entry 0: name takes 1024 bytes, but the file has 17 left");
    refused(with_number(good(), 9, 0), "entry 0: chunks is 0: expected 1 to 2147483647");
    refused(with_number(good(), 9, -2), "entry 0: chunks is 4294967294: expected 1 to 2147483647");
    refused(with_number(good(), 13, 0), "entry 0: number of values is 0: expected 1 to 2147483647");
    let too_many = with_number(good(), 13, i32::MAX);
    refused(too_many, "entry 0: values takes 8589934588 bytes, but the file has 8 left");
    refused(dat(&[(b"\xff", 2, &[1.0])]), "entry 0: name is not UTF-8");
    refused(
        dat(&[(b"w", 2, &[1.0]), (b"v", 2, &[1.0]), (b"w", 2, &[1.0])]),
        "\"w\" occurs twice: expected each name once",
    );
    for (v, shown) in [(f32::NAN, "NaN"), (-1.0, "-512"), (f32::INFINITY, "inf")] {
        let message =
            format!("\"w\": sum 1 is {shown}, expected a number of at least 0 that is finite in f32");
        refused(dat(&[(b"w", 2, &[0.0, v])]), &message);
    }
    let tail = |tail: &[u8]| [good(), tail.to_vec()].concat();
    refused(tail(&[0; 3]), "chunks of the file takes 4 bytes, but the file has 3 left");
    refused(tail(&[255; 4]), "chunks of the file is 4294967295: expected 0 to 2147483647");
    refused(
        tail(&[1, 0, 0, 0, 2, 0, 0, 0, b'a']),
        "name of the dataset takes 2 bytes, but the file has 1 left",
    );
    refused(tail(&[1, 0, 0, 0, 1, 0, 0, 0, 255]), "name of the dataset is not UTF-8");
    refused(tail(&[1, 0, 0, 0, 0, 0, 0, 0, 9]), "1 bytes follow the end of the imatrix: expected none");
}

/// A GGUF file with these F32 tensors, after `change` of the metadata.
fn gguf(tensors: &[(&str, &[usize], &[f32])], change: impl Fn(&mut Metadata)) -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.type", "imatrix");
    metadata.set("imatrix.chunk_count", 1_u32);
    metadata.set("imatrix.chunk_size", 512_u32);
    change(&mut metadata);
    let infos: Vec<TensorInfo> = tensors
        .iter()
        .map(|(name, dims, _)| TensorInfo::new(*name, TensorType::F32, dims).unwrap())
        .collect();
    let mut writer = GgufWriter::new(Vec::new(), &metadata, &infos).unwrap();
    for (_, _, values) in tensors {
        writer.append(bytemuck::cast_slice(values)).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn wrong_gguf_files_are_refused() {
    let keep = |_: &mut Metadata| {};
    let pair = |sums: &[f32], counts: &[f32]| {
        gguf(&[("w.in_sum2", &[sums.len()], sums), ("w.counts", &[counts.len()], counts)], keep)
    };
    let good = Imatrix::from_bytes(pair(&[1.0, 2.0], &[4.0])).unwrap();
    assert_eq!(good.importance("w", 2).unwrap(), Some(vec![0.25, 0.5]));
    assert!(good.datasets().is_empty());
    // A matrix without rows is no error, but nothing is known of it, and there is nothing to write.
    let none = Imatrix::from_bytes(pair(&[0.0, 0.0], &[0.0])).unwrap();
    assert_eq!(none.importance("w", 2).unwrap(), None);
    assert!(FORMATS.iter().all(|f| matches!(none.write(Vec::new(), *f), Err(Error::Empty))));

    refused(pair(&[1.0, 2.0], &[0.0]), "\"w\": count 0 is 0, but its sums are not");
    refused(pair(&[1.0, 2.0], &[3.0, 0.0]), "\"w\": count 1 is 0, but its sums are not");
    refused(
        pair(&[1.0, 2.0, 3.0], &[1.0, 1.0]),
        "\"w\" has 2 counts for 3 sums: expected the same number of sums for each",
    );
    refused(
        pair(&[1.0], &[1.0, 1.0]),
        "\"w\" has 2 counts for 1 sums: expected the same number of sums for each",
    );
    for (v, shown) in [(f32::NAN, "NaN"), (-1.0, "-1"), (f32::INFINITY, "inf")] {
        let message =
            format!("\"w\": sum 1 is {shown}, expected a number of at least 0 that is finite in f32");
        refused(pair(&[0.0, v], &[1.0]), &message);
        let message = format!("\"w\": count 0 is {shown}, expected a whole number of at least 0");
        refused(pair(&[0.0], &[v]), &message);
    }
    refused(pair(&[0.0], &[0.5]), "\"w\": count 0 is 0.5, expected a whole number of at least 0");
    refused(
        gguf(&[("w.in_sum2", &[1], &[1.0])], keep),
        "\"w\" has no tensor .counts, only the other of the pair",
    );
    refused(
        gguf(&[("w.counts", &[1], &[1.0])], keep),
        "\"w\" has no tensor .in_sum2, only the other of the pair",
    );
    refused(gguf(&[("w", &[1], &[1.0])], keep), "the imatrix has no entries");
    refused(gguf(&[], keep), "the imatrix has no entries");
    refused(
        gguf(&[], |m| m.set("general.type", "model")),
        "general.type of the GGUF file is \"model\": expected \"imatrix\"",
    );
    refused(
        gguf(&[], |m| m.set("imatrix.chunk_size", 0_u32)),
        "imatrix.chunk_size is 0: expected 1 to 4294967295",
    );
    refused(
        gguf(&[], |m| m.set("imatrix.datasets", 1_u32)),
        "metadata key \"imatrix.datasets\" is a u32: expected an array of strings",
    );
    let model = std::fs::read(golden_path("tiny_qwen2.gguf")).unwrap();
    refused(model, "general.type of the GGUF file is \"\": expected \"imatrix\"");

    let mut metadata = Metadata::new();
    metadata.set("general.type", "imatrix");
    metadata.set("imatrix.chunk_count", 1_u32);
    metadata.set("imatrix.chunk_size", 512_u32);
    let halves = [("w.in_sum2", TensorType::F16), ("w.counts", TensorType::F32)]
        .map(|(name, ty)| TensorInfo::new(name, ty, &[2]).unwrap());
    let mut writer = GgufWriter::new(Vec::new(), &metadata, &halves).unwrap();
    writer.append(&[0; 4]).unwrap();
    writer.append(&[0; 8]).unwrap();
    refused(writer.finish().unwrap(), "tensor \"w.in_sum2\" is stored as F16: expected F32");
}

const SEED: u64 = 0x1337;

fn config() -> ProptestConfig {
    println!("seed {SEED:#x}");
    ProptestConfig {
        cases: 200,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..Default::default()
    }
}

/// Rows of activations for up to five matrices, with any names.
fn imatrices() -> impl Strategy<Value = Imatrix> {
    let rows = (1..9usize, 1..7usize).prop_flat_map(|(rows, columns)| {
        prop::collection::vec(-1e6f32..1e6, rows * columns).prop_map(move |x| (x, columns))
    });
    let entries = prop::collection::btree_map(".{1,12}", rows, 1..6);
    (entries, prop::collection::vec(".{1,9}", 0..3), 1..5u32, 0..9u32).prop_map(
        |(entries, datasets, chunk_size, chunks)| {
            let mut imatrix = with_chunk_size(chunk_size);
            entries.iter().for_each(|(name, (x, columns))| imatrix.add(name, x, *columns).unwrap());
            imatrix.add_chunks(chunks).unwrap();
            datasets.into_iter().for_each(|name| imatrix.add_dataset(name));
            imatrix
        },
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_written_is_read(imatrix in imatrices()) {
        for format in FORMATS {
            let bytes = imatrix.write(Vec::new(), format).unwrap();
            let read = Imatrix::from_bytes(bytes.clone()).unwrap();
            // Once rounded to what the format holds, it stays as it is.
            let again = Imatrix::from_bytes(read.write(Vec::new(), format).unwrap()).unwrap();
            prop_assert_eq!(&again, &read);
            prop_assert_eq!(read.chunk_count(), imatrix.chunk_count());
            prop_assert_eq!(read.iter().len(), imatrix.iter().len());
            match format {
                Format::Gguf => prop_assert_eq!(read.datasets(), imatrix.datasets()),
                Format::Dat => prop_assert_eq!(read.datasets().last(), imatrix.datasets().last()),
            }
            for ((name, was), (read_name, is)) in imatrix.iter().zip(read.iter()) {
                prop_assert_eq!(name, read_name);
                let [before, after] = [&imatrix, &read]
                    .map(|of| of.importance(name, was.sums().len()).unwrap().unwrap());
                for (a, b) in before.iter().zip(&after) {
                    // An f32 rounding in the file, one on either side here.
                    prop_assert!((f64::from(*a) - f64::from(*b)).abs() <= 2e-7 * f64::from(*a), "{a} became {b}");
                }
                if format == Format::Gguf {
                    let rounded: Vec<f64> = was.sums().iter().map(|&v| f64::from(v as f32)).collect();
                    prop_assert_eq!((is.sums(), is.counts()), (rounded.as_slice(), was.counts()));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), few in 1..3u8) {
        let dat = [&[few, 0, 0, 0, 1, 0, 0, 0], bytes.as_slice()].concat();
        let gguf = [b"GGUF\x03\0\0\0", bytes.as_slice()].concat();
        for bytes in [bytes, dat, gguf] {
            let _ = Imatrix::from_bytes(bytes);
        }
    }
}
