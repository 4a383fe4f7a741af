//! Page of the application, the same for all screens, with the person's preferences applied before
//! the script runs.
//!
//! The page of a session contains the events of its first screen. The browser draws them without a
//! request.

use std::time::Duration;

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::{Method, header},
    rt::time::timeout,
    web::{Data, Path},
};
use serde_json::json;

use crate::{
    store::{ReadLimit, SessionId},
    web::{
        assets,
        client_facts::ClientFacts,
        error::{ApiError, ApiResult},
        event_reads::{json_array, newest},
        request::AuthenticatedRequest,
        state::WebServices,
    },
};

/// Events in the page of a session: somewhat more than a window shows. The browser draws nothing
/// before it has all of them.
const INITIAL_EVENTS: ReadLimit = ReadLimit { events: 60, bytes: 128 << 10 };

/// Limit for reading the journal. After it, the page is sent without events.
const JOURNAL_TIMEOUT: Duration = Duration::from_millis(100);

/// Shell of the application, and the page of a session before its script loads.
const SHELL: &str = "index.html";
const SESSION: &str = "session.html";

/// Element of the shell that takes the initial data: a data block, which no browser runs.
const DATA_ELEMENT: &str = r#"<script id="given" type="application/json">"#;

/// Begin of the element that gives the base path to the script. The policy for content allows no
/// `<base>`.
const BASE_ELEMENT: &str = r#"<meta name="greenroom-base" content=""#;

/// Root element, which takes the preferences as attributes.
const ROOT: &str = r#"<html lang="en""#;

/// Preferences in cookies: cookie name, attribute, allowed values. By default the colours are the
/// system's, and the sidebar is shown.
const PREFERENCE_COOKIES: [(&str, &str, &[&str]); 2] =
    [("greenroom_theme", "data-theme", &["light", "dark"]), ("greenroom_sidebar", "data-sidebar", &["away"])];

/// Returns the shell for any screen and any client. The script requests the data.
fn shell_page(req: &HttpRequest) -> HttpResponse {
    page(apply_preferences(&assets::text(SHELL), req), "no-cache")
}

fn page(text: String, cache_control: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CACHE_CONTROL, cache_control))
        .body(text)
}

/// Returns the shell with the preferences applied. Only values in [`PREFERENCE_COOKIES`] are taken
/// from cookies. All addresses get the base path.
fn apply_preferences(shell: &str, req: &HttpRequest) -> String {
    let shell = with_base_path(shell, ClientFacts::of(req).base_path());
    let chosen = PREFERENCE_COOKIES.into_iter().filter_map(|(name, attribute, values)| {
        let cookie = req.cookie(name)?;
        let value = values.iter().find(|&&value| value == cookie.value())?;
        Some(format!(r#" {attribute}="{value}""#))
    });
    shell.replacen(ROOT, &format!("{ROOT}{}", chosen.collect::<String>()), 1)
}

/// Returns the shell with the base path before each address and in [`BASE_ELEMENT`].
fn with_base_path(shell: &str, base_path: &str) -> String {
    let addressed = shell.replace(r#"="/"#, &format!(r#"="{base_path}/"#));
    addressed.replacen(BASE_ELEMENT, &format!("{BASE_ELEMENT}{base_path}"), 1)
}

/// Answers requests that no other route takes: with a file of the UI, or with the shell for a
/// screen.
pub(in crate::web) async fn serve(req: HttpRequest) -> ApiResult {
    let path = req.match_info().as_str();
    let name = path.strip_prefix('/').unwrap_or(path);
    let asset = assets::find(name);
    if asset.is_none() && !assets::is_screen(path) {
        return Err(ApiError::not_found(format!("there is nothing at `{path}`")));
    }
    if !matches!(*req.method(), Method::GET | Method::HEAD) {
        return Ok(HttpResponse::MethodNotAllowed().insert_header((header::ALLOW, "GET, HEAD")).finish());
    }
    Ok(asset.map_or_else(|| shell_page(&req), |asset| asset.answer(&req, name)))
}

/// Returns the page of a session, with the session's data for authenticated clients.
///
/// Without data the script requests what it needs.
pub(in crate::web) async fn session(req: HttpRequest, services: Data<WebServices>, id: Path<String>) -> ApiResult {
    let is_authenticated = req.extensions().contains::<AuthenticatedRequest>();
    let Some(id) = id.parse::<SessionId>().ok().filter(|_| is_authenticated) else { return Ok(shell_page(&req)) };
    match timeout(JOURNAL_TIMEOUT, initial_data(services, id)).await {
        Ok(Some(data)) => {
            Ok(page(with_initial_data(&apply_preferences(&assets::text(SESSION), &req), &data), "no-store"))
        }
        // The session does not exist or is not readable now. The script finds out and shows the
        // reason.
        Ok(None) | Err(_) => Ok(shell_page(&req)),
    }
}

/// Returns `{"session": …, "events": […]}`. `None` if the newest event alone is too large.
async fn initial_data(services: Data<WebServices>, id: SessionId) -> Option<String> {
    let snapshot = services.snapshot(id).await.ok()?;
    let session = json!(services.view(&snapshot));
    let events = newest(services.store.clone(), id, snapshot.tail, INITIAL_EVENTS, None).await.ok()?;
    let fits = events.iter().map(|event| event.json.len()).sum::<usize>() <= INITIAL_EVENTS.bytes;
    fits.then(|| format!(r#"{{"session":{session},"events":{}}}"#, String::from_utf8_lossy(&json_array(&events))))
}

/// Returns the shell with `data` in its data element.
///
/// No `<` stays in the data, so the data cannot end the element. In JSON, `<` occurs only in
/// strings.
fn with_initial_data(shell: &str, data: &str) -> String {
    shell.replacen(DATA_ELEMENT, &format!("{DATA_ELEMENT}{}", data.replace('<', r"\u003c")), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_data_stays_in_its_element() {
        let shell = format!("<title>x</title>{DATA_ELEMENT}</script><body>");
        let hostile = r#"{"a":"</script><script>alert(1)</script><!-- <script>"}"#;
        let page = with_initial_data(&shell, hostile);
        let element = page
            .strip_prefix(&format!("<title>x</title>{DATA_ELEMENT}"))
            .expect("the text before the element is unchanged");
        let (data, rest) = element.split_once('<').expect("the element ends");
        assert_eq!(rest, "/script><body>");
        let read = |json| serde_json::from_str::<serde_json::Value>(json).expect("the data is JSON");
        assert_eq!(read(data), read(hostile));
    }
}
