//! Conversion of a model's weights to another type, and the distance between the weights of two files.
//!
//! ```text
//! plan    decides every tensor's new type; what can be refused without reading weights is refused here
//! write   rows --decode--> f32 --quantize--> blocks --decode--> f32: the error, as a reader will see it
//! ```
//!
//! A conversion holds a few rows for each thread in memory, whatever the size of the model. A file that is written by
//! [`GgufWriter::create`](halfbyte_gguf::GgufWriter::create) appears when it is complete, or not at all.
//!
//! ```
//! use halfbyte_gguf::{Gguf, GgufWriter};
//! use halfbyte::requantize::Plan;
//! use std::ops::ControlFlow;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gguf = Gguf::open("../cli/model/halfbyte-tiny.gguf")?;
//! let plan = Plan::new(&gguf, "q4_0:max7".parse()?, &[])?;
//! let mut writer = GgufWriter::new(Vec::new(), plan.metadata(), plan.tensors())?;
//! let pool = halfbyte_threadpool::ThreadPool::new(2)?;
//! let ctx = halfbyte_cpu_kernels::Context::new(&pool)?;
//! let report = plan.write(ctx, &mut writer, &(), |_| ControlFlow::Continue(()))?.expect("it was not stopped");
//! assert!(report.iter().all(|tensor| tensor.difference.relative_squared_error() < 0.02));
//!
//! let quantized = Gguf::from_vec(writer.finish()?)?;
//! assert!(3 * quantized.file_bytes() < gguf.file_bytes());
//! # Ok(()) }
//! ```

mod compare;
mod difference;
pub(crate) mod encoders;
mod encoding;
mod error;
mod mix;
mod pattern;
mod plan;
mod write;

pub use compare::{Pairing, difference};
pub use difference::Difference;
pub(crate) use difference::decode;
pub use encoding::{Encoding, EncodingError, Method};
pub use error::{EncodeError, Error};
pub use mix::Mix;
pub use plan::{Keep, Plan};
pub(crate) use write::saturate;
pub use write::{Ready, Written};
