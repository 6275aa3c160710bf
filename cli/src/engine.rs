//! From options to something that computes: file, model, tokenizer, threads, instruction set.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::embedded;
use anyhow::{Context as _, Result, anyhow, bail};
use halfbyte::model::{
    ActivationType, Compute, CpuSession, Description, ModelShare, Ranks, Sequence, SessionOptions,
    Transformer,
};
use halfbyte::requantize::Plan;
use halfbyte::source::{self, ModelFile, Source};
use halfbyte_cpu_kernels::{ISA_VARIABLE, Isa};
use halfbyte_gguf::{Gguf, GgufWriter};
use halfbyte_threadpool::default_threads;
use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};

use super::args::GlobalArgs;
use super::device::Device;
use super::hub;
use super::output::note;
use super::progress::{Progress, Waiting};
use super::way::{self, Way};

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

/// Opens the model of the command line, quantized on the way if it says so.
pub(crate) fn load(global: &GlobalArgs) -> Result<Arc<ModelFile>> {
    let file = open(global.model.as_deref())?;
    let Some(encoding) = global.load_as else { return Ok(file) };
    let name = model_name(global.model.as_deref());
    let plan = Plan::new(&**file, encoding, &[]).with_context(|| name.clone())?;
    let compute = compute(global)?;
    let mut progress = Progress::new(plan.n_weights())?;
    let n_bytes: usize = plan.tensors().iter().map(|tensor| tensor.n_bytes).sum();
    let sink = Vec::with_capacity(n_bytes + (n_bytes >> 6));
    let mut writer = GgufWriter::new(sink, plan.metadata(), plan.tensors())?;
    let written = plan.write(compute.context(), &mut writer, &(), |done| progress.show(done));
    if written.with_context(|| name.clone())?.is_none() {
        bail!("stopped while {name} was quantized");
    }
    file.require_unchanged()?;
    Ok(Arc::new(Gguf::from_vec(writer.finish()?)?.into()))
}

/// The tokenizer that the file describes.
pub(crate) fn tokenizer(global: &GlobalArgs, source: &dyn Source) -> Result<Tokenizer> {
    if source.gguf().is_none() && source.metadata().get("tokenizer.ggml.model").is_none() {
        bail!("{}: expected tokenizer.json beside config.json", model_name(global.model.as_deref()));
    }
    let spec = TokenizerSpec::from_metadata(source.metadata());
    let tokenizer = spec
        .and_then(|spec| Tokenizer::new(&spec))
        .with_context(|| format!("{}: its tokenizer", model_name(global.model.as_deref())))?;
    for warning in tokenizer.warnings() {
        note!("warning: {warning}");
    }
    Ok(tokenizer)
}

/// A rank's part of the model.
#[derive(Debug)]
pub(crate) struct Share {
    model: ModelShare,
    pub(crate) ranks: Arc<dyn Ranks>,
    mark: String,
}

/// A model and what it runs on.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) name: String,
    pub(crate) model: Transformer,
    pub(crate) compute: Compute,
    pub(crate) threads: Chosen<usize>,
    pub(crate) isa: Chosen<Isa>,
    pub(crate) options: SessionOptions,
    /// Where replies are made, if that is not the CPU.
    pub(crate) device: Option<Device>,
    /// What this process computes with in place of the model, if that is a part of it.
    pub(crate) share: Option<Share>,
}

impl Engine {
    /// The model in `source` with the options of the command line, all of them checked.
    pub(crate) fn new(source: &Arc<ModelFile>, global: &GlobalArgs) -> Result<Self> {
        Self::new_on(source, global, None)
    }

    /// The same, or with `ranks` this one's part of it.
    pub(crate) fn new_on(
        source: &Arc<ModelFile>,
        global: &GlobalArgs,
        ranks: Option<Arc<dyn Ranks>>,
    ) -> Result<Self> {
        let isa = isa(global)?;
        let threads = threads(global)?;
        let name = model_name(global.model.as_deref());
        let mut model = Transformer::new(Arc::clone(source)).with_context(|| name.clone())?;
        let options = way::session_options(model.description(), global);
        let compute = Compute::new(threads.value)?.with_isa(isa.value);
        let device = Device::new(global, &model)?;
        let mut share = match ranks {
            Some(ranks) => {
                let model = model.share(ranks.rank(), ranks.count()).with_context(|| name.clone())?;
                let mark = model.mark(&options)?;
                Some(Share { model, ranks, mark })
            }
            None => None,
        };
        // What f32 activations are multiplied by is decoded from where it lies.
        if options.activations == ActivationType::Int8 && !global.no_pack && device.is_none() {
            let start = Instant::now();
            let waiting = Waiting::new(format!("packing the weights of {name}"));
            match &mut share {
                Some(share) => share.model = share.model.clone().pack(&compute)?,
                None => model = model.pack(&compute)?,
            }
            drop(waiting);
            tracing::info!("{name}: weights packed in {:.3} s", start.elapsed().as_secs_f64());
            source.require_unchanged()?;
        }
        Ok(Self { name, model, compute, threads, isa, options, device, share })
    }

