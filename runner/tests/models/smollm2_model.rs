//! SmolLM2-135M against logits that were computed in float64 from the same file, and against itself: the same
//! bits whatever the threads, the chunks and the ISA path.

use crate::common::recorded::{
    EXACT, all_logits, argmax, assert_recorded_logits, cases, ids, logsumexp, numbers,
};
use halfbyte::model::{ActivationType, Compute, CpuSession, SessionOptions};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_gguf::Gguf;
use halfbyte_testing::smollm2;

const INT8: SessionOptions =
    SessionOptions { activations: ActivationType::Int8, kv_type: KvType::F16, ..EXACT };

const AUTO: SessionOptions = SessionOptions { activations: ActivationType::Auto, ..INT8 };

#[test]
fn f32_activations_give_the_recorded_logits_and_continuations() {
    let Some(path) = smollm2() else { return };
    let gguf = Gguf::open(path).expect("the model opens");
    let model = crate::common::transformer(&gguf).expect("the model loads");
    let pool = Compute::new(2).expect("a pool");
    let ctx = pool.clone().with_isa(Isa::fastest());
    assert_recorded_logits(&model, &ctx, "smollm2_logits.json");
}

#[test]
fn int8_activations_stay_close_to_the_recorded_logits() {
    let Some(path) = smollm2() else { return };
    let gguf = Gguf::open(path).expect("the model opens");
    let model = crate::common::transformer(&gguf).expect("the model loads");
    let pool = Compute::new(2).expect("a pool");
    let ctx = pool.clone().with_isa(Isa::fastest());
    let (mut sum_listed, mut sum_full, mut n) = (0.0, 0.0, 0);
    for (name, prompt, positions, ..) in cases("smollm2_logits.json") {
        let mut session = CpuSession::new(&model, &ctx, INT8).expect("a session");
        let logits = all_logits(&mut session, &prompt);
        let exact = all_logits(&mut CpuSession::new(&model, &ctx, EXACT).expect("a session"), &prompt);
        for (at, record) in positions {
            let lse = logsumexp(&logits[at]);
            let want_lse = record["logsumexp"].as_f64().expect("a number");
            let (want_ids, want) = (ids(&record["top_ids"]), numbers(&record["top_logits"]));
            // The listed tokens, and all others as one: a lower bound of the divergence.
            let (mut kl, mut p_rest, mut q_rest) = (0.0, 1.0, 1.0);
            for (&id, want) in want_ids.iter().zip(&want) {
                let (log_p, log_q) = (want - want_lse, f64::from(logits[at][id as usize]) - lse);
                kl += log_p.exp() * (log_p - log_q);
                p_rest -= log_p.exp();
                q_rest -= log_q.exp();
            }
            sum_listed += kl + p_rest * (p_rest / q_rest).ln();
            // The whole divergence from our own f32 logits, which the test above holds to the recorded ones.
            let exact_lse = logsumexp(&exact[at]);
            sum_full += exact[at]
                .iter()
                .zip(&logits[at])
                .map(|(&p, &q)| {
                    let log_p = f64::from(p) - exact_lse;
                    log_p.exp() * (log_p - (f64::from(q) - lse))
                })
                .sum::<f64>();
            n += 1;
            if want[0] - want[1] > 1.0 {
                assert_eq!(argmax(&logits[at]), want_ids[0], "{name:?}, position {at}");
            }
        }
    }
    let (listed, full) = (sum_listed / f64::from(n), sum_full / f64::from(n));
    println!("mean KL over {n} positions: {full:.5} whole, {listed:.5} by the listed tokens");
    // README.md promises 0.004.
    assert!(listed < 0.004 && full < 0.004, "mean KL {full} (whole), {listed} (listed)");
}

/// A prompt of some length with every kind of token.
fn long_prompt() -> Vec<u32> {
    (0..70u32).map(|i| i.wrapping_mul(2_654_435_761) % 49_152).collect()
}

