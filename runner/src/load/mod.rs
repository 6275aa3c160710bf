//! A model that is ready to answer: from a path to something that computes.
//!
//! ```text
//! path -> ModelFile -> (load_as: other weights) -> Transformer -> packed, or on a device, or a rank's share -> Engine
//!                   -> Tokenizer -> ChatTemplate                                            Engine and both -> Model
//! ```

mod device;
mod engine;
mod error;
mod model;
#[cfg(feature = "quantize")]
mod quantize;

pub use device::{Device, SequenceOptions};
pub use engine::{Drafting, Engine};
pub use error::{LoadError, PromptError};
pub use model::Model;
#[cfg(feature = "quantize")]
pub use quantize::load_as;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use engine::{Inner, Share};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
#[cfg(feature = "cuda")]
use halfbyte_cuda_kernels::{PromptPrecision, attention::KvFormat};
use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};

#[cfg(feature = "cuda")]
use crate::model::cuda::{CudaModel, CudaOptions};
use crate::model::{ActivationType, Compute, Description, Ranks, SessionOptions, Transformer};
#[cfg(feature = "quantize")]
use crate::requantize::Encoding;
use crate::source::{self, ModelFile};

/// The context length, in tokens, unless [`LoadOptions::context`] gives another: the KV cache for the whole context of some
/// models takes gigabytes.
pub const DEFAULT_CONTEXT: usize = 4096;

/// How a model is loaded. Made by [`Model::options`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LoadOptions {
    compute: Option<Compute>,
    threads: Option<usize>,
    isa: Option<Isa>,
    context: Option<usize>,
    activations: ActivationType,
    kv_type: Option<KvType>,
    no_pack: bool,
    memory: Option<u64>,
    device: Device,
    drafting: Drafting,
    ranks: Option<Arc<dyn Ranks>>,
    #[cfg(feature = "cuda")]
    prompt_precision: Option<PromptPrecision>,
    #[cfg(feature = "quantize")]
    load_as: Option<Encoding>,
}

impl LoadOptions {
    fn new() -> Self {
        Self::default()
    }

    /// Computes with these threads and this instruction set, which other models may share.
    pub fn compute(self, compute: Compute) -> Self {
        Self { compute: Some(compute), ..self }
    }

    /// The number of threads; without it as many as this process may use well.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// The instruction set; without it the best of this machine. Replies are the same with any.
    pub fn isa(self, isa: Isa) -> Self {
        Self { isa: Some(isa), ..self }
    }

    /// Tokens that a context holds, prompt and reply together; without it [`DEFAULT_CONTEXT`], or what the model is
    /// trained for if that is less.
    pub fn context(self, tokens: usize) -> Self {
        Self { context: Some(tokens), ..self }
    }

    /// What quantized weights are multiplied by on the CPU; without it [`ActivationType::Auto`].
    pub fn activations(self, activations: ActivationType) -> Self {
        Self { activations, ..self }
    }

    /// How keys and values are kept. Without it they are f16 on the CPU, f32 there with f32 activations, and bf16 on a
    /// CUDA device, which has bf16 and fp8 alone.
    pub fn kv_type(self, kv_type: KvType) -> Self {
        Self { kv_type: Some(kv_type), ..self }
    }

    /// Whether weights are packed for the CPU's kernels, which is the default: a copy of the weights in memory for two to
    /// three times the speed. Weights that f32 activations are multiplied by stay where the file is mapped in any case.
    pub fn pack(self, pack: bool) -> Self {
        Self { no_pack: !pack, ..self }
    }

    /// Bytes of memory that may be used for weights. Of a model that has more, experts stay in the mapped file, where only
    /// those that tokens go through are read, more slowly than packed ones; without it all weights are packed.
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Where the model computes.
    pub fn device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Where the drafts of speculative decoding come from; without it there are none. Replies do not change.
    pub fn drafting(self, drafting: Drafting) -> Self {
        Self { drafting, ..self }
    }

    /// Loads this rank's part of the model alone. All `ranks` load the same model with the same options for the CPU, and
    /// [`agree`](crate::model::agree) on [`Engine::mark`]; then rank 0 generates and the others
    /// [`follow`](crate::model::follow).
    pub fn ranks(self, ranks: Arc<dyn Ranks>) -> Self {
        Self { ranks: Some(ranks), ..self }
    }

    /// What a prompt's activations are rounded to on a CUDA device; without it bf16.
    #[cfg(feature = "cuda")]
    pub fn prompt_precision(self, precision: PromptPrecision) -> Self {
        Self { prompt_precision: Some(precision), ..self }
    }

    /// Converts the weights to this type first, in memory. [`load_as`] does the same and shows how far it is.
    #[cfg(feature = "quantize")]
    pub fn load_as(self, encoding: Encoding) -> Self {
        Self { load_as: Some(encoding), ..self }
    }

    /// Loads the model at `path`: a GGUF file, the first part of a split one, a Hugging Face or MLX directory, or with the
    /// feature `hub` a name such as `hf:OWNER/REPO/FILE.gguf`.
    ///
    /// # Errors
    /// Whatever is wrong with the files, the model in them, or the options, by name.
    pub fn load(self, path: impl AsRef<Path>) -> Result<Model, LoadError> {
        let path = path.as_ref();
        #[cfg(feature = "hub")]
        if let Some(location) = path.to_str().filter(|path| path.starts_with("hf:")) {
            let hub = crate::hub::Hub::new(crate::hub::Settings::from_env()?)?;
            let fetched = hub.fetch(&location.parse()?, &mut |_| std::ops::ControlFlow::Continue(()))?;
            return self.load_file(source::open(&fetched)?);
        }
        self.load_file(source::open(path)?)
    }

