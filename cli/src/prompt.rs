//! Where a prompt comes from: an option, a file, or stdin; and what it becomes.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use halfbyte_tokenizer::Tokenizer;
use serde::Serialize;

use super::args::PromptArgs;
use super::output;
use super::tokenize::special;

/// A prompt as text and as token ids.
#[derive(Serialize)]
struct Rendered<'a> {
    text: &'a str,
    ids: &'a [u32],
}

/// The text of the options, or of stdin where that is no terminal; `None` if there is none, or nothing on stdin.
///
/// A line end at the very end of a file or of stdin is left out: editors and `echo` add it.
pub(crate) fn read(args: &PromptArgs) -> Result<Option<String>> {
    match (&args.prompt, &args.prompt_file) {
        (Some(text), _) if text != "-" => Ok(Some(text.clone())),
        (_, Some(path)) if path != Path::new("-") => {
            let shown = path.display();
            let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
            decode(bytes, &shown.to_string()).map(Some)
        }
        (None, None) if io::stdin().is_terminal() => Ok(None),
        (None, None) => read_stdin().map(|text| (!text.is_empty()).then_some(text)),
        _ => read_stdin().map(Some),
    }
}

fn read_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("cannot read stdin")?;
    decode(bytes, "the prompt on stdin")
}

fn decode(bytes: Vec<u8>, what: &str) -> Result<String> {
    let mut text = String::from_utf8(bytes).with_context(|| format!("{what} is not UTF-8"))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// The ids of a prompt. An empty one is the token that begins a text, if the model names it.
pub(crate) fn ids(tokenizer: &Tokenizer, prompt: &str, with_special: bool) -> Result<Vec<u32>> {
    let ids = tokenizer.encode_prompt(prompt, special(with_special))?;
    match tokenizer.bos_id() {
        _ if !ids.is_empty() => Ok(ids),
        Some(bos) => Ok(vec![bos]),
        None => {
            bail!("the prompt is empty, and the model names no token that begins a text: give it some text")
        }
    }
}

/// Shows what a model would read, for `--show-prompt`.
pub(crate) fn show(text: &str, ids: &[u32], json: bool) -> Result<()> {
    if json {
        return output::json(&Rendered { text, ids });
    }
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    Ok(output::text(&format!("{text}\n\nids: {}\n", ids.join(" ")))?)
}
