//! What can be said on the command line. The doc comments are the help texts.

mod evaluation;
mod weights;

pub(crate) use evaluation::{EvaluationArgs, KlArgs, LogitsArgs, PerplexityArgs};
pub(crate) use weights::{
    CompareArgs, ImatrixArgs, ImatrixFormatArg, QuantizeArgs, names, types_with_methods,
};

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use halfbyte::model::ActivationType;
use halfbyte::requantize::Encoding;
use halfbyte::speculate::MOST;
use halfbyte_attention::KvType;
use halfbyte_cuda_kernels::PromptPrecision;
use halfbyte_threadpool::MAX_THREADS;

const EXAMPLES: &str = "\
Examples:
  halfbyte                                        the model inside this program tells a story
  halfbyte run --model M.gguf --prompt 'The sea'  continue a text
  halfbyte chat --model M.gguf                    talk to a model that has a chat template
  halfbyte serve --model M.gguf                   talk to it in a browser, or from another program
  echo -n 'Hello' | halfbyte tokenize --model M.gguf
  halfbyte bench --model M.gguf -t 1,2,4          how fast is it?
  halfbyte perplexity --model M.gguf --text T     how well does it predict?
  halfbyte quantize F16.gguf Q4.gguf --type q4_0  make it a quarter of the size
  halfbyte inspect M.gguf                         what is in the file?
  halfbyte doctor --model M.gguf                  what will run here, and what is slow?
  halfbyte run --model hf:OWNER/REPO/FILE.gguf    a model of the Hugging Face hub

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage.
Environment: HALFBYTE_THREADS and HALFBYTE_ISA are the defaults of --threads and --isa; RUST_LOG=info logs to stderr.
Models of the hub are kept in HF_HOME, asked for at HF_ENDPOINT, as HF_TOKEN; HF_HUB_OFFLINE=1 asks only the cache.";

/// Runs language models with 4-bit and 8-bit weights on the CPU.
///
/// Without a command it is `halfbyte run`, with the same options: without a model it runs the small one that is
/// part of this program.
#[derive(Debug, Parser)]
#[command(name = "halfbyte", version, after_help = EXAMPLES, override_usage = "halfbyte [OPTIONS] [COMMAND]")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses a command line, the program's name first. Where no command is named, or an option that no command
    /// is named for, it is read again as `run`.
    pub(crate) fn from_args(args: Vec<OsString>) -> Result<Self, clap::Error> {
        Self::parse_or_run(args).map_err(with_hint)
    }

    fn parse_or_run(mut args: Vec<OsString>) -> Result<Self, clap::Error> {
        let first = match Self::parse_line(&args) {
            Ok(cli) => return Ok(cli),
            Err(error) => error,
        };
        let unnamed = [
            ErrorKind::MissingSubcommand,
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ErrorKind::UnknownArgument,
        ];
        if !unnamed.contains(&first.kind()) {
            return Err(first);
        }
        args.insert(args.len().min(1), "run".into());
        Self::parse_line(&args).map_err(|second| match second.kind() {
            ErrorKind::UnknownArgument => first,
            _ => second,
        })
    }

    fn parse_line(args: &[OsString]) -> Result<Self, clap::Error> {
        let mut command = numbers_may_be_negative(Self::command().mut_subcommands(numbers_may_be_negative));
        let mut matches = command.try_get_matches_from_mut(args)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

/// Lets options take `-1`, so that what is wrong with it is told by the option and not by the parser, to which it looks
/// like an option of its own.
fn numbers_may_be_negative(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| {
        let takes_value = !arg.is_positional() && arg.get_action().takes_values();
        if takes_value { arg.allow_negative_numbers(true) } else { arg }
    })
}

