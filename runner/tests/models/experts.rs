//! Models with experts against mlx-lm: directories as Hugging Face and MLX have them, and the same as GGUF files.

use std::path::PathBuf;
use std::sync::Arc;

use crate::converted;
use halfbyte::model::{
    ActivationType, Batch, Compute, CpuSession, Error, FeedForward, Layerwise, Part, Row, Rows,
    SessionOptions, Transformer,
};
use halfbyte::requantize::Encoding;
use halfbyte::source::{self, ModelFile};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_gguf::TensorType;
use halfbyte_testing::golden;

const EXACT: SessionOptions =
    SessionOptions { context: 64, activations: ActivationType::F32, kv_type: KvType::F32, chunk: 5 };

fn open(name: &str) -> Arc<ModelFile> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens/experts").join(name);
    source::open(&path).unwrap()
}

/// The names of the cases, the ids, and the recorded logits of each case.
fn cases() -> (Vec<u32>, Vec<(String, Vec<f64>)>) {
    let golden = golden("experts.json");
    let cases = golden["logits"].as_object().unwrap().iter().map(|(name, rows)| {
        let rows: Vec<Vec<f64>> = serde_json::from_value(rows.clone()).unwrap();
        (name.clone(), rows.concat())
    });
    (serde_json::from_value(golden["ids"].clone()).unwrap(), cases.collect())
}

fn logits(model: &Transformer, compute: &Compute, options: SessionOptions, ids: &[u32]) -> Vec<f32> {
    let mut session = CpuSession::new(model, compute, options).unwrap();
    let mut all = Vec::new();
    session.feed_all(ids, |_, logits| all.extend_from_slice(logits)).unwrap();
    all
}

fn encoding(ty: TensorType) -> Encoding {
    Encoding::new(ty).unwrap()
}

#[track_caller]
fn assert_close(got: &[f32], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len());
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        let difference = (f64::from(got) - want).abs();
        assert!(difference < 2e-4, "{what}, number {i}: {got}, recorded {want}");
    }
}

#[test]
fn logits_are_those_of_mlx() {
    let (ids, cases) = cases();
    assert_eq!(cases.len(), 7);
    let compute = Compute::new(2).unwrap();
    for (name, want) in cases {
        let model = Transformer::new(open(&name)).unwrap();
        let mixtures =
            model.description().layers.iter().filter(|l| matches!(l.feed_forward, FeedForward::Experts(_)));
        assert_eq!(mixtures.count(), if name == "hf_qwen3_moe" { 1 } else { 2 }, "{name}");
        for isa in Isa::available() {
            let compute = compute.clone().with_isa(isa);
            assert_close(&logits(&model, &compute, EXACT, &ids), &want, &format!("{name}, {isa}"));
            let packed = model.clone().pack(&compute).unwrap();
            assert_close(&logits(&packed, &compute, EXACT, &ids), &want, &format!("{name}, packed, {isa}"));
        }
        let gguf = converted(&**open(&name), encoding(TensorType::F32), &compute);
        let model = crate::common::transformer(&gguf).unwrap();
        assert_close(&logits(&model, &compute, EXACT, &ids), &want, &format!("{name} as a GGUF file"));
    }
}

#[test]
fn logits_are_those_of_llama_cpp() {
    let golden = golden("experts_gguf.json");
    let ids: Vec<u32> = serde_json::from_value(golden["ids"].clone()).unwrap();
    let cases = golden["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 6);
    for (name, case) in cases {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../goldens/experts_{name}.gguf"));
        let model = Transformer::new(source::open(&path).unwrap()).unwrap();
        let rows: Vec<Vec<f64>> = serde_json::from_value(case["logits"].clone()).unwrap();
        let compute = Compute::new(2).unwrap();
        for chunk in [1, 5, 64] {
            let options = SessionOptions { chunk, ..EXACT };
            assert_close(&logits(&model, &compute, options, &ids), &rows.concat(), name);
        }
    }
}

#[test]
fn bits_do_not_depend_on_cuts_threads_or_neighbours() {
    let (ids, cases) = cases();
    for (name, _) in cases {
        let file = open(&name);
        let one = Compute::new(1).unwrap().with_isa(Isa::scalar());
        let gguf = converted(&**file, encoding(TensorType::Q8_0), &one);
        for activations in [ActivationType::F32, ActivationType::Auto, ActivationType::Int8] {
            let options = SessionOptions { activations, kv_type: KvType::F16, chunk: 64, ..EXACT };
            let model = crate::common::transformer(&gguf).unwrap();
            let whole = logits(&model, &one, options, &ids);
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let compute = Compute::new(threads).unwrap().with_isa(isa);
                    let packed = model.clone().pack(&compute).unwrap();
                    for chunk in [1, 2, 7, 64] {
                        let options = SessionOptions { chunk, ..options };
                        let got = logits(&packed, &compute, options, &ids);
                        assert!(got == whole, "{name}, {isa}, {threads} threads, chunks of {chunk}");
                    }
                    // The same tokens beside other ones of another session.
                    let n_vocab = model.description().n_vocab;
                    let mut sessions = [(); 2].map(|()| CpuSession::new(&packed, &compute, options).unwrap());
                    let other: Vec<u32> = ids.iter().rev().copied().collect();
                    let [a, b] = &mut sessions;
                    let mut last = Vec::new();
                    let mut parts = [(a, &ids), (b, &other)].map(|(sequence, ids)| Part {
                        sequence,
                        ids,
                        rows: Rows::Last,
                        greedy: false,
                    });
                    let each = |i: usize, _: usize, row: Row<'_>| {
                        if let (0, Row::Logits(logits)) = (i, row) {
                            last.extend_from_slice(logits);
                        }
                    };
                    Batch::default().feed(&mut parts, each).unwrap();
                    assert!(last == whole[whole.len() - n_vocab..], "{name}, {isa}, in a batch");
                }
            }
        }
    }
}

#[test]
fn quantized_files_keep_routers_as_they_are() {
    let compute = Compute::new(1).unwrap();
    let gguf = converted(&**open("hf_qwen2_moe"), encoding(TensorType::Q4_0), &compute);
    let ty = |name: &str| gguf.tensor(name).unwrap().ty;
    assert_eq!(ty("blk.0.ffn_gate_inp.weight"), TensorType::F32);
    assert_eq!(ty("blk.0.ffn_up.3.weight"), TensorType::Q4_0);
    assert_eq!(ty("blk.1.ffn_down_shexp.weight"), TensorType::Q4_0);
    let stacked = converted(&**open("mlx_qwen3_moe"), encoding(TensorType::Q8_0), &compute);
    let experts = stacked.tensor("blk.0.ffn_down_exps.weight").unwrap();
    assert_eq!((experts.ty, experts.dims.to_vec()), (TensorType::Q8_0, vec![32, 32, 4]));
}

#[test]
fn what_has_no_code_for_experts_says_so() {
    let model = Transformer::new(open("hf_mixtral")).unwrap();
    let error = Layerwise::new(&model, &Compute::new(1).unwrap(), &[vec![1, 2]]).unwrap_err();
    assert!(matches!(error, Error::Feature { .. }));
    assert_eq!(
        error.to_string(),
        "calibration = llama with experts is not supported; supported: models without experts"
    );
}
