//! `halfbyte imatrix`: which columns of a model's matrices matter on a text.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use halfbyte::calibrate;
use halfbyte_gguf::imatrix::{Format, Imatrix};
use serde::Serialize;

use super::args::{GlobalArgs, ImatrixArgs, ImatrixFormatArg};
use super::calibration::{Text, window_length};
use super::loading::{self, LoadedModel};
use super::new_file;
use super::output::{self, note};
use super::progress::Progress;

#[derive(Serialize)]
struct Output<'a> {
    model: &'a str,
    output: String,
    format: &'static str,
    matrices: usize,
    /// Of the text; those of merged files are in `chunks`.
    windows: usize,
    window: usize,
    chunks: u32,
    seconds: f64,
}

pub(crate) fn run(global: &GlobalArgs, args: &ImatrixArgs) -> Result<()> {
    // The file as it is, not as --load-as makes it in memory.
    let file = loading::open(global.model.as_deref())?;
    let others = args.merge.iter().chain([&args.text]).map(PathBuf::as_path);
    new_file::check(&args.output, &file, others, args.force)?;
    drop(file);
    let model = LoadedModel::new(&loading::load(global)?, global)?;
    let transformer = model.engine.transformer();
    // Found out before the work, not after it.
    let others =
        args.merge.iter().map(|path| Imatrix::open(path).with_context(|| path.display().to_string()));
    let others = others.collect::<Result<Vec<_>>>()?;
    let context = window_length(global, transformer)?;
    let text = Text::read(&args.text, &model.tokenizer()?, context, args.tokens.unwrap_or(usize::MAX))?;

    let mut progress = Progress::of(text.windows.len(), "windows")?;
    let mut imatrix = text.imatrix()?;
    let made = calibrate::importance(model.engine.compute(), transformer, &text.windows, &mut imatrix, |n| {
        progress.show(n)
    });
    if let Err(calibrate::Error::Stopped) = made {
        bail!("stopped; {} is as it was", args.output.display());
    }
    made?;
    for (other, path) in others.iter().zip(&args.merge) {
        imatrix.merge(other).with_context(|| path.display().to_string())?;
    }
    let (format, name) = match args.format {
        ImatrixFormatArg::Gguf => (Format::Gguf, "gguf"),
        ImatrixFormatArg::Dat => (Format::Dat, "dat"),
    };
    imatrix.save(&args.output, format)?;
    let result = Output {
        model: &model.name,
        output: args.output.display().to_string(),
        format: name,
        matrices: imatrix.iter().len(),
        windows: text.windows.len(),
        window: text.windows.first().map_or(0, Vec::len),
        chunks: imatrix.chunk_count(),
        seconds: progress.seconds(),
    };
    drop(progress);
    note!(
        "{}: {} matrices, {} windows of {} tokens ({} chunks with what was merged), {:.1} s",
        result.output,
        result.matrices,
        result.windows,
        result.window,
        result.chunks,
        result.seconds
    );
    if args.json {
        output::json(&result)?;
    }
    Ok(())
}
