//! Every way in which a request can fail, as one JSON body with the fitting status.

use actix::MailboxError;
use actix_web::{
    HttpRequest, HttpResponse, ResponseError,
    body::BoxBody,
    error::JsonPayloadError,
    http::{StatusCode, header},
};
use greenroom_protocol::client::ErrorBody;
use serde::Serialize;

use super::auth::AuthError;
use crate::{sandbox::SandboxError, session::RequestError, store::StoreError};

/// What REST answers in place of what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

/// `{"error": {"code", "message"}}`
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct ErrorAnswer {
    #[schema(value_type = Object, example = json!({"code": "not_found", "message": "no session `01J…`"}))]
    error: ErrorBody,
}

pub(super) type ApiResult = Result<HttpResponse, ApiError>;

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into() }
    }

    pub(super) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_args", message)
    }

    pub(super) fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// What an answer of the framework's own means, which comes without a body that we wrote.
    pub(super) fn of_status(status: StatusCode, method: &str, path: &str) -> ApiError {
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                ApiError::new(status, "method_not_allowed", format!("`{path}` does not answer to {method}"))
            }
            StatusCode::NOT_FOUND => ApiError::not_found(format!("there is nothing at `{path}`")),
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(status, "too_large", "the body is too large"),
            status if status.is_client_error() => {
                ApiError::new(status, "invalid_args", format!("{method} `{path}` is no request that can be understood"))
            }
            status => ApiError::new(status, "internal", "the server failed; its log says why"),
        }
    }
}

impl ApiError {
    /// The same for a person who opened an address in a browser. It loads nothing, as its policy allows no style of its own.
    pub(super) fn error_page(&self) -> String {
        let title = self.status.canonical_reason().unwrap_or("Failed");
        // What was asked for is in it, so it may be anything. What stands between two backticks is to be typed.
        let message = self.message.replace('&', "&amp;").replace('<', "&lt;");
        let parts = message.split('`').enumerate();
        let message: String = parts
            .map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() })
            .collect();
        let way_out = match self.status {
            StatusCode::NOT_FOUND => r#"<p><a href="/">To the sessions</a></p>"#,
            _ => "",
        };
        format!(
            r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title} · Greenroom</title>
<main>
<h1>{title}</h1>
<p>{message}</p>{way_out}
</main>
</html>
"#
        )
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let mut response = HttpResponse::build(self.status);
        match self.status {
            StatusCode::UNAUTHORIZED => response.insert_header((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                response.insert_header((header::RETRY_AFTER, "1"))
            }
            _ => &mut response,
        };
        response.json(ErrorAnswer { error: ErrorBody { code: self.code.to_owned(), message: self.message.clone() } })
    }
}

impl From<RequestError> for ApiError {
    fn from(refusal: RequestError) -> ApiError {
        let status = match refusal {
            RequestError::NoSession(_) | RequestError::NotQueued(_) | RequestError::NoRequest(_) => {
                StatusCode::NOT_FOUND
            }
            RequestError::BadArgs(_) => StatusCode::BAD_REQUEST,
            RequestError::BudgetSpent(_) => StatusCode::PAYMENT_REQUIRED,
            RequestError::Busy
            | RequestError::NothingToInterrupt
            | RequestError::AlreadyInState(_)
            | RequestError::IdReused(_)
            | RequestError::WrongState { .. }
            | RequestError::Ended
            | RequestError::Unreadable(_) => StatusCode::CONFLICT,
            RequestError::Overloaded(_) => StatusCode::TOO_MANY_REQUESTS,
            RequestError::Journal(_) | RequestError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            // Nobody is told to ask again in a second: that might do it twice.
            RequestError::Unanswered => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, refusal.code(), refusal.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        let (status, code) = match error {
            StoreError::NoSession(_) => (StatusCode::NOT_FOUND, "not_found"),
            StoreError::Conflict { .. } => (StatusCode::CONFLICT, "conflict"),
            StoreError::BadCursor(_) => (StatusCode::BAD_REQUEST, "invalid_args"),
            StoreError::Damaged { .. } | StoreError::DamagedContent { .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, "damaged")
            }
            StoreError::Io(_) => (StatusCode::SERVICE_UNAVAILABLE, "journal_unavailable"),
        };
        ApiError::new(status, code, error.to_string())
    }
}

impl From<SandboxError> for ApiError {
    fn from(error: SandboxError) -> ApiError {
        match error {
            SandboxError::NotFound { .. } => ApiError::not_found(error.to_string()),
            SandboxError::NoEngine { .. }
            | SandboxError::NoImage { .. }
            | SandboxError::Forbidden { .. }
            | SandboxError::Unconfinable { .. }
            | SandboxError::PreviousUnreachable { .. }
            | SandboxError::Deadline { .. }
            | SandboxError::Inconclusive { .. }
            | SandboxError::Failed { .. }
            | SandboxError::Io { .. } => ApiError::unavailable(error.to_string()),
        }
    }
}

impl From<AuthError> for ApiError {
    fn from(denial: AuthError) -> ApiError {
        let (status, code) = match denial {
            AuthError::Host(_) => (StatusCode::FORBIDDEN, "foreign_host"),
            AuthError::Origin(_) | AuthError::CookieAlone => (StatusCode::FORBIDDEN, "foreign_origin"),
            AuthError::NoToken | AuthError::WrongToken => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            AuthError::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json"),
        };
        ApiError::new(status, code, denial.to_string())
    }
}

/// An actor that did not answer: it is ending, or it panicked over this very message.
impl From<MailboxError> for ApiError {
    fn from(_: MailboxError) -> ApiError {
        ApiError::unavailable("the session is just coming back; ask again")
    }
}

/// A request for a socket that lacks a part of what makes it one.
pub(super) fn bad_handshake(error: &actix_web::Error) -> ApiError {
    ApiError::invalid(format!("this address is a WebSocket's, and the request does not open one: {error}"))
}

/// A body that is no JSON, not of the wanted shape, or too large.
pub(super) fn bad_json(error: JsonPayloadError, _: &HttpRequest) -> actix_web::Error {
    let failure = match error {
        JsonPayloadError::OverflowKnownLength { limit, .. } | JsonPayloadError::Overflow { limit } => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body is larger than {limit} bytes, which is `server.max_body`"),
        ),
        JsonPayloadError::ContentType => AuthError::NotJson.into(),
        JsonPayloadError::Deserialize(e) if e.is_syntax() || e.is_eof() => {
            ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is no JSON: {e}"))
        }
        JsonPayloadError::Deserialize(e) => ApiError::invalid(format!("the body: {e}")),
        other => ApiError::invalid(format!("the body could not be read: {other}")),
    };
    failure.into()
}

/// A query string with an unknown parameter, or a value of the wrong type.
pub(super) fn bad_query(error: &serde_path_to_error::Error<serde::de::value::Error>) -> ApiError {
    let (name, detail) = (format!("`{}`", error.path()), error.inner().to_string());
    // One that is unknown, or comes twice, is named already.
    if detail.contains(&name) || error.path().iter().next().is_none() {
        return ApiError::invalid(format!("the query: {detail}"));
    }
    ApiError::invalid(format!("the query: {name}: {detail}; `/api/openapi.json` says what it takes"))
}
