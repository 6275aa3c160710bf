#![doc = include_str!("../README.md")]

mod admission;
mod client;
mod guard;
mod http;
mod metrics;
mod page;
pub mod requests;
mod response;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use halfbyte::generate::{CachedSession, Scheduler};
use halfbyte::sampler::SamplerConfig;
use halfbyte_tokenizer::Tokenizer;
use metrics::Metrics;

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// What clients call the model.
    pub model_name: String,
    /// What requests must bring as a bearer token; `None`: nothing.
    pub api_key: Option<String>,
    /// Requests that may wait for a slot; further ones are refused. At least 1.
    pub queue: usize,
    /// Bytes that a request's body may have.
    pub max_body: usize,
    /// How to sample where a request says nothing.
    pub sampling: SamplerConfig,
    /// Time that clients have to send the rest of their requests when the server is stopped.
    pub grace: Duration,
}

impl ServeOptions {
    /// No key, 64 waiting requests, bodies of up to 4 MiB, five seconds of grace.
    pub fn new(model_name: impl Into<String>) -> Self {
        Self {
            model_name: model_name.into(),
            api_key: None,
            queue: 64,
            max_body: 4 << 20,
            sampling: SamplerConfig::default(),
            grace: Duration::from_secs(5),
        }
    }
}

/// Why the server ended, or did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// No contexts were given.
    #[error("no slots: expected at least one context to make replies in")]
    NoSlots,
    /// The socket can't be used.
    #[error("cannot serve on {address}")]
    Socket {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The counters can't be set up.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// Serves on `listener` until `stop` is done and the replies under way then have come to their end.
///
/// From then on no connection is accepted and idle ones are closed. A request that is sent in part has
/// [`ServeOptions::grace`] to become whole, and is refused afterwards; a second after the last reply the remaining
/// connections are closed. `stop` may be any future, such as a channel's receiver that a signal handler sends to.
///
/// As many replies are made at once as there are `sessions`, which are of one model with one kind of options; what they
/// hold is forgotten. Each reply has the tokens that it would have alone. On a loopback address only requests for a loopback
/// host are answered, so that no web page can reach the server under a name of its own.
///
/// # Errors
/// [`ServeError::NoSlots`], [`ServeError::Metrics`], [`ServeError::Socket`].
pub fn serve(
    sessions: Vec<CachedSession>,
    tokenizer: impl Into<Arc<Tokenizer>>,
    options: ServeOptions,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let Some(context) = sessions.first().map(|session| session.context()) else {
        return Err(ServeError::NoSlots);
    };
    let tokenizer = tokenizer.into();
    let metrics = Arc::new(Metrics::new()?);
    let address = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    // Admission bounds the number of jobs in this channel.
    let (sender, jobs) = std::sync::mpsc::channel();
    let size = (sessions.len(), context);
    let app = http::App::new(Arc::clone(&tokenizer), options, sender, Arc::clone(&metrics), size, address);
    let scheduler = Scheduler::new(sessions, &tokenizer).map_err(|_| ServeError::NoSlots)?;
    std::thread::scope(|scope| {
        // The channel ends with the server, and the scheduler with the channel.
        let server = scope.spawn(move || http::run(app, listener, stop));
        scheduler.run(&jobs, || metrics.passes.inc());
        // Owned here, so that it is dropped if the scheduler panics: the server then says that it has stopped computing.
        drop(jobs);
        match server.join() {
            Ok(served) => served.map_err(|source| ServeError::Socket { address, source }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
