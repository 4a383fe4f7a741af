//! Export of a session as one file.

use actix_web::{HttpResponse, http::header, web::Data};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use serde::Deserialize;
use serde_json::json;

use crate::{
    store::StoredEvent,
    web::{
        error::ApiResult,
        event_reads::chunks,
        request::{QueryParams, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

mod markdown;

documented_routes![export];

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ExportQuery {
    #[serde(default)]
    #[param(inline)]
    format: ExportFormat,
}

#[derive(Clone, Copy, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum ExportFormat {
    #[default]
    Jsonl,
    Md,
}

/// Exports a session as one file: `jsonl` or `md`.
///
/// `jsonl` has one line with the session and one line for each event. `md` is for reading.
#[utoipa::path(get, path = "/api/sessions/{id}/export", tag = "journal", params(SessionPath, ExportQuery),
    responses((status = 200, description = "The whole session, in the format asked for.",
        content((String = "application/x-ndjson"), (String = "text/markdown")))))]
async fn export(
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<ExportQuery>,
) -> ApiResult {
    let snapshot = services.snapshot(id.0).await?;
    let (kind, extension, head) = match query.format {
        ExportFormat::Jsonl => ("application/x-ndjson", "jsonl", format!("{}\n", json!({"session": snapshot.record}))),
        ExportFormat::Md => ("text/markdown; charset=utf-8", "md", markdown::head(&snapshot.record)),
    };
    let format = query.format;
    let head = futures::stream::once(std::future::ready(Ok(Bytes::from(head))));
    let events = chunks(services.store.clone(), id.0, 0, snapshot.tail).map_ok(Some);
    let end = futures::stream::once(std::future::ready(Ok(None)));
    let mut markdown_export = markdown::MarkdownExport::default();
    let events = events.chain(end).map_ok(move |chunk| match (format, chunk) {
        (ExportFormat::Jsonl, chunk) => lines(&chunk.unwrap_or_default()),
        (ExportFormat::Md, Some(chunk)) => {
            chunk.iter().map(|(_, event)| markdown_export.event(&event.json)).collect::<String>().into()
        }
        (ExportFormat::Md, None) => markdown_export.end().into(),
    });
    let name = format!("attachment; filename=\"greenroom-{}.{extension}\"", id.0);
    Ok(HttpResponse::Ok()
        .content_type(kind)
        .insert_header((header::CONTENT_DISPOSITION, name))
        .streaming(futures::StreamExt::chain(head, events)))
}

fn lines(chunk: &[StoredEvent]) -> Bytes {
    let mut bytes = BytesMut::new();
    for (_, event) in chunk {
        bytes.put_slice(&event.json);
        bytes.put_u8(b'\n');
    }
    bytes.freeze()
}
