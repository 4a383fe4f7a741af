//! Sign-in of a browser: its cookie, and its name in the list.

use actix_web::{
    HttpRequest,
    cookie::{Cookie, SameSite, time::Duration},
    http::header,
};

use super::{auth::Auth, client_facts::is_https, error::ApiError, request::single_header};

/// Time for which a browser keeps the cookie: the longest that browsers allow. The server ends the
/// sign-in of an unused browser earlier, by its own clock.
const COOKIE_LIFETIME: Duration = Duration::days(400);

/// Signs the browser of a request in, whose token was checked. Returns its secret and its cookie.
///
/// # Errors
/// The kernel's random generator is not available.
pub(super) async fn sign_in(auth: &Auth, req: &HttpRequest) -> Result<(String, Cookie<'static>), ApiError> {
    let is_https = is_https(auth, req);
    let cookie = req.cookie(&auth.cookie_name(is_https));
    let agent = single_header(req.headers(), header::USER_AGENT).unwrap_or_default();
    let known = cookie.as_ref().map(|cookie| cookie.value());
    let signed_in = auth.browsers().sign_in(known, &browser_name(agent)).await;
    let credentials = signed_in.map_err(|e| ApiError::unavailable(format!("no random numbers: {e}; try again")))?;
    Ok((credentials.secret, browser_cookie(auth, credentials.cookie, is_https)))
}

/// Returns the cookie of a browser. No script can read it.
pub(super) fn browser_cookie(auth: &Auth, value: String, is_https: bool) -> Cookie<'static> {
    let cookie = Cookie::build(auth.cookie_name(is_https), value);
    let cookie = cookie.path("/").http_only(true).same_site(SameSite::Strict).secure(is_https);
    cookie.max_age(COOKIE_LIFETIME).finish()
}

/// Returns the cookie that removes the cookie of a browser.
pub(super) fn removed_cookie(auth: &Auth, is_https: bool) -> Cookie<'static> {
    let mut cookie = browser_cookie(auth, String::new(), is_https);
    cookie.make_removal();
    cookie
}

/// Programs by their mark in `User-Agent`. Programs that also have the mark of another come first.
const PROGRAMS: [(&str, &str); 7] = [
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
];

/// Systems by their mark in `User-Agent`.
const SYSTEMS: [(&str, &str); 7] = [
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
];

/// Returns the name of a browser in the list, such as `Firefox on Linux`. The header is untrusted:
/// the name consists of known words.
fn browser_name(user_agent: &str) -> String {
    let find = |words: &[(&str, &'static str)], other| {
        words.iter().find(|(mark, _)| user_agent.contains(mark)).map_or(other, |(_, name)| *name)
    };
    format!("{} on {}", find(&PROGRAMS, "Browser"), find(&SYSTEMS, "an unknown system"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_consists_of_known_words() {
        let check = |agent, expected| assert_eq!(browser_name(agent), expected, "{agent}");
        check("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux");
        check(
            "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/156.0 Safari/537.36 Edg/156.0",
            "Edge on Windows",
        );
        check(
            "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/156.0 Mobile Safari/537.36",
            "Chrome on Android",
        );
        check("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Safari/604.1", "Safari on iPhone");
        check("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/19.0 Safari/605.1.15", "Safari on macOS");
        check("<script>alert(1)</script>\u{1b}[2J", "Browser on an unknown system");
        check("", "Browser on an unknown system");
    }
}
