//! The types of single values: times, secrets, users, volumes.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Deserializer, de};

/// A length of time: `"90s"`, `"30min"`, `"1h 30min"`, or a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TimeSpan, D::Error> {
        match NumberOrText::deserialize(from)? {
            NumberOrText::Number(seconds) => u64::try_from(seconds).ok().map(Duration::from_secs),
            // The environment has nothing but texts.
            NumberOrText::Text(text) => match text.trim().parse() {
                Ok(seconds) => Some(Duration::from_secs(seconds)),
                Err(_) => jiff::SignedDuration::from_str(&text).ok().and_then(|span| span.try_into().ok()),
            },
        }
        .map(TimeSpan)
        .ok_or_else(|| de::Error::custom("no length of time; write `90s`, `30min`, `1h 30min` or a number of seconds"))
    }
}

/// A text that no log, no error and no `Debug` shows. Empty: not set.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretString(String);

impl SecretString {
    pub fn new(text: impl Into<String>) -> SecretString {
        SecretString(text.into())
    }

    /// The text itself, where one is set, without the white space that a copied key often brings along.
    pub fn expose(&self) -> Option<&str> {
        Some(self.0.trim()).filter(|text| !text.is_empty())
    }

    /// Whether it can be a token: hard to guess, and the same in a header, in an address and in a shell.
    pub(super) fn is_valid_token(&self) -> bool {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        self.expose().is_none_or(|text| text.len() >= 16 && text.bytes().all(plain))
    }
}

impl fmt::Debug for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.expose().is_some() { "Secret(redacted)" } else { "Secret(not set)" })
    }
}

/// A user or a group of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnixId {
    /// The one that runs this server; where that is root, nobody.
    Auto,
    Fixed(u32),
}

impl<'de> Deserialize<'de> for UnixId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UnixId, D::Error> {
        match NumberOrText::deserialize(from)? {
            NumberOrText::Number(id) => u32::try_from(id).ok().map(UnixId::Fixed),
            NumberOrText::Text(text) if text == "auto" => Some(UnixId::Auto),
            NumberOrText::Text(text) => text.parse().ok().map(UnixId::Fixed),
        }
        .ok_or_else(|| de::Error::custom("no user or group; write its number, or `auto`"))
    }
}

/// A directory of this host inside every sandbox: `"/host:/inside"`, `"/host:/inside:ro"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct VolumeConfig {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub access: VolumeAccessConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeAccessConfig {
    ReadOnly,
    ReadWrite,
}

impl TryFrom<String> for VolumeConfig {
    type Error = String;

    fn try_from(text: String) -> Result<VolumeConfig, String> {
        let (host, inside, access) = match text.split(':').collect::<Vec<_>>()[..] {
            [host, inside] | [host, inside, "rw"] => (host, inside, VolumeAccessConfig::ReadWrite),
            [host, inside, "ro"] => (host, inside, VolumeAccessConfig::ReadOnly),
            _ => return Err(format!("`{text}` is no volume; write `/host:/inside:ro` or `/host:/inside:rw`")),
        };
        let (host, inside) = (PathBuf::from(host), PathBuf::from(inside));
        if !host.is_absolute() || !inside.is_absolute() {
            return Err(format!("`{text}` is no volume; both of its paths begin with `/`"));
        }
        if inside.starts_with("/greenroom") {
            return Err(format!("`{text}` would hide the agent; choose a place outside `/greenroom`"));
        }
        if inside == Path::new("/workspace") && access == VolumeAccessConfig::ReadOnly {
            return Err(format!(
                "`{text}` would be no workspace, as agents write in theirs; mount what is only to be read at a place of its own, \
                 such as `/data`"
            ));
        }
        Ok(VolumeConfig { host, inside, access })
    }
}

/// What a person may write as a number or as a text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "neither a number nor a text")]
enum NumberOrText {
    Number(i64),
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: de::DeserializeOwned>(toml: &str) -> Result<T, String> {
        let value = toml::from_str::<toml::Table>(&format!("v = {toml}")).expect("it is TOML")["v"].clone();
        value.try_into().map_err(|e: toml::de::Error| e.message().to_owned())
    }

    #[test]
    fn spans() {
        let check = |toml, expected: Option<u64>| {
            assert_eq!(read::<TimeSpan>(toml).ok(), expected.map(|ms| TimeSpan(Duration::from_millis(ms))), "{toml}");
        };
        check("90", Some(90_000));
        check(r#""90""#, Some(90_000));
        check(r#""0""#, Some(0));
        check(r#""-5""#, None);
        check(r#""90s""#, Some(90_000));
        check(r#""30min""#, Some(1_800_000));
        check(r#""1h 30min""#, Some(5_400_000));
        check(r#""500ms""#, Some(500));
        check(r#""0s""#, Some(0));
        check("-1", None);
        check(r#""-5s""#, None);
        check(r#""soon""#, None);
        check("[]", None);
    }

    #[test]
    fn users() {
        let check = |toml, expected| assert_eq!(read::<UnixId>(toml).ok(), expected, "{toml}");
        check(r#""auto""#, Some(UnixId::Auto));
        check("1000", Some(UnixId::Fixed(1000)));
        check(r#""1000""#, Some(UnixId::Fixed(1000)));
        check("-1", None);
        check(r#""root""#, None);
    }

    #[test]
    fn volumes() {
        let check = |text: &str, expected: Result<(&str, &str, VolumeAccessConfig), &str>| match (
            VolumeConfig::try_from(text.to_owned()),
            expected,
        ) {
            (Ok(volume), Ok((host, inside, access))) => {
                assert_eq!(volume, VolumeConfig { host: host.into(), inside: inside.into(), access });
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
        };
        check("/a:/b", Ok(("/a", "/b", VolumeAccessConfig::ReadWrite)));
        check("/a:/b:rw", Ok(("/a", "/b", VolumeAccessConfig::ReadWrite)));
        check("/a:/b:ro", Ok(("/a", "/b", VolumeAccessConfig::ReadOnly)));
        check("/a", Err("no volume"));
        check("/a:/b:rx", Err("no volume"));
        check("a:/b", Err("begin with `/`"));
        check("/a:b:ro", Err("begin with `/`"));
        check("/a:/greenroom/run", Err("hide the agent"));
        check("/a:/workspace/", Ok(("/a", "/workspace", VolumeAccessConfig::ReadWrite)));
        check("/a:/workspace:ro", Err("such as `/data`"));
    }

    #[test]
    fn a_secret_is_never_shown() {
        assert_eq!(format!("{:?}", SecretString::new("sk-canary")), "Secret(redacted)");
        assert_eq!(SecretString::new(" key\n").expose(), Some("key"));
        assert_eq!(SecretString::new("  ").expose(), None);
    }

    #[test]
    fn tokens_that_can_be_guessed_or_would_break_a_header_are_not_fit() {
        let check = |text: &str, fit| assert_eq!(SecretString::new(text).is_valid_token(), fit, "{text}");
        check("", true);
        check("0123456789abcdef", true);
        check("short", false);
        check("0123456789-._~aBc", true);
        check("0123456789 abcdef", false);
        check("0123456789&abcdef", false);
        check("0123456789abcdeü", false);
    }
}
