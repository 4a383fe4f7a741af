//! Whether the input of a request points at what is kept elsewhere: an item of an earlier answer, a file, a picture at some URL.

use std::fmt::{self, Formatter};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// What is in an input that may point elsewhere; an escape, because that may stand for a part of the others.
const MARKS: [&str; 5] = ["item_reference", "file_id", "file_url", "image_url", r"\u00"];

pub(super) fn are_in(input: &str) -> bool {
    match serde_json::from_str::<Pointers>(input) {
        Ok(found) => found.are_any,
        // It is nested too deeply, or has half a character in it, as where a program cut a text.
        Err(_) => MARKS.iter().any(|mark| input.contains(mark)),
    }
}

/// Reads a whole value, and keeps nothing of it.
struct Pointers {
    are_any: bool,
    text: Text,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    /// It is no text.
    No,
    /// A URL that has its data in itself.
    Data,
    /// What an item is that stands for another.
    Reference,
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    FileId,
    FileUrl,
    ImageUrl,
    Type,
    #[serde(other)]
    Other,
}

struct Walk;

impl<'de> Deserialize<'de> for Pointers {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Pointers, D::Error> {
        value.deserialize_any(Walk)
    }
}

fn text(text: Text) -> Pointers {
    Pointers { are_any: false, text }
}

impl<'de> Visitor<'de> for Walk {
    type Value = Pointers;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, value: &str) -> Result<Pointers, E> {
        Ok(text(match value {
            "item_reference" => Text::Reference,
            url if url.starts_with("data:") => Text::Data,
            _ => Text::Other,
        }))
    }

    fn visit_unit<E>(self) -> Result<Pointers, E> {
        Ok(text(Text::No))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Pointers, E> {
        Ok(text(Text::No))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Pointers, E> {
        Ok(text(Text::No))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Pointers, E> {
        Ok(text(Text::No))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Pointers, E> {
        Ok(text(Text::No))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Pointers, A::Error> {
        let mut found = text(Text::No);
        while let Some(value) = values.next_element::<Pointers>()? {
            found.are_any |= value.are_any;
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Pointers, A::Error> {
        let mut found = text(Text::No);
        while let Some(key) = fields.next_key::<Key>()? {
            let value = fields.next_value::<Pointers>()?;
            found.are_any |= value.are_any
                || match key {
                    Key::FileId | Key::FileUrl => value.text != Text::No,
                    Key::ImageUrl => !matches!(value.text, Text::No | Text::Data),
                    Key::Type => value.text == Text::Reference,
                    Key::Other => false,
                };
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_points_elsewhere_is_seen_wherever_it_stands() {
        let check = |input: &str, expected: bool| {
            assert_eq!(are_in(input), expected, "{input}");
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
