#![doc = include_str!("../README.md")]

mod board;
mod cgroup;
mod default_threads;
mod error;
mod panics;
mod pool;
mod spin;
mod sync;
mod ticket;

pub use default_threads::{CpuLimits, DefaultThreads, THREADS_VARIABLE, default_threads};
pub use error::Error;
pub use pool::{MAX_THREADS, ThreadPool};
