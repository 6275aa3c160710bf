//! Runs the program as a user would.

#![allow(dead_code, reason = "each test file uses some of it")]

mod model;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The program, without the environment variables that change its defaults.
pub(crate) fn halfbyte(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halfbyte"));
    command.args(args).env_remove("HALFBYTE_ISA").env_remove("HALFBYTE_THREADS").stdin(Stdio::null());
    command
}

/// What the program did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Done {
    /// Its stdout, if it succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Its one line of JSON, if it succeeded.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let stdout = self.ok();
        assert_eq!(stdout.matches('\n').count(), 1, "{stdout:?}");
        serde_json::from_str(stdout.strip_suffix('\n').unwrap()).unwrap()
    }

    /// Checks that it failed with exit code 1, wrote nothing to stdout and one line that starts with `error: ` last
    /// to stderr, which is returned without that.
    #[track_caller]
    pub(crate) fn error(self) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (Some(1), ""), "{}", self.stderr);
        let line = self.stderr.lines().last().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or_else(|| panic!("{line:?}")).to_owned()
    }
}

pub(crate) fn run(args: &[&str]) -> Done {
    halfbyte(args).output().unwrap().into()
}

pub(crate) fn run_with_stdin(args: &[&str], stdin: &[u8]) -> Done {
    let mut child =
        halfbyte(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that ends early leaves the rest unread; that is for its exit code to tell.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap().into()
}

/// Does what Ctrl-C does to a program that runs.
#[track_caller]
pub(crate) fn interrupt(child: &Child) {
    signal(child, "INT");
}

/// Sends a signal to a program that runs. By the shell's own `kill`: not every machine has a program of that name.
#[track_caller]
pub(crate) fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "{kill}");
}

/// The keys of an object, in order.
#[track_caller]
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[track_caller]
pub(crate) fn ids(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// A directory for one test, emptied when dropped.
pub(crate) fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A small model with a chat template: bytes as tokens, and weights from a linear congruential generator.
pub(crate) fn chat_model(dir: &tempfile::TempDir) -> PathBuf {
    model_with_template(dir, model::TEMPLATE)
}

/// The same with another chat template.
pub(crate) fn model_with_template(dir: &tempfile::TempDir, template: &str) -> PathBuf {
    let path = dir.path().join("chat.gguf");
    std::fs::write(&path, model::build(Some(template))).unwrap();
    path
}

/// The same without a template and without a token that begins a text.
pub(crate) fn plain_model(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("plain.gguf");
    std::fs::write(&path, model::build(None)).unwrap();
    path
}
