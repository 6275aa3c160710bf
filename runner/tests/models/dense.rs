//! Directories of every dense architecture against mlx-lm: the logits of whole prompts, token by token and cut anywhere,
//! in batches, in other formats, on ranks.

use std::path::PathBuf;
use std::sync::Arc;

use crate::converted;
use halfbyte::model::{
    ActivationType, Batch, Compute, CpuSession, Layerwise, Part, Row, Rows, Sequence, SessionOptions, Stage,
    Transformer, Visitor,
};
use halfbyte::requantize::Encoding;
use halfbyte::source::{self, ModelFile};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_gguf::TensorType;
use halfbyte_testing::golden;

/// How far a logit may be off: logits reach 21, and both sides round in f32, in other orders.
const EXACT: f64 = 2e-4;

/// One of the models, and what mlx-lm says of it.
struct Case {
    name: String,
    file: Arc<ModelFile>,
    ids: Vec<u32>,
    logits: Vec<f64>,
    options: SessionOptions,
}

/// Directories, with logits by mlx-lm.
fn cases() -> Vec<Case> {
    let cases = of_golden("dense.json", |name| format!("dense/{name}"));
    assert_eq!(cases.len(), 15);
    cases
}

/// GGUF files, with logits by llama.cpp, or by NumPy where llama.cpp rounds.
fn gguf_cases() -> Vec<Case> {
    let cases = of_golden("dense_gguf.json", |name| format!("dense_{name}.gguf"));
    assert_eq!(cases.len(), 15);
    cases
}

fn of_golden(json: &str, path: impl Fn(&str) -> String) -> Vec<Case> {
    let golden = golden(json);
    let cases = golden["cases"].as_object().unwrap();
    let case = |(name, case): (&String, &serde_json::Value)| {
        let rows: Vec<Vec<f64>> = serde_json::from_value(case["logits"].clone()).unwrap();
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens").join(path(name));
        Case {
            name: name.clone(),
            file: source::open(&path).unwrap_or_else(|e| panic!("{name}: {e}")),
            ids: serde_json::from_value(golden["ids"].clone()).unwrap(),
            logits: rows.concat(),
            options: SessionOptions {
                context: case["context"].as_u64().unwrap() as usize,
                activations: ActivationType::F32,
                kv_type: KvType::F32,
                chunk: 5,
            },
        }
    };
    cases.iter().map(case).collect()
}

impl Case {
    fn model(&self) -> Transformer {
        Transformer::new(Arc::clone(&self.file)).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// The logits after all tokens, which are fed in pieces of these sizes.
    fn logits(
        &self,
        model: &Transformer,
        compute: &Compute,
        options: SessionOptions,
        pieces: &[usize],
    ) -> Vec<f32> {
        let mut session = CpuSession::new(model, compute, options).unwrap();
        let (mut all, mut rest) = (Vec::new(), self.ids.as_slice());
        for &piece in pieces {
            let (ids, others) = rest.split_at(piece);
            session.feed_all(ids, |_, logits| all.extend_from_slice(logits)).unwrap();
            rest = others;
        }
        assert!(rest.is_empty());
        all
    }

    fn check(&self, got: &[f32], what: &str) {
        assert_eq!(got.len(), self.logits.len());
        let mut worst = (0.0, 0);
        for (i, (&got, want)) in got.iter().zip(&self.logits).enumerate() {
            let difference = (f64::from(got) - want).abs();
            if difference > worst.0 || difference.is_nan() {
                worst = (difference, i);
            }
        }
        let (difference, i) = worst;
        println!("{}, {what}: {difference:e}", self.name);
        assert!(
            difference < EXACT,
            "{}, {what}, number {i}: {}, recorded {}",
            self.name,
            got[i],
            self.logits[i]
        );
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn logits_of_dense_directories_are_those_of_mlx() {
    cases().iter().for_each(compare);
}

#[test]
fn logits_of_dense_gguf_files_are_those_of_llama_cpp() {
    gguf_cases().iter().for_each(compare);
}

/// Compares the logits of a prompt, whole and cut anywhere, on every path.
fn compare(case: &Case) {
    let pool = Compute::new(2).unwrap();
    let model = case.model();
    let n = case.ids.len();
    let mut first = None;
    for isa in Isa::available() {
        let compute = pool.clone().with_isa(isa);
        let whole = case.logits(&model, &compute, case.options, &[n]);
        case.check(&whole, &format!("{isa}"));
        let first = first.get_or_insert_with(|| bits(&whole));
        assert_eq!(*first, bits(&whole), "{}: {isa} has other bits", case.name);
    }
    let compute = pool.clone().with_isa(Isa::fastest());
    for pieces in [vec![1; n], vec![n - 1, 1], vec![1, 6, 9, n - 16]] {
        let cut = case.logits(&model, &compute, case.options, &pieces);
        assert_eq!(first, Some(bits(&cut)), "{}, cut into {pieces:?}", case.name);
    }
}

#[test]
fn dense_architectures_have_the_same_bits_in_a_batch_and_packed() {
    let compute = Compute::new(2).unwrap();
    for case in cases() {
        for activations in [ActivationType::F32, ActivationType::Auto] {
            let options = SessionOptions { activations, ..case.options };
            let model = case.model();
            let alone = case.logits(&model, &compute, options, &[case.ids.len()]);
            let model = model.pack(&compute).unwrap();
            assert_eq!(
                bits(&case.logits(&model, &compute, options, &[case.ids.len()])),
                bits(&alone),
                "{}",
                case.name
            );
            let mut sessions: Vec<_> =
                (0..3).map(|_| CpuSession::new(&model, &compute, options).unwrap()).collect();
            // Sessions of different lengths, so that windows and positions differ.
            for (session, n) in sessions.iter_mut().zip([0, 4, 9]) {
                if n > 0 {
                    session.feed(&case.ids[..n]).unwrap();
                }
            }
            batched(&case, &alone, &mut sessions);
        }
    }
}

/// Feeds sessions that have 0, 4 and 9 tokens one token each, together, until the longest has all.
fn batched(case: &Case, alone: &[f32], sessions: &mut [CpuSession]) {
    let n_vocab = sessions[0].model().description().n_vocab;
    let mut batch = Batch::default();
    while sessions[2].len() < case.ids.len() {
        let at: Vec<usize> = sessions.iter().map(CpuSession::len).collect();
        let part = |(session, &n): (_, &usize)| -> Part<'_> {
            let sequence: &mut CpuSession = session;
            Part { sequence, ids: &case.ids[n..=n], rows: Rows::Last, greedy: false }
        };
        let mut parts: Vec<_> = sessions.iter_mut().zip(&at).map(part).collect();
        let mut rows = 0;
        let each = |i: usize, _: usize, row: Row<'_>| {
            let Row::Logits(logits) = row else { panic!("logits were asked for") };
            let want = &alone[at[i] * n_vocab..][..n_vocab];
            assert_eq!(bits(logits), bits(want), "{}, position {}", case.name, at[i]);
            rows += 1;
        };
        batch.feed(&mut parts, each).unwrap();
        assert_eq!(rows, 3);
    }
}

#[test]
fn dense_directories_converted_to_gguf_have_the_same_logits() {
    let compute = Compute::new(2).unwrap();
    for case in cases() {
        let gguf = converted(&**case.file, Encoding::new(TensorType::F32).unwrap(), &compute);
        let model = crate::common::transformer(&gguf).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        case.check(&case.logits(&model, &compute, case.options, &[case.ids.len()]), "as GGUF");
    }
}

/// Counts the inputs of every tensor.
#[derive(Default)]
struct Inputs {
    columns: Vec<(Stage, usize)>,
    last: Vec<f32>,
}

impl Visitor for Inputs {
    type Error = halfbyte::model::Error;

