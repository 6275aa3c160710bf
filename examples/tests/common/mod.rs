//! What several integration tests need: the real model and the recorded values.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

pub(crate) mod recorded;

use serde_json::Value;
use std::path::PathBuf;

/// The real test model, or `None` with a loud line where it is absent and nobody insists on it.
///
/// Looked for at `HALFBYTE_SMOLLM2`, then in the workspace's `models/`, where `cargo xtask fetch-model` puts it.
///
/// # Panics
/// If it is absent and `HALFBYTE_REQUIRE_MODEL` is set, as in CI.
pub(crate) fn smollm2() -> Option<PathBuf> {
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
pub(crate) fn golden(name: &str) -> Value {
    let path = workspace().join("goldens").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
