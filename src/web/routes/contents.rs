//! Large contents of a session that its events refer to.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, body::SizedStream, http::header, web::Data};
use bytes::Bytes;
use futures::{Stream, StreamExt};

use crate::{
    api_schema::BinarySchema,
    store::{SessionId, Store, StoreError},
    web::{
        error::{ApiError, ApiResult},
        request::SessionPath,
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![content];

/// Downloads a content that is too large for its event.
#[utoipa::path(get, path = "/api/sessions/{id}/contents/{name}", tag = "journal",
    params(SessionPath, ("name" = String, Path, description = "Name of the content, the last part of its `href`.")),
    responses((status = 200, description = "The whole content: a picture of a page, or any other content as a download.",
        content((BinarySchema = "application/octet-stream"), (BinarySchema = "image/jpeg"), (BinarySchema = "image/png")))))]
async fn content(services: Data<WebServices>, id: SessionPath, req: HttpRequest) -> ApiResult {
    let name = req.match_info().query("name");
    let content = services.store.content(id.0, name, 0, CONTENT_PART).await?;
    let first = content.ok_or_else(|| ApiError::not_found(format!("session `{}` has no content `{name}`", id.0)))?;
    let total = first.total;
    // An agent's output must never run as a page of this origin. The answer has a type that no
    // browser runs: that of a picture, or none that a browser renders.
    let (content_type, disposition) = match picture_type(&first.bytes) {
        Some(picture) => (picture, "inline"),
        None => ("application/octet-stream", "attachment; filename=\"content.txt\""),
    };
    let rest = remaining_parts(services.store.clone(), id.0, name.to_owned(), first.bytes.len() as u64);
    let whole = futures::stream::once(async { Ok(first.bytes) }).chain(rest);
    Ok(HttpResponse::Ok()
        .content_type(content_type)
        .insert_header((header::CONTENT_DISPOSITION, disposition))
        .insert_header((header::CACHE_CONTROL, "private, max-age=31536000, immutable"))
        .body(SizedStream::new(total, whole)))
}

/// Returns the media type of a picture of pixels, by its first bytes.
fn picture_type(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        _ => None,
    }
}

/// Streams the rest of a content, part by part, at the pace of the reader.
fn remaining_parts(
    store: Arc<dyn Store>,
    id: SessionId,
    name: String,
    from: u64,
) -> impl Stream<Item = Result<Bytes, StoreError>> {
    futures::stream::try_unfold((store, from), move |(store, from)| {
        let name = name.clone();
        async move {
            let part = store.content(id, &name, from, CONTENT_PART).await?;
            // A purge of the session during the download ends the answer early.
            let bytes = part.map(|part| part.bytes).filter(|bytes| !bytes.is_empty());
            Ok(bytes.map(|bytes| (bytes.clone(), (store, from + bytes.len() as u64))))
        }
    })
}

/// Part of a large content that each download holds in memory, bytes.
const CONTENT_PART: usize = 256 << 10;
