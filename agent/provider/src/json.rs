//! Lenient access to the JSON of an answer. A field of an unexpected type is skipped; skipped
//! values cost no memory.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::text::{JsonText, replace_lone_surrogates};

/// Unparsed value of a field. Empty if the field is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RawJson<'a>(&'a str);

impl<'a> RawJson<'a> {
    /// Returns true for any value but `null`.
    pub(crate) fn is_present(self) -> bool {
        !matches!(self.0, "" | "null")
    }

    pub(crate) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    pub(crate) fn is_list(self) -> bool {
        self.0.starts_with('[')
    }

    pub(crate) fn is_true(self) -> bool {
        matches!(self.0, "true" | "\"true\"")
    }

    /// Value as it was sent.
    pub(crate) fn as_sent(self) -> &'a str {
        self.0
    }

    /// Returns the string with the surrogate halves that stand alone. `None` if the value is no
    /// string.
    pub(crate) fn json_text(self) -> Option<JsonText<'a>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
            return Some(JsonText::Whole(Cow::Borrowed(inner)));
        }
        let bytes = serde_json::Deserializer::from_str(self.0).deserialize_bytes(BytesVisitor).ok()?;
        Some(match String::from_utf8(bytes) {
            Ok(text) => JsonText::Whole(Cow::Owned(text)),
            Err(error) => JsonText::WithHalves(error.into_bytes()),
        })
    }

    /// Returns the string. `None` if the value is no string, or an empty one.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        self.json_text().map(JsonText::into_lossy).filter(|text| !text.is_empty())
    }

    /// Returns a string, or a number as text. `None` for any other value, and for an empty string.
    pub(crate) fn text_or_number(self) -> Option<Cow<'a, str>> {
        let is_number = self.0.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        if is_number { Some(Cow::Borrowed(self.0)) } else { self.text() }
    }

    /// Returns a count: a number, a float, or either as text. `None` for a negative number.
    pub(crate) fn count(self) -> Option<u64> {
        let number = self.0.trim_matches('"').trim();
        if let Ok(count) = number.parse() {
            return Some(count);
        }
        let number: f64 = number.parse().ok()?;
        // Beyond the largest exact integer of a float, a count is garbage.
        (0.0..9e15).contains(&number).then_some(number.round() as u64)
    }

    /// Parses an object. Returns an empty object for any other value.
    pub(crate) fn object<T: LenientField<'a>>(self) -> T {
        if self.is_object() { parse_json(self.0).unwrap_or_default() } else { T::default() }
    }

    /// Returns the values of a list. Empty for any other value.
    pub(crate) fn list(self) -> Vec<RawJson<'a>> {
        if self.is_list() { parse_json(self.0).unwrap_or_default() } else { Vec::new() }
    }

    /// Returns the values of the list in `json`. `None` if `json` is no list.
    pub(crate) fn list_in(json: &'a str) -> Option<Vec<RawJson<'a>>> {
        if json.trim_start().starts_with('[') { parse_json(json) } else { None }
    }

    /// Returns the fields of an object, in their order. Empty for any other value.
    pub(crate) fn fields(self) -> Vec<(String, RawJson<'a>)> {
        self.object::<FieldList<'a>>().0
    }

    /// Parses the whole value. A surrogate half that stands alone becomes U+FFFD.
    pub(crate) fn value(self) -> Option<Value> {
        serde_json::from_str(self.0)
            .or_else(|_| serde_json::from_str(&replace_lone_surrogates(self.0)))
            .ok()
            .filter(|value| !matches!(value, Value::Null))
    }
}

/// Parses a JSON text. `None` if the text is no JSON.
pub(crate) fn parse_json<'a, T: LenientField<'a>>(json: &'a str) -> Option<T> {
    let mut target = T::default();
    let mut json = serde_json::Deserializer::from_str(json);
    target.read_from(&mut json).ok()?;
    json.end().ok()?;
    Some(target)
}

/// Destination of a JSON value. Values of another type leave the destination as it is.
pub(crate) trait LenientField<'a>: Default {
    fn read_from<D: Deserializer<'a>>(&mut self, value: D) -> Result<(), D::Error>;
}

