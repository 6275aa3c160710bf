//! The generation loop, on the embedded model.

use std::io;
use std::ops::ControlFlow;

use halfbyte::generate::{CachedSession, Event, FinishReason, GenerateError, Generation, Request, generate};
use halfbyte::model::{Compute, CpuSession, SessionOptions, Transformer};
use halfbyte::sampler::{Sampler, SamplerConfig};
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};

const GO: ControlFlow<()> = ControlFlow::Continue(());

/// Gives `test` a way to make sessions with a context and a chunk, and the tokenizer.
fn with_model(test: impl FnOnce(&dyn Fn(usize, usize) -> CachedSession, &Tokenizer)) {
    let gguf = Box::leak(Box::new(halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap()));
    let model: &'static Transformer = Box::leak(Box::new(crate::common::transformer(gguf).unwrap()));
    let pool: &'static Compute = Box::leak(Box::new(Compute::new(2).unwrap()));
    let tokenizer = Tokenizer::new(&TokenizerSpec::from_metadata(gguf.metadata()).unwrap()).unwrap();
    let session = |context, chunk| {
        let options = SessionOptions { chunk, ..SessionOptions::new(context) };
        CachedSession::new(CpuSession::new(model, &pool.clone(), options).unwrap())
    };
    test(&session, &tokenizer);
}

fn greedy() -> Sampler {
    Sampler::new(SamplerConfig::greedy()).unwrap()
}

fn request(prompt: &[u32], max_tokens: usize) -> Request {
    Request { max_tokens, ..Request::new(prompt.to_vec(), greedy()) }
}

fn reply(cache: &mut CachedSession, tokenizer: &Tokenizer, prompt: &[u32], n: usize) -> Generation {
    generate(cache, tokenizer, &mut request(prompt, n), |_| Ok(GO)).unwrap()
}

fn prompt(tokenizer: &Tokenizer) -> Vec<u32> {
    tokenizer.encode("The captain looked at the sea, and at the ship, and at the men.", Special::Off).unwrap()
}

#[test]
fn a_context_reused_gives_the_bits_of_a_new_one() {
    with_model(|session, tokenizer| {
        let first = prompt(tokenizer);
        let mut cache = session(256, 256);
        let one = reply(&mut cache, tokenizer, &first, 10);
        // All but the reply's last token is in the context.
        assert_eq!(cache.ids(), [&first[..], &one.ids[..9]].concat());
        assert_eq!((one.prompt.tokens, one.decode.tokens), (first.len(), 9));

        // A second prompt that goes on from there, in other chunks, and one that parts half-way.
        let second = [&first[..], &one.ids, &first[..5]].concat();
        let parts = [&first[..7], &first[..3]].concat();
        for (next, reused) in [(&second, first.len() + 9), (&parts, 7), (&parts, parts.len() - 1)] {
            let again = reply(&mut cache, tokenizer, next, 10);
            let fresh = reply(&mut session(256, 3), tokenizer, next, 10);
            assert_eq!(again.prompt.tokens, next.len() - reused);
            assert_eq!((&again.ids, &again.text), (&fresh.ids, &fresh.text));
            cache.reuse(next);
            let logits = cache.feed(&next[next.len() - 1..]).unwrap().to_vec();
            assert_eq!(logits, session(256, 5).feed(next).unwrap());
        }
    });
}

#[test]
fn every_reason_to_stop() {
    with_model(|session, tokenizer| {
        let prompt = prompt(tokenizer);
        assert_eq!(reply(&mut session(256, 256), tokenizer, &prompt, 3).reason, FinishReason::MaxTokens);
        let none = reply(&mut session(256, 256), tokenizer, &prompt, 0);
        assert_eq!(
            (none.reason, none.ids.len(), none.decode.per_second()),
            (FinishReason::MaxTokens, 0, None)
        );

        let full = reply(&mut session(prompt.len() + 2, 256), tokenizer, &prompt, 99);
        assert_eq!((full.reason, full.ids.len()), (FinishReason::ContextFull, 3));
        assert_eq!(full.ids, reply(&mut session(256, 256), tokenizer, &prompt, 3).ids);

        // The watcher, in the prompt and in the reply.
        let (mut cache, mut steps) = (session(256, 4), Vec::new());
        let stopped = generate(&mut cache, tokenizer, &mut request(&prompt, 9), |step| {
            steps.push(matches!(step, Event::Prompt { done: 8, .. }));
            Ok(if steps.len() == 2 { ControlFlow::Break(()) } else { GO })
        })
        .unwrap();
        assert_eq!(
            (stopped.reason, stopped.ids.len(), steps),
            (FinishReason::Cancelled, 0, vec![false, true])
        );
        assert_eq!(cache.ids(), &prompt[..8]);
        let mut tokens = 0;
        let stopped = generate(&mut cache, tokenizer, &mut request(&prompt, 9), |step| {
            tokens += usize::from(matches!(step, Event::Token(_)));
            Ok(if tokens == 2 { ControlFlow::Break(()) } else { GO })
        })
        .unwrap();
        assert_eq!((stopped.reason, stopped.ids.len()), (FinishReason::Cancelled, 2));
    });
}

#[test]
fn the_token_that_ends_a_reply_is_an_id_without_text() {
    with_model(|session, tokenizer| {
        let prompt = prompt(tokenizer);
        let open = reply(&mut session(256, 256), tokenizer, &prompt, 9);
        // The same vocabulary with one of the reply's tokens as the end of a text.
        let eos = open.ids[3];
        let at = open.ids.iter().position(|&id| id == eos).unwrap();
        let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
        let spec = TokenizerSpec::from_metadata(gguf.metadata()).unwrap();
        let ending = Tokenizer::new(&TokenizerSpec { eos_id: Some(eos), ..spec }).unwrap();
        let mut cache = session(256, 256);
        let ended = reply(&mut cache, &ending, &prompt, 9);
        assert_eq!((ended.reason, &ended.ids[..]), (FinishReason::EndOfGeneration, &open.ids[..=at]));
        assert_eq!(cache.ids(), [&prompt[..], &open.ids[..at]].concat());
        let mut decoder = tokenizer.continuation_decoder();
        let text: String = open.ids[..at].iter().map(|&id| decoder.push(id).unwrap().to_owned()).collect();
        assert_eq!(ended.text, text + decoder.finish());
    });
}

#[test]
fn what_cannot_be_done_is_an_error_and_changes_nothing() {
    with_model(|session, tokenizer| {
        let prompt = prompt(tokenizer);
        let mut cache = session(8, 256);
        cache.feed(&prompt[..2]).unwrap();
        let error = generate(&mut cache, tokenizer, &mut request(&prompt, 1), |_| Ok(GO)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the prompt is {} tokens long, the context holds 8", prompt.len())
        );
        let error = generate(&mut cache, tokenizer, &mut request(&[], 1), |_| Ok(GO)).unwrap_err();
        assert!(error.to_string().starts_with("no tokens to feed"), "{error}");
        assert!(cache.feed(&[1, 2, 9999]).is_err());
        assert!(cache.feed(&prompt[..7]).is_err());
        assert_eq!((cache.ids(), cache.room()), (&prompt[..2], 6));

        let error = generate(&mut cache, tokenizer, &mut request(&prompt[..4], 3), |step| match step {
            Event::Prompt { .. } => Ok(GO),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        })
        .unwrap_err();
        assert!(matches!(error, GenerateError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe));
    });
}