/// Adds the advice to use `--model` where a model stands by itself.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let mut stray = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].into_iter();
    let stray = stray.find_map(|kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    });
    let is_model = |text: &String| {
        !text.starts_with('-')
            && (text.ends_with(".gguf") || text.starts_with("hf:") || Path::new(text).exists())
    };
    let unexpected = matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    if let Some(model) = stray.filter(is_model).filter(|_| unexpected) {
        let hint = format!("a model is named by --model: '--model {model}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

/// Options that every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model and machine")]
pub(crate) struct GlobalArgs {
    /// Model: a GGUF file (of a split one the first part), or a directory with config.json and safetensors files, as
    /// Hugging Face and MLX have them; hf:OWNER/REPO/FILE.gguf or hf:OWNER/REPO is fetched from the Hugging Face hub, once
    /// [default: the small model inside this program]
    #[arg(long, short = 'm', global = true, value_name = "PATH")]
    pub(crate) model: Option<PathBuf>,
    /// Threads to compute with; the reply's bits do not depend on it [default: three quarters of the usable CPUs]
    #[arg(long, global = true, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<usize>,
    /// Instruction set path; `halfbyte doctor` lists them [default: the fastest that this CPU has]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) isa: Option<String>,
    /// What activations are rounded to before quantized weights are multiplied by them [default: auto]
    #[arg(long, global = true, value_name = "TYPE", value_enum)]
    pub(crate) activations: Option<ActivationsArg>,
    /// How keys and values are kept: q8 and fp8 take half of f16's memory [default: f32 with f32 activations, else f16]
    #[arg(long, global = true, value_name = "TYPE", value_enum)]
    pub(crate) kv_cache: Option<KvCacheArg>,
    /// Where `run`, `chat`, `perplexity`, `kl`, `bench` and `profile` compute; cuda-emulator stands for a GPU that is not
    /// there, and is slow. --threads, --isa, --activations and --no-pack are the CPU's; keys and values are bf16, or fp8
    #[arg(long, global = true, value_name = "DEVICE", value_enum, default_value_t = DeviceArg::Cpu)]
    pub(crate) device: DeviceArg,
    /// What a prompt's activations are rounded to on a CUDA device [default: bf16]
    #[arg(long, global = true, value_name = "TYPE", value_enum)]
    pub(crate) prompt_precision: Option<PromptPrecisionArg>,
    #[arg(long, global = true, value_name = "TYPE[:METHOD]", value_parser = weights::parse_load_as, help = weights::load_as_help())]
    pub(crate) load_as: Option<Encoding>,
    /// Use weights where the file has them instead of copies in the kernels' order: slower, but memory is shared with
    /// other programs that have the file open
    #[arg(long, global = true)]
    pub(crate) no_pack: bool,
    /// Tokens that the context holds, prompt and reply together [default: the model's, at most 4096]
    #[arg(long, global = true, value_name = "N", value_parser = parse_positive)]
    pub(crate) ctx: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActivationsArg {
    /// 8 bits: the fastest, and the answers may differ
    Int8,
    /// 8 bits, 16 for outliers
    Auto,
    /// 16 bits
    Int16,
    /// Not rounded
    F32,
}

impl ActivationsArg {
    pub(crate) const fn activations(self) -> ActivationType {
        match self {
            Self::Int8 => ActivationType::Int8,
            Self::Auto => ActivationType::Auto,
            Self::Int16 => ActivationType::Int16,
            Self::F32 => ActivationType::F32,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceArg {
    Cpu,
    Cuda,
    CudaEmulator,
}

impl DeviceArg {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::CudaEmulator => "cuda-emulator",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PromptPrecisionArg {
    Bf16,
    Int8,
}

impl PromptPrecisionArg {
    pub(crate) const fn precision(self) -> PromptPrecision {
        match self {
            Self::Bf16 => PromptPrecision::Bf16,
            Self::Int8 => PromptPrecision::Int8,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvCacheArg {
    F32,
    F16,
    Bf16,
    Q8,
    Fp8,
}

impl KvCacheArg {
    pub(crate) const fn kv_type(self) -> KvType {
        match self {
            Self::F32 => KvType::F32,
            Self::F16 => KvType::F16,
            Self::Bf16 => KvType::Bf16,
            Self::Q8 => KvType::Q8,
            Self::Fp8 => KvType::Fp8,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continue a text and say how fast it went
    Run(RunArgs),
    /// Talk with a model in the form it was trained on (its chat template)
    Chat(ChatArgs),
    /// Answer requests over HTTP, as OpenAI's API has them, and show a page to chat in
    Serve(ServeArgs),
    /// Turn the text on stdin into token ids
    Tokenize(TokenizeArgs),
    /// Show what the model expects after every token of a text
    Logits(LogitsArgs),
    /// Measure how well a model predicts a text
    Perplexity(PerplexityArgs),
    /// Measure how far a model's predictions are from another's
    Kl(KlArgs),
    /// Convert a model's weights to another type
    Quantize(QuantizeArgs),
    /// Measure on a text which columns of a model's matrices matter
    Imatrix(ImatrixArgs),
    /// Measure how far a file's weights are from another's
    Compare(CompareArgs),
    /// Measure tokens a second: prompt (prefill) and reply (decode)
    Bench(BenchArgs),
    /// Measure where the time goes, phase by phase
    Profile(ProfileArgs),
    /// List a file's metadata and tensors
    Inspect(InspectArgs),
    /// Say what this machine offers, what would run, and what is slow and why
    Doctor(DoctorArgs),
    /// Write a script that completes this program's options in a shell
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
}

/// How the next token is chosen.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// 0 always takes the most likely token; higher is more surprising
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = parse_number)]
    pub(crate) temperature: f32,
    /// Choose among the K most likely tokens only; 0 is all
    #[arg(long, value_name = "K", default_value_t = 40, value_parser = parse_count)]
    pub(crate) top_k: usize,
    /// Choose among the most likely tokens that together have this probability; 1 is all
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = parse_number)]
    pub(crate) top_p: f32,
    /// Leave out tokens less likely than this share of the most likely one's probability; 0 is none
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = parse_number)]
    pub(crate) min_p: f32,
    /// Make tokens that were used lately less likely; 1 is off
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = parse_number)]
    pub(crate) repeat_penalty: f32,
    /// Number that decides all chances; the same seed gives the same reply [default: a new one, which is shown]
    #[arg(long, value_name = "S", value_parser = parse_seed)]
    pub(crate) seed: Option<u64>,
}

/// Drafts: tokens that are guessed and then verified together.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Speculative decoding (replies stay the same, to the token)")]
pub(crate) struct SpeculationArgs {
    /// Draft what comes next and verify it in one go: `auto` as many tokens as pay, `off`, or 1 to 15 tokens always
    /// [default: off, auto with --draft-model]
    #[arg(long, value_name = "N", value_parser = parse_speculate)]
    pub(crate) speculate: Option<SpeculateArg>,
    /// A small model of the same vocabulary that makes the drafts [default: they are copied from the context]
    #[arg(long, value_name = "FILE")]
    pub(crate) draft_model: Option<PathBuf>,
}

/// The text that a command begins with. `chat` answers it and ends.
#[derive(Debug, Clone, Args)]
pub(crate) struct PromptArgs {
    /// Text to begin with; - is stdin [default: what is on stdin, unless that is a terminal]
    #[arg(long, short = 'p', value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,
    /// File with the text to begin with, in UTF-8; a line end at its very end is left out
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub(crate) prompt_file: Option<PathBuf>,
}

impl PromptArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.prompt.is_some() || self.prompt_file.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpeculateArg {
    Off,
    Auto,
    Fixed(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RanksArg {
    Auto,
    Mpi,
    Off,
}

const RUN_EXAMPLES: &str = "\
Examples:
  halfbyte run
  halfbyte run --model M.gguf --prompt 'def fibonacci(n):' -n 64 --temperature 0
  halfbyte run --model M.gguf --prompt 'Once upon a time' --seed 7 2>/dev/null > story.txt
  halfbyte run --model M.gguf --prompt 'The sky is' --json | jq .text
  halfbyte run --model M.gguf --prompt-file main.rs --speculate auto
  echo 'The sea' | halfbyte run --model M.gguf
  halfbyte run --model M.gguf --prompt 'The sea' --show-prompt

The prompt is continued as it is: no chat template is put around it (that is `halfbyte chat`). Without --prompt it is what
comes on stdin, less a line end at its very end, and without that the beginning of a story. On a terminal stderr shows
how much of it is read where that takes over a second.
Ctrl-C stops the reply, and the summary follows; the exit code is then 130 (143 after SIGTERM, 129 after SIGHUP).";

/// Continue a text and say how fast it went.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Show the prompt as the model would read it, text and token ids, and do not run the model
    #[arg(long)]
    pub(crate) show_prompt: bool,
    /// The most tokens to make; the model may end earlier
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 128, value_parser = parse_count)]
    pub(crate) n: usize,
    /// Read the names of control tokens in the prompt as the tokens
    #[arg(long)]
    pub(crate) special: bool,
    /// One JSON object on stdout: prompt_ids, ids, text and tokens a second; with --show-prompt, text and ids
    #[arg(long)]
    pub(crate) json: bool,
    /// Share the model with the other processes that MPI has started, each of which computes a part of every matrix:
    /// auto does so under mpirun
    #[arg(long, value_name = "HOW", value_enum, default_value_t = RanksArg::Auto)]
    pub(crate) ranks: RanksArg,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,
}

const CHAT_EXAMPLES: &str = "\
Examples:
  halfbyte chat --model M.gguf --system 'You answer in one sentence.'
  printf 'Hi\\nWhat is your name?\\n' | halfbyte chat --model M.gguf --temperature 0
  halfbyte chat --model M.gguf --show-prompt --prompt 'Hi' --json

Ctrl-C stops the reply and not the program; Ctrl-D or /exit ends it. /help lists the commands; other lines that begin with
a slash are sent to the model. SIGTERM and SIGHUP stop the reply and the program, with exit codes 143 and 129.
When stdin is no terminal, every line is a turn and only the replies go to stdout. On a terminal stderr shows how much of
a prompt is read where that takes over a second.
The model's own chat template is used. Where a model has none, or one that can't be used, `halfbyte run` continues a text
without one.";

/// Talk with a model in the form it was trained on (its chat template).
#[derive(Debug, Args)]
#[command(after_help = CHAT_EXAMPLES)]
pub(crate) struct ChatArgs {
    /// What the model is told first of all [default: what its template says]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) system: Option<String>,
    /// Tell the chat template something by name, such as enable_thinking=false; the value is JSON if it is JSON, otherwise a
    /// text
    #[arg(long = "template-arg", value_name = "NAME=VALUE", value_parser = parse_template_arg)]
    pub(crate) template_args: Vec<(String, String)>,
    /// Show one message as the model would read it, text and token ids, and do not run the model
    #[arg(long)]
    pub(crate) show_prompt: bool,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// With --show-prompt: one JSON object on stdout, with text and ids
    #[arg(long, requires = "show_prompt")]
    pub(crate) json: bool,
    /// The most tokens of a reply [default: until the model ends it or the context is full]
    #[arg(short = 'n', long = "tokens", value_name = "N", value_parser = parse_count)]
    pub(crate) n: Option<usize>,
    /// When the context is full, forget the oldest turns instead of stopping
    #[arg(long)]
    pub(crate) drop_oldest: bool,
    /// Read the lines typed earlier from this file, and add to it
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Share the model with the other processes that MPI has started, each of which computes a part of every matrix:
    /// auto does so under mpirun
    #[arg(long, value_name = "HOW", value_enum, default_value_t = RanksArg::Auto)]
    pub(crate) ranks: RanksArg,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) speculation: SpeculationArgs,
}

const SERVE_HELP: &str = "\
Examples:
  halfbyte serve --model M.gguf                 then open http://127.0.0.1:8080
  HALFBYTE_API_KEY=secret halfbyte serve --model M.gguf --host 0.0.0.0 --port 80
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \\
    -d '{\"prompt\": \"The sky is\", \"max_tokens\": 8, \"temperature\": 0}'

Routes: /v1/chat/completions, /v1/completions, /v1/models, /health, /metrics (Prometheus), and the page at /.
A client of OpenAI's API needs the base URL http://HOST:PORT/v1 and, without a key here, any key.
Where a request says nothing, the sampling options hold. Replies under way share the forward passes; each is what it
would be alone. HALFBYTE_API_KEY is the key that requests must bring. Ctrl-C (or SIGTERM, SIGHUP) lets the replies
under way end, a second one does not. RUST_LOG=info logs every request to stderr.";

/// Answer requests over HTTP, as OpenAI's API has them, and show a page to chat in.
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct ServeArgs {
    /// Address or name to listen on; 0.0.0.0 is all of this machine's addresses
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Port to listen on; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 8080, value_parser = parse_port)]
    pub(crate) port: u16,
    /// What clients call the model [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) alias: Option<String>,
    /// Replies made at once, each in a context of --ctx tokens
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_positive)]
    pub(crate) slots: usize,
    /// Requests that may wait for a slot before further ones are refused
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = parse_positive)]
    pub(crate) queue: usize,
    /// Bytes that a request may have
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, value_parser = parse_positive)]
    pub(crate) max_body: usize,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

