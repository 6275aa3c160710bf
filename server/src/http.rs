//! Routes: a request comes in, goes to the scheduler, and its reply goes out.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::admission::{Admission, Place};
use super::client::Client;
use super::guard::guard;
use super::metrics::Metrics;
use super::response::Envelope;
use super::{ServeOptions, page};
use crate::requests::{ApiError, ApiRequest, Form, Reader};
use halfbyte::generate::{Event, Request as ReplyRequest};
use halfbyte_tokenizer::Tokenizer;

/// Threads that parse and tokenize requests. Long requests take at most one of them at a time.
const READING_THREADS: usize = 2;
/// Time, after the last reply, for its end to reach a client.
const LAST_BYTES_TIME: Duration = Duration::from_secs(1);

/// The state that all handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) options: ServeOptions,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) address: SocketAddr,
    admission: Admission,
    reader: Arc<Reader>,
    jobs: Sender<(ReplyRequest, Client)>,
    started: u64,
    random: RandomState,
}

impl App {
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        options: ServeOptions,
        jobs: Sender<(ReplyRequest, Client)>,
        metrics: Arc<Metrics>,
        (slots, context): (usize, usize),
        address: SocketAddr,
    ) -> Self {
        let reader = Reader::new(tokenizer, options.model_name.clone(), options.sampling, context);
        let admission = Admission::new(slots, options.queue.max(1), options.max_body);
        let (reader, random) = (Arc::new(reader), RandomState::new());
        Self { options, metrics, address, admission, reader, jobs, started: now(), random }
    }

    fn router(self: &Arc<Self>) -> Router {
        let app = Arc::clone(self);
        Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/completions", post(complete))
            .route("/v1/models", get(models))
            .route("/v1/models/{*id}", get(model))
            .route("/health", get(async || Json(json!({ "status": "ok" }))))
            .route("/metrics", get(metrics))
            .route("/", get(page::html))
            // Browsers request it for every page.
            .route("/favicon.ico", get(StatusCode::NO_CONTENT))
            .route("/chat.js", get(page::script))
            .route("/chat.css", get(page::style))
            .fallback(async |request: Request| {
                let message = format!("there is nothing at {}", request.uri().path());
                ApiError::new(404, None, message)
            })
            .method_not_allowed_fallback(async |request: Request| {
                let message = format!("{} does not take {}", request.uri().path(), request.method());
                ApiError::new(405, None, message)
            })
            .layer(middleware::from_fn_with_state(Arc::clone(&app), guard))
            .with_state(app)
    }
}

/// Answers on `listener` until `stop` is done and the server has [ended](ended).
pub(crate) fn run(
    app: App,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(READING_THREADS)
        .build()?;
    let app = Arc::new(app);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (sender, stopped) = oneshot::channel();
        let stop = async move {
            stop.await;
            let _ = sender.send(());
        };
        let serving = axum::serve(listener, app.router()).with_graceful_shutdown(stop);
        let ending = std::pin::pin!(ended(&app, stopped));
        match select(serving.into_future(), ending).await {
            Either::Left((served, _)) => served,
            Either::Right(((), _)) => Ok(()),
        }
    })
    // Dropping the runtime closes the connections that are left.
}

/// Waits until the server was stopped and may end, whatever connections are still open.
///
/// Axum closes idle connections by itself. Clients that have sent half a request have the grace time to send the rest;
/// replies under way, and those to requests in the queue, come to their end.
async fn ended(app: &App, stopped: oneshot::Receiver<()>) {
    if stopped.await.is_err() {
        return std::future::pending().await;
    }
    tokio::time::sleep(app.options.grace).await;
    app.admission.close();
    app.admission.all_free().await;
    tokio::time::sleep(LAST_BYTES_TIME).await;
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answer(app, Form::Chat, request).await
}

async fn complete(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answer(app, Form::Text, request).await
}