    /// The model and its [tokenizer](Self::tokenizer), which is built beside the packing of the weights where there is
    /// more than one thread: it takes about as long.
    pub(crate) fn with_tokenizer(
        source: &Arc<ModelFile>,
        global: &GlobalArgs,
        ranks: Option<Arc<dyn Ranks>>,
    ) -> Result<(Self, Tokenizer)> {
        if threads(global)?.value == 1 {
            let engine = Self::new_on(source, global, ranks)?;
            let tokenizer = engine.tokenizer(global)?;
            return Ok((engine, tokenizer));
        }
        let (engine, tokenizer) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| tokenizer(global, &***source));
            let engine = Self::new_on(source, global, ranks);
            (engine, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        // A model that can't be used is the first thing to say, as above.
        let engine = engine?;
        let tokenizer = engine.fitting(tokenizer?)?;
        Ok((engine, tokenizer))
    }

    /// The model's tokenizer, which has a text for every token that the model can choose.
    pub(crate) fn tokenizer(&self, global: &GlobalArgs) -> Result<Tokenizer> {
        self.fitting(tokenizer(global, &***self.model.file())?)
    }

    /// `tokenizer`, if it has as many tokens as the model.
    fn fitting(&self, tokenizer: Tokenizer) -> Result<Tokenizer> {
        let (tokens, rows) = (tokenizer.n_vocab(), self.model.description().n_vocab);
        if tokens != rows {
            bail!(
                "{}: the tokenizer has {tokens} tokens, the model {rows}: expected the same number",
                self.name
            );
        }
        Ok(tokenizer)
    }

    /// How this engine's contexts compute, unless they are told otherwise.
    pub(crate) fn way(&self) -> Way {
        self.device.as_ref().map_or(Way::Cpu(self.options), |device| Way::Cuda(device.options()))
    }

    /// An empty context that computes in this way: on the CPU with the threads of `compute`, on a device only if the engine
    /// has one.
    pub(crate) fn open(&self, compute: &Compute, way: Way) -> Result<Box<dyn Sequence>> {
        Ok(match (way, &self.device) {
            (Way::Cpu(options), _) => Box::new(self.session_on(compute, options)?),
            (Way::Cuda(options), Some(device)) => Box::new(device.session(options)?),
            (Way::Cuda(_), None) => bail!("{}: its weights are on no CUDA device", self.name),
        })
    }

    /// An empty context on this engine's threads.
    pub(crate) fn session(&self) -> Result<CpuSession> {
        self.session_on(&self.compute, self.options)
    }

    /// An empty context on other threads, with other options.
    pub(crate) fn session_on(&self, compute: &Compute, options: SessionOptions) -> Result<CpuSession> {
        Ok(match &self.share {
            Some(share) => CpuSession::on_share(&share.model, compute, options, Arc::clone(&share.ranks))?,
            None => CpuSession::new(&self.model, compute, options)?,
        })
    }

    /// What all ranks have to have in common.
    pub(crate) fn mark(&self) -> &str {
        self.share.as_ref().map_or("", |share| &share.mark)
    }

    /// How a prompt that is too long could be made to fit, in words.
    pub(crate) fn context_advice(&self) -> String {
        let trained = self.model.description().context;
        if self.options.context < trained {
            format!("--ctx can be raised to {trained}")
        } else {
            format!("{trained} is all that the model was trained for")
        }
    }

    /// Refuses more tokens than the context holds, naming both numbers.
    pub(crate) fn require_fit(&self, what: &str, tokens: usize) -> Result<()> {
        let context = self.options.context;
        if tokens > context {
            let advice = self.context_advice();
            bail!("{what} is {tokens} tokens long, the context holds {context}; {advice}");
        }
        Ok(())
    }

    /// What computes, on one line.
    pub(crate) fn summary(&self) -> String {
        if let Some(device) = &self.device {
            return device.summary();
        }
        let ranks = match &self.share {
            Some(Share { model, ranks, .. }) => {
                let kb = 4e-3 * model.received_per_token() as f64;
                format!("{} ranks ({kb:.1} kB to this one for a token), each with ", ranks.count())
            }
            None => String::new(),
        };
        format!(
            "{ranks}isa {} ({}), threads {} ({}), {}",
            self.isa.value,
            self.isa.reason,
            self.threads.value,
            self.threads.reason,
            self.way().types(),
        )
    }
}

/// Bytes that the KV caches of `options` take when full.
pub(crate) fn kv_bytes(config: &Description, options: &SessionOptions) -> u64 {
    let position = config.kv_heads().map(|(heads, dim)| 2 * heads * options.kv_type.row_bytes(dim));
    (options.context * position.sum::<usize>()) as u64
}
