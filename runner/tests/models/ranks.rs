//! A model on several ranks, here threads that channels connect: the bits are those of one process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use halfbyte::model::{
    ActivationType, Compute, CpuSession, Error, Leader, Ranks, Sequence, SessionOptions, Transformer, agree,
    follow,
};
use halfbyte::source::{self, ModelFile};
use halfbyte_gguf::{Gguf, GgufWriter, TensorInfo, TensorType};

/// A rank that is a thread.
#[derive(Debug)]
struct Thread {
    rank: usize,
    /// To each rank; none after a failure.
    to: Mutex<Vec<Sender<Vec<u8>>>>,
    /// From each rank.
    from: Vec<Mutex<Receiver<Vec<u8>>>>,
    failure: Mutex<Option<String>>,
}

impl Thread {
    /// `count` ranks that are connected.
    fn connected(count: usize) -> Vec<Self> {
        let mut to: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        let mut from: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for sending in &mut to {
            for receiving in &mut from {
                let (sender, receiver) = channel();
                sending.push(sender);
                receiving.push(Mutex::new(receiver));
            }
        }
        let ends = to.into_iter().zip(from).enumerate();
        ends.map(|(rank, (to, from))| Self { rank, to: Mutex::new(to), from, failure: Mutex::new(None) })
            .collect()
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Error> {
        let why = || Error::Link { why: format!("rank {to} is gone") };
        let senders = self.to.lock().unwrap();
        senders.get(to).and_then(|sender| sender.send(bytes.to_vec()).ok()).ok_or_else(why)
    }

    fn receive(&self, from: usize) -> Result<Vec<u8>, Error> {
        let received = self.from[from].lock().unwrap().recv();
        received.map_err(|_| Error::Link { why: format!("rank {from} is gone") })
    }
}

impl Ranks for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.from.len()
    }

    fn all_gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]) -> Result<(), Error> {
        assert_eq!((own.len(), all.len()), (counts[self.rank], counts.iter().sum()));
        (0..self.count()).try_for_each(|to| self.send(to, bytemuck::cast_slice(own)))?;
        self.take(counts, all)
    }

    fn gather(&self, own: &[f32], counts: &[usize], all: &mut [f32]) -> Result<(), Error> {
        self.send(0, bytemuck::cast_slice(own))?;
        if self.rank > 0 {
            assert!(all.is_empty());
            return Ok(());
        }
        self.take(counts, all)
    }

    fn broadcast(&self, from: usize, message: &mut Vec<u8>) -> Result<(), Error> {
        if self.rank == from {
            (0..self.count()).try_for_each(|to| self.send(to, message))?;
        }
        *message = self.receive(from)?;
        Ok(())
    }

    fn fail(&self, why: &str) {
        *self.failure.lock().unwrap() = Some(why.to_owned());
        self.to.lock().unwrap().clear();
    }
}

impl Thread {
    fn take(&self, counts: &[usize], mut all: &mut [f32]) -> Result<(), Error> {
        for (from, &count) in counts.iter().enumerate() {
            let (part, rest) = all.split_at_mut(count);
            bytemuck::cast_slice_mut(part).copy_from_slice(&self.receive(from)?);
            all = rest;
        }
        Ok(())
    }
}

