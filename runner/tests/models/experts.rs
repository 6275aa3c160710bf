//! Models with experts against mlx-lm: directories as Hugging Face and MLX have them, and the same as GGUF files.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::converted;
use halfbyte::calibrate::{importance, output_errors};
use halfbyte::model::{
    ActivationType, Batch, Compute, CpuSession, FeedForward, Part, Row, Rows, SessionOptions, Transformer,
};
use halfbyte::requantize::{self, Encoding, Plan};
use halfbyte::source::{self, ModelFile, Source};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_gguf::imatrix::Imatrix;
use halfbyte_gguf::{Gguf, GgufWriter, TensorType};
use halfbyte_q4::{BlockQ4_0, q4_row_optimal_weighted};
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
    let file = open("hf_mixtral");
    let model = Transformer::new(Arc::clone(&file)).unwrap();
    let files: (&dyn Source, &dyn Source) = (&**file, &**file);
    let go_on = |_| ControlFlow::Continue(());
    let error = output_errors(&Compute::new(1).unwrap(), &model, files, &[vec![1, 2]], go_on).unwrap_err();
    assert_eq!(
        error.to_string(),
        "calibration = llama with experts is not supported; supported: models without experts"
    );
}

/// Every position goes through the shared expert, and through as many others as are chosen.
#[test]
fn importance_of_experts_is_that_of_the_positions_that_go_through_them() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens/experts_qwen2moe.gguf");
    let file = source::open(&path).unwrap();
    let model = Transformer::new(Arc::clone(&file)).unwrap();
    let compute = Compute::new(2).unwrap();
    let ids: Vec<u32> = (0..40).map(|i| (i * i * 7 + 3) % 48).collect();
    let mut imatrix = Imatrix::new(40.try_into().unwrap());
    let go_on = |_| ControlFlow::Continue(());
    importance(&compute, &model, std::slice::from_ref(&ids), &mut imatrix, go_on).unwrap();
    for layer in 0..2 {
        let entry = |part: &str| imatrix.get(&format!("blk.{layer}.ffn_{part}.weight")).unwrap();
        for part in ["gate", "up"] {
            let (all, experts) = (entry(&format!("{part}_shexp")), entry(&format!("{part}_exps")));
            assert_eq!((all.counts(), experts.counts().len()), (&[40][..], 5));
            assert_eq!(experts.counts().iter().sum::<u64>(), 3 * 40);
            for (column, sum) in all.sums().iter().enumerate() {
                let of_experts: f64 = experts.sums().iter().skip(column).step_by(32).sum();
                assert!((of_experts - 3.0 * sum).abs() < 1e-6 * of_experts, "{layer} {part} {column}");
            }
        }
        assert_eq!(entry("down_exps").counts(), entry("gate_exps").counts());
        assert_eq!((entry("down_exps").sums().len(), entry("down_shexp").sums().len()), (5 * 32, 64));
    }
    // Each expert's rows are rounded by its own importance.
    let encoding: Encoding = "q4_0:optimal".parse().unwrap();
    let mut plan = Plan::new(&**file, encoding, &[]).unwrap();
    let unknown =
        plan.weigh(|name, len| Ok::<_, requantize::Error>(imatrix.importance(name, len).unwrap())).unwrap();
    assert_eq!(unknown, ["token_embd.weight"]);
    let mut writer = GgufWriter::new(Vec::new(), plan.metadata(), plan.tensors()).unwrap();
    plan.write(compute.context(), &mut writer, &(), |_| ControlFlow::Continue(())).unwrap().unwrap();
    let gguf = Gguf::from_vec(writer.finish().unwrap()).unwrap();
    let name = "blk.1.ffn_up_exps.weight";
    let (bytes, columns) =
        (gguf.bytes(gguf.tensor(name).unwrap()), imatrix.importance(name, 5 * 32).unwrap().unwrap());
    let weights: &[f32] = bytemuck::cast_slice(file.bytes(file.tensor(name).unwrap()));
    for (row, (weights, bytes)) in weights.chunks(32).zip(bytes.chunks(18)).enumerate() {
        let mut block = [bytemuck::Zeroable::zeroed(); 1];
        let weighted = q4_row_optimal_weighted(weights, &columns[row / 32 * 32..][..32], &mut block).unwrap();
        assert_eq!(weighted.uniform_groups, 0);
        assert_eq!(bytemuck::cast_slice::<BlockQ4_0, u8>(&block), bytes, "row {row}");
    }
}