/// Destination of an object's fields.
pub(crate) trait LenientObject<'a>: Default {
    /// Reads the value of the field `name`. If an object has a key twice, the last value counts.
    fn read_field<A: MapAccess<'a>>(&mut self, name: &[u8], object: &mut A) -> Result<(), A::Error>;

    /// Called for each object, also for an empty one.
    fn begin(&mut self);
}

/// Declares an object of which only some fields are read.
///
/// `is_object` is true if the value was an object.
macro_rules! lenient_object {
    ($(#[$meta:meta])* struct $name:ident<$life:lifetime> {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $key:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub(crate) struct $name<$life> {
            pub(crate) is_object: bool,
            $($(#[$field_meta])* pub(crate) $field: $type,)+
        }

        impl<$life> $crate::json::LenientObject<$life> for $name<$life> {
            fn read_field<A: serde::de::MapAccess<$life>>(
                &mut self,
                name: &[u8],
                object: &mut A,
            ) -> Result<(), A::Error> {
                match name {
                    $($key => object.next_value_seed($crate::json::FieldSeed::new(&mut self.$field)),)+
                    _ => object.next_value::<serde::de::IgnoredAny>().map(drop),
                }
            }

            fn begin(&mut self) {
                self.is_object = true;
            }
        }

        impl<$life> $crate::json::LenientField<$life> for $name<$life> {
            fn read_from<D: serde::Deserializer<$life>>(&mut self, value: D) -> Result<(), D::Error> {
                value.deserialize_any($crate::json::ObjectVisitor(self))
            }
        }
    };
}
pub(crate) use lenient_object;

impl<'a> LenientField<'a> for RawJson<'a> {
    fn read_from<D: Deserializer<'a>>(&mut self, value: D) -> Result<(), D::Error> {
        *self = RawJson(<&RawValue>::deserialize(value)?.get());
        Ok(())
    }
}

impl<'a, T: LenientField<'a>> LenientField<'a> for Vec<T> {
    fn read_from<D: Deserializer<'a>>(&mut self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(ListVisitor(self))
    }
}

/// Fields of an object in their order.
#[derive(Default)]
struct FieldList<'a>(Vec<(String, RawJson<'a>)>);

impl<'a> LenientObject<'a> for FieldList<'a> {
    fn read_field<A: MapAccess<'a>>(&mut self, name: &[u8], object: &mut A) -> Result<(), A::Error> {
        let mut value = RawJson::default();
        object.next_value_seed(FieldSeed::new(&mut value))?;
        self.0.push((String::from_utf8_lossy(name).into_owned(), value));
        Ok(())
    }

    fn begin(&mut self) {}
}

impl<'a> LenientField<'a> for FieldList<'a> {
    fn read_from<D: Deserializer<'a>>(&mut self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(ObjectVisitor(self))
    }
}

/// Reads one value into its destination.
pub(crate) struct FieldSeed<'t, 'a, T> {
    target: &'t mut T,
    lifetime: PhantomData<&'a ()>,
}

impl<'t, T> FieldSeed<'t, '_, T> {
    pub(crate) fn new(target: &'t mut T) -> Self {
        FieldSeed { target, lifetime: PhantomData }
    }
}

impl<'a, T: LenientField<'a>> DeserializeSeed<'a> for FieldSeed<'_, 'a, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, value: D) -> Result<(), D::Error> {
        self.target.read_from(value)
    }
}

/// Methods of a visitor that skip a value which is neither list nor object.
macro_rules! skip_scalars {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }

        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }

        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }

        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }

        fn visit_str<E>(self, _: &str) -> Result<(), E> {
            Ok(())
        }
    };
}

pub(crate) struct ObjectVisitor<'t, T>(pub(crate) &'t mut T);

impl<'a, T: LenientObject<'a>> Visitor<'a> for ObjectVisitor<'_, T> {
    type Value = ();

    skip_scalars!();

    fn visit_seq<A: SeqAccess<'a>>(self, list: A) -> Result<(), A::Error> {
        IgnoredAny.visit_seq(list).map(drop)
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        self.0.begin();
        while let Some(name) = object.next_key_seed(NameSeed)? {
            self.0.read_field(&name, &mut object)?;
        }
        Ok(())
    }
}

struct ListVisitor<'t, T>(&'t mut Vec<T>);

impl<'a, T: LenientField<'a>> Visitor<'a> for ListVisitor<'_, T> {
    type Value = ();

