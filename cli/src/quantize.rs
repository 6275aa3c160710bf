//! `halfbyte quantize`: a model in another type.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use halfbyte::requantize::{Difference, Error, Format, Keep, Method, Plan, Ready, Written};
use halfbyte_gguf::{GgufWriter, HumanBytes};
use serde::Serialize;

use super::args::{FormatArg, GlobalArgs, MethodArg, QuantizeArgs};
use super::calibration::Calibration;
use super::output::{self, note};
use super::progress::Progress;
use super::{compare, engine, new_file};

#[derive(Serialize)]
struct Output<'a> {
    input: String,
    output: String,
    #[serde(rename = "type")]
    ty: &'static str,
    /// `null` if nothing is quantized to 4 bits.
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
    let Recipe { format, keep, method } = recipe(args)?;
    let (input, out) = (args.input.display().to_string(), args.output.display().to_string());
    let gguf = engine::open(Some(&args.input))?;
    let others = args.imatrix.iter().chain(&args.calibrate).map(PathBuf::as_path);
    new_file::check(&args.output, &gguf, others, args.force)?;
    let mut plan = Plan::new(&**gguf, format, &keep).with_context(|| input.clone())?;
    if args.saturate {
        plan.saturate();
    }
    let compute = engine::compute(global)?;

    // Both passes over the weights count.
    let passes = 1 + usize::from(args.calibrate.is_some());
    let mut progress = Progress::new(passes * plan.n_weights())?;
    let calibration = Calibration::new(global, args, &compute, &gguf)?;
    let mut warnings = calibration.weigh(&mut plan, method, &mut progress)?;
    let checkpoint = match method {
        Some(MethodArg::Gptq) => Some(calibration.round(&plan, &mut progress, &mut warnings)?),
        _ => None,
    };
    refuse_or_tell(args.strict, &warnings)?;

    let mut writer = GgufWriter::create(&args.output, plan.metadata(), plan.tensors())?;
    let done_before = (passes - 1) * plan.n_weights();
    let ready: &dyn Ready = checkpoint.as_ref().map_or(&(), |made| made as &dyn Ready);
    let written = plan
        .write(compute.context(), &mut writer, ready, |done| progress.show(done_before + done))
        .map_err(|error| {
            // The input was opened long ago: what is wrong with a file now is that it cannot be written.
            let file = if matches!(error, Error::Gguf(_)) { &out } else { &input };
            anyhow::Error::new(error).context(file.clone())
        })?;
    let Some(tensors) = written else { bail!("stopped; {out} is as it was") };
    refuse_or_tell(args.strict, &remarks(&tensors))?;
    // Half of another model's weights would look like a result.
    gguf.require_unchanged()?;
    writer.commit()?;
    if let Some(checkpoint) = checkpoint {
        checkpoint.remove()?;
    }
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
        method: method.map(MethodArg::name),
        tensors: tensors.iter().map(tensor_json).collect(),
        weights: plan.n_weights(),
        input_bytes: gguf.n_bytes(),
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

/// What the options say.
struct Recipe {
    format: Format,
    keep: Vec<Keep>,
    /// How 4-bit tensors are made, if there are any.
    method: Option<MethodArg>,
}

fn recipe(args: &QuantizeArgs) -> Result<Recipe> {
    let types = || args.keep.iter().map(|keep| keep.ty).chain([args.ty]);
    let has = |wanted| types().any(|ty| ty == wanted);
    let has_4_bits = has(FormatArg::Q4_0) || has(FormatArg::Q4_1);
    let named = args.method;
    if !has_4_bits {
        for (option, is_there) in [
            ("--method", named.is_some()),
            ("--imatrix", args.imatrix.is_some()),
            ("--calibrate", args.calibrate.is_some()),
        ] {
            if is_there {
                bail!("{option} is for q4_0 and q4_1, which neither --type nor --keep asks for");
            }
        }
    }
    if let Some(method @ (MethodArg::Max7 | MethodArg::Optimal)) = named
        && !has(FormatArg::Q4_0)
    {
        bail!("--method {} is for q4_0: expected max, fit or gptq for q4_1", method.name());
    }
    if named == Some(MethodArg::Gptq) && args.calibrate.is_none() {
        bail!("--method gptq needs a text to calibrate on: expected --calibrate TEXT");
    }
    let weighed = args.imatrix.is_some() || args.calibrate.is_some();
    if let Some(method @ (MethodArg::Max7 | MethodArg::Max)) = named
        && weighed
    {
        bail!(
            "--method {} minimises no error that columns could weigh in: expected fit, optimal or gptq",
            method.name()
        );
    }
    if args.imatrix.is_some() && args.calibrate.is_some() && named != Some(MethodArg::Gptq) {
        bail!("both --imatrix and --calibrate say how important columns are: expected one of them");
    }
    // Of tensors that are not calibrated, gptq is the fit.
    let method = |default| match named.unwrap_or(default) {
        MethodArg::Max7 => Method::Max7,
        MethodArg::Max => Method::Max,
        MethodArg::Fit | MethodArg::Gptq => Method::Fit,
        MethodArg::Optimal => Method::Optimal,
    };
    // The fit of two parameters takes long: it is for those who ask for it, or for importance.
    let q4_1 = if weighed { MethodArg::Fit } else { MethodArg::Max };
    let format = |ty| match ty {
        FormatArg::F32 => Format::F32,
        FormatArg::F16 => Format::F16,
        FormatArg::BF16 => Format::BF16,
        FormatArg::Q8_0 => Format::Q8_0,
        FormatArg::Q4_0 => Format::Q4_0(method(MethodArg::Fit)),
        FormatArg::Q4_1 => Format::Q4_1(method(q4_1)),
    };
    let keep = args.keep.iter().map(|keep| Keep { pattern: keep.pattern.clone(), format: format(keep.ty) });
    let default = if has(FormatArg::Q4_0) { MethodArg::Fit } else { q4_1 };
    Ok(Recipe {
        format: format(args.ty),
        keep: keep.collect(),
        method: has_4_bits.then_some(named.unwrap_or(default)),
    })
}

/// Says what is not as it was asked for, or with `strict` ends there.
fn refuse_or_tell(strict: bool, warnings: &[String]) -> Result<()> {
    if strict && !warnings.is_empty() {
        bail!("--strict: {}", warnings.join("; "));
    }
    for warning in warnings {
        note!("warning: {warning}");
    }
    Ok(())
}

/// Warnings of tensors in which groups had no importance, or weights were out of range.
fn remarks(tensors: &[Written]) -> Vec<String> {
    let uniform = tensors.iter().filter(|t| t.uniform_groups > 0).map(|t| {
        let (name, n) = (&t.tensor.name, t.uniform_groups);
        format!(
            "{name:?}: {n} groups without any importance were quantized as if all their columns had the same"
        )
    });
    let saturated = tensors.iter().filter(|t| t.saturated > 0).map(|t| {
        let (name, n) = (&t.tensor.name, t.saturated);
        format!("{name:?}: {n} weights beyond the range of {} were taken to its end", t.tensor.ty)
    });
    uniform.chain(saturated).collect()
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
