//! Calibration: what matrices see, and weights rounded with that in mind.

use std::ops::ControlFlow;

use halfbyte::calibrate::{self, Checkpoint, Recipe, fingerprint, importance};
use halfbyte::evaluate::{Mean, compare};
use halfbyte::model::{
    ActivationType, Compute, CpuSession, Error, FeedForward, Layerwise, SessionOptions, Stage, Visitor,
};
use halfbyte::requantize::{Plan, Ready};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::{Matrix, Weights, gemm_f32};
use halfbyte_gguf::imatrix::Imatrix;
use halfbyte_gguf::{Gguf, GgufWriter};
use halfbyte_q4::gptq::Options;
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};

const RECIPE: Recipe = Recipe { options: Options::DEFAULT, scales_by_importance: false };

/// Windows of 128 tokens of the text that the embedded model was not trained on, from window `first` on.
fn windows(gguf: &Gguf, first: usize, n: usize) -> Vec<Vec<u32>> {
    let spec = TokenizerSpec::from_metadata(gguf.metadata()).unwrap();
    let text = include_str!("../../../cli/model/validation.txt");
    let ids = Tokenizer::new(&spec).unwrap().encode_prompt(text, Special::Off).unwrap();
    ids.chunks_exact(128).skip(first).take(n).map(<[u32]>::to_vec).collect()
}

fn options() -> SessionOptions {
    SessionOptions { activations: ActivationType::F32, kv_type: KvType::F32, ..SessionOptions::new(128) }
}

/// Keeps the inputs of one stage.
struct Keeper(Stage, Vec<f32>);

impl Visitor for Keeper {
    type Error = Error;
    fn inputs(&mut self, stage: Stage, x: &[f32], _: usize) -> Result<(), Error> {
        if stage == self.0 {
            self.1.extend_from_slice(x);
        }
        Ok(())
    }
}

#[test]
fn layer_by_layer_gives_the_logits_of_a_session() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = crate::common::transformer(&gguf).unwrap();
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone();
    // Windows of different lengths do not disturb each other.
    let mut windows = windows(&gguf, 0, 2);
    windows[0].truncate(100);
    let mut keeper = Keeper(Stage::Output, Vec::new());
    Layerwise::new(&model, &ctx, &windows).unwrap().run(&mut keeper).unwrap();
    let embedding = gguf.tensor("token_embd.weight").unwrap();
    let weights = Weights::F16(gguf.view(embedding).unwrap());
    let output = Matrix::new(weights, embedding.n_rows(), embedding.row_len()).unwrap();
    let rows = keeper.1.len() / output.cols();
    assert_eq!(rows, 228);
    let mut logits = vec![0.0; rows * output.rows()];
    gemm_f32(ctx.context(), &output, &keeper.1, rows, &mut logits).unwrap();
    let mut rows = logits.chunks_exact(output.rows());
    for window in &windows {
        let mut session = CpuSession::new(&model, &ctx, options()).unwrap();
        session.feed_all(window, |i, logits| assert!(rows.next().unwrap() == logits, "token {i}")).unwrap();
    }
    assert!(rows.next().is_none());
}

