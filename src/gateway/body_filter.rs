//! Filter of request bodies: removes what the allow-list withholds, and leaves every other byte.
//!
//! - A field of the top level, a tool, or a field of a tool is cut out with its comma.
//! - Content that the provider would fetch or that it stores becomes a short text in its place. A
//!   conversation with such content in its history therefore still continues.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    fmt::{self, Formatter},
    ops::Range,
};

use bytes::Bytes;
use greenroom_protocol::link::ProviderApi;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{allow_list::AllowList, route::GatewayRoute};
use crate::config::GatewayPermission;

/// Depth to which a conversation is searched for remote content. The formats nest it less deeply.
const MAX_DEPTH: usize = 16;

/// Texts that may mark remote content. The escape is included because it may stand for a part of
/// the others.
const REMOTE_MARKS: [&str; 9] = [
    r#""source""#,
    r#""file""#,
    r#""file_id""#,
    r#"_url""#,
    r#""fileData""#,
    r#""file_data""#,
    "container_upload",
    r#""scope""#,
    r"\u00",
];

/// Fields with data of the client's own tools, whatever it looks like.
const TOOL_DATA: [&str; 6] = ["args", "arguments", "input", "input_schema", "parameters", "response"];

/// Body that passes, with the parts that were removed.
#[derive(Debug, PartialEq)]
pub(super) struct FilteredBody {
    pub(super) body: Bytes,
    /// Removed parts in words, such as "the field `speed`".
    pub(super) removed: Vec<String>,
}

/// Filters the body of a request.
///
/// # Errors
/// Describes the place where the body is no JSON object.
pub(super) fn filter(route: GatewayRoute, allow: &AllowList, body: Bytes) -> Result<FilteredBody, String> {
    let object: RawObject =
        serde_json::from_slice(&body).map_err(|e| format!("the body must be a JSON object: {e}"))?;
    let mut filter = BodyFilter { api: route.api(), allow, body: &body, edits: Vec::new(), removed: BTreeSet::new() };
    filter.filter_object(route, &object);
    let BodyFilter { mut edits, removed, .. } = filter;
    if edits.is_empty() {
        return Ok(FilteredBody { body, removed: Vec::new() });
    }
    edits.sort_by_key(|edit| (edit.at.start, Reverse(edit.at.end)));
    let mut filtered = Vec::with_capacity(body.len());
    let mut passed = 0;
    for edit in edits {
        if edit.at.start < passed {
            // Inside a part that is cut out.
            continue;
        }
        filtered.extend_from_slice(&body[passed..edit.at.start]);
        filtered.extend_from_slice(edit.text.as_bytes());
        passed = edit.at.end;
    }
    filtered.extend_from_slice(&body[passed..]);
    Ok(FilteredBody { body: filtered.into(), removed: removed.into_iter().collect() })
}

/// Edit of a body. Two edits lie apart, or one inside the other.
struct BodyEdit {
    at: Range<usize>,
    text: &'static str,
}

/// Fields of an object in their order, repeated ones included.
struct RawObject<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<RawObject<'a>, D::Error> {
        struct RawObjectVisitor;
        impl<'de> Visitor<'de> for RawObjectVisitor {
            type Value = RawObject<'de>;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<RawObject<'de>, A::Error> {
                let mut all = Vec::new();
                while let Some(field) = fields.next_entry::<String, &RawValue>()? {
                    all.push(field);
                }
                Ok(RawObject(all))
            }
        }
        value.deserialize_map(RawObjectVisitor)
    }
}

impl<'a> RawObject<'a> {
    /// Parses a value. `None` if it is no object.
    fn read(value: &'a RawValue) -> Option<RawObject<'a>> {
        serde_json::from_str(value.get()).ok()
    }

    /// Returns all values of a field, which a client may repeat.
    fn all(&self, name: &str) -> impl Iterator<Item = &'a RawValue> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| *value)
    }

    /// Returns the texts of a field.
    fn texts(&self, name: &str) -> impl Iterator<Item = String> {
        self.all(name).filter_map(|value| serde_json::from_str(value.get()).ok())
    }

    fn is_of_type(&self, kind: impl Fn(&str) -> bool) -> bool {
        self.texts("type").any(|text| kind(&text))
    }
}

struct BodyFilter<'a> {
    api: ProviderApi,
    allow: &'a AllowList,
    body: &'a [u8],
    edits: Vec<BodyEdit>,
    removed: BTreeSet<String>,
}

