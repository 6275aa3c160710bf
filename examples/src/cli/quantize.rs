//! `halfbyte quantize`: a model in another type.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use halfbyte_examples::gguf::{GgufWriter, HumanBytes};
use halfbyte_examples::requantize::{Difference, Error, Format, Keep, Method, Plan, Written};
use halfbyte_threadpool::ThreadPool;
use serde::Serialize;

use super::args::{FormatArg, GlobalArgs, MethodArg, QuantizeArgs};
use super::output::{self, note};
use super::progress::Progress;
use super::{compare, engine};

#[derive(Serialize)]
struct Output<'a> {
    input: String,
    output: String,
    #[serde(rename = "type")]
    ty: &'static str,
    /// `null` if nothing is quantized to Q4_0.
    method: Option<&'static str>,
    tensors: Vec<TensorJson<'a>>,
    weights: usize,
    input_bytes: usize,
    output_bytes: u64,
    /// Of the tensors alone, without metadata.
    bits_per_weight: f64,
    /// Over all tensors but vectors.
    relative_squared_error: f64,
    seconds: f64,
}

#[derive(Serialize)]
struct TensorJson<'a> {
    name: &'a str,
    from: &'static str,
    to: &'static str,
    shape: &'a [usize],
    bits_per_weight: f32,
    relative_squared_error: f64,
}

pub(crate) fn run(global: &GlobalArgs, args: &QuantizeArgs) -> Result<()> {
    let (format, keep, method) = recipe(args)?;
    let (input, out) = (args.input.display().to_string(), args.output.display().to_string());
    let gguf = engine::open(Some(&args.input))?;
    check_output(&args.input, &args.output, args.force)?;
    let plan = Plan::new(&gguf, format, &keep).with_context(|| input.clone())?;
    let pool = ThreadPool::new(engine::threads(global)?.value)?;
    let ctx = halfbyte_cpu_kernels::Context { pool: &pool, isa: engine::isa(global)?.value };
    let mut writer = GgufWriter::create(&args.output, plan.metadata(), plan.tensors())?;

    let mut progress = Progress::new(plan.n_weights())?;
    let written = plan.write(ctx, &mut writer, |done| progress.show(done)).map_err(|error| {
        // The input was opened long ago: what is wrong with a file now is that it cannot be written.
        let file = if matches!(error, Error::Gguf(_)) { &out } else { &input };
        anyhow::Error::new(error).context(file.clone())
    })?;
    let Some(tensors) = written else { bail!("stopped; {out} is as it was") };
    writer.commit()?;
    let seconds = progress.seconds();
    drop(progress);

    let mut total = Difference::default();
    for tensor in &tensors {
        total += tensor.difference;
    }
    let tensor_bytes: usize = tensors.iter().map(|t| t.tensor.n_bytes).sum();
    let result = Output {
        input,
        output: out,
        ty: format.tensor_type().name(),
        method: method.map(Method::name),
        tensors: tensors.iter().map(tensor_json).collect(),
        weights: plan.n_weights(),
        input_bytes: gguf.file_bytes(),
        output_bytes: std::fs::metadata(&args.output).context("cannot see the new file's size")?.len(),
        bits_per_weight: 8.0 * tensor_bytes as f64 / plan.n_weights() as f64,
        relative_squared_error: total.relative_squared_error(),
        seconds,
    };
    note!("{}", describe(&result)?);
    if args.json {
        output::json(&result)?;
    }
    Ok(())
}

/// What the options say: the type, the exceptions, and the method if there is anything to apply it to.
fn recipe(args: &QuantizeArgs) -> Result<(Format, Vec<Keep>, Option<Method>)> {
    let mut types = args.keep.iter().map(|keep| keep.ty).chain([args.ty]);
    let has_q4_0 = types.any(|ty| ty == FormatArg::Q4_0);
    if args.method.is_some() && !has_q4_0 {
        bail!("--method is for q4_0, which neither --type nor --keep asks for");
    }
    let method = match args.method.unwrap_or(MethodArg::Fit) {
        MethodArg::Max7 => Method::Max7,
        MethodArg::Max => Method::Max,
        MethodArg::Fit => Method::Fit,
    };
    let format = |ty| match ty {
        FormatArg::F32 => Format::F32,
        FormatArg::F16 => Format::F16,
        FormatArg::Q8_0 => Format::Q8_0,
        FormatArg::Q4_0 => Format::Q4_0(method),
        FormatArg::Q4_1 => Format::Q4_1,
    };
    let keep = args.keep.iter().map(|keep| Keep { pattern: keep.pattern.clone(), format: format(keep.ty) });
    Ok((format(args.ty), keep.collect(), has_q4_0.then_some(method)))
}

/// Refuses to take the place of the input, and without `force` that of anything.
fn check_output(input: &Path, output: &Path, force: bool) -> Result<()> {
    // Of a path that leads nowhere there is no file to lose.
    if let (Ok(input), Ok(found)) = (input.canonicalize(), output.canonicalize())
        && input == found
    {
        bail!("{} is the file to be read: expected another name for the new one", output.display());
    }
    if !force && output.symlink_metadata().is_ok() {
        bail!("{} exists already: --force replaces it", output.display());
    }
    Ok(())
}

fn tensor_json(written: &Written) -> TensorJson<'_> {
    let Written { tensor, from, difference, .. } = written;
    TensorJson {
        name: &tensor.name,
        from: from.name(),
        to: tensor.ty.name(),
        shape: &tensor.dims,
        bits_per_weight: tensor.ty.bits_per_weight(),
        relative_squared_error: difference.relative_squared_error(),
    }
}

/// The summary for people.
fn describe(result: &Output<'_>) -> Result<String> {
    let mut text = String::new();
    let width = compare::name_width(result.tensors.iter().map(|t| t.name));
    writeln!(text, "{:width$}  {:5}    {:5}  bits/w  relative squared error", "tensor", "from", "to")?;
    for tensor in &result.tensors {
        let TensorJson { from, to, bits_per_weight: bits, relative_squared_error: error, .. } = tensor;
        let name = tensor.name.escape_debug().to_string();
        writeln!(text, "{name:width$}  {from:5} -> {to:5}  {bits:6.2}  {error:.3e}")?;
    }
    let method = result.method.map(|method| format!(", {method}")).unwrap_or_default();
    write!(
        text,
        "{}: {}{method}, {} -> {}, {:.3} bits/weight, relative squared error {:.3e}, {:.1} s",
        result.output,
        result.ty,
        HumanBytes(result.input_bytes as u64),
        HumanBytes(result.output_bytes),
        result.bits_per_weight,
        result.relative_squared_error,
        result.seconds,
    )?;
    Ok(text)
}
