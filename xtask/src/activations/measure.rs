//! A file, measured with every kind of activations.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::figures::{AUTO, INT8, INT16, KINDS, LLAMA, Quality, Rates, Replies, Subject, Work};
use super::programs::{Bench, Comparison, Programs, Prompt, Reply};

/// Tokens of a timed prompt and of a timed reply: few, so that the kinds of one round are timed close to one another.
const PROMPT: usize = 256;
const DECODE: usize = 64;
/// Numbers of threads that rates are measured with.
const THREADS: [usize; 2] = [1, 2];
/// Tokens of a recorded reply at most.
const REPLY: usize = 30;

/// A file that is to be measured.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    /// The file that is there.
    pub(super) model: PathBuf,
    /// What `halfbyte quantize --type` makes of it first.
    pub(super) made: Option<&'static str>,
    pub(super) text: PathBuf,
    /// Prompts and replies that were recorded of the file.
    pub(super) questions: Option<PathBuf>,
}

/// How much is measured.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) windows: usize,
    pub(super) rounds: usize,
    pub(super) isas: Vec<String>,
}

/// What llama.cpp is to score: the ids of a window, and the first of them that is predicted.
#[derive(Debug, PartialEq, Serialize)]
struct Window {
    ids: Vec<u32>,
    first_scored: usize,
}

/// A recorded prompt and the reply that float64 arithmetic gives.
#[derive(Debug, Deserialize)]
struct Question {
    question: String,
    ids: Vec<u32>,
    reply: Vec<u32>,
}

#[derive(Debug, Deserialize)]
struct Quantized {}

/// Measures everything about `task`. `work` is a folder for files that are gone in the end.
///
/// # Errors
/// If a file is missing or a program fails.
pub(super) fn measure(task: &Task, programs: &Programs, extent: &Extent, work: &Path) -> Result<Subject> {
    println!("\n{}", task.name);
    let folder = tempfile::tempdir_in(work).context("no temporary folder in target")?;
    let made = folder.path().join("made.gguf");
    if let Some(ty) = task.made {
        let _: Quantized = programs.halfbyte(&[&"quantize", &task.model, &made, &"--type", &ty], false)?;
    }
    let model = if task.made.is_some() { &made } else { &task.model };
    let mut subject = Subject {
        key: task.key.to_owned(),
        name: task.name.to_owned(),
        source: match task.made {
            Some(ty) => format!("`halfbyte quantize --type {ty}` of {}", file_name(&task.model)),
            None => file_name(&task.model),
        },
        cpu: cpu(),
        llama: None,
        text: file_name(&task.text),
        context: 0,
        windows: 0,
        scored_tokens: 0,
        perplexity: f64::NAN,
        llama_perplexity: None,
        quality: Vec::new(),
        replies: Vec::new(),
        rates: Vec::new(),
    };
    for kind in [INT8, AUTO, INT16] {
        let quality = quality(&mut subject, kind, model, task, programs, extent)?;
        subject.quality.push(quality);
    }
    let questions = task.questions.as_deref().map(read_questions).transpose()?;
    for kind in questions.iter().flat_map(|_| KINDS) {
        let questions = questions.as_deref().unwrap_or_default();
        let equal = equal_replies(kind, model, questions, programs)?;
        println!("{kind:10} {equal} of {} replies equal", questions.len());
        subject.replies.push(Replies { kind: kind.to_owned(), asked: questions.len(), equal });
    }
    if programs.has_llama() {
        llama(&mut subject, task, model, questions.as_ref().map_or(0, Vec::len), programs, folder.path())?;
    }
    for isa in &extent.isas {
        subject.rates.extend(rates(isa, model, extent.rounds, programs)?);
    }
    Ok(subject)
}

