#![doc = include_str!("../README.md")]

mod affinity;
mod board;
mod builder;
mod cgroup;
mod default_threads;
mod disjoint;
mod error;
mod fork;
mod lanes;
#[cfg(all(test, loom))]
mod models;
mod orderings;
mod panics;
mod pool;
mod reduce;
#[cfg_attr(loom, path = "spin_model.rs")]
mod spin;
mod sync;
mod ticket;

pub use builder::PoolBuilder;
pub use cgroup::MemoryLimit;
pub use default_threads::{CpuLimits, DefaultThreads, THREADS_VARIABLE, default_threads};
pub use disjoint::DisjointMut;
pub use error::Error;
pub use pool::{MAX_THREADS, ThreadPool};