/// What each of `count` ranks gives.
fn on_ranks<T: Send>(count: usize, each: impl Fn(&Arc<Thread>) -> T + Sync) -> Vec<T> {
    let ranks = Thread::connected(count);
    std::thread::scope(|scope| {
        let running: Vec<_> = ranks
            .into_iter()
            .map(|rank| {
                let each = &each;
                scope.spawn(move || each(&Arc::new(rank)))
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn golden(name: &str) -> Arc<ModelFile> {
    source::open(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens").join(name)).unwrap()
}

/// A model with three heads of keys and values, as SmolLM2's: two ranks can't have as many.
fn three_heads() -> Arc<ModelFile> {
    let like = golden("tiny_llama_linear.gguf");
    let mut metadata = like.metadata().clone();
    for (key, value) in [("head_count", 6u32), ("head_count_kv", 3), ("key_length", 8), ("value_length", 8)] {
        metadata.set(format!("llama.attention.{key}"), value);
    }
    let info = |info: &TensorInfo| {
        let (outputs, inputs) = match info.name.split('.').rev().nth(1) {
            Some("attn_q") => (48, 32),
            Some("attn_k" | "attn_v") => (24, 32),
            Some("attn_output") => (32, 48),
            _ => return TensorInfo::new(&info.name, TensorType::F32, &info.dims).unwrap(),
        };
        TensorInfo::new(&info.name, TensorType::F32, &[inputs, outputs]).unwrap()
    };
    let infos: Vec<TensorInfo> = like.tensors().iter().map(info).collect();
    let mut writer = GgufWriter::new(Vec::new(), &metadata, &infos).unwrap();
    let mut state = 7u32;
    println!("seed {state}");
    let mut random = || {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    for info in &infos {
        let values: Vec<f32> = (0..info.dims.iter().product::<usize>()).map(|_| random()).collect();
        writer.write_tensor(&info.name, bytemuck::cast_slice(&values)).unwrap();
    }
    Arc::new(Gguf::from_vec(writer.finish().unwrap()).unwrap().into())
}

/// A prompt in chunks, a reply with drafts of which some are dropped, all logits.
fn logits(context: &mut dyn Sequence) -> Vec<f32> {
    let mut all = context.prompt(&[5, 40, 9, 33, 2, 1, 44]).unwrap().to_vec();
    context.window(&[12, 17, 7], &mut |_, logits| all.extend_from_slice(logits)).unwrap();
    context.cut(8).unwrap();
    for id in [3, 29] {
        context.window(&[id], &mut |_, logits| all.extend_from_slice(logits)).unwrap();
    }
    all
}

#[test]
fn ranks_give_the_bits_of_one_process() {
    let options = |activations| SessionOptions { activations, chunk: 4, ..SessionOptions::new(32) };
    let one = Compute::new(1).unwrap();
    let models = [
        ("embedded", source::open(&halfbyte_testing::tiny_model()).unwrap(), 2),
        ("biases", golden("checkpoints/hf_qwen2"), 2),
        ("norms of heads", golden("tiny_qwen3.gguf"), 2),
        ("three heads", three_heads(), 2),
        ("experts", golden("experts/hf_qwen2_moe"), 2),
        ("scales, caps and norms after", golden("dense/gemma2"), 2),
        ("several matrices in a tensor", golden("dense/phi3"), 2),
        ("biases everywhere", golden("dense/granite"), 2),
        ("temperature", golden("dense/mistral3"), 2),
    ];
    for (name, file, count) in &models {
        let model = Transformer::new(Arc::clone(file)).unwrap();
        for activations in ActivationType::ALL {
            let options = options(activations);
            let mut whole = CpuSession::new(&model, &one, options).unwrap();
            let expected = logits(&mut whole);
            let done = on_ranks(*count, |ranks| {
                let pool = Compute::new(1).unwrap();
                let ctx = pool.clone();
                let share = model.share(ranks.rank(), *count).unwrap();
                assert!(share.received_per_token() > 0);
                // One way or the other, the bits are the same.
                let share = match activations {
                    ActivationType::F32 => share,
                    _ => share.pack(&ctx).unwrap(),
                };
                agree(&**ranks, Ok(&share.mark(&options).unwrap())).unwrap();
                let session = CpuSession::on_share(&share, &ctx, options, ranks.clone()).unwrap();
                if ranks.rank() > 0 {
                    follow::<Error>(Ok(session), &**ranks).unwrap();
                    return (Vec::new(), share.bytes_per_token());
                }
                let all = logits(&mut Leader::new(session, ranks.clone()));
                Leader::end(&**ranks).unwrap();
                (all, share.bytes_per_token())
            });
            assert!(done[0].0 == expected, "{name}, {activations:?}");
            // Each has its part of the weights, but for what packing adds to make whole panels.
            let parts: Vec<usize> = done.iter().map(|(_, bytes)| *bytes).collect();
            let (all, whole) = (parts.iter().sum::<usize>(), model.bytes_per_token());
            // All ranks choose experts, each by the whole router: 2 layers of 5 x 32 bf16.
            let routers = if *name == "experts" { 2 * 5 * 32 * 2 } else { 0 };
            match activations {
                ActivationType::F32 => assert_eq!(all, whole + routers, "{name}: {parts:?}"),
                _ => assert!(all >= whole, "{name}: {parts:?}, {whole} in all"),
            }
            assert!(parts.iter().all(|&part| part < whole * 3 / 4), "{name}: {parts:?}, {whole} in all");
        }
    }
}

#[test]
fn what_can_not_be_shared_is_named() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = crate::common::transformer(&gguf).unwrap();
    let refused = |model: &Transformer, count| model.share(0, count).unwrap_err().to_string();
    assert_eq!(refused(&model, 3), "3 ranks can't share 2 key and value heads: expected 1 to 2 ranks");
    let olmo = Transformer::new(golden("dense/olmo2")).unwrap();
    let expected = "2 ranks can't share 1 norm over all heads of the queries: expected 1 to 1 ranks";
    assert_eq!(refused(&olmo, 2), expected);
    assert!(olmo.share(0, 1).is_ok());
    let pool = Compute::new(1).unwrap();
    let ctx = pool.clone();
    let mut ranks = Thread::connected(2);
    let share = model.share(1, 2).unwrap();
    let error =
        CpuSession::on_share(&share, &ctx, SessionOptions::new(8), Arc::new(ranks.remove(0))).unwrap_err();
    assert_eq!(error.to_string(), "rank 0 of 2 was given the share of rank 1 of 2");
    let model = model.pack(&ctx).unwrap();
    assert_eq!(
        refused(&model, 2),
        "a packed model can't be shared among ranks: expected one that is not packed yet"
    );
}

#[test]
fn all_ranks_hear_which_one_fails() {
    let said = |answers: [Result<&'static str, &'static str>; 3]| {
        let heard = on_ranks(3, |ranks| {
            let own = answers[ranks.rank()].map_err(str::to_owned);
            agree(&**ranks, own).map_err(|error| error.to_string())
        });
        assert!(heard.iter().all(|one| *one == heard[0]), "{heard:?}");
        heard[0].clone()
    };
    assert_eq!(said([Ok("a"), Ok("a"), Ok("a")]), Ok(()));
    assert_eq!(said([Ok(""), Err("no such file"), Err("late")]), Err("rank 1: no such file".to_owned()));
    assert_eq!(
        said([Ok("model a"), Ok("model a"), Ok("model b")]),
        Err("rank 2: it has \"model b\", rank 0 \"model a\": expected the same".to_owned())
    );
    assert_eq!(said([Err("no memory"), Ok("a"), Ok("b")]), Err("rank 0: no memory".to_owned()));
}

#[test]
fn models_that_differ_have_different_marks() {
    let options = SessionOptions::new(8);
    let mark = |file: &Arc<ModelFile>, options| {
        Transformer::new(Arc::clone(file)).unwrap().share(1, 2).unwrap().mark(&options).unwrap()
    };
    let qwen3 = golden("tiny_qwen3.gguf");
    assert_eq!(mark(&qwen3, options), mark(&golden("tiny_qwen3.gguf"), options));
    assert_ne!(mark(&qwen3, options), mark(&golden("checkpoints/hf_qwen2"), options));
    let longer = mark(&qwen3, SessionOptions::new(9));
    assert!(longer.contains("context 9, auto activations, f16 KV cache"), "{longer}");
    assert_ne!(mark(&qwen3, options), longer);
}

/// Nobody waits for a rank that can't go on; a refusal on rank 0 stops nobody.
#[test]
fn a_failure_ends_all_ranks() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = crate::common::transformer(&gguf).unwrap();
    let told = on_ranks(2, |ranks| {
        let pool = Compute::new(1).unwrap();
        let ctx = pool.clone();
        let share = model.share(ranks.rank(), 2).unwrap();
        if ranks.rank() > 0 {
            let error = follow(Err("out of memory"), &**ranks).unwrap_err().to_string();
            assert_eq!(ranks.failure.lock().unwrap().as_ref(), Some(&error));
            return error;
        }
        let session = CpuSession::on_share(&share, &ctx, SessionOptions::new(4), ranks.clone()).unwrap();
        let mut leader = Leader::new(session, ranks.clone());
        let refused = leader.prompt(&[1, 2, 3, 4, 5]).unwrap_err().to_string();
        assert_eq!(refused, "5 tokens do not fit in a context of 4 (0 are used)");
        leader.prompt(&[1]).unwrap_err().to_string()
    });
    assert_eq!(
        told,
        [
            "the connection to the other ranks: rank 1 is gone",
            "the connection to the other ranks: rank 0 goes on, where this rank could not: out of memory"
        ]
    );
}