#[test]
fn importance_is_the_mean_square_of_the_inputs() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = crate::common::transformer(&gguf).unwrap();
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone();
    let windows = windows(&gguf, 0, 3);
    let mut imatrix = Imatrix::new(128.try_into().unwrap());
    importance(&ctx, &model, &windows, &mut imatrix, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((imatrix.chunk_count(), imatrix.iter().len()), (3, 4 * 7 + 1));
    // The first layer reads embeddings through its norm, which can be made here.
    let embedding = gguf.tensor("token_embd.weight").unwrap();
    let width = embedding.row_len();
    let rows = gguf.view::<half::f16>(embedding).unwrap();
    let norm = gguf.view::<f32>(gguf.tensor("blk.0.attn_norm.weight").unwrap()).unwrap();
    let mut expected = vec![0.0; width];
    for &id in windows.iter().flatten() {
        let row: Vec<f64> = rows[id as usize * width..][..width].iter().map(|v| v.to_f64()).collect();
        let mean = row.iter().map(|v| v * v).sum::<f64>() / width as f64;
        for ((sum, v), norm) in expected.iter_mut().zip(row).zip(norm) {
            *sum += (v * f64::from(*norm)).powi(2) / (mean + model.description().norm.eps as f64) / 384.0;
        }
    }
    for name in ["attn_q", "attn_k", "attn_v"] {
        let found = imatrix.importance(&format!("blk.0.{name}.weight"), width).unwrap().unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert!((f64::from(*found) / expected - 1.0).abs() < 1e-5, "{name}: {found}, not {expected}");
        }
    }
    // Every later stage is what a session computes (see above); the widths show that it is the right one.
    assert!(
        imatrix
            .importance("blk.3.ffn_down.weight", {
                let FeedForward::Dense(dense) = &model.description().layers[3].feed_forward else {
                    panic!("a dense model")
                };
                dense.width
            })
            .unwrap()
            .is_some()
    );
    assert!(imatrix.importance("token_embd.weight", width).unwrap().is_some());
    let stopped = importance(&ctx, &model, &windows, &mut imatrix, |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(calibrate::Error::Stopped)));
}

/// The embedded model by `plan`, with what `checkpoint` has.
fn written(ctx: &Compute, plan: &Plan<'_>, ready: &dyn Ready) -> Vec<u8> {
    let mut writer = GgufWriter::new(Vec::new(), plan.metadata(), plan.tensors()).unwrap();
    plan.write(ctx.context(), &mut writer, ready, |_| ControlFlow::Continue(())).unwrap().unwrap();
    writer.finish().unwrap()
}

/// Mean divergence from the embedded model on windows that no calibration has seen.
fn divergence(ctx: &Compute, gguf: &Gguf, quantized: Vec<u8>) -> f64 {
    let base = crate::common::transformer(gguf).unwrap();
    let quantized = Gguf::from_vec(quantized).unwrap();
    let model = crate::common::transformer(&quantized).unwrap();
    let mut sessions = [&base, &model].map(|model| CpuSession::new(model, ctx, options()).unwrap());
    let [base, session] = &mut sessions;
    let mut mean = Mean::default();
    for ids in windows(gguf, 200, 12) {
        let tokens = compare(base, session, &ids, 1, || ControlFlow::Continue(())).unwrap().unwrap();
        mean.extend(tokens.iter().map(|t| t.kl));
    }
    mean.mean()
}

#[test]
fn calibrated_weights_are_closer_on_text_they_have_not_seen() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = crate::common::transformer(&gguf).unwrap();
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone();
    let text = windows(&gguf, 0, 48);
    let directory = tempfile::tempdir().unwrap();
    let mut imatrix = Imatrix::new(128.try_into().unwrap());
    importance(&ctx, &model, &text, &mut imatrix, |_| ControlFlow::Continue(())).unwrap();
    for ty in ["q4_0", "q4_1"] {
        let plan = |method: &str| Plan::new(&gguf, format!("{ty}:{method}").parse().unwrap(), &[]).unwrap();
        let (fit, gptq, mut weighted) = (plan("fit"), plan("gptq"), plan("fit"));
        let unknown = weighted.weigh(|name, n| Ok::<_, anyhow::Error>(imatrix.importance(name, n)?)).unwrap();
        assert!(unknown.is_empty());
        let path = directory.path().join(ty);
        let mut checkpoint = Checkpoint::open(&path, fingerprint(&gptq, &text, RECIPE)).unwrap();
        let mut seen = Vec::new();
        let report =
            calibrate::quantize(&ctx, &model, &gptq, &text, RECIPE, &mut checkpoint, &mut |progress| {
                seen.push(progress);
                ControlFlow::Continue(())
            });
        assert_eq!(report.unwrap(), calibrate::Report::default());
        assert_eq!(checkpoint.len(), 4 * 7 + 1);
        assert!(seen.is_sorted_by_key(|p| (p.weights, p.tensors)));
        assert!(seen.last().unwrap().weights > 3_000_000);

        let [fit, weighted, gptq] =
            [written(&ctx, &fit, &()), written(&ctx, &weighted, &()), written(&ctx, &gptq, &checkpoint)]
                .map(|bytes| divergence(&ctx, &gguf, bytes));
        println!("{ty}: fit {fit:.5}, weighted {weighted:.5}, gptq {gptq:.5}");
        // With two parameters there is little left to weigh in this model.
        assert!(weighted < 1.01 * fit, "{weighted} after {fit}");
        assert!(gptq < 0.75 * fit, "{gptq} after {fit}");
    }
}

