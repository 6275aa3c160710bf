//! candle's quantized Llama on a GGUF file: `candle-compare MODEL PROMPT GENERATE DEPTH`.
//!
//! Prints one JSON object in the form of `halfbyte bench --json`: the tokens a second of a prompt of PROMPT tokens in an
//! empty context, and of GENERATE single tokens after DEPTH others. `candle-compare MODEL first IDS` instead loads the
//! model, feeds the token ids (with commas between) and prints the seconds that both took and the best next token. candle
//! takes its number of threads from `RAYON_NUM_THREADS` and `CANDLE_NUM_THREADS`.

use anyhow::{Context, Result, bail};
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use std::fs::File;
use std::time::{Duration, Instant};

/// Tokens in one call: the mask of a longer prompt would be the square of its length.
const CHUNK: usize = 512;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [model, "first", ids] => first(model, ids),
        [model, prompt, generate, depth] => rates(model, prompt.parse()?, generate.parse()?, depth.parse()?),
        _ => bail!("expected MODEL PROMPT GENERATE DEPTH, or MODEL first IDS"),
    }
}

fn load(path: &str) -> Result<(ModelWeights, usize)> {
    let mut file = File::open(path).with_context(|| path.to_owned())?;
    let content = Content::read(&mut file).with_context(|| path.to_owned())?;
    let embedding = content.tensor_infos.get("token_embd.weight").context("no token_embd.weight")?;
    let vocabulary = embedding.shape.dims()[0];
    Ok((ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?, vocabulary))
}

/// Feeds `ids` after `position` others and gives the logits after the last. At position 0 candle forgets what it had.
fn feed(model: &mut ModelWeights, ids: &[u32], position: usize) -> Result<Vec<f32>> {
    let mut logits = None;
    for (i, chunk) in ids.chunks(CHUNK).enumerate() {
        let input = Tensor::new(chunk, &Device::Cpu)?.unsqueeze(0)?;
        logits = Some(model.forward(&input, position + i * CHUNK)?);
    }
    let logits = logits.context("expected at least one token")?;
    Ok(logits.flatten_all()?.to_vec1()?)
}

fn rates(path: &str, prompt: usize, generate: usize, depth: usize) -> Result<()> {
    let (mut model, vocabulary) = load(path)?;
    let ids: Vec<u32> = (0..prompt.max(generate).max(depth) as u64)
        .map(|i| ((i * 2_654_435_761 + 12_345) % vocabulary as u64) as u32)
        .collect();
    // Page faults and clocks settle.
    feed(&mut model, &ids[..ids.len().min(32)], 0)?;
    let mut results = Vec::new();
    let mut result = |n_prompt: usize, n_gen: usize, time: Duration| {
        let rate = (n_prompt + n_gen) as f64 / time.as_secs_f64();
        results.push(format!(
            r#"{{"n_prompt":{n_prompt},"n_gen":{n_gen},"tokens_per_second":{{"median":{rate}}}}}"#
        ));
    };
    if prompt > 0 {
        let start = Instant::now();
        feed(&mut model, &ids[..prompt], 0)?;
        result(prompt, 0, start.elapsed());
    }
    if generate > 0 {
        if depth > 0 {
            feed(&mut model, &ids[..depth], 0)?;
        }
        let start = Instant::now();
        for (i, id) in ids[..generate].iter().enumerate() {
            feed(&mut model, &[*id], depth + i)?;
        }
        result(0, generate, start.elapsed());
    }
    println!(r#"{{"results":[{}]}}"#, results.join(","));
    Ok(())
}

fn first(path: &str, ids: &str) -> Result<()> {
    let ids = ids.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let start = Instant::now();
    let (mut model, _) = load(path)?;
    let logits = feed(&mut model, &ids, 0)?;
    let seconds = start.elapsed().as_secs_f64();
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i);
    println!(r#"{{"seconds":{seconds},"token":{best}}}"#);
    Ok(())
}
