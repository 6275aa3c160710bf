//! Logits that were recorded in float64, and how a model is compared with them.

use halfbyte::model::{ActivationType, Compute, CpuSession, SessionOptions, Transformer};
use halfbyte_attention::KvType;
use halfbyte_testing::golden;
use serde_json::Value;

/// f32 all the way, as the recorded values were made.
pub(crate) const EXACT: SessionOptions =
    SessionOptions { context: 512, activations: ActivationType::F32, kv_type: KvType::F32, chunk: 256 };
pub(crate) fn ids(v: &Value) -> Vec<u32> {
    v.as_array().expect("an array of ids").iter().map(|v| v.as_u64().expect("an id") as u32).collect()
}

pub(crate) fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().expect("an array").iter().map(|v| v.as_f64().expect("a number")).collect()
}

pub(crate) fn logsumexp(logits: &[f32]) -> f64 {
    let top = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    top + logits.iter().map(|&l| (f64::from(l) - top).exp()).sum::<f64>().ln()
}

pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, &l) in logits.iter().enumerate() {
        if l > logits[best] {
            best = i;
        }
    }
    best as u32
}

/// Logits after every one of `ids`.
pub(crate) fn all_logits(session: &mut CpuSession, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut out = Vec::new();
    session
        .feed_all(ids, |i, logits| {
            assert_eq!(i, out.len());
            out.push(logits.to_vec());
        })
        .expect("the prompt fits");
    out
}

/// Every prompt of the golden file, with the positions that it lists: (name, ids, [(index, record)], greedy, gaps).
pub(crate) type Case = (String, Vec<u32>, Vec<(usize, Value)>, Vec<u32>, Vec<f64>);

/// The cases in `goldens/NAME`.
pub(crate) fn cases(name: &str) -> Vec<Case> {
    let golden = golden(name);
    let mut cases = Vec::new();
    for c in golden["completions"].as_array().expect("completions") {
        let positions = c["positions"].as_array().expect("positions").iter().cloned().enumerate().collect();
        let name = c["prompt"].as_str().expect("a prompt").to_owned();
        cases.push((name, ids(&c["ids"]), positions, ids(&c["greedy_24"]), numbers(&c["greedy_gaps"])));
    }
    for c in golden["chats"].as_array().into_iter().flatten() {
        let prompt = ids(&c["ids"]);
        let last = vec![(prompt.len() - 1, c["last"].clone())];
        let name = c["messages"].to_string();
        cases.push((name, prompt, last, ids(&c["greedy_24"]), numbers(&c["greedy_gaps"])));
    }
    assert!(!cases.is_empty());
    cases
}

/// The largest difference from float64 arithmetic that README.md promises for f32 activations.
const BOUND: f64 = 6e-5;

/// f32 activations give every recorded logit within [`BOUND`], and the recorded continuations as far as they are clear.
pub(crate) fn assert_recorded_logits(model: &Transformer, ctx: &Compute, golden: &str) {
    let mut worst = (0f64, String::new());
    for (name, prompt, positions, greedy, gaps) in cases(golden) {
        let mut session = CpuSession::new(model, ctx, EXACT).expect("a session");
        let logits = all_logits(&mut session, &prompt);
        for (at, record) in positions {
            let logits = &logits[at];
            let mut check = |what: &str, got: f64, want: f64| {
                let difference = (got - want).abs();
                assert!(difference < BOUND, "{name:?}, position {at}: {what} is {got}, recorded {want}");
                if difference > worst.0 {
                    worst = (difference, format!("{name:?}, position {at}, {what}"));
                }
            };
            for (id, want) in ids(&record["top_ids"]).into_iter().zip(numbers(&record["top_logits"])) {
                check(&format!("logit {id}"), f64::from(logits[id as usize]), want);
            }
            check("logsumexp", logsumexp(logits), record["logsumexp"].as_f64().expect("a number"));
            // The norm of all logits: an error in any that the top ten do not show.
            let norm = logits.iter().map(|&l| f64::from(l).powi(2)).sum::<f64>().sqrt();
            let want = record["l2"].as_f64().expect("a number");
            assert!(
                (norm / want - 1.0).abs() < 1e-4,
                "{name:?}, position {at}: norm {norm}, recorded {want}"
            );
        }
        let mut next = argmax(&logits[prompt.len() - 1]);
        for (i, (&want, &gap)) in greedy.iter().zip(&gaps).enumerate() {
            if next != want {
                assert!(gap <= 0.01, "{name:?}: greedy token {i} is {next}, recorded {want} by {gap}");
                break;
            }
            next = argmax(session.feed(&[next]).expect("the reply fits"));
        }
    }
    println!("largest difference from the recorded values: {:.2e} ({})", worst.0, worst.1);
}