const TOKENIZE_EXAMPLES: &str = "\
Examples:
  printf 'Hello world' | halfbyte tokenize --model M.gguf
  printf '<|im_start|>' | halfbyte tokenize --model M.gguf --special --json

Every byte of stdin counts, a last newline too. No token is added at the beginning or the end.";

/// Turn the text on stdin into token ids.
#[derive(Debug, Args)]
#[command(after_help = TOKENIZE_EXAMPLES)]
pub(crate) struct TokenizeArgs {
    /// Read the names of control tokens as the tokens
    #[arg(long)]
    pub(crate) special: bool,
    /// One JSON object on stdout: ids
    #[arg(long)]
    pub(crate) json: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  halfbyte bench --model M.gguf
  halfbyte bench --model M.gguf -p 0 -n 256 -t 1,2,4 --reps 10 --json";

/// Measure tokens a second: prompt (prefill) and reply (decode).
#[derive(Debug, Args)]
#[command(after_help = BENCH_EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Prompt tokens; 0 leaves the test out
    #[arg(short = 'p', long = "n-prompt", value_name = "N", default_value_t = 512, value_parser = parse_count)]
    pub(crate) n_prompt: usize,
    /// Tokens to decode, one by one; 0 leaves the test out
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value_t = 128, value_parser = parse_count)]
    pub(crate) n_gen: usize,
    /// Tokens in the context when decoding begins
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0, value_parser = parse_count)]
    pub(crate) depth: usize,
    /// Numbers of threads to test, with commas between [default: --threads]
    #[arg(short = 't', value_name = "LIST", value_delimiter = ',', value_parser = parse_threads)]
    pub(crate) thread_counts: Option<Vec<usize>>,
    /// Times to repeat each test, after once to warm up
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = parse_positive)]
    pub(crate) reps: usize,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const PROFILE_EXAMPLES: &str = "\
Examples:
  halfbyte profile --model M.gguf
  halfbyte profile --model M.gguf -p 2048 -n 64 --threads 1 --json

