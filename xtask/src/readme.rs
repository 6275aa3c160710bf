//! `cargo xtask readme`: the README's commands work as they stand.

use crate::shell;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Runs every `sh` block of the README, a block a shell, in order.
///
/// # Errors
/// The first block that fails; also a README without any.
pub(crate) fn run() -> Result<()> {
    let text = std::fs::read_to_string(shell::root().join("README.md")).context("README.md can't be read")?;
    let blocks = blocks(&text);
    if blocks.is_empty() {
        bail!("README.md has no ```sh block: nothing was checked");
    }
    for block in blocks {
        // A missing test model is a failure here; elsewhere its tests only say that they were skipped.
        shell::run(
            Command::new("bash").args(["-euo", "pipefail", "-c", &block]).env("HALFBYTE_REQUIRE_MODEL", "1"),
        )?;
    }
    Ok(())
}

/// The text between "```sh" and "```" lines.
fn blocks(markdown: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut inside: Option<String> = None;
    for line in markdown.lines() {
        match &mut inside {
            None if line.trim() == "```sh" => inside = Some(String::new()),
            None => {}
            Some(_) if line.trim() == "```" => blocks.extend(inside.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_sh_blocks_are_commands() {
        let text = "a\n```sh\none\ntwo\n```\n```text\nthree\n```\n```sh\nfour\n```\n";
        assert_eq!(super::blocks(text), ["one\ntwo\n", "four\n"]);
    }
}
