//! Vocabularies, special tokens and chat templates, compared with what other systems give.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod chat;
mod chat_support;
mod huggingface;
mod jinja;
mod makers;
mod smollm2;
mod spec;
mod spm;
mod support;
