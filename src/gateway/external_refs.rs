//! External references: content outside the request that its input points at. Examples: an item of
//! an earlier response, a file, a picture at a URL.

use std::fmt::{self, Formatter};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// Texts that may mark a reference. The escape is included because it may stand for a part of the
/// others.
const REFERENCE_MARKS: [&str; 5] = ["item_reference", "file_id", "file_url", "image_url", r"\u00"];

/// Returns true if `input`, a JSON value, may point at external content.
pub(super) fn contains_external_refs(input: &str) -> bool {
    match serde_json::from_str::<ReferenceScan>(input) {
        Ok(found) => found.found,
        // Nested too deeply, or contains half a surrogate pair (a program cut a text).
        Err(_) => REFERENCE_MARKS.iter().any(|mark| input.contains(mark)),
    }
}

/// Result of scanning a value. Holds none of its content.
struct ReferenceScan {
    found: bool,
    text: ScannedText,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScannedText {
    /// Not a string.
    NotText,
    /// URL that contains its data.
    DataUrl,
    /// Type of an item that stands for another item.
    ItemReference,
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum ReferenceKey {
    FileId,
    FileUrl,
    ImageUrl,
    Type,
    #[serde(other)]
    Other,
}

struct ReferenceVisitor;

impl<'de> Deserialize<'de> for ReferenceScan {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<ReferenceScan, D::Error> {
        value.deserialize_any(ReferenceVisitor)
    }
}

fn scanned(text: ScannedText) -> ReferenceScan {
    ReferenceScan { found: false, text }
}

impl<'de> Visitor<'de> for ReferenceVisitor {
    type Value = ReferenceScan;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, value: &str) -> Result<ReferenceScan, E> {
        Ok(scanned(match value {
            "item_reference" => ScannedText::ItemReference,
            url if url.starts_with("data:") => ScannedText::DataUrl,
            _ => ScannedText::Other,
        }))
    }

    fn visit_unit<E>(self) -> Result<ReferenceScan, E> {
        Ok(scanned(ScannedText::NotText))
    }

    fn visit_bool<E>(self, _: bool) -> Result<ReferenceScan, E> {
        Ok(scanned(ScannedText::NotText))
    }

    fn visit_i64<E>(self, _: i64) -> Result<ReferenceScan, E> {
        Ok(scanned(ScannedText::NotText))
    }

    fn visit_u64<E>(self, _: u64) -> Result<ReferenceScan, E> {
        Ok(scanned(ScannedText::NotText))
    }

    fn visit_f64<E>(self, _: f64) -> Result<ReferenceScan, E> {
        Ok(scanned(ScannedText::NotText))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<ReferenceScan, A::Error> {
        let mut found = scanned(ScannedText::NotText);
        while let Some(value) = values.next_element::<ReferenceScan>()? {
            found.found |= value.found;
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<ReferenceScan, A::Error> {
        let mut found = scanned(ScannedText::NotText);
        while let Some(key) = fields.next_key::<ReferenceKey>()? {
            let value = fields.next_value::<ReferenceScan>()?;
            found.found |= value.found
                || match key {
                    ReferenceKey::FileId | ReferenceKey::FileUrl => value.text != ScannedText::NotText,
                    ReferenceKey::ImageUrl => !matches!(value.text, ScannedText::NotText | ScannedText::DataUrl),
                    ReferenceKey::Type => value.text == ScannedText::ItemReference,
                    ReferenceKey::Other => false,
                };
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_at_any_depth() {
        let check = |input: &str, expected: bool| {
            assert_eq!(contains_external_refs(input), expected, "{input}");
        };
        check(r#""say \"file_id\": 1, item_reference""#, false);
        check(
            r#"[{"role":"user","content":"hello"},{"type":"function_call_output","output":"{\"file_id\":\"a\"}"}]"#,
            false,
        );
        check(r#"[{"content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}]"#, false);
        check(r#"[{"content":[{"type":"input_file","file_id":null,"n":[1,-2,0.5,true,null]}]}]"#, false);
        check(r#"[{"type":"function_call_output","output":"half of a face: \ud83d"}]"#, false);
        check(r#"[{"type":"item_reference","id":"msg_1","text":"half of a face: \ud83d"}]"#, true);
        check(r#"[{"type":"item_reference","id":"msg_1"}]"#, true);
        check(r#"[{"type":"item\u005freference","id":"msg_1"}]"#, true);
        check(r#"[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]"#, true);
        check(r#"[{"content":[{"type":"input_file","file_\u0075rl":"https://a.example/b"}]}]"#, true);
        check(r#"[{"content":[{"type":"input_image","image_url":"https://a.example/b.png"}]}]"#, true);
    }
}
