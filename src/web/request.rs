//! Parts of a request: session id, file path, query, idempotency key, accepted types.

use std::{
    borrow::Cow,
    future::{Ready, ready},
    num::IntErrorKind,
};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest,
    dev::Payload,
    http::header::{self, HeaderMap, HeaderName},
};
use greenroom_protocol::REQUEST_ID_LIMIT;
use percent_encoding::percent_decode_str;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, value},
};
use utoipa::{
    IntoParams, ToSchema,
    openapi::{
        Ref, RefOr, Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
        schema::{ObjectBuilder, Schema, Type},
    },
};

use super::error::{ApiError, bad_query};
use crate::{
    api_schema::{api_schema, text},
    data::ClientName,
    files::{InnerPath, InvalidInnerPath, PathForm, WorkspacePathSchema},
    store::{Seq, SessionId},
};

/// Returns true if the client accepts this type explicitly. `*/*` does not count.
pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|accepted| accepted.split(';').next().is_some_and(|accepted| accepted.trim() == kind))
}

/// Returns the value of a header. `None` if the header is missing, not text, or repeated.
pub(super) fn single_header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name);
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// Marks a request for a page whose address has the token: the sign-in link.
#[derive(Clone, Copy)]
pub(super) struct SignInLink;

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

impl IntoParams for SessionPath {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let id = ParameterBuilder::new()
            .name("id")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("Session, by its id."))
            .schema(Some(Ref::from_schema_name(SessionId::name())));
        vec![id.build()]
    }
}

/// Entry of a workspace that the path names. With `encoded=true` in the query, the path is
/// percent-encoded inside its segments.
pub(super) struct FilePath(pub InnerPath);

impl FromRequest for FilePath {
    type Error = ApiError;
    type Future = Ready<Result<FilePath, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        // The router leaves an encoded `/` and `%` as they are. The middleware has rejected bytes
        // that are no UTF-8.
        let text = percent_decode_str(req.match_info().query("path")).decode_utf8_lossy();
        let mut query = form_urlencoded::parse(req.query_string().as_bytes());
        let form = PathForm::of(query.any(|(name, value)| name == "encoded" && value == "true"));
        let parsed = InnerPath::parse(&text, form);
        ready(parsed.map(FilePath).map_err(|invalid| ApiError::invalid(InvalidInnerPath::to_string(&invalid))))
    }
}

impl IntoParams for FilePath {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let path = ParameterBuilder::new()
            .name("path")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("Entry of the workspace, such as `uploads/plan.pdf`."))
            .schema(Some(Ref::from_schema_name(WorkspacePathSchema::name())));
        vec![path.build()]
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

/// Number in a query. A number that is too large for 64 bits counts as the largest one, as each
/// larger number has the same effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QueryNumber(pub u64);

impl QueryNumber {
    pub(super) fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn parse<E: serde::de::Error>(text: &str) -> Result<QueryNumber, E> {
        match text.parse() {
            Ok(number) => Ok(QueryNumber(number)),
            Err(e) if *e.kind() == IntErrorKind::PosOverflow => Ok(QueryNumber(u64::MAX)),
            Err(e) => Err(E::custom(e)),
        }
    }

    /// Begins the schema of a number in a query.
    pub(super) fn schema() -> ObjectBuilder {
        ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0))
    }
}

impl<'de> Deserialize<'de> for QueryNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<QueryNumber, D::Error> {
        QueryNumber::parse(&Cow::<str>::deserialize(deserializer)?)
    }
}

/// Event after which an answer begins, as a query names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterParam {
    Seq(Seq),
    /// Newest event: the answer has only later events.
    Tail,
}

impl<'de> Deserialize<'de> for AfterParam {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AfterParam, D::Error> {
        match &*Cow::<str>::deserialize(deserializer)? {
            "tail" => Ok(AfterParam::Tail),
            number => QueryNumber::parse(number).map(|number| AfterParam::Seq(number.0)),
        }
    }
}

/// `Idempotency-Key` header: the client's name for a request. The same name again acts once.
pub(super) struct IdempotencyKeyHeader(pub Option<String>);

impl FromRequest for IdempotencyKeyHeader {
    type Error = ApiError;
    type Future = Ready<Result<IdempotencyKeyHeader, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let Some(value) = req.headers().get("idempotency-key") else { return ready(Ok(IdempotencyKeyHeader(None))) };
        let text = value.to_str().ok().filter(|text| (1..=REQUEST_ID_LIMIT).contains(&text.len()));
        ready(match text {
            Some(text) => Ok(IdempotencyKeyHeader(Some(text.to_owned()))),
            None => Err(ApiError::invalid(format!(
                "`Idempotency-Key` must have 1 to {REQUEST_ID_LIMIT} visible ASCII characters"
            ))),
        })
    }
}

impl IntoParams for IdempotencyKeyHeader {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let description = "Client's name for the request. The same request with the same key acts once.";
        vec![header_parameter("Idempotency-Key", description, Ref::from_schema_name(IdempotencyKeySchema::name()))]
    }
}

/// Name of the client that sends a request, for events that record a person's decision.
pub(super) struct RequestedBy(pub Option<String>);

impl FromRequest for RequestedBy {
    type Error = ApiError;
    type Future = Ready<Result<RequestedBy, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(RequestedBy(req.extensions().get::<ClientName>().map(ClientName::to_string))))
    }
}

/// `Last-Event-ID` header: the newest event of a client that resumes a stream.
pub(super) struct LastEventIdHeader(pub Option<Seq>);

impl FromRequest for LastEventIdHeader {
    type Error = ApiError;
    type Future = Ready<Result<LastEventIdHeader, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let Some(value) = req.headers().get("last-event-id") else { return ready(Ok(LastEventIdHeader(None))) };
        let number = value.to_str().ok().and_then(|text| QueryNumber::parse::<value::Error>(text).ok());
        ready(match number {
            Some(QueryNumber(seq)) => Ok(LastEventIdHeader(Some(seq))),
            None => Err(ApiError::invalid("`Last-Event-ID` must be the number of an event")),
        })
    }
}

impl IntoParams for LastEventIdHeader {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let description = "Newest event that the client has. A stream resumes after it.";
        vec![header_parameter("Last-Event-ID", description, QueryNumber::schema())]
    }
}

/// Returns an optional header as a parameter of the OpenAPI document.
pub(super) fn header_parameter(name: &str, description: &str, schema: impl Into<RefOr<Schema>>) -> Parameter {
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header).required(Required::False);
    parameter.description(Some(description)).schema(Some(schema)).build()
}

api_schema! {
    pub(super) IdempotencyKeySchema as "IdempotencyKey" = text()
        .description(Some("Visible ASCII characters, with spaces only between them."))
        .min_length(Some(1))
        .max_length(Some(REQUEST_ID_LIMIT))
        .pattern(Some("^[!-~]([ -~]*[!-~])?$"));
}