    fn inputs(&mut self, stage: Stage, x: &[f32], rows: usize) -> Result<(), Self::Error> {
        self.columns.push((stage, x.len() / rows));
        self.last = x.to_vec();
        Ok(())
    }
}

#[test]
fn directories_that_read_images_say_so() {
    for case in cases() {
        let expected: &[&str] = match case.name.as_str() {
            "gemma3" | "mistral3" => {
                &["the part of the model that reads images (2 tensors) is left out: images are refused"]
            }
            _ => &[],
        };
        assert_eq!(case.file.warnings(), expected, "{}", case.name);
    }
}

#[test]
fn calibration_goes_through_dense_architectures() {
    let compute = Compute::new(2).unwrap();
    for case in cases() {
        let model = case.model();
        let d = model.description();
        for stage in Stage::all(d) {
            let names = stage.tensors(d);
            let mut distinct = names.clone();
            distinct.sort();
            distinct.dedup();
            assert_eq!(names.len(), distinct.len(), "{}: {names:?}", case.name);
        }
        let mut inputs = Inputs::default();
        Layerwise::new(&model, &compute, std::slice::from_ref(&case.ids)).unwrap().run(&mut inputs).unwrap();
        let stages: Vec<_> = Stage::all(d).collect();
        assert_eq!(inputs.columns.iter().map(|(stage, _)| *stage).collect::<Vec<_>>(), stages);
        assert!(inputs.last.iter().all(|x| x.is_finite()), "{}", case.name);
    }
}

#[test]
fn a_long_context_rotates_by_other_frequencies() {
    let compute = Compute::new(1).unwrap();
    for (name, short) in [("phi3", 16), ("exaone", 12)] {
        let case = cases().into_iter().find(|case| case.name == name).unwrap();
        let model = case.model();
        let options = |context| SessionOptions { context, ..case.options };
        let logits = |context: usize| {
            let mut session = CpuSession::new(&model, &compute, options(context)).unwrap();
            bits(session.feed(&case.ids[..8]).unwrap())
        };
        assert_eq!(logits(8), logits(short), "{name}");
        assert_ne!(logits(short), logits(short + 1), "{name}");
        // Keys of one kind are of no use where others are expected.
        let mut session = CpuSession::new(&model, &compute, options(short)).unwrap();
        session.feed(&case.ids[..4]).unwrap();
        let saved = session.save().unwrap();
        let mut long = CpuSession::new(&model, &compute, options(short + 1)).unwrap();
        let error = long.restore(&saved).unwrap_err().to_string();
        assert_eq!(error, "the copy of a state is of another model or of another kind of session");
        let mut same = CpuSession::new(&model, &compute, options(short - 1)).unwrap();
        same.restore(&saved).unwrap();
    }
}
