//! Contexts fed together have the bits that they have alone.

use halfbyte::model::{ActivationType, Batch, Error, Model, Part, Session, SessionOptions};
use halfbyte_cpu_kernels::{Context, Isa};
use halfbyte_threadpool::ThreadPool;

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Prompts of different lengths, whole, in parts and a token at a time, beside each other.
#[test]
fn parts_have_the_bits_of_their_own_context() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = Model::from_gguf(&gguf).unwrap();
    let n_vocab = model.config().n_vocab as u32;
    let ids = |seed: u32, n: usize| -> Vec<u32> {
        (0..n as u32).map(|i| (seed * 7919 + i * i * 31 + i * 17) % n_vocab).collect()
    };
    let texts = [ids(1, 40), ids(2, 9), ids(3, 23), ids(4, 1)];
    // For each call, how many tokens each context takes.
    let calls = [[40, 3, 0, 1], [0, 1, 20, 0], [0, 5, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0]];
    for isa in Isa::available() {
        for threads in [1, 3] {
            for activations in [ActivationType::F32, ActivationType::Int8] {
                let pool = ThreadPool::new(threads).unwrap();
                let ctx = Context { pool: &pool, isa };
                let options = SessionOptions { activations, ..SessionOptions::new(64) };
                let mut together: Vec<Session<'_>> =
                    texts.iter().map(|_| Session::new(&model, ctx, options).unwrap()).collect();
                let mut batch = Batch::default();
                let mut last = vec![Vec::new(); texts.len()];
                for call in calls {
                    let starts: Vec<usize> = together.iter().map(Session::len).collect();
                    let fed = together.iter_mut().zip(&texts).zip(call).zip(starts);
                    let mut parts = Vec::new();
                    let mut which = Vec::new();
                    for (i, (((session, text), n), start)) in fed.enumerate() {
                        if n > 0 {
                            parts.push(Part {
                                session,
                                ids: &text[start..start + n],
                                logits: start + n == text.len(),
                            });
                            which.push(i);
                        }
                    }
                    batch.feed(&mut parts, |i, logits| last[which[i]] = bits(logits)).unwrap();
                }
                for (text, last) in texts.iter().zip(&last) {
                    let mut session = Session::new(&model, ctx, options).unwrap();
                    assert_eq!(&bits(session.feed(text).unwrap()), last, "{isa}, {threads} threads");
                }
            }
        }
    }
}

#[test]
fn a_call_with_an_error_changes_no_context() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = Model::from_gguf(&gguf).unwrap();
    let (pool, other_pool) = (ThreadPool::new(1).unwrap(), ThreadPool::new(1).unwrap());
    let session = |pool| Session::new(&model, Context::new(pool).unwrap(), SessionOptions::new(8)).unwrap();
    let (mut a, mut b, mut other) = (session(&pool), session(&pool), session(&other_pool));
    b.feed(&[1, 2, 3, 4, 5]).unwrap();
    let mut batch = Batch::default();
    let mut feed = |parts: &mut [Part<'_, '_>]| batch.feed(parts, |_, _| panic!("no logits")).unwrap_err();
    let error = feed(&mut [
        Part { session: &mut a, ids: &[1], logits: true },
        Part { session: &mut b, ids: &[1, 2, 3, 4], logits: true },
    ]);
    assert!(matches!(error, Error::ContextFull { used: 5, wanted: 4, context: 8 }), "{error}");
    let error = feed(&mut [
        Part { session: &mut a, ids: &[1], logits: true },
        Part { session: &mut b, ids: &[u32::MAX], logits: true },
    ]);
    assert!(matches!(error, Error::Token { id: u32::MAX, .. }), "{error}");
    let error = feed(&mut [
        Part { session: &mut a, ids: &[1], logits: true },
        Part { session: &mut b, ids: &[], logits: false },
    ]);
    assert!(matches!(error, Error::NoTokens), "{error}");
    let error = feed(&mut [
        Part { session: &mut a, ids: &[1], logits: true },
        Part { session: &mut other, ids: &[1], logits: true },
    ]);
    assert!(matches!(error, Error::NotTogether), "{error}");
    assert_eq!((a.len(), b.len(), other.len()), (0, 5, 0));
    batch.feed(&mut [], |_, _| panic!("no parts")).unwrap();
}
