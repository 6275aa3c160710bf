//! Lines from a person or a pipe, and Ctrl-C.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use halfbyte_gguf::AtomicFile;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

/// What came of waiting for a line.
pub(crate) enum Input {
    Line(String),
    /// The person thought better of it.
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

// Flags alone, nothing is published with them: Relaxed is enough.
static REPLYING: AtomicBool = AtomicBool::new(false);
static STOP: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C: while a reply is made it asks for its end. Between replies the editor reads it as a key; a
/// program without one ends, as it would have without us. A later call only changes `interactive`.
pub(crate) fn handle_interrupts(interactive: bool) -> Result<()> {
    on_interrupt(move || {
        if REPLYING.load(Ordering::Relaxed) {
            STOP.store(true, Ordering::Relaxed);
        } else if !interactive {
            // 128 + SIGINT, what shells make of it.
            std::process::exit(130);
        }
    })
}

type Handler = Box<dyn FnMut() + Send>;

/// What Ctrl-C does, once something is set.
static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);

/// Sets what Ctrl-C does from now on: weights may be quantized before the work that they are for begins.
pub(crate) fn on_interrupt(handler: impl FnMut() + Send + 'static) -> Result<()> {
    let lock = || HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    if lock().replace(Box::new(handler)).is_some() {
        return Ok(());
    }
    ctrlc::set_handler(move || {
        if let Some(handler) = lock().as_mut() {
            handler();
        }
    })
    .context("cannot handle Ctrl-C")
}

/// While one lives, Ctrl-C stops the reply.
pub(crate) struct Replying;

impl Replying {
    pub(crate) fn new() -> Self {
        STOP.store(false, Ordering::Relaxed);
        REPLYING.store(true, Ordering::Relaxed);
        Self
    }

    /// Whether Ctrl-C was pressed since this was made.
    pub(crate) fn is_stopped(&self) -> bool {
        STOP.load(Ordering::Relaxed)
    }
}

impl Drop for Replying {
    fn drop(&mut self) {
        REPLYING.store(false, Ordering::Relaxed);
    }
}
