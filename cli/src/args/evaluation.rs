//! Commands that look at what a model predicts.

use std::path::PathBuf;

use clap::Args;

use super::{ActivationsArg, KvCacheArg, PromptPrecisionArg, parse_count, parse_positive};

const LOGITS_EXAMPLES: &str = "\
Examples:
  halfbyte logits --model M.gguf --prompt 'The capital of France is' --top 3
  halfbyte logits --model M.gguf --ids 504,3575,282 --activations f32 --json";

/// Show what the model expects after every token of a text.
#[derive(Debug, Args)]
#[command(after_help = LOGITS_EXAMPLES)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    pub(crate) input: LogitsInput,
    /// Tokens to list for each position, the likeliest first
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parse_count)]
    pub(crate) top: usize,
    /// Read the names of control tokens in the prompt as the tokens
    #[arg(long)]
    pub(crate) special: bool,
    /// One JSON object on stdout: ids and, for each position, top_ids, top_logits and logsumexp
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct LogitsInput {
    /// The text
    #[arg(long, short = 'p', value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// The text's token ids, with commas between
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = parse_id)]
    pub(crate) ids: Option<Vec<u32>>,
}

/// The text that models are measured on, and how it is cut.
#[derive(Debug, Clone, Args)]
pub(crate) struct EvaluationArgs {
    /// The text, in UTF-8; names of control tokens in it are text
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    /// Tokens from the start of a window to the next one's, 1 to --ctx (see below) [default: llama.cpp's rule]
    #[arg(long, value_name = "S", value_parser = parse_positive)]
    pub(crate) stride: Option<usize>,
    /// Stop after so many windows [default: all]
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub(crate) windows: Option<usize>,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// How windows are cut, for the help of those who cut them.
macro_rules! windows_help {
    () => {
        "\
The text is tokenized whole and cut into windows of --ctx tokens [default: 512, or what the model was trained for if
less], each of which starts from an empty context. What is left at the end is dropped. If the model begins its texts
with a token of its own, that stands in the place of every window's first token. The first token is never scored.

Without --stride, the rule of llama.cpp's perplexity, for figures to set beside its own: the windows lie side by side,
and of each the second half is scored, tokens ctx/2+1 to ctx-1 counted from 0 (255 of 512).
With --stride S below --ctx: windows start S tokens apart. The first scores all its tokens but its first, each later
one its last S: every token from the second on is scored once, all beyond the first window with at least ctx-S before.
With --stride equal to --ctx: windows side by side, each scored from its second token on.

Ctrl-C ends it with the figures of the windows done by then (\"complete\": false in JSON) and exit code 1."
    };
}

const PERPLEXITY_HELP: &str = concat!(
    "\
Examples:
  halfbyte perplexity --model M.gguf --text wiki.test.raw
  halfbyte perplexity --model M.gguf --text novel.txt --ctx 1024 --stride 512 --json

",
    windows_help!(),
    "

The loss is the mean of -ln p over the scored tokens, with the standard error of the mean; the perplexity is its exp,
with that error times the perplexity."
);

/// Measure how well a model predicts a text.
#[derive(Debug, Args)]
#[command(after_help = PERPLEXITY_HELP)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    pub(crate) evaluation: EvaluationArgs,
}

const KL_HELP: &str = concat!(
    "\
Examples:
  halfbyte kl --base F16.gguf --model Q4_0.gguf --text wiki.test.raw
  halfbyte kl --model Q8_0.gguf --text novel.txt    what rounding activations and keys and values costs
  halfbyte kl --model M.gguf --text novel.txt --device cuda --base-prompt-precision bf16 --prompt-precision int8

",
    windows_help!(),
    "

KL is the divergence of the model's distribution over the next token from the base's, in nats, for every scored token.

On a CUDA device a window's tokens before the first scored one are its prompt, and the scored ones take the way of a
reply's: --prompt-precision int8 shows what it does to the reply behind the prompt. Without --base both sides use one
copy of the weights."
);

/// Measure how far a model's predictions are from another's.
#[derive(Debug, Args)]
#[command(after_help = KL_HELP)]
pub(crate) struct KlArgs {
    /// Model file to compare with, of the same vocabulary [default: the same as --model]
    #[arg(long, value_name = "FILE")]
    pub(crate) base: Option<PathBuf>,
    /// --activations of the base [default: f32]
    #[arg(long, value_name = "TYPE", value_enum)]
    pub(crate) base_activations: Option<ActivationsArg>,
    /// --kv-cache of the base [default: f32 with f32 activations, else f16; bf16 on a CUDA device]
    #[arg(long, value_name = "TYPE", value_enum)]
    pub(crate) base_kv_cache: Option<KvCacheArg>,
    /// --prompt-precision of the base [default: bf16]
    #[arg(long, value_name = "TYPE", value_enum)]
    pub(crate) base_prompt_precision: Option<PromptPrecisionArg>,
    #[command(flatten)]
    pub(crate) evaluation: EvaluationArgs,
}

fn parse_id(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("expected a token id, a number from 0 to {}", u32::MAX))
}
