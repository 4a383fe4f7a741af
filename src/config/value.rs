//! Types of single values: times, secrets, users, volumes.

use std::{
    fmt,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use greenroom_protocol::link::ReasoningEffort;
use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer},
};

/// Length of time: `"90s"`, `"30min"`, `"1h 30min"`, or a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

impl TimeSpan {
    /// Returns the time. 0 becomes [`Duration::MAX`], which means never.
    pub fn or_never(self) -> Duration {
        if self.0.is_zero() { Duration::MAX } else { self.0 }
    }

    /// Returns the time in seconds, rounded up.
    pub fn whole_seconds(self) -> u64 {
        self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TimeSpan, D::Error> {
        match NumberOrText::deserialize(from)? {
            NumberOrText::Number(seconds) => u64::try_from(seconds).ok().map(Duration::from_secs),
            // Environment variables are always strings.
            NumberOrText::Text(text) => match text.trim().parse() {
                Ok(seconds) => Some(Duration::from_secs(seconds)),
                Err(_) => jiff::SignedDuration::from_str(&text).ok().and_then(|span| span.try_into().ok()),
            },
        }
        .map(TimeSpan)
        .ok_or_else(|| de::Error::custom("must be a length of time: `90s`, `30min`, `1h 30min` or a number of seconds"))
    }
}

/// Reads a reasoning effort. Empty: `None`.
pub(super) fn effort<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ReasoningEffort>, D::Error> {
    match String::deserialize(from)?.as_str() {
        "" => Ok(None),
        name => ReasoningEffort::deserialize(name.into_deserializer()).map(Some),
    }
}

/// Limit in USD, or none (an empty text).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UsdLimit(pub Option<f64>);

impl<'de> Deserialize<'de> for UsdLimit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UsdLimit, D::Error> {
        let limit = match UsdOrText::deserialize(from)? {
            UsdOrText::Text(text) if text.trim().is_empty() => return Ok(UsdLimit(None)),
            // Environment variables are always strings.
            UsdOrText::Text(text) => text.trim().parse().ok(),
            UsdOrText::Number(usd) => Some(usd),
        };
        limit
            .filter(|usd: &f64| usd.is_finite() && *usd > 0.0)
            .map(|usd| UsdLimit(Some(usd)))
            .ok_or_else(|| de::Error::custom("must be a number of US dollars above 0, or empty for no limit"))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UsdOrText {
    Number(f64),
    Text(String),
}

/// Secret that no log, error or `Debug` output shows. Empty: not set.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretString(String);

impl SecretString {
    pub fn new(text: impl Into<String>) -> SecretString {
        SecretString(text.into())
    }

    /// Returns the secret, if set, without the white space that copying often adds.
    pub fn expose(&self) -> Option<&str> {
        Some(self.0.trim()).filter(|text| !text.is_empty())
    }

    /// Returns true if the secret is empty or usable as a token: hard to guess, and literal in
    /// headers, URLs and shells.
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

/// User or group of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnixId {
    /// User or group of this server. The unprivileged id 65532 if that is root.
    Auto,
    /// Given id.
    Fixed(u32),
}

impl<'de> Deserialize<'de> for UnixId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UnixId, D::Error> {
        match NumberOrText::deserialize(from)? {
            NumberOrText::Number(id) => u32::try_from(id).ok().map(UnixId::Fixed),
            NumberOrText::Text(text) if text == "auto" => Some(UnixId::Auto),
            NumberOrText::Text(text) => text.parse().ok().map(UnixId::Fixed),
        }
        .ok_or_else(|| de::Error::custom("must be the number of a user or group, or `auto`"))
    }
}

/// User ids of this host, one for each sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UidRange {
    /// [`UidRange::AUTO`], unless `sandbox.uid` names a user.
    Auto,
    /// No range: all sandboxes share one user.
    Off,
    /// Given ids.
    Ids(RangeInclusive<u32>),
}

impl UidRange {
    /// Range that no known system gives to users, containers or services.
    pub const AUTO: RangeInclusive<u32> = 1_879_048_192..=1_879_113_727;
}

impl<'de> Deserialize<'de> for UidRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UidRange, D::Error> {
        let text = String::deserialize(from)?;
        let ids = || {
            let (first, last) = text.split_once('-')?;
            let ids = first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?;
            // The kernel uses the highest id for "no user".
            (!ids.is_empty() && *ids.start() > 0 && *ids.end() < u32::MAX).then_some(UidRange::Ids(ids))
        };
        match text.trim() {
            "auto" => Ok(UidRange::Auto),
            "" => Ok(UidRange::Off),
            _ => ids().ok_or_else(|| {
                de::Error::custom(
                    "must be `auto`, empty, or the first and the last id, such as `200000-265535`; without 0",
                )
            }),
        }
    }
}