/// Divergence from the same file with f32 activations; what the text is, `subject` learns by the way.
fn quality(
    subject: &mut Subject,
    kind: &str,
    model: &Path,
    task: &Task,
    programs: &Programs,
    extent: &Extent,
) -> Result<Quality> {
    let windows = extent.windows.to_string();
    let said: Comparison = programs.halfbyte(
        &[&"kl", &"--model", &model, &"--text", &task.text, &"--windows", &windows, &"--activations", &kind],
        true,
    )?;
    println!("{kind:10} KL {:.7}", said.kl.mean);
    (subject.context, subject.windows, subject.scored_tokens) = (said.context, said.windows, said.tokens);
    subject.perplexity = said.base.perplexity;
    Ok(Quality {
        kind: kind.to_owned(),
        mean: said.kl.mean,
        p99: said.kl.p99,
        max: said.kl.max,
        same_top_percent: said.same_top_percent,
        perplexity: said.model.perplexity,
    })
}

/// What llama.cpp does to the same windows, beside what it does without rounding, on the file as F32.
fn llama(
    subject: &mut Subject,
    task: &Task,
    model: &Path,
    asked: usize,
    programs: &Programs,
    folder: &Path,
) -> Result<()> {
    let (base, text, list) = (folder.join("f32.gguf"), folder.join("text.txt"), folder.join("windows.json"));
    let _: Quantized = programs.halfbyte(&[&"quantize", &model, &base, &"--type", &"f32"], false)?;
    // A line end at the very end of a prompt is left out.
    let whole = std::fs::read_to_string(&task.text).with_context(|| task.text.display().to_string())?;
    std::fs::write(&text, whole + "\n").with_context(|| text.display().to_string())?;
    let prompt: Prompt =
        programs.halfbyte(&[&"run", &"--model", &model, &"--show-prompt", &"--prompt-file", &text], false)?;
    // The one has a token at the beginning that the other has not, if the model asks for it.
    let has_bos = prompt.ids.len() > programs.tokenize(model, &task.text)?.len();
    let bos = prompt.ids.first().copied().filter(|_| has_bos);
    let windows = cut(&prompt.ids, bos, subject.context, subject.windows);
    std::fs::write(&list, serde_json::to_vec(&windows)?).with_context(|| list.display().to_string())?;
    let Some(said) = programs.llama([model, &base, &list], task.questions.as_deref())? else { return Ok(()) };
    if said.tokens != subject.scored_tokens {
        bail!("llama.cpp scored {} tokens: expected {}", said.tokens, subject.scored_tokens);
    }
    println!("{LLAMA:10} KL {:.7}", said.kl.mean);
    subject.llama = Some(said.version);
    subject.llama_perplexity = Some(said.base.perplexity);
    subject.quality.push(Quality {
        kind: LLAMA.to_owned(),
        mean: said.kl.mean,
        p99: said.kl.p99,
        max: said.kl.max,
        same_top_percent: said.same_top_percent,
        perplexity: said.model.perplexity,
    });
    if let Some(equal) = said.equal_replies {
        println!("{LLAMA:10} {equal} of {asked} replies equal");
        subject.replies.push(Replies { kind: LLAMA.to_owned(), asked, equal });
    }
    Ok(())
}

/// The windows that `halfbyte kl` scores without `--stride`: side by side, the second half of each, and what the model
/// begins its texts with in the place of each first token.
fn cut(ids: &[u32], bos: Option<u32>, context: usize, windows: usize) -> Vec<Window> {
    let window = |ids: &[u32]| {
        let mut ids = ids.to_vec();
        if let (Some(first), Some(bos)) = (ids.first_mut(), bos) {
            *first = bos;
        }
        Window { ids, first_scored: context / 2 + 1 }
    };
    ids.chunks_exact(context.max(1)).take(windows).map(window).collect()
}

