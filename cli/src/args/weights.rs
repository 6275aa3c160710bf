//! Commands that make and compare weights.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use halfbyte::requantize::{Encoding, EncodingError, Method, Mix};
use halfbyte::weight_types::WeightType;

use super::{parse_count, parse_positive};
use crate::words::{both, either};

/// The help text behind the options of `halfbyte quantize`.
fn quantize_help() -> String {
    let with_methods = both(types_with_methods());
    let mixes = both(Mix::ALL.map(|mix| mix.name().to_lowercase()));
    let width = Method::ALL.map(|method| method.name().len()).into_iter().max().unwrap_or(0);
    let mut methods = String::new();
    for method in Method::ALL {
        let has = |encoding: &Encoding| encoding.methods().contains(&method);
        let missing = Encoding::all().any(|encoding| !encoding.methods().is_empty() && !has(&encoding));
        let types = Encoding::all().filter(has).map(Encoding::type_name);
        let only = if missing { format!(" ({})", both(types)) } else { String::new() };
        let usual: Vec<_> = Encoding::all()
            .filter(|encoding| encoding.method() == Some(method))
            .map(Encoding::type_name)
            .collect();
        let usual = if usual.is_empty() { usual.concat() } else { format!(" [default for {}]", both(usual)) };
        methods += &format!("  {:width$}  {}{only}{usual}\n", method.name(), method.summary());
    }
    format!(
        "\
Examples:
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0 --keep token_embd.weight=q8_0 --keep '*.ffn_down.*=q4_1'
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0 --method gptq --calibrate text.txt
  halfbyte quantize F16.gguf Q4_0.gguf --type q4_0 --imatrix F16.imatrix.gguf
  halfbyte quantize F16.gguf Q4_K_M.gguf --type q4_k_m --imatrix F16.imatrix.gguf
  halfbyte quantize Q4_K_M.gguf F16.gguf --type f16 --json | jq .relative_squared_error

Tensors of two dimensions get the type; norms, biases and other vectors stay as they are, and so does a tensor that
has the type already. A tensor whose rows are not whole super-blocks of 256 weights gets q4_0 instead of q2_k and q3_k,
iq4_nl instead of iq4_xs, q5_0 instead of q4_k, q5_1 instead of q5_k, q8_0 instead of q6_k, as in llama.cpp. The new file
appears when it is complete; ended before, OUT is as it was.

{mixes} are llama.cpp's mixes: the tensors that
lose most by few bits get a better type. --keep changes the type of single tensors in them, too.

Methods, for {with_methods}; size and speed of the result are the same for all:
{methods}
{} can weigh columns by importance: from a file (--imatrix) or measured on a text (--calibrate). gptq needs a text, and
takes importance from a file alone. It keeps finished tensors in OUT.partial: stopped, it goes on from there when the
same command is given again.

The error is sum (w - q)^2 / sum w^2, with the weights w of IN and q of OUT; vectors are not in the total.",
        both(names(Method::takes_importance)),
    )
}

/// The names of the types whose parameters can be chosen in more than one way.
pub(crate) fn types_with_methods() -> impl Iterator<Item = String> {
    Encoding::all().filter(|encoding| !encoding.methods().is_empty()).map(Encoding::type_name)
}

/// The names of the methods that `fits` accepts.
pub(crate) fn names(fits: impl Fn(Method) -> bool) -> impl Iterator<Item = &'static str> {
    Method::ALL.into_iter().filter(move |&method| fits(method)).map(Method::name)
}

/// What `--type` asks for: a type, or a mix of types.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypeArg {
    /// The type of all tensors, or of most in a mix.
    pub(crate) encoding: Encoding,
    pub(crate) mix: Option<Mix>,
}

/// The types that weights can be written in and llama.cpp's mixes, as option values. A name that is both is the mix.
fn type_parser() -> impl TypedValueParser<Value = TypeArg> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut names: Vec<_> = Encoding::all().map(Encoding::type_name).collect();
        let mixes = Mix::ALL.map(|mix| mix.name().to_lowercase());
        names.extend(mixes.into_iter().filter(|mix| Encoding::all().all(|ty| ty.type_name() != *mix)));
        names
    });
    PossibleValuesParser::new(NAMES.iter().map(String::as_str)).try_map(|name| {
        let mix = Mix::by_name(&name);
        let encoding = mix.map_or_else(|| name.parse(), Mix::usual)?;
        Ok::<_, EncodingError>(TypeArg { encoding, mix })
    })
}

/// The methods, as option values.
fn method_parser() -> impl TypedValueParser<Value = Method> {
    let unknown = "expected the name of a method";
    PossibleValuesParser::new(names(|_| true)).try_map(move |name| Method::by_name(&name).ok_or(unknown))
}

