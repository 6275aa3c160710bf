//! The server, over HTTP.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod browser;
mod clients;
mod limits;
mod replies;
mod support;
