//! What the tests of several crates share: a seeded generator, and where the models and the recorded values are.
//!
//! It depends on no other crate of the workspace, so that each of them can use it in its tests. It is not published: the
//! packages of the other crates have no tests, and cargo leaves a development dependency without a version out of a
//! package.

#![forbid(unsafe_code)]

mod rng;

pub use rng::Rng;

use serde_json::Value;
use std::path::PathBuf;

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The path of the small model that is part of the program.
pub fn tiny_model() -> PathBuf {
    workspace().join("cli/model/halfbyte-tiny.gguf")
}

/// The path of the real test model, or `None`, with a line on stderr, where it is absent and nobody insists on it.
///
/// It is looked for at `HALFBYTE_SMOLLM2`, then in the workspace's `models/`, where `cargo xtask fetch-model` puts it.
///
/// # Panics
/// If it is absent and `HALFBYTE_REQUIRE_MODEL` is set, as in CI.
pub fn smollm2() -> Option<PathBuf> {
    let default = workspace().join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("HALFBYTE_SMOLLM2").map_or(default, PathBuf::from);
    if path.exists() {
        return Some(path);
    }
    let message =
        format!("SKIPPED, NOTHING WAS TESTED: no model at {} (cargo xtask fetch-model)", path.display());
    assert!(std::env::var_os("HALFBYTE_REQUIRE_MODEL").is_none(), "{message}");
    eprintln!("{message}");
    None
}

/// The recorded values in `goldens/NAME`.
///
/// # Panics
/// If there is no such file, or it is no JSON.
pub fn golden(name: &str) -> Value {
    let path = workspace().join("goldens").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
