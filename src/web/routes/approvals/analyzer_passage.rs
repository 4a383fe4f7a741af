//! Passage of requests to the service of a session's analyzer.
//!
//! The service receives method, path, query and JSON body, and no credentials of Greenroom. Its
//! answer comes back as data: a browser neither runs nor shows it, and gets no cookie from it.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode, header},
    web::{Data, Payload},
};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use serde::de::IgnoredAny;

use crate::{
    api_schema::BinarySchema,
    approvals::{PassError, PassedRequest, PassedResponse},
    web::{
        auth::AuthError,
        error::{ApiError, ApiResult, ErrorAnswer},
        request::SessionPath,
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![get_from_analyzer, post_to_analyzer, put_to_analyzer, patch_at_analyzer, delete_at_analyzer];

/// Largest body of a request to the service, bytes.
const MAX_PASSED_BODY: usize = 1024 * 1024;
/// Parameters of a query that hold credentials of Greenroom.
const SECRET_PARAMETERS: [&str; 2] = ["token", "ticket"];
/// Type of bodies and answers in JSON.
const JSON: &str = "application/json";

/// Declares the handlers of the passage. They differ in the method only.
macro_rules! passage {
    ($($method:ident $handler:ident: $summary:literal;)+) => { $(
        #[doc = $summary]
        #[utoipa::path($method, path = "/api/sessions/{id}/security/x/{path}", tag = "approvals",
            params(SessionPath, ("path" = String, Path, description = "Path below `approvals.http.url`.")),
            responses(
                (status = 200, description = "Answer of the service. Its other statuses pass too.",
                    content((serde_json::Value = "application/json"), (BinarySchema = "application/octet-stream"))),
                (status = 413, body = ErrorAnswer, description = "The body is larger than 1 MiB (`too_large`)."),
                (status = 502, body = ErrorAnswer, description = "The service has no usable answer (`analyzer_failed`)."),
                (status = 504, body = ErrorAnswer, description = "The service did not answer in time (`analyzer_failed`).")))]
        async fn $handler(services: Data<WebServices>, id: SessionPath, req: HttpRequest, body: Payload) -> ApiResult {
            pass(&services, &id, &req, body).await
        }
    )+ };
}

passage! {
    get get_from_analyzer: "Reads from the service of the session's analyzer.";
    post post_to_analyzer: "Posts to the service of the session's analyzer.";
    put put_to_analyzer: "Puts something into the service of the session's analyzer.";
    patch patch_at_analyzer: "Changes something at the service of the session's analyzer.";
    delete delete_at_analyzer: "Deletes something at the service of the session's analyzer.";
}

/// Sends a request to the service, and returns the answer as data.
async fn pass(services: &WebServices, id: &SessionPath, req: &HttpRequest, body: Payload) -> ApiResult {
    let record = services.snapshot(id.0).await?.record;
    let name = record.analyzer.as_deref().unwrap_or(services.analyzers.default_name());
    let analyzer = services.analyzers.get(name).map_err(|e| ApiError::not_found(e.to_string()))?;
    let body = json_body(req, body).await?;
    let request = PassedRequest {
        // `HEAD` is answered with the head of the answer to `GET`.
        method: if *req.method() == Method::HEAD { "GET" } else { req.method().as_str() }.to_owned(),
        path: req.match_info().query("path").to_owned(),
        query: Some(without_secrets(req.query_string())),
        content_type: body.as_ref().map(|_| JSON.to_owned()),
        body: body.unwrap_or_default(),
    };
    match analyzer.pass(request).await {
        Ok(response) => answer(response),
        Err(error @ PassError::NotOffered) => Err(ApiError::not_found(error.to_string())),
        Err(error @ (PassError::BadPath | PassError::BadMethod(_))) => Err(ApiError::invalid(error.to_string())),
        Err(error @ PassError::Timeout) => Err(failed(StatusCode::GATEWAY_TIMEOUT, error.to_string())),
        Err(error @ (PassError::TooLarge { .. } | PassError::Unreachable(_))) => {
            Err(failed(StatusCode::BAD_GATEWAY, error.to_string()))
        }
    }
}

/// Returns a query without credentials of Greenroom.
fn without_secrets(query: &str) -> String {
    let passed = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| !SECRET_PARAMETERS.contains(&&**name));
    form_urlencoded::Serializer::new(String::new()).extend_pairs(passed).finish()
}

/// Reads the body of a request. `None` if it is empty.
///
/// # Errors
/// The body is too large, or is not declared as JSON, or is not JSON.
async fn json_body(req: &HttpRequest, mut body: Payload) -> Result<Option<Bytes>, ApiError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|e| ApiError::invalid(format!("the body could not be read: {e}")))?;
        if bytes.len() + chunk.len() > MAX_PASSED_BODY {
            let message = format!("the body is larger than {MAX_PASSED_BODY} bytes; send a smaller one");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
        }
        bytes.extend_from_slice(&chunk);
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let kind = req.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON)) {
        return Err(AuthError::NotJson.into());
    }
    serde_json::from_slice::<IgnoredAny>(&bytes).map_err(|e| {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", format!("the body is not valid JSON: {e}"))
    })?;
    Ok(Some(bytes.freeze()))
}

/// Returns the answer of the service as data: JSON or bytes, without its headers.
fn answer(PassedResponse { status, body, .. }: PassedResponse) -> ApiResult {
    let passed = StatusCode::from_u16(status).ok().filter(|status| {
        // The page reads 401 as its own sign-out. A redirect leads to another address.
        let is_about_access = matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        !is_about_access && (status.is_success() || status.is_client_error() || status.is_server_error())
    });
    let passed = passed.ok_or_else(|| {
        failed(StatusCode::BAD_GATEWAY, format!("the analyzer's service answered with status {status}"))
    })?;
    let is_json = serde_json::from_slice::<IgnoredAny>(&body).is_ok();
    Ok(HttpResponse::build(passed)
        .content_type(if is_json { JSON } else { "application/octet-stream" })
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"answer\""))
        .body(body))
}

fn failed(status: StatusCode, message: String) -> ApiError {
    ApiError::new(status, "analyzer_failed", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_passes_without_credentials() {
        let check = |query: &str, expected: &str| assert_eq!(without_secrets(query), expected);
        check("", "");
        check("q=a%20b&token=s&page=2&ticket=t", "q=a+b&page=2");
        check("tok%65n=s&tokens=1", "tokens=1");
    }

    #[test]
    fn answer_is_data_whatever_the_service_says() {
        let check = |status: u16, body: &'static str, expected: Option<(u16, &str)>| {
            let response = PassedResponse {
                status,
                content_type: Some("text/html".to_owned()),
                body: Bytes::from_static(body.as_bytes()),
            };
            let answer = answer(response);
            let got = answer.as_ref().ok().map(|answer| {
                let header =
                    |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
                assert!(header(header::CONTENT_DISPOSITION).starts_with("attachment"));
                (answer.status().as_u16(), header(header::CONTENT_TYPE))
            });
            assert_eq!(got, expected, "{status} {body}");
        };
        check(200, r#"{"a":1}"#, Some((200, "application/json")));
        check(404, "<script>1</script>", Some((404, "application/octet-stream")));
        check(503, "", Some((503, "application/octet-stream")));
        for status in [101, 302, 401, 407, 999] {
            check(status, "{}", None);
        }
    }
}
