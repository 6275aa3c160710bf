//! `halfbyte compare`: how far one file's weights are from another's.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use halfbyte::calibrate;
use halfbyte::model::{Compute, Transformer};
use halfbyte::requantize::{self, Difference, Pairing};
use halfbyte::source::ModelFile;
use halfbyte_gguf::{Dims, TensorInfo};
use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};
use serde::Serialize;

use super::args::{CompareArgs, GlobalArgs};
use super::calibration::{Text, window_length};
use super::progress::Progress;
use super::{loading, output};

#[derive(Serialize)]
struct Output<'a> {
    a: String,
    b: String,
    /// Of one name and shape.
    tensors: Vec<TensorJson<'a>>,
    reshaped: Vec<ReshapedJson<'a>>,
    only_a: Vec<&'a str>,
    only_b: Vec<&'a str>,
    /// Of `tensors`.
    weights: usize,
    /// Over those of `tensors` that are no vectors.
    relative_squared_error: f64,
    /// The mean of those of `tensors` that have one; `null` without a text.
    relative_squared_output_error: Option<f64>,
    max_error: f64,
    bits_per_weight_a: Option<f64>,
    bits_per_weight_b: Option<f64>,
}

#[derive(Serialize)]
struct TensorJson<'a> {
    name: &'a str,
    shape: &'a [usize],
    type_a: &'static str,
    type_b: &'static str,
    bits_per_weight_a: f32,
    bits_per_weight_b: f32,
    relative_squared_error: f64,
    /// `null` without a text, and for what is no matrix that inputs are multiplied by.
    relative_squared_output_error: Option<f64>,
    max_error: f64,
}

#[derive(Serialize)]
struct ReshapedJson<'a> {
    name: &'a str,
    shape_a: &'a [usize],
    shape_b: &'a [usize],
}

pub(crate) fn run(global: &GlobalArgs, args: &CompareArgs) -> Result<()> {
    let (a, b) = (loading::open(Some(&args.a))?, loading::open(Some(&args.b))?);
    let compute = loading::compute(global)?;
    let pairing = Pairing::new(&**a, &**b);
    let weights: usize = pairing.same.iter().map(|(a, _)| a.n_elements()).sum();

    // Both passes over the weights count.
    let mut progress = Progress::new((1 + usize::from(args.text.is_some())) * weights)?;
    let outputs = match &args.text {
        Some(text) => output_errors(global, args, text, (&a, &b), &compute, |share| {
            progress.show((weights as f64 * share) as usize)
        })?,
        None => HashMap::new(),
    };
    let (mut total, mut max_error) = (Difference::default(), 0.0_f64);
    let (mut tensors, mut done) = (Vec::new(), if args.text.is_some() { weights } else { 0 });
    for &(in_a, in_b) in &pairing.same {
        let go_on = |n| progress.show(done + n);
        let difference = requantize::difference((&**a, &**b), (in_a, in_b), compute.context(), go_on)
            .with_context(|| format!("{} and {}", args.a.display(), args.b.display()))?;
        let Some(difference) = difference else { bail!("stopped") };
        done += in_a.n_elements();
        // The weights of norms are large: they would hide the errors of the matrices in the total.
        if in_a.dims.len() > 1 {
            total += difference;
        }
        max_error = max_error.max(difference.max_error);
        tensors.push(tensor_json(in_a, in_b, &difference, outputs.get(&in_a.name).copied()));
    }
    drop(progress);

    let bits = |bytes: usize| (weights > 0).then(|| 8.0 * bytes as f64 / weights as f64);
    let errors: Vec<f64> = tensors.iter().filter_map(|t| t.relative_squared_output_error).collect();
    let result = Output {
        a: args.a.display().to_string(),
        b: args.b.display().to_string(),
        tensors,
        reshaped: pairing.reshaped.iter().map(|(a, b)| reshaped_json(a, b)).collect(),
        only_a: pairing.only_a.iter().map(|t| t.name.as_str()).collect(),
        only_b: pairing.only_b.iter().map(|t| t.name.as_str()).collect(),
        weights,
        relative_squared_error: total.relative_squared_error(),
        relative_squared_output_error: (!errors.is_empty())
            .then(|| errors.iter().sum::<f64>() / errors.len() as f64),
        max_error,
        bits_per_weight_a: bits(pairing.same.iter().map(|(a, _)| a.n_bytes).sum()),
        bits_per_weight_b: bits(pairing.same.iter().map(|(_, b)| b.n_bytes).sum()),
    };
    if args.json {
        output::json(&result)?;
    } else {
        output::text(&describe(&result)?)?;
    }
    if !pairing.is_complete() {
        let others = pairing.reshaped.len() + pairing.only_a.len() + pairing.only_b.len();
        bail!("the files do not have the same tensors: {others} of other shapes or in one file alone");
    }
    Ok(())
}

