//! The model on a CUDA device: on the emulator, against the model on the CPU.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use halfbyte_cpu_kernels::Context;
use halfbyte_cuda_driver::{Context as CudaContext, Driver};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};
use halfbyte_cuda_kernels::attention::KvFormat;
use halfbyte_cuda_kernels::{Kernels, PromptPrecision};
use halfbyte_examples::embedded;
use halfbyte_examples::gguf::Gguf;
use halfbyte_examples::model::cuda::{CudaModel, CudaOptions, CudaSession};
use halfbyte_examples::model::{ActivationType, Error, Model, Session, SessionOptions};
use halfbyte_threadpool::ThreadPool;

/// Runs `test` with a device of its own, and checks that nothing went wrong on it and nothing was left.
fn on_emulator(seed: u64, test: impl FnOnce(&Kernels)) {
    println!("seed {seed}, on the emulator");
    let emulator = Emulator::new(EmulatorConfig { seed, ..EmulatorConfig::default() }).unwrap();
    let _entered = emulator.enter();
    {
        let context = CudaContext::primary(Driver::load().unwrap().device(0).unwrap()).unwrap();
        test(&Kernels::new(&context).unwrap());
    }
    assert!(emulator.faults().is_empty(), "{:?}", emulator.faults());
    emulator.check_leaks().unwrap();
}

/// Ids that no text has, but any of which the model takes.
fn ids(n_vocab: usize, n: u32) -> Vec<u32> {
    (0..n).map(|i| (i * i * 31 + i * 17 + 5) % n_vocab as u32).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

fn greedy(logits: &[f32]) -> u32 {
    (0..logits.len() as u32).max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize])).unwrap()
}

/// How far two rows of logits are apart: the divergence of the first from the second, in nats.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let log_softmax = |x: &[f32]| -> Vec<f64> {
        let max = x.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(f64::from(x)));
        let sum: f64 = x.iter().map(|&x| (f64::from(x) - max).exp()).sum();
        x.iter().map(|&x| f64::from(x) - max - sum.ln()).collect()
    };
    let (p, q) = (log_softmax(p), log_softmax(q));
    p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// A prompt and then four greedy tokens, on the device and with f32 activations on the CPU: logits within `bound` nats, and the
