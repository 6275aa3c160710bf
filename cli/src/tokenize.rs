//! `halfbyte tokenize`: the text on stdin as token ids.

use std::io::Read;

use anyhow::{Context, Result};
use halfbyte_tokenizer::Special;
use serde::Serialize;

use super::args::{GlobalArgs, TokenizeArgs};
use super::{loading, output};

#[derive(Serialize)]
struct Output<'a> {
    ids: &'a [u32],
}

/// Whether the names of control tokens mean them.
pub(crate) fn special(on: bool) -> Special {
    if on { Special::On } else { Special::Off }
}

pub(crate) fn run(global: &GlobalArgs, args: &TokenizeArgs) -> Result<()> {
    let gguf = loading::open(global.model.as_deref())?;
    let tokenizer = loading::tokenizer(global, &gguf)?;
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read stdin")?;
    let text = std::str::from_utf8(&bytes).context("the text on stdin is not UTF-8")?;
    let ids = tokenizer.encode(text, special(args.special))?;
    if args.json {
        return output::json(&Output { ids: &ids });
    }
    let words: Vec<String> = ids.iter().map(u32::to_string).collect();
    Ok(output::text(&(words.join(" ") + "\n"))?)
}
