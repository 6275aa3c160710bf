//! Several replies at once, and one, are made in the same way: each is what it would be alone.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use halfbyte::generate::{
    CachedSession, Event, FinishReason, GenerateError, Generation, Request, SchedulerHandle, StopStrings,
    generate,
};
use halfbyte::model::{
    CannotCut, Compute, CpuSession, Error, SavedState, Sequence, SessionOptions, Transformer,
};
use halfbyte::sampler::{Sampler, SamplerConfig};
use halfbyte::speculate::Speculation;
use halfbyte_gguf::Gguf;
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};

const CONTEXT: usize = 192;
const TEXTS: [&str; 5] = [
    "The captain looked at the sea. The mate looked at the sea. The cook looked at the sea. The boy",
    "Once upon a time",
    "The captain looked at the sea. The mate said",
    "A",
    "\"Where have you been?\" he asked.",
];

struct Setup {
    model: Transformer,
    tokenizer: Arc<Tokenizer>,
    compute: Compute,
}

impl Setup {
    fn new() -> Self {
        let gguf = Gguf::open(halfbyte_testing::tiny_model()).unwrap();
        let tokenizer = Tokenizer::new(&TokenizerSpec::from_metadata(gguf.metadata()).unwrap()).unwrap();
        let model = crate::common::transformer(&gguf).unwrap();
        Self { model, tokenizer: Arc::new(tokenizer), compute: Compute::new(2).unwrap() }
    }

    fn session(&self) -> CachedSession {
        let options = SessionOptions { chunk: 16, ..SessionOptions::new(CONTEXT) };
        CachedSession::new(CpuSession::new(&self.model, &self.compute, options).unwrap())
    }

    fn request(&self, text: &str, config: SamplerConfig, max_tokens: usize) -> Request {
        let prompt = self.tokenizer.encode_prompt(text, Special::Off).unwrap();
        Request { max_tokens, ..Request::new(prompt, Sampler::new(config).unwrap()) }
    }

    fn alone(&self, request: &Request) -> Generation {
        let go = |_: &Event| Ok(ControlFlow::Continue(()));
        generate(&mut self.session(), &self.tokenizer, &mut request.clone(), go).unwrap()
    }

    fn spawn(&self, sessions: Vec<CachedSession>) -> SchedulerHandle {
        SchedulerHandle::spawn(sessions, Arc::clone(&self.tokenizer)).unwrap()
    }
}

fn sampled(seed: u64) -> SamplerConfig {
    SamplerConfig { seed, ..SamplerConfig::default() }
}

#[test]
fn replies_asked_for_by_several_threads_are_those_made_alone() {
    let setup = Setup::new();
    let requests: Vec<Request> = TEXTS
        .iter()
        .zip(0..)
        .flat_map(|(text, n)| {
            let greedy = setup.request(text, SamplerConfig::greedy(), 20 + n);
            let stopping = Request { stops: StopStrings::new(vec!["th".to_owned()]), ..greedy.clone() };
            [greedy, stopping, setup.request(text, sampled(n as u64), 15 + 3 * n)]
        })
        .collect();
    let alone: Vec<Generation> = requests.iter().map(|request| setup.alone(request)).collect();
    let count = |reason| alone.iter().filter(|reply| reply.reason == reason).count();
    assert!(count(FinishReason::StopString) > 0 && count(FinishReason::MaxTokens) > 5, "{alone:?}");
    let plain = || (0..3).map(|_| setup.session()).collect();
    let drafting = || {
        vec![
            setup.session().with_speculation(Speculation::copied().with_fixed(4)),
            setup.session(),
            setup.session().with_speculation(Speculation::by_model(setup.session()).with_fixed(3)),
        ]
    };
    for sessions in [plain(), drafting()] {
        let scheduler = setup.spawn(sessions);
        std::thread::scope(|scope| {
            for (request, alone) in requests.iter().zip(&alone) {
                let scheduler = scheduler.clone();
                scope.spawn(move || {
                    let (text, finish) = scheduler.submit(request.clone()).text().unwrap();
                    assert_eq!((&text, finish.reason), (&alone.text, alone.reason));
                    let usage = finish.usage;
                    assert_eq!(
                        (usage.prompt_tokens, usage.reply_tokens),
                        (request.prompt.len(), alone.ids.len())
                    );
                });
            }
        });
    }
}