async fn answer(app: Arc<App>, form: Form, request: Request) -> Result<Response, ApiError> {
    require_json(request.headers())?;
    let (place, body) = app.admission.admit(request).await?;
    let (reader, seed) = (Arc::clone(&app.reader), app.random.hash_one(Instant::now()));
    // A template or a long text may take some time, during which others are served. The place and the body's memory go
    // along: they are in use until this ends, even if the client leaves.
    let read = move || (reader.read(form, &body.bytes, seed), place);
    let (request, place) =
        tokio::task::spawn_blocking(read).await.map_err(|error| ApiError::internal(error.to_string()))?;
    app.reply(request?, place).await
}

async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [app.model()] }))
}

async fn model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    app.reader.check_model_name(&id)?;
    Ok(Json(app.model()))
}

async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let (kind, text) = app.metrics.render().map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Refuses other bodies than JSON: another site's page can send them without the browser asking this server first.
fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = content_type(headers);
    if kind == "application/json" {
        return Ok(());
    }
    let message = format!("the content type is {kind:?}: expected application/json");
    Err(ApiError::new(415, None, message))
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl App {
    fn model(&self) -> Value {
        let mut model = json!({
            "id": self.options.model_name,
            "object": "model",
            "created": self.started,
            "owned_by": "halfbyte",
        });
        // A field of this server's own, for its page.
        if let Some(error) = self.reader.chat_error() {
            model["chat_error"] = error.body.error.message.as_str().into();
        }
        model
    }

    /// Queues the request and answers with its reply.
    async fn reply(&self, request: ApiRequest, place: Place) -> Result<Response, ApiError> {
        let ApiRequest { form, request, stream, include_usage } = request;
        let (sender, events) = unbounded_channel();
        let client = Client::new(sender, Arc::clone(&self.metrics), place);
        self.jobs.send((request, client)).map_err(|_| ApiError::internal(NOBODY))?;
        let prefix = if form == Form::Chat { "chatcmpl" } else { "cmpl" };
        let envelope = Envelope {
            form,
            id: format!("{prefix}-{:016x}", self.random.hash_one((now(), Instant::now()))),
            created: now(),
            model: self.options.model_name.clone(),
        };
        if stream { Ok(streamed(envelope, events, include_usage)) } else { whole(&envelope, events).await }
    }
}

/// The message when the scheduler has ended, which only a bug can cause.
const NOBODY: &str = "the server has stopped computing";

async fn whole(envelope: &Envelope, mut events: UnboundedReceiver<Event>) -> Result<Response, ApiError> {
    let mut text = String::new();
    loop {
        match events.recv().await {
            Some(Event::Text(more)) => text.push_str(&more),
            Some(Event::Done(end)) => return Ok(Json(envelope.whole(&text, &end)).into_response()),
            Some(Event::Failed(error)) => return Err(ApiError::internal(error.to_string())),
            Some(_) => {}
            None => return Err(ApiError::internal(NOBODY)),
        }
    }
}

/// Server-sent events. Dropping the response, when the client has left, ends the reply.
fn streamed(envelope: Envelope, events: UnboundedReceiver<Event>, with_usage: bool) -> Response {
    let opening = stream::iter(envelope.opening().map(|object| vec![object.to_string()]));
    let rest = stream::unfold(Some(events), move |events| {
        let envelope = envelope.clone();
        async move {
            let mut events = events?;
            let failed = |message: String| vec![json!(ApiError::internal(message).body).to_string()];
            Some(match events.recv().await {
                Some(Event::Text(text)) => (vec![envelope.text(&text).to_string()], Some(events)),
                Some(Event::Done(end)) => {
                    let mut last = vec![envelope.closing(&end).to_string()];
                    last.extend(with_usage.then(|| envelope.usage(&end).to_string()));
                    last.push("[DONE]".to_owned());
                    (last, None)
                }
                Some(Event::Failed(error)) => (failed(error.to_string()), None),
                Some(_) => (Vec::new(), Some(events)),
                None => (failed(NOBODY.to_owned()), None),
            })
        }
    });
    let events = opening.chain(rest).flat_map(|objects| {
        stream::iter(objects.into_iter().map(|text| Ok::<_, Infallible>(sse::Event::default().data(text))))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