/// same tokens where the CPU's best two are further apart than the rounding moves them.
fn beside_the_cpu(gguf: &Gguf, prompt: &[u32], options: CudaOptions, bound: f64) {
    let model = Model::from_gguf(gguf).unwrap();
    let pool = ThreadPool::new(2).unwrap();
    let cpu = SessionOptions {
        activations: ActivationType::F32,
        kv_type: halfbyte_attention::KvType::F32,
        ..SessionOptions::new(options.context)
    };
    let mut cpu = Session::new(&model, Context::new(&pool).unwrap(), cpu).unwrap();
    on_emulator(7, |kernels| {
        let cuda = CudaModel::new(kernels, &model).unwrap();
        println!("{:?}", cuda.formats());
        let mut session = CudaSession::new(&cuda, options).unwrap();
        let mut next = prompt.to_vec();
        for step in 0..5 {
            let expected = cpu.feed(&next).unwrap().to_vec();
            let got = if step == 0 { session.prompt(&next) } else { session.window(&next) }.unwrap();
            let apart = divergence(&expected, got);
            let best = greedy(&expected);
            let mut sorted = expected.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let moved = expected.iter().zip(&*got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            println!(
                "step {step}: {apart:.2e} nats, logits moved by up to {moved:.3}, gap {}",
                sorted[0] - sorted[1]
            );
            assert!(apart < bound, "step {step}: {apart} nats");
            if sorted[0] - sorted[1] > 2.0 * moved {
                assert_eq!(greedy(got), best, "step {step}");
            }
            next = vec![best];
        }
        assert_eq!(session.len(), prompt.len() + 4);
    });
}

#[test]
fn a_small_model_computes_what_it_computes_on_the_cpu() {
    let gguf = embedded::gguf().unwrap();
    let prompt = ids(Model::from_gguf(&gguf).unwrap().config().n_vocab, 16);
    let options = CudaOptions::new(64);
    beside_the_cpu(&gguf, &prompt, options, 2e-3);
    let int8 = CudaOptions { prompt_precision: PromptPrecision::Int8, ..options };
    beside_the_cpu(&gguf, &prompt, int8, 2e-2);
    let fp8 = CudaOptions { kv_format: KvFormat::Fp8, ..options };
    beside_the_cpu(&gguf, &prompt, fp8, 2e-2);
}

#[test]
fn neither_chunks_nor_windows_change_a_bit() {
    let gguf = embedded::gguf().unwrap();
    let model = Model::from_gguf(&gguf).unwrap();
    let text = ids(model.config().n_vocab, 41);
    on_emulator(8, |kernels| {
        let cuda = CudaModel::new(kernels, &model).unwrap();
        let session = |chunk| CudaSession::new(&cuda, CudaOptions { chunk, ..CudaOptions::new(64) }).unwrap();
        let mut whole = session(64);
        let mut rows = Vec::new();
        whole
            .prompt_all(&text[..33], |i, logits| {
                assert_eq!(i, rows.len());
                rows.push(bits(logits));
            })
            .unwrap();
        for chunk in [1, 7, 32] {
            let mut parts = session(chunk);
            let logits = bits(parts.prompt(&text[..33]).unwrap());
            assert_eq!(logits, rows[32], "chunks of {chunk}");
        }
        // A window of eight, and the same tokens one by one and in other windows.
        let n_vocab = model.config().n_vocab;
        let window: Vec<_> = whole.window(&text[33..]).unwrap().chunks_exact(n_vocab).map(bits).collect();
        for sizes in [&[1; 8][..], &[3, 1, 4]] {
            whole.truncate(33);
            let mut at = 33;
            for &size in sizes {
                let rows = whole.window(&text[at..at + size]).unwrap().chunks_exact(n_vocab).map(bits);
                for (i, row) in rows.enumerate() {
                    assert_eq!(row, window[at - 33 + i], "windows of {sizes:?}");
                }
                at += size;
            }
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_lost() {
    let gguf = embedded::gguf().unwrap();
    let model = Model::from_gguf(&gguf).unwrap();
    let n_vocab = model.config().n_vocab;
    on_emulator(9, |kernels| {
        let cuda = CudaModel::new(kernels, &model).unwrap();
        let mut session = CudaSession::new(&cuda, CudaOptions::new(40)).unwrap();
        let text = ids(n_vocab, 41);
        let error = session.prompt(&text).unwrap_err();
        assert!(matches!(error, Error::ContextFull { used: 0, wanted: 41, context: 40 }), "{error}");
        let error = session.prompt(&[0, n_vocab as u32]).unwrap_err();
        assert!(matches!(error, Error::Token { .. }), "{error}");
        assert!(matches!(session.window(&[]).unwrap_err(), Error::NoTokens));
        let error = session.window(&text[..33]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a window's number of tokens is 33: on a CUDA device expected at most 32"
        );
        assert!(session.is_empty());
        let trained = model.config().context;
        let error = CudaSession::new(&cuda, CudaOptions::new(trained + 1)).unwrap_err();
        assert!(matches!(error, Error::Context { .. }), "{error}");
        // The profiler counts what ran.
        session.watch();
        session.prompt(&text[..4]).unwrap();
        let report = session.profile().unwrap();
        let calls = |name: &str| -> u64 {
            report.rows.iter().filter(|row| row.kernel.starts_with(name)).map(|row| row.calls).sum()
        };
        assert_eq!(calls("attention_prefill"), model.config().n_layers as u64, "{report}");
        assert_eq!(calls("swiglu"), model.config().n_layers as u64, "{report}");
        // Sums come with what they are of, but for attention's output.
        assert_eq!(calls("group_sums"), model.config().n_layers as u64, "{report}");
    });
}