Prompt and decode steps have a table each: the calls of a phase, their time in all and each, the phase's share, and
10^9 bytes of weights (of keys and values for attention) or 10^9 multiplications and additions a second.
On a CUDA device it is kernel by kernel. The emulator has no times: there the tables count launches, instructions,
products of the tensor cores, and bytes moved beside the least that have to be.";

/// Measure where the time goes, phase by phase or, on a CUDA device, kernel by kernel.
#[derive(Debug, Args)]
#[command(after_help = PROFILE_EXAMPLES)]
pub(crate) struct ProfileArgs {
    /// Prompt tokens
    #[arg(short = 'p', long = "n-prompt", value_name = "N", default_value_t = 512, value_parser = parse_positive)]
    pub(crate) n_prompt: usize,
    /// Tokens to decode behind them, one by one
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value_t = 32, value_parser = parse_positive)]
    pub(crate) n_gen: usize,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  halfbyte inspect M.gguf
  halfbyte inspect DIRECTORY --json | jq '.tensors[].name'

Of a directory's files is shown what a GGUF file of the model would say. Nothing is computed: a file that can't be run
can be looked into.";

/// List a file's metadata and tensors.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(crate) struct InspectArgs {
    /// Model file [default: --model]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  halfbyte doctor
  halfbyte doctor --model M.gguf --ctx 8192 --kv-cache q8
  HALFBYTE_THREADS=8 halfbyte doctor --json";

