//! A module: the kernels and variables of one PTX text, and its placement in a device's memory.

use std::sync::Arc;

use crate::decode::{decode, program::Program};
use crate::memory::{GlobalMemory, MemoryError};
use crate::ptx;

/// Why a PTX text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {message}")]
#[non_exhaustive]
pub struct PtxError {
    /// Line of the text, from 1.
    pub line: u32,
    /// What is wrong there; an unknown opcode, modifier or directive is named.
    pub message: String,
}

/// The kernels and variables of one PTX text, decoded.
#[derive(Debug)]
pub struct Module {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
}

/// An entry point.
#[derive(Debug)]
#[non_exhaustive]
pub struct Kernel {
    /// Its name, as the driver looks it up.
    pub name: String,
    /// Its parameters in order.
    pub parameters: Vec<Parameter>,
    /// Bytes of all parameters with their padding: the length of [`LaunchConfig::params`](crate::LaunchConfig).
    pub parameter_bytes: u32,
    /// Bytes of shared memory that it declares.
    pub static_shared: u32,
    /// Bytes of local memory a thread.
    pub local_bytes: u32,
    /// `.maxntid`: the most threads a block along each axis.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`: the threads a block must have.
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`.
    pub min_blocks_per_sm: Option<u32>,
    /// Where dynamic shared memory starts: past the static, aligned.
    pub(crate) dynamic_offset: u32,
    pub(crate) program: Program,
    /// `.file`: numbers and paths.
    pub(crate) files: Arc<[(u32, String)]>,
}

/// A kernel parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Bytes from the start of the parameters.
    pub offset: u32,
    /// Its bytes.
    pub size: u32,
    /// Its alignment in bytes.
    pub align: u32,
}

/// A `.global` or `.const` variable of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    /// Its alignment in bytes.
    pub align: u32,
    /// `.const`: kernels may not write it.
    pub constant: bool,
    pub(crate) initial: Vec<u8>,
    pub(crate) relocations: Vec<Relocation>,
}

/// Eight bytes of a variable that hold the address of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// Bytes from the variable's start.
    pub(crate) at: u64,
    /// Index of the other variable.
    pub(crate) variable: usize,
    /// Added to its address.
    pub(crate) offset: i64,
}

impl Module {
    /// Parses and decodes a PTX text.
    ///
    /// # Errors
    /// [`PtxError`] for a text that is not PTX, or that uses what this crate does not execute.
    pub fn parse(ptx: &str) -> Result<Self, PtxError> {
        decode(&ptx::parse(ptx)?)
    }

    /// The entry points, in the text's order.
    #[must_use]
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The entry point of that name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// The `.global` and `.const` variables, in the text's order.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Places the variables in `memory`, with their initial values (zero where there is none).
    ///
    /// # Errors
    /// [`MemoryError::OutOfMemory`]; nothing stays allocated then.
    pub fn load(self: &Arc<Self>, memory: &GlobalMemory) -> Result<LoadedModule, MemoryError> {
        let mut loaded = LoadedModule { module: self.clone(), addresses: Vec::new() };
        for variable in &self.variables {
            match memory.insert(variable.size, variable.constant) {
                Ok(address) => loaded.addresses.push(address),
                Err(error) => {
                    loaded.unload(memory)?;
                    return Err(error);
                }
            }
        }
        for (variable, &address) in self.variables.iter().zip(&loaded.addresses) {
            memory.fill(address, &[0], variable.size)?;
            memory.write(address, &variable.initial)?;
            for relocation in &variable.relocations {
                let target = loaded.addresses[relocation.variable].wrapping_add_signed(relocation.offset);
                memory.write(address + relocation.at, &target.to_le_bytes())?;
            }
        }
        Ok(loaded)
    }
}

/// A module whose variables have addresses in a [`GlobalMemory`].
#[derive(Debug)]
pub struct LoadedModule {
    module: Arc<Module>,
    pub(crate) addresses: Vec<u64>,
}

impl LoadedModule {
    /// The module.
    #[must_use]
    pub fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// Address and size of the variable of that name.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<(u64, u64)> {
        let index = self.module.variables.iter().position(|variable| variable.name == name)?;
        Some((self.addresses[index], self.module.variables[index].size))
    }

    /// Frees the variables.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`] or [`MemoryError::Freed`] when `memory` is not the one it was loaded into.
    pub fn unload(&self, memory: &GlobalMemory) -> Result<(), MemoryError> {
        self.addresses.iter().try_for_each(|&address| memory.free(address))
    }
}
