//! Models from file to reply.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../examples/examples/export_checkpoint.rs"]
mod export_checkpoint;

mod activations;
mod architectures;
mod batch;
mod calibrate;
mod checkpoints;
mod descriptions;
mod embedded_model;
mod generate;
mod ggml_types;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_support;
mod hybrid;
mod hybrid_files;
mod hybrid_replies;
mod packed;
mod ranks;
mod scheduler;
mod smollm2_model;
mod source_hostile;
mod source_support;
mod source_tokenizers;
mod speculate;
mod split;
