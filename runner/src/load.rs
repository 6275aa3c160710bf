//! A model that is ready to answer: from a path to something that computes.

use std::path::Path;
use std::sync::Arc;

use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_tokenizer::chat::{ChatError, ChatOptions, ChatTemplate, Message};
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerError, TokenizerSpec};

use crate::generate::{Beginning, Request};
use crate::sampler::{Sampler, SamplerConfig, SamplerError};

#[cfg(feature = "cuda")]
use crate::model::cuda::{CudaModel, CudaOptions, CudaSession};
use crate::model::{self, ActivationType, Compute, CpuSession, Sequence, SessionOptions, Transformer};
use crate::source::{self, ModelFile};

/// Tokens that a context holds unless [`LoadOptions::context`] says otherwise: long models would take gigabytes for
/// their keys and values.
pub const DEFAULT_CONTEXT: usize = 4096;

/// Why a model can't be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file or directory can't be used.
    #[error(transparent)]
    Source(#[from] source::Error),
    /// The model in it can't be used.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// Its tokenizer can't be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The tokenizer and the model have different vocabularies.
    #[error("the tokenizer has {tokens} tokens, the model {rows}: expected the same number")]
    Vocabularies {
        /// Tokens that the tokenizer knows.
        tokens: usize,
        /// Tokens that the model can choose.
        rows: usize,
    },
    /// The model can't be fetched from the hub.
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Hub(#[from] crate::hub::Error),
}

/// Why a prompt can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// The model has no chat template, or one that can't be used.
    #[error("the chat template: {why}")]
    Template {
        /// What is wrong with it.
        why: String,
    },
    /// The chat template refuses the messages.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The text can't be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A sampler can't be made.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
}

/// Where a model computes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Device {
    /// On this CPU.
    #[default]
    Cpu,
    /// On a CUDA device, or on the emulator where that is installed in the place of a driver.
    #[cfg(feature = "cuda")]
    Cuda(halfbyte_cuda_kernels::Kernels),
}

/// How a model is loaded. Made by [`Model::options`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LoadOptions {
    compute: Option<Compute>,
    threads: Option<usize>,
    isa: Option<Isa>,
    context: Option<usize>,
    session: SessionOptions,
    pack: bool,
    device: Device,
}

impl LoadOptions {
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

    /// What quantized weights are multiplied by on the CPU.
    pub fn activations(self, activations: ActivationType) -> Self {
        Self { session: SessionOptions { activations, ..self.session }, ..self }
    }

    /// How keys and values are kept on the CPU.
    pub fn kv_type(self, kv_type: KvType) -> Self {
        Self { session: SessionOptions { kv_type, ..self.session }, ..self }
    }

    /// Whether weights are packed for the kernels, which is the default: a copy of the weights in memory for two to three
    /// times the speed. Weights that f32 activations are multiplied by stay where the file is mapped in any case.
    pub fn pack(self, pack: bool) -> Self {
        Self { pack, ..self }
    }

    /// Where the model computes.
    pub fn device(self, device: Device) -> Self {
        Self { device, ..self }
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
        let spec = TokenizerSpec::from_metadata(file.metadata())?;
        let transformer = Transformer::new(Arc::clone(&file))?;
        let compute = match (self.compute, self.threads) {
            (Some(compute), _) => compute,
            (None, Some(threads)) => Compute::new(threads)?,
            (None, None) => Compute::detect()?,
        };
        let compute = match self.isa {
            Some(isa) => compute.with_isa(isa),
            None => compute,
        };
        let trained = transformer.description().context;
        let context = self.context.unwrap_or(DEFAULT_CONTEXT.min(trained));
        let session = SessionOptions { context, ..self.session };
        #[cfg(feature = "cuda")]
        let cuda = match &self.device {
            Device::Cpu => None,
            Device::Cuda(kernels) => Some(CudaModel::new(kernels, &transformer)?),
        };
        let on_cpu = matches!(self.device, Device::Cpu);
        // The tokenizer takes about as long as the packing, so they go side by side.
        let (transformer, tokenizer) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| Tokenizer::new(&spec));
            let packed = if self.pack && on_cpu && session.activations != ActivationType::F32 {
                transformer.pack(&compute)
            } else {
                Ok(transformer)
            };
            (packed, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (transformer, tokenizer) = (transformer?, tokenizer?);
        let (tokens, rows) = (tokenizer.n_vocab(), transformer.description().n_vocab);
        if tokens != rows {
            return Err(LoadError::Vocabularies { tokens, rows });
        }
        file.require_unchanged()?;
        let template = ChatTemplate::new(&tokenizer);
        let inner = Inner {
            transformer,
            compute,
            session,
            tokenizer: Arc::new(tokenizer),
            template,
            #[cfg(feature = "cuda")]
            cuda,
        };
        Ok(Model(Arc::new(inner)))
    }
}

