//! `halfbyte serve`: replies over HTTP.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;

use crate::embedded;
use anyhow::{Context as _, Result, anyhow, bail};
use halfbyte_server::{ServeOptions, serve};
use halfbyte_tokenizer::chat::ChatTemplate;
use tokio::sync::Notify;

use super::args::{GlobalArgs, ServeArgs};
use super::loading::{self, LoadedModel};
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
    let (model, tokenizer) = LoadedModel::with_tokenizer(&loading::load(global)?, global, None)?;
    let sampler = sampling::sampler(&args.sampling)?;
    let options = ServeOptions {
        api_key,
        queue: args.queue,
        max_body: args.max_body,
        sampling: *sampler.config(),
        ..ServeOptions::new(args.alias.clone().unwrap_or_else(|| served_name(global.model.as_deref())))
    };
    let sessions = (0..args.slots).map(|_| model.engine.cached_session()).collect::<Result<_, _>>()?;
    let listener = listen(&args.host, args.port)?;
    let address = listener.local_addr().context("the address that was listened on")?;

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

    note!("{}: {}, {}", model.name, model.summary(), sampling::summary(&sampler, &model));
    if let Err(error) = ChatTemplate::new(&tokenizer) {
        note!("{error}: /v1/completions works, messages to /v1/chat/completions are refused");
    }
    if !address.ip().is_loopback() && options.api_key.is_none() {
        note!("anyone who reaches {address} can use this server: {KEY_VARIABLE} sets a key");
    }
    note!("listening on http://{address}, Ctrl-C ends");
    Ok(serve(sessions, tokenizer, options, listener, async move { stop.notified().await })?)
}

/// A socket on the first of the host's addresses that can be listened on, those of IPv4 before those of IPv6.
fn listen(host: &str, port: u16) -> Result<TcpListener> {
    let cannot = |address: &dyn Display, error: io::Error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => "; --port names another, 0 is any that is free",
            io::ErrorKind::AddrNotAvailable => "; --host has to be an address of this machine",
            io::ErrorKind::PermissionDenied => "; ports below 1024 are the system's: --port names another",
            _ => "",
        };
        anyhow!("cannot listen on {address}: {error}{advice}")
    };
    // As in an URL, an IPv6 address may stand in brackets.
    let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found = (name, port).to_socket_addrs().map_err(|error| cannot(&host, error))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let mut first = None;
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => _ = first.get_or_insert_with(|| cannot(&address, error)),
        }
    }
    Err(first.unwrap_or_else(|| anyhow!("cannot listen on {host}: the name has no address")))
}

/// The file's name without its extension.
fn served_name(path: Option<&Path>) -> String {
    let stem = path.and_then(Path::file_stem);
    stem.map_or_else(|| embedded::NAME.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
