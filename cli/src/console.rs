//! Lines from a person or a pipe.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use halfbyte_gguf::AtomicFile;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

/// The result of waiting for a line.
pub(crate) enum Input {
    Line(String),
    /// The person pressed Ctrl-C instead of finishing the line.
    Cancelled,
    End,
}

/// Where lines come from: an editor when a person sits at a terminal, else stdin as it is.
pub(crate) struct Console {
    editor: Option<DefaultEditor>,
    history: Option<PathBuf>,
}

impl Console {
    /// Reads the history file, if one is named and there.
    pub(crate) fn new(history: Option<&Path>) -> Result<Self> {
        // The editor draws on stdout, so that must be seen too.
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self { editor: None, history: None });
        }
        if let Some(path) = history {
            // The editor would change a device's permissions.
            AtomicFile::check(path).context("--history")?;
        }
        let mut editor = DefaultEditor::new().context("cannot set up line editing")?;
        if let Some(path) = history.filter(|path| path.exists()) {
            editor.load_history(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        Ok(Self { editor: Some(editor), history: history.map(Path::to_owned) })
    }

    /// Whether a person is there to see a mistake and go on.
    pub(crate) fn is_interactive(&self) -> bool {
        self.editor.is_some()
    }

    /// The next line, without its end.
    pub(crate) fn read(&mut self) -> Result<Input> {
        let Some(editor) = &mut self.editor else { return read_plain() };
        match editor.readline("> ") {
            Ok(line) => {
                editor.add_history_entry(&line)?;
                Ok(Input::Line(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Input::Cancelled),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(error).context("cannot read a line"),
        }
    }

    /// Writes the history file, if one is named.
    pub(crate) fn save(&mut self) -> Result<()> {
        match (&mut self.editor, &self.history) {
            (Some(editor), Some(path)) => {
                editor.save_history(path).with_context(|| format!("cannot write {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

fn read_plain() -> Result<Input> {
    let mut line = String::new();
    if io::stdin().read_line(&mut line).context("cannot read a line from stdin")? == 0 {
        return Ok(Input::End);
    }
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(Input::Line(line.strip_suffix('\r').unwrap_or(line).to_owned()))
}
