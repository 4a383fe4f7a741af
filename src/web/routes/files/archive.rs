//! Archive of a part of the workspace.

use actix_web::{
    HttpResponse,
    http::header::{self, Charset, ContentDisposition, DispositionParam, DispositionType, ExtendedValue, HeaderValue},
    web::Data,
};
use serde::Deserialize;

use super::{CONTENT_POLICY, path_or_root, target};
use crate::{
    api_schema::BinarySchema,
    files::{ArchiveFormat, PathText, top_name},
    web::{
        error::{ApiResult, ErrorAnswer},
        request::{QueryParams, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![archive];

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ArchiveQuery {
    /// Directory or file. Absent or empty: the workspace.
    path: Option<String>,
    /// `true`: `path` is percent-encoded, as lists return it.
    #[serde(default)]
    #[param(default = false)]
    encoded: bool,
    #[serde(default)]
    #[param(inline)]
    format: ArchiveKind,
}

#[derive(Clone, Copy, Default, Deserialize, utoipa::ToSchema)]
enum ArchiveKind {
    #[default]
    #[serde(rename = "tar.gz")]
    TarGz,
    #[serde(rename = "zip")]
    Zip,
}

/// Downloads a directory as an archive: `tar.gz` or `zip`.
///
/// The archive is written while it is sent. It has regular files and directories. A `tar.gz` also
/// has the links that stay inside the archive. Devices, FIFOs, sockets and unreadable files are
/// left out. If a large file shrinks meanwhile, the connection breaks off. A `zip` has at most
/// 50,000 entries.
#[utoipa::path(get, path = "/api/sessions/{id}/archive", tag = "files", params(SessionPath, ArchiveQuery),
    responses((status = 200, description = "The archive.",
            content((BinarySchema = "application/gzip"), (BinarySchema = "application/zip"))),
        (status = 409, body = ErrorAnswer,
            description = "The path is closed, or has too many entries for a `zip` (`conflict`).")))]
async fn archive(
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<ArchiveQuery>,
) -> ApiResult {
    let path = path_or_root(query.path.as_deref(), query.encoded)?;
    services.snapshot(id.0).await?;
    let (format, media_type, extension) = match query.format {
        ArchiveKind::TarGz => (ArchiveFormat::TarGz, "application/gzip", "tar.gz"),
        ArchiveKind::Zip => (ArchiveFormat::Zip, "application/zip", "zip"),
    };
    let name = format!("{}.{extension}", PathText::of(top_name(&path)).text);
    let content = services.files.archive(target(id.0, path), format).await?;
    Ok(HttpResponse::Ok()
        .content_type(media_type)
        .insert_header(attachment(name))
        .insert_header((header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY)))
        .streaming(content))
}

/// Returns the header of an attachment. A name beyond ASCII is sent in both forms.
pub(in crate::web::routes) fn attachment(name: String) -> ContentDisposition {
    let extended = (!name.is_ascii()).then(|| {
        let charset = Charset::Ext("UTF-8".to_owned());
        let value = name.clone().into_bytes();
        DispositionParam::FilenameExt(ExtendedValue { charset, language_tag: None, value })
    });
    let parameters = [DispositionParam::Filename(name)].into_iter().chain(extended).collect();
    ContentDisposition { disposition: DispositionType::Attachment, parameters }
}
