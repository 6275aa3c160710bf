//! GGUF and imatrix files: what is read, what is refused, what is written.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[cfg(unix)]
mod atomic;
mod hostile;
mod imatrix;
mod reading;
mod support;
