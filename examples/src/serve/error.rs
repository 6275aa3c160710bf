//! Errors as clients of OpenAI's API expect them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Why a request is not answered as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) body: ErrorBody,
}

/// `{"error": ...}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ErrorBody {
    pub(super) error: ErrorFields,
}

/// Its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ErrorFields {
    pub(super) message: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) param: Option<String>,
    pub(super) code: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        Self {
            status,
            body: ErrorBody { error: ErrorFields { message: message.into(), kind, param: None, code } },
        }
    }

    /// A field that has a value it can't have.
    pub(super) fn invalid(param: &str, message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::BAD_REQUEST, None, message);
        error.body.error.param = Some(param.to_owned());
        error
    }

    /// A field that asks for what there is not.
    pub(super) fn unsupported(param: &str) -> Self {
        let mut error = Self::invalid(param, format!("{param} is not supported by this server"));
        error.body.error.code = Some("unsupported_parameter");
        error
    }

    /// Something went wrong here.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, None, message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
