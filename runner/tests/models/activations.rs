//! What rounding activations does to SmolLM2's replies, beside replies and logits that were computed in float64.

use std::ops::ControlFlow;
use std::path::Path;

use crate::common::recorded::{EXACT, argmax, cases, ids};
use halfbyte::model::{ActivationType, Compute, CpuSession, SessionOptions, Transformer};
use halfbyte::requantize::{Encoding, Plan};
use halfbyte::{Model, source};
use halfbyte_attention::KvType;
use halfbyte_gguf::GgufWriter;
use halfbyte_testing::{golden, smollm2};
use halfbyte_tokenizer::chat::{Message, Role};

/// Which questions are asked of each kind of activations (every second, or every fourth or eighth of 40), and how many get
/// the whole reply that float64 arithmetic gives. The bits are the same everywhere, so the numbers are, too. Of all 40,
/// int8 gets 17, auto 29, int16 39 and f32 40.
const EQUAL: [(ActivationType, usize, usize); 4] = [
    (ActivationType::Int8, 4, 4),
    (ActivationType::Auto, 2, 13),
    (ActivationType::Int16, 4, 10),
    (ActivationType::F32, 8, 5),
];

#[test]
fn questions_get_the_replies_of_float64_arithmetic() {
    let Some(path) = smollm2() else { return };
    let model = Transformer::new(source::open(&path).unwrap()).unwrap();
    let compute = Compute::new(2).unwrap();
    let model = model.pack(&compute).unwrap();
    let questions = golden("questions.json");
    let questions = questions.as_array().unwrap();
    assert_eq!(questions.len(), 40);
    let counted = EQUAL.map(|(activations, step, _)| {
        let kv_type = activations.default_kv_type();
        let options = SessionOptions { activations, kv_type, ..EXACT };
        let (mut equal, mut shared, mut all) = (0, 0, 0);
        for question in questions.iter().step_by(step) {
            let reply = ids(&question["reply"]);
            let mut session = CpuSession::new(&model, &compute, options).unwrap();
            let mut best = argmax(session.feed(&ids(&question["ids"])).unwrap());
            let mut same = 0;
            for &want in &reply {
                if best != want {
                    break;
                }
                same += 1;
                best = argmax(session.feed(&[best]).unwrap());
            }
            (shared, all) = (shared + same, all + reply.len());
            equal += usize::from(same == reply.len());
        }
        let asked = 40 / step;
        println!(
            "{}: {equal} of {asked} replies equal, {shared} of {all} tokens before a difference",
            activations.name()
        );
        (activations, step, equal)
    });
    assert_eq!(counted, EQUAL, "the activations, every which question, and how many replies are equal");
}

/// The default answers as arithmetic without rounding does, from files that round weights in different ways.
#[test]
fn the_capital_of_france_is_paris() {
    let Some(path) = smollm2() else { return };
    let directory = tempfile::tempdir().unwrap();
    let q8_0 = directory.path().join("q8_0.gguf");
    requantize(Path::new(&path), "q8_0", &q8_0);
    for path in [Path::new(&path), &q8_0] {
        let model = Model::options().threads(2).context(512).load(path).unwrap();
        let question = Message { role: Role::User, content: "What is the capital of France?".into() };
        let request = halfbyte::generate::Request { max_tokens: 30, ..model.chat(&[question]).unwrap() };
        let (reply, _) = model.scheduler(1).unwrap().submit(request).text().unwrap();
        assert_eq!(reply, "The capital of France is Paris.", "{}", path.display());
    }
}

/// Writes the model with all matrices in another type.
fn requantize(from: &Path, encoding: &str, to: &Path) {
    let compute = Compute::new(2).unwrap();
    let file = source::open(from).unwrap();
    let plan = Plan::new(&**file, encoding.parse::<Encoding>().unwrap(), &[]).unwrap();
    let mut writer = GgufWriter::create(to, plan.metadata(), plan.tensors()).unwrap();
    plan.write(compute.context(), &mut writer, &(), |_| ControlFlow::Continue(())).unwrap().unwrap();
    writer.commit().unwrap();
}

/// The mean divergence from our own f32 logits, which other tests hold to recorded ones, on the recorded prompts.
#[test]
fn each_kind_keeps_its_distance_from_f32() {
    let Some(path) = smollm2() else { return };
    let compute = Compute::new(2).unwrap();
    let model = Transformer::new(source::open(&path).unwrap()).unwrap().pack(&compute).unwrap();
    let logits = |activations, kv_type, ids: &[u32]| {
        let options = SessionOptions { activations, kv_type, ..EXACT };
        crate::common::recorded::all_logits(&mut CpuSession::new(&model, &compute, options).unwrap(), ids)
    };
    let mut means = Vec::new();
    for activations in [ActivationType::Int8, ActivationType::Auto, ActivationType::Int16] {
        let (mut sum, mut n) = (0.0, 0);
        for (_, prompt, ..) in cases("smollm2_logits.json") {
            let exact = logits(ActivationType::F32, KvType::F32, &prompt);
            for (p, q) in exact.iter().zip(logits(activations, KvType::F16, &prompt)) {
                (sum, n) = (sum + divergence(p, &q), n + 1);
            }
        }
        let mean = sum / f64::from(n);
        println!("{}: mean KL {mean:.7} over {n} positions", activations.name());
        means.push(mean);
    }
    assert!(means[0] < 0.01 && means[1] < 0.0015 && means[2] < 1e-5, "{means:?}");
}

/// The Kullback-Leibler divergence of two rows of logits, in nats.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let [p_sum, q_sum] = [p, q].map(crate::common::recorded::logsumexp);
    let term = |(&p, &q): (&f32, &f32)| {
        let log_p = f64::from(p) - p_sum;
        log_p.exp() * (log_p - (f64::from(q) - q_sum))
    };
    p.iter().zip(q).map(term).sum()
}
