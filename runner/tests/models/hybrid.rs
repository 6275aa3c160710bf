//! Qwen3.5's and LFM2's layers, recurrent ones among them, against mlx-lm and llama.cpp: cut anywhere, saved, restored, batched.

use std::path::PathBuf;
use std::sync::Arc;

use halfbyte::model::{
    ActivationType, Batch, Compute, CpuSession, Part, Row, Rows, Sequence, SessionOptions, Transformer,
};
use halfbyte::source::{self, ModelFile};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_testing::golden;

const EXACT: SessionOptions =
    SessionOptions { context: 64, activations: ActivationType::F32, kv_type: KvType::F32, chunk: 5 };

pub(crate) const NAMES: [&str; 13] = [
    "hf_qwen35",
    "mlx_qwen35",
    "qwen35.gguf",
    "hf_qwen35moe",
    "mlx_qwen35moe",
    "qwen35moe.gguf",
    "hf_lfm2",
    "mlx_lfm2",
    "lfm2.gguf",
    "lfm2_window.gguf",
    "hf_lfm2moe",
    "mlx_lfm2moe",
    "lfm2moe.gguf",
];

/// The folder of a model, and the stem of its recorded logits.
fn family(name: &str) -> &'static str {
    if name.contains("lfm2") { "lfm2" } else { "hybrid" }
}

pub(crate) fn open(name: &str) -> Arc<ModelFile> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens").join(family(name));
    source::open(&folder.join(name)).unwrap()
}

fn model(name: &str) -> Transformer {
    Transformer::new(open(name)).unwrap()
}

