//! Files generated from the wire's types and declarations: types and tables of the page, schemas of
//! the OpenAPI document, and tables of docs/protocol.md.
//!
//! Each test fails if its file is stale. `cargo xtask wire` renews the files.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;
use ts_rs::{Config, TS, TypeVisitor};

use crate::{
    Action, CLIENT_FRAME_LIMIT, CONTENT_LIMIT, Delta, Event, EventSource, FULL_TEXT_LIMIT, ObservationKind,
    REQUEST_ID_LIMIT, RetryFrame,
    action::{EffortChoice, MessageMode},
    approval::ApprovalMode,
    client::{ClientRequest, ErrorBody, ErrorFrame, StatusFrame},
    declarations::{ACTIONS, KindDeclaration, OBSERVATIONS},
    link::{EVENT_LIMIT, ProviderApi, ReasoningEffort, VALUES_LIMIT},
    observation::AgentState,
    tool::ToolKind,
};

/// Environment variable with which the tests write the files. `cargo xtask wire` sets it.
const RENEW: &str = "RENEW_WIRE";

const HEADER: &str = "// Generated from agent/protocol. Renew with `cargo xtask wire`.\n";

#[test]
fn types_of_the_page_are_current() {
    let config = Config::new().with_large_int("number");
    let mut types = TypeCollector { config: &config, by_name: BTreeMap::new() };
    types.visit::<EventSource>();
    types.visit::<Action>();
    types.visit::<ObservationKind>();
    types.visit::<ToolKind>();
    types.visit::<Delta>();
    types.visit::<RetryFrame>();
    types.visit::<ClientRequest>();
    types.visit::<StatusFrame>();
    types.visit::<ErrorFrame>();
    let mut file = HEADER.to_owned();
    types.by_name.values().for_each(|declaration| write!(file, "\n{declaration}\n").expect("a string takes all"));
    check_current("static/src/wire/generated/types.ts", &file);
}

#[test]
fn kinds_of_the_page_are_current() {
    let mut file = format!(
        "{HEADER}
import type {{ KindShape }} from \"../eventShape\";
import type {{ Action, ObservationKind }} from \"./types\";

/** Size limit of a client frame, in bytes of UTF-8. */
export const CLIENT_FRAME_LIMIT = {CLIENT_FRAME_LIMIT};
"
    );
    let table = |name: &str, key: &str, kinds: &[Kind], declarations: &[KindDeclaration]| {
        let mut table = format!("\nexport const {name}: Record<{key}, KindShape> = {{\n");
        for kind in kinds {
            let fields: Vec<_> =
                kind.fields.iter().map(|field| format!("{}: \"{}\"", field.name, field.shape())).collect();
            let fields = if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) };
            let senders = senders(declarations, &kind.name).join("\", \"");
            writeln!(table, "  {}: {{ senders: [\"{senders}\"], fields: {fields} }},", kind.name)
                .expect("a string takes all");
        }
        table + "};\n"
    };
    file += &table("ACTIONS", "Action[\"action\"]", &kinds::<Action>("action", "args"), &ACTIONS);
    let observations = kinds::<ObservationKind>("observation", "extras");
    file += &table("OBSERVATIONS", "ObservationKind[\"observation\"]", &observations, &OBSERVATIONS);
    check_current("static/src/wire/generated/kinds.ts", &file);
}

#[test]
fn tables_of_the_documentation_are_current() {
    let path = "docs/protocol.md";
    let mut text = fs::read_to_string(workspace().join(path)).expect("the page of the documentation is readable");
    let requests = kinds::<ClientRequest>("action", "args");
    let rows = requests.iter().map(|kind| format!("| `{}` | {} | {} |\n", kind.name, kind.field_list(), kind.doc));
    replace_table(&mut text, "requests", "| action | args | meaning |\n|---|---|---|\n", rows);
    let event_rows = |kinds: Vec<Kind>, declarations: &'static [KindDeclaration]| {
        kinds.into_iter().map(|kind| {
            let senders = senders(declarations, &kind.name).join(", ");
            format!("| `{}` | {senders} | {} | {} |\n", kind.name, kind.field_list(), kind.doc)
        })
    };
    let head = "| action | source | args | meaning |\n|---|---|---|---|\n";
    replace_table(&mut text, "actions", head, event_rows(kinds::<Action>("action", "args"), &ACTIONS));
    let observations = kinds::<ObservationKind>("observation", "extras");
    let head = "| observation | source | extras | meaning |\n|---|---|---|---|\n";
    replace_table(&mut text, "observations", head, event_rows(observations, &OBSERVATIONS));
    let statuses = kinds::<StatusFrame>("status", "");
    let rows = statuses.iter().map(|kind| format!("| `{}` | {} | {} |\n", kind.name, kind.field_list(), kind.doc));
    replace_table(&mut text, "statuses", "| status | fields | meaning |\n|---|---|---|\n", rows);
    let limits = [
        ("client frame", size(CLIENT_FRAME_LIMIT as u64)),
        ("`id` of a client frame", format!("{REQUEST_ID_LIMIT} bytes")),
        ("`content` of an observation, as JSON; a longer text has head and tail", size(CONTENT_LIMIT as u64)),
        ("whole text kept on disk", size(FULL_TEXT_LIMIT)),
        ("event, as JSON", size(EVENT_LIMIT as u64)),
        ("values in an event", VALUES_LIMIT.to_string()),
    ];
    let rows = limits.iter().map(|(what, limit)| format!("| {what} | {limit} |\n"));
    replace_table(&mut text, "limits", "| what | at most |\n|---|---|\n", rows);
    check_current(path, &text);
}

