//! `halfbyte quantize`: a model in another type.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use halfbyte::requantize::{Difference, Encoding, Error, Keep, Method, Mix, Plan, Ready, Written};
use halfbyte_gguf::GgufWriter;
use serde::Serialize;

use super::args::{GlobalArgs, QuantizeArgs, names, types_with_methods};
use super::calibration::Calibration;
use super::output::{self, note};
use super::progress::Progress;
use super::words::{HumanBytes, both, either};
use super::{compare, loading, new_file};

#[derive(Serialize)]
struct Output<'a> {
    input: String,
    output: String,
    #[serde(rename = "type")]
    ty: &'static str,
    /// `null` if no type has a choice.
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
    let Recipe { encoding, mut keep, method } = recipe(args)?;
    let (input, out) = (args.input.display().to_string(), args.output.display().to_string());
    let gguf = loading::open(Some(&args.input))?;
    let others = args.imatrix.iter().chain(&args.calibrate).map(PathBuf::as_path);
    new_file::check(&args.output, &gguf, others, args.force)?;
    if let Some(mix) = args.ty.mix {
        // Those of the mix first: the last that fits counts.
        let of_mix = mix.keep(&**gguf)?.into_iter();
        let of_mix = of_mix.map(|keep| Keep { encoding: chosen(args, keep.encoding), ..keep });
        keep.splice(..0, of_mix);
    }
    let mut plan = Plan::new(&**gguf, encoding, &keep).with_context(|| input.clone())?;
    if let Some(mix) = args.ty.mix {
        plan.set_file_type(mix.file_type());
    }
    if args.saturate {
        plan.saturate();
    }
    let compute = loading::compute(global)?;

    // Both passes over the weights count.
    let passes = 1 + usize::from(args.calibrate.is_some());
    let mut progress = Progress::new(passes * plan.n_weights())?;
    let calibration = Calibration::new(global, args, &compute, &gguf)?;
    let mut warnings = calibration.weigh(&mut plan, method, &mut progress)?;
    let checkpoint = match method {
        Some(Method::Gptq) => Some(calibration.round(&plan, &mut progress, &mut warnings)?),
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
    writer.commit().with_context(|| out.clone())?;
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
        ty: args.ty.mix.map_or(encoding.tensor_type().name(), Mix::name),
        method: method.map(Method::name),
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

/// The types and methods that the options ask for.
struct Recipe {
    encoding: Encoding,
    keep: Vec<Keep>,
    /// How the tensors are made whose types have a choice, if there are any.
    method: Option<Method>,
}

/// The method by which a type is written.
fn chosen(args: &QuantizeArgs, usual: Encoding) -> Encoding {
    match args.method {
        Some(method) => usual.with_closest_method(method),
        None if args.imatrix.is_some() || args.calibrate.is_some() => usual.weighted(),
        None => usual,
    }
}

fn recipe(args: &QuantizeArgs) -> Result<Recipe> {
    let types = || [args.ty.encoding].into_iter().chain(args.keep.iter().map(|keep| keep.ty));
    let methods = || types().flat_map(Encoding::methods).copied();
    let named = args.method;
    if methods().next().is_none() {
        for (option, is_there) in [
            ("--method", named.is_some()),
            ("--imatrix", args.imatrix.is_some()),
            ("--calibrate", args.calibrate.is_some()),
        ] {
            if is_there {
                let with_methods = both(types_with_methods());
                bail!("{option} is for {with_methods}, which neither --type nor --keep asks for");
            }
        }
    }
    if let Some(method) = named
        && !methods().any(|one| one == method)
    {
        let having = Encoding::all().filter(|encoding| encoding.methods().contains(&method));
        bail!(
            "--method {} is for {}: expected {} for {}",
            method.name(),
            both(having.map(Encoding::type_name)),
            either(names(|method| methods().any(|one| one == method))),
            both(types().filter(|encoding| !encoding.methods().is_empty()).map(Encoding::type_name)),
        );
    }
    if named == Some(Method::Gptq) && args.calibrate.is_none() {
        bail!("--method gptq needs a text to calibrate on: expected --calibrate TEXT");
    }
    let weighed = args.imatrix.is_some() || args.calibrate.is_some();
    if let Some(method) = named
        && weighed
        && !method.takes_importance()
    {
        bail!(
            "--method {} minimises no error that columns could weigh in: expected {}",
            method.name(),
            either(names(Method::takes_importance))
        );
    }
    if args.imatrix.is_some() && args.calibrate.is_some() && named != Some(Method::Gptq) {
        bail!("both --imatrix and --calibrate say how important columns are: expected one of them");
    }
    let encoding = |usual| chosen(args, usual);
    let keep = args.keep.iter().map(|k| Keep { pattern: k.pattern.clone(), encoding: encoding(k.ty) });
    Ok(Recipe {
        encoding: encoding(args.ty.encoding),
        keep: keep.collect(),
        method: named.or_else(|| types().find_map(|ty| encoding(ty).method())),
    })
}

/// Prints the warnings, or with `strict` returns them as an error.
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
