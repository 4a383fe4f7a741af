//! Parts of a request: session id, query, idempotency key, accepted types, authentication.

use std::future::{Ready, ready};

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{self, HeaderMap},
};
use serde::de::DeserializeOwned;

use super::error::{ApiError, bad_query};
use crate::store::SessionId;

/// Returns true if the client accepts this type explicitly. `*/*` does not count.
pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|accepted| accepted.split(';').next().is_some_and(|accepted| accepted.trim() == kind))
}

/// Marks a request for a page: the client is authenticated and may see data.
#[derive(Clone, Copy)]
pub(super) struct AuthenticatedRequest;

/// Session that the path names.
pub(super) struct SessionPath(pub SessionId);

impl FromRequest for SessionPath {
    type Error = ApiError;
    type Future = Ready<Result<SessionPath, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = req.match_info().query("id");
        ready(text.parse().map(SessionPath).map_err(|_| ApiError::not_found(format!("`{text}` is not a session id"))))
    }
}

/// Query of a request. Unlike `actix_web::web::Query`, its error names the parameter.
pub(super) struct QueryParams<T>(pub T);

impl<T: DeserializeOwned> FromRequest for QueryParams<T> {
    type Error = ApiError;
    type Future = Ready<Result<QueryParams<T>, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(req.query_string().as_bytes()));
        ready(serde_path_to_error::deserialize(pairs).map(QueryParams).map_err(|e| bad_query(&e)))
    }
}

/// `Idempotency-Key` header: the client's name for a request. The same name again acts once.
pub(super) struct IdempotencyKeyHeader(pub Option<String>);

impl FromRequest for IdempotencyKeyHeader {
    type Error = ApiError;
    type Future = Ready<Result<IdempotencyKeyHeader, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let Some(value) = req.headers().get("idempotency-key") else { return ready(Ok(IdempotencyKeyHeader(None))) };
        let text = value.to_str().ok().filter(|text| (1..=128).contains(&text.len()));
        ready(match text {
            Some(text) => Ok(IdempotencyKeyHeader(Some(text.to_owned()))),
            None => Err(ApiError::invalid("`Idempotency-Key` must have 1 to 128 visible ASCII characters")),
        })
    }
}
