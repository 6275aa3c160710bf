//! What several integration tests need.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

pub(crate) mod recorded;
