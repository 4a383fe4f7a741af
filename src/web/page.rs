//! The one page of the application. It comes as the person has set it up, as its first picture is drawn before the script is
//! there; that of a session comes with what it shows first, so that the browser need not ask and draws it at once.

use std::time::Duration;

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::header,
    rt::time::timeout,
    web::{Data, Path},
};
use serde_json::json;

use super::{WebServices, assets, error::ApiResult, journal, middleware::AuthenticatedRequest};
use crate::store::{ReadLimit, SessionId};

/// Somewhat more than a window holds; and nothing is drawn before all of it is here.
const INITIAL_EVENTS: ReadLimit = ReadLimit { events: 60, bytes: 128 << 10 };

/// The page does not wait longer for its journal.
const JOURNAL_TIMEOUT: Duration = Duration::from_millis(100);

/// The shell, and what the page of a session is before its script comes.
const SHELL: &str = "index.html";
const SESSION: &str = "session.html";

/// The element of the shell that takes what is given: a block of data, which no browser runs.
const DATA_ELEMENT: &str = r#"<script id="given" type="application/json">"#;

/// Where it is said how the page is set up.
const ROOT: &str = r#"<html lang="en""#;

/// What the page keeps in a cookie, the attribute that says it, and what there is to choose. Else the colours are the
/// system's, and the list of sessions is shown.
const PREFERENCE_COOKIES: [(&str, &str, &[&str]); 2] =
    [("greenroom_theme", "data-theme", &["light", "dark"]), ("greenroom_sidebar", "data-sidebar", &["away"])];

/// Any screen, for anybody: the script asks for what it shows.
pub(super) fn shell_page(req: &HttpRequest) -> HttpResponse {
    page(apply_preferences(&assets::text(SHELL), req), "no-cache")
}

fn page(text: String, cache_control: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CACHE_CONTROL, cache_control))
        .body(text)
}

/// The shell as it was set up. A cookie can say nothing but what is in `CHOICES`.
fn apply_preferences(shell: &str, req: &HttpRequest) -> String {
    let chosen = PREFERENCE_COOKIES.into_iter().filter_map(|(name, attribute, values)| {
        let cookie = req.cookie(name)?;
        let value = values.iter().find(|&&value| value == cookie.value())?;
        Some(format!(r#" {attribute}="{value}""#))
    });
    shell.replacen(ROOT, &format!("{ROOT}{}", chosen.collect::<String>()), 1)
}

/// The page of a session, for those who are let in with the session in it. The script asks for what it is not given.
pub(super) async fn session(req: HttpRequest, parts: Data<WebServices>, id: Path<String>) -> ApiResult {
    let is_inside = req.extensions().contains::<AuthenticatedRequest>();
    let Some(id) = id.parse::<SessionId>().ok().filter(|_| is_inside) else { return Ok(shell_page(&req)) };
    match timeout(JOURNAL_TIMEOUT, initial_data(parts, id)).await {
        Ok(Some(given)) => {
            Ok(page(with_initial_data(&apply_preferences(&assets::text(SESSION), &req), &given), "no-store"))
        }
        // No such session, or none that can be read now: the script finds that out by itself, and says it.
        Ok(None) | Err(_) => Ok(shell_page(&req)),
    }
}

/// `{"session": …, "events": […]}`; nothing where the newest event alone is too large.
async fn initial_data(parts: Data<WebServices>, id: SessionId) -> Option<String> {
    let snapshot = parts.snapshot(id).await.ok()?;
    let session = json!(parts.view(&snapshot));
    let events = journal::newest(parts, id, snapshot.tail, INITIAL_EVENTS, None).await.ok()?;
    let is_whole = events.iter().map(|event| event.json.len()).sum::<usize>() <= INITIAL_EVENTS.bytes;
    is_whole.then(|| {
        format!(r#"{{"session":{session},"events":{}}}"#, String::from_utf8_lossy(&journal::json_array(&events)))
    })
}

/// The shell with `given` in its place, in which nothing can end that place: in JSON, `<` stands in texts alone.
fn with_initial_data(shell: &str, given: &str) -> String {
    shell.replacen(DATA_ELEMENT, &format!("{DATA_ELEMENT}{}", given.replace('<', r"\u003c")), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_stays_in_its_place() {
        let shell = format!("<title>x</title>{DATA_ELEMENT}</script><body>");
        let hostile = r#"{"a":"</script><script>alert(1)</script><!-- <script>"}"#;
        let page = with_initial_data(&shell, hostile);
        let place = page.strip_prefix(&format!("<title>x</title>{DATA_ELEMENT}")).expect("what was before it stands");
        let (given, rest) = place.split_once('<').expect("it ends");
        assert_eq!(rest, "/script><body>");
        let read = |json| serde_json::from_str::<serde_json::Value>(json).expect("it is JSON");
        assert_eq!(read(given), read(hostile));
    }
}