#[test]
fn the_same_bits_for_any_threads_chunks_and_isa() {
    let Some(path) = smollm2() else { return };
    let gguf = Gguf::open(path).expect("the model opens");
    let model = crate::common::transformer(&gguf).expect("the model loads");
    let prompt = long_prompt();
    for options in [AUTO, EXACT] {
        let bits = |threads: usize, chunks: &[usize], isa: Isa| {
            let pool = Compute::new(threads).expect("a pool");
            let mut session =
                CpuSession::new(&model, &pool.clone().with_isa(isa), options).expect("a session");
            let mut at = 0;
            for &n in chunks.iter().cycle() {
                let n = n.min(prompt.len() - 1 - at);
                if n == 0 {
                    break;
                }
                session.feed(&prompt[at..at + n]).expect("the prompt fits");
                at += n;
            }
            let last = session.feed(&prompt[at..]).expect("the prompt fits");
            last.iter().map(|l| l.to_bits()).collect::<Vec<_>>()
        };
        let expected = bits(1, &[prompt.len()], Isa::fastest());
        assert!(expected.iter().any(|&b| b != expected[0]), "logits that differ");
        for (threads, chunks) in
            [(2, vec![70]), (3, vec![70]), (2, vec![1]), (3, vec![7, 2, 1, 16]), (1, vec![33])]
        {
            assert!(
                bits(threads, &chunks, Isa::fastest()) == expected,
                "{threads} threads, chunks of {chunks:?}"
            );
        }
        for isa in Isa::available() {
            // The scalar path is slow, and with the others it is the same claim.
            if isa != Isa::scalar() || options.activations != ActivationType::F32 {
                assert!(bits(2, &[prompt.len()], isa) == expected, "{isa} differs from {}", Isa::fastest());
            }
        }
    }
}

#[test]
fn truncating_and_feeding_again_gives_the_same_bits() {
    let Some(path) = smollm2() else { return };
    let gguf = Gguf::open(path).expect("the model opens");
    let model = crate::common::transformer(&gguf).expect("the model loads");
    let pool = Compute::new(2).expect("a pool");
    let ctx = pool.clone().with_isa(Isa::fastest());
    let prompt = long_prompt();
    let mut session = CpuSession::new(&model, &ctx, INT8).expect("a session");
    let first = session.feed(&prompt[..40]).expect("fits").to_vec();
    session.feed(&prompt[40..60]).expect("fits");
    session.cut(20).unwrap();
    assert_eq!((session.len(), session.room()), (20, 492));
    assert!(session.feed(&prompt[20..40]).expect("fits") == first);
}

#[test]
fn impossible_requests_are_refused_and_change_nothing() {
    let Some(path) = smollm2() else { return };
    let gguf = Gguf::open(path).expect("the model opens");
    let model = crate::common::transformer(&gguf).expect("the model loads");
    let pool = Compute::new(1).expect("a pool");
    let ctx = pool.clone().with_isa(Isa::fastest());
    let message = |r: Result<&mut [f32], halfbyte::model::Error>| r.expect_err("refused").to_string();
    let mut session =
        CpuSession::new(&model, &ctx, SessionOptions { context: 4, ..INT8 }).expect("a session");
    session.feed(&[1, 2, 3]).expect("three fit");
    assert_eq!(message(session.feed(&[1, 2])), "2 tokens do not fit in a context of 4 (3 are used)");
    assert_eq!(message(session.feed(&[49_152])), "token id 49152 is outside the vocabulary of 49152");
    assert_eq!(message(session.feed(&[])), "no tokens to feed: at least 1 is needed");
    assert_eq!(session.len(), 3);
    let too_long = CpuSession::new(&model, &ctx, SessionOptions { context: 1 << 20, ..INT8 });
    assert_eq!(
        too_long.map(|_| ()).expect_err("refused").to_string(),
        "a context of 1048576 was asked for; the model is trained for up to 8192, the least is 1"
    );
}