/// Say what this machine offers, what would run, and what is slow and why.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  halfbyte completions bash > ~/.local/share/bash-completion/completions/halfbyte
  halfbyte completions fish > ~/.config/fish/completions/halfbyte.fish
  halfbyte completions zsh > \"${fpath[1]}/_halfbyte\"";

/// Write a script that completes this program's options in a shell.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

const MAN_EXAMPLES: &str = "\
Examples:
  halfbyte man ~/.local/share/man/man1 && man halfbyte-chat";

/// Write the manual pages: halfbyte.1, and one for each command.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// Folder to write to; it is made if it is not there
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

/// The name and the value of an argument for the chat template.
fn parse_template_arg(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a whole number of at least 0".to_owned())
}

fn parse_number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| "expected a number, such as 0.8".to_owned())
}

fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("expected a port number from 0 to {}", u16::MAX))
}

fn parse_positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n > 0).ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

fn parse_speculate(text: &str) -> Result<SpeculateArg, String> {
    match text {
        "off" => Ok(SpeculateArg::Off),
        "auto" => Ok(SpeculateArg::Auto),
        _ => match text.parse() {
            Ok(n) if (1..=MOST).contains(&n) => Ok(SpeculateArg::Fixed(n)),
            _ => Err(format!("expected auto, off, or a number of tokens from 1 to {MOST}")),
        },
    }
}