    skip_scalars!();

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.clear();
        loop {
            let mut item = T::default();
            if list.next_element_seed(FieldSeed::new(&mut item))?.is_none() {
                return Ok(());
            }
            self.0.push(item);
        }
    }

    fn visit_map<A: MapAccess<'a>>(self, object: A) -> Result<(), A::Error> {
        IgnoredAny.visit_map(object).map(drop)
    }
}

/// Reads a name as bytes, so that lone surrogate halves in names are no error.
struct NameSeed;

impl<'a> DeserializeSeed<'a> for NameSeed {
    type Value = Cow<'a, [u8]>;

    fn deserialize<D: Deserializer<'a>>(self, name: D) -> Result<Cow<'a, [u8]>, D::Error> {
        name.deserialize_bytes(self)
    }
}

impl<'a> Visitor<'a> for NameSeed {
    type Value = Cow<'a, [u8]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_bytes<E>(self, name: &'a [u8]) -> Result<Cow<'a, [u8]>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<Cow<'a, [u8]>, E> {
        Ok(Cow::Owned(name.to_vec()))
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

/// Finds the end of a JSON object or list that arrives in parts. Checks brackets and strings only.
#[derive(Debug, Default)]
pub(crate) struct JsonScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl JsonScan {
    /// Scans the next bytes. Returns the number of bytes up to the end of the value, if it ends
    /// here.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            at += 1;
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    // Most bytes of an answer stand inside a string.
                    _ => at += memchr::memchr2(b'"', b'\\', &bytes[at..]).unwrap_or(bytes.len() - at),
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    lenient_object! {
        struct SampleObject<'a> {
            kind: RawJson<'a> = b"type",
            inner: InnerObject<'a> = b"inner",
            list: Vec<InnerObject<'a>> = b"list",
        }
    }

    lenient_object! {
        struct InnerObject<'a> {
            text: RawJson<'a> = b"text",
        }
    }

    fn read(json: &str) -> SampleObject<'_> {
        parse_json(json).expect("the text is JSON")
    }

    #[test]
    fn values_of_another_type_are_skipped() {
        for json in ["null", "true", "-1", "1.5", "\"x\"", "[]", "[7,{}]", r#"{"x":[{"type":"y"}]}"#] {
            for name in ["inner", "list"] {
                let text = format!(r#"{{"{name}":{json},"type":"t","{name}":{json}}}"#);
                let object = read(&text);
                assert_eq!(object.kind.text().as_deref(), Some("t"), "{text}");
                assert!(object.inner.text.text().is_none() && object.list.iter().all(|item| !item.text.is_present()));
            }
            read(json);
        }
        let object = read(r#"{"type":"a","type":"b","\ud83c":1,"ty\u0070e":"c"}"#);
        assert_eq!(object.kind.text().as_deref(), Some("c"));
    }

    #[test]
    fn invalid_json_is_not_read() {
        for json in ["", "{", "{half", r#"{"type":"a"} {}"#, r#"{"skipped":[1,2}"#, r#"{"type":"a",}"#, "<html>"] {
            assert!(parse_json::<SampleObject>(json).is_none(), "{json}");
        }
    }

    #[test]
    fn skipped_values_may_be_deeply_nested() {
        let deep = format!(r#"{{"other":{}{},"type":"t"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read(&deep).kind.text().as_deref(), Some("t"));
        let deep = deep.replace("other", "type");
        assert_eq!(read(&deep).kind.text().as_deref(), Some("t"));
    }

    #[test]
    fn counts_are_read_from_any_number() {
        for (json, count) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("7e2", Some(700)),
            ("\"7\"", Some(7)),
            ("\"7.0\"", Some(7)),
            ("-7", None),
            ("1e999", None),
            ("true", None),
            ("null", None),
            ("\"many\"", None),
            ("[7]", None),
        ] {
            assert_eq!(RawJson(json).count(), count, "{json}");
        }
    }

    #[test]
    fn end_of_a_value_is_found_at_any_cut() {
        let json = r#"{"a":"}\"]\\","b":[{"c":1},[]]}"#;
        let both = format!("{json} {json}");
        for cut in 0..json.len() {
            let mut scan = JsonScan::default();
            assert_eq!(scan.scan(&both.as_bytes()[..cut]), None, "{cut}");
            assert_eq!(scan.scan(&both.as_bytes()[cut..]), Some(json.len() - cut), "{cut}");
        }
    }
}
