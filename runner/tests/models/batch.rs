//! Contexts fed together have the bits that they have alone.

use crate::converted;
use halfbyte::model::{
    ActivationType, Batch, Compute, CpuSession, Error, Part, Row, Rows, SessionOptions, Transformer,
};
use halfbyte::requantize::Encoding;
use halfbyte_cpu_kernels::Isa;
use halfbyte_gguf::TensorType;

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Prompts of different lengths, whole, in parts and a token at a time, beside each other.
#[test]
fn parts_have_the_bits_of_their_own_context() {
    // The embedded model is F16, which takes no integers.
    let f16 = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let q8_0 = converted(&f16, Encoding::new(TensorType::Q8_0).unwrap(), &Compute::new(2).unwrap());
    for gguf in [f16, q8_0] {
        parts_have_the_bits_of_their_own_context_of(&crate::common::transformer(&gguf).unwrap());
    }
}

fn parts_have_the_bits_of_their_own_context_of(model: &Transformer) {
    let n_vocab = model.description().n_vocab as u32;
    let ids = |seed: u32, n: usize| -> Vec<u32> {
        (0..n as u32).map(|i| (seed * 7919 + i * i * 31 + i * 17) % n_vocab).collect()
    };
    let texts = [ids(1, 40), ids(2, 9), ids(3, 23), ids(4, 1)];
    // For each call, how many tokens each context takes.
    let calls = [[40, 3, 0, 1], [0, 1, 20, 0], [0, 5, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0]];
    for isa in Isa::available() {
        for threads in [1, 3] {
            for activations in ActivationType::ALL {
                let pool = Compute::new(threads).unwrap();
                let ctx = pool.clone().with_isa(isa);
                let options = SessionOptions { activations, ..SessionOptions::new(64) };
                let mut together: Vec<CpuSession> =
                    texts.iter().map(|_| CpuSession::new(model, &ctx, options).unwrap()).collect();
                let mut batch = Batch::default();
                let mut last = vec![Vec::new(); texts.len()];
                for call in calls {
                    let starts: Vec<usize> = together.iter().map(CpuSession::len).collect();
                    let fed = together.iter_mut().zip(&texts).zip(call).zip(starts);
                    let mut parts = Vec::new();
                    let mut which = Vec::new();
                    for (i, (((session, text), n), start)) in fed.enumerate() {
                        if n > 0 {
                            parts.push(Part {
                                sequence: session,
                                ids: &text[start..start + n],
                                rows: if start + n == text.len() { Rows::Last } else { Rows::None },
                                greedy: false,
                            });
                            which.push(i);
                        }
                    }
                    let mut each = |i: usize, _, row: Row<'_>| match row {
                        Row::Logits(logits) => last[which[i]] = bits(logits),
                        Row::Token(_) => panic!("logits were asked for"),
                    };
                    batch.feed(&mut parts, &mut each).unwrap();
                }
                for (text, last) in texts.iter().zip(&last) {
                    let mut session = CpuSession::new(model, &ctx, options).unwrap();
                    assert_eq!(&bits(session.feed(text).unwrap()), last, "{isa}, {threads} threads");
                }
            }
        }
    }
}

fn part<'a>(sequence: &'a mut CpuSession, ids: &'a [u32]) -> Part<'a> {
    Part { sequence, ids, rows: Rows::Last, greedy: false }
}

#[test]
fn a_call_with_an_error_changes_no_context() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let model = crate::common::transformer(&gguf).unwrap();
    let (pool, other_pool) = (Compute::new(1).unwrap(), Compute::new(1).unwrap());
    let session = |pool: &Compute| CpuSession::new(&model, pool, SessionOptions::new(8)).unwrap();
    let (mut a, mut b, mut other) = (session(&pool), session(&pool), session(&other_pool));
    b.feed(&[1, 2, 3, 4, 5]).unwrap();
    let mut batch = Batch::default();
    let mut feed = |parts: &mut [Part<'_>]| batch.feed(parts, |_, _, _| panic!("no logits")).unwrap_err();
    let error = feed(&mut [part(&mut a, &[1]), part(&mut b, &[1, 2, 3, 4])]);
    assert!(matches!(error, Error::ContextFull { used: 5, wanted: 4, context: 8 }), "{error}");
    let error = feed(&mut [part(&mut a, &[1]), part(&mut b, &[u32::MAX])]);
    assert!(matches!(error, Error::Token { id: u32::MAX, .. }), "{error}");
    let error = feed(&mut [part(&mut a, &[1]), part(&mut b, &[])]);
    assert!(matches!(error, Error::NoTokens), "{error}");
    assert_eq!((a.len(), b.len(), other.len()), (0, 5, 0));
    // Sessions that cannot be fed in one pass are fed one after the other, with the same bits.
    let mut logits = Vec::new();
    batch
        .feed(&mut [part(&mut a, &[1, 2]), part(&mut other, &[1, 2])], |i, row, value| {
            let Row::Logits(values) = value else { panic!("logits were asked for") };
            logits.push((i, row, bits(values)));
        })
        .unwrap();
    assert_eq!((logits[0].0, logits[0].1, logits[1].0, logits[1].1), (0, 1, 1, 1));
    assert_eq!(logits[0].2, logits[1].2);
    batch.feed(&mut [], |_, _, _| panic!("no parts")).unwrap();
}
