//! Where the model computes: this CPU, a GPU, or the emulator in a GPU's place.

use anyhow::{Context as _, Result, bail};
use halfbyte::model::Transformer;
use halfbyte::model::cuda::{CudaModel, CudaOptions, CudaSession};
use halfbyte::sampler::Sampler;
use halfbyte_cuda_driver::{Context, Driver};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};
use halfbyte_cuda_kernels::Kernels;

use super::args::{Command, DeviceArg, GlobalArgs};
use super::way::{self, Way};

/// A CUDA device with the model on it.
#[derive(Debug)]
pub(crate) struct Device {
    name: String,
    model: CudaModel,
    options: CudaOptions,
    /// In place of a driver; it outlives what is on it.
    emulator: Option<Emulator>,
}

/// Refuses what the command, the device and the options do not have together, by the option's name: nothing is ignored.
pub(crate) fn check(global: &GlobalArgs, command: &Command) -> Result<()> {
    let base = match command {
        Command::Kl(args) => (args.base_activations.is_some(), args.base_prompt_precision.is_some()),
        _ => (false, false),
    };
    if global.device == DeviceArg::Cpu {
        let devices =
            [("--prompt-precision", global.prompt_precision.is_some()), ("--base-prompt-precision", base.1)];
        if let Some((option, _)) = devices.iter().find(|(_, given)| *given) {
            bail!("{option} is for CUDA devices; on the CPU --activations says the like");
        }
        return Ok(());
    }
    let device = global.device.name();
    let threads = match command {
        Command::Run(_)
        | Command::Chat(_)
        | Command::Serve(_)
        | Command::Perplexity(_)
        | Command::Kl(_)
        | Command::Profile(_) => false,
        Command::Bench(args) => args.thread_counts.is_some(),
        _ => bail!(
            "--device {device}: only `run`, `chat`, `serve`, `perplexity`, `kl`, `bench` and `profile` compute on other devices \
             than the CPU"
        ),
    };
    let of_the_cpu = [
        ("--threads", global.threads.is_some()),
        ("--isa", global.isa.is_some()),
        ("--activations", global.activations.is_some()),
        ("--no-pack", global.no_pack),
        ("-t", threads),
        ("--base-activations", base.0),
    ];
    if let Some((option, _)) = of_the_cpu.iter().find(|(_, given)| *given) {
        bail!("{option} is for the CPU: with --device {device} leave it out");
    }
    Ok(())
}

impl Device {
    /// The device that the options name, with a copy of `model`; `None` for the CPU.
    pub(crate) fn new(global: &GlobalArgs, model: &Transformer) -> Result<Option<Self>> {
        if global.device == DeviceArg::Cpu {
            return Ok(None);
        }
        let options = way::cuda_options(model.description(), global)?;
        let emulator = match global.device {
            DeviceArg::CudaEmulator => Some(Emulator::install(EmulatorConfig::default())?),
            _ => None,
        };
        let device = Driver::load().and_then(|driver| driver.device(0));
        let device = device.with_context(|| {
            format!("--device {} (cuda-emulator needs no GPU, and is slow)", global.device.name())
        })?;
        let kernels = Kernels::new(&Context::primary(device)?)?;
        let (name, model) = (device.name()?, CudaModel::new(&kernels, model)?);
        Ok(Some(Self { name, model, options, emulator }))
    }

    /// What stands in a GPU's place, if something does.
    pub(crate) fn emulator(&self) -> Option<&Emulator> {
        self.emulator.as_ref()
    }

    /// Whether this sampler's tokens are chosen on the device. Draws never are: a seed means the same on every device.
    pub(crate) fn chooses_for(&self, sampler: &Sampler) -> bool {
        sampler.is_greedy() && self.model.is_greedy()
    }

    /// Bytes of weights that each decoded token reads.
    pub(crate) fn bytes_per_token(&self) -> usize {
        self.model.bytes_per_token()
    }

    /// What the command line says of contexts.
    pub(crate) fn options(&self) -> CudaOptions {
        self.options
    }

    /// An empty context on the device.
    pub(crate) fn session(&self, options: CudaOptions) -> Result<CudaSession> {
        Ok(CudaSession::new(&self.model, options)?)
    }

    /// What computes, on one line.
    pub(crate) fn summary(&self) -> String {
        let formats = self.model.formats();
        let formats: Vec<String> = formats.iter().map(|(format, n)| format!("{n} {format}")).collect();
        format!("{} ({} matrices), {}", self.name, formats.join(", "), Way::Cuda(self.options).types())
    }
}
