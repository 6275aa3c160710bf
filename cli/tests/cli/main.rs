//! The program `halfbyte`, run as a user would.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod calibrate;
mod chat;
mod comfort;
mod device;
mod evaluate;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
#[path = "../../../runner/tests/models/hub_support.rs"]
mod hub_support;
mod machine;
mod model;
mod new_file;
mod prompt;
mod quantize;
mod run;
mod serve;
#[cfg(unix)]
mod signals;
mod speculate;
mod support;
mod terminal;
mod text;
