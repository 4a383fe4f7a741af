//! Failures of requests: one JSON body with a code, a message and the fitting status.

use std::fmt::Display;

use actix::MailboxError;
use actix_web::{
    HttpRequest, HttpResponse, ResponseError,
    body::BoxBody,
    error::JsonPayloadError,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
};
use greenroom_protocol::client::ErrorBody;
use serde::Serialize;

use super::{auth::AuthError, shell::error_page};
use crate::{
    api_schema::ErrorBodySchema,
    net::{WsHandshakeError, check_ws_handshake},
    sandbox::SandboxError,
    session::RequestError,
    store::StoreError,
};

/// Failure of a request: status, code and message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

/// Error answer: `{"error": {"code", "message"}}`.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct ErrorAnswer {
    #[schema(value_type = ErrorBodySchema)]
    error: ErrorBody,
}

/// Result of a handler.
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

    /// Returns the error for a status that the framework answers without a body.
    pub(super) fn of_status(status: StatusCode, method: &str, path: &str) -> ApiError {
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                ApiError::new(status, "method_not_allowed", format!("`{path}` does not support {method}"))
            }
            StatusCode::NOT_FOUND => ApiError::not_found(format!("there is nothing at `{path}`")),
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(status, "too_large", "the body is too large"),
            status if status.is_client_error() => {
                ApiError::new(status, "invalid_args", format!("{method} `{path}` is not a valid request"))
            }
            status => ApiError::new(status, "internal", "the server failed; the reason is in its log"),
        }
    }

    /// Returns the error for a request that cannot be parsed, so that its method and path are not
    /// known.
    pub(super) fn unparsed(status: StatusCode) -> ApiError {
        let (code, message) = match status {
            StatusCode::REQUEST_TIMEOUT => ("timeout", "the head of the request did not arrive in time"),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => ("too_large", "the head of the request is too large"),
            status if status.is_client_error() => ("invalid_args", "the request is not valid HTTP/1.1"),
            _ => ("internal", "the server failed; the reason is in its log"),
        };
        ApiError::new(status, code, message)
    }
}

impl ApiError {
    /// Returns the error as an HTML page for a person in a browser.
    pub(super) fn error_page(&self, base_path: &str, preferences: &str) -> String {
        error_page(self.status, &self.message, base_path, preferences)
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
            // RFC 6455, section 4.2.2: the versions that the server supports.
            StatusCode::UPGRADE_REQUIRED => response
                .insert_header((header::UPGRADE, HeaderValue::from_static("websocket")))
                .insert_header((header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                response.insert_header((header::RETRY_AFTER, "1"))
            }
            _ => &mut response,
        };
        response.json(ErrorAnswer { error: ErrorBody { code: self.code.to_owned(), message: self.message.clone() } })
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> ApiError {
        let status = match error {
            RequestError::NoSession(_)
            | RequestError::NotQueued(_)
            | RequestError::NoRequest(_)
            | RequestError::NoProcess(_) => StatusCode::NOT_FOUND,
            RequestError::BadArgs(_) => StatusCode::BAD_REQUEST,
            RequestError::BudgetSpent(_) => StatusCode::PAYMENT_REQUIRED,
            RequestError::Busy
            | RequestError::RestoreBusy
            | RequestError::NothingToInterrupt
            | RequestError::AlreadyInState(_)
            | RequestError::IdReused(_)
            | RequestError::WrongState { .. }
            | RequestError::Ended
            | RequestError::Unreadable(_) => StatusCode::CONFLICT,
            RequestError::Overloaded(_) => StatusCode::TOO_MANY_REQUESTS,
            RequestError::Journal(_) | RequestError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            // No `Retry-After`: the request may have been carried out, and a retry could repeat it.
            RequestError::Unanswered => StatusCode::INTERNAL_SERVER_ERROR,
        };
        ApiError::new(status, error.code(), error.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        let (status, code) = match error {
            StoreError::NoSession(_) => (StatusCode::NOT_FOUND, "not_found"),
            StoreError::Fenced => (StatusCode::CONFLICT, "conflict"),
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
    fn from(error: AuthError) -> ApiError {
        let (status, code) = match error {
            AuthError::Host(_) => (StatusCode::FORBIDDEN, "foreign_host"),
            AuthError::Origin(_) | AuthError::NoOrigin => (StatusCode::FORBIDDEN, "foreign_origin"),
            AuthError::NoToken
            | AuthError::WrongToken
            | AuthError::NoSecret
            | AuthError::SignedOut
            | AuthError::BadTicket => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            AuthError::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json"),
        };
        ApiError::new(status, code, error.to_string())
    }
}

/// Failed request to an actor: the actor is stopping, or panicked while handling the message.
impl From<MailboxError> for ApiError {
    fn from(_: MailboxError) -> ApiError {
        ApiError::unavailable("the session is restarting; try again")
    }
}

/// Checks a request at the address of a socket.
///
/// # Errors
/// The request is not a valid WebSocket handshake.
pub(super) fn check_handshake(req: &HttpRequest) -> Result<(), ApiError> {
    check_ws_handshake(req.head()).map_err(|error| {
        let status = match error {
            WsHandshakeError::Version => StatusCode::UPGRADE_REQUIRED,
            WsHandshakeError::OldHttp | WsHandshakeError::Key | WsHandshakeError::Other(_) => StatusCode::BAD_REQUEST,
        };
        ApiError { status, ..bad_handshake(error) }
    })
}

/// Returns the error for an address of a socket without a valid WebSocket handshake.
pub(super) fn bad_handshake(reason: impl Display) -> ApiError {
    ApiError::invalid(format!("this address is a WebSocket, and the request is not a valid handshake: {reason}"))
}

/// Returns the error for a body that is not JSON, has the wrong shape, or is too large.
pub(super) fn bad_json(cause: JsonPayloadError, _: &HttpRequest) -> actix_web::Error {
    let error = match cause {
        JsonPayloadError::OverflowKnownLength { limit, .. } | JsonPayloadError::Overflow { limit } => ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body is larger than {limit} bytes, the limit of this address (`server.max_body` at most)"),
        ),
        JsonPayloadError::ContentType => AuthError::NotJson.into(),
        JsonPayloadError::Deserialize(e) if e.is_syntax() || e.is_eof() => {
            ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is not valid JSON: {e}"))
        }
        JsonPayloadError::Deserialize(e) => ApiError::invalid(format!("the body: {e}")),
        other => ApiError::invalid(format!("the body could not be read: {other}")),
    };
    error.into()
}

/// Returns the error for a query with an unknown parameter or a value of the wrong type.
pub(super) fn bad_query(error: &serde_path_to_error::Error<serde::de::value::Error>) -> ApiError {
    let (name, detail) = (format!("`{}`", error.path()), error.inner().to_string());
    // An error about an unknown or repeated parameter already contains the name.
    if detail.contains(&name) || error.path().iter().next().is_none() {
        return ApiError::invalid(format!("the query: {detail}"));
    }
    ApiError::invalid(format!("the query: {name}: {detail}; `/api/openapi.json` describes the parameter"))
}