#[test]
fn a_stopped_calibration_goes_on_to_the_same_bytes() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = crate::common::transformer(&gguf).unwrap();
    let text = windows(&gguf, 0, 4);
    let plan = Plan::new(&gguf, "q4_0:gptq".parse().unwrap(), &[]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let make = |threads: usize, name: &str, stop_at: usize| {
        let pool = Compute::new(threads).unwrap();
        let ctx = pool.clone();
        let path = directory.path().join(name);
        let mut checkpoint = Checkpoint::open(&path, fingerprint(&plan, &text, RECIPE)).unwrap();
        let before = checkpoint.len();
        let made =
            calibrate::quantize(&ctx, &model, &plan, &text, RECIPE, &mut checkpoint, &mut |progress| {
                if progress.tensors < stop_at { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        assert_eq!(matches!(made, Err(calibrate::Error::Stopped)), stop_at < 100);
        (before, written(&ctx, &plan, &checkpoint))
    };
    let (_, whole) = make(1, "whole", 100);
    // Stopped within the first layer and again between two later ones; on another number of threads.
    assert_eq!(make(2, "pieces", 4).0, 0);
    assert_eq!(make(3, "pieces", 14).0, 4);
    let (before, pieces) = make(2, "pieces", 100);
    assert_eq!(before, 14);
    assert!(whole == pieces);

    // Another text is another calibration.
    let other = fingerprint(&plan, &text[1..], RECIPE);
    let error = Checkpoint::open(&directory.path().join("pieces"), other).unwrap_err();
    assert!(error.to_string().ends_with(
        "pieces is not from this run (another input, text or option, or no checkpoint at all): remove it to begin anew"
    ));
}

#[test]
fn weights_out_of_range_are_taken_to_its_end_if_asked_for() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone();
    // The embedded model in F32, one weight of it far beyond Q4_0.
    let mut bytes = written(&ctx, &Plan::new(&gguf, "f32".parse().unwrap(), &[]).unwrap(), &());
    let name = "blk.3.ffn_down.weight";
    let at = {
        let wide = Gguf::from_vec(bytes.clone()).unwrap();
        let tensor = wide.bytes(wide.tensor(name).unwrap()).to_vec();
        bytes.windows(256).position(|window| window == &tensor[..256]).unwrap()
    };
    bytes[at..at + 4].copy_from_slice(&1e6f32.to_le_bytes());
    let gguf = Gguf::from_vec(bytes).unwrap();
    let model = crate::common::transformer(&gguf).unwrap();
    let text = windows(&gguf, 0, 2);
    let directory = tempfile::tempdir().unwrap();
    for saturate in [false, true] {
        let mut plan = Plan::new(&gguf, "q4_0:gptq".parse().unwrap(), &[]).unwrap();
        if saturate {
            plan.saturate();
        }
        let path = directory.path().join(saturate.to_string());
        let mut checkpoint = Checkpoint::open(&path, fingerprint(&plan, &text, RECIPE)).unwrap();
        let made = calibrate::quantize(&ctx, &model, &plan, &text, RECIPE, &mut checkpoint, &mut |_| {
            ControlFlow::Continue(())
        });
        if !saturate {
            let error = anyhow::Error::new(made.unwrap_err());
            assert!(format!("{error:#}").contains(name), "{error:#}");
            continue;
        }
        made.unwrap();
        let mut writer = GgufWriter::new(Vec::new(), plan.metadata(), plan.tensors()).unwrap();
        let report = plan
            .write(ctx.context(), &mut writer, &checkpoint, |_| ControlFlow::Continue(()))
            .unwrap()
            .unwrap();
        for tensor in report {
            assert_eq!(tensor.saturated, usize::from(tensor.tensor.name == name), "{}", tensor.tensor.name);
        }
    }
}
