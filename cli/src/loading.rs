//! From the options of the command line to a model that computes.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::embedded;
use anyhow::{Context as _, Result, anyhow, bail};
use halfbyte::model::{Compute, CpuSession, Ranks, SessionOptions};
use halfbyte::source::{self, ModelFile};
use halfbyte::{Engine, LoadError, LoadOptions, Model, SequenceOptions};
use halfbyte_cpu_kernels::{ISA_VARIABLE, Isa};
use halfbyte_threadpool::default_threads;
use halfbyte_tokenizer::Tokenizer;

use super::args::GlobalArgs;
use super::device::Device;
use super::hub;
use super::memory;
use super::output::note;
use super::progress::{Progress, Waiting};
use super::types::Types;

/// Files that are named where the one asked for is not there.
const MOST_NEIGHBOURS: usize = 4;

/// A choice and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct Chosen<T> {
    pub(crate) value: T,
    pub(crate) reason: String,
}

/// The number of threads.
pub(crate) fn threads(global: &GlobalArgs) -> Result<Chosen<usize>> {
    if let Some(value) = global.threads {
        return Ok(Chosen { value, reason: "--threads".to_owned() });
    }
    let threads = default_threads()?;
    Ok(Chosen { value: threads.count, reason: threads.reason })
}

/// The instruction set path.
pub(crate) fn isa(global: &GlobalArgs) -> Result<Chosen<Isa>> {
    if let Some(name) = &global.isa {
        return Ok(Chosen { value: Isa::by_name(name)?, reason: "--isa".to_owned() });
    }
    let reason = if Isa::requested().is_some() { ISA_VARIABLE } else { "the fastest here" };
    Ok(Chosen { value: Isa::best()?, reason: reason.to_owned() })
}

/// The threads and the instruction set.
pub(crate) fn compute(global: &GlobalArgs) -> Result<Compute> {
    Ok(Compute::new(threads(global)?.value)?.with_isa(isa(global)?.value))
}

/// What messages call the model.
pub(crate) fn model_name(path: Option<&Path>) -> String {
    path.map_or_else(|| embedded::NAME.to_owned(), |path| path.display().to_string())
}

/// Opens the model, or the embedded one if none is named. One of the hub is fetched if it is not here yet.
pub(crate) fn open(path: Option<&Path>) -> Result<Arc<ModelFile>> {
    let Some(path) = path else { return Ok(Arc::new(embedded::gguf()?.into())) };
    let path = &*hub::local(path)?;
    let opened = match source::open(path) {
        Err(error) if error.names_file() => Err(anyhow::Error::from(error)),
        other => other.with_context(|| path.display().to_string()),
    };
    for warning in opened.iter().flat_map(|file| file.warnings()) {
        note!("warning: {warning}");
    }
    opened.map_err(|error| match advice(path) {
        Some(advice) => anyhow!("{error:#}; {advice}"),
        None => error,
    })
}

/// What to do about a path that can't be opened, where that can be told from its name or its neighbours.
fn advice(path: &Path) -> Option<String> {
    if path.is_file() {
        return match path.extension()?.to_str()? {
            "safetensors" => Some("name its directory, which has config.json too".to_owned()),
            "bin" | "pt" | "pth" | "ckpt" | "onnx" => {
                Some("of other formats safetensors are read, in a directory with config.json".to_owned())
            }
            _ => None,
        };
    }
    if path.exists() {
        return None;
    }
    let folder = path.parent().map(|p| if p == Path::new("") { Path::new(".") } else { p })?;
    let Ok(entries) = folder.read_dir() else {
        return Some(format!("there is no directory {} either", folder.display()));
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".gguf")).collect();
    names.sort_unstable();
    names.truncate(MOST_NEIGHBOURS);
    (!names.is_empty()).then(|| format!("{} has {}", folder.display(), names.join(", ")))
}

/// Opens the model of the command line, and converts its weights if `--load-as` asks for it.
pub(crate) fn load(global: &GlobalArgs) -> Result<Arc<ModelFile>> {
    let file = open(global.model.as_deref())?;
    let Some(encoding) = global.load_as else { return Ok(file) };
    let name = model_name(global.model.as_deref());
    let mut progress = None;
    let converted = halfbyte::load_as(&file, encoding, &compute(global)?, |done, weights| {
        if progress.is_none() {
            progress = Progress::new(weights).ok();
        }
        progress.as_mut().map_or(ControlFlow::Continue(()), |progress| progress.show(done))
    });
    converted
        .map_err(|error| explained(error, &name))?
        .with_context(|| format!("stopped while {name} was quantized"))
}

/// The tokenizer that the file of the command line's model describes.
pub(crate) fn tokenizer(global: &GlobalArgs, file: &ModelFile) -> Result<Tokenizer> {
    let tokenizer = halfbyte::load_tokenizer(file);
    warned(tokenizer.map_err(|error| explained(error, &model_name(global.model.as_deref()))))
}

/// The tokenizer, after its warnings were written to stderr.
fn warned(tokenizer: Result<Tokenizer>) -> Result<Tokenizer> {
    for warning in tokenizer.iter().flat_map(Tokenizer::warnings) {
        note!("warning: {warning}");
    }
    tokenizer
}

/// The error of loading the model called `name`, in the words of the command line.
fn explained(error: LoadError, name: &str) -> anyhow::Error {
    match error {
        LoadError::KvType { expected, got } => {
            anyhow!("--kv-cache {got}: on a CUDA device expected {expected}")
        }
        LoadError::Tokenizer(error) => anyhow::Error::new(error).context(format!("{name}: its tokenizer")),
        error => anyhow::Error::new(error).context(name.to_owned()),
    }
}

