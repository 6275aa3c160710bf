//! Loading a text, filling memory, launching.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use halfbyte_cuda_emulator::{
    Fault, GlobalMemory, LaunchConfig, LaunchStats, LoadedModule, Module, Options, launch,
};

/// A module in a memory of its own.
pub struct Device {
    pub memory: GlobalMemory,
    pub module: LoadedModule,
    pub options: Options,
}

impl Device {
    pub fn new(ptx: &str) -> Self {
        let memory = GlobalMemory::new(1 << 26);
        let module = Arc::new(Module::parse(ptx).unwrap_or_else(|error| panic!("{error}")));
        let module = module.load(&memory).unwrap();
        Self { memory, module, options: Options::default() }
    }

    /// Memory that holds these bytes.
    pub fn upload(&self, bytes: &[u8]) -> u64 {
        let address = self.memory.alloc(bytes.len() as u64).unwrap();
        self.memory.write(address, bytes).unwrap();
        address
    }

    pub fn upload_words(&self, words: &[u32]) -> u64 {
        self.upload(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    }

    pub fn upload_halves(&self, halves: &[u16]) -> u64 {
        self.upload(&halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<_>>())
    }

    pub fn upload_floats(&self, floats: &[f32]) -> u64 {
        self.upload(&floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<_>>())
    }

    pub fn alloc(&self, bytes: usize) -> u64 {
        self.memory.alloc(bytes as u64).unwrap()
    }

    pub fn words(&self, address: u64, n: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * n];
        self.memory.read(address, &mut bytes).unwrap();
        assert_eq!(self.memory.first_uninitialised(address, 4 * n as u64), Ok(None), "all of it was written");
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub fn floats(&self, address: u64, n: usize) -> Vec<f32> {
        self.words(address, n).into_iter().map(f32::from_bits).collect()
    }

    pub fn launch(
        &self,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: u32,
        params: &Params,
    ) -> Result<LaunchStats, Box<Fault>> {
        let config = LaunchConfig { grid, block, dynamic_shared, params: &params.0 };
        launch(&self.module, kernel, &config, &self.memory, &self.options)
    }
}

/// Parameters, each at a multiple of its size.
#[derive(Default, Clone)]
pub struct Params(pub Vec<u8>);

impl Params {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn pointer(mut self, address: u64) -> Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.extend(address.to_le_bytes());
        self
    }

    pub fn word(mut self, word: u32) -> Self {
        self.0.extend(word.to_le_bytes());
        self
    }
}

/// The line of the first instruction that contains `text`.
pub fn line_of(ptx: &str, text: &str) -> u32 {
    1 + ptx.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("no `{text}`")) as u32
}