#[test]
fn the_events_of_a_reply_are_those_of_generate() {
    let setup = Setup::new();
    let request = setup.request(TEXTS[0], sampled(3), 12);
    let mut told = Vec::new();
    let made = generate(&mut setup.session(), &setup.tokenizer, &mut request.clone(), |event| {
        told.push(format!("{event:?}"));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    let mut events: Vec<String> =
        setup.spawn(vec![setup.session()]).submit(request).map(|event| format!("{event:?}")).collect();
    let last = events.pop().unwrap();
    assert!(last.starts_with("Done(") && last.contains("MaxTokens"), "{last}");
    assert_eq!(events, told);
    assert_eq!(told.iter().filter(|event| event.starts_with("Token(")).count(), made.ids.len());
    assert!(told[0].starts_with("Prompt { done: 16, total: "), "{told:?}");
}

#[test]
fn a_stop_string_ends_a_reply_before_it() {
    let setup = Setup::new();
    let request = setup.request(TEXTS[0], SamplerConfig::greedy(), 30);
    let whole = setup.alone(&request);
    let stop: String = whole.text.chars().skip(9).take(4).collect();
    let (before, _) = whole.text.split_once(&stop).unwrap();
    let mut request = Request { stops: StopStrings::new(vec!["never".to_owned(), stop.clone()]), ..request };
    let (mut cache, mut told) = (setup.session(), String::new());
    let made = generate(&mut cache, &setup.tokenizer, &mut request, |event| {
        if let Event::Text(text) = event {
            told += text;
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!((made.text.as_str(), told.as_str(), made.reason), (before, before, FinishReason::StopString));
    assert_eq!(made.ids, whole.ids[..made.ids.len()]);
    assert!(made.ids.len() < whole.ids.len());
    assert_eq!(cache.ids(), [&request.prompt[..], &made.ids[..made.ids.len() - 1]].concat());
}

#[test]
fn a_reply_that_nobody_listens_to_frees_its_slot() {
    let setup = Setup::new();
    let scheduler = setup.spawn(vec![setup.session()]);
    // Of several that would fill the context, one has begun and the others wait.
    let endless = || scheduler.submit(setup.request(TEXTS[1], sampled(1), usize::MAX));
    let mut first = endless();
    let waiting = [endless(), endless()];
    assert!(first.any(|event| matches!(event, Event::Token(_))));
    drop(waiting);
    drop(first);
    let request = setup.request(TEXTS[2], SamplerConfig::greedy(), 5);
    let alone = setup.alone(&request);
    assert_eq!(scheduler.submit(request).text().unwrap().0, alone.text);
}

#[test]
fn a_request_that_cannot_be_answered_fails_alone() {
    let setup = Setup::new();
    let scheduler = setup.spawn(vec![setup.session(), setup.session()]);
    let request = setup.request(TEXTS[1], SamplerConfig::greedy(), 40);
    let alone = setup.alone(&request);
    let good = scheduler.submit(request.clone());
    let failed = |prompt: Vec<u32>| {
        let error = scheduler.submit(Request { prompt, ..request.clone() }).text().unwrap_err();
        error.to_string()
    };
    assert_eq!(
        failed(vec![1; CONTEXT + 1]),
        format!("the prompt is {} tokens long, the context holds {CONTEXT}", CONTEXT + 1)
    );
    assert!(failed(Vec::new()).starts_with("no tokens to feed"));
    assert!(failed(vec![1, 99_999_999]).contains("99999999"));
    assert_eq!(good.text().unwrap().0, alone.text);
    let none = SchedulerHandle::spawn(Vec::new(), Arc::clone(&setup.tokenizer));
    assert!(matches!(none, Err(GenerateError::NoSlots)));
}

/// A sequence whose logits are made of all its tokens, and that cannot be cut. A call fails if `fails` counts down to 0.
/// `fed` counts the tokens that it was fed.
#[derive(Debug)]
struct Folded {
    ids: Vec<u32>,
    n_vocab: usize,
    fails: Option<usize>,
    fed: Arc<AtomicUsize>,
    logits: Vec<f32>,
}

impl Folded {
    fn new(n_vocab: usize, fails: Option<usize>) -> Self {
        Self { ids: Vec::new(), n_vocab, fails, fed: Arc::default(), logits: Vec::new() }
    }

    fn feed(&mut self, id: u32) -> Result<&mut [f32], Error> {
        if let Some(fails) = &mut self.fails {
            if *fails == 0 {
                self.fails = None;
                return Err(Error::Unsaved);
            }
            *fails -= 1;
        }
        self.ids.push(id);
        self.fed.fetch_add(1, Ordering::Relaxed);
        // The last tokens decide, so that texts repeat and some drafts are right; all of them a little.
        let near: u32 = self.ids.iter().rev().take(2).fold(0, |hash, &id| hash * 31 + id);
        let all: u32 = self.ids.iter().fold(7, |hash, &id| hash.wrapping_mul(31).wrapping_add(id));
        let likely = if all.is_multiple_of(5) { all } else { near } % 40 + 300;
        self.logits = (0..self.n_vocab as u32).map(|id| if id == likely { 9.0 } else { 0.0 }).collect();
        Ok(&mut self.logits)
    }
}

impl Sequence for Folded {
    fn context(&self) -> usize {
        CONTEXT
    }

    fn chunk(&self) -> usize {
        8
    }

    fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn cut(&mut self, len: usize) -> Result<(), CannotCut> {
        if len > 0 && len < self.ids.len() {
            return Err(CannotCut { len: self.ids.len(), wanted: len });
        }
        self.ids.truncate(len);
        Ok(())
    }

    fn can_cut(&self) -> bool {
        false
    }

    fn save(&self) -> Result<SavedState, Error> {
        Ok(SavedState::new(self.ids.len(), self.ids.clone()))
    }

    fn restore(&mut self, saved: &SavedState) -> Result<(), Error> {
        self.ids = saved.get::<Vec<u32>>().ok_or(Error::OtherState)?.clone();
        Ok(())
    }

    fn prompt(&mut self, ids: &[u32]) -> Result<&mut [f32], Error> {
        for &id in ids {
            self.feed(id)?;
        }
        Ok(&mut self.logits)
    }

    fn window(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &mut [f32])) -> Result<(), Error> {
        for (i, &id) in ids.iter().enumerate() {
            each(i, self.feed(id)?);
        }
        Ok(())
    }
}

#[test]
fn a_state_that_cannot_be_cut_gives_the_same_replies() {
    let setup = Setup::new();
    let n_vocab = setup.tokenizer.n_vocab();
    let session = || CachedSession::new(Folded::new(n_vocab, None));
    let go = |_: &Event| Ok(ControlFlow::Continue(()));
    let prompt: Vec<u32> = (300..330).chain(300..330).collect();
    let request = |n: usize| Request {
        max_tokens: 60,
        ..Request::new(prompt[..n].to_vec(), Sampler::new(SamplerConfig::greedy()).unwrap())
    };
    let mut drafting = session().with_speculation(Speculation::copied().with_fixed(3));
    for n in [60, 20, 45] {
        let plain = generate(&mut session(), &setup.tokenizer, &mut request(n), go).unwrap();
        let drafted = generate(&mut drafting, &setup.tokenizer, &mut request(n), go).unwrap();
        assert_eq!((plain.ids.len(), &plain.ids), (60, &drafted.ids), "{n}");
    }
    let drafts = drafting.drafts().unwrap();
    assert!(drafts.accepted > 0 && drafts.accepted < drafts.drafted, "{drafts:?}");
}

#[test]
fn a_wrong_draft_on_a_state_that_cannot_be_cut_feeds_no_more_than_the_draft_again() {
    let setup = Setup::new();
    let n_vocab = setup.tokenizer.n_vocab();
    let session = |fed: &Arc<AtomicUsize>| {
        CachedSession::new(Folded { fed: Arc::clone(fed), ..Folded::new(n_vocab, None) })
    };
    let prompt: Vec<u32> = (300..330).chain(300..330).collect();
    let request = || Request {
        max_tokens: 60,
        ..Request::new(prompt.clone(), Sampler::new(SamplerConfig::greedy()).unwrap())
    };
    let go = |_: &Event| Ok(ControlFlow::Continue(()));
    let (fed, of_draft) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());

    let mut cache = session(&fed).with_speculation(Speculation::copied().with_fixed(3));
    let copied = generate(&mut cache, &setup.tokenizer, &mut request(), go).unwrap();
    let drafts = cache.drafts().unwrap();
    // Each pass feeds a token and a draft; what a wrong draft takes back is fed again, and that is at most the reply.
    let once = prompt.len() + copied.decode.tokens - drafts.accepted + drafts.drafted;
    let count = fed.swap(0, Ordering::Relaxed);
    assert!(once < count && count <= once + copied.decode.tokens, "{count}, {once}, {drafts:?}");

    // A model that drafts, whose own state can't be cut either.
    let speculation = Speculation::by_model(session(&of_draft)).with_fixed(4);
    let mut cache = session(&fed).with_speculation(speculation);
    let made = generate(&mut cache, &setup.tokenizer, &mut request(), go).unwrap();
    assert_eq!(made.ids, copied.ids);
    let drafts = cache.drafts().unwrap();
    let count = of_draft.load(Ordering::Relaxed);
    // The context once, and each draft.
    assert!(count <= prompt.len() + made.ids.len() + drafts.drafted, "{count}, {drafts:?}");
}

#[test]
fn after_a_failed_pass_a_slot_makes_right_replies() {
    let setup = Setup::new();
    let n_vocab = setup.tokenizer.n_vocab();
    let request = || Request {
        max_tokens: 20,
        ..Request::new((300..330).collect(), Sampler::new(SamplerConfig::greedy()).unwrap())
    };
    let whole =
        setup.spawn(vec![CachedSession::new(Folded::new(n_vocab, None))]).submit(request()).text().unwrap();
    // In the prompt's second part, and in the reply.
    for fails in [11, 37] {
        let scheduler = setup.spawn(vec![CachedSession::new(Folded::new(n_vocab, Some(fails)))]);
        let error = scheduler.submit(request()).text().unwrap_err();
        assert!(matches!(&*error, GenerateError::Model(Error::Unsaved)), "{error}");
        let again = scheduler.submit(request()).text().unwrap();
        assert_eq!(again.0, whole.0, "{fails}");
    }
}