fn read_questions(path: &Path) -> Result<Vec<Question>> {
    let text = std::fs::read(path).with_context(|| format!("{}: can't be read", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{}: expected questions", path.display()))
}

/// How many of the questions get the recorded reply, to its end.
fn equal_replies(kind: &str, model: &Path, questions: &[Question], programs: &Programs) -> Result<usize> {
    let mut equal = 0;
    // One more than a reply has, so that one that is shorter shows that the model has ended it.
    let most = (REPLY + 1).to_string();
    for question in questions {
        let prompt: Prompt = programs.halfbyte(
            &[&"chat", &"--model", &model, &"--show-prompt", &"--prompt", &question.question],
            false,
        )?;
        let said: Reply = programs.halfbyte(
            &[
                &"run",
                &"--model",
                &model,
                &"--special",
                &"--prompt",
                &prompt.text,
                &"--temperature",
                &"0",
                &"-n",
                &most,
                &"--activations",
                &kind,
            ],
            false,
        )?;
        if said.prompt_ids != question.ids {
            bail!("{:?} became other tokens than those that were recorded", question.question);
        }
        equal += usize::from(is_whole(&said.ids, &question.reply));
    }
    Ok(equal)
}

/// Whether `ids`, of at most 31 tokens with the one that ends a reply, are `reply`, of at most 30 without it.
fn is_whole(ids: &[u32], reply: &[u32]) -> bool {
    let ends = reply.len() == REPLY || ids.len() == reply.len() + 1;
    ends && ids.starts_with(reply)
}

/// Rates with one ISA: in every round all kinds in turns, each round beginning with another one.
fn rates(isa: &str, model: &Path, rounds: usize, programs: &Programs) -> Result<Vec<Rates>> {
    let works = [Work::Prompt, Work::Decode];
    let mut table = THREADS.map(|_| works.map(|_| vec![[f64::NAN; KINDS.len()]; rounds]));
    let (prompt, decode) = (PROMPT.to_string(), DECODE.to_string());
    let threads = THREADS.map(|threads| threads.to_string()).join(",");
    for round in 0..rounds {
        for turn in 0..KINDS.len() {
            let kind = (round + turn) % KINDS.len();
            let said: Bench = programs.halfbyte(
                &[
                    &"bench",
                    &"--model",
                    &model,
                    &"-p",
                    &prompt,
                    &"-n",
                    &decode,
                    &"-t",
                    &threads,
                    &"--reps",
                    &"1",
                    &"--isa",
                    &isa,
                    &"--activations",
                    &KINDS[kind],
                ],
                false,
            )?;
            for (of_threads, threads) in table.iter_mut().zip(THREADS) {
                for (of_work, work) in of_threads.iter_mut().zip(works) {
                    let is_it = |n_prompt: usize| (n_prompt > 0) == (work == Work::Prompt);
                    let timed = said.results.iter().find(|t| t.threads == threads && is_it(t.n_prompt));
                    let timed =
                        timed.with_context(|| format!("halfbyte bench: no {work:?}, {threads} threads"))?;
                    of_work[round][kind] = timed.tokens_per_second.median;
                }
            }
        }
        println!("{isa}: round {} of {rounds} timed", round + 1);
    }
    let all = table.iter().zip(THREADS).flat_map(|(of_threads, threads)| {
        of_threads.iter().zip(works).map(move |(rounds, work)| Rates::new(isa, threads, work, rounds))
    });
    Ok(all.collect())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The processor's name where Linux tells it.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_side_by_side_and_begin_as_the_model_does() {
        let ids: Vec<u32> = (0..11).collect();
        let said = cut(&ids, Some(99), 4, 5);
        let expected = [vec![99, 1, 2, 3], vec![99, 5, 6, 7]].map(|ids| Window { ids, first_scored: 3 });
        assert_eq!(said, expected);
        assert_eq!(cut(&ids, None, 4, 1), [Window { ids: vec![0, 1, 2, 3], first_scored: 3 }]);
    }

    #[test]
    fn a_reply_is_whole_when_it_ends_where_the_recorded_one_does() {
        let long: Vec<u32> = (0..30).collect();
        let longer: Vec<u32> = (0..31).collect();
        assert!(is_whole(&[5, 6, 2], &[5, 6]));
        assert!(!is_whole(&[5, 6, 7, 2], &[5, 6]), "it goes on");
        assert!(!is_whole(&[5, 7, 2], &[5, 6]), "another token");
        assert!(!is_whole(&[5, 6], &[5, 6, 7]), "it ends early");
        assert!(is_whole(&longer, &long) && is_whole(&long, &long));
        assert!(!is_whole(&longer, &long[..29]));
    }

    #[test]
    fn the_recorded_replies_are_not_longer_than_they_are_asked_for() {
        let path = crate::shell::root().join("goldens/questions.json");
        let questions = read_questions(&path).unwrap();
        assert_eq!(questions.len(), 40);
        assert_eq!(questions.iter().map(|q| q.reply.len()).max(), Some(REPLY));
    }
}
