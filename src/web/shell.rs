//! Markup around everything that a person sees: the shell of the application, and pages for errors.

use actix_web::{
    HttpRequest,
    http::{StatusCode, header},
};

use super::{assets, auth::Auth};

/// Shell of the application, the same for all screens.
const SHELL: &str = "index.html";

/// Begin of the element that gives the base path to the script. The policy for content allows no
/// `<base>`.
const BASE_ELEMENT: &str = r#"<meta name="greenroom-base" content=""#;

/// Root element, which takes the preferences and the server's id as attributes.
const ROOT: &str = r#"<html lang="en""#;

/// Element of the shell that takes data for the script: a data block, which no browser runs.
const DATA_ELEMENT: &str = r#"<script id="given" type="application/json">"#;

/// Preferences in cookies: cookie name, attribute, allowed values. By default the colours are the
/// system's, and the sidebar is shown.
const PREFERENCE_COOKIES: [(&str, &str, &[&str]); 2] =
    [("greenroom_theme", "data-theme", &["light", "dark"]), ("greenroom_sidebar", "data-sidebar", &["away"])];

/// Returns the shell for a request. The script keeps the secret of each server under `data-server`,
/// because two servers may share an origin.
///
/// `base_path`: put before each address.
pub(super) fn shell(auth: &Auth, req: &HttpRequest, base_path: &str) -> String {
    let server = auth.browsers().server_id();
    with_base_path(&assets::text(SHELL), base_path).replacen(
        ROOT,
        &format!(r#"{ROOT}{} data-server="{server}""#, preferences(req)),
        1,
    )
}

/// Returns the shell with the base path before each address and in [`BASE_ELEMENT`].
fn with_base_path(shell: &str, base_path: &str) -> String {
    let addressed = shell.replace(r#"="/"#, &format!(r#"="{base_path}/"#));
    addressed.replacen(BASE_ELEMENT, &format!("{BASE_ELEMENT}{base_path}"), 1)
}

/// Returns the shell with data for the script.
///
/// No `<` stays in the data, so the data cannot end the element. In JSON, `<` occurs only in
/// strings.
pub(super) fn shell_with(data: &str, shell: &str) -> String {
    shell.replacen(DATA_ELEMENT, &format!("{DATA_ELEMENT}{}", data.replace('<', r"\u003c")), 1)
}

/// Returns the person's preferences as attributes. Only values in [`PREFERENCE_COOKIES`] are taken
/// from cookies.
pub(super) fn preferences(req: &HttpRequest) -> String {
    let chosen = PREFERENCE_COOKIES.into_iter().filter_map(|(name, attribute, values)| {
        let cookie = req.cookie(name)?;
        let value = values.iter().find(|&&value| value == cookie.value())?;
        Some(format!(r#" {attribute}="{value}""#))
    });
    chosen.collect()
}

/// Returns an error as a page with the look of the application. The page needs no script.
///
/// `preferences`: attributes from [`preferences`]. The message can contain anything that the client
/// sent. Text between two backticks is code.
pub(super) fn error_page(status: StatusCode, message: &str, base_path: &str, preferences: &str) -> String {
    let title = match status {
        StatusCode::NOT_FOUND => "Page not found",
        StatusCode::UNAUTHORIZED => "Sign in again",
        _ => status.canonical_reason().unwrap_or("Failed"),
    };
    let mut letters = message.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let sentence = format!("{first}{}.", letters.as_str().trim_end_matches('.'));
    let escaped = sentence.replace('&', "&amp;").replace('<', "&lt;");
    let parts = escaped.split('`').enumerate();
    let text: String =
        parts.map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }).collect();
    let way_out = match status {
        StatusCode::NOT_FOUND => format!(r#"<p><a class="button" href="{base_path}/">Go to the sessions</a></p>"#),
        StatusCode::UNAUTHORIZED => format!(r#"<p><a class="button primary" href="{base_path}/">Sign in</a></p>"#),
        _ => String::new(),
    };
    let style = assets::stylesheet();
    format!(
        r#"<!doctype html>
{ROOT}{preferences}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · Greenroom</title>
<link rel="icon" href="{base_path}/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{base_path}/{style}">
</head>
<body>
<main class="page">
<h1>{title}</h1>
<p class="muted">{text}</p>
{way_out}
</main>
</body>
</html>
"#
    )
}

/// Returns true if the start of a request that cannot be parsed is that of a browser that opens a
/// page.
pub(super) fn is_navigation_head(head: &[u8]) -> bool {
    let opens_page = head.starts_with(b"GET /") && !head.starts_with(b"GET /api/") && !head.starts_with(b"GET /ws");
    let accept = format!("{}: text/html", header::ACCEPT);
    opens_page && head.windows(accept.len()).any(|part| part.eq_ignore_ascii_case(accept.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_data_stays_in_its_element() {
        let shell = format!("<title>x</title>{DATA_ELEMENT}</script><body>");
        let hostile = r#"{"a":"</script><script>alert(1)</script><!-- <script>"}"#;
        let page = shell_with(hostile, &shell);
        let element = page
            .strip_prefix(&format!("<title>x</title>{DATA_ELEMENT}"))
            .expect("the text before the element is unchanged");
        let (data, rest) = element.split_once('<').expect("the element ends");
        assert_eq!(rest, "/script><body>");
        let read = |json| serde_json::from_str::<serde_json::Value>(json).expect("the data is JSON");
        assert_eq!(read(data), read(hostile));
    }

    #[test]
    fn only_a_browser_that_opens_a_page_gets_a_page() {
        let check = |head: &str, expected| assert_eq!(is_navigation_head(head.as_bytes()), expected, "{head}");
        check("GET / HTTP/1.1\r\nhost: a\r\nAccept: text/html,*/*\r\n", true);
        check("GET /sessions HTTP/9.9\r\naccept: text/html\r\n", true);
        check("GET / HTTP/1.1\r\naccept: application/json\r\n", false);
        check("GET / HTTP/1.1\r\nhost: a\r\n", false);
        check("GET /api/sessions HTTP/1.1\r\naccept: text/html\r\n", false);
        check("GET /ws HTTP/1.1\r\naccept: text/html\r\n", false);
        check("POST / HTTP/1.1\r\naccept: text/html\r\n", false);
        check("", false);
    }
}
