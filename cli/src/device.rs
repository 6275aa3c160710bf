//! The device that a command computes on: this CPU, a GPU, or the emulator in a GPU's place.

use anyhow::{Context as _, Result, bail};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig};

use super::args::{Command, DeviceArg, GlobalArgs};

/// The device that `--device` names.
#[derive(Debug)]
pub(crate) struct Device {
    place: halfbyte::Device,
    /// The name of a CUDA device; empty for the CPU.
    name: String,
    /// Installed in the place of a driver. It has to outlive what is on the device.
    emulator: Option<Emulator>,
}

impl Device {
    /// Opens the device of the command line.
    pub(crate) fn open(global: &GlobalArgs) -> Result<Self> {
        if global.device == DeviceArg::Cpu {
            return Ok(Self { place: halfbyte::Device::Cpu, name: String::new(), emulator: None });
        }
        let emulator = match global.device {
            DeviceArg::CudaEmulator => Some(Emulator::install(EmulatorConfig::default())?),
            _ => None,
        };
        let place = halfbyte::Device::cuda(0).with_context(|| {
            format!("--device {} (cuda-emulator needs no GPU, and is slow)", global.device.name())
        })?;
        let name = match &place {
            halfbyte::Device::Cuda(kernels) => kernels.context().device().name()?,
            _ => String::new(),
        };
        Ok(Self { place, name, emulator })
    }

    /// The device for the loader.
    pub(crate) fn place(&self) -> halfbyte::Device {
        self.place.clone()
    }

    /// The name of a CUDA device; empty for the CPU.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The emulator, if it stands in a GPU's place.
    pub(crate) fn emulator(&self) -> Option<&Emulator> {
        self.emulator.as_ref()
    }
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
