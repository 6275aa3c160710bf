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
mod dense;
mod descriptions;
mod embedded_model;
mod experts;
mod generate;
mod ggml_types;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_support;
mod hybrid;
mod hybrid_files;
mod hybrid_replies;
mod lfm2;
mod packed;
mod ranks;
mod scheduler;
mod smollm2_model;
mod source_hostile;
mod source_support;
mod source_tokenizers;
mod speculate;
mod split;

use std::ops::ControlFlow;

use halfbyte::model::Compute;
use halfbyte::requantize::{Encoding, Plan};
use halfbyte::source::Source;
use halfbyte_gguf::{Gguf, GgufWriter};

/// `source` as a GGUF file in another type.
fn converted(source: &dyn Source, encoding: Encoding, compute: &Compute) -> Gguf {
    let plan = Plan::new(source, encoding, &[]).unwrap();
    let mut writer = GgufWriter::new(Vec::new(), plan.metadata(), plan.tensors()).unwrap();
    plan.write(compute.context(), &mut writer, &(), |_| ControlFlow::Continue(())).unwrap().unwrap();
    Gguf::from_vec(writer.finish().unwrap()).unwrap()
}