/// The ids of all recorded logits.
fn ids() -> Vec<u32> {
    serde_json::from_value(golden("hybrid.json")["ids"].clone()).unwrap()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The logits after every token, which are fed in parts of `part`.
fn logits(model: &Transformer, compute: &Compute, options: SessionOptions, part: usize) -> Vec<f32> {
    let mut session = CpuSession::new(model, compute, options).unwrap();
    let mut all = Vec::new();
    for ids in ids().chunks(part) {
        session.feed_all(ids, |_, logits| all.extend_from_slice(logits)).unwrap();
    }
    all
}

#[test]
fn logits_are_those_of_mlx_and_llama_cpp_wherever_the_prompt_is_cut() {
    for name in NAMES {
        let golden = golden(&format!("{}.json", family(name)));
        assert_eq!(golden["ids"], serde_json::json!(ids()));
        let model = model(name);
        let want: Vec<Vec<f64>> = serde_json::from_value(golden["logits"][name].clone()).unwrap();
        let want = want.concat();
        let whole = logits(&model, &Compute::new(2).unwrap(), EXACT, ids().len());
        assert_eq!(whole.len(), want.len());
        let worst =
            whole.iter().zip(&want).map(|(&got, want)| (f64::from(got) - want).abs()).fold(0.0, f64::max);
        println!("{name}: {worst:e}");
        // Logits reach 17; both programs round in f32, in other orders.
        assert!(worst < 2e-4, "{name}: {worst}");
        for isa in Isa::available() {
            for (threads, part, chunk) in [(1, 1, 5), (2, 2, 5), (3, 7, 64), (2, 24, 3)] {
                let compute = Compute::new(threads).unwrap().with_isa(isa);
                let got = logits(&model, &compute, SessionOptions { chunk, ..EXACT }, part);
                assert_eq!(bits(&got), bits(&whole), "{name}, {isa}, {threads} threads, parts of {part}");
            }
        }
    }
}

#[test]
fn integer_activations_give_the_same_bits_cut_anywhere_and_packed() {
    for name in NAMES {
        let compute = Compute::new(2).unwrap();
        for activations in ActivationType::ALL {
            let options = SessionOptions { activations, ..EXACT };
            let whole = logits(&model(name), &compute, options, 24);
            assert_eq!(bits(&logits(&model(name), &compute, options, 3)), bits(&whole), "{name}");
            let packed = model(name).pack(&compute).unwrap();
            assert_eq!(bits(&logits(&packed, &compute, options, 24)), bits(&whole), "{name}");
        }
    }
}

#[test]
fn states_are_saved_restored_and_rewound_but_not_cut() {
    for name in ["qwen35.gguf", "lfm2.gguf", "mlx_lfm2", "lfm2moe.gguf"] {
        state_is_saved_restored_and_rewound_but_not_cut(name);
    }
}

fn state_is_saved_restored_and_rewound_but_not_cut(name: &str) {
    let (model, compute, ids) = (model(name), Compute::new(2).unwrap(), ids());
    let mut session = CpuSession::new(&model, &compute, EXACT).unwrap();
    let whole = bits(session.feed(&ids).unwrap());
    assert!(!session.can_cut());
    let error = session.cut(7).unwrap_err().to_string();
    assert_eq!(
        error,
        "the state of 24 tokens cannot be cut back to 7: it has to be restored from an earlier copy"
    );
    assert_eq!(session.len(), 24);
    session.cut(0).unwrap();
    // Prompts shorter than the convolution, and empty states.
    for n in [1, 2, 3, 9] {
        session.cut(0).unwrap();
        session.feed(&ids[..n]).unwrap();
        let (saved, mark) = (session.save().unwrap(), session.mark().unwrap());
        assert_eq!((saved.len(), mark.len()), (n, n));
        assert!(mark.bytes() < saved.bytes());
        assert_eq!(bits(session.feed(&ids[n..]).unwrap()), whole, "{n}");
        session.rewind(&mark).unwrap();
        assert_eq!(session.len(), n);
        assert_eq!(bits(session.feed(&ids[n..]).unwrap()), whole, "{n}, rewound");
        // Other tokens in between are gone after the restoration, also in another session.
        session.cut(0).unwrap();
        session.feed(&[1; 20]).unwrap();
        session.restore(&saved).unwrap();
        assert_eq!(bits(session.feed(&ids[n..]).unwrap()), whole, "{n}, restored");
        let mut other = CpuSession::new(&model, &compute, SessionOptions { context: 40, ..EXACT }).unwrap();
        // A mark lacks the keys and values.
        assert!(other.rewind(&mark).is_err() && other.restore(&mark).is_err());
        assert_eq!(other.len(), 0);
        other.restore(&saved).unwrap();
        assert_eq!(bits(other.feed(&ids[n..]).unwrap()), whole, "{n}, in another session");
    }
}

#[test]
fn a_held_state_gives_back_the_tokens_of_a_window() {
    let (compute, ids) = (Compute::new(2).unwrap(), ids());
    for name in NAMES {
        let model = model(name);
        let mut session = CpuSession::new(&model, &compute, EXACT).unwrap();
        let whole = bits(session.feed(&ids).unwrap());
        // Windows shorter and longer than the convolution, and than a chunk of the session.
        for start in [1, 2, 8] {
            for kept in [0, 1, 2, 3, 7] {
                session.cut(0).unwrap();
                session.feed(&ids[..start]).unwrap();
                assert!(session.hold());
                if kept > 0 {
                    session.window(&ids[start..start + kept], &mut |_, _| ()).unwrap();
                }
                session.window(&[9, 9, 9, 9, 9, 9, 9], &mut |_, _| ()).unwrap();
                assert!(start == 1 || session.cut(start - 1).is_err());
                session.cut(start + kept).unwrap();
                assert_eq!(session.len(), start + kept);
                // Once more, with other wrong tokens.
                session.window(&[3, 4], &mut |_, _| ()).unwrap();
                session.cut(start + kept).unwrap();
                assert_eq!(
                    bits(session.feed(&ids[start + kept..]).unwrap()),
                    whole,
                    "{name}, {start}, {kept}"
                );
            }
        }
        // A restored state holds nothing.
        session.cut(0).unwrap();
        session.feed(&ids[..2]).unwrap();
        assert!(session.hold());
        session.restore(&session.save().unwrap()).unwrap();
        session.feed(&ids[2..4]).unwrap();
        assert!(session.cut(3).is_err());
    }
    let options = SessionOptions { context: 64, chunk: 64, ..EXACT };
    for name in ["qwen35.gguf", "lfm2.gguf"] {
        let mut session = CpuSession::new(&model(name), &compute, options).unwrap();
        assert!(session.hold());
        session.feed(&[1; 63]).unwrap();
        session.cut(5).unwrap();
        session.feed(&[2; 59]).unwrap();
        assert_eq!(session.len(), 64);
        session.cut(5).unwrap();
    }
}

#[test]
fn batches_have_the_bits_of_single_sequences() {
    for name in ["hf_qwen35", "hf_lfm2", "mlx_lfm2", "hf_lfm2moe"] {
        batch_has_the_bits_of_single_sequences(name);
    }
}

fn batch_has_the_bits_of_single_sequences(name: &str) {
    let (model, compute, ids) = (model(name), Compute::new(2).unwrap(), ids());
    let starts = [0, 1, 2, 5, 9];
    let mut sessions: Vec<CpuSession> = starts
        .iter()
        .map(|&n| {
            let mut session = CpuSession::new(&model, &compute, EXACT).unwrap();
            if n > 0 {
                session.feed(&ids[..n]).unwrap();
            }
            session
        })
        .collect();
    let mut parts: Vec<Part<'_>> = sessions
        .iter_mut()
        .zip(starts)
        .map(|(sequence, n)| Part { sequence, ids: &ids[n..n + 4], rows: Rows::All, greedy: false })
        .collect();
    let mut got = vec![Vec::new(); starts.len()];
    Batch::default()
        .feed(&mut parts, |i, _, row| {
            if let Row::Logits(logits) = row {
                got[i].extend(bits(logits));
            }
        })
        .unwrap();
    for (n, got) in starts.into_iter().zip(got) {
        let mut alone = CpuSession::new(&model, &compute, EXACT).unwrap();
        let mut want = Vec::new();
        alone
            .feed_all(&ids[..n + 4], |i, logits| {
                if i >= n {
                    want.extend(bits(logits))
                }
            })
            .unwrap();
        assert_eq!(got, want, "{name}, behind {n} tokens");
    }
}
