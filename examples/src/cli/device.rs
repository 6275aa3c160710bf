//! Where the model computes: this CPU, a GPU, or the emulator in a GPU's place.

use anyhow::{Context as _, Result, bail};
use halfbyte_attention::KvType;
use halfbyte_cuda_driver::{Context, Driver};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};
use halfbyte_cuda_kernels::attention::KvFormat;
use halfbyte_cuda_kernels::{Kernels, PromptPrecision};
use halfbyte_examples::model::Model;
use halfbyte_examples::model::cuda::{CudaModel, CudaOptions, CudaSession};

use super::args::{Command, DeviceArg, GlobalArgs, PromptPrecisionArg};

/// A CUDA device with the model on it.
#[derive(Debug)]
pub(crate) struct Device {
    name: String,
    model: CudaModel,
    options: CudaOptions,
    /// In place of a driver; it outlives what is on it.
    _emulator: Option<Emulator>,
}

/// Refuses commands that compute on the CPU only.
pub(crate) fn check(global: &GlobalArgs, command: &Command) -> Result<()> {
    let elsewhere = matches!(command, Command::Run(_) | Command::Chat(_));
    if global.device != DeviceArg::Cpu && !elsewhere {
        bail!(
            "--device {}: only `run` and `chat` compute on other devices than the CPU",
            global.device.name()
        );
    }
    Ok(())
}

impl Device {
    /// The device that the options name, with a copy of `model`; `None` for the CPU.
    pub(crate) fn new(global: &GlobalArgs, model: &Model<'_>, context: usize) -> Result<Option<Self>> {
        if global.device == DeviceArg::Cpu {
            if global.prompt_precision.is_some() {
                bail!("--prompt-precision is for CUDA devices; on the CPU --activations says the like");
            }
            return Ok(None);
        }
        let kv_format = match global.kv_cache.map(|kind| kind.kv_type()) {
            None | Some(KvType::Bf16) => KvFormat::Bf16,
            Some(KvType::Fp8) => KvFormat::Fp8,
            Some(other) => {
                bail!("--kv-cache {}: on a CUDA device expected bf16 or fp8", other.name())
            }
        };
        let prompt_precision = match global.prompt_precision {
            None | Some(PromptPrecisionArg::Bf16) => PromptPrecision::Bf16,
            Some(PromptPrecisionArg::Int8) => PromptPrecision::Int8,
        };
        let emulator = match global.device {
            DeviceArg::CudaEmulator => Some(Emulator::install(EmulatorConfig::default())?),
            _ => None,
        };
        let device = Driver::load().and_then(|driver| driver.device(0));
        let device = device.with_context(|| {
            format!("--device {} (cuda-emulator needs no GPU, and is slow)", global.device.name())
        })?;
        let kernels = Kernels::new(&Context::primary(device)?)?;
        let options = CudaOptions { prompt_precision, kv_format, ..CudaOptions::new(context) };
        let (name, model) = (device.name()?, CudaModel::new(&kernels, model)?);
        Ok(Some(Self { name, model, options, _emulator: emulator }))
    }

    /// An empty context on the device.
    pub(crate) fn session(&self) -> Result<CudaSession<'_>> {
        Ok(CudaSession::new(&self.model, self.options)?)
    }

    /// What computes, on one line.
    pub(crate) fn summary(&self) -> String {
        let formats = self.model.formats();
        let formats: Vec<String> = formats.iter().map(|(format, n)| format!("{n} {format}")).collect();
        let CudaOptions { prompt_precision, kv_format, .. } = self.options;
        format!(
            "{} ({} matrices), {prompt_precision} prompts, {kv_format} KV cache",
            self.name,
            formats.join(", ")
        )
    }
}