fn parse_threads(text: &str) -> Result<usize, String> {
    let n = text.trim().parse().ok().filter(|n| (1..=MAX_THREADS).contains(n));
    n.ok_or_else(|| format!("expected a whole number from 1 to {MAX_THREADS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_on_either_side_of_the_command() {
        for line in [["halfbyte", "--ctx", "9", "run"], ["halfbyte", "run", "--ctx", "9"]] {
            assert_eq!(Cli::try_parse_from(line).unwrap().global.ctx, Some(9));
        }
    }

    #[test]
    fn ids_may_have_spaces() {
        let cli = Cli::try_parse_from(["halfbyte", "logits", "--ids", "1, 2,30"]).unwrap();
        let Command::Logits(args) = cli.command else { panic!("{cli:?}") };
        assert_eq!(args.input.ids.unwrap(), [1, 2, 30]);
    }

    #[test]
    fn without_a_command_it_is_run() {
        let parse = |line: &[&str]| Cli::from_args(line.iter().map(OsString::from).collect());
        for line in
            [&["halfbyte"][..], &["halfbyte", "--ctx", "9"], &["halfbyte", "--prompt", "chat", "-n", "5"]]
        {
            assert!(matches!(parse(line).unwrap().command, Command::Run(_)), "{line:?}");
        }
        let error = |line: &[&str]| parse(line).unwrap_err();
        assert!(
            error(&["halfbyte", "--seed", "x"]).to_string().contains("invalid value 'x' for '--seed <S>'")
        );
        assert!(error(&["halfbyte", "--seed", "1", "chat"]).to_string().contains("argument '--seed' found"));
        assert!(error(&["halfbyte", "bench", "--seed", "1"]).to_string().contains("argument '--seed' found"));
        assert_eq!(error(&["halfbyte", "--version"]).kind(), ErrorKind::DisplayVersion);
        assert_eq!(error(&["halfbyte", "walk"]).kind(), ErrorKind::InvalidSubcommand);
    }
}
