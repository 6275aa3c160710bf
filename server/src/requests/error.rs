//! Errors as clients of OpenAI's API expect them.

use serde::Serialize;

/// Why a request is not answered as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status, 400 or more.
    pub status: u16,
    /// What the answer says.
    pub body: ErrorBody,
}

/// `{"error": ...}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    /// The error's fields.
    pub error: ErrorFields,
}

/// The fields of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorFields {
    /// The message for people.
    pub message: String,
    /// The kind of error, which says whether the request or the server is at fault.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field of the request that is meant.
    pub param: Option<String>,
    /// A code for programs.
    pub code: Option<&'static str>,
}

impl ApiError {
    /// An error of this status, which decides about its type.
    pub fn new(status: u16, code: Option<&'static str>, message: impl Into<String>) -> Self {
        let kind = match status {
            401 => "authentication_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        Self {
            status,
            body: ErrorBody { error: ErrorFields { message: message.into(), kind, param: None, code } },
        }
    }

    /// A field that has a value it can't have.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        let mut error = Self::new(400, None, message);
        error.body.error.param = Some(param.to_owned());
        error
    }

    /// A field that asks for something that is not supported.
    pub fn unsupported(param: &str) -> Self {
        let mut error = Self::invalid(param, format!("{param} is not supported by this server"));
        error.body.error.code = Some("unsupported_parameter");
        error
    }

    /// The server failed; the request was right.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, None, message)
    }
}