/// A model that computes, and what the program says of it.
#[derive(Debug)]
pub(crate) struct LoadedModel {
    pub(crate) name: String,
    pub(crate) engine: Engine,
    pub(crate) threads: Chosen<usize>,
    pub(crate) isa: Chosen<Isa>,
    ranks: Option<Arc<dyn Ranks>>,
    /// Declared after the engine, which it has to outlive.
    pub(crate) device: Device,
}

impl LoadedModel {
    /// Loads the model in `file` with the options of the command line.
    pub(crate) fn new(file: &Arc<ModelFile>, global: &GlobalArgs) -> Result<Self> {
        Self::new_on(file, global, None)
    }

    /// As [`Self::new`], or with `ranks` this rank's part of the model.
    pub(crate) fn new_on(
        file: &Arc<ModelFile>,
        global: &GlobalArgs,
        ranks: Option<Arc<dyn Ranks>>,
    ) -> Result<Self> {
        let load = |options: LoadOptions| Ok((options.load_engine(Arc::clone(file))?, ()));
        Ok(Self::load(global, ranks, load)?.0)
    }

    /// As [`Self::new_on`], with the model's tokenizer.
    pub(crate) fn with_tokenizer(
        file: &Arc<ModelFile>,
        global: &GlobalArgs,
        ranks: Option<Arc<dyn Ranks>>,
    ) -> Result<(Self, Arc<Tokenizer>)> {
        Self::load(global, ranks, |options| {
            let model = options.load_file(Arc::clone(file))?;
            Ok((model.engine().clone(), Arc::clone(model.tokenizer())))
        })
    }

    /// The engine that `load` makes with the options of the command line, and what else it makes.
    fn load<T>(
        global: &GlobalArgs,
        ranks: Option<Arc<dyn Ranks>>,
        load: impl FnOnce(LoadOptions) -> Result<(Engine, T), LoadError>,
    ) -> Result<(Self, T)> {
        let (isa, threads) = (isa(global)?, threads(global)?);
        let name = model_name(global.model.as_deref());
        let device = Device::open(global)?;
        let mut options = load_options(global, &device).threads(threads.value).isa(isa.value);
        if let Some(ranks) = &ranks {
            options = options.ranks(Arc::clone(ranks));
        }
        let waiting = Waiting::new(format!("loading {name}"));
        let (engine, other) = load(options).map_err(|error| explained(error, &name))?;
        drop(waiting);
        Ok((Self { name, engine, threads, isa, ranks, device }, other))
    }

    /// The model's tokenizer, which has a text for every token that the model can choose.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        warned(self.engine.tokenizer().map_err(|error| explained(error, &self.name)))
    }

    /// Tokens that the context holds.
    pub(crate) fn context(&self) -> usize {
        self.engine.options().context()
    }

    /// The options of other sequences on the same device, as `global` has them.
    pub(crate) fn other_options(&self, global: &GlobalArgs) -> Result<SequenceOptions> {
        let options = load_options(global, &self.device);
        options
            .sequence_options(self.engine.transformer().description())
            .map_err(|error| explained(error, &self.name))
    }

    /// Makes an empty sequence on the CPU, of this rank's part if there are several ranks. Commands that need one refuse other
    /// devices.
    pub(crate) fn cpu_session(&self, context: usize) -> Result<CpuSession> {
        let options = self.engine.options().cpu().context("expected a model on the CPU")?;
        let options = SessionOptions { context, ..options };
        Ok(self.engine.cpu_session(self.engine.compute(), options)?)
    }

    /// How a prompt that is too long could be made to fit, in words.
    pub(crate) fn context_advice(&self) -> String {
        let trained = self.engine.transformer().description().context;
        if self.context() < trained {
            format!("--ctx can be raised to {trained}")
        } else {
            format!("{trained} is all that the model was trained for")
        }
    }

    /// Refuses more tokens than the context holds, naming both numbers.
    pub(crate) fn require_fit(&self, what: &str, tokens: usize) -> Result<()> {
        let context = self.context();
        if tokens > context {
            let advice = self.context_advice();
            bail!("{what} is {tokens} tokens long, the context holds {context}; {advice}");
        }
        Ok(())
    }

    /// Describes on one line what computes.
    pub(crate) fn summary(&self) -> String {
        let types = Types::new(self.engine.options());
        if let Some(model) = self.engine.cuda() {
            let formats: Vec<String> =
                model.formats().iter().map(|(format, n)| format!("{n} {format}")).collect();
            return format!("{} ({} matrices), {types}", self.device.name(), formats.join(", "));
        }
        let ranks = match (&self.ranks, self.engine.share()) {
            (Some(ranks), Some(share)) => {
                let kb = 4e-3 * share.received_per_token() as f64;
                format!("{} ranks ({kb:.1} kB to this one for a token), each with ", ranks.count())
            }
            _ => String::new(),
        };
        let Self { isa, threads, .. } = self;
        format!(
            "{ranks}isa {} ({}), threads {} ({}), {types}",
            isa.value, isa.reason, threads.value, threads.reason
        )
    }
}

/// The options of the command line for the loader, without threads and instruction set.
fn load_options(global: &GlobalArgs, device: &Device) -> LoadOptions {
    let mut options = Model::options().pack(!global.no_pack).device(device.place());
    if let Some(bytes) = memory::detect().available {
        options = options.memory(bytes);
    }
    if let Some(activations) = global.activations {
        options = options.activations(activations.activations());
    }
    if let Some(kv_cache) = global.kv_cache {
        options = options.kv_type(kv_cache.kv_type());
    }
    if let Some(precision) = global.prompt_precision {
        options = options.prompt_precision(precision.precision());
    }
    if let Some(tokens) = global.ctx {
        options = options.context(tokens);
    }
    options
}
