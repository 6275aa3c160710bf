//! Access control: checks the host that a request names and its API key.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use super::http::App;
use crate::requests::ApiError;

/// Refuses requests that fail the checks, passes the others on, and logs both.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = match check(&app, &path, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        app.metrics.refused.inc();
    }
    // For a streamed reply this is the time until it begins.
    tracing::info!(%method, path, status = status.as_u16(), ms = start.elapsed().as_millis() as u64, "request");
    response
}

fn check(app: &App, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    if app.address.ip().is_loopback() && !names_loopback(headers) {
        let message = "this server answers requests for localhost only: the Host header names another";
        return Err(ApiError::new(403, None, message));
    }
    // A browser loads the page before anyone can type a key; `/health` says that the server runs.
    let open = ["/", "/chat.js", "/chat.css", "/favicon.ico", "/health"].contains(&path);
    match &app.options.api_key {
        Some(key) if !open && !brings_key(headers, key) => {
            let message = "the API key is missing or wrong: expected the header `Authorization: Bearer KEY`";
            Err(ApiError::new(401, Some("invalid_api_key"), message))
        }
        _ => Ok(()),
    }
}

/// Whether the host is this machine under a name that no web page can take for itself. HTTP/1.0 may name none.
fn names_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Hashes are compared, so that the time taken says nothing about how much of the key is right.
fn brings_key(headers: &HeaderMap, key: &str) -> bool {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let got = value.and_then(|value| value.strip_prefix("Bearer "));
    got.is_some_and(|got| Sha256::digest(got.trim()) == Sha256::digest(key))
}