#[test]
fn schemas_of_the_openapi_document_are_current() {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    // Types that the document refers to. The types in their fields follow.
    let mut generator = settings.into_generator();
    generator.subschema_for::<Event>();
    generator.subschema_for::<AgentState>();
    generator.subschema_for::<EffortChoice>();
    generator.subschema_for::<ApprovalMode>();
    generator.subschema_for::<ErrorBody>();
    generator.subschema_for::<MessageMode>();
    generator.subschema_for::<ProviderApi>();
    generator.subschema_for::<ReasoningEffort>();
    let mut schemas = Value::Object(generator.take_definitions(true));
    keep_openapi_formats(&mut schemas);
    let file = serde_json::to_string_pretty(&schemas).expect("a schema is JSON") + "\n";
    check_current("src/wire_schemas.json", &file);
}

/// Replaces formats of integers that OpenAPI does not have: unsigned ones have a minimum of 0.
/// Removes defaults beside a reference, which some readers of OpenAPI reject.
fn keep_openapi_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("$ref") {
                fields.remove("default");
            }
            if let Some(format) = fields.get_mut("format").filter(|format| format.as_str().is_some_and(is_unsigned)) {
                *format = "int64".into();
            }
            fields.values_mut().for_each(keep_openapi_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(keep_openapi_formats),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_unsigned(format: &str) -> bool {
    format.starts_with("uint")
}

/// Collects the TypeScript declarations of types and of the types in their fields.
struct TypeCollector<'a> {
    config: &'a Config,
    by_name: BTreeMap<String, String>,
}

impl TypeVisitor for TypeCollector<'_> {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // A type without a path is TypeScript's own, and has no name.
        if T::output_path().is_none() {
            return;
        }
        let name = T::ident(self.config);
        if self.by_name.contains_key(&name) {
            return;
        }
        let declaration = without_null(&T::decl(self.config));
        let declaration = format!("{}export {declaration}", T::docs().unwrap_or_default());
        self.by_name.insert(name, declaration);
        T::visit_dependencies(self);
    }
}

/// Removes `null` from optional fields. `ts-rs` allows both, and the wire leaves such a field out.
fn without_null(declaration: &str) -> String {
    let mut parts = declaration.split("?: ");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (value, rest) = part.split_at(part.find([',', '}']).unwrap_or(part.len()));
        write!(result, "?: {}{rest}", value.strip_suffix(" | null").unwrap_or(value)).expect("a string takes all");
    }
    result
}

/// Variant of a tagged enum, from its JSON schema.
pub(crate) struct Kind {
    pub name: String,
    /// Doc comment, as one line.
    doc: String,
    pub fields: Vec<Field>,
}

pub(crate) struct Field {
    pub name: String,
    /// Shape of the value, in the words of the page's `FieldKind`.
    pub kind: &'static str,
    /// Values of an enumeration.
    pub values: Vec<String>,
    pub optional: bool,
}

impl Kind {
    fn field_list(&self) -> String {
        let field = |field: &Field| match field.values.as_slice() {
            [] => field.marked_name(),
            values => format!("{}: `{}`", field.marked_name(), values.join("` `")),
        };
        if self.fields.is_empty() {
            return "–".to_owned();
        }
        self.fields.iter().map(field).collect::<Vec<_>>().join("; ")
    }
}

impl Field {
    fn marked_name(&self) -> String {
        format!("`{}{}`", self.name, if self.optional { "?" } else { "" })
    }

    fn shape(&self) -> String {
        format!("{}{}", self.kind, if self.optional { "?" } else { "" })
    }
}