/// A loaded model with its tokenizer and its threads. A clone shares them.
#[derive(Clone, Debug)]
pub struct Model(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    transformer: Transformer,
    compute: Compute,
    session: SessionOptions,
    tokenizer: Arc<Tokenizer>,
    template: Result<ChatTemplate, ChatError>,
    #[cfg(feature = "cuda")]
    cuda: Option<CudaModel>,
}

impl Model {
    /// Loads the model at `path` for this CPU, as [`LoadOptions::load`] does.
    ///
    /// # Errors
    /// As there.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::options().load(path)
    }

    /// Options of loading: all threads that this process may use well, the default activations, an f16 KV cache, packed weights.
    pub fn options() -> LoadOptions {
        LoadOptions {
            compute: None,
            threads: None,
            isa: None,
            context: None,
            session: SessionOptions::new(DEFAULT_CONTEXT),
            pack: true,
            device: Device::Cpu,
        }
    }

    /// The layers and weights.
    pub fn transformer(&self) -> &Transformer {
        &self.0.transformer
    }

    /// The threads and the instruction set.
    pub fn compute(&self) -> &Compute {
        &self.0.compute
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.0.tokenizer
    }

    /// The chat template.
    ///
    /// # Errors
    /// That the model has none, or that it can't be used.
    pub fn template(&self) -> Result<&ChatTemplate, &ChatError> {
        self.0.template.as_ref()
    }

    /// How contexts on the CPU compute.
    pub fn session_options(&self) -> SessionOptions {
        self.0.session
    }

    /// A request for the next turn of a conversation, by the model's chat template. It samples as [`SamplerConfig`] does by
    /// default; [`Request`] has what can be changed.
    ///
    /// # Errors
    /// [`PromptError::Template`], [`PromptError::Chat`].
    pub fn chat(&self, messages: &[Message]) -> Result<Request, PromptError> {
        let template = self.template().map_err(|error| PromptError::Template { why: error.to_string() })?;
        let prompt = template.prompt(self.tokenizer(), messages, &ChatOptions::default())?;
        let sampler = Sampler::new(SamplerConfig::default())?;
        Ok(Request { beginning: Beginning::Turn, ..Request::new(prompt.ids, sampler) })
    }

    /// A request for more of `text`, in which nothing is read as a control token.
    ///
    /// # Errors
    /// [`PromptError::Tokenizer`].
    pub fn continuation(&self, text: &str) -> Result<Request, PromptError> {
        let ids = self.tokenizer().encode_prompt(text, Special::Off)?;
        Ok(Request::new(ids, Sampler::new(SamplerConfig::default())?))
    }

    /// An empty context, wherever the model computes.
    ///
    /// # Errors
    /// [`model::Error::Context`] for a context longer than the model's; those of a device.
    pub fn sequence(&self) -> Result<Box<dyn Sequence>, model::Error> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.0.cuda {
            let options = CudaOptions::new(self.0.session.context);
            return Ok(Box::new(CudaSession::new(cuda, options)?));
        }
        Ok(Box::new(CpuSession::new(&self.0.transformer, &self.0.compute, self.0.session)?))
    }
}
