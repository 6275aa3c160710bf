//! Commands that make and compare weights.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{parse_count, parse_positive};

const QUANTIZE_HELP: &str = "\
Examples:
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0 --keep token_embd.weight=q8_0 --keep '*.ffn_down.*=q4_1'
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0 --method gptq --calibrate text.txt
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0 --imatrix F16.imatrix.gguf
  halfbyte quantize Q4_K_M.gguf F16.gguf --type f16 --json | jq .relative_squared_error

Tensors of two dimensions get the type; norms, biases and other vectors stay as they are, and so does a tensor that
has the type already. The new file appears when it is complete; ended before, OUT is as it was.

Methods, for q4_0 and q4_1; size and speed of the result are the same for all:
  max7     each group's biggest weight divided by 7 (q4_0)
  max      the extremes of a group at the ends of the range, as other programs do [default for q4_1]
  fit      twenty tries a group, the one with the least squared error [default for q4_0]
  optimal  the least squared error there is; some ten times slower (q4_0)
  gptq     weights rounded so that errors cancel in the outputs that a text gives; minutes, and by far the best

fit and optimal can weigh columns by importance: from a file (--imatrix) or measured on a text (--calibrate). gptq needs
a text. It keeps finished tensors in OUT.partial: stopped, it goes on from there when the same command is given again.

The error is sum (w - q)^2 / sum w^2, with the weights w of IN and q of OUT; vectors are not in the total.";

/// Convert a model's weights to another type.
#[derive(Debug, Args)]
#[command(after_help = QUANTIZE_HELP)]
pub(crate) struct QuantizeArgs {
    /// Model file
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Type of the weights
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    pub(crate) ty: FormatArg,
    /// How q4_0 and q4_1 choose scales and codes
    #[arg(long, value_name = "NAME", value_enum)]
    pub(crate) method: Option<MethodArg>,
    /// Importance of columns, as `halfbyte imatrix` and llama.cpp write it
    #[arg(long, value_name = "FILE")]
    pub(crate) imatrix: Option<PathBuf>,
    /// A text like those that the model is for: what its matrices see on it decides what matters
    #[arg(long, value_name = "TEXT")]
    pub(crate) calibrate: Option<PathBuf>,
    /// Tokens of the text to use, in windows of --ctx (512)
    #[arg(long, value_name = "N", default_value_t = 32768, value_parser = parse_positive, requires = "calibrate")]
    pub(crate) calibrate_tokens: usize,
    /// gptq: share of the mean second moment that is added to all of them
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = parse_damping)]
    pub(crate) damping: f64,
    /// gptq: take columns as they lie, not those with the largest activations first
    #[arg(long)]
    pub(crate) natural_order: bool,
    /// Fail where weights would be quantized without the importance or the damping asked for
    #[arg(long)]
    pub(crate) strict: bool,
    /// Take weights beyond a type's range to its end instead of failing
    #[arg(long)]
    pub(crate) saturate: bool,
    /// Another type for the tensors whose names fit a pattern (* any text, ? any character); the last that fits counts
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = parse_keep)]
    pub(crate) keep: Vec<KeepArg>,
    /// Replace OUT if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
    F32,
    F16,
    #[value(name = "bf16")]
    BF16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
    #[value(name = "q4_1")]
    Q4_1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodArg {
    Max7,
    Max,
    Fit,
    Optimal,
    Gptq,
}

impl MethodArg {
    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Max7 => "max7",
            Self::Max => "max",
            Self::Fit => "fit",
            Self::Optimal => "optimal",
            Self::Gptq => "gptq",
        }
    }
}

/// A type for the tensors of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeepArg {
    pub(crate) pattern: String,
    pub(crate) ty: FormatArg,
}

const IMATRIX_HELP: &str = "\
Examples:
  halfbyte imatrix --model F16.gguf --text text.txt F16.imatrix.gguf
  halfbyte imatrix --model F16.gguf --text more.txt both.gguf --merge F16.imatrix.gguf
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0 --imatrix F16.imatrix.gguf

