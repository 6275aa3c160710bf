//! `halfbyte serve`: replies over HTTP.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use crate::embedded;
use anyhow::{Context as _, Result, anyhow, bail};
use halfbyte_server::{ServeOptions, serve};
use tokio::sync::Notify;

use super::args::{GlobalArgs, ServeArgs};
use super::engine::{self, Engine};
use super::output::note;
use super::{sampling, signals};

/// The key that requests must bring. Not an option: other users of a machine can read command lines.
const KEY_VARIABLE: &str = "HALFBYTE_API_KEY";

pub(crate) fn run(global: &GlobalArgs, args: &ServeArgs) -> Result<()> {
    let api_key = match std::env::var(KEY_VARIABLE) {
        Ok(key) if key.trim().is_empty() => {
            bail!("{KEY_VARIABLE} is empty: expected a key, or no such variable")
        }
        Ok(key) => Some(key.trim().to_owned()),
        Err(std::env::VarError::NotPresent) => None,
        Err(error) => return Err(error).context(KEY_VARIABLE),
    };
    let gguf = engine::load(global)?;
    let engine = Engine::new(&gguf, global)?;
    let tokenizer = engine.tokenizer(global)?;
    let sampler = sampling::sampler(&args.sampling)?;
    let options = ServeOptions {
        api_key,
        queue: args.queue,
        max_body: args.max_body,
        sampling: *sampler.config(),
        ..ServeOptions::new(args.alias.clone().unwrap_or_else(|| served_name(global.model.as_deref())))
    };
    let sessions = (0..args.slots).map(|_| engine.session()).collect::<Result<_>>()?;
    let address = SocketAddr::new(args.host, args.port);
    let listener = TcpListener::bind(address).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => "; --port names another, 0 is any that is free",
            io::ErrorKind::AddrNotAvailable => "; --host has to be an address of this machine",
            io::ErrorKind::PermissionDenied => "; ports below 1024 are the system's: --port names another",
            _ => "",
        };
        anyhow!("cannot listen on {address}: {error}{advice}")
    })?;
    let address = listener.local_addr().with_context(|| format!("cannot listen on {address}"))?;

    let stop = Arc::new(Notify::new());
    let stopping = Arc::clone(&stop);
    let mut stopping_already = false;
    signals::on_signal(move |signal| {
        if std::mem::replace(&mut stopping_already, true) {
            signal.exit();
        }
        note!("ending the replies under way; a second signal does not wait for them");
        stopping.notify_one();
    })?;

    note!("{}: {}, {}", engine.name, engine.summary(), sampling::summary(&sampler, engine.device.as_ref()));
    if !address.ip().is_loopback() && options.api_key.is_none() {
        note!("anyone who reaches {address} can use this server: {KEY_VARIABLE} sets a key");
    }
    note!("listening on http://{address}, Ctrl-C ends");
    Ok(serve(sessions, tokenizer, options, listener, async move { stop.notified().await })?)
}

/// The file's name without its extension.
fn served_name(path: Option<&Path>) -> String {
    let stem = path.and_then(Path::file_stem);
    stem.map_or_else(|| embedded::NAME.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
