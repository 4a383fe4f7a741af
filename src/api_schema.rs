//! Schemas of the OpenAPI document that no derive can express: texts with a limit, and types of
//! `greenroom_protocol`.
//!
//! [`api_schema!`] declares a type that stands for a schema, for `value_type` in the derives of
//! `utoipa`. Such a schema takes its limit from the constant that the check uses.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, Type};

/// Declares types that stand for a schema, with the schema's name in the document.
macro_rules! api_schema {
    ($($(#[$doc:meta])* $visibility:vis $type:ident as $name:literal = $schema:expr;)+) => { $(
        $(#[$doc])*
        $visibility enum $type {}

        impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $schema.into()
            }
        }

        impl utoipa::ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
        }
    )+ };
}

pub(crate) use api_schema;

// The document takes these schemas from `wire_schemas`, by name.
api_schema! {
    pub(crate) ApprovalDecisionSchema as "ApprovalDecision" = Object::new();
    pub(crate) ApprovalModeSchema as "ApprovalMode" = Object::new();
    pub(crate) AgentStateSchema as "AgentState" = Object::new();
    pub(crate) CheckpointKindSchema as "CheckpointKind" = Object::new();
    pub(crate) EffortChoiceSchema as "EffortChoice" = Object::new();
    pub(crate) ErrorBodySchema as "ErrorBody" = Object::new();
    pub(crate) FileChangeKindSchema as "FileChangeKind" = Object::new();
    pub(crate) LeftOutEntrySchema as "LeftOutEntry" = Object::new();
    pub(crate) MessageModeSchema as "MessageMode" = Object::new();
    pub(crate) ProviderApiSchema as "ProviderApi" = Object::new();
    pub(crate) RiskAssessmentSchema as "RiskAssessment" = Object::new();
    pub(crate) RiskLevelSchema as "RiskLevel" = Object::new();
    pub(crate) ReasoningEffortSchema as "ReasoningEffort" = Object::new();
}

api_schema! {
    /// Bytes of any kind.
    pub(crate) BinarySchema as "Binary" = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
    /// Text with at least one character that is no white space, as `str::trim` defines it.
    pub(crate) FilledTextSchema as "FilledText" = text()
        .description(Some("Text that is not blank."))
        .pattern(Some(r"[^\u0009-\u000d \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"));
}

/// Pattern of a text without control characters, as `char::is_control` defines them.
pub(crate) const NO_CONTROL_CHARACTERS: &str = r"^[^\u0000-\u001f\u007f-\u009f]*$";

/// Pattern of a text that is not blank and has no control characters.
pub(crate) const FILLED_LINE: &str = concat!(
    r"^[^\u0000-\u001f\u007f-\u009f]*",
    r"[^\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]",
    r"[^\u0000-\u001f\u007f-\u009f]*$"
);

/// Begins the schema of a text.
pub(crate) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// Returns the schemas of wire types, by name. `cargo xtask wire` generates them from
/// `agent/protocol`.
pub(crate) fn wire_schemas() -> &'static Map<String, Value> {
    static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        serde_json::from_str(include_str!("wire_schemas.json")).expect("the generated file is a JSON object")
    });
    &SCHEMAS
}