/// Convert a model's weights to another type.
#[derive(Debug, Args)]
#[command(after_help = quantize_help())]
pub(crate) struct QuantizeArgs {
    /// Model file
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Type of the weights, or mix of types
    #[arg(long = "type", value_name = "TYPE", value_parser = type_parser())]
    pub(crate) ty: TypeArg,
    /// How scales and codes are chosen, in types where there is a choice
    #[arg(long, value_name = "NAME", value_parser = method_parser())]
    pub(crate) method: Option<Method>,
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

/// A type for the tensors of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeepArg {
    pub(crate) pattern: String,
    pub(crate) ty: Encoding,
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

/// What `--load-as` can make: types that int8 activations multiply, by methods that need no text.
fn can_be_loaded_as(encoding: &Encoding) -> bool {
    WeightType::of(encoding.tensor_type()).is_some_and(WeightType::int8)
        && encoding.method() != Some(Method::Gptq)
}

/// The help text of `--load-as`.
pub(super) fn load_as_help() -> String {
    let types = Encoding::all().filter(can_be_loaded_as).map(Encoding::type_name);
    format!(
        "Quantize the weights when the model is loaded, as `halfbyte quantize` would: {}, with a method behind a colon if \
         wanted (q4_0:optimal)",
        either(types)
    )
}

/// A type, and a method behind a colon.
pub(super) fn parse_load_as(text: &str) -> Result<Encoding, String> {
    let ty = text.split_once(':').map_or(text, |(ty, _)| ty);
    let Some(usual) = Encoding::all().filter(can_be_loaded_as).find(|of| of.type_name() == ty) else {
        let types = Encoding::all().filter(can_be_loaded_as).map(Encoding::type_name);
        return Err(format!("{ty:?}: expected {}", either(types)));
    };
    text.parse().ok().filter(can_be_loaded_as).ok_or_else(|| {
        let methods = usual.methods().iter().filter_map(|&method| usual.with_method(method).ok());
        let methods: Vec<_> =
            methods.filter(can_be_loaded_as).filter_map(|of| of.method().map(Method::name)).collect();
        match &*methods {
            [] => format!("expected nothing behind {ty}: it is quantized in one way"),
            _ => format!("expected {} behind {ty}:", either(methods)),
        }
    })
}

fn parse_damping(text: &str) -> Result<f64, String> {
    let damping = text.parse().ok().filter(|d| (0.0..=1.0).contains(d));
    damping.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

fn parse_keep(text: &str) -> Result<KeepArg, String> {
    // Type names have no `=`, so that a pattern may.
    let (pattern, ty) =
        text.rsplit_once('=').ok_or("expected PATTERN=TYPE, such as token_embd.weight=q8_0")?;
    let wrong = || EncodingError::Type { got: ty.to_owned() }.to_string();
    let ty = Encoding::all().find(|encoding| encoding.type_name() == ty).ok_or_else(wrong)?;
    Ok(KeepArg { pattern: pattern.to_owned(), ty })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The README's list of types is that of the table.
    #[test]
    fn the_readme_lists_the_types() {
        let ggml = |packs| {
            let entries = WeightType::all().iter().filter(move |entry| entry.tensor_type().is_ggml());
            both(entries.filter(|entry| entry.packs() == packs).map(|entry| entry.tensor_type().name()))
        };
        let mut bits: Vec<_> =
            WeightType::all().iter().filter_map(|entry| Some(entry.affine()?.0.to_string())).collect();
        bits.dedup();
        let readme = include_str!("../../../README.md").split_whitespace().collect::<Vec<_>>().join(" ");
        for text in [
            format!("{} ({} are read, without a fast path)", ggml(true), ggml(false)),
            format!("MLX directories in {} bits", both(bits)),
        ] {
            assert!(readme.contains(&text), "README.md lacks {text:?}");
        }
    }

    #[test]
    fn the_help_of_quantize_has_every_method_with_its_types() {
        let help = quantize_help();
        for line in [
            "Methods, for q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs and mxfp4; size",
            "\n  max7     each group's biggest weight divided by 7 (q4_0)\n",
            "\n  max      the extremes of a group at the ends of the range, as other programs do (q4_0 and q4_1) [default for \
             q4_1]\n",
            "\n  fit      many scales tried, those with the least squared error [default for q4_0, q5_0, q5_1, q2_k, q3_k, \
             q4_k, q5_k, q6_k, iq4_nl, iq4_xs and mxfp4]\n",
            "\nq2_k, q3_k_s, q3_k_m, q3_k_l, q4_k_s, q4_k_m, q5_k_s and q5_k_m are llama.cpp's mixes",
            "\nfit, optimal and gptq can weigh columns",
        ] {
            assert!(help.contains(line), "{line:?} is not in {help}");
        }
        assert!(load_as_help().contains("would: q8_0, q4_0, q4_1, q5_0, q5_1, "), "{}", load_as_help());
    }
}
