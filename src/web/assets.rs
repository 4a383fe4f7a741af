//! Files of the web UI, embedded in the binary, with their caching rules.

use std::{borrow::Cow, collections::HashMap, io::Write, sync::LazyLock};

use actix_web::{
    HttpRequest, HttpResponse,
    body::BoxBody,
    http::header::{self, ETag, EntityTag},
};
use bytes::Bytes;
use rust_embed::{EmbeddedFile, RustEmbed};

#[derive(RustEmbed)]
#[folder = "$GREENROOM_UI_DIR"]
struct Ui;

/// Embedded file in the form in which it is sent.
pub(super) struct UiAsset {
    plain: Bytes,
    /// Compressed form. `None` if compression does not make the file smaller.
    gzip: Option<Bytes>,
    etag: String,
    kind: String,
}

/// Embedded files by name, prepared at the first request.
///
/// The UI is small: compressing all of it takes less time than one page view.
static ASSETS: LazyLock<HashMap<String, UiAsset>> = LazyLock::new(|| {
    Ui::iter().filter_map(|name| Ui::get(&name).map(|file| (name.into_owned(), UiAsset::of(file)))).collect()
});

/// Returns true if the path belongs to the UI, which anybody may read.
pub(super) fn is_page(path: &str) -> bool {
    is_screen(path) || path.strip_prefix('/').is_some_and(|name| Ui::get(name).is_some() || name.starts_with("assets/"))
}

/// Returns true if the path is a screen of the application.
pub(super) fn is_screen(path: &str) -> bool {
    let is_session = path.strip_prefix("/sessions/").is_some_and(|id| !id.is_empty() && !id.contains('/'));
    is_session || matches!(path, "/" | "/sessions" | "/admin" | "/api/docs")
}

/// Returns a text file that every build of the UI contains.
///
/// # Panics
/// If the UI does not contain the file.
pub(super) fn text(name: &str) -> Cow<'static, str> {
    String::from_utf8_lossy(&ASSETS[name].plain)
}

/// Returns the name of the style sheet, which has a content hash.
///
/// # Panics
/// If the UI has no style sheet. Each build has one.
pub(super) fn stylesheet() -> &'static str {
    let is_style = |name: &&String| name.starts_with("assets/style-") && name.ends_with(".css");
    ASSETS.keys().find(is_style).expect("each build of the UI has a style sheet")
}

/// Returns the embedded file of this name.
pub(super) fn find(name: &str) -> Option<&'static UiAsset> {
    ASSETS.get(name)
}

impl UiAsset {
    fn of(file: EmbeddedFile) -> UiAsset {
        let plain = Bytes::from(file.data.into_owned());
        let etag = file.metadata.sha256_hash().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let kind = match file.metadata.mimetype() {
            text if text.starts_with("text/") => format!("{text}; charset=utf-8"),
            other => other.to_owned(),
        };
        let gzip = gzip(&plain).filter(|packed| packed.len() < plain.len());
        UiAsset { plain, gzip, etag, kind }
    }

    /// Answers a request for this file, with 304 if the client has it.
    pub(super) fn answer(&self, req: &HttpRequest, name: &str) -> HttpResponse<BoxBody> {
        let packed = self.gzip.as_ref().filter(|_| takes_gzip(req));
        // A strong tag names one sequence of bytes (RFC 9110, section 8.8.1). Each encoding has its
        // own tag.
        let tag = if packed.is_some() { format!("{}-gzip", self.etag) } else { self.etag.clone() };
        let etag = EntityTag::new_strong(tag);
        let known = req.headers().get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let fresh = known.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == etag.to_string()));
        let mut response = if fresh { HttpResponse::NotModified() } else { HttpResponse::Ok() };
        response
            .insert_header(ETag(etag))
            .insert_header((header::VARY, "Accept-Encoding"))
            .insert_header((header::CACHE_CONTROL, cache_control(name)));
        if fresh {
            return response.finish();
        }
        response.insert_header((header::CONTENT_TYPE, self.kind.as_str()));
        match packed {
            Some(bytes) => response.insert_header((header::CONTENT_ENCODING, "gzip")).body(bytes.clone()),
            None => response.body(self.plain.clone()),
        }
    }
}

/// Returns the value of `Cache-Control` for a file.
///
/// A file with a content hash in its name never changes. Other files are revalidated, mostly with
/// 304.
fn cache_control(name: &str) -> &'static str {
    if is_hashed(name) { "public, max-age=31536000, immutable" } else { "no-cache" }
}

/// Returns true if the name carries a content hash from esbuild, such as `assets/main-4FZQ7TXB.js`.
fn is_hashed(name: &str) -> bool {
    let stem = name.strip_prefix("assets/").and_then(|file| file.split('.').next()).unwrap_or_default();
    let hash = stem.rsplit_once('-').map(|(_, hash)| hash).unwrap_or_default();
    hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
}

fn takes_gzip(req: &HttpRequest) -> bool {
    let accepted = req.headers().get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|encoding| {
        let mut parts = encoding.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|weight| weight == "q=0")
    })
}

fn gzip(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screen_paths_are_recognised() {
        let check = |path, expected| assert_eq!(is_screen(path), expected, "{path}");
        check("/", true);
        check("/sessions", true);
        check("/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE", true);
        check("/admin", true);
        check("/sessions/", false);
        check("/sessions/a/b", false);
        check("/api/sessions", false);
        check("//evil.test", false);
    }

    #[test]
    fn only_hashed_names_are_immutable() {
        let check = |name, expected| assert_eq!(is_hashed(name), expected, "{name}");
        check("assets/main-4FZQ7TXB.js", true);
        check("assets/main-4FZQ7TXB.js.map", true);
        check("assets/main.js", false);
        check("assets/main-settings.js", false);
        check("index.html", false);
    }
}
