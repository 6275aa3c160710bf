//! Routes: a request in, a job for the scheduler, its reply out.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::guard::guard;
use super::metrics::Metrics;
use super::response::Envelope;
use super::scheduler::{Event, Job};
use super::{ServeOptions, page};
use crate::requests::{ApiError, Asked, Form, Reader};
use halfbyte_tokenizer::Tokenizer;

/// Time for a client to send its request's body.
const BODY_TIME: Duration = Duration::from_secs(60);

/// What handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) options: ServeOptions,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) address: SocketAddr,
    reader: Reader,
    jobs: SyncSender<Job>,
    started: u64,
    random: RandomState,
}

impl App {
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        options: ServeOptions,
        jobs: SyncSender<Job>,
        metrics: Arc<Metrics>,
        context: usize,
        address: SocketAddr,
    ) -> Self {
        let reader = Reader::new(tokenizer, options.model_name.clone(), options.sampling, context);
        Self { options, metrics, address, reader, jobs, started: now(), random: RandomState::new() }
    }

    fn router(self) -> Router {
        let app = Arc::new(self);
        Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/completions", post(complete))
            .route("/v1/models", get(models))
            .route("/v1/models/{*id}", get(model))
            .route("/health", get(async || Json(json!({ "status": "ok" }))))
            .route("/metrics", get(metrics))
            .route("/", get(page::html))
            // Browsers ask for it unasked.
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

/// Answers on `listener` until `stop` is done and the last reply is.
pub(crate) fn run(
    app: App,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, app.router()).with_graceful_shutdown(stop).await
    })
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answer(app, Form::Chat, request).await
}

async fn complete(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answer(app, Form::Text, request).await
}

async fn answer(app: Arc<App>, form: Form, request: Request) -> Result<Response, ApiError> {
    let bytes = body(&app, request).await?;
    // A template, or a long text, may take some time, during which others are served.
    let reading = Arc::clone(&app);
    let read = move || reading.reader.read(form, &bytes, reading.random.hash_one(Instant::now()));
    let asked = tokio::task::spawn_blocking(read).await;
    app.reply(asked.map_err(|error| ApiError::internal(error.to_string()))??).await
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

/// The request's body, which must be JSON: a form that another site's page could send without asking is not.
async fn body(app: &App, request: Request) -> Result<Bytes, ApiError> {
    let kind = content_type(request.headers());
    if kind != "application/json" {
        let message = format!("the content type is {kind:?}: expected application/json");
        return Err(ApiError::new(415, None, message));
    }
    let limit = app.options.max_body;
    match tokio::time::timeout(BODY_TIME, to_bytes(request.into_body(), limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // What else can go wrong is that the client is gone, who will not read this.
        Ok(Err(_)) => {
            let message = format!("the body is larger than {limit} bytes, or was cut off");
            Err(ApiError::new(413, None, message))
        }
        Err(_) => {
            let message = format!("the body did not come within {} seconds", BODY_TIME.as_secs());
            Err(ApiError::new(408, None, message))
        }
    }
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl App {
    fn model(&self) -> Value {
        json!({
            "id": self.options.model_name,
            "object": "model",
            "created": self.started,
            "owned_by": "halfbyte",
        })
    }

    /// Queues the job and answers with what comes of it.
    async fn reply(&self, asked: Asked) -> Result<Response, ApiError> {
        let Asked { form, stream, include_usage, .. } = asked;
        let (sender, events) = unbounded_channel();
        self.queue(Job { asked, reply: sender, queued: Instant::now() })?;
        let prefix = if form == Form::Chat { "chatcmpl" } else { "cmpl" };
        let envelope = Envelope {
            form,
            id: format!("{prefix}-{:016x}", self.random.hash_one((now(), Instant::now()))),
            created: now(),
            model: self.options.model_name.clone(),
        };
        if stream { Ok(streamed(envelope, events, include_usage)) } else { whole(&envelope, events).await }
    }

    fn queue(&self, job: Job) -> Result<(), ApiError> {
        // Counted before it can be taken.
        self.metrics.queued.inc();
        self.jobs.try_send(job).map_err(|error| {
            self.metrics.queued.dec();
            match error {
                TrySendError::Full(_) => {
                    let message = format!("{} requests are waiting already", self.options.queue.max(1));
                    ApiError::new(503, Some("queue_full"), message)
                }
                TrySendError::Disconnected(_) => ApiError::internal(NOBODY),
            }
        })
    }
}

/// What is said when the scheduler has gone.
const NOBODY: &str = "the server has stopped computing";

async fn whole(envelope: &Envelope, mut events: UnboundedReceiver<Event>) -> Result<Response, ApiError> {
    let mut text = String::new();
    loop {
        match events.recv().await {
            Some(Event::Text(more)) => text.push_str(&more),
            Some(Event::Done(end)) => return Ok(Json(envelope.whole(&text, &end)).into_response()),
            Some(Event::Failed(message)) => return Err(ApiError::internal(message)),
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
                Some(Event::Failed(message)) => (failed(message), None),
                None => (failed(NOBODY.to_owned()), None),
            })
        }
    });
    let events = opening.chain(rest).flat_map(|objects| {
        stream::iter(objects.into_iter().map(|text| Ok::<_, Infallible>(sse::Event::default().data(text))))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
