//! Replies by models with recurrent layers: with drafts, several at once, and in chats that were edited.

use std::ops::ControlFlow;
use std::sync::Arc;

use halfbyte::generate::{CachedSession, Event, Generation, Request, SchedulerHandle, generate};
use halfbyte::model::{Compute, CpuSession, SessionOptions, Transformer};
use halfbyte::sampler::{Sampler, SamplerConfig};
use halfbyte::source::ModelFile;
use halfbyte::speculate::Speculation;
use halfbyte_gguf::{Gguf, TensorInfo, TensorType};
use halfbyte_testing::Rng;
use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};

use crate::hybrid_files::changed_file;

struct Setup {
    model: Transformer,
    tokenizer: Arc<Tokenizer>,
    compute: Compute,
    n_vocab: u32,
}

impl Setup {
    /// The small model with the tokenizer of the embedded one, and random embeddings for its tokens.
    fn new(architecture: &str) -> Self {
        let tiny = Gguf::open(halfbyte_testing::tiny_model()).unwrap();
        let n_vocab = tiny.tensor("token_embd.weight").unwrap().n_rows();
        let seed = 20_261_201;
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let gguf = changed_file(&format!("{architecture}.gguf"), |metadata, tensors| {
            for (key, value) in tiny.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
                metadata.set(key, value.clone());
            }
            metadata.set(format!("{architecture}.context_length"), 1024_u32);
            metadata.set(format!("{architecture}.vocab_size"), u32::try_from(n_vocab).unwrap());
            for (info, bytes) in tensors {
                if info.name == "token_embd.weight" || info.name == "output.weight" {
                    *info = TensorInfo::new(&info.name, TensorType::F32, &[32, n_vocab]).unwrap();
                    *bytes = bytemuck::cast_slice(&rng.f32s(32 * n_vocab, 1.0)).to_vec();
                }
            }
        });
        let tokenizer = Tokenizer::new(&TokenizerSpec::from_metadata(gguf.metadata()).unwrap()).unwrap();
        Self {
            model: Transformer::new(ModelFile::from(gguf)).unwrap(),
            tokenizer: Arc::new(tokenizer),
            compute: Compute::new(2).unwrap(),
            n_vocab: u32::try_from(n_vocab).unwrap(),
        }
    }

    fn session(&self) -> CachedSession {
        let options = SessionOptions { chunk: 64, ..SessionOptions::new(1024) };
        CachedSession::new(CpuSession::new(&self.model, &self.compute, options).unwrap())
    }

    /// Tokens that repeat themselves after a while, so that there is something to copy.
    fn prompt(&self, n: u32) -> Vec<u32> {
        (0..n).map(|i| 300 + (i % 23) * (i % 23) * 7 % (self.n_vocab - 300)).collect()
    }

    fn reply(&self, cache: &mut CachedSession, request: &Request) -> Generation {
        let go = |_: &Event| Ok(ControlFlow::Continue(()));
        generate(cache, &self.tokenizer, &mut request.clone(), go).unwrap()
    }
}

fn request(prompt: Vec<u32>, config: SamplerConfig, max_tokens: usize) -> Request {
    Request { max_tokens, ..Request::new(prompt, Sampler::new(config).unwrap()) }
}

fn configs() -> [SamplerConfig; 2] {
    [SamplerConfig::greedy(), SamplerConfig { seed: 11, temperature: 0.2, ..SamplerConfig::default() }]
}

#[test]
fn drafted_replies_are_the_undrafted_ones() {
    for architecture in ["qwen35", "lfm2", "lfm2moe"] {
        drafted_replies_of(architecture);
    }
}

fn drafted_replies_of(architecture: &str) {
    let setup = Setup::new(architecture);
    let mut accepted = 0;
    for config in configs() {
        for n in [2, 70, 200] {
            let request = request(setup.prompt(n), config, 60);
            let plain = setup.reply(&mut setup.session(), &request);
            let speculations = [
                Speculation::copied(),
                Speculation::copied().with_fixed(3),
                Speculation::copied().with_fixed(15),
                Speculation::by_model(setup.session()).with_fixed(4),
            ];
            for (i, speculation) in speculations.into_iter().enumerate() {
                let mut cache = setup.session().with_speculation(speculation);
                let drafted = setup.reply(&mut cache, &request);
                assert_eq!(drafted.ids, plain.ids, "{n}, {i}");
                accepted += cache.drafts().unwrap().accepted;
                // What the drafts left behind is what a reply without them leaves.
                assert_eq!(setup.reply(&mut cache, &request).ids, plain.ids, "{n}, {i}, again");
            }
        }
    }
    assert!(accepted > 0);
}

#[test]
fn an_edited_chat_goes_on_from_the_last_mark_before_the_edit() {
    for architecture in ["qwen35", "lfm2"] {
        edited_chat_of(architecture);
    }
}

fn edited_chat_of(architecture: &str) {
    let setup = Setup::new(architecture);
    let whole = setup.prompt(900);
    let first = request(whole.clone(), SamplerConfig::greedy(), 5);
    for at in [3, 63, 64, 150, 448, 700, 890, 899] {
        let mut cache = setup.session();
        setup.reply(&mut cache, &first);
        let mut edited = whole.clone();
        edited[at] = 299;
        let edited = request(edited, SamplerConfig::greedy(), 10);
        let fresh = setup.reply(&mut setup.session(), &edited);
        let reused = cache.reuse(&edited.prompt);
        // There are eight marks or fewer, the last before the last few tokens, and one every 64 is the most.
        let least = if at >= 890 { 832 } else { at.saturating_sub(320) / 64 * 64 };
        assert!(least <= reused && reused <= at && reused.is_multiple_of(64), "{at}: {reused}");
        let got = setup.reply(&mut cache, &edited);
        assert_eq!(got.ids, fresh.ids, "{at}");
        assert_eq!(got.prompt.tokens, 900 - reused, "{at}");
    }
    // A chat that goes on needs no mark: nothing but what is new is fed.
    let mut cache = setup.session();
    let made = setup.reply(&mut cache, &first);
    let on = [&whole[..], &made.ids, &[301, 302]].concat();
    let on = request(on, SamplerConfig::greedy(), 10);
    let fresh = setup.reply(&mut setup.session(), &on);
    let got = setup.reply(&mut cache, &on);
    assert_eq!((got.ids, got.prompt.tokens), (fresh.ids, 3));
}

#[test]
fn several_replies_at_once_are_those_made_alone() {
    for architecture in ["qwen35", "lfm2"] {
        several_replies_of(architecture);
    }
}

fn several_replies_of(architecture: &str) {
    let setup = Setup::new(architecture);
    let requests: Vec<Request> = configs()
        .into_iter()
        .flat_map(|config| [1, 5, 130, 200].map(|n| request(setup.prompt(n), config, 20)))
        .collect();
    let sessions = vec![
        setup.session(),
        setup.session().with_speculation(Speculation::copied().with_fixed(4)),
        setup.session(),
    ];
    let scheduler = SchedulerHandle::spawn(sessions, Arc::clone(&setup.tokenizer)).unwrap();
    let replies: Vec<_> = requests.iter().map(|request| scheduler.submit(request.clone())).collect();
    for (request, reply) in requests.iter().zip(replies) {
        let alone = setup.reply(&mut setup.session(), request);
        assert_eq!(reply.text().unwrap().0, alone.text);
    }
}
