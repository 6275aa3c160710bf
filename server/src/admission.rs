//! Admission: bounds on what the server holds of requests that it has not answered yet.
//!
//! A request needs a place before its body is read: there are as many places as slots and queue together. A long body
//! also needs a share of the bytes that may be held at once, and long bodies are parsed and tokenized one at a time. A
//! request that gets no place or no share is refused at once, with status 503.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::requests::ApiError;

/// Time for a client to send its request's body.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Time for which the rest of a refused body is read and dropped.
const DISCARD_TIME: Duration = Duration::from_secs(2);
/// A body of up to this many bytes is short: it needs no share of the memory, and does not wait for long ones.
const SHORT: usize = 64 << 10;
/// How many bodies of the largest size are held in memory at once.
const LARGEST_AT_ONCE: usize = 4;
/// The unit in which the bytes of bodies are counted.
const UNIT: usize = 1 << 10;

/// The places, and the memory for bodies.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    n_places: u32,
    queue: usize,
    memory: Arc<Semaphore>,
    /// Held while a long body is parsed and tokenized.
    long: Arc<Semaphore>,
    max_body: usize,
    closed: watch::Sender<bool>,
}

/// A request's place, from before its body is read until its reply has ended. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// A request's body.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// Places for as many requests as there are slots, and for `queue` more that wait; bodies of up to `max_body` bytes.
    pub(crate) fn new(slots: usize, queue: usize, max_body: usize) -> Self {
        let n_places = u32::try_from(slots.saturating_add(queue)).unwrap_or(u32::MAX);
        let n_units = units(max_body) as usize * LARGEST_AT_ONCE;
        Self {
            places: Arc::new(Semaphore::new(n_places as usize)),
            n_places,
            queue,
            memory: Arc::new(Semaphore::new(n_units)),
            long: Arc::new(Semaphore::new(1)),
            max_body,
            closed: watch::Sender::new(false),
        }
    }

    /// Gives the request a place and reads its body.
    ///
    /// # Errors
    /// Status 503 if all places or the memory for bodies are taken or the server is ending, 413 if the body is too
    /// large, 408 if it takes too long.
    pub(crate) async fn admit(&self, request: Request) -> Result<(Place, Body), ApiError> {
        let (place, memory) = match self.reserve(&request) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.discard(request).await;
                return Err(error);
            }
        };
        let mut closed = self.closed.subscribe();
        let closing = std::pin::pin!(closed.wait_for(|&closed| closed));
        let reading = std::pin::pin!(timeout(BODY_TIME, to_bytes(request.into_body(), self.max_body)));
        let bytes = match select(reading, closing).await {
            Either::Left((Ok(Ok(bytes)), _)) => bytes,
            // Otherwise the client has disconnected, and does not read the answer.
            Either::Left((Ok(Err(_)), _)) => {
                let message = format!("the body is larger than {} bytes, or was cut off", self.max_body);
                return Err(ApiError::new(413, None, message));
            }
            Either::Left((Err(_), _)) => {
                let message = format!("the body did not come within {} seconds", BODY_TIME.as_secs());
                return Err(ApiError::new(408, None, message));
            }
            Either::Right(_) => return Err(ending()),
        };
        let turn = if bytes.len() > SHORT { Arc::clone(&self.long).acquire_owned().await.ok() } else { None };
        Ok((place, Body { bytes, _memory: memory, _turn: turn }))
    }

    /// A place, and the memory that the body needs.
    fn reserve(&self, request: &Request) -> Result<(Place, Option<OwnedSemaphorePermit>), ApiError> {
        if *self.closed.borrow() {
            return Err(ending());
        }
        let length = content_length(request);
        if length.is_some_and(|length| length > self.max_body) {
            let message = format!("the body is larger than {} bytes", self.max_body);
            return Err(ApiError::new(413, None, message));
        }
        let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
            let message = format!("{} requests are waiting already", self.queue);
            return Err(ApiError::new(503, Some("queue_full"), message));
        };
        // A body that comes in chunks does not say how long it will be.
        let bytes = length.unwrap_or(self.max_body);
        let memory = if bytes > SHORT {
            let memory = Arc::clone(&self.memory).try_acquire_many_owned(units(bytes));
            Some(memory.map_err(|_| {
                let message = "too many long requests are being read already";
                ApiError::new(503, Some("queue_full"), message)
            })?)
        } else {
            None
        };
        Ok((Place { _permit: permit }, memory))
    }

    /// Reads and drops what the client of a refused request is sending, within bounds: a client whose connection is
    /// reset while it sends may not see the answer.
    async fn discard(&self, request: Request) {
        // This client sends its body only when it is told to.
        if request.headers().contains_key(header::EXPECT) {
            return;
        }
        let mut left = self.max_body;
        let mut body = request.into_body().into_data_stream();
        let all = async {
            while let Some(Ok(bytes)) = body.next().await {
                match left.checked_sub(bytes.len()) {
                    Some(less) => left = less,
                    None => return,
                }
            }
        };
        // After that time the rest of the body is not read.
        let _ = timeout(DISCARD_TIME, all).await;
    }

    /// Refuses all requests whose body is not there yet, from now on.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Waits until all places are free: no request is read, waits or is answered.
    pub(crate) async fn all_free(&self) {
        // The semaphore is never closed.
        let _ = self.places.acquire_many(self.n_places).await;
    }
}

fn ending() -> ApiError {
    ApiError::new(503, Some("server_ending"), "the server is ending")
}

fn content_length(request: &Request) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}
