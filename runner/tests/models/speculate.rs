//! Replies with drafts are those without, token by token, and leave everything as those do.

use std::ops::ControlFlow;

use halfbyte::generate::{CachedSession, Event, FinishReason, Generation, Request, generate};
use halfbyte::model::{Compute, CpuSession, SessionOptions, Transformer};
use halfbyte::sampler::{Sampler, SamplerConfig};
use halfbyte::speculate::{MOST, Speculation};
use halfbyte_gguf::Gguf;
use halfbyte_testing::smollm2;
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};

const REPEATS: &str =
    "The captain looked at the sea. The mate looked at the sea. The cook looked at the sea. The boy";

struct Setup<'a> {
    model: &'a Transformer,
    tokenizer: &'a Tokenizer,
    pool: &'a Compute,
}

impl<'a> Setup<'a> {
    fn session(&self, context: usize) -> CachedSession {
        let ctx = self.pool.clone();
        CachedSession::new(CpuSession::new(self.model, &ctx, SessionOptions::new(context)).unwrap())
    }

    /// Every kind of draft.
    fn drafting(&self, context: usize) -> Vec<(&'static str, CachedSession)> {
        let with = |speculation| self.session(context).with_speculation(speculation);
        vec![
            ("auto", with(Speculation::copied())),
            ("1", with(Speculation::copied().with_fixed(1))),
            ("4", with(Speculation::copied().with_fixed(4))),
            ("15", with(Speculation::copied().with_fixed(MOST))),
            ("model", with(Speculation::by_model(self.session(context)))),
            ("model, 5", with(Speculation::by_model(self.session(context / 2)).with_fixed(5))),
        ]
    }
}

fn with_model(gguf: &Gguf, test: impl FnOnce(&Setup<'_>)) {
    let model = crate::common::transformer(gguf).unwrap();
    let tokenizer = Tokenizer::new(&TokenizerSpec::from_metadata(gguf.metadata()).unwrap()).unwrap();
    let pool = Compute::new(2).unwrap();
    test(&Setup { model: &model, tokenizer: &tokenizer, pool: &pool });
}

fn samplers() -> Vec<Sampler> {
    let sampled = SamplerConfig { seed: 11, repeat_penalty: 1.1, ..SamplerConfig::default() };
    let cold = SamplerConfig { seed: 5, temperature: 0.3, ..SamplerConfig::default() };
    [SamplerConfig::greedy(), sampled, cold].map(|config| Sampler::new(config).unwrap()).into()
}

/// A reply whose watcher ends it when its text contains `stop`, and all that the watcher was told.
fn reply(
    cache: &mut CachedSession,
    setup: &Setup<'_>,
    sampler: &mut Sampler,
    prompt: &[u32],
    max_tokens: usize,
    stop: &str,
) -> (Generation, String) {
    let mut request = Request { max_tokens, ..Request::new(prompt.to_vec(), sampler.clone()) };
    let (mut text, mut told) = (String::new(), String::new());
    let made = generate(cache, setup.tokenizer, &mut request, |step| {
        if !matches!(step, Event::Prompt { .. }) {
            told += &format!("{step:?};");
        }
        if let Event::Text(part) = step {
            text += part;
        }
        let stopped = !stop.is_empty() && text.contains(stop);
        Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .unwrap();
    *sampler = request.sampler;
    (made, told)
}

/// Two replies after another with one sampler, the second after what the first has left of the random numbers.
fn same_replies(
    setup: &Setup<'_>,
    prompt: &[u32],
    context: usize,
    max_tokens: usize,
    stop: &str,
) -> Vec<FinishReason> {
    let mut stops = Vec::new();
    for sampler in samplers() {
        let (mut plain, mut plain_sampler) = (setup.session(context), sampler.clone());
        let (first, first_told) = reply(&mut plain, setup, &mut plain_sampler, prompt, max_tokens, stop);
        let (second, _) = reply(&mut plain, setup, &mut plain_sampler, &prompt[1..], 5, "");
        stops.push(first.reason);
        for (name, mut cache) in setup.drafting(context) {
            let case = (name, sampler.config().temperature, max_tokens, stop);
            let mut sampler = sampler.clone();
            let (got, told) = reply(&mut cache, setup, &mut sampler, prompt, max_tokens, stop);
            assert_eq!(
                (&got.ids, &got.text, got.reason),
                (&first.ids, &first.text, first.reason),
                "{case:?}"
            );
            assert_eq!(told, first_told, "{case:?}");
            assert_eq!(got.decode.tokens, first.decode.tokens, "{case:?}");
            // The context holds the prompt and the reply but its last token.
            assert_eq!(cache.ids(), [prompt, &got.ids[..got.ids.len() - 1]].concat(), "{case:?}");
            let (again, _) = reply(&mut cache, setup, &mut sampler, &prompt[1..], 5, "");
            assert_eq!(again.ids, second.ids, "{case:?}");
        }
    }
    stops
}

#[test]
fn drafted_replies_are_the_undrafted_ones_on_the_embedded_model() {
    with_model(&halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap(), |setup| {
        let prompt = setup.tokenizer.encode(REPEATS, Special::Off).unwrap();
        for max_tokens in [1, 3, 40] {
            same_replies(setup, &prompt, 256, max_tokens, "");
        }
        // At the context's end, with every number of tokens left.
        for room in [0, 1, 4] {
            let stops = same_replies(setup, &prompt, prompt.len() + room, 99, "");
            assert_eq!(stops[0], FinishReason::ContextFull, "{room}");
        }
        // A text that ends the reply half-way through a window.
        for stop in [" the", "oo"] {
            same_replies(setup, &prompt, 256, 60, stop);
        }
    });
}

#[test]
fn drafts_are_made_and_some_are_right() {
    with_model(&halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap(), |setup| {
        let prompt = setup.tokenizer.encode(REPEATS, Special::Off).unwrap();
        for (name, mut cache) in setup.drafting(256) {
            let mut greedy = Sampler::new(SamplerConfig::greedy()).unwrap();
            let (made, _) = reply(&mut cache, setup, &mut greedy, &prompt, 40, "");
            let drafts = cache.drafts().unwrap();
            assert!(
                drafts.accepted <= drafts.drafted && drafts.windows <= drafts.drafted,
                "{name}: {drafts:?}"
            );
            assert!(drafts.accepted < made.ids.len(), "{name}: {drafts:?}");
            if name == "model, 5" {
                // A model is always right about itself, as long as its context lasts.
                assert!(drafts.windows > 2 && drafts.accepted == drafts.drafted, "{drafts:?}");
            }
        }
        assert_eq!(setup.session(64).drafts(), None);
    });
}

#[test]
fn drafted_replies_are_the_undrafted_ones_on_the_real_model() {
    let Some(path) = smollm2() else { return };
    with_model(&Gguf::open(path).unwrap(), |setup| {
        let prompt = setup.tokenizer.encode(REPEATS, Special::Off).unwrap();
        for config in [SamplerConfig::greedy(), SamplerConfig { seed: 3, ..SamplerConfig::default() }] {
            let mut sampler = Sampler::new(config).unwrap();
            let (plain, _) = reply(&mut setup.session(512), setup, &mut sampler.clone(), &prompt, 40, "");
            let mut cache = setup.session(512).with_speculation(Speculation::copied().with_fixed(6));
            let (got, _) = reply(&mut cache, setup, &mut sampler, &prompt, 40, "");
            assert_eq!((got.ids, got.text), (plain.ids, plain.text));
            println!("temperature {}: {:?}", sampler.config().temperature, cache.drafts());
            assert!(cache.drafts().unwrap().accepted > 0);
        }
    });
}
