//! Search through what was said in all sessions.

use std::time::Duration;

use actix_web::{HttpResponse, http::StatusCode, web::Data};
use greenroom_protocol::EventSource;
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, Type};

use crate::{
    api_schema::{FILLED_LINE, api_schema, text},
    store::{Seq, SessionId},
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::{QueryNumber, QueryParams},
        route_table::documented_routes,
        search::{
            FoundEvent, InvalidSearchCursor, InvalidSearchText, MAX_SEARCH_CHARS, MatchingEvent, PassageKind,
            SEARCH_CURSOR, SearchBounds, SearchText, search as search_events,
        },
        state::WebServices,
    },
};

documented_routes![search];

/// Hits in an answer whose client names no number, and in the largest answer.
const DEFAULT_HITS: usize = 20;
const MAX_HITS: usize = 100;
/// Bytes of events that are read for one answer.
const MAX_SEARCH_BYTES: usize = 32 << 20;
/// Time that one answer may take.
const MAX_SEARCH_TIME: Duration = Duration::from_millis(200);

api_schema! {
    SearchTextSchema as "SearchText" = text()
        .description(Some("Text that is not blank, without control characters."))
        .max_length(Some(MAX_SEARCH_CHARS))
        .pattern(Some(FILLED_LINE));
    SearchLimitSchema as "SearchLimit" = QueryNumber::schema()
        .description(Some(format!("0 counts as {DEFAULT_HITS}, and more than {MAX_HITS} as {MAX_HITS}.")))
        .default(Some(DEFAULT_HITS.into()));
    SearchCursorSchema as "SearchCursor" = text().pattern(Some(SEARCH_CURSOR));
    EventSourceSchema as "EventSource" = text().enum_values(Some(["user", "agent", "server"]));
    MatchRangesSchema as "MatchRanges" = Array::new(
        ArrayBuilder::new()
            .items(ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)))
            .min_items(Some(2))
            .max_items(Some(2)),
    );
}

/// Text to search for, and page.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SearchParams {
    /// Text to search for, at most 200 characters. Case does not matter, and a run of white space
    /// matches any other.
    #[param(inline, value_type = SearchTextSchema)]
    q: String,
    /// Largest number of hits in the answer.
    #[param(inline, value_type = Option<SearchLimitSchema>)]
    limit: Option<QueryNumber>,
    /// `next_cursor` of the previous answer.
    #[param(inline, value_type = Option<SearchCursorSchema>)]
    cursor: Option<String>,
}

/// Hits of a search: newest activity first, and newest event first in a session.
#[derive(Serialize, utoipa::ToSchema)]
struct SearchPage {
    /// May be empty although `next_cursor` is set: the search continues there.
    items: Vec<SearchHit>,
    /// Cursor of the next answer; `null` if all events were searched.
    next_cursor: Option<String>,
    /// Number of sessions whose journal could not be read.
    unreadable: usize,
}

/// Event that contains the text.
#[derive(Serialize, utoipa::ToSchema)]
struct SearchHit {
    session: SessionId,
    /// Title of the session.
    title: String,
    archived: bool,
    /// Number of the event.
    seq: Seq,
    /// Time of the event: RFC 3339, UTC, milliseconds.
    at: String,
    #[schema(value_type = EventSourceSchema)]
    source: EventSource,
    kind: PassageKind,
    /// Plain text around the first match, in one line. `…` stands for what was left out.
    snippet: String,
    /// Start and end of each match in the snippet, in UTF-16 code units.
    #[schema(value_type = MatchRangesSchema)]
    matches: Vec<[usize; 2]>,
}

/// Searches the messages and commands of all sessions, archived or not.
///
/// An answer reads at most 32 MiB of events for at most 200 ms. It may therefore have few hits or
/// none, and a cursor to continue.
#[utoipa::path(get, path = "/api/search", tag = "journal", params(SearchParams),
    responses((status = 200, body = SearchPage, description = "Hits, up to a bound of the answer."),
        (status = 429, body = ErrorAnswer, description = "Two other searches run (`overloaded`).",
            headers(("Retry-After" = u32, description = "Seconds to wait.")))))]
async fn search(services: Data<WebServices>, QueryParams(params): QueryParams<SearchParams>) -> ApiResult {
    let SearchParams { q, limit, cursor } = params;
    let text = SearchText::new(&q)?;
    let cursor = cursor.map(|cursor| cursor.parse()).transpose()?;
    let hits = match limit.map_or(0, QueryNumber::as_usize) {
        0 => DEFAULT_HITS,
        hits => hits.min(MAX_HITS),
    };
    // Dropped with this future, also if the client leaves.
    let _permit = services.search_limiter.admit().ok_or_else(|| {
        let message = "two other searches run; try again in a second";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", message)
    })?;
    let bounds = SearchBounds { hits, bytes: MAX_SEARCH_BYTES, time: MAX_SEARCH_TIME };
    let found = search_events(services.store.clone(), text, cursor, bounds).await?;
    Ok(HttpResponse::Ok().json(SearchPage {
        items: found.items.into_iter().map(SearchHit::from).collect(),
        next_cursor: found.next_cursor.map(|cursor| cursor.to_string()),
        unreadable: found.unreadable,
    }))
}

impl From<FoundEvent> for SearchHit {
    fn from(found: FoundEvent) -> SearchHit {
        let FoundEvent { session, title, archived, event } = found;
        let MatchingEvent { seq, at, source, kind, excerpt } = event;
        let title = title.to_string();
        SearchHit { session, title, archived, seq, at, source, kind, snippet: excerpt.text, matches: excerpt.matches }
    }
}

impl From<InvalidSearchText> for ApiError {
    fn from(error: InvalidSearchText) -> ApiError {
        ApiError::invalid(error.to_string())
    }
}

impl From<InvalidSearchCursor> for ApiError {
    fn from(error: InvalidSearchCursor) -> ApiError {
        ApiError::invalid(error.to_string())
    }
}
