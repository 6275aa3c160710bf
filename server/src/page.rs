//! The page to chat in: three files that are part of the program.

use axum::http::{HeaderName, header};

/// Nothing but what this server sends is loaded or run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

type File = ([(HeaderName, &'static str); 2], &'static str);

fn file(kind: &'static str, text: &'static str) -> File {
    ([(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)], text)
}

pub(crate) async fn html() -> File {
    file("text/html; charset=utf-8", include_str!("page/chat.html"))
}

pub(crate) async fn script() -> File {
    file("text/javascript; charset=utf-8", include_str!("page/chat.js"))
}

pub(crate) async fn style() -> File {
    file("text/css; charset=utf-8", include_str!("page/chat.css"))
}