/// Returns the variants of a tagged enum. `content` is empty if the fields stand beside the tag.
pub(crate) fn kinds<T: JsonSchema>(tag: &str, content: &str) -> Vec<Kind> {
    let root = serde_json::to_value(schemars::schema_for!(T)).expect("a schema is JSON");
    let variants = root["oneOf"].as_array().expect("an enum has variants");
    let kind = |variant: &Value| {
        let name = variant["properties"][tag]["const"].as_str().expect("a variant has a name").to_owned();
        let fields = if content.is_empty() { variant } else { &variant["properties"][content] };
        let fields = fields_of(&root, fields).into_iter().filter(|field| field.name != tag).collect();
        let doc = variant["description"].as_str().unwrap_or_default().replace('\n', " ").replace("  ", " ");
        assert!(!doc.is_empty(), "`{name}` needs a doc comment, because the documentation shows it");
        Kind { name, doc, fields }
    };
    variants.iter().map(kind).collect()
}

fn fields_of(root: &Value, schema: &Value) -> Vec<Field> {
    let schema = resolve(root, schema);
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name));
    let mut fields: Vec<Field> = Vec::new();
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        let (kind, nullable) = shape_of(root, value);
        let optional = nullable || !required(name);
        fields.push(Field { name: name.clone(), kind, values: values_of(root, value), optional });
    }
    // Fields of a flattened enum or struct. No variant's field is in all variants.
    for part in ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema[key].as_array()).flatten() {
        for field in fields_of(root, part) {
            match fields.iter_mut().find(|known| known.name == field.name) {
                Some(known) => known.values.extend(field.values),
                None => fields.push(Field { optional: field.optional || field.name != "change", ..field }),
            }
        }
    }
    fields
}

/// Returns the shape of a value, and if the value may be null.
fn shape_of(root: &Value, schema: &Value) -> (&'static str, bool) {
    let schema = resolve(root, schema);
    if let Some(parts) = schema["anyOf"].as_array() {
        let shapes: Vec<_> = parts.iter().map(|part| shape_of(root, part)).collect();
        let nullable = shapes.iter().any(|(kind, nullable)| *nullable || *kind == "null");
        let kind = shapes.iter().map(|(kind, _)| *kind).find(|kind| *kind != "null").unwrap_or("any");
        return (kind, nullable);
    }
    let (name, nullable) = match &schema["type"] {
        Value::String(name) => (name.as_str(), false),
        Value::Array(names) => {
            let name = names.iter().filter_map(Value::as_str).find(|name| *name != "null");
            (name.unwrap_or("null"), names.iter().any(|name| name == "null"))
        }
        // An enumeration whose values have descriptions.
        _ if schema["oneOf"].is_array() || schema["const"].is_string() => ("string", false),
        _ => return ("any", true),
    };
    let kind = match name {
        "string" => "string",
        "integer" | "number" => "number",
        "boolean" => "boolean",
        "object" => "object",
        "null" => "null",
        "array" if shape_of(root, &schema["items"]).0 == "string" => "strings",
        "array" => "objects",
        other => panic!("the page has no check for a `{other}`"),
    };
    (kind, nullable)
}

/// Returns the values of an enumeration, also inside a list or an option.
fn values_of(root: &Value, schema: &Value) -> Vec<String> {
    let schema = resolve(root, schema);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let parts = ["oneOf", "anyOf"].iter().filter_map(|key| schema[key].as_array()).flatten();
    let listed = schema["enum"].as_array().into_iter().flatten().filter_map(text);
    let mut values: Vec<_> = schema["const"].as_str().map(str::to_owned).into_iter().chain(listed).collect();
    values.extend(parts.flat_map(|part| values_of(root, part)));
    if schema["items"].is_object() {
        values.extend(values_of(root, &schema["items"]));
    }
    values
}

fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|path| root.pointer(path.trim_start_matches('#'))) {
        Some(target) => resolve(root, target),
        None => schema,
    }
}

fn senders(declarations: &[KindDeclaration], name: &str) -> Vec<String> {
    let declaration = KindDeclaration::find(declarations, name).expect("every kind is declared");
    declaration.senders.iter().map(|sender| format!("{sender:?}").to_lowercase()).collect()
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mebibytes => format!("{mebibytes} MiB"),
    }
}

/// Replaces the table between the markers of this name.
fn replace_table(text: &mut String, name: &str, head: &str, rows: impl Iterator<Item = String>) {
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->\n");
    let start = text.find(&begin).unwrap_or_else(|| panic!("no `{begin}` in the documentation")) + begin.len();
    let length = text[start..].find(end).unwrap_or_else(|| panic!("no end of the table `{name}`"));
    text.replace_range(start..start + length, &format!("\n{head}{}\n", rows.collect::<String>()));
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn check_current(path: &str, expected: &str) {
    let file = workspace().join(path);
    if env::var_os(RENEW).is_some() {
        fs::create_dir_all(file.parent().expect("a file is in a directory")).expect("the directory can be made");
        fs::write(&file, expected).expect("the file can be written");
    }
    let current = fs::read_to_string(&file).unwrap_or_default();
    assert!(current == expected, "`{path}` is stale; renew it with `cargo xtask wire`");
}