/// Directory of this host inside every sandbox: `"/host:/inside"`, `"/host:/inside:ro"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SandboxVolume {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub access: VolumeAccess,
}

/// Access of the agent to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeAccess {
    ReadOnly,
    ReadWrite,
}

impl TryFrom<String> for SandboxVolume {
    type Error = String;

    fn try_from(text: String) -> Result<SandboxVolume, String> {
        let (host, inside, access) = match text.split(':').collect::<Vec<_>>()[..] {
            [host, inside] | [host, inside, "rw"] => (host, inside, VolumeAccess::ReadWrite),
            [host, inside, "ro"] => (host, inside, VolumeAccess::ReadOnly),
            _ => return Err(format!("volume `{text}` must have the form `/host:/inside:ro` or `/host:/inside:rw`")),
        };
        let (host, inside) = (PathBuf::from(host), PathBuf::from(inside));
        if !host.is_absolute() || !inside.is_absolute() {
            return Err(format!("both paths of volume `{text}` must begin with `/`"));
        }
        if inside.starts_with("/greenroom") {
            return Err(format!("volume `{text}` must not hide the agent; choose a path outside `/greenroom`"));
        }
        if inside == Path::new("/workspace") && access == VolumeAccess::ReadOnly {
            return Err(format!(
                "volume `{text}` must be writable, because agents write to their workspace; mount read-only data at another \
                 path, such as `/data`"
            ));
        }
        Ok(SandboxVolume { host, inside, access })
    }
}

/// Value that may be written as a number or as a string.
#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a number or a string")]
enum NumberOrText {
    Number(i64),
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: de::DeserializeOwned>(toml: &str) -> Result<T, String> {
        let value = toml::from_str::<toml::Table>(&format!("v = {toml}")).expect("the text is TOML")["v"].clone();
        value.try_into().map_err(|e: toml::de::Error| e.message().to_owned())
    }

    #[test]
    fn time_spans_are_parsed() {
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
    fn seconds_are_rounded_up() {
        let check = |ms, expected| assert_eq!(TimeSpan(Duration::from_millis(ms)).whole_seconds(), expected, "{ms} ms");
        check(0, 0);
        check(500, 1);
        check(2000, 2);
        check(2001, 3);
    }

    #[test]
    fn zero_means_never() {
        assert_eq!(TimeSpan(Duration::ZERO).or_never(), Duration::MAX);
        assert_eq!(TimeSpan(Duration::from_millis(1)).or_never(), Duration::from_millis(1));
    }

    #[test]
    fn user_ids_are_parsed() {
        let check = |toml, expected| assert_eq!(read::<UnixId>(toml).ok(), expected, "{toml}");
        check(r#""auto""#, Some(UnixId::Auto));
        check("1000", Some(UnixId::Fixed(1000)));
        check(r#""1000""#, Some(UnixId::Fixed(1000)));
        check("-1", None);
        check(r#""root""#, None);
    }

    #[test]
    fn volumes_are_parsed() {
        let check = |text: &str, expected: Result<(&str, &str, VolumeAccess), &str>| match (
            SandboxVolume::try_from(text.to_owned()),
            expected,
        ) {
            (Ok(volume), Ok((host, inside, access))) => {
                assert_eq!(volume, SandboxVolume { host: host.into(), inside: inside.into(), access });
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
        };
        check("/a:/b", Ok(("/a", "/b", VolumeAccess::ReadWrite)));
        check("/a:/b:rw", Ok(("/a", "/b", VolumeAccess::ReadWrite)));
        check("/a:/b:ro", Ok(("/a", "/b", VolumeAccess::ReadOnly)));
        check("/a", Err("must have the form"));
        check("/a:/b:rx", Err("must have the form"));
        check("a:/b", Err("begin with `/`"));
        check("/a:b:ro", Err("begin with `/`"));
        check("/a:/greenroom/run", Err("hide the agent"));
        check("/a:/workspace/", Ok(("/a", "/workspace", VolumeAccess::ReadWrite)));
        check("/a:/workspace:ro", Err("such as `/data`"));
    }

    #[test]
    fn debug_output_hides_secrets() {
        assert_eq!(format!("{:?}", SecretString::new("sk-canary")), "Secret(redacted)");
        assert_eq!(SecretString::new(" key\n").expose(), Some("key"));
        assert_eq!(SecretString::new("  ").expose(), None);
    }

    #[test]
    fn weak_or_unsafe_tokens_are_invalid() {
        let check = |text: &str, valid| assert_eq!(SecretString::new(text).is_valid_token(), valid, "{text}");
        check("", true);
        check("0123456789abcdef", true);
        check("short", false);
        check("0123456789-._~aBc", true);
        check("0123456789 abcdef", false);
        check("0123456789&abcdef", false);
        check("0123456789abcdeü", false);
    }
}
