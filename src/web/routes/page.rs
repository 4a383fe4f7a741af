//! Page of the application, the same for all screens, with the person's preferences applied before
//! the script runs. The page contains no data of a session: a cookie alone loads the page.

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    cookie::Cookie,
    http::{Method, header},
    web::Data,
};
use serde_json::json;

use crate::web::{
    assets,
    auth::Auth,
    client_facts::{ClientFacts, is_https},
    error::{ApiError, ApiResult},
    request::SignInLink,
    shell::{shell, shell_with},
    sign_in::{browser_cookie, sign_in},
};

/// Answers requests that no other route takes: with a file of the UI, or with the shell for a
/// screen.
pub(in crate::web) async fn serve(req: HttpRequest, auth: Data<Auth>) -> ApiResult {
    let path = req.match_info().as_str();
    let name = path.strip_prefix('/').unwrap_or(path);
    let asset = assets::find(name);
    if asset.is_none() && !assets::is_screen(path) {
        return Err(ApiError::not_found(format!("there is nothing at `{path}`")));
    }
    if !matches!(*req.method(), Method::GET | Method::HEAD) {
        return Ok(HttpResponse::MethodNotAllowed().insert_header((header::ALLOW, "GET, HEAD")).finish());
    }
    if let Some(asset) = asset {
        return Ok(asset.answer(&req, name));
    }
    let is_link = req.extensions().contains::<SignInLink>();
    // A request for the head alone is no sign-in: nobody would read the secret.
    match is_link && *req.method() == Method::GET {
        true => signed_in_page(&auth, &req).await,
        false => Ok(page(shell_of(&auth, &req), "no-cache", renewed_cookie(&auth, &req))),
    }
}

/// Signs the browser in and returns the page with its secret. The page's script stores the secret
/// and removes the token from the address.
async fn signed_in_page(auth: &Auth, req: &HttpRequest) -> ApiResult {
    let (secret, cookie) = sign_in(auth, req).await?;
    let page_with_secret = shell_with(&json!({ "secret": secret }).to_string(), &shell_of(auth, req));
    Ok(page(page_with_secret, "no-store", Some(cookie)))
}

fn shell_of(auth: &Auth, req: &HttpRequest) -> String {
    shell(auth, req, ClientFacts::of(req).base_path())
}

fn page(text: String, cache_control: &'static str, cookie: Option<Cookie<'_>>) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.content_type("text/html; charset=utf-8").insert_header((header::CACHE_CONTROL, cache_control));
    if let Some(cookie) = cookie {
        response.cookie(cookie);
    }
    response.body(text)
}

/// Returns the cookie of a signed-in browser, to be kept for longer.
fn renewed_cookie(auth: &Auth, req: &HttpRequest) -> Option<Cookie<'static>> {
    let is_https = is_https(auth, req);
    let cookie = req.cookie(&auth.cookie_name(is_https))?;
    auth.browsers().recognizes(cookie.value()).then(|| browser_cookie(auth, cookie.value().to_owned(), is_https))
}