    /// Loads the model in an open file.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_file(self, file: Arc<ModelFile>) -> Result<Model, LoadError> {
        let compute = self.threads_and_isa()?;
        let options = self.compute(compute.clone());
        let (engine, tokenizer) = if compute.threads() == 1 {
            let engine = options.load_engine(Arc::clone(&file))?;
            (engine, load_tokenizer(&file)?)
        } else {
            // The tokenizer takes about as long as the packing, so they are made at the same time.
            let (engine, tokenizer) = std::thread::scope(|scope| {
                let tokenizer = scope.spawn(|| load_tokenizer(&file));
                let engine = options.load_engine(Arc::clone(&file));
                (engine, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            });
            // If neither can be used, the error is the model's.
            (engine?, tokenizer?)
        };
        require_same_size(&tokenizer, engine.transformer())?;
        Ok(Model::new(engine, tokenizer))
    }

    /// Loads the model in an open file without its tokenizer.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_engine(self, file: Arc<ModelFile>) -> Result<Engine, LoadError> {
        let compute = self.threads_and_isa()?;
        #[cfg(feature = "quantize")]
        let file = match self.load_as {
            Some(encoding) => {
                let go_on = |_, _| std::ops::ControlFlow::Continue(());
                load_as(&file, encoding, &compute, go_on)?.unwrap_or(file)
            }
            None => file,
        };
        let mut transformer = Transformer::new(Arc::clone(&file))?;
        let options = self.sequence_options(transformer.description())?;
        #[cfg(feature = "cuda")]
        let cuda = match &self.device {
            Device::Cpu => None,
            Device::Cuda(kernels) => Some(CudaModel::new(kernels, &transformer)?),
        };
        if !matches!(self.device, Device::Cpu) && self.ranks.is_some() {
            return Err(LoadError::RanksOnDevice);
        }
        let mut share = None;
        if let Some(session) = options.cpu() {
            if let Some(ranks) = self.ranks {
                let model = transformer.share(ranks.rank(), ranks.count())?;
                let mark = model.mark(&session)?;
                share = Some(Share { model, ranks, mark });
            }
            // What f32 activations are multiplied by is decoded from where it lies.
            if session.activations != ActivationType::F32 && !self.no_pack {
                let start = Instant::now();
                match &mut share {
                    Some(share) => share.model = share.model.clone().pack(&compute)?,
                    None => {
                        transformer = match self.memory {
                            Some(bytes) => transformer.pack_within(&compute, bytes)?,
                            None => transformer.pack(&compute)?,
                        }
                    }
                }
                tracing::info!("weights packed in {:.3} s", start.elapsed().as_secs_f64());
            }
        }
        file.require_unchanged()?;
        Ok(Engine::new(Inner {
            transformer,
            compute,
            options,
            drafting: self.drafting,
            share,
            #[cfg(feature = "cuda")]
            cuda,
        }))
    }

    /// How sequences of a model with this description compute.
    ///
    /// # Errors
    /// [`LoadError::KvType`] if the device does not have such a KV cache.
    pub fn sequence_options(&self, description: &Description) -> Result<SequenceOptions, LoadError> {
        let context = self.context.unwrap_or(DEFAULT_CONTEXT.min(description.context));
        match self.device {
            Device::Cpu => Ok(SequenceOptions::Cpu(SessionOptions {
                activations: self.activations,
                kv_type: self.kv_type.unwrap_or(self.activations.default_kv_type()),
                ..SessionOptions::new(context)
            })),
            #[cfg(feature = "cuda")]
            Device::Cuda(_) => {
                let kv_format = match self.kv_type {
                    None | Some(KvType::Bf16) => KvFormat::Bf16,
                    Some(KvType::Fp8) => KvFormat::Fp8,
                    Some(other) => {
                        return Err(LoadError::KvType { expected: "bf16 or fp8", got: other.name() });
                    }
                };
                let usual = CudaOptions::new(context);
                let prompt_precision = self.prompt_precision.unwrap_or(usual.prompt_precision);
                Ok(SequenceOptions::Cuda(CudaOptions { prompt_precision, kv_format, ..usual }))
            }
        }
    }

    fn threads_and_isa(&self) -> Result<Compute, LoadError> {
        let compute = match (&self.compute, self.threads) {
            (Some(compute), _) => compute.clone(),
            (None, Some(threads)) => Compute::new(threads)?,
            (None, None) => Compute::detect()?,
        };
        Ok(match self.isa {
            Some(isa) => compute.with_isa(isa),
            None => compute,
        })
    }
}

/// Builds the tokenizer that a model's file describes.
///
/// # Errors
/// [`LoadError::Tokenizer`], [`LoadError::NoTokenizer`].
pub fn load_tokenizer(file: &ModelFile) -> Result<Tokenizer, LoadError> {
    if file.gguf().is_none() && file.metadata().get("tokenizer.ggml.model").is_none() {
        return Err(LoadError::NoTokenizer);
    }
    Ok(Tokenizer::new(&TokenizerSpec::from_metadata(file.metadata())?)?)
}

/// Refuses a tokenizer that has more or fewer tokens than the model.
fn require_same_size(tokenizer: &Tokenizer, transformer: &Transformer) -> Result<(), LoadError> {
    let (tokens, rows) = (tokenizer.n_vocab(), transformer.description().n_vocab);
    if tokens == rows { Ok(()) } else { Err(LoadError::Vocabularies { tokens, rows }) }
}