Written are sums of squared activations for every column of every matrix, the output matrix too (by the embedding's name
where the two are one), in the formats that llama.cpp's tools read. The text is cut into windows of --ctx tokens [default:
512]; what is left at the end is dropped.";

/// Measure on a text which columns of a model's matrices matter.
#[derive(Debug, Args)]
#[command(after_help = IMATRIX_HELP)]
pub(crate) struct ImatrixArgs {
    /// The file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The text, in UTF-8; names of control tokens in it are text
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    /// Tokens of the text to use [default: all]
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub(crate) tokens: Option<usize>,
    /// Add what these files hold
    #[arg(long, value_name = "FILE")]
    pub(crate) merge: Vec<PathBuf>,
    /// gguf, or dat, which older programs read
    #[arg(long, value_name = "NAME", value_enum, default_value_t = ImatrixFormatArg::Gguf)]
    pub(crate) format: ImatrixFormatArg,
    /// Replace OUT if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImatrixFormatArg {
    Gguf,
    Dat,
}

const COMPARE_HELP: &str = "\
Examples:
  halfbyte compare F16.gguf Q4_0.gguf
  halfbyte compare F16.gguf Q4_0.gguf --text text.txt

The error is sum (a - b)^2 / sum a^2, in the total over all tensors but vectors. Tensors of other shapes, or in one file
alone, are named; the exit code is then 1.

With --text, the matrices of both files are multiplied by the inputs x that those of A get on the text: the output error
of a matrix is sum |A x - B x|^2 / sum |A x|^2, in the total the mean over the matrices. The text is cut into windows of
--ctx tokens [default: 512].";

/// Measure how far a file's weights are from another's.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_HELP)]
pub(crate) struct CompareArgs {
    /// Model file
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// Model file that is made from it
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// A text, in UTF-8, to measure the errors of the matrices' outputs on
    #[arg(long, value_name = "FILE")]
    pub(crate) text: Option<PathBuf>,
    /// Tokens of the text to use
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = parse_count, requires = "text")]
    pub(crate) tokens: usize,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// A type, and a method behind a colon.
pub(super) fn parse_load_as(text: &str) -> Result<(FormatArg, Option<MethodArg>), String> {
    let (ty, method) = text.split_once(':').map_or((text, None), |(ty, method)| (ty, Some(method)));
    let ty = match FormatArg::from_str(ty, false) {
        Ok(ty @ (FormatArg::Q4_0 | FormatArg::Q4_1 | FormatArg::Q8_0)) => ty,
        _ => return Err(format!("{ty:?}: expected q4_0, q4_1 or q8_0")),
    };
    let method = match method.map(|name| MethodArg::from_str(name, false)) {
        None => None,
        Some(Ok(method @ (MethodArg::Max | MethodArg::Fit))) if ty != FormatArg::Q8_0 => Some(method),
        Some(Ok(method @ (MethodArg::Max7 | MethodArg::Optimal))) if ty == FormatArg::Q4_0 => Some(method),
        Some(_) => return Err("expected max, fit, and for q4_0 max7 or optimal, behind the colon".to_owned()),
    };
    Ok((ty, method))
}

fn parse_damping(text: &str) -> Result<f64, String> {
    let damping = text.parse().ok().filter(|d| (0.0..=1.0).contains(d));
    damping.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

fn parse_keep(text: &str) -> Result<KeepArg, String> {
    // Type names have no `=`, so that a pattern may.
    let (pattern, ty) =
        text.rsplit_once('=').ok_or("expected PATTERN=TYPE, such as token_embd.weight=q8_0")?;
    let ty = FormatArg::from_str(ty, false).map_err(|_| {
        let names = FormatArg::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        format!("{ty:?} is not a type: expected one of {}", names.join(", "))
    })?;
    Ok(KeepArg { pattern: pattern.to_owned(), ty })
}