impl BodyFilter<'_> {
    fn filter_object(&mut self, route: GatewayRoute, object: &RawObject) {
        let (mut kept_tools, mut removed_tools) = (false, Vec::new());
        let mut members = Vec::new();
        for (name, value) in &object.0 {
            let passes = self.allow.passes_field(route, name);
            if !passes {
                self.removed.insert(format!("the field `{}`", shortened(name)));
            } else if name == "tools" {
                kept_tools |= self.filter_tools(value, &mut removed_tools);
            }
            members.push((name, *value, passes));
        }
        let lost_tools = !removed_tools.is_empty() && !kept_tools;
        for (name, value, passes) in &mut members {
            let is_lost = match name.as_str() {
                // A list without tools is invalid beside a choice of tools.
                "tools" | "tool_config" | "toolConfig" => lost_tools,
                "tool_choice" => lost_tools || self.chooses(value, &removed_tools),
                _ => false,
            };
            if is_lost {
                *passes = false;
            }
        }
        self.remove_members(self.body.iter().position(|byte| *byte == b'{').unwrap_or_default(), &members);
        if self.may_hold_remote_content() {
            for (name, value, passes) in &members {
                if *passes && is_conversation(self.api, name) {
                    self.scan(value, 0);
                }
            }
        }
    }

    /// Cuts the members out that do not pass. `open` is the position of the container's bracket.
    fn remove_members<T>(&mut self, open: usize, members: &[(T, &RawValue, bool)]) {
        let (mut start, mut any_kept) = (open + 1, false);
        for (_, value, passes) in members {
            let end = self.range_of(value).end;
            if !passes && any_kept {
                self.cut(start..end);
            } else if *passes && !any_kept {
                if start > open + 1 {
                    let comma = self.body[start..end].iter().position(|byte| *byte == b',').unwrap_or_default();
                    self.cut(open + 1..start + comma + 1);
                }
                any_kept = true;
            }
            start = end;
        }
        if !any_kept && start > open + 1 {
            self.cut(open + 1..start);
        }
    }

    fn cut(&mut self, at: Range<usize>) {
        self.edits.push(BodyEdit { at, text: "" });
    }

    /// Filters a list of tools. Returns true if a tool remains. `removed` receives the names and
    /// types of the others.
    fn filter_tools(&mut self, tools: &RawValue, removed: &mut Vec<String>) -> bool {
        let Ok(tools_list) = serde_json::from_str::<Vec<&RawValue>>(tools.get()) else { return true };
        let mut members = Vec::new();
        for tool in tools_list {
            let passes = RawObject::read(tool).is_some_and(|object| self.filter_tool(tool, &object, removed));
            members.push(((), tool, passes));
        }
        self.remove_members(self.range_of(tools).start, &members);
        members.iter().any(|(.., passes)| *passes)
    }

    /// Filters the fields of a tool. Returns false if the tool itself does not pass.
    fn filter_tool(&mut self, tool: &RawValue, object: &RawObject, removed: &mut Vec<String>) -> bool {
        let mut members: Vec<_> = object.0.iter().map(|(name, value)| (name, *value, true)).collect();
        if self.api == ProviderApi::Gemini {
            for (name, _, passes) in &mut members {
                *passes = self.allow.passes_tool(self.api, name);
                if !*passes {
                    self.note_tool(name, removed);
                }
            }
            if members.iter().all(|(.., passes)| !passes) && !members.is_empty() {
                return false;
            }
        } else {
            let hosted = |object: &RawObject| object.is_of_type(|kind| kind != "local");
            let runs_in_container = object.all("environment").filter_map(RawObject::read).any(|place| hosted(&place));
            let kinds: Vec<String> = object.texts("type").collect();
            let passes = kinds.iter().all(|kind| self.allow.passes_tool(self.api, kind));
            let in_container = runs_in_container && !self.allow.has(GatewayPermission::ProviderTools);
            if !passes || in_container {
                for kind in kinds.into_iter().chain(object.texts("name")) {
                    self.note_tool(&kind, removed);
                }
                return false;
            }
            for (name, _, passes) in &mut members {
                *passes = self.allow.passes_tool_field(name);
                if !*passes {
                    self.removed.insert(format!("the field `{name}` of a tool"));
                }
            }
        }
        self.remove_members(self.range_of(tool).start, &members);
        true
    }

    fn note_tool(&mut self, name: &str, removed: &mut Vec<String>) {
        self.removed.insert(format!("the tool `{}`", shortened(name)));
        removed.push(name.to_owned());
    }

    /// Returns true if a choice of tools names a removed one.
    fn chooses(&self, choice: &RawValue, removed: &[String]) -> bool {
        let names_removed = |text: &String| removed.contains(text);
        RawObject::read(choice)
            .is_some_and(|choice| choice.texts("type").chain(choice.texts("name")).any(|text| names_removed(&text)))
    }

    fn may_hold_remote_content(&self) -> bool {
        let has = |mark: &&str| std::str::from_utf8(self.body).is_ok_and(|body| body.contains(*mark));
        let is_withheld = |permission| !self.allow.has(permission);
        (is_withheld(GatewayPermission::RemoteContent) || is_withheld(GatewayPermission::Beta))
            && REMOTE_MARKS.iter().any(has)
    }

    /// Searches a value for remote content, at any depth of the conversation.
    fn scan(&mut self, value: &RawValue, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value.get().as_bytes().first() {
            Some(b'[') => {
                for item in serde_json::from_str::<Vec<&RawValue>>(value.get()).unwrap_or_default() {
                    self.scan(item, depth + 1);
                }
            }
            Some(b'{') => {
                let Some(object) = RawObject::read(value) else { return };
                if !self.allow.has(GatewayPermission::RemoteContent)
                    && let Some(text) = placeholder(self.api, &object)
                {
                    self.removed.insert("remote content (a URL or a file id)".to_owned());
                    self.edits.push(BodyEdit { at: self.range_of(value), text });
                    return;
                }
                for (name, field) in &object.0 {
                    if name == "cache_control" && !self.allow.has(GatewayPermission::Beta) {
                        self.remove_cache_scope(field);
                    } else if !TOOL_DATA.contains(&name.as_str()) {
                        self.scan(field, depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes the scope of a cache mark, which needs a beta flag.
    fn remove_cache_scope(&mut self, mark: &RawValue) {
        let Some(object) = RawObject::read(mark) else { return };
        let members: Vec<_> = object.0.iter().map(|(name, value)| ((), *value, name != "scope")).collect();
        if members.iter().any(|(.., passes)| !passes) {
            self.removed.insert("the field `scope` of a cache mark".to_owned());
            self.remove_members(self.range_of(mark).start, &members);
        }
    }

    /// Returns the range of `value` in the body, which it borrows from.
    fn range_of(&self, value: &RawValue) -> Range<usize> {
        let start = value.get().as_ptr() as usize - self.body.as_ptr() as usize;
        start..start + value.get().len()
    }
}

/// Returns true if the top-level field `name` holds a part of the conversation.
fn is_conversation(api: ProviderApi, name: &str) -> bool {
    match api {
        ProviderApi::Anthropic => matches!(name, "messages" | "system" | "tools"),
        ProviderApi::Openai => matches!(name, "messages" | "input"),
        ProviderApi::Gemini => matches!(
            name,
            "contents"
                | "systemInstruction"
                | "system_instruction"
                | "generateContentRequest"
                | "generate_content_request"
        ),
    }
}

/// Returns the text that replaces a content block, if the block is remote content.
fn placeholder(api: ProviderApi, block: &RawObject) -> Option<&'static str> {
    const INLINE_SOURCES: [&str; 3] = ["base64", "content", "text"];
    let is_remote_url = |url: &RawValue| {
        let text = serde_json::from_str::<String>(url.get()).ok();
        let texts: Vec<String> =
            text.into_iter().chain(RawObject::read(url).iter().flat_map(|object| object.texts("url"))).collect();
        texts.iter().any(|text| !text.trim_start().starts_with("data:"))
    };
    let is_set = |name: &str| block.all(name).any(|value| value.get() != "null");
    match api {
        ProviderApi::Anthropic => {
            let is_remote = |source: RawObject| source.is_of_type(|kind| !INLINE_SOURCES.contains(&kind));
            let remote = block.is_of_type(|kind| kind == "container_upload")
                || (block.is_of_type(|kind| matches!(kind, "image" | "document"))
                    && block.all("source").filter_map(RawObject::read).any(is_remote));
            remote.then_some(r#"{"type":"text","text":"[remote content removed]"}"#)
        }
        ProviderApi::Openai => {
            let urls = ["image_url", "video_url", "audio_url", "document_url"];
            let is_remote = urls.iter().any(|field| block.all(field).any(is_remote_url))
                || is_set("file_id")
                || is_set("file_url")
                || block.all("file").filter_map(RawObject::read).any(|file| file.all("file_id").next().is_some());
            if !is_remote {
                None
            } else if block.is_of_type(|kind| kind.starts_with("input_")) {
                Some(r#"{"type":"input_text","text":"[remote content removed]"}"#)
            } else if block.is_of_type(|kind| kind == "file" || urls.contains(&kind)) {
                Some(r#"{"type":"text","text":"[remote content removed]"}"#)
            } else {
                None
            }
        }
        ProviderApi::Gemini => {
            (is_set("fileData") || is_set("file_data")).then_some(r#"{"text":"[remote content removed]"}"#)
        }
    }
}

/// Shortens a name for the log.
fn shortened(name: &str) -> String {
    name.chars().take(64).filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests;