/// The relative errors of the outputs of matrices on a text, by name. `go_on` is told the share that is done.
fn output_errors(
    global: &GlobalArgs,
    args: &CompareArgs,
    text: &Path,
    files: (&Arc<ModelFile>, &Arc<ModelFile>),
    compute: &Compute,
    mut go_on: impl FnMut(f64) -> ControlFlow<()>,
) -> Result<HashMap<String, f64>> {
    let name = || args.a.display().to_string();
    let model = Transformer::new(Arc::clone(files.0)).with_context(name)?;
    let spec = TokenizerSpec::from_metadata(files.0.metadata());
    let tokenizer = spec.and_then(|spec| Tokenizer::new(&spec)).with_context(name)?;
    let text = Text::read(text, &tokenizer, window_length(global, &model)?, args.tokens)?;
    let share = |done| done as f64 / text.windows.len() as f64;
    match calibrate::output_errors(compute, &model, (&***files.0, &***files.1), &text.windows, |done| {
        go_on(share(done))
    }) {
        Ok(errors) => Ok(errors.into_iter().map(|(name, error)| (name, error.relative())).collect()),
        Err(calibrate::Error::Stopped) => bail!("stopped"),
        Err(error) => Err(error).with_context(|| format!("{} and {}", args.a.display(), args.b.display())),
    }
}

fn tensor_json<'a>(
    a: &'a TensorInfo,
    b: &TensorInfo,
    difference: &Difference,
    output_error: Option<f64>,
) -> TensorJson<'a> {
    TensorJson {
        name: &a.name,
        shape: &a.dims,
        type_a: a.ty.name(),
        type_b: b.ty.name(),
        bits_per_weight_a: a.ty.bits_per_weight(),
        bits_per_weight_b: b.ty.bits_per_weight(),
        relative_squared_error: difference.relative_squared_error(),
        relative_squared_output_error: output_error,
        max_error: difference.max_error,
    }
}

fn reshaped_json<'a>(a: &'a TensorInfo, b: &'a TensorInfo) -> ReshapedJson<'a> {
    ReshapedJson { name: &a.name, shape_a: &a.dims, shape_b: &b.dims }
}

/// The width of a column of tensor names.
pub(crate) fn name_width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0).clamp(6, 60)
}

/// The same for people.
fn describe(result: &Output<'_>) -> Result<String> {
    let mut text = String::new();
    let width = name_width(result.tensors.iter().map(|t| t.name));
    writeln!(
        text,
        "{:width$}  {:5}    {:5}  {:15}  {:22}  {}max error",
        "tensor",
        "A",
        "B",
        "bits/w",
        "relative squared error",
        if result.relative_squared_output_error.is_some() { "of outputs  " } else { "" }
    )?;
    for tensor in &result.tensors {
        let name = tensor.name.escape_debug().to_string();
        let TensorJson { type_a, type_b, bits_per_weight_a: bits_a, bits_per_weight_b: bits_b, .. } = tensor;
        let (error, max) = (tensor.relative_squared_error, tensor.max_error);
        let outputs = match (result.relative_squared_output_error, tensor.relative_squared_output_error) {
            (None, _) => String::new(),
            (_, Some(error)) => format!("{error:<10.3e}  "),
            (_, None) => format!("{:10}  ", "-"),
        };
        writeln!(
            text,
            "{name:width$}  {type_a:5} -> {type_b:5}  {bits_a:5.2} -> {bits_b:5.2}  {error:<22.3e}  {outputs}{max:.3e}"
        )?;
    }
    for ReshapedJson { name, shape_a, shape_b } in &result.reshaped {
        let (a, b) = (Dims(shape_a), Dims(shape_b));
        writeln!(text, "{}  {a} in A, {b} in B", name.escape_debug())?;
    }
    for (names, file) in [(&result.only_a, "A"), (&result.only_b, "B")] {
        for name in names {
            writeln!(text, "{}  in {file} alone", name.escape_debug())?;
        }
    }
    let outputs = result.relative_squared_output_error;
    let outputs = outputs.map(|error| format!(", of outputs {error:.3e}")).unwrap_or_default();
    let bits = |bits: Option<f64>| bits.map_or_else(|| "-".to_owned(), |bits| format!("{bits:.3}"));
    writeln!(
        text,
        "{} weights, {} -> {} bits/weight, relative squared error {:.3e}{outputs}, max error {:.3e}",
        result.weights,
        bits(result.bits_per_weight_a),
        bits(result.bits_per_weight_b),
        result.relative_squared_error,
        result.max_error,
    )?;
    Ok(text)
}
