//! A device for the kernels' tests: the emulator's memory and launches, and what the tests feed in.

#![allow(dead_code, reason = "each test binary uses its part of this")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod attention;
pub(crate) mod prefill;

use bytemuck::Pod;
use half::bf16;
use halfbyte_cuda_emulator::{Fault, GlobalMemory, LaunchConfig, LaunchStats, Module, Options, launch};
use halfbyte_cuda_kernels::ptx;
use halfbyte_testing::Rng;
use std::sync::Arc;

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg {
    Pointer(u64),
    U32(usize),
    U64(usize),
    /// A struct of 32-bit words, by value.
    Words(&'static [u32]),
}

/// Memory, and the order in which the emulator runs warps.
pub(crate) struct Device {
    memory: GlobalMemory,
    options: Options,
}

impl Device {
    pub(crate) fn new(seed: u64) -> Self {
        println!("seed {seed}, on the emulator");
        let mut options = Options::default();
        options.seed = seed;
        Self { memory: GlobalMemory::new(1 << 32), options }
    }

    /// Memory that holds `values`.
    pub(crate) fn upload<T: Pod>(&self, values: &[T]) -> Arg {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let address = self.memory.alloc((bytes.len() as u64).max(1)).unwrap();
        self.memory.write(address, bytes).unwrap();
        Arg::Pointer(address)
    }

    /// Memory for `count` values that nobody wrote: reading it is a fault.
    pub(crate) fn reserve<T: Pod>(&self, count: usize) -> Arg {
        Arg::Pointer(self.memory.alloc(((count * size_of::<T>()) as u64).max(1)).unwrap())
    }

    /// `count` values, written or not.
    pub(crate) fn download<T: Pod>(&self, from: Arg, count: usize) -> Vec<T> {
        let Arg::Pointer(address) = from else { panic!("not memory: {from:?}") };
        let mut values = vec![T::zeroed(); count];
        self.memory.read(address, bytemuck::cast_slice_mut(&mut values)).unwrap();
        values
    }

    /// `count` values, all of which a kernel or an upload has written.
    pub(crate) fn download_written<T: Pod>(&self, from: Arg, count: usize) -> Vec<T> {
        let Arg::Pointer(address) = from else { panic!("not memory: {from:?}") };
        let hole = self.memory.first_uninitialised(address, (count * size_of::<T>()) as u64).unwrap();
        assert_eq!(hole, None, "an output was not written");
        self.download(from, count)
    }

    /// Runs an entry point, with the block that its text asks for.
    pub(crate) fn run(&self, entry: &str, grid: [usize; 2], args: &[Arg]) -> LaunchStats {
        self.try_run(entry, grid, args).unwrap_or_else(|fault| panic!("{fault}"))
    }

    pub(crate) fn try_run(
        &self,
        entry: &str,
        grid: [usize; 2],
        args: &[Arg],
    ) -> Result<LaunchStats, Box<Fault>> {
        self.try_run_edited(entry, grid, args, str::to_owned)
    }

    /// The same with a changed text: what the emulator makes of a mistake.
    pub(crate) fn try_run_edited(
        &self,
        entry: &str,
        grid: [usize; 2],
        args: &[Arg],
        edit: impl FnOnce(&str) -> String,
    ) -> Result<LaunchStats, Box<Fault>> {
        let text = ptx::of_entry(entry).unwrap();
        let block = text.block(entry).unwrap();
        let module = Arc::new(Module::parse(&edit(&only(text.sm_80, entry))).unwrap());
        let kernel = module.kernel(entry).unwrap();
        assert_eq!(kernel.parameters.len(), args.len(), "{entry}");
        let mut params = vec![0; kernel.parameter_bytes as usize];
        for (parameter, arg) in kernel.parameters.iter().zip(args) {
            let bytes = match *arg {
                Arg::Pointer(address) => address.to_le_bytes().to_vec(),
                Arg::U64(value) => (value as u64).to_le_bytes().to_vec(),
                Arg::U32(value) => u32::try_from(value).unwrap().to_le_bytes().to_vec(),
                Arg::Words(words) => bytemuck::cast_slice(words).to_vec(),
            };
            assert_eq!(parameter.size as usize, bytes.len(), "{entry}: {}", parameter.name);
            params[parameter.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let config = LaunchConfig {
            grid: [grid[0] as u32, grid[1] as u32, 1],
            block: [block.threads, 1, 1],
            dynamic_shared: block.shared_bytes,
            params: &params,
        };
        let loaded = module.load(&self.memory).unwrap();
        launch(&loaded, entry, &config, &self.memory, &self.options)
    }
}

/// The text with one entry point, so that a test does not parse all the others.
fn only(text: &str, entry: &str) -> String {
    let mut parts = text.split(".visible .entry ");
    let head = parts.next().unwrap_or_default();
    let body = parts.find(|p| p.strip_prefix(entry).is_some_and(|rest| rest.starts_with('('))).unwrap();
    let end = body.find("\n}\n").unwrap() + 3;
    let tables = text.find("\t.file\t").unwrap();
    format!("{head}.visible .entry {}\n{}", &body[..end], &text[tables..])
}

/// Numbers like those of activations.
pub(crate) trait Activations {
    /// Bell-shaped around 0, in -2..2, with an outlier of ten times that once in 64: as activations are.
    fn activation(&mut self) -> bf16;

    fn activations(&mut self, count: usize) -> Vec<bf16> {
        (0..count).map(|_| self.activation()).collect()
    }
}

impl Activations for Rng {
    fn activation(&mut self) -> bf16 {
        let bell = (0..4).map(|_| self.f32()).sum::<f32>() / 2.0;
        bf16::from_f32(if self.below(64) == 0 { bell * 10.0 } else { bell })
    }
}

/// m rounded up to a multiple of 4.
pub(crate) fn pad4(m: usize) -> usize {
    m.next_multiple_of(4)
}

/// What a rounding to bf16 costs at `y`, at most.
pub(crate) fn half_bf16_unit(y: f64) -> f64 {
    2f64.powi(y.abs().max(1e-38).log2().floor() as i32 - 8)
}
